//! The kernel's record of what happened in a session.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::{Content, FinishReason, FunctionCall, ModelErrorKind, UsageMetadata};

/// One thing that an invocation said or did.
///
/// Partial events carry a piece of text and are never kept; the consolidated event that follows carries the whole
/// answer, whatever the finish reason, and is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    /// Unique within the session.
    pub id: String,
    /// The invocation it belongs to: `e-<uuid>`.
    pub invocation_id: String,
    /// `user` or the agent's name.
    pub author: String,
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: u64,
    /// Path of agents that led here, dot-separated; `None` for the root agent.
    pub branch: Option<String>,
    /// What was said. Shared with requests that are built from it.
    pub content: Option<Arc<Content>>,
    /// Whether this is a piece of something still to come.
    pub partial: bool,
    /// The model that said it.
    pub model: Option<String>,
    /// Why the model stopped.
    pub finish_reason: Option<FinishReason>,
    /// Tokens of the call.
    pub usage: Option<UsageMetadata>,
    /// What went wrong. Such an event ends its invocation.
    pub error: Option<EventError>,
    /// What it does besides being said.
    pub actions: EventActions,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventError {
    /// What kind of failure.
    pub kind: ModelErrorKind,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// What a person reads.
    pub message: String,
}

/// What an event does besides being said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventActions {
    /// Changes of the session's state; keys that begin with `temp:` are not kept.
    pub state_delta: Map<String, Value>,
    /// Whether the invocation ends with these tool responses.
    pub skip_summarization: bool,
    /// Anything else worth keeping.
    pub custom_metadata: Map<String, Value>,
}

impl Event {
    /// The function calls, in order.
    #[must_use]
    pub fn function_calls(&self) -> Vec<FunctionCall> {
        self.content.as_ref().map(|c| c.function_calls()).unwrap_or_default()
    }

    /// Whether the invocation has nothing more to do after this event.
    ///
    /// Source: runtime specification §2.3.
    #[must_use]
    pub fn is_final_response(&self) -> bool {
        if self.actions.skip_summarization || self.error.is_some() {
            return true;
        }
        let busy = self.content.as_ref().is_some_and(|content| {
            content.parts.iter().any(|part| part.call_id().is_some() || part.response_id().is_some())
        });
        !busy && !self.partial
    }
}
