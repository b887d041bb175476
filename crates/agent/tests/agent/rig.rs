//! A session of the runtime against a scripted model, and what its events look like in short.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::{
    Content, FinishReason, FunctionCall, Llm, LlmRequest, LlmResponse, ModelError, Part, Role, UsageMetadata,
};
use convoke_agent::{
    AgentFactory, AgentOptions, ConnectModel, ContextFileOptions, LifecycleHooks, NoLifecycleHooks, SessionModel,
};
use convoke_protocol::{
    AgentEvent, AgentEventBody, AgentInfo, AgentSend, AgentSession, ContentPart, HostedSession, NewSession,
    PermissionOutcome, PermissionPort, PermissionRequest, SendError, SendMessage, SessionFactory,
};
use convoke_stdx::guard::Spawner;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub(crate) type Answer = Vec<Result<LlmResponse, ModelError>>;

/// Answers from a list; silent for ever when it is used up.
pub(crate) struct Scripted {
    pub(crate) answers: Mutex<Vec<Answer>>,
    pub(crate) requests: Arc<Mutex<Vec<LlmRequest>>>,
}

impl Llm for Scripted {
    fn model(&self) -> String {
        "scripted-1".into()
    }

    fn generate(
        &self,
        request: LlmRequest,
        _: CancellationToken,
    ) -> BoxStream<'static, Result<LlmResponse, ModelError>> {
        self.requests.lock().unwrap().push(request);
        let mut answers = self.answers.lock().unwrap();
        if answers.is_empty() { stream::pending().boxed() } else { stream::iter(answers.remove(0)).boxed() }
    }
}

pub(crate) fn text(text: &str) -> Result<LlmResponse, ModelError> {
    piece(vec![Part::text(text)])
}

pub(crate) fn piece(parts: Vec<Part>) -> Result<LlmResponse, ModelError> {
    Ok(LlmResponse { content: Some(Content { role: Role::Model, parts }), ..LlmResponse::default() })
}

pub(crate) fn call(name: &str, args: Value) -> Part {
    Part::call(&FunctionCall { id: None, name: name.into(), args })
}

pub(crate) fn stop() -> Result<LlmResponse, ModelError> {
    let usage = UsageMetadata { prompt_token_count: 10, candidates_token_count: 5, ..UsageMetadata::default() };
    Ok(LlmResponse { finish_reason: Some(FinishReason::stop()), usage: Some(usage), ..LlmResponse::default() })
}

/// Hands every question to the test.
pub(crate) struct Asked(pub(crate) mpsc::Sender<(PermissionRequest, tokio::sync::oneshot::Sender<PermissionOutcome>)>);

#[async_trait]
impl PermissionPort for Asked {
    async fn request(&self, request: PermissionRequest) -> PermissionOutcome {
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.0.send((request, answer)).await.unwrap();
        answered.await.unwrap_or(PermissionOutcome::Cancelled)
    }
}

pub(crate) struct Rig {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) session: HostedSession,
    pub(crate) questions: mpsc::Receiver<(PermissionRequest, tokio::sync::oneshot::Sender<PermissionOutcome>)>,
    pub(crate) requests: Arc<Mutex<Vec<LlmRequest>>>,
}

pub(crate) fn options(
    answers: Vec<Answer>,
    hooks: Arc<dyn LifecycleHooks>,
) -> (AgentOptions, Arc<Mutex<Vec<LlmRequest>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let model: Arc<dyn Llm> = Arc::new(Scripted { answers: Mutex::new(answers), requests: requests.clone() });
    let info = AgentInfo { name: "test".into(), title: "Test".into(), version: "0".into() };
    let connect: ConnectModel = Arc::new(move |_| Ok(SessionModel::fixed(model.clone())));
    let options = AgentOptions {
        interactive: true,
        context: ContextFileOptions { names: vec!["AGENTS.md".into()], ..ContextFileOptions::default() },
        max_turns: Some(4),
        hooks,
        ..AgentOptions::new(info, connect, Spawner::unguarded())
    };
    (options, requests)
}

impl Rig {
    pub(crate) async fn new(answers: Vec<Answer>) -> Self {
        Self::with_hooks(answers, Arc::new(NoLifecycleHooks)).await
    }

    pub(crate) async fn with_hooks(answers: Vec<Answer>, hooks: Arc<dyn LifecycleHooks>) -> Self {
        Self::with_options(options(answers, hooks)).await
    }

    pub(crate) async fn with_options((options, requests): (AgentOptions, Arc<Mutex<Vec<LlmRequest>>>)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("AGENTS.md"), "Speak plainly.").unwrap();
        std::fs::write(dir.path().join("a.txt"), "one\n").unwrap();
        let (ask, questions) = mpsc::channel(4);
        let cwd = dir.path().canonicalize().unwrap();
        let new = NewSession { session_id: Some("s".into()), ..NewSession::new(cwd, Arc::new(Asked(ask))) };
        let session = AgentFactory::new(options).new_session(new).await.unwrap();
        Self { dir, session, questions, requests }
    }

    pub(crate) async fn send(&self, prompt: &str) -> Result<BoxStream<'static, Arc<AgentEvent>>, SendError> {
        let view = AgentSession::new(self.session.agent.clone());
        Ok(view.send_stream(AgentSend::Message(SendMessage::text(prompt))).await?.boxed())
    }

    pub(crate) async fn run(&self, prompt: &str) -> Vec<Arc<AgentEvent>> {
        let events = self.send(prompt).await.unwrap().collect();
        tokio::time::timeout(Duration::from_secs(20), events).await.expect("the stream must end")
    }
}

/// One word per event, with what matters of it.
pub(crate) fn sketch(events: &[Arc<AgentEvent>]) -> Vec<String> {
    events
        .iter()
        .map(|event| match &event.body {
            AgentEventBody::SessionUpdate { model, config, .. } => {
                format!("session_update {}", model.clone().unwrap_or_else(|| json!(config).to_string()))
            }
            AgentEventBody::Message { content, .. } => match &content[0] {
                ContentPart::Text { text } => format!("message {text}"),
                ContentPart::Thought { thought, .. } => format!("thought {thought}"),
                other => format!("{other:?}"),
            },
            AgentEventBody::AgentStart => "agent_start".into(),
            AgentEventBody::AgentEnd { reason, .. } => format!("agent_end {reason:?}"),
            AgentEventBody::ToolRequest { name, .. } => format!("tool_request {name}"),
            AgentEventBody::ToolUpdate { data, .. } => {
                format!("tool_update {}", data.as_ref().unwrap()["status"].as_str().unwrap())
            }
            AgentEventBody::ToolResponse { name, is_error, .. } => {
                format!("tool_response {name}{}", if *is_error { " error" } else { "" })
            }
            AgentEventBody::Usage { input_tokens, .. } => format!("usage {}", input_tokens.unwrap()),
            AgentEventBody::Error { message, fatal, .. } => format!("error {message} fatal={fatal}"),
            AgentEventBody::Custom { kind, .. } => format!("custom {kind}"),
            AgentEventBody::Unknown(_) => "unknown".into(),
        })
        .collect()
}

pub(crate) fn told(event: &AgentEvent) -> String {
    match &event.body {
        AgentEventBody::ToolResponse { content, .. } => {
            content.iter().flatten().filter_map(ContentPart::as_text).collect()
        }
        _ => String::new(),
    }
}
