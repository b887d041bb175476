//! A session's model: who is asked and who is told when it changes?
//!
//! `models` decides; here its questions become the session's permission requests, and its notices the stream's events,
//! so that the model that is announced is the model that is called.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use convoke_adk::{Content, Llm, LlmRequest, ModelError};
use convoke_models::chain::FailureKind;
use convoke_models::routing::Decision;
use convoke_models::steering::SequenceReset;
use convoke_models::{FallbackPort, FallbackQuestion, GeneratorLlm, Intent, ModelName, ModelNotice, NoticeListener};
use convoke_protocol::{
    AgentEventBody, ErrorStatus, Meta, PermissionContent, PermissionOption, PermissionOptionKind, PermissionOutcome,
    PermissionPort, PermissionRequest, SessionError, SessionId, ToolKind,
};
use convoke_stdx::iso8601;
use convoke_tools::{Mode, ModeChange};
use futures::StreamExt;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::config::Thinking;
use crate::emitter::Emitter;
use crate::subagents::Asker;
use crate::tool_events::CurrentStream;

/// The code of the warning that another model took over.
const MODEL_FALLBACK: &str = "MODEL_FALLBACK";

/// Makes a session's model. Called once per session, so that a scripted one starts at its first line.
pub type ConnectModel = Arc<dyn Fn(ModelPorts) -> Result<SessionModel, SessionError> + Send + Sync>;

/// What a session's model may call.
pub struct ModelPorts {
    /// Asks a person whether another model may take over; `None` where nobody can be asked.
    pub fallback: Option<Arc<dyn FallbackPort>>,
    /// Turns notices into events.
    pub on_notice: NoticeListener,
}

/// A session's model.
#[derive(Clone)]
pub struct SessionModel {
    pub(crate) llm: Arc<dyn Llm>,
    /// Where the model may change.
    pub(crate) steered: Option<GeneratorLlm>,
    /// Names that a person may choose from.
    pub(crate) offered: Arc<[String]>,
    pub(crate) thinking: Thinking,
    /// The window of a model that nobody else knows the window of.
    window: Option<u64>,
}

/// How many tokens a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) tokens: u64,
    /// Whether that is known, and not a careful guess.
    pub(crate) known: bool,
}

/// The window of a model that says nothing about it.
const UNKNOWN_WINDOW: u64 = 128_000;

impl SessionModel {
    /// One that never changes.
    #[must_use]
    pub fn fixed(llm: Arc<dyn Llm>) -> Self {
        Self { llm, steered: None, offered: Arc::default(), thinking: Thinking::default(), window: None }
    }

    /// The same, with a window of so many tokens.
    #[must_use]
    pub fn with_window(self, tokens: u64) -> Self {
        Self { window: Some(tokens), ..self }
    }

    /// One that is routed and that others may stand in for.
    #[must_use]
    pub fn steered(llm: GeneratorLlm) -> Self {
        Self { steered: Some(llm.clone()), ..Self::fixed(Arc::new(llm)) }
    }

    /// The same, with names of models that a person may choose from.
    #[must_use]
    pub fn offering(self, names: Arc<[String]>) -> Self {
        Self { offered: names, ..self }
    }

    /// The window of the model that the next call goes to.
    pub(crate) fn window(&self) -> Window {
        let known = self.window.or_else(|| {
            let llm = self.steered.as_ref()?;
            llm.options().catalog.known_token_limit(&current(llm))
        });
        Window { tokens: known.unwrap_or(UNKNOWN_WINDOW), known: known.is_some() }
    }

    /// Whether side requests can go to a model of their own that stands under `alias`.
    pub(crate) fn has_alias(&self, alias: &str) -> bool {
        self.steered.as_ref().is_some_and(|llm| llm.options().catalog.is_alias(alias))
    }

    /// One whole answer beside the conversation, for `purpose`, under the alias that `alias_of` names for the current model, or by that
    /// model itself where there is no such alias.
    ///
    /// Errors: the model's.
    pub(crate) async fn ask_aside(
        &self,
        purpose: &'static str,
        alias_of: fn(&str) -> &'static str,
        system: &str,
        prompt: String,
        cancel: &CancellationToken,
    ) -> Result<String, ModelError> {
        let mut request = LlmRequest {
            system_instruction: vec![system.to_owned()],
            contents: vec![Arc::new(Content::user(prompt))],
            purpose,
            ..LlmRequest::default()
        };
        let Some(llm) = &self.steered else {
            request.model = self.llm.model();
            let mut pieces = self.llm.generate(request, cancel.clone());
            let mut text = String::new();
            while let Some(piece) = pieces.next().await {
                let piece = piece?;
                if piece.retracted {
                    text.clear();
                }
                text.push_str(&piece.content.map(|content| content.joined_text()).unwrap_or_default());
            }
            return Ok(text);
        };
        let model = current(llm);
        let alias = alias_of(model.id());
        // A model of another provider is asked itself: nobody said that the default provider may read the session.
        let by_alias = model.provider().is_none() && self.has_alias(alias);
        request.model = if by_alias { alias.to_owned() } else { model.to_string() };
        Ok(llm.ask(request, cancel).await?.text())
    }

    /// The model of a subagent: `model`, or what its caller is configured with. It shares the caller's marks of models
    /// that failed, and neither the model in use nor what a person agreed to in its place.
    pub(crate) fn for_subagent(&self, model: Option<&str>, ports: ModelPorts) -> Result<Self, SessionError> {
        match &self.steered {
            None => Ok(self.clone()),
            Some(llm) => llm
                .for_subagent(model, ports.fallback, ports.on_notice)
                .map(|llm| Self { llm: Arc::new(llm.clone()), steered: Some(llm), ..self.clone() })
                .map_err(|error| SessionError::Failed(error.to_string())),
        }
    }

    /// What is asked of a model changes with plan mode and with working unasked: the next call is routed anew.
    pub(crate) fn mode_changed(&self, change: ModeChange) {
        let matters = |mode| matches!(mode, Mode::Plan | Mode::Yolo);
        if let Some(llm) = &self.steered
            && change.is_one()
            && (matters(change.before) || matters(change.after))
        {
            llm.reset_sequence(SequenceReset::ModeChanged);
        }
    }

    /// A prompt begins.
    pub(crate) fn begin_turn(&self) {
        if let Some(llm) = &self.steered {
            llm.begin_turn();
        }
    }
}

/// The model of the running sequence, else the one that the next begins with.
fn current(llm: &GeneratorLlm) -> ModelName {
    llm.sequence().unwrap_or_else(|| llm.options().catalog.resolve(&llm.configured()))
}

/// A session's notices as events.
pub(crate) struct ModelEvents {
    stream: CurrentStream,
    /// The model that was told last.
    announced: Mutex<String>,
}

impl ModelEvents {
    pub(crate) fn new(stream: CurrentStream) -> Self {
        Self { stream, announced: Mutex::default() }
    }

    /// Announces `model` at the start of a stream.
    pub(crate) fn start(&self, emitter: &Emitter, model: String) {
        self.announce(emitter, model, Meta::new(), true);
    }

    fn announce(&self, emitter: &Emitter, model: String, meta: Meta, always: bool) {
        let before = {
            let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *announced, model.clone())
        };
        if always || before != model {
            emitter.emit_with(AgentEventBody::SessionUpdate { title: None, model: Some(model), config: None }, meta);
        }
    }

    pub(crate) fn on_notice(&self, notice: &ModelNotice) {
        let Some(emitter) = self.stream.get() else { return };
        match notice {
            ModelNotice::Selected { model, decision } => {
                let meta = decision.as_ref().map(|decision| ("routing".to_owned(), told(decision)));
                self.announce(&emitter, model.to_string(), meta.into_iter().collect(), false);
            }
            ModelNotice::Retrying { model, failed_attempts, max_attempts, delay, error } => {
                let data = json!({
                    "model": model,
                    "failedAttempts": failed_attempts,
                    "maxAttempts": max_attempts,
                    "delayMs": u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                    "message": error.message,
                });
                emitter.emit(AgentEventBody::Custom { kind: "retry".to_owned(), data: Some(data) });
            }
            ModelNotice::FellBack { from, to, kind, error, asked, reset_wall_ms } => {
                let mut fallback = json!({"from": from, "to": to, "reason": kind.name(), "asked": asked});
                if let (Some(reset), Some(object)) = (reset_wall_ms, fallback.as_object_mut()) {
                    object.insert("resetsAt".to_owned(), iso8601(*reset).into());
                }
                let status = error.status.map_or(ErrorStatus::ResourceExhausted, ErrorStatus::from_http);
                let message = format!("{}. Going on with {to}.", what(from, *kind, *reset_wall_ms));
                let code = ("code".to_owned(), Value::from(MODEL_FALLBACK));
                let meta = Map::from_iter([code, ("fallback".to_owned(), fallback.clone())]);
                emitter.emit_with(AgentEventBody::Error { status, message, fatal: false }, meta);
                let meta = Map::from_iter([("fallback".to_owned(), fallback)]);
                self.announce(&emitter, to.to_string(), meta, true);
            }
        }
    }
}

/// A decision as metadata of an event.
pub(crate) fn told(decision: &Decision) -> Value {
    let mut told = json!({
        "model": decision.model,
        "source": decision.source,
        "latencyMs": decision.latency_ms,
        "reasoning": decision.reasoning,
    });
    if let (Some(error), Some(object)) = (&decision.error, told.as_object_mut()) {
        object.insert("error".to_owned(), error.as_str().into());
    }
    told
}

/// What happened to a model, in a sentence without its full stop.
fn what(model: &ModelName, kind: FailureKind, reset_wall_ms: Option<u64>) -> String {
    match (kind, reset_wall_ms) {
        (FailureKind::Quota, Some(reset)) => format!("{model} is out of quota until {}", iso8601(reset)),
        (FailureKind::Quota, None) => format!("{model} is out of quota"),
        (FailureKind::Capacity, _) => format!("{model} has no room at the moment"),
        (FailureKind::Transient, _) => format!("{model} is busy"),
        (FailureKind::NotFound, _) => format!("{model} was not found"),
        (FailureKind::Unreachable, _) => format!("{model} can't be reached"),
    }
}

/// Asks whoever decides about the session's permissions.
pub(crate) struct PortFallback {
    session_id: SessionId,
    port: Arc<dyn PermissionPort>,
    asker: Asker,
    asked: AtomicU64,
}

impl PortFallback {
    pub(crate) fn new(session_id: SessionId, port: Arc<dyn PermissionPort>, asker: Asker) -> Self {
        Self { session_id, port, asker, asked: AtomicU64::new(0) }
    }
}

#[async_trait]
impl FallbackPort for PortFallback {
    async fn choose(&self, question: &FallbackQuestion) -> Option<Intent> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let request = permission_request(&self.session_id, &self.asker, number, question);
        let _asking = self.asker.asking();
        match self.port.request(request).await {
            PermissionOutcome::Selected { option_id } => Intent::parse(&option_id),
            PermissionOutcome::Cancelled => None,
        }
    }
}

fn permission_request(
    session_id: &SessionId,
    asker: &Asker,
    number: u64,
    question: &FallbackQuestion,
) -> PermissionRequest {
    let FallbackQuestion { failed, stand_in, is_upgrade, kind, message, reset_wall_ms, .. } = question;
    let more = if *is_upgrade { ", which may cost more" } else { "" };
    let title = format!("{}. Go on with {stand_in}{more}?", what(failed, *kind, *reset_wall_ms));
    let name = |intent: Intent| match (intent, reset_wall_ms) {
        (Intent::RetryAlways, _) => format!("Go on with {stand_in} from now on"),
        (Intent::RetryOnce, _) => format!("Go on with {stand_in} for this prompt"),
        (Intent::RetryLater, Some(reset)) => format!("Stop, and try {failed} again after {}", iso8601(*reset)),
        (Intent::RetryLater, None) => format!("Stop, and try {failed} again later"),
        (Intent::Stop, _) => "Stop".to_owned(),
        (Intent::Upgrade, _) => "Stop, and tell where more quota is to be had".to_owned(),
    };
    // More quota helps against a quota, and against nothing else.
    let offered = Intent::ALL.into_iter().filter(|intent| *intent != Intent::Upgrade || *kind == FailureKind::Quota);
    PermissionRequest {
        session_id: session_id.clone(),
        tool_call_id: asker.call_id(&format!("model-fallback-{number}")),
        tool_name: "model_fallback".to_owned(),
        title,
        kind: ToolKind::Other,
        content: vec![PermissionContent::Text(message.clone())],
        locations: Vec::new(),
        raw_input: json!({
            "failed": failed, "standIn": stand_in, "isUpgrade": is_upgrade, "reason": kind.name(),
            "resetsAt": reset_wall_ms.map(iso8601),
        }),
        options: offered
            .map(|intent| PermissionOption {
                option_id: intent.name().to_owned(),
                name: name(intent),
                kind: match intent {
                    Intent::RetryAlways => PermissionOptionKind::AllowAlways,
                    Intent::RetryOnce => PermissionOptionKind::AllowOnce,
                    Intent::RetryLater | Intent::Stop | Intent::Upgrade => PermissionOptionKind::RejectOnce,
                },
            })
            .collect(),
        origin: asker.origin(),
    }
}
