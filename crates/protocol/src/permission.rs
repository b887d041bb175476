//! The port through which an agent asks a human.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{QuestionOutcome, QuestionRequest, SessionId, ToolCallId, ToolKind, ToolLocation};

/// Where an agent's questions go: an ACP client, a terminal, a test.
///
/// Given to a session when it is made. Permission, plan approval and fallback choices all go this way.
#[async_trait]
pub trait PermissionPort: Send + Sync {
    /// Asks and waits for the answer.
    ///
    /// Cancellation: dropping the future withdraws the question. Several may be pending at once.
    async fn request(&self, request: PermissionRequest) -> PermissionOutcome;

    /// Whether [`Self::ask`] reaches a person. Otherwise only what one of a few options answers can be asked.
    fn takes_questions(&self) -> bool {
        false
    }

    /// Puts a question that options can't answer, and waits for the answer.
    ///
    /// Cancellation: dropping the future withdraws the question. Several may be pending at once.
    async fn ask(&self, _question: QuestionRequest) -> QuestionOutcome {
        QuestionOutcome::Cancelled
    }
}

/// A question about one tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct PermissionRequest {
    /// The session that asks.
    pub session_id: SessionId,
    /// The call asked about.
    pub tool_call_id: ToolCallId,
    /// The tool's name.
    pub tool_name: String,
    /// What would happen, in one line: the full command, or the file.
    pub title: String,
    /// What kind of tool it is.
    pub kind: ToolKind,
    /// What would change.
    pub content: Vec<PermissionContent>,
    /// Files it would touch.
    pub locations: Vec<ToolLocation>,
    /// The arguments.
    pub raw_input: Value,
    /// The answers on offer.
    pub options: Vec<PermissionOption>,
    /// Who asks, if it is not the session's own agent: the names of the subagents that led here, the outermost first and
    /// the one that asks last.
    pub origin: Vec<String>,
}

/// What a human should see before answering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionContent {
    /// Text.
    Text(String),
    /// A file before and after.
    Diff {
        /// Absolute path.
        path: String,
        /// Content before; `None` for a new file.
        old_text: Option<String>,
        /// Content after.
        new_text: String,
    },
}

/// One answer on offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption {
    /// What comes back in [`PermissionOutcome::Selected`].
    pub option_id: String,
    /// What a person reads.
    pub name: String,
    /// What it means.
    pub kind: PermissionOptionKind,
}

/// ACP's `PermissionOptionKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionOptionKind {
    /// Yes, this time.
    AllowOnce,
    /// Yes, and don't ask again.
    AllowAlways,
    /// No, this time.
    RejectOnce,
    /// No, and don't ask again.
    RejectAlways,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionOutcome {
    /// One of the options.
    Selected {
        /// Its [`PermissionOption::option_id`].
        option_id: String,
    },
    /// Nobody will answer: the turn was cancelled, or the question timed out.
    Cancelled,
}
