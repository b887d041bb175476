//! The port through which every front end drives an agent.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::{AgentEvent, ContentPart, EventLog, StreamId};

/// An agent session as its consumers see it. Source: runtime specification §1.1 and §1.5.
///
/// Guarantees: [`send`](Self::send) resolves before its stream's `agent_start`; each stream has exactly one
/// `agent_start` and one `agent_end`, which is its last event; a `tool_request` comes before its updates, and those
/// before its `tool_response`; an abort yields `agent_end{aborted}` and no error event; event ids are unique.
#[async_trait]
pub trait AgentProtocol: Send + Sync {
    /// Accepts `payload` and, for a message, starts a stream.
    ///
    /// Errors: [`SendError::Busy`] while a stream runs, [`SendError::Empty`] for a message without content.
    async fn send(&self, payload: AgentSend) -> Result<SendReceipt, SendError>;

    /// The session's events so far, and those to come. Subscribe through [`EventLog::subscribe`].
    fn log(&self) -> &EventLog;

    /// Ends the running stream with `agent_end{aborted}` and waits for it. Idempotent; nothing to end is fine.
    async fn abort(&self);

    /// The trajectory in order of emission, as far as the log still holds it.
    fn events(&self) -> Vec<Arc<AgentEvent>> {
        self.log().snapshot()
    }
}

/// What a consumer sends.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentSend {
    /// A prompt.
    Message(SendMessage),
    /// A change of the session without a stream.
    Update(SessionUpdate),
}

/// A prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SendMessage {
    /// What the agent reads.
    pub content: Vec<ContentPart>,
    /// What a person should see instead, if that differs.
    pub display_content: Option<String>,
}

impl SendMessage {
    /// A prompt of plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ContentPart::text(text)], display_content: None }
    }
}

/// A change of the session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionUpdate {
    /// New title.
    pub title: Option<String>,
    /// Model to use from the next stream on.
    pub model: Option<String>,
    /// Configuration to merge.
    pub config: Option<Value>,
}

/// What [`AgentProtocol::send`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendReceipt {
    /// The stream that was started; `None` for a pure update.
    pub stream_id: Option<StreamId>,
}

/// Why a payload was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// A stream is running.
    #[error("send while a stream is running")]
    Busy,
    /// The message has no content.
    #[error("send a message without content")]
    Empty,
    /// The session was closed.
    #[error("send to a closed session")]
    Closed,
}
