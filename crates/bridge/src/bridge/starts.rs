//! Sessions that are being started, and who waits for them.
//!
//! Concurrent wishes for a workspace's shared session wait for one start and share its end, good or bad.
//!
//! Invariants: I1 at most one start per shared session and per chosen or restored id. I2 every start has someone who
//! waits for it, and no more than there is room for clients.

use std::collections::BTreeMap;

use convoke_protocol::{ApprovalMode, ClientId, RequestId, SessionId};
use convoke_stdx::Now;

use super::Bridge;
use crate::contract::{
    AgentKey, Answer, CallId, Caller, CreateRequest, CreationId, LogLevel, Output, SessionScope, StartKind, VoteChoice,
};
#[cfg(any(test, feature = "sim"))]
use crate::options::Limits;
use crate::refusal::{IdConflict, LimitScope, Refusal, StartFailure};
use crate::session::{Birth, Session, Step};

/// All starts under way.
#[derive(Debug, Default)]
pub(super) struct Starts {
    last: u64,
    open: BTreeMap<CreationId, Start>,
}

#[derive(Debug)]
struct Start {
    workspace: String,
    shared: bool,
    /// The id it will have, where that is known.
    session: Option<SessionId>,
    restores: bool,
    display_name: Option<String>,
    source_type: Option<String>,
    waiters: Vec<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    call: CallId,
    claimed: Option<ClientId>,
    minted: ClientId,
}

pub(super) struct RestoreRequest {
    pub(super) session: SessionId,
    pub(super) workspace: String,
    pub(super) client: Option<ClientId>,
    pub(super) minted: ClientId,
}

pub(super) struct LegacyVote {
    pub(super) request: RequestId,
    pub(super) caller: Caller,
    pub(super) choice: VoteChoice,
}

pub(super) struct Started {
    pub(super) session: SessionId,
    pub(super) agent: AgentKey,
    pub(super) epoch: String,
    pub(super) created_wall_ms: Option<u64>,
    pub(super) model_id: Option<String>,
    pub(super) approval_mode: ApprovalMode,
}

impl Starts {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn workspaces(&self) -> impl Iterator<Item = &str> {
        self.open.values().map(|start| start.workspace.as_str())
    }

    #[cfg(any(test, feature = "sim"))]
    pub(super) fn starts_shared(&self, workspace: &str) -> bool {
        self.open.values().any(|start| start.shared && start.workspace == workspace)
    }

    fn shared(&mut self, workspace: &str) -> Option<&mut Start> {
        self.open.values_mut().find(|start| start.shared && start.workspace == workspace)
    }

    fn of(&self, session: &SessionId) -> Option<&Start> {
        self.open.values().find(|start| start.session.as_ref() == Some(session))
    }

    /// Notes what is remembered of a session that is being restored.
    pub(super) fn recall(&mut self, creation: CreationId, display_name: Option<String>, source_type: Option<String>) {
        if let Some(start) = self.open.get_mut(&creation).filter(|start| start.restores) {
            start.display_name = display_name;
            start.source_type = source_type;
        }
    }

    fn insert(&mut self, start: Start) -> CreationId {
        self.last += 1;
        let creation = CreationId(self.last);
        self.open.insert(creation, start);
        creation
    }

    #[cfg(any(test, feature = "sim"))]
    pub(super) fn check_invariants(&self, limits: &Limits) {
        let mut shared: Vec<&str> = self.open.values().filter(|s| s.shared).map(|s| s.workspace.as_str()).collect();
        let mut ids: Vec<&SessionId> = self.open.values().filter_map(|start| start.session.as_ref()).collect();
        let (shared_count, id_count) = (shared.len(), ids.len());
        shared.sort_unstable();
        shared.dedup();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((shared.len(), ids.len()), (shared_count, id_count), "I1: two starts of one session");
        for start in self.open.values() {
            assert!((1..=limits.clients.max(1)).contains(&start.waiters.len()), "I2: waiters");
        }
    }
}

impl Bridge {
    /// A client wants a session: attach to the shared one, wait for its start, or start one.
    pub(super) fn create(&mut self, now: Now, call: CallId, request: CreateRequest, out: &mut Vec<Output>) {
        if self.draining {
            return refuse(call, Refusal::Draining, out);
        }
        let CreateRequest { workspace, scope, session, client, minted, profile } = request;
        let shared = scope == SessionScope::Single && session.is_none();
        if shared {
            if let Some(id) = self.shared.get(&workspace).cloned() {
                return self.attach(now, call, &id, client, minted, out);
            }
            let limit = self.options.limits.clients;
            if let Some(start) = self.starts.shared(&workspace) {
                if start.waiters.len() >= limit {
                    return refuse(call, Refusal::ClientLimit { limit }, out);
                }
                start.waiters.push(Waiter { call, claimed: client, minted });
                return;
            }
        }
        if let Some(refusal) = session.as_ref().and_then(|session| self.conflict(session)) {
            return refuse(call, refusal, out);
        }
        let source_type = profile.source_type.clone();
        let kind = StartKind::New { session: session.clone(), profile };
        let waiters = vec![Waiter { call, claimed: client, minted }];
        let start = Start { workspace, shared, session, restores: false, display_name: None, source_type, waiters };
        self.begin(call, start, kind, out);
    }

    /// Whether a chosen id is taken.
    fn conflict(&self, session: &SessionId) -> Option<Refusal> {
        let live = self.sessions.get(session).map(|live| (IdConflict::Live, live.workspace()));
        let starting = || self.starts.of(session).map(|start| (IdConflict::Creating, start.workspace.as_str()));
        let (conflict, workspace) = live.or_else(starting)?;
        Some(Refusal::SessionIdConflict { session: session.clone(), conflict, workspace: workspace.to_owned() })
    }

    /// A client loads or resumes a session.
    pub(super) fn restore(&mut self, now: Now, call: CallId, request: RestoreRequest, out: &mut Vec<Output>) {
        if self.draining {
            return refuse(call, Refusal::Draining, out);
        }
        let RestoreRequest { session, workspace, client, minted } = request;
        if self.sessions.contains_key(&session) {
            return self.attach(now, call, &session, client, minted, out);
        }
        match self.starts.of(&session) {
            Some(start) if start.restores => return refuse(call, Refusal::RestoreInProgress { session }, out),
            // It is not there yet, and there is nothing to load.
            Some(_) => return refuse(call, Refusal::SessionNotFound { session }, out),
            None => {}
        }
        let kind = StartKind::Restore { session: session.clone() };
        let waiters = vec![Waiter { call, claimed: client, minted }];
        let start = Start {
            workspace,
            shared: false,
            session: Some(session),
            restores: true,
            display_name: None,
            source_type: None,
            waiters,
        };
        self.begin(call, start, kind, out);
    }

    fn attach(
        &mut self,
        now: Now,
        call: CallId,
        id: &SessionId,
        claimed: Option<ClientId>,
        minted: ClientId,
        out: &mut Vec<Output>,
    ) {
        self.answer(now, call, id, out, |session, step| {
            session.attach(step, claimed, minted, true).map(Answer::Session)
        });
    }

    fn begin(&mut self, call: CallId, start: Start, kind: StartKind, out: &mut Vec<Output>) {
        if let Err(refusal) = self.room(&start.workspace) {
            return refuse(call, refusal, out);
        }
        let workspace = start.workspace.clone();
        let creation = self.starts.insert(start);
        out.push(Output::StartSession { creation, workspace, start: kind });
    }

    /// Whether one more session fits. What is being started counts: else a burst of creates would pass the limit.
    fn room(&self, workspace: &str) -> Result<(), Refusal> {
        let limits = &self.options.limits;
        let live = self.sessions.values().map(Session::workspace);
        let here = live.chain(self.starts.workspaces()).filter(|other| *other == workspace).count();
        let all = self.sessions.len() + self.starts.len();
        let full = |count: usize, limit: usize| limit > 0 && count >= limit;
        if full(here, limits.sessions_per_workspace) {
            return Err(Refusal::SessionLimit { limit: limits.sessions_per_workspace, scope: LimitScope::Workspace });
        }
        if full(all, limits.sessions_total) {
            return Err(Refusal::SessionLimit { limit: limits.sessions_total, scope: LimitScope::Total });
        }
        Ok(())
    }

    /// The agent has started a session: everyone who waited is a member now.
    pub(super) fn session_started(&mut self, now: Now, creation: CreationId, started: Started, out: &mut Vec<Output>) {
        let Started { session: id, agent, epoch, created_wall_ms, model_id, approval_mode } = started;
        let Some(start) = self.starts.open.remove(&creation) else {
            // Given up meanwhile; the agent must not keep what no one can reach.
            if !self.sessions.contains_key(&id) {
                out.push(Output::CloseSession { session: id, agent });
            }
            return;
        };
        if self.sessions.contains_key(&id) {
            let message = format!("the agent named session {id}, which is live already");
            out.push(Output::Log { level: LogLevel::Warn, text: message.clone() });
            return fail(start, &StartFailure::Unavailable { message }, out);
        }
        let birth = Birth {
            id: id.clone(),
            workspace: start.workspace.clone(),
            agent,
            epoch,
            created_wall_ms: created_wall_ms.unwrap_or(now.wall_ms),
            model_id,
            approval_mode,
            display_name: start.display_name,
            source_type: start.source_type,
        };
        let mut session = Session::new(birth, now, &self.options.limits);
        let step = Step {
            now,
            options: &self.options,
            mediator: &mut self.mediator,
            audit: &mut self.audit,
            out: &mut Vec::new(),
        };
        for (position, waiter) in start.waiters.into_iter().enumerate() {
            let answer = session.attach(&step, waiter.claimed, waiter.minted, position > 0).map(Answer::Session);
            out.push(Output::Answer { call: waiter.call, answer });
        }
        if start.shared {
            self.shared.insert(start.workspace, id.clone());
        }
        self.sessions.insert(id.clone(), session);
        self.reindex(&id);
    }

    /// The agent has not started a session: everyone who waited is told alike.
    pub(super) fn session_start_failed(&mut self, creation: CreationId, failure: &StartFailure, out: &mut Vec<Output>) {
        if let Some(start) = self.starts.open.remove(&creation) {
            fail(start, failure, out);
        }
    }

    /// Shutdown: no one waits any longer. A start that succeeds after all is closed again.
    pub(super) fn give_up_starts(&mut self, out: &mut Vec<Output>) {
        for start in std::mem::take(&mut self.starts.open).into_values() {
            start.waiters.iter().for_each(|waiter| refuse(waiter.call, Refusal::Draining, out));
        }
    }
}

fn refuse(call: CallId, refusal: Refusal, out: &mut Vec<Output>) {
    out.push(Output::Answer { call, answer: Err(refusal) });
}

fn fail(start: Start, failure: &StartFailure, out: &mut Vec<Output>) {
    for waiter in start.waiters {
        let refusal = match failure {
            StartFailure::NotStored { session } => Refusal::SessionNotFound { session: session.clone() },
            StartFailure::InitTimeout { .. }
            | StartFailure::RestoreTimeout { .. }
            | StartFailure::Unavailable { .. }
            | StartFailure::Agent { .. } => Refusal::StartFailed(failure.clone()),
        };
        refuse(waiter.call, refusal, out);
    }
}
