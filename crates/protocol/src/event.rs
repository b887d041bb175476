//! The events of an [`AgentProtocol`](crate::AgentProtocol).

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{ContentPart, EventId, StreamId, ToolCallId, ToolDisplay, ToolKind, ToolLocation};

/// Free-form `_meta` keys; unknown ones are carried along untouched.
pub type Meta = Map<String, Value>;

/// One thing that happened in a session. Source: runtime specification §1.2.
///
/// Shape: `{id, threadId?, streamId, timestamp, type, …fields of the type…, _meta?}`.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentEvent {
    /// Unique within the session: `<streamId>-<n>`.
    pub id: EventId,
    /// The subagent's thread, if it was not the session's own agent.
    pub thread_id: Option<String>,
    /// The stream this event belongs to. A user message carries the id of the stream that it starts.
    pub stream_id: StreamId,
    /// RFC 3339, UTC, milliseconds.
    pub timestamp: String,
    /// What happened.
    pub body: AgentEventBody,
    /// Everything without a field of its own.
    pub meta: Meta,
}

impl Serialize for AgentEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape<'a> {
            id: &'a EventId,
            #[serde(skip_serializing_if = "Option::is_none")]
            thread_id: &'a Option<String>,
            stream_id: &'a StreamId,
            timestamp: &'a str,
            #[serde(flatten)]
            body: &'a AgentEventBody,
            #[serde(rename = "_meta", skip_serializing_if = "Map::is_empty")]
            meta: &'a Meta,
        }
        if let AgentEventBody::Unknown(whole) = &self.body {
            return whole.serialize(serializer);
        }
        let Self { id, thread_id, stream_id, timestamp, body, meta } = self;
        Shape { id, thread_id, stream_id, timestamp, body, meta }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for AgentEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Envelope {
            id: EventId,
            #[serde(default)]
            thread_id: Option<String>,
            stream_id: StreamId,
            timestamp: String,
            #[serde(default, rename = "_meta")]
            meta: Meta,
        }
        let value = Value::deserialize(deserializer)?;
        let envelope = Envelope::deserialize(&value).map_err(D::Error::custom)?;
        let known = AgentEventBody::deserialize(&value);
        let body = match known {
            Ok(body) => body,
            Err(_) if !AgentEventBody::is_known(&value) => AgentEventBody::Unknown(value),
            Err(error) => return Err(D::Error::custom(error)),
        };
        let Envelope { id, thread_id, stream_id, timestamp, meta } = envelope;
        Ok(Self { id, thread_id, stream_id, timestamp, body, meta })
    }
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    /// The person or program that sent the prompt.
    User,
    /// The agent.
    Agent,
    /// Text that the host put in.
    Developer,
}

/// What happened. Source: runtime specification §1.3, without elicitations: questions go through
/// [`PermissionPort`](crate::PermissionPort).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentEventBody {
    /// Something about the session changed.
    SessionUpdate {
        /// New title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The model that is called from here on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Changed configuration.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        config: Option<Value>,
    },
    /// Text, thoughts or media. An agent's text comes in pieces, to be joined.
    Message {
        /// Who speaks.
        role: MessageRole,
        /// What is said.
        content: Vec<ContentPart>,
    },
    /// A stream begins.
    AgentStart,
    /// A stream ended; nothing follows in it.
    AgentEnd {
        /// Why.
        reason: StreamEndReason,
        /// Details, such as `code`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Value>,
    },
    /// The model calls a tool.
    #[serde(rename_all = "camelCase")]
    ToolRequest {
        /// The call.
        request_id: ToolCallId,
        /// The tool.
        name: String,
        /// Its arguments.
        args: Value,
        /// How to show it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        display: Option<ToolDisplay>,
        /// What kind of tool it is.
        #[serde(default)]
        kind: ToolKind,
        /// Files it will touch.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        locations: Vec<ToolLocation>,
    },
    /// A call moves on.
    #[serde(rename_all = "camelCase")]
    ToolUpdate {
        /// The call.
        request_id: ToolCallId,
        /// How to show it now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        display: Option<ToolDisplay>,
        /// Output so far.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Vec<ContentPart>>,
        /// The scheduler's state: `{status, …}`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Value>,
    },
    /// A call ended.
    #[serde(rename_all = "camelCase")]
    ToolResponse {
        /// The call.
        request_id: ToolCallId,
        /// The tool.
        name: String,
        /// How to show the result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        display: Option<ToolDisplay>,
        /// What the model is told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Vec<ContentPart>>,
        /// The tool's own data, with `errorType`, `outputFile`, `contentLength` where there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Value>,
        /// Whether it failed, was denied or was cancelled.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// Tokens of one model call.
    #[serde(rename_all = "camelCase")]
    Usage {
        /// The model that answered.
        model: String,
        /// Tokens sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input_tokens: Option<u64>,
        /// Tokens received, thoughts included.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_tokens: Option<u64>,
        /// Tokens sent that the provider had cached.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cached_tokens: Option<u64>,
    },
    /// Something went wrong.
    Error {
        /// What kind of failure.
        status: ErrorStatus,
        /// What a person reads.
        message: String,
        /// Whether `agent_end{failed}` follows.
        fatal: bool,
    },
    /// An event of a kind that has no type yet.
    Custom {
        /// Which kind.
        kind: String,
        /// Its data.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Value>,
    },
    /// A type that a newer writer knows; the whole event as it came.
    #[serde(skip)]
    Unknown(Value),
}

impl AgentEventBody {
    fn is_known(value: &Value) -> bool {
        const KNOWN: [&str; 10] = [
            "session_update",
            "message",
            "agent_start",
            "agent_end",
            "tool_request",
            "tool_update",
            "tool_response",
            "usage",
            "error",
            "custom",
        ];
        value.get("type").and_then(Value::as_str).is_some_and(|t| KNOWN.contains(&t))
    }
}

/// Why a stream ended. Source: runtime specification §1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamEndReason {
    /// The agent is done.
    Completed,
    /// An error ended it.
    Failed,
    /// It was cancelled.
    Aborted,
    /// Turn limit.
    MaxTurns,
    /// Token limit.
    MaxBudget,
    /// Time limit.
    MaxTime,
    /// The model or its provider refused.
    Refusal,
}

/// gRPC status names. Source: runtime specification §1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the standard names explain themselves")]
pub enum ErrorStatus {
    Ok,
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

impl ErrorStatus {
    /// The name for an HTTP status. Source: runtime specification §1.7.
    #[must_use]
    pub fn from_http(status: u16) -> Self {
        match status {
            400 => Self::InvalidArgument,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::NotFound,
            409 => Self::AlreadyExists,
            429 => Self::ResourceExhausted,
            501 => Self::Unimplemented,
            503 => Self::Unavailable,
            504 => Self::DeadlineExceeded,
            _ => Self::Internal,
        }
    }
}
