//! The hooks of one session: what may run, who is told what they say, and who ends them?

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use convoke_protocol::{
    AgentEventBody, PermissionContent, PermissionOption, PermissionOptionKind, PermissionOutcome, PermissionPort,
    PermissionRequest, SessionId, ToolKind,
};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};

use super::runner::{HookRunner, Surroundings};
use super::verdict::Verdict;
use super::{
    AfterAgent, BeforeAgent, CompressTrigger, HookDefinition, HookEvent, HookOptions, HookSettings, HookTrust,
    LifecycleHooks, SessionEndReason, SessionStartSource,
};
use crate::AgentOptions;
use crate::tool_events::CurrentStream;

/// Most notifications under way. They wait for nobody, so a hook that hangs would gather them.
const NOTIFICATIONS_MAX: usize = 8;
/// How long the hooks of a session's end may take: somebody waits for the end.
const END_LIMIT: Duration = Duration::from_secs(10);

/// What a session's hooks are made from.
pub(crate) struct SessionHooksParts<'a> {
    pub(crate) options: &'a AgentOptions,
    pub(crate) session_id: SessionId,
    pub(crate) cwd: std::path::PathBuf,
    /// The file that the session is recorded in.
    pub(crate) transcript: Option<std::path::PathBuf>,
    /// Where its plans are.
    pub(crate) plans: Option<std::path::PathBuf>,
    pub(crate) stream: CurrentStream,
    pub(crate) permission: Arc<dyn PermissionPort>,
}

/// The hooks of one session, behind every port that asks for them.
pub(crate) struct SessionHooks {
    runner: HookRunner,
    /// The embedder's own; asked first.
    embedded: Arc<dyn LifecycleHooks>,
    /// All that are configured.
    all: Vec<Arc<HookDefinition>>,
    /// Those of the project that nobody has agreed to yet.
    unknown: Mutex<Vec<Arc<HookDefinition>>>,
    trust: Arc<dyn HookTrust>,
    permission: Option<Arc<dyn PermissionPort>>,
    session_id: SessionId,
    stream: CurrentStream,
    warnings: Mutex<Vec<String>>,
    /// Whether a start was told whose end was not.
    started: AtomicBool,
    notifications: TaskTracker,
    slots: Arc<Semaphore>,
    closing: CancellationToken,
}

impl SessionHooks {
    pub(crate) fn new(parts: SessionHooksParts<'_>) -> Arc<Self> {
        let SessionHooksParts { options, session_id, cwd, transcript, plans, stream, permission } = parts;
        let HookOptions { layers, trust } = options.user_hooks.clone();
        let HookSettings { hooks: all, warnings } = HookSettings::read(&layers);
        let (known, unknown): (Vec<_>, Vec<_>) =
            all.iter().cloned().partition(|hook| hook.may_run(&all, trust.as_ref()));
        let around = Surroundings {
            session_id: session_id.to_string(),
            transcript,
            cwd,
            plans_folder: plans,
            spawner: options.spawner.clone(),
            secret_variables: options.secret_variables.clone(),
        };
        Arc::new(Self {
            runner: HookRunner::new(around, known),
            embedded: options.hooks.clone(),
            all,
            unknown: Mutex::new(unknown),
            trust,
            permission: options.interactive.then_some(permission),
            session_id,
            stream,
            warnings: Mutex::new(warnings),
            started: AtomicBool::new(false),
            notifications: TaskTracker::new(),
            slots: Arc::new(Semaphore::new(NOTIFICATIONS_MAX)),
            closing: CancellationToken::new(),
        })
    }

    /// Whether anything runs at `event`. Cheap: asked for every piece of an answer.
    pub(super) fn has(&self, event: HookEvent) -> bool {
        self.runner.has(event)
    }

    /// Runs the hooks of `event` and tells the user what they say to him.
    pub(super) async fn fire(&self, event: HookEvent, subject: Option<&str>, fields: Map<String, Value>) -> Verdict {
        self.fire_within(event, subject, fields, None).await
    }

    async fn fire_within(
        &self,
        event: HookEvent,
        subject: Option<&str>,
        fields: Map<String, Value>,
        limit: Option<Duration>,
    ) -> Verdict {
        let verdict = self.runner.fire(event, subject, fields, limit).await;
        for message in &verdict.messages {
            if message.warning {
                tracing::warn!(hook = message.hook, event = event.name(), "a hook failed: {}", message.text);
                let text = format!("hook {} ({}): {}", message.hook, event.name(), message.text);
                self.say(Some((&message.hook, event)), &text, true);
            } else {
                self.say(Some((&message.hook, event)), &message.text, false);
            }
        }
        verdict
    }

    /// Tells the user something, where somebody listens.
    fn say(&self, hook: Option<(&str, HookEvent)>, text: &str, warning: bool) {
        let Some(emitter) = self.stream.get() else { return };
        let mut data = json!({"message": text, "severity": if warning { "warning" } else { "info" }});
        if let (Some((name, event)), Some(object)) = (hook, data.as_object_mut()) {
            object.insert("hookName".to_owned(), name.into());
            object.insert("eventName".to_owned(), event.name().into());
        }
        emitter.emit(AgentEventBody::Custom { kind: "hook_message".to_owned(), data: Some(data) });
    }

    /// Runs `Notification` hooks. Nobody waits for them, but the session's end.
    pub(super) fn notify(self: &Arc<Self>, kind: &'static str, mut fields: Map<String, Value>) {
        let Ok(slot) = self.slots.clone().try_acquire_owned() else {
            tracing::debug!(kind, "too many notifications are under way; this one is left out");
            return;
        };
        fields.insert("notification_type".to_owned(), kind.into());
        let hooks = self.clone();
        let run = async move {
            let run = hooks.fire(HookEvent::Notification, Some(kind), fields);
            hooks.closing.run_until_cancelled(run).await;
            drop(slot);
        };
        self.notifications.spawn(run.instrument(Span::current()));
    }

    /// Ends what still runs. The session's end was told before.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        self.notifications.close();
        self.notifications.wait().await;
    }

    /// Asks once about commands that came with the folder; without somebody to ask they don't run, and that is said.
    async fn agree(&self) {
        let unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if unknown.is_empty() {
            return;
        }
        let answer = match &self.permission {
            Some(port) => port.request(question(&self.session_id, &unknown)).await,
            None => PermissionOutcome::Cancelled,
        };
        let option = match &answer {
            PermissionOutcome::Selected { option_id } => option_id.as_str(),
            PermissionOutcome::Cancelled => "",
        };
        // Answered, whatever the answer: nobody is asked the same before each prompt.
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).clear();
        if option == ALWAYS
            && let Err(error) = self.trust.trust(&unknown)
        {
            self.say(None, &format!("{error}; the hooks run in this session only"), true);
        }
        if option == ALWAYS || option == ONCE {
            self.runner.replace(self.all.clone());
        } else {
            let names: Vec<&str> = unknown.iter().map(|hook| hook.label()).collect();
            let text = format!(
                "hooks of this project don't run, because nobody has agreed to them: {}; see \"convoke hooks trust\"",
                names.join(", ")
            );
            tracing::warn!("{text}");
            self.say(None, &text, true);
        }
    }
}

const ONCE: &str = "proceed_once";
const ALWAYS: &str = "proceed_always";

fn question(session_id: &SessionId, hooks: &[Arc<HookDefinition>]) -> PermissionRequest {
    let lines: Vec<String> = hooks.iter().map(|hook| format!("{}: {}", hook.event.name(), hook.command)).collect();
    let listed: Vec<Value> = hooks
        .iter()
        .map(|hook| json!({"event": hook.event.name(), "name": hook.name, "command": hook.command, "env": hook.env}))
        .collect();
    let option =
        |id: &str, name: &str, kind| PermissionOption { option_id: id.to_owned(), name: name.to_owned(), kind };
    PermissionRequest {
        session_id: session_id.clone(),
        tool_call_id: "project-hooks".into(),
        tool_name: "project_hooks".to_owned(),
        title: "This project's settings want to run commands of their own (hooks). Let them?".to_owned(),
        kind: ToolKind::Execute,
        content: vec![PermissionContent::Text(lines.join("\n"))],
        locations: Vec::new(),
        raw_input: json!({"hooks": listed}),
        options: vec![
            option(ALWAYS, "Run them in this folder, as they are now", PermissionOptionKind::AllowAlways),
            option(ONCE, "Run them in this session", PermissionOptionKind::AllowOnce),
            option("cancel", "Don't run them", PermissionOptionKind::RejectOnce),
        ],
        origin: Vec::new(),
    }
}

fn field(name: &str, value: impl Into<Value>) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value.into())])
}

fn joined(first: Option<String>, second: Option<String>) -> Option<String> {
    match (first, second) {
        (Some(first), Some(second)) => Some(format!("{first}\n\n{second}")),
        (first, second) => first.or(second),
    }
}

#[async_trait]
impl LifecycleHooks for SessionHooks {
    async fn session_start(&self, source: SessionStartSource) -> Option<String> {
        for warning in std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner)) {
            self.say(None, &warning, true);
        }
        self.agree().await;
        self.started.store(true, Ordering::Relaxed);
        let embedded = self.embedded.session_start(source).await;
        let fields = field("source", source.name());
        let verdict = self.fire(HookEvent::SessionStart, Some(source.name()), fields).await;
        joined(embedded, verdict.context())
    }

    async fn session_end(&self, reason: SessionEndReason) {
        if !self.started.swap(false, Ordering::Relaxed) {
            return;
        }
        let limit = Some(END_LIMIT);
        let ends = async {
            self.embedded.session_end(reason).await;
            let fields = field("reason", reason.name());
            self.fire_within(HookEvent::SessionEnd, Some(reason.name()), fields, limit).await;
        };
        // The hooks' own limit ends them; this one is for several in a row, and for the embedder's.
        if tokio::time::timeout(END_LIMIT * 2, ends).await.is_err() {
            tracing::warn!("the hooks of the session's end took too long");
        }
    }

    async fn before_agent(&self, prompt: &str) -> BeforeAgent {
        let embedded = self.embedded.before_agent(prompt).await;
        let event = HookEvent::BeforeAgent;
        if embedded.block.is_some() || embedded.stop.is_some() || !self.has(event) {
            return embedded;
        }
        let verdict = self.fire(event, None, field("prompt", prompt)).await;
        let additional_context = joined(embedded.additional_context, verdict.context());
        BeforeAgent { stop: verdict.stop, block: verdict.deny, additional_context }
    }

    async fn after_agent(&self, prompt: &str, response: &str, active: bool) -> AfterAgent {
        let embedded = self.embedded.after_agent(prompt, response, active).await;
        let event = HookEvent::AfterAgent;
        if embedded != AfterAgent::default() || !self.has(event) {
            return embedded;
        }
        let mut fields = field("prompt", prompt);
        fields.insert("prompt_response".to_owned(), response.into());
        fields.insert("stop_hook_active".to_owned(), active.into());
        let verdict = self.fire(event, None, fields).await;
        AfterAgent { stop: verdict.stop, continue_with: verdict.deny, clear_context: verdict.clear_context }
    }

    async fn pre_compress(&self, trigger: CompressTrigger) {
        self.embedded.pre_compress(trigger).await;
        let fields = field("trigger", trigger.name());
        self.fire(HookEvent::PreCompress, Some(trigger.name()), fields).await;
    }
}
