//! The one task that owns the bridge: what happened, one step of the bridge, everything it wants done; again.
//!
//! ```text
//! routes ── Handle ──▶ commands ─┐                     ┌─▶ answers to routes
//! agents ── reports ────────────▶│ Wake ─ handle ─ out ├─▶ StreamWriters, woken once per round
//! streams ─ Feedback ───────────▶│                     ├─▶ Agents
//! deadline, pulse, shutdown ────▶┘                     └─▶ audit, log
//! ```
//! It decides nothing about sessions, votes or queues. Queues to it are bounded, and whoever fills them waits: a route
//! its turn, an agent the emptying of its pipe.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use convoke_bridge::{
    AgentKey, Answer, Bridge, CallId, Input, LogLevel, Output, Refusal, StartFailure, SubscribeRequest, SubscriberId,
};
use convoke_protocol::{ApprovalMode, ClientId, SessionId};
use convoke_stdx::Clock;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval_at, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::agents::{Agents, AgentsOptions, Hosted, Report, Wish};
use crate::audit_log::AuditLog;
use crate::fallen::Fallen;
use crate::metrics::Tally;
use crate::options::DaemonLimits;
use crate::session_store::SessionStore;
use crate::stream::{self, Feedback, StreamReader, StreamWriter};
use crate::traces::Traces;

/// Calls of routes that wait for the driver: one per connection, and there are 256 of them by default.
const COMMANDS_MAX: usize = 256;

/// Reports of agents that wait for the driver; what does not fit stays in the agents' own bounded queues.
const REPORTS_MAX: usize = 256;

/// Most wakes that are handled before readers are woken: a burst is then one write per reader, and no reader waits for
/// more than a few hundred microseconds of handling.
const ROUND_MAX: usize = 64;

/// The waiting side of a call.
type Waiting = oneshot::Sender<Result<Answer, Refusal>>;

/// What a look at the daemon shows.
pub(crate) struct View<'a> {
    /// The bridge.
    pub(crate) bridge: &'a Bridge,
    /// The agents.
    pub(crate) agents: &'a Agents,
    /// Sessions that ended with their agents.
    pub(crate) fallen: &'a Fallen,
    /// Whether the agent for new sessions is up.
    pub(crate) agent_up: bool,
    /// Calls whose answer is not there yet.
    pub(crate) waiting_calls: usize,
    /// Milliseconds since the Unix epoch, now.
    pub(crate) wall_ms: u64,
    /// When the last call came in; `None` before the first.
    pub(crate) last_call_wall_ms: Option<u64>,
    /// Since the daemon started.
    pub(crate) uptime: Duration,
}

impl View<'_> {
    /// A live session as its agent describes it.
    pub(crate) fn hosted(&self, session: &SessionId) -> Result<&Hosted, Refusal> {
        let owner = self.bridge.authorize(session, None)?;
        let gone = || Refusal::SessionNotFound { session: session.clone() };
        self.agents.hosted(owner.agent, session).ok_or_else(gone)
    }
}

enum Command {
    Call { call: CallId, input: Input, reply: Waiting },
    Subscribe { call: CallId, input: Input, writer: StreamWriter, subscriber: SubscriberId, reply: Waiting },
    Tell(Input),
    Look(Box<dyn FnOnce(&View<'_>) + Send>),
    Change { session: SessionId, client: Option<ClientId>, wish: Wish },
}

/// A call whose answer is under way.
pub(crate) struct Submitted(oneshot::Receiver<Result<Answer, Refusal>>);

impl Submitted {
    pub(crate) async fn answer(self) -> Result<Answer, Refusal> {
        self.0.await.unwrap_or(Err(Refusal::Draining))
    }
}

/// Everything that wakes the driver.
enum Wake {
    Command(Command),
    Report(AgentKey, Report),
    ReaderGone,
    Deadline,
    Pulse,
    StallCheck,
    Shutdown,
    ShutdownDeadline,
}

/// How routes reach the driver.
#[derive(Clone)]
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
    ids: Arc<AtomicU64>,
    feedback: Arc<Feedback>,
}

impl Handle {
    fn id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a call and waits for its answer. Dropping the future gives up the answer, not the call.
    pub(crate) async fn call(&self, input: impl FnOnce(CallId) -> Input) -> Result<Answer, Refusal> {
        self.submit(input).await?.answer().await
    }

    /// Makes a call: when this returns, its place among all calls is taken. Its answer can be waited for elsewhere.
    pub(crate) async fn submit(&self, input: impl FnOnce(CallId) -> Input) -> Result<Submitted, Refusal> {
        let call = CallId(self.id());
        let (reply, answer) = oneshot::channel();
        self.send(Command::Call { call, input: input(call), reply }).await?;
        Ok(Submitted(answer))
    }

    /// Opens an event stream on a connection that `destroy` ends.
    pub(crate) async fn subscribe(
        &self,
        session: SessionId,
        destroy: CancellationToken,
        request: impl FnOnce(SubscriberId) -> SubscribeRequest,
    ) -> Result<(Answer, StreamReader), Refusal> {
        let call = CallId(self.id());
        let subscriber = SubscriberId(self.id());
        let (writer, reader) = stream::stream(subscriber, &self.feedback, destroy);
        let input = Input::Subscribe { call, session, request: request(subscriber) };
        let (reply, answer) = oneshot::channel();
        self.send(Command::Subscribe { call, input, writer, subscriber, reply }).await?;
        let answer = answer.await.unwrap_or(Err(Refusal::Draining))?;
        Ok((answer, reader))
    }

    /// Tells something that has no answer.
    pub(crate) async fn tell(&self, input: Input) -> Result<(), Refusal> {
        self.send(Command::Tell(input)).await
    }

    /// Looks at the daemon between two steps.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&View<'_>) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (reply, seen) = oneshot::channel();
        // Whoever asked may be gone.
        let look = Box::new(move |view: &View<'_>| drop(reply.send(look(view))));
        self.send(Command::Look(look)).await?;
        seen.await.map_err(|_| Refusal::Draining)
    }

    /// Has the agent change a session's mode; the answer is the mode before.
    pub(crate) async fn set_mode(
        &self,
        session: SessionId,
        client: Option<ClientId>,
        mode: ApprovalMode,
    ) -> Result<ApprovalMode, Refusal> {
        let (reply, done) = oneshot::channel();
        self.send(Command::Change { session, client, wish: Wish::Mode(mode, reply) }).await?;
        done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Has the agent change a session's model; the answer is the agent's.
    pub(crate) async fn set_model(
        &self,
        session: SessionId,
        client: Option<ClientId>,
        model: String,
    ) -> Result<Value, Refusal> {
        let (reply, done) = oneshot::channel();
        self.send(Command::Change { session, client, wish: Wish::Model(model, reply) }).await?;
        done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Has the agent say to which points a session can go back; the answer is the agent's.
    pub(crate) async fn rewind_points(&self, session: SessionId) -> Result<Value, Refusal> {
        let (reply, done) = oneshot::channel();
        self.send(Command::Change { session, client: None, wish: Wish::RewindPoints(reply) }).await?;
        done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Has the agent take a session back; the answer is the agent's.
    pub(crate) async fn rewind(
        &self,
        session: SessionId,
        client: Option<ClientId>,
        fields: Map<String, Value>,
    ) -> Result<Value, Refusal> {
        let (reply, done) = oneshot::channel();
        self.send(Command::Change { session, client, wish: Wish::Rewind(fields, reply) }).await?;
        done.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn send(&self, command: Command) -> Result<(), Refusal> {
        self.commands.send(command).await.map_err(|_| Refusal::Draining)
    }
}

/// An agent that ends before it answers a wish.
fn gone() -> Refusal {
    Refusal::StartFailed(StartFailure::Unavailable { message: "it is gone".to_owned() })
}

/// The owner of the bridge.
pub(crate) struct Driver {
    bridge: Bridge,
    agents: Agents,
    clock: Clock,
    commands: mpsc::Receiver<Command>,
    reports: mpsc::Receiver<(AgentKey, Report)>,
    feedback: Arc<Feedback>,
    calls: BTreeMap<CallId, Waiting>,
    streams: BTreeMap<SubscriberId, StreamWriter>,
    /// Streams with something new to read, each once.
    touched: Vec<SubscriberId>,
    audit: AuditLog,
    tally: Tally,
    traces: Traces,
    fallen: Fallen,
    limits: DaemonLimits,
    last_call_wall_ms: Option<u64>,
    out: Vec<Output>,
}

impl Driver {
    /// A driver and the way to reach it.
    pub(crate) fn new(
        bridge: Bridge,
        agents: AgentsOptions,
        sessions: SessionStore,
        audit: AuditLog,
        tally: Tally,
    ) -> (Self, Handle) {
        let (command_sender, commands) = mpsc::channel(COMMANDS_MAX);
        let (report_sender, reports) = mpsc::channel(REPORTS_MAX);
        let feedback = Arc::new(Feedback::default());
        let limits = agents.limits.clone();
        let driver = Self {
            bridge,
            agents: Agents::new(agents, sessions, report_sender),
            clock: Clock::start(),
            commands,
            reports,
            feedback: Arc::clone(&feedback),
            calls: BTreeMap::new(),
            streams: BTreeMap::new(),
            touched: Vec::new(),
            audit,
            tally,
            traces: Traces::default(),
            fallen: Fallen::default(),
            limits,
            last_call_wall_ms: None,
            out: Vec::new(),
        };
        (driver, Handle { commands: command_sender, ids: Arc::new(AtomicU64::new(1)), feedback })
    }

    /// Runs until `shutdown`, and then until the agents are gone or had their time.
    ///
    /// `true` if every agent ended by itself.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> bool {
        self.agents.preheat();
        let mut pulse = ticks(self.limits.heartbeat);
        let mut stall_check = self.limits.writer_idle.map(|limit| ticks((limit / 4).max(STALL_CHECK_MIN)));
        let mut stopping = None;
        loop {
            let deadline = self.bridge.next_deadline().map(|tick| self.clock.instant_of(tick));
            let wake = tokio::select! {
                Some(command) = self.commands.recv() => Wake::Command(command),
                Some((key, report)) = self.reports.recv() => Wake::Report(key, report),
                () = self.feedback.reader_gone() => Wake::ReaderGone,
                () = sleep_or_never(deadline) => Wake::Deadline,
                _ = pulse.tick() => Wake::Pulse,
                () = next_tick(stall_check.as_mut()) => Wake::StallCheck,
                () = shutdown.cancelled(), if stopping.is_none() => Wake::Shutdown,
                () = sleep_or_never(stopping) => Wake::ShutdownDeadline,
            };
            match wake {
                Wake::Shutdown => stopping = Some(Instant::now() + self.limits.shutdown),
                Wake::ShutdownDeadline => {
                    tracing::warn!("agents did not end in time");
                    return false;
                }
                _ => {}
            }
            self.take(wake);
            for _ in 0..ROUND_MAX {
                let Some(wake) = self.ready() else { break };
                self.take(wake);
            }
            self.wake_readers();
            if stopping.is_some() && self.agents.are_gone() {
                return self.agents.ended_cleanly();
            }
        }
    }

    /// What has arrived already, without waiting.
    fn ready(&mut self) -> Option<Wake> {
        if let Ok((key, report)) = self.reports.try_recv() {
            return Some(Wake::Report(key, report));
        }
        self.commands.try_recv().ok().map(Wake::Command)
    }

    fn take(&mut self, wake: Wake) {
        self.collect_feedback();
        match wake {
            Wake::Command(command) => self.command(command),
            Wake::Report(key, report) => {
                if matches!(report, Report::Up { .. }) {
                    self.tally.metrics().agent_started();
                }
                let mut inputs = Vec::new();
                self.agents.take(key, report, &mut inputs);
                for input in inputs {
                    self.step(input);
                }
            }
            Wake::ReaderGone | Wake::ShutdownDeadline => {}
            Wake::Deadline => self.step(Input::Tick),
            Wake::Pulse => {
                self.streams.values().for_each(StreamWriter::heartbeat);
                self.agents.stop_idle(Instant::now());
            }
            Wake::StallCheck => self.check_stalls(),
            Wake::Shutdown => {
                self.step(Input::Shutdown);
                self.agents.stop_all();
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Call { call, input, reply } => {
                self.last_call_wall_ms = Some(self.clock.now().wall_ms);
                self.calls.insert(call, reply);
                self.step(input);
            }
            Command::Subscribe { call, input, writer, subscriber, reply } => {
                self.calls.insert(call, reply);
                self.streams.insert(subscriber, writer);
                self.step(input);
            }
            Command::Tell(input) => self.step(input),
            Command::Look(look) => {
                let now = self.clock.now();
                look(&View {
                    bridge: &self.bridge,
                    agents: &self.agents,
                    fallen: &self.fallen,
                    agent_up: self.agents.is_up(),
                    waiting_calls: self.calls.len(),
                    wall_ms: now.wall_ms,
                    last_call_wall_ms: self.last_call_wall_ms,
                    uptime: now.tick.since(convoke_stdx::Tick::default()),
                });
            }
            Command::Change { session, client, wish } => match self.bridge.authorize(&session, client.as_ref()) {
                Ok(owner) => {
                    self.agents.change(owner.agent, &session, client, wish);
                    for input in self.agents.take_failed() {
                        self.step(input);
                    }
                }
                Err(refusal) => wish.refuse(refusal),
            },
        }
    }

    /// One step of the bridge, and of whatever it leads to at once.
    fn step(&mut self, input: Input) {
        let mut more = VecDeque::from([input]);
        while let Some(input) = more.pop_front() {
            match &input {
                Input::AgentGone { agent, .. } => {
                    let sessions = self.bridge.members_of_agent(*agent);
                    sessions.for_each(|(session, clients)| self.fallen.note(session.clone(), clients));
                    self.tally.metrics().agent_ended();
                }
                Input::SessionStarted { session, .. } => self.fallen.risen(session),
                _ => {}
            }
            self.traces.input(&input);
            let mut out = std::mem::take(&mut self.out);
            let named = match &input {
                Input::SetMetadata { session, display_name: Some(_), .. } => Some(session.clone()),
                _ => None,
            };
            self.bridge.handle(self.clock.now(), input, &mut out);
            for output in out.drain(..) {
                self.tally.output(&output);
                self.traces.output(&output);
                self.carry_out(output, &mut more);
            }
            self.out = out;
            if let Some(session) = named {
                self.remember_name(&session);
            }
            more.extend(self.agents.take_failed());
        }
    }

    fn remember_name(&mut self, session: &SessionId) {
        if let (Ok(status), Ok(owner)) = (self.bridge.status(session), self.bridge.authorize(session, None)) {
            self.agents.named(owner.agent, session, status.display_name);
        }
    }

    fn carry_out(&mut self, output: Output, more: &mut VecDeque<Input>) {
        match output {
            Output::Answer { call, answer } => {
                let Some(waiting) = self.calls.remove(&call) else { return };
                // The caller of a create may have hung up: then its client leaves.
                if let Err(Ok(Answer::Session(answer))) = waiting.send(answer) {
                    let (session, client) = (answer.created.session_id, answer.created.client_id);
                    more.push_back(Input::Detach { session, client: Some(client) });
                }
            }
            Output::StartSession { creation, workspace: _, start } => self.agents.start_session(creation, start),
            Output::StartTurn { session, agent, prompt_id, blocks } => {
                self.agents.start_turn(agent, &session, prompt_id, blocks);
            }
            Output::CancelTurn { session, agent, prompt_id: _ } => self.agents.cancel_turn(agent, &session),
            Output::CloseSession { session, agent } => self.agents.close_session(agent, &session),
            Output::Resolve { reply, resolution } => self.agents.resolve(reply, resolution),
            Output::Send { subscriber, frame, counted } => {
                if self.streams.get(&subscriber).is_some_and(|writer| writer.push(frame, counted)) {
                    self.touched.push(subscriber);
                }
            }
            Output::EndStream { subscriber } => {
                if let Some(writer) = self.streams.remove(&subscriber) {
                    writer.finish();
                }
            }
            Output::Evict { subscriber, frame } => {
                if let Some(writer) = self.streams.remove(&subscriber) {
                    writer.evict(frame);
                }
            }
            Output::Audit(record) => self.audit.record(&record),
            Output::Log { level, text } => match level {
                LogLevel::Debug => tracing::debug!("{text}"),
                LogLevel::Info => tracing::info!("{text}"),
                LogLevel::Warn => tracing::warn!("{text}"),
            },
        }
    }

    fn wake_readers(&mut self) {
        for subscriber in self.touched.drain(..) {
            if let Some(writer) = self.streams.get(&subscriber) {
                writer.wake();
            }
        }
    }

    /// Tells the bridge what readers wrote and who is gone, before it counts again.
    fn collect_feedback(&mut self) {
        for report in self.feedback.collect() {
            let stream::Report { subscriber, frames, bytes, gone } = report;
            if frames > 0 {
                self.step(Input::Drained { subscriber, frames, bytes });
            }
            if gone {
                self.streams.remove(&subscriber);
                self.step(Input::Unsubscribe { subscriber });
            }
        }
    }

    fn check_stalls(&mut self) {
        let Some(timeout) = self.limits.writer_idle else { return };
        let now = Instant::now();
        let stalled: Vec<_> = self
            .streams
            .iter()
            .filter_map(|(subscriber, writer)| Some((*subscriber, writer.stalled_for(now)?)))
            .filter(|(_, idle_for)| *idle_for >= timeout)
            .collect();
        for (subscriber, idle_for) in stalled {
            self.step(Input::WriterStalled { subscriber, idle_for, timeout });
        }
    }
}

/// A stall limit of a few milliseconds must not make the check a busy loop.
const STALL_CHECK_MIN: Duration = Duration::from_millis(20);

fn ticks(period: Duration) -> Interval {
    let period = period.max(Duration::from_millis(1));
    let mut ticks = interval_at(tokio::time::Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn next_tick(ticks: Option<&mut Interval>) {
    match ticks {
        Some(ticks) => drop(ticks.tick().await),
        None => std::future::pending().await,
    }
}

async fn sleep_or_never(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
