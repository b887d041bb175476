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
mod reports;
pub(crate) mod rewind;
mod served;
mod start;
mod state;
mod unasked;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use convoke_acp::{ChildEvent, PermissionReply};
use convoke_bridge::{
    AgentKey, CreationId, Input, Refusal, ReplyKey, Resolution, StartFailure, StartKind, TurnOutcome,
};
use convoke_protocol::{ApprovalMode, ClientId, PromptId, SessionId};
use convoke_stdx::Clock;
use convoke_stdx::guard::Spawner;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::options::DaemonLimits;
use crate::roster::{Isolation, Roster};
use crate::session_store::SessionStore;
use hosted::Loading;
use order::{Change, Order};
use unasked::Unasked;

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
    /// By name, what agents did without asking; at most as many as there are names.
    unasked: BTreeMap<String, Unasked>,
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
            unasked: BTreeMap::new(),
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

    /// An agent that leaves calls unanswered may be stuck: it keeps its sessions and gets no other.
    fn set_aside(&mut self, key: AgentKey) {
        if let Some(agent) = self.live.get(&key) {
            tracing::warn!(agent = key.0, name = agent.name, "an agent does not answer; it gets no more sessions");
        }
        self.current.retain(|_, current| *current != key);
        self.stop_if_alone(key);
    }

    /// Asks an agent to end that has lost its last session and gets no other.
    fn stop_if_alone(&mut self, key: AgentKey) {
        let Some(agent) = self.live.get(&key) else { return };
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
            Wish::RewindPoints(_) => (Some(rewind::ask_for_points(&agent_session)), (0, String::new())),
            Wish::Rewind(fields, _) => (Some(rewind::ask(&agent_session, fields)), (0, String::new())),
        };
        let Some(ask) = ask else {
            let (code, message) = missing;
            if let Wish::Model(model_id, _) = &wish {
                let (session, model_id, error) = (session.clone(), model_id.clone(), message.clone());
                self.failed.push(Input::ModelSwitchFailed { session, originator, model_id, error });
            }
            return wish.refuse(Refusal::StartFailed(StartFailure::Agent { code, message, data: None }));
        };
        hosted.setting(&wish, originator.as_ref());
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

    /// Every agent by its name, for `/daemon/status`.
    pub(crate) fn wire(&self, full: bool) -> Value {
        let agents = self.options.roster.names().map(|name| {
            let live = || self.live.values().filter(|agent| agent.name == name);
            let none = Unasked::default();
            json!({
                "name": name,
                "default": name == self.options.roster.default_name(),
                "processes": live().filter(|agent| agent.up).count(),
                "sessions": live().map(|agent| agent.sessions.len()).sum::<usize>(),
                "unasked": self.unasked.get(name).unwrap_or(&none).wire(full),
            })
        });
        agents.collect()
    }
}
