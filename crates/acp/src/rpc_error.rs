//! Errors on the wire: how does each of ours look in JSON-RPC?
//!
//! One table for the whole room. Codes are those of JSON-RPC and ACP, and 429 for a spent quota as ACP agents have it;
//! `data.code` is a stable word for programs where the number alone does not tell.

use agent_client_protocol as sdk;
use convoke_protocol::{AuthError, ErrorStatus, Meta, SendError, SessionError, SetConfigError, SetModeError};
use serde_json::{Map, Value, json};

/// An error that the other end answered. Source: JSON-RPC 2.0 §5.1.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// Such as −32602, or −32000 for a missing credential.
    pub code: i32,
    /// What a person reads.
    pub message: String,
    /// Details, as they came.
    pub data: Option<Value>,
}

impl From<sdk::Error> for RpcError {
    fn from(error: sdk::Error) -> Self {
        Self { code: error.code.value(), message: error.message, data: error.data }
    }
}

impl From<sdk::Error> for Box<RpcError> {
    fn from(error: sdk::Error) -> Self {
        Self::new(error.into())
    }
}

impl From<RpcError> for sdk::Error {
    fn from(error: RpcError) -> Self {
        let RpcError { code, message, data } = error;
        Self::new(code, message).data(data)
    }
}

/// A method got parameters that it can't use.
pub(crate) const INVALID_PARAMS: i32 = -32602;
/// There is no such method.
pub(crate) const METHOD_NOT_FOUND: i32 = -32601;
/// The request does not fit the state of things.
pub(crate) const INVALID_REQUEST: i32 = -32600;
/// Something failed on our side.
pub(crate) const INTERNAL: i32 = -32603;
/// ACP's `auth_required`.
pub(crate) const AUTH_REQUIRED: i32 = -32000;
/// ACP's `resource_not_found`, which sessions are, too.
pub(crate) const NOT_FOUND: i32 = -32002;
/// ACP's `request_cancelled`.
const REQUEST_CANCELLED: i32 = -32800;
/// HTTP's word for a spent quota. Source: runtime specification §17.
const TOO_MANY: i32 = 429;

impl RpcError {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// As JSON-RPC writes it.
    pub(crate) fn to_wire(&self) -> Value {
        let mut wire = Map::new();
        wire.insert("code".to_owned(), json!(self.code));
        wire.insert("message".to_owned(), json!(self.message));
        wire.extend(self.data.clone().map(|data| ("data".to_owned(), data)));
        Value::Object(wire)
    }

    fn word(mut self, code: &str) -> Self {
        self.data = Some(json!({"code": code}));
        self
    }

    /// A prompt while another runs.
    pub(crate) fn busy() -> Self {
        Self::new(INVALID_REQUEST, "a prompt is already running in this session").word("busy")
    }

    /// An id that no session can have.
    pub(crate) fn bad_session_id() -> Self {
        Self::new(INVALID_PARAMS, "the session id is empty, too long, or has characters that no id has")
            .word("invalid_session_id")
    }

    /// A prompt that no model could read.
    pub(crate) fn too_large(what: &str, bytes: usize, limit: usize) -> Self {
        let data = json!({"code": "prompt_too_large", "bytes": bytes, "maxBytes": limit});
        let message = format!("the prompt has {bytes} bytes of {what}, and {limit} is the limit");
        Self { data: Some(data), ..Self::new(INVALID_PARAMS, message) }
    }

    /// The client took its request back. Source: ACP v1, `$/cancel_request`.
    pub(crate) fn withdrawn() -> Self {
        Self::new(REQUEST_CANCELLED, "the request was cancelled")
    }

    /// No such session on this connection.
    pub(crate) fn no_session(id: &str) -> Self {
        let data = Some(json!({"code": "session_not_found", "sessionId": id}));
        Self { data, ..Self::new(NOT_FOUND, format!("no session with id \"{id}\"")) }
    }
}

impl From<SessionError> for RpcError {
    fn from(error: SessionError) -> Self {
        let message = error.to_string();
        match error {
            SessionError::Auth(_) => Self::new(AUTH_REQUIRED, message).word("auth_required"),
            SessionError::Workspace { .. } => Self::new(INVALID_PARAMS, message).word("invalid_workspace"),
            SessionError::Taken(_) => Self::new(INVALID_REQUEST, message).word("session_id_conflict"),
            SessionError::Unknown(_) => Self::new(NOT_FOUND, message).word("session_not_found"),
            SessionError::Open(_) => Self::new(INVALID_REQUEST, message).word("session_in_use"),
            SessionError::WrongFolder { .. } => Self::new(INVALID_PARAMS, message).word("invalid_workspace"),
            SessionError::Cursor => Self::new(INVALID_PARAMS, message).word("unknown_cursor"),
            SessionError::Record(_) => Self::new(INTERNAL, message).word("record_unusable"),
            SessionError::Failed(_) => Self::new(INTERNAL, message),
        }
    }
}

impl From<SendError> for RpcError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Busy => Self::busy(),
            SendError::Empty => Self::new(INVALID_PARAMS, "the prompt is empty"),
            SendError::Closed => Self::new(INVALID_REQUEST, "the session is closed").word("session_closed"),
        }
    }
}

impl From<SetModeError> for RpcError {
    fn from(error: SetModeError) -> Self {
        let word = match &error {
            SetModeError::Unavailable(_) => "mode_unavailable",
            SetModeError::Untrusted(_) => "untrusted_folder",
        };
        Self::new(INVALID_PARAMS, error.to_string()).word(word)
    }
}

impl From<SetConfigError> for RpcError {
    fn from(error: SetConfigError) -> Self {
        let word = match error {
            SetConfigError::UnknownOption(_) => "unknown_option",
            SetConfigError::UnknownValue { .. } => "unknown_value",
            SetConfigError::Mode(error) => return error.into(),
        };
        Self::new(INVALID_PARAMS, error.to_string()).word(word)
    }
}

impl From<AuthError> for RpcError {
    fn from(error: AuthError) -> Self {
        let message = error.to_string();
        match error {
            AuthError::UnknownMethod(_) => Self::new(INVALID_PARAMS, message).word("unknown_auth_method"),
            AuthError::Missing(_) => Self::new(AUTH_REQUIRED, message).word("auth_required"),
        }
    }
}

/// The last error of a turn that failed.
#[derive(Clone, Debug)]
pub(crate) struct TurnError {
    pub(crate) status: ErrorStatus,
    pub(crate) message: String,
    pub(crate) meta: Meta,
}

/// A turn that ended with `agent_end{failed}`: its last error, with `data` of the end beside that error's own.
pub(crate) fn failed_turn(error: Option<TurnError>, end_data: Option<Value>) -> RpcError {
    let mut data = Map::new();
    let (code, message) = match error {
        Some(error) => {
            data.insert("status".to_owned(), json!(error.status));
            data.extend(error.meta);
            let code = match error.status {
                ErrorStatus::Unauthenticated => AUTH_REQUIRED,
                ErrorStatus::ResourceExhausted => TOO_MANY,
                _ => INTERNAL,
            };
            (code, error.message)
        }
        None => (INTERNAL, "the turn failed".to_owned()),
    };
    match end_data {
        Some(Value::Object(end)) => data.extend(end),
        Some(other) => _ = data.insert("data".to_owned(), other),
        None => {}
    }
    RpcError { code, message, data: (!data.is_empty()).then_some(Value::Object(data)) }
}

#[cfg(test)]
mod tests {
    use convoke_protocol::{ApprovalMode, SessionId};

    use super::*;

    #[test]
    fn an_error_survives_the_sdk() {
        let error = RpcError { code: 429, message: "slow".into(), data: Some(json!({"a": 1})) };
        assert_eq!(RpcError::from(sdk::Error::from(error.clone())), error);
    }

    #[test]
    fn the_table() {
        let end = Some(json!({"code": "LOOP_DETECTED"}));
        let error = |status| Some(TurnError { status, message: "it broke".into(), meta: Meta::new() });
        let workspace = SessionError::Workspace { path: "/x".into(), reason: "no folder".into() };
        let rows: Vec<(&str, RpcError)> = vec![
            ("session: auth", SessionError::Auth("set GEMINI_API_KEY".into()).into()),
            ("session: workspace", workspace.into()),
            ("session: taken", SessionError::Taken(SessionId::from("a")).into()),
            ("session: failed", SessionError::Failed("disk".into()).into()),
            ("session: unknown", RpcError::no_session("a")),
            ("send: busy", SendError::Busy.into()),
            ("send: empty", SendError::Empty.into()),
            ("send: closed", SendError::Closed.into()),
            ("mode: unavailable", SetModeError::Unavailable(ApprovalMode::Yolo).into()),
            ("mode: untrusted", SetModeError::Untrusted(ApprovalMode::Yolo).into()),
            ("turn: internal", failed_turn(error(ErrorStatus::Internal), None)),
            ("turn: quota", failed_turn(error(ErrorStatus::ResourceExhausted), None)),
            ("turn: credential", failed_turn(error(ErrorStatus::Unauthenticated), None)),
            ("turn: loop", failed_turn(error(ErrorStatus::Internal), end)),
            ("turn: nothing said", failed_turn(None, None)),
        ];
        let table: Vec<_> = rows
            .iter()
            .map(|(what, e)| {
                let data = e.data.as_ref().map(Value::to_string).unwrap_or_default();
                format!("{what} | {} | {} | {data}", e.code, e.message)
            })
            .collect();
        insta::with_settings!({snapshot_path => "../tests/golden", prepend_module_to_snapshot => false}, {
            insta::assert_snapshot!("rpc_errors", table.join("\n"));
        });
    }
}
