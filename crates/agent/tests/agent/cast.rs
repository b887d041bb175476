//! Several agents with a script each: parents, children, and whoever answers their questions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convoke_adk::{Llm, LlmRequest, LlmResponse, ModelError};
use convoke_agent::{AgentFactory, AgentOptions, ConnectModel, ContextFileOptions, SessionModel, SubagentOptions};
use convoke_protocol::{
    AgentEvent, AgentEventBody, AgentInfo, AgentSend, AgentSession, HostedSession, NewSession, PermissionOutcome,
    PermissionRequest, SendMessage, SessionFactory,
};
use convoke_stdx::guard::Spawner;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::rig::{Answer, Asked, call, piece, stop};

/// Answers whoever asks from a list of its own; silent for ever when it is used up. The actor is named in the
/// instruction, as `You are NAME.`; whoever is not is `main`.
pub(crate) struct Cast {
    scripts: Mutex<BTreeMap<String, Vec<Answer>>>,
    pub(crate) requests: Arc<Mutex<Vec<(String, LlmRequest)>>>,
}

impl Cast {
    pub(crate) fn new(scripts: &[(&str, Vec<Answer>)]) -> Self {
        let scripts = scripts.iter().map(|(name, answers)| ((*name).to_owned(), answers.clone())).collect();
        Self { scripts: Mutex::new(scripts), requests: Arc::default() }
    }
}

pub(crate) fn actor(request: &LlmRequest) -> String {
    let text = request.system_instruction.join("\n");
    let named = text.split("You are ").nth(1).and_then(|rest| rest.split('.').next());
    named.filter(|name| !name.contains(' ')).unwrap_or("main").to_owned()
}

impl Llm for Cast {
    fn model(&self) -> String {
        "scripted-1".into()
    }

    fn generate(
        &self,
        request: LlmRequest,
        _: CancellationToken,
    ) -> BoxStream<'static, Result<LlmResponse, ModelError>> {
        let name = actor(&request);
        self.requests.lock().unwrap().push((name.clone(), request));
        let mut scripts = self.scripts.lock().unwrap();
        match scripts.get_mut(&name).filter(|answers| !answers.is_empty()) {
            Some(answers) => stream::iter(answers.remove(0)).boxed(),
            None => stream::pending().boxed(),
        }
    }
}

pub(crate) type Question = (PermissionRequest, oneshot::Sender<PermissionOutcome>);

pub(crate) struct Stage {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) session: HostedSession,
    pub(crate) questions: mpsc::Receiver<Question>,
    pub(crate) requests: Arc<Mutex<Vec<(String, LlmRequest)>>>,
}

/// One answer that makes these calls.
pub(crate) fn calls(calls: &[(&str, Value)]) -> Answer {
    vec![piece(calls.iter().map(|(name, args)| call(name, args.clone())).collect()), stop()]
}

/// One answer that gives each of these agents a task.
pub(crate) fn invoke(agents: &[&str]) -> Answer {
    let given: Vec<_> = agents
        .iter()
        .map(|name| ("invoke_agent", json!({"agent_name": name, "prompt": format!("help {name}")})))
        .collect();
    calls(&given)
}

pub(crate) fn done(result: &str) -> Answer {
    calls(&[("complete_task", json!({"result": result}))])
}

pub(crate) fn write(file: &str) -> (&'static str, Value) {
    ("write_file", json!({"file_path": file, "content": "x"}))
}

/// A definition of the actor `name` with these further keys.
pub(crate) fn definition(name: &str, keys: &str) -> String {
    format!("---\nname: {name}\ndescription: Plays {name}.\n{keys}---\nYou are {name}. Task: ${{query}}")
}

pub(crate) fn options(llm: Arc<dyn Llm>, folder: &Path) -> AgentOptions {
    let info = AgentInfo { name: "test".into(), title: "Test".into(), version: "0".into() };
    let connect: ConnectModel = Arc::new(move |_| Ok(SessionModel::fixed(llm.clone())));
    AgentOptions {
        interactive: true,
        context: ContextFileOptions { names: vec!["AGENTS.md".into()], ..ContextFileOptions::default() },
        subagents: SubagentOptions {
            enabled: true,
            user_folders: vec![folder.to_owned()],
            recovery_grace: Duration::from_secs(20),
            ..SubagentOptions::default()
        },
        ..AgentOptions::new(info, connect, Spawner::unguarded())
    }
}

impl Stage {
    /// `agents` are names with further keys of their definitions.
    pub(crate) async fn new(agents: &[(&str, &str)], scripts: &[(&str, Vec<Answer>)]) -> Self {
        Self::with(agents, scripts, |_| ()).await
    }

    pub(crate) async fn with(
        agents: &[(&str, &str)],
        scripts: &[(&str, Vec<Answer>)],
        change: impl FnOnce(&mut AgentOptions),
    ) -> Self {
        let cast = Cast::new(scripts);
        let requests = cast.requests.clone();
        Self::of(Arc::new(cast), requests, agents, change).await
    }

    pub(crate) async fn of(
        llm: Arc<dyn Llm>,
        requests: Arc<Mutex<Vec<(String, LlmRequest)>>>,
        agents: &[(&str, &str)],
        change: impl FnOnce(&mut AgentOptions),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (work, home) = (dir.path().join("work"), dir.path().join("agents"));
        std::fs::create_dir_all(work.join("sub")).unwrap();
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(work.join("AGENTS.md"), "Speak plainly.").unwrap();
        std::fs::write(work.join("a.txt"), "one\n").unwrap();
        for (name, keys) in agents {
            std::fs::write(home.join(format!("{name}.md")), definition(name, keys)).unwrap();
        }
        let mut options = options(llm, &home);
        change(&mut options);
        let (ask, questions) = mpsc::channel(64);
        let new = NewSession {
            session_id: Some("s".into()),
            ..NewSession::new(work.canonicalize().unwrap(), Arc::new(Asked(ask)))
        };
        let session = AgentFactory::new(options).new_session(new).await.unwrap();
        Self { dir, session, questions, requests }
    }

    pub(crate) fn path(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().canonicalize().unwrap().join("work").join(path)
    }

    pub(crate) async fn send(&self, prompt: &str) -> BoxStream<'static, Arc<AgentEvent>> {
        let view = AgentSession::new(self.session.agent.clone());
        view.send_stream(AgentSend::Message(SendMessage::text(prompt))).await.unwrap().boxed()
    }

    /// Runs one prompt to its end and gives everything that the session's log holds.
    pub(crate) async fn play(&self) -> Vec<Arc<AgentEvent>> {
        let events = self.send("go").await;
        self.finish(events).await
    }

    pub(crate) async fn finish(&self, events: BoxStream<'static, Arc<AgentEvent>>) -> Vec<Arc<AgentEvent>> {
        tokio::time::timeout(Duration::from_secs(40), events.for_each(|_| std::future::ready(()))).await.unwrap();
        self.session.agent.events()
    }

    pub(crate) async fn question(&mut self) -> Question {
        tokio::time::timeout(Duration::from_secs(40), self.questions.recv()).await.unwrap().unwrap()
    }

    /// The requests of one actor.
    pub(crate) fn asked_by(&self, name: &str) -> Vec<LlmRequest> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|(actor, _)| actor == name).map(|(_, request)| request.clone()).collect()
    }
}

pub(crate) fn allow(question: Question) {
    question.1.send(PermissionOutcome::Selected { option_id: "proceed_once".into() }).unwrap();
}

/// The events of each thread, the session's own under the empty name, in their order.
pub(crate) fn threads(events: &[Arc<AgentEvent>]) -> BTreeMap<String, Vec<Arc<AgentEvent>>> {
    let mut threads: BTreeMap<String, Vec<Arc<AgentEvent>>> = BTreeMap::new();
    for event in events {
        threads.entry(event.thread_id.clone().unwrap_or_default()).or_default().push(event.clone());
    }
    threads
}

/// The events of the threads of the agent `name`.
pub(crate) fn of_agent(events: &[Arc<AgentEvent>], name: &str) -> Vec<Vec<Arc<AgentEvent>>> {
    let is_its =
        |thread: &[Arc<AgentEvent>]| thread.iter().any(|event| event.meta.get("agentName") == Some(&name.into()));
    threads(events).into_values().filter(|thread| is_its(thread)).collect()
}

/// What every log has to be: unique ids; each stream begins once and ends once, and last; each call is asked for once
/// and answered once, in this order.
pub(crate) fn check(events: &[Arc<AgentEvent>]) {
    let mut ids = std::collections::HashSet::new();
    let mut calls: BTreeMap<String, u32> = BTreeMap::new();
    for event in events {
        assert!(ids.insert(event.id.clone()), "{event:?}");
        match &event.body {
            AgentEventBody::ToolRequest { request_id, .. } => {
                assert_eq!(calls.insert(request_id.to_string(), 0), None, "asked for twice: {request_id}");
            }
            AgentEventBody::ToolUpdate { request_id, .. } => {
                assert_eq!(calls.get(request_id.as_str()), Some(&0), "an update out of place: {event:?}");
            }
            AgentEventBody::ToolResponse { request_id, .. } => {
                let answers = calls.get_mut(request_id.as_str()).expect("a call that nobody asked for");
                *answers += 1;
            }
            _ => {}
        }
    }
    assert!(calls.values().all(|answers| *answers == 1), "each call is answered once: {calls:?}");
    for (thread, events) in threads(events) {
        let starts = events.iter().filter(|event| matches!(event.body, AgentEventBody::AgentStart)).count();
        let ends = events.iter().filter(|event| matches!(event.body, AgentEventBody::AgentEnd { .. })).count();
        assert_eq!((starts, ends), (1, 1), "thread '{thread}': {events:#?}");
        assert!(matches!(events.last().unwrap().body, AgentEventBody::AgentEnd { .. }), "thread '{thread}'");
    }
}
