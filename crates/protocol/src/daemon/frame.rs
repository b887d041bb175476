//! One event of a session's stream.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ClientId, PromptId};

/// The `type` of a frame. Source: daemon specification, "Event types of the core".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the wire names; the specification has a line for each")]
pub enum FrameKind {
    SessionUpdate,
    PermissionRequest,
    PermissionResolved,
    PermissionAlreadyResolved,
    PermissionPartialVote,
    PermissionForbidden,
    PromptCancelled,
    TurnComplete,
    TurnError,
    PendingPromptAdded,
    PendingPromptStarted,
    PendingPromptCompleted,
    SessionMetadataUpdated,
    ModelSwitched,
    ModelSwitchFailed,
    ApprovalModeChanged,
    SessionRewound,
    SessionSnapshot,
    SessionClosed,
    SessionDied,
    ReplayComplete,
    StateResyncRequired,
    SlowClientWarning,
    ClientEvicted,
    StreamError,
}

impl FrameKind {
    /// The wire name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionUpdate => "session_update",
            Self::PermissionRequest => "permission_request",
            Self::PermissionResolved => "permission_resolved",
            Self::PermissionAlreadyResolved => "permission_already_resolved",
            Self::PermissionPartialVote => "permission_partial_vote",
            Self::PermissionForbidden => "permission_forbidden",
            Self::PromptCancelled => "prompt_cancelled",
            Self::TurnComplete => "turn_complete",
            Self::TurnError => "turn_error",
            Self::PendingPromptAdded => "pending_prompt_added",
            Self::PendingPromptStarted => "pending_prompt_started",
            Self::PendingPromptCompleted => "pending_prompt_completed",
            Self::SessionMetadataUpdated => "session_metadata_updated",
            Self::ModelSwitched => "model_switched",
            Self::ModelSwitchFailed => "model_switch_failed",
            Self::ApprovalModeChanged => "approval_mode_changed",
            Self::SessionRewound => "session_rewound",
            Self::SessionSnapshot => "session_snapshot",
            Self::SessionClosed => "session_closed",
            Self::SessionDied => "session_died",
            Self::ReplayComplete => "replay_complete",
            Self::StateResyncRequired => "state_resync_required",
            Self::SlowClientWarning => "slow_client_warning",
            Self::ClientEvicted => "client_evicted",
            Self::StreamError => "stream_error",
        }
    }
}

/// The envelope of one event: `{id?, v:1, type, promptId?, data, originatorClientId?, _meta:{serverTimestamp}}`.
///
/// Ids count from 1 per session without gaps; synthetic frames (replay marks, resync, warnings) have none.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Frame {
    /// Position in the session's stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Version of the envelope, 1.
    pub v: u8,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: FrameKind,
    /// The turn it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<PromptId>,
    /// The payload of the kind.
    pub data: Value,
    /// Who caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub originator_client_id: Option<ClientId>,
    /// When.
    #[serde(rename = "_meta")]
    pub meta: FrameMeta,
}

/// `_meta` of a [`Frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FrameMeta {
    /// Milliseconds since the Unix epoch.
    pub server_timestamp: u64,
}

impl Frame {
    /// Encodes the frame for the event stream, once for all its readers: `id:`, `event:` and `data:` lines and the
    /// blank line that ends an event.
    #[must_use]
    pub fn encode(&self) -> EncodedFrame {
        // A chunk of a few words takes some 450 bytes with its envelope.
        let mut text = Vec::with_capacity(512);
        if let Some(id) = self.id {
            text.extend_from_slice(b"id: ");
            text.extend_from_slice(id.to_string().as_bytes());
            text.push(b'\n');
        }
        text.extend_from_slice(b"event: ");
        text.extend_from_slice(self.kind.name().as_bytes());
        text.extend_from_slice(b"\ndata: ");
        let start = text.len();
        // A frame holds strings, numbers and JSON values only: encoding it into memory can't fail.
        if serde_json::to_writer(&mut text, self).is_err() {
            text.truncate(start);
            text.extend_from_slice(b"{}");
        }
        let json = start..text.len();
        text.extend_from_slice(b"\n\n");
        // Thousands of these are kept: what is counted should be all there is.
        text.shrink_to_fit();
        let sse = Bytes::from(text);
        EncodedFrame { id: self.id, kind: self.kind, json: sse.slice(json), sse }
    }
}

/// A frame as bytes, shared by all its readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedFrame {
    /// Position in the session's stream; `None` for a synthetic frame.
    pub id: Option<u64>,
    /// What happened.
    pub kind: FrameKind,
    /// The envelope as one line of JSON.
    pub json: Bytes,
    /// The whole server-sent event.
    pub sse: Bytes,
}
