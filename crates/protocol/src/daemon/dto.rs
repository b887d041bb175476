//! Bodies of the daemon's routes.
//!
//! Answers derive `Serialize` in the order that the peer writes them; requests derive `Deserialize`. Unknown fields
//! of requests are ignored. Source: daemon specification, §d.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ClientId, PromptId, RequestId, SessionId};

/// Answer of `POST /session`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionCreated {
    /// The session.
    pub session_id: SessionId,
    /// Its workspace, absolute.
    pub workspace_cwd: String,
    /// Whether it was there before.
    pub attached: bool,
    /// The id under which the caller is registered on it.
    pub client_id: ClientId,
    /// RFC 3339.
    pub created_at: String,
    /// Whether a prompt is running; only when attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_active_prompt: Option<bool>,
    /// Whether the model asked for is in use; only when one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_applied: Option<bool>,
    /// What kind of place the session comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_type: Option<String>,
    /// Whether that is stored with the session; only when it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_persisted: Option<bool>,
}

/// Answer of `POST /session/:id/prompt`, with status 202.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptAccepted {
    /// The turn.
    pub prompt_id: PromptId,
    /// The last event before it.
    pub last_event_id: u64,
    /// Which bus numbered that event.
    pub event_epoch: String,
}

/// Body of a vote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteBody {
    /// The vote.
    pub outcome: VoteOutcomeBody,
}

/// `{outcome:"selected", optionId}` or `{outcome:"cancelled"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum VoteOutcomeBody {
    /// One of the request's options.
    #[serde(rename_all = "camelCase")]
    Selected {
        /// Which.
        option_id: String,
    },
    /// The request is withdrawn.
    Cancelled,
}

/// Answer of `GET /session/:id/status`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStatus {
    /// The session.
    pub session_id: SessionId,
    /// Its workspace, absolute.
    pub workspace_cwd: String,
    /// RFC 3339.
    pub created_at: String,
    /// When its last turn ended or its metadata changed; RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<String>,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// What kind of place it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_type: Option<String>,
    /// Registered clients.
    pub client_count: usize,
    /// Whether a prompt is running.
    pub has_active_prompt: bool,
    /// `active` or `idle`.
    pub active_work_state: &'static str,
    /// Whether a permission request is pending.
    pub is_waiting_for_permission: bool,
    /// Always `false`: questions are permission requests here.
    pub is_waiting_for_user_question: bool,
    /// How many requests are pending.
    pub pending_interaction_count: usize,
    /// Whether the last turn failed.
    pub has_turn_error: bool,
    /// How it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_error: Option<String>,
    /// The pending requests, oldest first.
    pub pending_interactions: Vec<PendingInteraction>,
}

/// A pending permission request, for clients that poll.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingInteraction {
    /// What to vote on.
    pub request_id: RequestId,
    /// `permission`.
    pub kind: &'static str,
    /// RFC 3339.
    pub created_at: String,
    /// When the daemon stops waiting, RFC 3339; absent if it waits for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Why it waits for ever: `timeout_disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_expiry_reason: Option<&'static str>,
    /// `{type, title, content, locations, input}`.
    pub action: Value,
    /// `[{optionId, label, kind}]`.
    pub options: Value,
    /// How far a consensus has come, with the fields of `permission_partial_vote`; absent before the first vote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_vote: Option<Value>,
}

/// One entry of a list of sessions: the status, and what only lists say.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// The session.
    #[serde(flatten)]
    pub status: SessionStatus,
    /// Always `false`: an archived session is not live.
    pub is_archived: bool,
}

/// One entry of `GET /session/:id/pending-prompts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPrompt {
    /// The turn.
    pub prompt_id: PromptId,
    /// The text of its text blocks.
    pub text: String,
    /// Milliseconds since the Unix epoch.
    pub queued_at: u64,
    /// `running` or `queued`.
    pub state: &'static str,
    /// Who sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub originator_client_id: Option<ClientId>,
}

/// Answer of `GET /session/:id/turns/:promptId`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnStatus {
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub prompt_id: PromptId,
    /// The text of its text blocks.
    pub prompt_text: String,
    /// Milliseconds since the Unix epoch.
    pub queued_at: u64,
    /// Milliseconds since the Unix epoch; absent while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    /// Milliseconds since the Unix epoch; absent until it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Who sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub originator_client_id: Option<ClientId>,
    /// `queued`, `running`, `completed` or `failed`.
    pub state: &'static str,
    /// ACP's stop reason, once it completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// What the agent said, cut at the front where it is very long.
    pub result_text: String,
}
