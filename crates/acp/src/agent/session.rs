//! One session of ours, seen from its client: a task that puts everything that happens in one order.
//!
//! Prompts, mode changes and the end come in as [`Command`]s; the session's log and its questions come in beside them.
//! Events leave in the order of the log, a question leaves behind the events before it, and the answer to a prompt
//! leaves behind the updates of its turn. Nothing waits inside of a step, so a cancellation is always heard, also while
//! the client does not read.

use std::collections::VecDeque;
use std::future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol as sdk;
use convoke_protocol::{
    AgentEvent, AgentEventBody, AgentSend, ApprovalMode, CommandInfo, ConfigOption, ContentPart, HostedSession,
    SendError, SendMessage, SendReceipt, StreamEndReason, StreamId, Subscription,
};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::rpc_error::{INVALID_PARAMS, RpcError, TurnError, failed_turn};

use super::abilities::Abilities;
use super::outbox::Outbox;
use super::past::Past;
use super::permission::{self, Question};
use super::quota::Quota;
use super::rewind::Aside;
use super::settings;
use super::steer;
use super::translate::Translator;

/// How long a session may take to close before it is left to itself.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// Open questions and requests beside the turn. Each of the latter reads the record, so more than a few are a flood.
const WORK_MAX: usize = 64;

const MODE_UPDATE: &str = "current_mode_update";
const OPTIONS_UPDATE: &str = "config_option_update";
const COMMANDS_UPDATE: &str = "available_commands_update";

/// Answers one request with raw JSON.
pub(super) type Responder = sdk::v1::Responder;

/// What a client wants of its session.
pub(super) enum Command {
    Prompt(Vec<ContentPart>, Responder),
    SetMode(String, Responder),
    SetOption {
        id: String,
        value: String,
        responder: Responder,
    },
    /// Something to say to the running turn.
    Steer(String, Responder),
    Aside(Aside, Responder),
    /// `session/cancel`, in its place among the others: it is for the prompt before it and for none behind.
    Cancel,
    Close(Responder),
}

impl Command {
    /// Who waits for its answer, if anybody does.
    pub(super) fn into_responder(self) -> Option<Responder> {
        match self {
            Self::Cancel => None,
            Self::Prompt(_, responder)
            | Self::SetMode(_, responder)
            | Self::Steer(_, responder)
            | Self::Aside(_, responder)
            | Self::SetOption { responder, .. }
            | Self::Close(responder) => Some(responder),
        }
    }
}

/// A running prompt.
struct Turn {
    responder: Responder,
    /// Known once `send` has answered.
    stream: Option<StreamId>,
    /// `send`, until it has answered.
    sending: Option<BoxFuture<'static, Result<SendReceipt, SendError>>>,
    withdrawn: sdk::RequestCancellation,
    cancelled: bool,
    last_error: Option<TurnError>,
    quota: Quota,
    /// What was said to it and read by nobody.
    unread: Option<Value>,
    /// An end that came before `send` said which stream it started.
    early_end: Option<(StreamId, StreamEndReason, Option<Value>)>,
}

/// How a session begins: with what was said before, then the answer to the request that opened it.
pub(super) struct Opening {
    pub(super) past: Past,
    pub(super) introduction: Value,
    pub(super) responder: Responder,
}

/// The task of one session.
pub(super) struct Session {
    pub(super) hosted: HostedSession,
    pub(super) opening: Opening,
    pub(super) outbox: Outbox,
    pub(super) abilities: Abilities,
    pub(super) commands: mpsc::Receiver<Command>,
    /// `session/cancel` that found no room among the commands.
    pub(super) cancel: Arc<Notify>,
    pub(super) questions: mpsc::Receiver<Question>,
}

enum Step {
    Command(Option<Command>),
    Cancel,
    /// The client took back its request to open the session.
    Withdrawn,
    Sent(Result<SendReceipt, SendError>),
    Work,
    Update(Option<super::outbox::Credit>),
    Event(Option<Arc<AgentEvent>>),
    Question(Question),
}

struct Running {
    hosted: HostedSession,
    outbox: Outbox,
    translator: Translator,
    turn: Option<Turn>,
    /// Updates of the events that were read; never more than one event's.
    updates: VecDeque<Value>,
    mode: ApprovalMode,
    /// What the client was told last.
    options: Vec<ConfigOption>,
    /// What the client was told last; none at first.
    commands: Vec<CommandInfo>,
    /// Open questions and aborts under way.
    work: FuturesUnordered<BoxFuture<'static, ()>>,
    /// Cancels the open questions.
    asking: CancellationToken,
    /// Until the request that opened the session is answered.
    opening: Option<Opening>,
    closing: Option<Responder>,
}

impl Session {
    /// Runs until the client closes the session or is gone, then closes it for good.
    pub(super) async fn run(self, events: Subscription) {
        let Self { hosted, opening, outbox, abilities, mut commands, cancel, mut questions } = self;
        let mut events = pin!(events);
        let mut running = Running {
            mode: hosted.control.approval_mode(),
            options: hosted.control.config_options(),
            commands: Vec::new(),
            hosted,
            outbox,
            translator: Translator::new(abilities),
            turn: None,
            updates: VecDeque::new(),
            work: FuturesUnordered::new(),
            asking: CancellationToken::new(),
            opening: Some(opening),
            closing: None,
        };
        while running.closing.is_none() {
            running.open();
            let busy = !running.updates.is_empty();
            let opening = running.opening.as_ref().map(|opening| opening.responder.cancellation());
            let withdrawal = running.turn.as_ref().filter(|turn| !turn.cancelled).map(|turn| turn.withdrawn.clone());
            let step = tokio::select! {
                biased;
                command = commands.recv() => Step::Command(command),
                () = cancel.notified() => Step::Cancel,
                () = withdrawn(withdrawal) => Step::Cancel,
                () = withdrawn(opening) => Step::Withdrawn,
                sent = sent(running.turn.as_mut()) => Step::Sent(sent),
                Some(()) = running.work.next() => Step::Work,
                credit = running.outbox.credit(), if busy => Step::Update(credit),
                event = events.next(), if !busy => Step::Event(event),
                Some(question) = questions.recv(), if !busy => Step::Question(question),
            };
            match step {
                Step::Command(None) | Step::Update(None) | Step::Event(None) => break,
                Step::Command(Some(command)) => running.command(command),
                Step::Cancel => running.cancel(),
                Step::Withdrawn => break,
                Step::Sent(sent) => running.sent(sent),
                Step::Work => {}
                Step::Update(Some(credit)) => {
                    if let Some(update) = running.updates.pop_front() {
                        running.outbox.send(credit, &running.hosted.id, update);
                    }
                }
                Step::Event(Some(event)) => running.event(&event),
                Step::Question(question) => running.ask(question),
            }
        }
        // Nobody answers any more, and whoever asks from here on is told so at once. Once the client hears of the end, its
        // next session may have this id.
        drop((questions, commands));
        running.close(events.get_mut()).await;
    }
}

/// Waits until the client withdraws a request with `$/cancel_request`.
async fn withdrawn(request: Option<sdk::RequestCancellation>) {
    match request {
        Some(request) => request.cancelled().await,
        None => future::pending().await,
    }
}

async fn sent(turn: Option<&mut Turn>) -> Result<SendReceipt, SendError> {
    match turn.and_then(|turn| turn.sending.as_mut()) {
        Some(sending) => sending.await,
        None => future::pending().await,
    }
}

pub(super) fn answer(responder: Responder, answer: Result<Value, RpcError>) {
    if let Err(error) = responder.respond_with_result(answer.map_err(Into::into)) {
        tracing::debug!(code = error.code.value(), "an answer found no client");
    }
}

impl Running {
    fn command(&mut self, command: Command) {
        match command {
            Command::Prompt(_, responder) if self.turn.is_some() || self.opening.is_some() => {
                answer(responder, Err(RpcError::busy()))
            }
            Command::Prompt(content, responder) => self.prompt(content, responder),
            Command::SetMode(id, responder) => {
                let set = self.set_mode(&id);
                answer(responder, set.map(|()| json!({})));
                self.report_settings();
            }
            Command::SetOption { id, value, responder } => {
                let set = self.hosted.control.set_config_option(&id, &value);
                if set.is_ok() {
                    // The answer tells all of them; telling them once more would be noise.
                    self.options = self.hosted.control.config_options();
                }
                let answered = set.map(|()| json!({"configOptions": settings::options(&self.options)}));
                answer(responder, answered.map_err(Into::into));
                self.report_settings();
            }
            Command::Steer(text, responder) => {
                answer(responder, Ok(steer::told(&self.hosted.control.steer(&text))));
            }
            // An opening tells what was said: until it is over there is nothing to go back from.
            Command::Aside(_, responder) if self.opening.is_some() || self.work.len() >= WORK_MAX => {
                answer(responder, Err(RpcError::busy()));
            }
            Command::Aside(aside, responder) => {
                let control = Arc::clone(&self.hosted.control);
                let done = async move { answer(responder, aside.carry_out(&*control).await) };
                self.work.push(done.boxed());
            }
            Command::Cancel => self.cancel(),
            Command::Close(responder) => self.closing = Some(responder),
        }
    }

    /// Goes on with the opening as far as the client keeps up: the history first, the answer behind it, and behind that
    /// what no client understands of a session that it has not heard of.
    fn open(&mut self) {
        while self.updates.is_empty()
            && let Some(opening) = self.opening.as_mut()
        {
            if let Some(event) = opening.past.history.pop_front() {
                self.updates.extend(self.translator.replayed(&event));
                continue;
            }
            let title = opening.past.title.take();
            let title = title.map(|title| json!({"sessionUpdate": "session_info_update", "title": title}));
            if opening.past.replay && title.is_some() {
                self.updates.extend(title);
                continue;
            }
            let Some(Opening { introduction, responder, .. }) = self.opening.take() else { return };
            answer(responder, Ok(introduction));
            self.updates.extend(title);
            self.report_settings();
        }
    }

    fn prompt(&mut self, content: Vec<ContentPart>, responder: Responder) {
        let agent = Arc::clone(&self.hosted.agent);
        let message = AgentSend::Message(SendMessage { content, display_content: None });
        self.turn = Some(Turn {
            withdrawn: responder.cancellation(),
            responder,
            stream: None,
            sending: Some(async move { agent.send(message).await }.boxed()),
            cancelled: false,
            last_error: None,
            quota: Quota::default(),
            unread: None,
            early_end: None,
        });
    }

    fn sent(&mut self, sent: Result<SendReceipt, SendError>) {
        let Some(turn) = self.turn.as_mut() else { return };
        turn.sending = None;
        match sent {
            Err(error) => self.end_turn(Err(error.into())),
            // Nothing was started, so nothing will end.
            Ok(SendReceipt { stream_id: None }) => self.end_turn(Ok(json!({"stopReason": "end_turn"}))),
            Ok(SendReceipt { stream_id: Some(id) }) => {
                let early = turn.early_end.take_if(|(stream, ..)| *stream == id);
                turn.stream = Some(id);
                if let Some((_, reason, data)) = early {
                    self.finish(reason, data);
                } else if turn.cancelled {
                    // The abort before may have found nothing to end.
                    self.abort();
                }
            }
        }
    }

    fn cancel(&mut self) {
        self.asking.cancel();
        self.asking = CancellationToken::new();
        if let Some(turn) = self.turn.as_mut() {
            turn.cancelled = true;
            self.abort();
        }
    }

    fn abort(&mut self) {
        let agent = Arc::clone(&self.hosted.agent);
        self.work.push(async move { agent.abort().await }.boxed());
    }

    fn set_mode(&self, id: &str) -> Result<(), RpcError> {
        let offered = self.hosted.control.approval_modes();
        let Some(mode) = ApprovalMode::parse(id).filter(|mode| offered.contains(mode)) else {
            let ids: Vec<_> = offered.iter().map(|mode| mode.acp()).collect();
            let data = Some(json!({"code": "mode_unavailable", "allowed": ids}));
            return Err(RpcError { data, ..RpcError::new(INVALID_PARAMS, format!("no mode with id \"{id}\"")) });
        };
        Ok(self.hosted.control.set_approval_mode(mode)?)
    }

    /// Tells the client of settings that changed, whoever changed them.
    fn report_settings(&mut self) {
        let mode = self.hosted.control.approval_mode();
        if mode != self.mode {
            self.mode = mode;
            // Only the last of several changes is news.
            self.updates.retain(|update| update["sessionUpdate"] != MODE_UPDATE);
            self.updates.push_back(json!({"sessionUpdate": MODE_UPDATE, "currentModeId": mode.acp()}));
        }
        let options = self.hosted.control.config_options();
        if options != self.options {
            let told = settings::options(&options);
            self.options = options;
            self.updates.retain(|update| update["sessionUpdate"] != OPTIONS_UPDATE);
            self.updates.push_back(json!({"sessionUpdate": OPTIONS_UPDATE, "configOptions": told}));
        }
        let commands = self.hosted.control.commands();
        if commands != self.commands {
            let told = settings::commands(&commands);
            self.commands = commands;
            self.updates.retain(|update| update["sessionUpdate"] != COMMANDS_UPDATE);
            self.updates.push_back(json!({"sessionUpdate": COMMANDS_UPDATE, "availableCommands": told}));
        }
    }

    fn event(&mut self, event: &AgentEvent) {
        self.updates.extend(self.translator.updates(event));
        // How a subagent fares is told by the call that it is a part of.
        let about_the_turn = matches!(event.body, AgentEventBody::Error { .. } | AgentEventBody::AgentEnd { .. });
        if event.thread_id.is_some() && about_the_turn {
            return;
        }
        match &event.body {
            AgentEventBody::Error { status, message, fatal } => {
                if let Some(turn) = self.turn.as_mut()
                    // After it the turn goes on, with another model.
                    && event.meta.get("code") != Some(&Value::from("MODEL_FALLBACK"))
                    && (*fatal || turn.last_error.is_none())
                {
                    let (message, meta) = (message.clone(), event.meta.clone());
                    turn.last_error = Some(TurnError { status: *status, message, meta });
                }
            }
            AgentEventBody::ToolResponse { .. } | AgentEventBody::SessionUpdate { .. } => self.report_settings(),
            AgentEventBody::AgentEnd { reason, data } => {
                self.report_settings();
                match self.turn.as_mut() {
                    Some(turn) if turn.stream.as_ref() == Some(&event.stream_id) => {
                        self.finish(*reason, data.clone());
                    }
                    Some(turn) if turn.stream.is_none() => {
                        turn.early_end = Some((event.stream_id.clone(), *reason, data.clone()));
                    }
                    Some(_) | None => {}
                }
            }
            AgentEventBody::Usage { model, input_tokens, output_tokens, .. } => {
                let (input, output) = (input_tokens.unwrap_or(0), output_tokens.unwrap_or(0));
                if let Some(turn) = self.turn.as_mut() {
                    turn.quota.add(model, input, output);
                }
                // A subagent has a conversation of its own.
                if let (None, Some(size)) = (&event.thread_id, self.hosted.control.context_window()) {
                    let used = input.saturating_add(output);
                    self.updates.push_back(json!({"sessionUpdate": "usage_update", "used": used, "size": size}));
                }
            }
            AgentEventBody::Custom { kind, data: Some(data) }
                if kind == "steering_unread" && event.thread_id.is_none() =>
            {
                if let Some(turn) = self.turn.as_mut() {
                    turn.unread = data.get("texts").cloned();
                }
            }
            _ => {}
        }
    }

    /// The stream of the running prompt ended.
    fn finish(&mut self, reason: StreamEndReason, data: Option<Value>) {
        let stop = match reason {
            StreamEndReason::Completed => "end_turn",
            StreamEndReason::Aborted => "cancelled",
            // ACP has no word for time; a turn that may not go on is the nearest.
            StreamEndReason::MaxTurns | StreamEndReason::MaxTime => "max_turn_requests",
            StreamEndReason::MaxBudget => "max_tokens",
            StreamEndReason::Refusal => "refusal",
            StreamEndReason::Failed => {
                let turn = self.turn.as_mut();
                let (error, unread) = turn.map(|turn| (turn.last_error.take(), turn.unread.take())).unwrap_or_default();
                return self.end_turn(Err(failed_turn(error, with_unread(data, unread))));
            }
        };
        let mut end = Map::new();
        end.insert("stopReason".to_owned(), json!(stop));
        let quota = self.turn.as_ref().and_then(|turn| turn.quota.told());
        let quota = quota.map(|quota| ("quota".to_owned(), quota));
        let data = data.map(|data| (crate::END_META.to_owned(), data));
        let unread = self.turn.as_mut().and_then(|turn| turn.unread.take());
        let unread = unread.map(|texts| (crate::UNREAD_META.to_owned(), texts));
        let meta: Map<String, Value> = data.into_iter().chain(quota).chain(unread).collect();
        end.extend((!meta.is_empty()).then(|| ("_meta".to_owned(), Value::Object(meta))));
        self.end_turn(Ok(Value::Object(end)));
    }

    fn end_turn(&mut self, end: Result<Value, RpcError>) {
        if let Some(turn) = self.turn.take() {
            self.flush();
            answer(turn.responder, end);
        }
    }

    /// Sends what is left of one event's updates without credit: an answer must not overtake them, and they are few.
    fn flush(&mut self) {
        for update in std::mem::take(&mut self.updates) {
            self.outbox.send_now(&self.hosted.id, update);
        }
    }

    fn ask(&mut self, question: Question) {
        if self.turn.as_ref().is_some_and(|turn| turn.cancelled) {
            // Dropped, it counts as cancelled.
            return;
        }
        let sent = self.outbox.client().send_request(question.message());
        self.work.push(permission::settle(sent, question, self.asking.clone()).boxed());
    }

    /// Ends the session itself. What it still says goes out, its prompt is answered, then the request to close is.
    async fn close(mut self, events: &mut Subscription) {
        self.asking.cancel();
        if let Some(opening) = self.opening.take() {
            answer(opening.responder, Err(RpcError::withdrawn()));
        }
        let control = Arc::clone(&self.hosted.control);
        // The open questions have to hear that they are cancelled, or a tool might wait for them for ever.
        let settled = async { while self.work.next().await.is_some() {} };
        let closed = async { tokio::join!(control.close(), settled) };
        if tokio::time::timeout(CLOSE_MAX, closed).await.is_err() {
            tracing::warn!(session = %self.hosted.id, "a session did not close in time");
        }
        while let Some(Some(event)) = events.next().now_or_never() {
            self.event(&event);
            self.flush();
        }
        self.end_turn(Ok(json!({"stopReason": "cancelled"})));
        if let Some(responder) = self.closing.take() {
            answer(responder, Ok(json!({})));
        }
    }
}

/// The details of a failed turn with what nobody read of what was said to it.
fn with_unread(data: Option<Value>, unread: Option<Value>) -> Option<Value> {
    let Some(texts) = unread else { return data };
    let mut data = match data {
        Some(Value::Object(data)) => data,
        Some(other) => Map::from_iter([("data".to_owned(), other)]),
        None => Map::new(),
    };
    data.insert(crate::UNREAD_META.to_owned(), texts);
    Some(Value::Object(data))
}
