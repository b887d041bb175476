//! One pending request: what is known of it, and how it looks to those who follow or poll.

use std::sync::Arc;

use convoke_protocol::daemon::FrameKind;
use convoke_protocol::daemon::dto::PendingInteraction;
use convoke_protocol::{ClientId, PromptId, RequestId, SessionId};
use convoke_stdx::{Now, Tick, iso8601};
use serde_json::{Map, Value, json};

use super::policy::{Ballot, Standing};
use crate::audit::AuditEvent;
use crate::contract::ReplyKey;
use crate::event_bus::Draft;

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) session: SessionId,
    pub(super) reply: ReplyKey,
    pub(super) prompt_id: Option<PromptId>,
    pub(super) ballot: Ballot,
    /// What its members were told last of the chance of a quorum.
    pub(super) told: Standing,
    pub(super) digest: Arc<str>,
    /// The bytes of what the digest is over.
    pub(super) bytes: usize,
    pub(super) issued: Now,
    pub(super) wait: Wait,
    /// The number of its `permission_request`.
    pub(super) frame_id: u64,
    pub(super) tool_call: Value,
    pub(super) options: Vec<Value>,
}

/// How long a request waits: there is no third way, so none waits without a deadline by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Up to a moment.
    Until { deadline: Tick, timeout_ms: u64 },
    /// For ever, since the operator has switched the timeout off.
    ForEver,
}

impl Wait {
    pub(super) fn from(issued: Now, timeout_ms: Option<u64>) -> Self {
        match timeout_ms {
            Some(timeout_ms) => Self::Until { deadline: Tick(issued.tick.0.saturating_add(timeout_ms)), timeout_ms },
            None => Self::ForEver,
        }
    }

    pub(super) fn deadline(self) -> Option<Tick> {
        match self {
            Self::Until { deadline, .. } => Some(deadline),
            Self::ForEver => None,
        }
    }
}

impl Pending {
    /// When it expires, on the wall's clock.
    fn expires_wall_ms(&self) -> Option<u64> {
        match self.wait {
            Wait::Until { timeout_ms, .. } => Some(self.issued.wall_ms.saturating_add(timeout_ms)),
            Wait::ForEver => None,
        }
    }

    /// Why it never expires.
    fn no_expiry_reason(&self) -> Option<&'static str> {
        match self.wait {
            Wait::Until { .. } => None,
            Wait::ForEver => Some("timeout_disabled"),
        }
    }

    pub(super) fn announcement(&self, request: &RequestId) -> Draft {
        self.draft(FrameKind::PermissionRequest, Value::Object(self.question(request)))
    }

    /// Its announcement for somebody who came later: with its age, and how far its voters are.
    pub(super) fn repetition(&self, request: &RequestId, now: Now) -> Draft {
        let mut data = self.question(request);
        let age = now.tick.since(self.issued.tick).as_millis();
        data.insert("ageMs".into(), u64::try_from(age).unwrap_or(u64::MAX).into());
        if let Some(partial) = self.partial_vote() {
            data.insert("partialVote".into(), Value::Object(partial));
        }
        self.draft(FrameKind::PermissionRequest, Value::Object(data))
    }

    fn question(&self, request: &RequestId) -> Map<String, Value> {
        let mut data = self.names(request);
        data.insert("toolCall".into(), self.tool_call.clone());
        data.insert("options".into(), json!(self.options));
        data.insert("createdAt".into(), iso8601(self.issued.wall_ms).into());
        if let Some(expires) = self.expires_wall_ms() {
            data.insert("expiresAt".into(), iso8601(expires).into());
        }
        if let Some(reason) = self.no_expiry_reason() {
            data.insert("noExpiryReason".into(), reason.into());
        }
        data
    }

    fn names(&self, request: &RequestId) -> Map<String, Value> {
        let mut data = Map::new();
        data.insert("requestId".into(), json!(request));
        data.insert("sessionId".into(), json!(self.session));
        data
    }

    pub(super) fn progress(&self, request: &RequestId) -> Draft {
        let mut data = self.names(request);
        data.extend(self.votes());
        self.draft(FrameKind::PermissionPartialVote, Value::Object(data))
    }

    /// How far a consensus has come, if there is anything to tell of it.
    fn partial_vote(&self) -> Option<Map<String, Value>> {
        (!self.ballot.votes.is_empty() || self.told != Standing::Open).then(|| self.votes())
    }

    fn votes(&self) -> Map<String, Value> {
        let tallies: Map<String, Value> =
            self.ballot.tally().into_iter().map(|(option, votes)| (option.to_owned(), votes.into())).collect();
        let mut data = Map::new();
        data.insert("votesReceived".into(), self.ballot.votes.len().into());
        data.insert("votesNeeded".into(), self.ballot.votes_needed().into());
        data.insert("quorum".into(), self.ballot.quorum.into());
        data.insert("optionTallies".into(), Value::Object(tallies));
        if self.told != Standing::Open {
            data.insert("quorumUnreachable".into(), true.into());
        }
        if self.told == Standing::Lost {
            data.insert("quorumLost".into(), true.into());
        }
        data
    }

    pub(super) fn refusal(&self, request: &RequestId, client: Option<&ClientId>, reason: &str) -> Draft {
        let mut data = self.names(request);
        if let Some(client) = client {
            data.insert("clientId".into(), json!(client));
        }
        data.insert("reason".into(), reason.into());
        self.draft(FrameKind::PermissionForbidden, Value::Object(data))
    }

    fn draft(&self, kind: FrameKind, data: Value) -> Draft {
        Draft { kind, prompt_id: self.prompt_id.clone(), originator: self.ballot.originator.clone(), data }
    }

    pub(super) fn requested(&self) -> AuditEvent {
        AuditEvent::Requested {
            voters_at_issue: self.ballot.voters.clone(),
            issued_at_ms: self.issued.wall_ms,
            expires_at_ms: self.expires_wall_ms(),
            allowed_option_ids: self.ballot.options.clone(),
        }
    }

    pub(super) fn interaction(&self, request: &RequestId) -> PendingInteraction {
        let call = |field: &str| self.tool_call.get(field).cloned().unwrap_or_default();
        let list = |field: &str| self.tool_call.get(field).cloned().unwrap_or_else(|| json!([]));
        let options = self.options.iter().map(|option| {
            let field = |name: &str| option.get(name).cloned().unwrap_or_default();
            json!({ "optionId": field("optionId"), "label": field("name"), "kind": field("kind") })
        });
        PendingInteraction {
            request_id: request.clone(),
            kind: "permission",
            created_at: iso8601(self.issued.wall_ms),
            expires_at: self.expires_wall_ms().map(iso8601),
            no_expiry_reason: self.no_expiry_reason(),
            action: json!({
                "type": call("kind"),
                "title": call("title"),
                "content": list("content"),
                "locations": list("locations"),
                "input": call("rawInput"),
            }),
            options: options.collect(),
            partial_vote: self.partial_vote().map(Value::Object),
        }
    }
}
