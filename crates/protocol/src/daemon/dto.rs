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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_active_prompt: Option<bool>,
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
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
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
    /// `{type, title, content, locations, input}`.
    pub action: Value,
    /// `[{optionId, label, kind}]`.
    pub options: Value,
}

/// One entry of a list of sessions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// The session.
    pub session_id: SessionId,
    /// Its workspace, absolute.
    pub workspace_cwd: String,
    /// RFC 3339.
    pub created_at: String,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Registered clients.
    pub client_count: usize,
    /// Whether a prompt is running.
    pub has_active_prompt: bool,
}
