//! Where a step of the mediator leaves its marks, and how a request ends in words.

use std::sync::Arc;

use convoke_protocol::{ClientId, RequestId, SessionId};
use convoke_stdx::Now;
use serde_json::{Value, json};

use super::pending::Pending;
use crate::audit::{AuditEvent, AuditRecord, AuditResolution, AuditRing, DecisionReason};
use crate::clients::Clients;
use crate::contract::{CancelReason, LogLevel, Output, ReplyKey, Resolution};
use crate::event_bus::{Draft, EventBus};

/// What a resolution reads and writes, all of it belonging to the request's session or to the bridge.
pub(crate) struct Stage<'a> {
    pub(crate) now: Now,
    pub(crate) session: &'a SessionId,
    pub(crate) clients: &'a Clients,
    pub(crate) bus: &'a mut EventBus,
    pub(crate) audit: &'a mut AuditRing,
    pub(crate) out: &'a mut Vec<Output>,
}

/// Why requests end without a choice, seen from outside of the mediator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawal<'a> {
    /// The agent gave its request up.
    Agent,
    /// A client cancelled the turn.
    TurnCancelled { by: Option<&'a ClientId> },
    /// The turn ended.
    TurnEnded,
    /// The turn took too long.
    PromptDeadline,
    /// A client closed the session.
    Close { by: Option<&'a ClientId> },
    /// The agent's process ended.
    AgentGone,
    /// The daemon shuts down.
    Shutdown,
}

impl Withdrawal<'_> {
    /// For the agent and the clients, who know three reasons, and for the audit, which knows each.
    fn reasons(self) -> (CancelReason, DecisionReason) {
        let agent = |cause, by: Option<&ClientId>| {
            (CancelReason::AgentCancelled, DecisionReason::AgentCancelled { cause, client_id: by.cloned() })
        };
        let session = |cause, by: Option<&ClientId>| {
            (CancelReason::SessionClosed, DecisionReason::SessionClosed { cause, client_id: by.cloned() })
        };
        match self {
            Self::Agent => agent("withdrawn", None),
            Self::TurnCancelled { by } => agent("turn_cancelled", by),
            Self::TurnEnded => agent("turn_ended", None),
            Self::PromptDeadline => agent("prompt_deadline", None),
            Self::Close { by } => session("client_close", by),
            Self::AgentGone => session("agent_gone", None),
            Self::Shutdown => session("daemon_shutdown", None),
        }
    }
}

/// How one request ends.
pub(super) struct Ending {
    pub(super) resolution: Resolution,
    pub(super) reason: DecisionReason,
    pub(super) voter: Option<ClientId>,
}

impl Ending {
    pub(super) fn withdrawn(by: Withdrawal<'_>) -> Self {
        let (cancel, reason) = by.reasons();
        Self { resolution: Resolution::Cancelled(cancel), reason, voter: None }
    }

    /// For clients and for the audit.
    pub(super) fn describe(&self) -> (Value, AuditResolution) {
        let cancelled = |reason| (json!({ "outcome": "cancelled" }), AuditResolution::Cancelled { reason });
        match &self.resolution {
            Resolution::Selected { option_id, .. } => (
                json!({ "outcome": "selected", "optionId": option_id }),
                AuditResolution::Option { option_id: option_id.clone() },
            ),
            Resolution::Cancelled(reason) => cancelled(reason.name()),
            // Never published, so never ended: refused before it was pending.
            Resolution::SentinelCollision => cancelled(CancelReason::AgentCancelled.name()),
        }
    }
}

/// What every record of one request repeats.
pub(crate) struct Subject<'a> {
    pub(crate) request: &'a RequestId,
    pub(crate) session: &'a SessionId,
    pub(crate) originator: Option<&'a ClientId>,
    pub(crate) policy: &'static str,
    pub(crate) digest: Arc<str>,
}

impl Subject<'_> {
    pub(crate) fn record(self, now: Now, event: AuditEvent, audit: &mut AuditRing, out: &mut Vec<Output>) {
        let record = AuditRecord {
            v: 1,
            recorded_at_ms: now.wall_ms,
            request_id: self.request.clone(),
            session_id: self.session.clone(),
            originator_client_id: self.originator.cloned(),
            policy: self.policy,
            action_digest: self.digest,
            event,
        };
        audit.push(record.clone());
        out.push(Output::Audit(record));
    }
}

impl Stage<'_> {
    pub(super) fn publish(&mut self, draft: Draft) -> u64 {
        self.bus.publish(self.now, draft, self.out)
    }

    pub(super) fn record(&mut self, request: &RequestId, pending: &Pending, event: AuditEvent) {
        let subject = Subject {
            request,
            session: self.session,
            originator: pending.ballot.originator.as_ref(),
            policy: pending.ballot.policy.name(),
            digest: Arc::clone(&pending.digest),
        };
        subject.record(self.now, event, self.audit, self.out);
    }

    pub(super) fn resolve(&mut self, reply: ReplyKey, resolution: Resolution) {
        self.out.push(Output::Resolve { reply, resolution });
    }

    pub(super) fn info(&mut self, text: String) {
        self.out.push(Output::Log { level: LogLevel::Info, text });
    }

    pub(super) fn warn(&mut self, text: String) {
        self.out.push(Output::Log { level: LogLevel::Warn, text });
    }
}
