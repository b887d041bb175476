//! Every way in which the bridge says no to a caller.

use convoke_protocol::{ClientId, RequestId, SessionId};
use serde_json::Value;

/// Why a call was not carried out: an ordinary answer, which the daemon maps to a status and a code.
///
/// The HTTP status and code of each are named after it. Source: daemon specification, §d, §f.4 and §i.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// No such live session. 404 `session_not_found`.
    #[error("find session {session}")]
    SessionNotFound {
        /// As asked for.
        session: SessionId,
    },
    /// The session is being closed. 404 `session_closing`.
    #[error("use session {session}, which is being closed")]
    SessionClosing {
        /// Which.
        session: SessionId,
    },
    /// The header names an id that is not registered on this session. 400 `invalid_client_id`.
    #[error("find client {client} on session {session}")]
    InvalidClientId {
        /// The session.
        session: SessionId,
        /// As claimed.
        client: ClientId,
    },
    /// No more sessions. 503 `session_limit_exceeded`, retry after 5 s.
    #[error("start one more session than {limit}")]
    SessionLimit {
        /// The limit.
        limit: usize,
        /// Of what.
        scope: LimitScope,
    },
    /// No more clients on this session, or no more callers that wait for its start. 503, retry after 5 s.
    #[error("register one more client than {limit}")]
    ClientLimit {
        /// The limit.
        limit: usize,
    },
    /// The chosen session id is taken. 409 `session_id_conflict`.
    #[error("create session {session}, which is there already")]
    SessionIdConflict {
        /// The id.
        session: SessionId,
        /// `live`, or `creating`.
        conflict: IdConflict,
        /// Where it lives.
        workspace: String,
    },
    /// Someone else is loading this session. 409 `restore_in_progress`, retry after 5 s.
    #[error("restore session {session} while it is being restored")]
    RestoreInProgress {
        /// Which.
        session: SessionId,
    },
    /// The agent did not start the session.
    #[error("start a session: {0}")]
    StartFailed(StartFailure),
    /// The daemon is shutting down. 503 `daemon_draining`.
    #[error("serve a call during shutdown")]
    Draining,
    /// Too many prompts wait. 503 `prompt_queue_full`, retry after 5 s.
    #[error("queue one more prompt than {limit} on session {session}")]
    PromptQueueFull {
        /// The session.
        session: SessionId,
        /// The limit.
        limit: usize,
        /// How many there are, the running one included.
        pending: usize,
    },
    /// Too many event streams. 429 `subscriber_limit_exceeded`, retry after 5 s.
    #[error("open one more event stream than {limit}")]
    SubscriberLimit {
        /// The limit.
        limit: usize,
    },
    /// No such request, or none that this caller may know of. 404 without a code.
    #[error("find permission request {request}")]
    RequestNotFound {
        /// The addressed session; absent on the legacy route, which answers with another text.
        session: Option<SessionId>,
        /// As asked for.
        request: RequestId,
    },
    /// The request was decided before. 404 with the body of [`Refusal::RequestNotFound`] and the additive code
    /// `permission_already_resolved`; only ever told to a registered client.
    #[error("vote on permission request {request}, which is decided")]
    AlreadyResolved {
        /// The addressed session; absent on the legacy route.
        session: Option<SessionId>,
        /// Which.
        request: RequestId,
        /// How it was decided.
        outcome: Value,
    },
    /// The option was not offered. 400 `invalid_option_id`.
    #[error("find option {option_id} on permission request {request}")]
    InvalidOption {
        /// The request.
        request: RequestId,
        /// As voted for.
        option_id: String,
    },
    /// The policy keeps this voter from deciding. 403 `permission_forbidden`.
    #[error("vote on permission request {request}: {}", reason.name())]
    Forbidden {
        /// The session of the request.
        session: SessionId,
        /// The request.
        request: RequestId,
        /// Why.
        reason: ForbiddenReason,
    },
    /// A metadata field has an unacceptable value. 400 `invalid_metadata`.
    #[error("set session metadata: {field} {problem}")]
    InvalidMetadata {
        /// The field's wire name.
        field: &'static str,
        /// What is wrong with it, such as `must not be blank`.
        problem: &'static str,
    },
}

/// Which limit of sessions was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitScope {
    /// Of one workspace; `workspace` on the wire.
    Workspace,
    /// Of the daemon; `total` on the wire.
    Total,
}

impl LimitScope {
    /// The wire name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Total => "total",
        }
    }
}

/// In what state the owner of a taken session id is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdConflict {
    /// It is live.
    Live,
    /// It is being started.
    Creating,
}

impl IdConflict {
    /// The wire name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Creating => "creating",
        }
    }
}

/// Why a policy refused a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForbiddenReason {
    /// Not the designated voter, or not one of the voters present when the request was issued.
    DesignatedMismatch,
    /// Not on the daemon's own machine.
    RemoteNotAllowed,
}

impl ForbiddenReason {
    /// The wire name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DesignatedMismatch => "designated_mismatch",
            Self::RemoteNotAllowed => "remote_not_allowed",
        }
    }
}

/// Why an agent did not start a session; told alike to everyone who waited for it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StartFailure {
    /// The agent did not come up in time. 504 `init_timeout`, retry after 5 s.
    #[error("the agent was not ready within {timeout_ms} ms ({phase})")]
    InitTimeout {
        /// The limit.
        timeout_ms: u64,
        /// What was going on, such as `initialize`.
        phase: String,
    },
    /// A restore took too long. 504 `session_restore_timeout`.
    #[error("the session was not restored within {timeout_ms} ms")]
    RestoreTimeout {
        /// The limit.
        timeout_ms: u64,
    },
    /// There is no such stored session. 404 `session_not_found`.
    #[error("there is no stored session {session}")]
    NotStored {
        /// As asked for.
        session: SessionId,
    },
    /// The agent's process is not there. 503 `acp_channel_unavailable`.
    #[error("the agent is not available: {message}")]
    Unavailable {
        /// What happened.
        message: String,
    },
    /// The agent answered with an error. 500 with its code and data.
    #[error("the agent refused: {message}")]
    Agent {
        /// JSON-RPC code.
        code: i64,
        /// The agent's words.
        message: String,
        /// The agent's data.
        data: Option<Value>,
    },
}
