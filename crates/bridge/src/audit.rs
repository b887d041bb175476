//! Who decided what, when and why: records of the mediator, the last of them kept in memory.
//!
//! One record per request, vote, refused vote, resolution and expiry, and per request that could not be asked. Calls
//! that are no votes (an option that was not offered, an id that is not registered), late votes and votes on unknown
//! requests are not audited: anyone could fill the ring with them. The shell writes the records to disk. Source: daemon
//! specification §f.8.

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke_protocol::{ClientId, RequestId, SessionId};
use convoke_stdx::Ring;
use serde::Serialize;

/// One line of the audit log.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// Version of this shape, 1.
    pub v: u8,
    /// When, in milliseconds since the Unix epoch.
    pub recorded_at_ms: u64,
    /// The request.
    pub request_id: RequestId,
    /// Its session.
    pub session_id: SessionId,
    /// Who sent the prompt that led to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub originator_client_id: Option<ClientId>,
    /// The policy it was issued under, by its wire name.
    pub policy: &'static str,
    /// What was asked, exactly: `sha256:` and the hex digest of the canonical JSON of `{options, sessionId, toolCall}`
    /// as in its `permission_request`. Whoever saw the frame can compute it, so a signature over it says what was
    /// approved. See [`crate::action_digest`].
    pub action_digest: Arc<str>,
    /// What happened.
    pub event: AuditEvent,
}

/// What happened to a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum AuditEvent {
    /// It was issued.
    #[serde(rename = "permission.requested")]
    Requested {
        /// The clients registered at that moment.
        voters_at_issue: Arc<[ClientId]>,
        /// When.
        issued_at_ms: u64,
        /// When it expires; absent if it waits for ever.
        #[serde(skip_serializing_if = "Option::is_none")]
        expires_at_ms: Option<u64>,
        /// What may be voted for.
        allowed_option_ids: Vec<String>,
    },
    /// It was answered at once, with a cancellation or an error: nobody was asked.
    #[serde(rename = "permission.not_asked")]
    NotAsked {
        /// `session_not_found`, `session_closing`, `repeated_request_id`, `too_many_pending` or
        /// `cancel_sentinel_collision`.
        reason: &'static str,
    },
    /// A vote counted, or was a repetition of one that counts.
    #[serde(rename = "permission.voted")]
    Voted {
        /// The voter.
        #[serde(skip_serializing_if = "Option::is_none")]
        client_id: Option<ClientId>,
        /// The choice; absent for a vote to cancel.
        #[serde(skip_serializing_if = "Option::is_none")]
        option_id: Option<String>,
        /// Whether the voter sat at this machine.
        from_loopback: bool,
        /// `resolved` or `recorded`.
        outcome: &'static str,
    },
    /// A vote was refused by the policy.
    #[serde(rename = "permission.forbidden")]
    Forbidden {
        /// The voter.
        #[serde(skip_serializing_if = "Option::is_none")]
        client_id: Option<ClientId>,
        /// The choice; absent for a vote to cancel.
        #[serde(skip_serializing_if = "Option::is_none")]
        option_id: Option<String>,
        /// Whether the voter sat at this machine.
        from_loopback: bool,
        /// `designated_mismatch` or `remote_not_allowed`.
        reason: &'static str,
    },
    /// It ended.
    #[serde(rename = "permission.resolved")]
    Resolved {
        /// How.
        resolution: AuditResolution,
        /// By whose will.
        decision_reason: DecisionReason,
    },
    /// It ended because no one decided in time; its `permission.resolved` follows.
    #[serde(rename = "permission.timeout")]
    Timeout {
        /// When it was issued.
        issued_at_ms: u64,
    },
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum AuditResolution {
    /// With an option.
    Option {
        /// Which.
        option_id: String,
    },
    /// Without one.
    Cancelled {
        /// `timeout`, `session_closed` or `agent_cancelled`.
        reason: &'static str,
    },
}

/// By whose will a request ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum DecisionReason {
    /// The first vote.
    FirstResponder {
        /// Whose; absent if anonymous.
        #[serde(skip_serializing_if = "Option::is_none")]
        resolver_client_id: Option<ClientId>,
    },
    /// The vote of the one who sent the prompt.
    DesignatedOriginator {
        /// Who that is.
        originator_client_id: ClientId,
    },
    /// Enough equal votes.
    ConsensusQuorum {
        /// For what.
        resolved_option_id: String,
        /// How many were needed.
        quorum: usize,
        /// Votes per option.
        tally: BTreeMap<String, usize>,
    },
    /// A vote from this machine.
    LocalOnlyLoopback {
        /// Whose; absent if anonymous.
        #[serde(skip_serializing_if = "Option::is_none")]
        resolver_client_id: Option<ClientId>,
    },
    /// A vote to cancel, which every policy allows unless [`crate::BridgeOptions::cancel`] narrows it.
    VoterCancelled {
        /// Whose; absent if anonymous.
        #[serde(skip_serializing_if = "Option::is_none")]
        resolver_client_id: Option<ClientId>,
    },
    /// Its turn is over, or the agent withdrew it.
    AgentCancelled {
        /// `withdrawn`, `turn_cancelled`, `turn_ended` or `prompt_deadline`.
        cause: &'static str,
        /// Who cancelled the turn; absent if anonymous, or if nobody did.
        #[serde(skip_serializing_if = "Option::is_none")]
        client_id: Option<ClientId>,
    },
    /// No one decided.
    Timeout {
        /// When it was issued.
        issued_at_ms: u64,
        /// How long it was to wait.
        timeout_ms: u64,
        /// When the wait was over.
        fired_at_ms: u64,
    },
    /// The session ended.
    SessionClosed {
        /// `client_close`, `agent_gone` or `daemon_shutdown`.
        cause: &'static str,
        /// Who closed it; absent if anonymous, or if nobody did.
        #[serde(skip_serializing_if = "Option::is_none")]
        client_id: Option<ClientId>,
    },
}

/// The last audit records, oldest first.
#[derive(Debug)]
pub(crate) struct AuditRing {
    records: Ring<AuditRecord>,
}

impl AuditRing {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { records: Ring::new(capacity) }
    }

    pub(crate) fn push(&mut self, record: AuditRecord) {
        // The oldest record leaves memory; the shell has written it long ago.
        let _ = self.records.push(record);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &AuditRecord> {
        self.records.iter()
    }

    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn check_invariants(&self) {
        assert!(self.records.len() <= self.records.capacity(), "audit ring over its bound");
    }
}
