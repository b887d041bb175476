//! The whole machine: which part of it does an input concern?

use convoke_protocol::daemon::EncodedFrame;
use convoke_protocol::daemon::capability::PermissionPolicy;
use convoke_protocol::daemon::dto::{PendingPrompt, SessionStatus, SessionSummary, TurnStatus};
use convoke_protocol::{ClientId, PromptId, RequestId, SessionId};
use convoke_stdx::{Now, Tick};

use crate::audit::{AuditRecord, AuditRing};
use crate::contract::{AgentKey, Input, Output};
use crate::options::BridgeOptions;
use crate::refusal::Refusal;

/// The bridge of one daemon.
#[derive(Debug)]
pub struct Bridge {
    options: BridgeOptions,
    audit: AuditRing,
}

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
    /// Open event streams.
    pub subscribers: usize,
    /// Registered client ids, summed over sessions.
    pub clients: usize,
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
    /// A bridge without sessions.
    #[must_use]
    pub fn new(options: BridgeOptions) -> Self {
        let audit = AuditRing::new(options.limits.audit_records);
        Self { options, audit }
    }

    /// Takes one input, as one atomic step, and appends what is to be done to `out`.
    ///
    /// Never fails and never waits; inputs about things that are gone are ignored or refused.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let _ = (now, input, out);
    }

    /// When [`Input::Tick`] is due: the earliest of permission timeouts, prompt deadlines, close graces and idle ends.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Tick> {
        None
    }

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
        Err(Refusal::SessionNotFound { session: session.clone() })
    }

    /// The live sessions of a workspace, newest first.
    #[must_use]
    pub fn sessions(&self, workspace: &str) -> Vec<SessionSummary> {
        let _ = workspace;
        Vec::new()
    }

    /// The running prompt and those behind it.
    pub fn pending_prompts(&self, session: &SessionId) -> Result<Vec<PendingPrompt>, Refusal> {
        Err(Refusal::SessionNotFound { session: session.clone() })
    }

    /// A turn, while it waits or runs and for some time after; `None` for the prompt asks for the running one.
    pub fn turn(&self, session: &SessionId, prompt: Option<&PromptId>) -> Result<Option<TurnStatus>, Refusal> {
        let _ = prompt;
        Err(Refusal::SessionNotFound { session: session.clone() })
    }

    /// What is kept of a session's stream, for `load`.
    pub fn journal(&self, session: &SessionId) -> Result<Journal, Refusal> {
        Err(Refusal::SessionNotFound { session: session.clone() })
    }

    /// Which agent to ask for a caller who changes the model or the mode: the identity rules of every session route.
    pub fn authorize(&self, session: &SessionId, client: Option<&ClientId>) -> Result<AgentOf, Refusal> {
        let _ = client;
        Err(Refusal::SessionNotFound { session: session.clone() })
    }

    /// The session of a pending or remembered permission request.
    #[must_use]
    pub fn session_of(&self, request: &RequestId) -> Option<&SessionId> {
        let _ = request;
        None
    }

    /// How many live sessions an agent runs.
    #[must_use]
    pub fn sessions_of_agent(&self, agent: AgentKey) -> usize {
        let _ = agent;
        0
    }

    /// How much there is.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts::default()
    }

    /// The last audit records, oldest first.
    pub fn audit(&self) -> impl Iterator<Item = &AuditRecord> {
        self.audit.iter()
    }
}
