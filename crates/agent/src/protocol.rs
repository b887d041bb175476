//! The runtime behind `AgentProtocol`: one stream per prompt, exactly one start and one end.

mod reach;
mod rewind;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use convoke_adk::{
    Content, Event, FlowError, GetSession, Inbox, Part, Role, RunControls, RunError, Runner, SessionKey, StopReason,
    StopSignal,
};
use convoke_protocol::{
    AgentEventBody, AgentProtocol, AgentSend, ContentPart, ErrorStatus, EventLog, MessageRole, Meta, SendError,
    SendMessage, SendReceipt, SessionUpdate, StreamEndReason, StreamId,
};
use convoke_stdx::{Clock, iso8601};
use futures::StreamExt;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::context::compression::Compressor;
use crate::context::guard::WILL_OVERFLOW;
use crate::emitter::Emitter;
use crate::hooks::{BLOCKED, LifecycleHooks, STOP_EXECUTION, SessionEndReason, SessionStartSource};
use crate::instructions::session_context;
use crate::limits::{MAX_BUDGET, MAX_TIME, PromptLimits, Stopwatch};
use crate::models::{ModelEvents, SessionModel};
use crate::prompts::{Meaning, Prompts, SessionFacts, Understood};
use crate::record::Recorder;
use crate::rewind::Rewinder;
use crate::subagents::Thread;
use crate::told;
use crate::tool_events::CurrentStream;
use crate::translate::{Translator, model_parts};

pub(crate) use reach::STEERING;

/// How often a hook may send the agent back to work on one prompt. A hook that is never content would otherwise run
/// for ever; ten rounds of "the tests still fail" are plenty.
const CONTINUATIONS_MAX: u32 = 10;

/// A session of our own runtime.
pub struct AdkAgentProtocol {
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

struct Shared {
    log: EventLog,
    runner: Runner,
    key: SessionKey,
    model: SessionModel,
    model_events: Arc<ModelEvents>,
    hooks: Arc<dyn LifecycleHooks>,
    /// What the next prompt's session begins with, where it does begin.
    start: Mutex<Option<SessionStartSource>>,
    stream: CurrentStream,
    prompts: Arc<Prompts>,
    recorder: Option<Recorder>,
    cwd: PathBuf,
    thread: Option<Arc<Thread>>,
    guide: Option<Arc<dyn Guide>>,
    cancel: CancellationToken,
    clock: Clock,
    compressor: Arc<Compressor>,
    limits: PromptLimits,
    stopwatch: Stopwatch,
    /// Tokens of the running prompt.
    used: Arc<AtomicU64>,
    streams: AtomicU64,
    state: Mutex<State>,
    rewinder: Option<Arc<Rewinder>>,
    /// What the kernel's session is to be made with again, once it was dropped.
    past: Mutex<Option<Vec<Event>>>,
}

enum State {
    Idle,
    Running { cancel: CancellationToken, ended: CancellationToken, inbox: Inbox },
    Closed,
}

/// What a session is built from; see `assemble`.
pub(crate) struct Parts {
    pub(crate) log: EventLog,
    pub(crate) runner: Runner,
    pub(crate) key: SessionKey,
    pub(crate) model: SessionModel,
    pub(crate) model_events: Arc<ModelEvents>,
    pub(crate) hooks: Arc<dyn LifecycleHooks>,
    pub(crate) start: SessionStartSource,
    pub(crate) stream: CurrentStream,
    pub(crate) prompts: Arc<Prompts>,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) rewinder: Option<Arc<Rewinder>>,
    pub(crate) cwd: PathBuf,
    pub(crate) compressor: Arc<Compressor>,
    pub(crate) limits: PromptLimits,
    pub(crate) stopwatch: Stopwatch,
    pub(crate) used: Arc<AtomicU64>,
    /// Whose thread it is, if it is a subagent; the log is its caller's then.
    pub(crate) thread: Option<Arc<Thread>>,
    /// Who decides how far a prompt goes; otherwise the agent is done when it says nothing more.
    pub(crate) guide: Option<Arc<dyn Guide>>,
    /// Ends whatever runs.
    pub(crate) cancel: CancellationToken,
}

/// Decides what follows an invocation, and how long one may take.
#[async_trait]
pub(crate) trait Guide: Send + Sync {
    /// Comes back when the running invocation has to end.
    async fn time_up(&self);

    /// An invocation ended so.
    fn ended(&self, ending: Ending) -> Next;
}

/// What follows an invocation.
pub(crate) enum Next {
    /// Nothing.
    End(Ending),
    /// Another one, with this as its prompt.
    Again(String),
}

impl AdkAgentProtocol {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { log, runner, key, model, model_events, hooks, start, stream, prompts, recorder, cwd, .. } = parts;
        let Parts { compressor, limits, stopwatch, used, thread, guide, cancel, rewinder, .. } = parts;
        let shared = Shared {
            log,
            runner,
            key,
            model,
            model_events,
            hooks,
            start: Mutex::new(Some(start)),
            stream,
            prompts,
            recorder,
            cwd,
            thread,
            guide,
            cancel,
            clock: Clock::start(),
            compressor,
            limits,
            stopwatch,
            used,
            streams: AtomicU64::new(0),
            state: Mutex::new(State::Idle),
            rewinder,
            past: Mutex::new(None),
        };
        Self { shared: Arc::new(shared), tasks: TaskTracker::new() }
    }

    /// Ends the running stream and accepts nothing more; subscriptions end behind the last event.
    pub(crate) async fn close(&self) {
        self.abort().await;
        let running = {
            let mut state = self.shared.state();
            match std::mem::replace(&mut *state, State::Closed) {
                State::Running { cancel, ended, .. } => Some((cancel, ended)),
                State::Idle | State::Closed => None,
            }
        };
        if let Some((cancel, ended)) = running {
            cancel.cancel();
            ended.cancelled().await;
        }
        self.tasks.close();
        self.tasks.wait().await;
        // A subagent writes into the log of its caller, whose session goes on.
        if self.shared.thread.is_none() {
            self.shared.hooks.session_end(SessionEndReason::Exit).await;
            self.shared.log.close();
        }
    }

    fn start(&self, message: SendMessage) -> Result<StreamId, SendError> {
        let parts = model_parts(&message.content);
        if parts.is_empty() {
            return Err(SendError::Empty);
        }
        let (cancel, ended) = (self.shared.cancel.child_token(), CancellationToken::new());
        let inbox = Inbox::default();
        {
            let mut state = self.shared.state();
            match *state {
                State::Running { .. } => return Err(SendError::Busy),
                State::Closed => return Err(SendError::Closed),
                State::Idle => {
                    *state = State::Running { cancel: cancel.clone(), ended: ended.clone(), inbox: inbox.clone() };
                }
            }
        }
        let number = self.shared.next_stream();
        let id = StreamId(format!("{}-{number}", self.shared.key.session_id));
        let emitter = Arc::new(self.shared.emitter(id.clone()));
        if let Some(recorder) = &self.shared.recorder {
            recorder.prompt(parts.clone(), message.display_content.clone());
        }
        let span = match &self.shared.thread {
            None => told::prompt(&self.shared.key.session_id, number, &parts),
            Some(thread) => told::run(thread.id(), thread.name()),
        };
        let mut meta = Meta::new();
        if let Some(display) = message.display_content {
            meta.insert("displayContent".to_owned(), display.into());
        }
        emitter.emit_with(AgentEventBody::Message { role: MessageRole::User, content: message.content }, meta);
        self.shared.stream.set(Some(emitter.clone()));
        let stream = Stream {
            shared: self.shared.clone(),
            translator: Translator::new(emitter.clone(), self.shared.model.llm.model()),
            emitter,
            cancel,
            ended,
            inbox,
            over: false,
        };
        self.tasks.spawn(stream.run(parts).instrument(span));
        Ok(id)
    }

    fn update(&self, update: SessionUpdate) {
        let SessionUpdate { title, model, config } = update;
        if let (Some(recorder), Some(title)) = (&self.shared.recorder, &title) {
            recorder.title(title);
        }
        let id = StreamId(format!("{}-update", self.shared.key.session_id));
        let number = self.shared.next_stream();
        let id = StreamId(format!("{id}-{number}"));
        self.shared.emitter(id).emit(AgentEventBody::SessionUpdate { title, model, config });
    }
}

impl Shared {
    fn emitter(&self, stream: StreamId) -> Emitter {
        Emitter::new(self.log.clone(), stream, self.thread.clone(), self.clock)
    }

    fn next_stream(&self) -> u64 {
        self.streams.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> MutexGuard<'_, Option<SessionStartSource>> {
        self.start.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl AgentProtocol for AdkAgentProtocol {
    async fn send(&self, payload: AgentSend) -> Result<SendReceipt, SendError> {
        match payload {
            AgentSend::Message(message) => Ok(SendReceipt { stream_id: Some(self.start(message)?) }),
            AgentSend::Update(update) => {
                self.update(update);
                Ok(SendReceipt { stream_id: None })
            }
        }
    }

    fn log(&self) -> &EventLog {
        &self.shared.log
    }

    async fn abort(&self) {
        let running = match &*self.shared.state() {
            State::Running { cancel, ended, .. } => Some((cancel.clone(), ended.clone())),
            State::Idle | State::Closed => None,
        };
        if let Some((cancel, ended)) = running {
            cancel.cancel();
            ended.cancelled().await;
        }
    }
}

/// One running stream. Dropping it ends the stream, whatever happened, so a consumer never waits for an end in vain.
struct Stream {
    shared: Arc<Shared>,
    emitter: Arc<Emitter>,
    translator: Translator,
    cancel: CancellationToken,
    ended: CancellationToken,
    inbox: Inbox,
    over: bool,
}

/// How a stream ends.
pub(crate) struct Ending {
    pub(crate) reason: StreamEndReason,
    pub(crate) data: Map<String, Value>,
}

impl Ending {
    pub(crate) fn new(reason: StreamEndReason) -> Self {
        Self { reason, data: Map::new() }
    }

    /// Whether the work is done and nobody said why it should be.
    fn is_plain(&self) -> bool {
        self.reason == StreamEndReason::Completed && !self.data.contains_key("code")
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.data.insert(key.to_owned(), value.into());
        self
    }
}

impl Stream {
    async fn run(mut self, parts: Vec<Part>) {
        // `send` has returned by the time its stream starts.
        tokio::task::yield_now().await;
        self.emitter.emit(AgentEventBody::AgentStart);
        // Once per prompt, whatever number of model calls it takes.
        self.shared.model.begin_turn();
        self.shared.stopwatch.restart();
        self.shared.used.store(0, Ordering::Relaxed);
        self.shared.model_events.start(&self.emitter, self.shared.model.llm.model());
        self.shared.restore_session();
        let ending = self.work(parts).await;
        self.shared.settle_files().await;
        self.end(ending);
    }

    fn end(&mut self, ending: Ending) {
        self.over = true;
        self.drop_unheard();
        let data = (!ending.data.is_empty()).then_some(Value::Object(ending.data));
        if let Some(recorder) = &self.shared.recorder {
            recorder.turn_over();
        }
        self.shared.stream.set(None);
        {
            // Idle before the last event: who reads it may send at once.
            let mut state = self.shared.state();
            if !matches!(*state, State::Closed) {
                *state = State::Idle;
            }
        }
        if self.shared.thread.is_none() {
            told::ended(ending.reason);
        }
        self.emitter.emit(AgentEventBody::AgentEnd { reason: ending.reason, data });
        self.ended.cancel();
    }

    /// Says so where something that was taken is never read, because the stream ends for another reason.
    fn drop_unheard(&self) {
        let unheard: Vec<String> = self.inbox.close().iter().map(|message| message.content.joined_text()).collect();
        if !unheard.is_empty() {
            let data = Some(json!({"texts": unheard}));
            self.emitter.emit(AgentEventBody::Custom { kind: "steering_unread".to_owned(), data });
        }
    }

    /// Works on a prompt, and on what a hook makes of its end.
    async fn work(&mut self, mut parts: Vec<Part>) -> Ending {
        // A task of another agent's is text, whatever it begins with.
        if let Some(guide) = self.shared.guide.clone() {
            return self.guided(&*guide, parts).await;
        }
        match self.understand(std::mem::take(&mut parts)).await {
            Ok(understood) => parts = understood,
            Err(ending) => return ending,
        }
        let prompt: String = parts.iter().filter_map(Part::as_text).collect();
        let hooks = self.shared.hooks.clone();
        // A hook is somebody's program: it may take for ever, and the user may not want to wait for that.
        let cancel = self.cancel.clone();
        let start = *self.shared.start();
        if let Some(source) = start {
            let Some(context) = cancel.run_until_cancelled(hooks.session_start(source)).await else {
                return Ending::new(StreamEndReason::Aborted);
            };
            *self.shared.start() = None;
            parts.splice(0..0, context.map(Part::text));
        }
        let Some(before) = cancel.run_until_cancelled(hooks.before_agent(&prompt)).await else {
            return Ending::new(StreamEndReason::Aborted);
        };
        if let Some(reason) = before.stop {
            return self.stopped_by_hook(&reason);
        }
        if let Some(reason) = before.block {
            return self.blocked(&reason);
        }
        parts.extend(before.additional_context.map(Part::text));
        for round in 0..=CONTINUATIONS_MAX {
            let mut ending = self.invocation(std::mem::take(&mut parts)).await;
            // Who was told that it is read is heard, however late it came.
            while ending.is_plain() && !self.inbox.is_empty() {
                ending = self.invocation(Vec::new()).await;
            }
            if !ending.is_plain() {
                return ending;
            }
            let after = hooks.after_agent(&prompt, self.translator.response(), round > 0);
            let Some(after) = cancel.run_until_cancelled(after).await else {
                return Ending::new(StreamEndReason::Aborted);
            };
            if after.clear_context {
                self.clear_context().await;
            }
            match (after.stop, after.continue_with) {
                (Some(reason), _) => return self.stopped_by_hook(&reason),
                (None, Some(more)) => {
                    self.hook_says(&format!("Agent execution blocked: {more}"), "warning");
                    parts = vec![Part::text(more)];
                }
                (None, None) if self.inbox.close_if_empty() => return ending,
                // Somebody spoke while the hook ran.
                (None, None) => {}
            }
        }
        Ending::new(StreamEndReason::MaxTurns).with("code", "AFTER_AGENT_LIMIT")
    }

    /// Forgets the conversation: the next prompt begins a session as far as hooks are concerned.
    async fn clear_context(&self) {
        if let Some(session) = self.shared.runner.sessions().get(&self.shared.key, &GetSession::default()) {
            session.with(|session| session.events.clear());
        }
        if let Some(recorder) = &self.shared.recorder {
            recorder.compressed(&[], None);
        }
        self.emitter.emit(AgentEventBody::Custom { kind: "context_cleared".to_owned(), data: None });
        self.cancel.run_until_cancelled(self.shared.hooks.session_end(SessionEndReason::Clear)).await;
        *self.shared.start() = Some(SessionStartSource::Clear);
    }

    fn stopped_by_hook(&self, reason: &str) -> Ending {
        let message = format!("Agent execution stopped by hook: {reason}");
        self.stopped(StopReason { code: STOP_EXECUTION.to_owned(), message })
    }

    /// Commands and files of a prompt; `Err` if it ends here.
    async fn understand(&self, parts: Vec<Part>) -> Result<Vec<Part>, Ending> {
        let text = parts.first().and_then(Part::as_text).unwrap_or_default();
        let facts = if text.trim_start().starts_with('/') {
            SessionFacts::of(self.shared.model.llm.model(), self.shared.log.snapshot().iter().map(Arc::as_ref))
        } else {
            SessionFacts::default()
        };
        let cancel = self.cancel.clone();
        let understanding = self.shared.prompts.understand(parts, &facts, &cancel);
        let Some(Understood { meaning, notes }) = cancel.run_until_cancelled(understanding).await else {
            return Err(Ending::new(StreamEndReason::Aborted));
        };
        for note in notes {
            let data = json!({"severity": "warning", "message": note});
            self.emitter.emit(AgentEventBody::Custom { kind: "notice".to_owned(), data: Some(data) });
        }
        match meaning {
            Meaning::Prompt(parts) => Ok(parts),
            Meaning::Answer(text) => Err(self.answered(text)),
            Meaning::Compress => Err(self.compressed().await),
            Meaning::Rewind(args) => Err(self.rewound(&args).await),
            Meaning::Branch(args) => Err(self.branched(&args).await),
            Meaning::Refused(message) => {
                let meta = Map::from_iter([("code".to_owned(), Value::from("COMMAND_REFUSED"))]);
                let status = ErrorStatus::InvalidArgument;
                self.emitter.emit_with(AgentEventBody::Error { status, message, fatal: true }, meta);
                Err(Ending::new(StreamEndReason::Failed).with("code", "COMMAND_REFUSED"))
            }
        }
    }

    /// A prompt that needed no model.
    fn answered(&self, text: String) -> Ending {
        let content = vec![ContentPart::text(text)];
        self.emitter.emit(AgentEventBody::Message { role: MessageRole::Agent, content });
        Ending::new(StreamEndReason::Completed)
    }

    /// Works on a prompt as far as the guide says.
    async fn guided(&mut self, guide: &dyn Guide, mut parts: Vec<Part>) -> Ending {
        loop {
            let ending = self.invocation(parts).await;
            match guide.ended(ending) {
                Next::End(ending) => return ending,
                Next::Again(prompt) => parts = vec![Part::text(prompt)],
            }
        }
    }

    fn hook_says(&self, message: &str, severity: &str) {
        let data = json!({"message": message, "severity": severity});
        self.emitter.emit(AgentEventBody::Custom { kind: "hook_message".to_owned(), data: Some(data) });
    }

    fn blocked(&self, reason: &str) -> Ending {
        let meta = Map::from_iter([("code".to_owned(), Value::from(BLOCKED))]);
        let (status, message) = (ErrorStatus::PermissionDenied, format!("Agent execution blocked: {reason}"));
        self.emitter.emit_with(AgentEventBody::Error { status, message, fatal: false }, meta);
        Ending::new(StreamEndReason::Completed).with("code", BLOCKED)
    }

    /// One invocation of the runner, told as events. Without parts it goes on from where the session stands.
    async fn invocation(&mut self, mut parts: Vec<Part>) -> Ending {
        let session = self.shared.runner.sessions().get(&self.shared.key, &GetSession::default());
        if session.is_some_and(|session| session.with(|s| s.events.is_empty())) {
            let now = iso8601(self.shared.clock.now().wall_ms);
            let date = now.get(..10).unwrap_or_default();
            parts.insert(0, Part::text(session_context(&self.shared.cwd, date)));
        }
        let stop = StopSignal::default();
        let message = (!parts.is_empty()).then_some(Content { role: Role::User, parts });
        // Its own, so that the end of the time is not taken for the user's wish.
        let cancel = self.cancel.child_token();
        let controls = RunControls { stop: stop.clone(), cancel: cancel.clone(), inbox: self.inbox.clone() };
        let events = self.shared.runner.run_with(&self.shared.key, message, controls);
        let time = self.time_is_up();
        futures::pin_mut!(events, time);
        let mut late = false;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    None => break,
                    Some(Ok(event)) => self.translator.event(&event),
                    Some(Err(RunError::Flow(FlowError::Cancelled))) if late && !self.cancel.is_cancelled() => {
                        return self.too_late();
                    }
                    Some(Err(error)) => return self.failed(error),
                },
                () = &mut time, if !late => {
                    late = true;
                    cancel.cancel();
                }
            }
        }
        // A cancellation that came while the last answer was on its way is still what the user asked for.
        match stop.requested() {
            _ if self.cancel.is_cancelled() => Ending::new(StreamEndReason::Aborted),
            Some(reason) => self.stopped(reason),
            None => {
                let ending = Ending::new(self.translator.end_reason());
                match self.translator.finish_reason() {
                    Some(reason) => ending.with("finishReason", reason),
                    None => ending,
                }
            }
        }
    }

    /// Waits until the prompt has used up its time, which it may never.
    fn time_is_up(&self) -> impl Future<Output = ()> + Send + use<> {
        let (stopwatch, limit) = (self.shared.stopwatch.clone(), self.shared.limits.time);
        let guide = self.shared.guide.clone();
        async move {
            match (guide, limit) {
                (Some(guide), _) => guide.time_up().await,
                (None, Some(limit)) => stopwatch.reaches(limit).await,
                (None, None) => std::future::pending().await,
            }
        }
    }

    fn too_late(&self) -> Ending {
        let seconds = self.shared.limits.time.unwrap_or_default().as_secs_f64();
        Ending::new(StreamEndReason::MaxTime).with("code", MAX_TIME).with("maxSeconds", seconds)
    }

    /// A stop that a plugin or a tool asked for.
    fn stopped(&self, reason: StopReason) -> Ending {
        let StopReason { code, message } = reason;
        if code == STEP_OVER {
            return Ending::new(StreamEndReason::Completed);
        }
        if code == BLOCKED {
            return self.blocked(&message);
        }
        if code == STOP_EXECUTION {
            self.hook_says(&message, "info");
            return Ending::new(StreamEndReason::Completed).with("code", code).with("message", message);
        }
        if code == MAX_BUDGET {
            return Ending::new(StreamEndReason::MaxBudget).with("code", code).with("message", message);
        }
        let meta = Map::from_iter([("code".to_owned(), Value::from(code.as_str()))]);
        let too_large = code == WILL_OVERFLOW;
        let status = if too_large { ErrorStatus::ResourceExhausted } else { ErrorStatus::Internal };
        let body = AgentEventBody::Error { status, message: message.clone(), fatal: too_large };
        self.emitter.emit_with(body, meta);
        Ending::new(StreamEndReason::Failed).with("code", code).with("message", message)
    }

    fn failed(&self, error: RunError) -> Ending {
        match error {
            RunError::Flow(FlowError::Cancelled) => Ending::new(StreamEndReason::Aborted),
            RunError::Flow(FlowError::LlmCallLimit(limit)) => {
                Ending::new(StreamEndReason::MaxTurns).with("code", "MAX_TURNS_EXCEEDED").with("maxTurns", limit)
            }
            other => {
                let message = other.to_string();
                let body = AgentEventBody::Error { status: ErrorStatus::Internal, message, fatal: true };
                self.emitter.emit(body);
                Ending::new(StreamEndReason::Failed)
            }
        }
    }
}

/// The code of a stop that a guide knows about, and that means nothing to anybody else.
pub(crate) const STEP_OVER: &str = "step_over";

impl Drop for Stream {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // Only a panic or a runtime that shuts down gets here.
        let message = "the agent stopped unexpectedly".to_owned();
        let meta = Map::from_iter([("code".to_owned(), json!("UNEXPECTED_END"))]);
        self.emitter.emit_with(AgentEventBody::Error { status: ErrorStatus::Internal, message, fatal: true }, meta);
        self.end(Ending::new(StreamEndReason::Failed));
    }
}
