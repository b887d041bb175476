//! Who runs the sessions? The agents' owner: starts them, carries the bridge's orders to them and what they say back.
//!
//! ```text
//! Driver ─ Agents::start_turn, close … ─▶ orders ─▶ keeper (one task per agent) ─▶ AgentChild
//!    ◀──── Agents::take: Inputs ◀──────── reports ◀──┘ ◀── AgentEvents
//! ```
//! Agents have names. One process of each runs the workspace's sessions, or each session has its own. The default one is
//! started ahead of the first session; any is started again when one is wanted after it died, and ended when it had no
//! session for a while. This module knows the agents' ids of sessions; the bridge knows only ours.

mod hosted;
mod keeper;
mod order;
mod replay;
mod start;
mod state;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use convoke_acp::{ChildEvent, Exit, PermissionAsk, PermissionReply};
use convoke_bridge::{
    AgentKey, CreationId, Input, Refusal, ReplyKey, Resolution, SessionProfile, StartFailure, StartKind, TurnOutcome,
};
use convoke_protocol::{ApprovalMode, ClientId, PromptId, RequestId, SessionId};
use convoke_stdx::Clock;
use convoke_stdx::guard::Spawner;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::options::DaemonLimits;
use crate::roster::{Isolation, Roster};
use crate::session_store::{SessionRecord, SessionStore};
use hosted::Loading;
use order::{Change, Order, Started};

pub(crate) use hosted::Hosted;
pub(crate) use order::{Report, Wish};

/// Orders that wait for one agent: a start, a prompt, a cancel and a close for each of 800 sessions, and some more.
/// An agent that is this far behind takes nothing any more.
const ORDERS_MAX: usize = 4096;

/// Events of new sessions whose start is not answered yet: commands and the like. Source: daemon specification §a,
/// `--max-journal-events`.
const EARLY_MAX: usize = 10_000;

/// How agents are made.
#[derive(Clone, Debug)]
pub(crate) struct AgentsOptions {
    pub(crate) roster: Roster,
    pub(crate) isolation: Isolation,
    pub(crate) spawner: Spawner,
    pub(crate) workspace: PathBuf,
    pub(crate) limits: DaemonLimits,
    pub(crate) approval_mode: ApprovalMode,
    pub(crate) version: String,
}

/// Owns every agent.
pub(crate) struct Agents {
    options: Arc<AgentsOptions>,
    live: BTreeMap<AgentKey, Agent>,
    /// By name, the one that gets the next session.
    current: BTreeMap<String, AgentKey>,
    keys: u64,
    replies: BTreeMap<ReplyKey, (AgentKey, PermissionReply)>,
    reply_keys: u64,
    reports: mpsc::Sender<(AgentKey, Report)>,
    keepers: JoinSet<()>,
    store: SessionStore,
    clock: Clock,
    /// What an order that could not be given comes to.
    failed: Vec<Input>,
    stopping: bool,
    /// Whether every agent so far ended by itself when it was asked to.
    clean: bool,
}

struct Agent {
    name: String,
    orders: mpsc::Sender<Order>,
    stop: CancellationToken,
    up: bool,
    /// Whether it can load sessions.
    loads: bool,
    starting: BTreeMap<CreationId, Starting>,
    /// By the agent's ids.
    sessions: BTreeMap<SessionId, Hosted>,
    /// By the agent's ids.
    loading: BTreeMap<SessionId, Loading>,
    early: VecDeque<ChildEvent>,
    idle_since: Instant,
}

/// A start that was ordered.
struct Starting {
    start: StartKind,
    /// The agent's id of a session that is loaded.
    loads: Option<SessionId>,
    /// Whether an agent died of it, or before it, already.
    again: bool,
}

impl Agents {
    /// No agents yet; keepers report to `reports`.
    pub(crate) fn new(options: AgentsOptions, store: SessionStore, reports: mpsc::Sender<(AgentKey, Report)>) -> Self {
        Self {
            options: Arc::new(options),
            live: BTreeMap::new(),
            current: BTreeMap::new(),
            keys: 0,
            replies: BTreeMap::new(),
            reply_keys: 0,
            reports,
            keepers: JoinSet::new(),
            store,
            clock: Clock::start(),
            failed: Vec::new(),
            stopping: false,
            clean: true,
        }
    }

    /// Starts the default agent, unless it is there.
    pub(crate) fn preheat(&mut self) {
        let name = self.options.roster.default_name().to_owned();
        self.ready(&name);
    }

    /// The agent of that name for the next session, started if it has to be; `None` if there is no such name.
    fn ready(&mut self, name: &str) -> Option<AgentKey> {
        if let Some(key) = self.current.get(name) {
            return Some(*key);
        }
        let source = self.options.roster.source(name)?.clone();
        self.keys += 1;
        let key = AgentKey(self.keys);
        let (orders, inbox) = mpsc::channel(ORDERS_MAX);
        let stop = CancellationToken::new();
        let agent = Agent {
            name: name.to_owned(),
            orders,
            stop: stop.clone(),
            up: false,
            loads: false,
            starting: BTreeMap::new(),
            sessions: BTreeMap::new(),
            loading: BTreeMap::new(),
            early: VecDeque::new(),
            idle_since: Instant::now(),
        };
        self.live.insert(key, agent);
        self.current.insert(name.to_owned(), key);
        // Keepers that ended leave their slots here.
        while self.keepers.try_join_next().is_some() {}
        let options = Arc::clone(&self.options);
        self.keepers.spawn(keeper::keep(key, options, source, inbox, self.reports.clone(), stop));
        Some(key)
    }

    /// Whether an agent is there that has shaken hands.
    pub(crate) fn is_up(&self) -> bool {
        self.live.values().any(|agent| agent.up && !agent.stop.is_cancelled())
    }

    /// Whether no agent is left.
    pub(crate) fn are_gone(&self) -> bool {
        self.live.is_empty()
    }

    /// Whether every agent so far ended by itself when it was asked to.
    pub(crate) fn ended_cleanly(&self) -> bool {
        self.clean
    }

    /// The sessions that can be loaded again.
    pub(crate) fn store(&self) -> &SessionStore {
        &self.store
    }

    /// A session as its agent describes it.
    pub(crate) fn hosted(&self, key: AgentKey, session: &SessionId) -> Option<&Hosted> {
        self.live.get(&key)?.sessions.values().find(|hosted| hosted.session() == session)
    }

    /// The name of an agent.
    pub(crate) fn name_of(&self, key: AgentKey) -> Option<&str> {
        Some(&self.live.get(&key)?.name)
    }

    /// Asks every agent to end.
    pub(crate) fn stop_all(&mut self) {
        self.stopping = true;
        self.current.clear();
        for agent in self.live.values() {
            agent.stop.cancel();
        }
    }

    /// Asks agents to end that had no session for a while.
    pub(crate) fn stop_idle(&mut self, now: Instant) {
        let Some(idle) = self.options.limits.agent_idle else { return };
        for (key, agent) in &mut self.live {
            if !agent.sessions.is_empty() || !agent.starting.is_empty() {
                agent.idle_since = now;
            } else if now.saturating_duration_since(agent.idle_since) >= idle && !agent.stop.is_cancelled() {
                tracing::info!(agent = key.0, name = agent.name, "ending an agent without sessions");
                agent.stop.cancel();
                self.current.retain(|_, current| current != key);
            }
        }
    }

    /// Asks an agent to end that has lost its only session.
    fn stop_if_alone(&mut self, key: AgentKey) {
        let Some(agent) = self.live.get(&key).filter(|_| self.options.isolation == Isolation::Session) else { return };
        let spare = self.current.values().any(|current| *current == key);
        if !spare && agent.sessions.is_empty() && agent.starting.is_empty() {
            agent.stop.cancel();
        }
    }

    /// Orders that could not be given, as what the bridge has to know.
    pub(crate) fn take_failed(&mut self) -> Vec<Input> {
        std::mem::take(&mut self.failed)
    }

    /// Starts a session.
    pub(crate) fn start_session(&mut self, creation: CreationId, start: StartKind) {
        if let Err(failure) = self.begin(creation, start, false) {
            self.failed.push(Input::SessionStartFailed { creation, failure });
        }
    }

    fn begin(&mut self, creation: CreationId, start: StartKind, again: bool) -> Result<(), StartFailure> {
        let (name, order, loading) = self.plan(creation, &start)?;
        let unavailable = |message: String| StartFailure::Unavailable { message };
        let key = self.ready(&name).ok_or_else(|| unavailable(format!("no agent is called \"{name}\"")))?;
        if self.options.isolation == Isolation::Session {
            // The next session gets another process.
            self.current.remove(&name);
        }
        if let Some(agent) = self.live.get_mut(&key) {
            let loads = loading.map(|(agent_session, session)| {
                agent.loading.insert(agent_session.clone(), Loading::new(session));
                agent_session
            });
            agent.starting.insert(creation, Starting { start, loads, again });
        }
        if self.order(key, order) {
            return Ok(());
        }
        if let Some(agent) = self.live.get_mut(&key) {
            agent.starting.remove(&creation);
        }
        Err(unavailable("it takes no more orders".to_owned()))
    }

    /// Who starts a session, by which order; and the agent's and our id of one that is loaded.
    #[expect(clippy::type_complexity, reason = "three things that are taken apart at once by the only caller")]
    fn plan(
        &self,
        creation: CreationId,
        start: &StartKind,
    ) -> Result<(String, Order, Option<(SessionId, SessionId)>), StartFailure> {
        let default = || self.options.roster.default_name().to_owned();
        match start {
            StartKind::New { session, profile } => {
                let mode = profile.approval_mode.unwrap_or(self.options.approval_mode);
                let model = profile.model_service_id.clone();
                let order = Order::New { creation, wish: session.clone(), mode, model };
                Ok((profile.agent.clone().unwrap_or_else(default), order, None))
            }
            StartKind::Restore { session } => {
                let (name, agent_session) = match self.store.get(session) {
                    Some(record) => (record.agent.clone(), record.agent_session_id.clone()),
                    // The agent may know it from another life; but not by a name that no agent of ours would give.
                    None if !self.store.was_unused(session) && Uuid::try_parse(session.as_str()).is_ok() => {
                        (default(), session.clone())
                    }
                    None => return Err(StartFailure::NotStored { session: session.clone() }),
                };
                let order = Order::Load { creation, session: session.clone(), agent_session: agent_session.clone() };
                Ok((name, order, Some((agent_session, session.clone()))))
            }
        }
    }

    /// Sends a prompt.
    pub(crate) fn start_turn(&mut self, key: AgentKey, session: &SessionId, prompt_id: PromptId, blocks: Vec<Value>) {
        let wall_ms = self.clock.now().wall_ms;
        let sent = self.agent_session(key, session).is_some_and(|agent_session| {
            if let Some(agent) = self.live.get_mut(&key)
                && let Some(hosted) = agent.sessions.get_mut(&agent_session)
            {
                hosted.prompted(Some(&mut self.store).filter(|_| agent.loads), wall_ms);
            }
            let order = Order::Prompt { session: agent_session, prompt_id: prompt_id.clone(), blocks };
            self.order(key, order)
        });
        if !sent && self.live.contains_key(&key) {
            let message = "the agent takes no more prompts".to_owned();
            let outcome = TurnOutcome::Failed { message, code: None };
            self.failed.push(Input::TurnEnded { session: session.clone(), prompt_id, outcome });
        }
    }

    /// Asks for the end of a turn.
    pub(crate) fn cancel_turn(&mut self, key: AgentKey, session: &SessionId) {
        if let Some(session) = self.agent_session(key, session) {
            self.order(key, Order::Cancel { session });
        }
    }

    /// Ends a session.
    pub(crate) fn close_session(&mut self, key: AgentKey, session: &SessionId) {
        let Some(agent_session) = self.agent_session(key, session) else { return };
        if let Some(agent) = self.live.get_mut(&key) {
            agent.idle_since = Instant::now();
            if let Some(hosted) = agent.sessions.remove(&agent_session) {
                hosted.ended(agent.loads, &mut self.store, self.clock.now().wall_ms);
            }
        }
        self.order(key, Order::Close { session: agent_session });
        self.stop_if_alone(key);
    }

    /// A session has another name.
    pub(crate) fn named(&mut self, key: AgentKey, session: &SessionId, name: Option<String>) {
        let wall_ms = self.clock.now().wall_ms;
        let Some(agent) = self.live.get_mut(&key) else { return };
        let loads = agent.loads;
        if let Some(hosted) = agent.sessions.values_mut().find(|hosted| hosted.session() == session) {
            hosted.named(name, Some(&mut self.store).filter(|_| loads), wall_ms);
        }
    }

    /// Answers a question; a dead agent hears nothing.
    pub(crate) fn resolve(&mut self, reply: ReplyKey, resolution: Resolution) {
        let Some((key, reply)) = self.replies.remove(&reply) else { return };
        // Behind what was ordered before: a cancelled turn must hear of its end before it hears that its question failed.
        self.order(key, Order::Reply(Box::new(reply), resolution));
    }

    /// Asks the agent for another model or mode.
    pub(crate) fn change(&mut self, key: AgentKey, session: &SessionId, originator: Option<ClientId>, wish: Wish) {
        let gone = || Refusal::StartFailed(StartFailure::Unavailable { message: "it is gone".to_owned() });
        let Some(agent_session) = self.agent_session(key, session) else { return wish.refuse(gone()) };
        let hosted = self.live.get_mut(&key).and_then(|agent| agent.sessions.get_mut(&agent_session));
        let Some(hosted) = hosted else { return wish.refuse(gone()) };
        let (ask, missing) = match &wish {
            Wish::Mode(mode, _) => (
                hosted.state().ask_for_mode(&agent_session, *mode),
                (-32602, format!("the agent has no mode \"{}\"", mode.wire())),
            ),
            Wish::Model(model, _) => {
                (hosted.state().ask_for_model(&agent_session, model), (-32601, start::NO_MODELS.to_owned()))
            }
        };
        let Some(ask) = ask else {
            let (code, message) = missing;
            if let Wish::Model(model_id, _) = &wish {
                let (session, model_id, error) = (session.clone(), model_id.clone(), message.clone());
                self.failed.push(Input::ModelSwitchFailed { session, originator, model_id, error });
            }
            return wish.refuse(Refusal::StartFailed(StartFailure::Agent { code, message, data: None }));
        };
        hosted.setting(&wish);
        let change = Change { session: session.clone(), agent_session, originator, wish, ask };
        self.order(key, Order::Change(Box::new(change)));
    }

    fn agent_session(&self, key: AgentKey, session: &SessionId) -> Option<SessionId> {
        let agent = self.live.get(&key)?;
        agent.sessions.iter().find(|(_, hosted)| hosted.session() == session).map(|(id, _)| id.clone())
    }

    /// Gives an order; one that can't be given ends the agent.
    fn order(&mut self, key: AgentKey, order: Order) -> bool {
        let Some(agent) = self.live.get(&key) else { return false };
        let sent = agent.orders.try_send(order).is_ok();
        if !sent {
            tracing::warn!(agent = key.0, name = agent.name, "an agent does not take its orders; ending it");
            agent.stop.cancel();
            self.current.retain(|_, current| *current != key);
        }
        sent
    }

    /// Takes what a keeper told, and appends what the bridge has to know.
    ///
    /// What an agent says after its end is dropped.
    pub(crate) fn take(&mut self, key: AgentKey, report: Report, out: &mut Vec<Input>) {
        let Some(agent) = self.live.get_mut(&key) else { return };
        match report {
            Report::Up { loads } => {
                agent.up = true;
                agent.loads = loads;
            }
            Report::NotUp(failure) => self.gone(key, &failure, None, out),
            Report::Said(ChildEvent::Exited(exit)) => {
                tracing::info!(agent = key.0, name = agent.name, %exit, "an agent ended");
                let failure = StartFailure::Unavailable { message: exit.to_string() };
                self.gone(key, &failure, Some(&exit), out);
            }
            Report::Said(event) => self.said(key, event, out),
            Report::Started { creation, result } => self.started(key, creation, result, out),
            Report::TurnEnded { session, prompt_id, outcome } => {
                if let Some(hosted) = agent.sessions.get(&session) {
                    out.push(Input::TurnEnded { session: hosted.session().clone(), prompt_id, outcome });
                }
            }
            Report::Withdrawn(reply) => out.push(Input::PermissionWithdrawn { reply }),
            Report::Changed(change, result) => {
                if let Some(hosted) = agent.sessions.get_mut(&change.agent_session) {
                    hosted.changed(*change, result, out);
                }
            }
        }
    }

    fn gone(&mut self, key: AgentKey, failure: &StartFailure, exit: Option<&Exit>, out: &mut Vec<Input>) {
        let Some(agent) = self.live.remove(&key) else { return };
        self.current.retain(|_, current| *current != key);
        let wall_ms = self.clock.now().wall_ms;
        for hosted in agent.sessions.into_values() {
            hosted.ended(agent.loads, &mut self.store, wall_ms);
        }
        for (creation, starting) in agent.starting {
            // It may have been on its way out when the start came: then another one does it, once.
            let Starting { start, again, loads: _ } = starting;
            let retried = if agent.up && !again && !self.stopping {
                self.begin(creation, start, true)
            } else {
                Err(failure.clone())
            };
            if let Err(failure) = retried {
                out.push(Input::SessionStartFailed { creation, failure });
            }
        }
        self.replies.retain(|_, (owner, _)| *owner != key);
        let signal = exit.and_then(|exit| exit.signal);
        // An agent behind two streams has no status and can't be killed.
        self.clean &= !agent.stop.is_cancelled() || signal.is_none();
        out.push(Input::AgentGone {
            agent: key,
            exit_code: exit.and_then(|exit| exit.exit_code),
            signal: signal.map(signal_name),
        });
    }

    fn started(
        &mut self,
        key: AgentKey,
        creation: CreationId,
        result: Result<Box<Started>, StartFailure>,
        out: &mut Vec<Input>,
    ) {
        let Some(agent) = self.live.get_mut(&key) else { return };
        let Some(Starting { start, loads, again: _ }) = agent.starting.remove(&creation) else { return };
        agent.idle_since = Instant::now();
        let loading = loads.and_then(|agent_session| agent.loading.remove(&agent_session));
        let result = result.and_then(|started| {
            let known = agent.sessions.contains_key(&started.agent_session);
            let message = "it gave a session the id of another one".to_owned();
            if known { Err(StartFailure::Unavailable { message }) } else { Ok(started) }
        });
        let agent_session = match result {
            Err(failure) => {
                if let StartFailure::NotStored { session } = &failure
                    && agent.loads
                {
                    self.store.forget(session);
                }
                out.push(Input::SessionStartFailed { creation, failure });
                None
            }
            Ok(started) => {
                let session = started.wish.clone().unwrap_or_else(|| session_id(&started.agent_session));
                let agent_session = started.agent_session.clone();
                let remembered = self.store.get(&session).cloned();
                let prompted = remembered.is_some();
                let record = remembered.unwrap_or_else(|| {
                    let workspace = self.options.workspace.display().to_string();
                    let ids = (session.clone(), agent_session.clone());
                    record(ids, agent.name.clone(), workspace, &start, self.clock.now().wall_ms)
                });
                if let StartKind::Restore { .. } = start {
                    let (display_name, source_type) = (record.display_name.clone(), record.source_type.clone());
                    out.push(Input::Recalled { creation, display_name, source_type });
                }
                let created_wall_ms = Some(record.created_ms);
                let hosted = Hosted::new(record, &started, loading, prompted);
                agent.sessions.insert(agent_session.clone(), hosted);
                out.push(Input::SessionStarted {
                    creation,
                    session: session.clone(),
                    agent: key,
                    epoch: Uuid::new_v4().to_string(),
                    created_wall_ms,
                    model_id: started.state.model_id().map(str::to_owned),
                    approval_mode: started.mode,
                });
                if let Some((model_id, Some(error))) = started.model {
                    out.push(Input::ModelSwitchFailed { session, originator: None, model_id, error });
                }
                Some(agent_session)
            }
        };
        // What the agent said about the session before it told its id belongs right after its start.
        let none_left = agent.starting.is_empty();
        for event in std::mem::take(&mut agent.early) {
            let about = agent_session.is_some() && session_of(&event) == agent_session.as_ref();
            if about {
                self.said(key, event, out);
            } else if !none_left && let Some(agent) = self.live.get_mut(&key) {
                agent.early.push_back(event);
            }
        }
        self.stop_if_alone(key);
    }

    fn said(&mut self, key: AgentKey, event: ChildEvent, out: &mut Vec<Input>) {
        let Some(agent) = self.live.get_mut(&key) else { return };
        let Some(id) = session_of(&event) else { return };
        let Some(hosted) = agent.sessions.get_mut(id) else {
            match (&event, agent.loading.get_mut(id)) {
                (ChildEvent::Update(update), Some(loading)) => {
                    let text = update.update.get();
                    let Ok(update) = serde_json::from_str::<Value>(text) else { return };
                    loading.heed(update, text.len(), self.clock.now().wall_ms, self.options.limits.replay_bytes);
                }
                // Dropping a question answers it as cancelled.
                _ if !agent.starting.is_empty() && agent.early.len() < EARLY_MAX => agent.early.push_back(event),
                _ => {}
            }
            return;
        };
        match event {
            ChildEvent::Update(update) => {
                let text = update.update.get();
                let Ok(update) = serde_json::from_str::<Value>(text) else { return };
                hosted.heed(update, text.len(), out);
            }
            ChildEvent::PermissionRequest(ask) => {
                let session = hosted.session().clone();
                self.asked(key, session, *ask, out);
            }
            ChildEvent::Exited(_) => {}
        }
    }

    fn asked(&mut self, key: AgentKey, session: SessionId, ask: PermissionAsk, out: &mut Vec<Input>) {
        let PermissionAsk { session_id: _, tool_call, options, meta: _, reply: answer } = ask;
        self.reply_keys += 1;
        let reply = ReplyKey(self.reply_keys);
        let withdrawal = answer.withdrawal();
        self.replies.insert(reply, (key, answer));
        let options = match options {
            Value::Array(options) => options,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => Vec::new(),
        };
        let request = RequestId(Uuid::new_v4().to_string());
        out.push(Input::PermissionRequested { session, request, reply, tool_call, options });
        self.order(key, Order::Watch(reply, withdrawal));
    }
}

fn session_of(event: &ChildEvent) -> Option<&SessionId> {
    match event {
        ChildEvent::Update(update) => Some(&update.session_id),
        ChildEvent::PermissionRequest(ask) => Some(&ask.session_id),
        ChildEvent::Exited(_) => None,
    }
}

/// What will be remembered of a session that was not there before.
fn record(
    (session_id, agent_session_id): (SessionId, SessionId),
    agent: String,
    cwd: String,
    start: &StartKind,
    wall_ms: u64,
) -> SessionRecord {
    let profile = match start {
        StartKind::New { profile, .. } => profile.clone(),
        StartKind::Restore { .. } => SessionProfile::default(),
    };
    SessionRecord {
        v: SessionRecord::V,
        session_id,
        agent_session_id,
        agent,
        cwd,
        created_ms: wall_ms,
        updated_ms: wall_ms,
        display_name: None,
        source_type: profile.source_type,
        source_id: profile.source_id,
        gone: false,
    }
}

/// Our id of a session: the agent's, where it is a UUID, else a new one.
fn session_id(agent_session: &SessionId) -> SessionId {
    let canonical = Uuid::try_parse(agent_session.as_str()).ok().map(|id| id.to_string());
    match canonical {
        Some(id) if id == agent_session.as_str() => agent_session.clone(),
        _ => SessionId(Uuid::new_v4().to_string()),
    }
}

fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        other => return format!("SIG{other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_agents_are_kept_where_they_are_uuids() {
        let uuid = SessionId::from("550e8400-e29b-41d4-a716-446655440000");
        assert_eq!(session_id(&uuid), uuid);
        for odd in ["session-1", "550E8400-E29B-41D4-A716-446655440000", "", "../../etc"] {
            let ours = session_id(&SessionId::from(odd));
            assert_ne!(ours.as_str(), odd);
            assert!(Uuid::try_parse(ours.as_str()).is_ok());
        }
    }
}
