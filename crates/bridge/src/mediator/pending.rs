//! One pending request: what is known of it, and how it looks to those who follow or poll.

use convoke_protocol::daemon::FrameKind;
use convoke_protocol::daemon::dto::PendingInteraction;
use convoke_protocol::{ClientId, PromptId, RequestId, SessionId};
use convoke_stdx::{Now, Tick, iso8601};
use serde_json::{Map, Value, json};

use super::policy::Ballot;
use crate::audit::AuditEvent;
use crate::contract::ReplyKey;
use crate::event_bus::Draft;

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) session: SessionId,
    pub(super) reply: ReplyKey,
    pub(super) prompt_id: Option<PromptId>,
    pub(super) ballot: Ballot,
    pub(super) issued: Now,
    pub(super) deadline: Option<Tick>,
    /// The number of its `permission_request`.
    pub(super) frame_id: u64,
    pub(super) tool_call: Value,
    pub(super) options: Vec<Value>,
}

impl Pending {
    pub(super) fn announcement(&self, request: &RequestId) -> Draft {
        let data = json!({
            "requestId": request,
            "sessionId": self.session,
            "toolCall": self.tool_call,
            "options": self.options,
        });
        self.draft(FrameKind::PermissionRequest, data)
    }

    pub(super) fn progress(&self, request: &RequestId) -> Draft {
        let tallies: Map<String, Value> =
            self.ballot.tally().into_iter().map(|(option, votes)| (option.to_owned(), votes.into())).collect();
        let data = json!({
            "requestId": request,
            "sessionId": self.session,
            "votesReceived": self.ballot.votes.len(),
            "votesNeeded": self.ballot.votes_needed(),
            "quorum": self.ballot.quorum,
            "optionTallies": tallies,
        });
        self.draft(FrameKind::PermissionPartialVote, data)
    }

    pub(super) fn refusal(&self, request: &RequestId, client: Option<&ClientId>, reason: &str) -> Draft {
        let mut data = Map::new();
        data.insert("requestId".into(), json!(request));
        data.insert("sessionId".into(), json!(self.session));
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
            action: json!({
                "type": call("kind"),
                "title": call("title"),
                "content": list("content"),
                "locations": list("locations"),
                "input": call("rawInput"),
            }),
            options: options.collect(),
        }
    }
}
