//! Reading without changing: what clients that poll, and the operator, may know.

use convoke_protocol::daemon::EncodedFrame;
use convoke_protocol::daemon::capability::PermissionPolicy;
use convoke_protocol::daemon::dto::{PendingPrompt, SessionStatus, SessionSummary, TurnStatus};
use convoke_protocol::{ClientId, PromptId, RequestId, SessionId};

use super::{Bridge, agent_of};
use crate::audit::AuditRecord;
use crate::contract::AgentKey;
use crate::options::BridgeOptions;
use crate::refusal::Refusal;
use crate::session::Session;

/// How much there is; for health, status and the care of idle agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Live sessions, those being closed included.
    pub sessions: usize,
    /// Sessions being started.
    pub starting: usize,
    /// Pending permission requests.
    pub pending_permissions: usize,
    /// Running prompts.
    pub active_prompts: usize,
    /// Prompts that wait behind a running one.
    pub waiting_prompts: usize,
    /// Open event streams.
    pub subscribers: usize,
    /// Registered client ids, summed over sessions.
    pub clients: usize,
    /// Frames kept for replay, summed over sessions.
    pub kept_frames: usize,
    /// Their bytes.
    pub kept_bytes: usize,
    /// Live frames that wait for a reader, summed over event streams.
    pub queued_frames: usize,
    /// Their bytes, which all readers of a session share.
    pub queued_bytes: usize,
}

/// What is kept of a session's stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Journal {
    /// The kept frames, oldest first.
    pub frames: Vec<EncodedFrame>,
    /// The last id given out; 0 before the first.
    pub last_event_id: u64,
    /// Which bus numbered them.
    pub epoch: String,
}

/// Whom to ask about a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentOf {
    /// Who runs it.
    pub agent: AgentKey,
}

impl Bridge {
    /// How the bridge decides.
    #[must_use]
    pub fn options(&self) -> &BridgeOptions {
        &self.options
    }

    /// The active policy.
    #[must_use]
    pub fn policy(&self) -> PermissionPolicy {
        self.options.policy
    }

    /// Body of `GET /session/:id/status`.
    pub fn status(&self, session: &SessionId) -> Result<SessionStatus, Refusal> {
        Ok(self.find(session)?.status(&self.mediator))
    }

    /// The live sessions of a workspace, newest first.
    #[must_use]
    pub fn sessions(&self, workspace: &str) -> Vec<SessionSummary> {
        let here = |session: &&Session| session.workspace() == workspace && session.open().is_ok();
        let mut sessions: Vec<&Session> = self.sessions.values().filter(here).collect();
        sessions.sort_by_key(|session| std::cmp::Reverse(session.created_wall_ms()));
        sessions.into_iter().map(|session| session.summary(&self.mediator)).collect()
    }

    /// The running prompt and those behind it.
    pub fn pending_prompts(&self, session: &SessionId) -> Result<Vec<PendingPrompt>, Refusal> {
        Ok(self.find(session)?.queue().pending())
    }

    /// A turn, while it waits or runs and for some time after; `None` for the prompt asks for the running one.
    pub fn turn(&self, session: &SessionId, prompt: Option<&PromptId>) -> Result<Option<TurnStatus>, Refusal> {
        let queue = self.find(session)?.queue();
        Ok(match prompt {
            Some(prompt) => queue.turn(session, prompt),
            None => queue.current(session),
        })
    }

    /// What is kept of a session's stream, for `load`.
    pub fn journal(&self, session: &SessionId) -> Result<Journal, Refusal> {
        let bus = self.find(session)?.bus();
        Ok(Journal {
            frames: bus.frames().cloned().collect(),
            last_event_id: bus.last_id(),
            epoch: bus.epoch().to_owned(),
        })
    }

    /// Which agent to ask for a caller who changes the model or the mode: the identity rules of every session route.
    pub fn authorize(&self, session: &SessionId, client: Option<&ClientId>) -> Result<AgentOf, Refusal> {
        let agent = agent_of(self.find(session)?, client)?;
        Ok(AgentOf { agent })
    }

    /// The session of a pending or remembered permission request.
    #[must_use]
    pub fn session_of(&self, request: &RequestId) -> Option<&SessionId> {
        self.mediator.session_of(request)
    }

    /// How many live sessions an agent runs.
    #[must_use]
    pub fn sessions_of_agent(&self, agent: AgentKey) -> usize {
        self.sessions.values().filter(|session| session.agent() == agent).count()
    }

    /// The live sessions of an agent, each with the clients that are registered on it.
    pub fn members_of_agent(&self, agent: AgentKey) -> impl Iterator<Item = (&SessionId, Vec<ClientId>)> {
        let sessions = self.sessions.iter().filter(move |(_, session)| session.agent() == agent);
        sessions.map(|(id, session)| (id, session.client_ids().cloned().collect()))
    }

    /// How much there is.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let sum = |count: fn(&Session) -> usize| self.sessions.values().map(count).sum();
        let queued = self.sessions.values().map(|session| session.bus().queued());
        let (queued_frames, queued_bytes) = queued.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Counts {
            sessions: self.sessions.len(),
            starting: self.starts.len(),
            pending_permissions: self.mediator.pending_count(),
            active_prompts: sum(|session| usize::from(session.queue().running().is_some())),
            waiting_prompts: sum(|session| session.queue().waiting_len()),
            subscribers: self.streams.len(),
            clients: sum(Session::client_count),
            kept_frames: sum(|session| session.bus().kept().0),
            kept_bytes: sum(|session| session.bus().kept().1),
            queued_frames,
            queued_bytes,
        }
    }

    /// The last audit records, oldest first.
    pub fn audit(&self) -> impl Iterator<Item = &AuditRecord> {
        self.audit.iter()
    }

    /// The last number of a session's stream, and the kept frames after `known`; also while it is being closed.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn published(
        &self,
        session: &SessionId,
        known: u64,
    ) -> Option<(u64, impl Iterator<Item = &EncodedFrame>)> {
        let bus = self.sessions.get(session)?.bus();
        let kept = usize::try_from(bus.last_id().saturating_sub(known)).unwrap_or(usize::MAX);
        let skip = bus.frames().len().saturating_sub(kept);
        Some((bus.last_id(), bus.frames().skip(skip)))
    }

    fn find(&self, id: &SessionId) -> Result<&Session, Refusal> {
        let session = self.sessions.get(id).ok_or_else(|| Refusal::SessionNotFound { session: id.clone() })?;
        session.open()?;
        Ok(session)
    }
}
