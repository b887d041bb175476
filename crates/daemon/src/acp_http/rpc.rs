//! What does a JSON-RPC message say, and how is one written?
//!
//! Source: JSON-RPC 2.0, and daemon specification §g and §i for the codes.

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::http_error::HttpError;
use crate::rate::Tier;

/// No request, or one at the wrong moment.
pub(super) const INVALID_REQUEST: i64 = -32600;
/// No such method.
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
/// Bad parameters, or a session that is not this client's.
pub(super) const INVALID_PARAMS: i64 = -32602;
/// Everything that went wrong behind the method.
pub(super) const INTERNAL: i64 = -32603;
/// The answer to a request that was taken back with `$/cancel_request`. Source: the protocol's cancellation.
pub(super) const REQUEST_CANCELLED: i64 = -32800;

/// Longest text that is taken as an id; it is kept until its request is answered.
const ID_BYTES_MAX: usize = 256;

/// The id of a request: a string, a number, or null.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Id(pub(super) Value);

/// What a client sends.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// It asks.
    Request { id: Id, method: String, params: Value },
    /// It tells.
    Notification { method: String, params: Value },
    /// It answers.
    Response { id: Id, answer: Reply },
}

impl Message {
    /// What it costs its peer; signs of life, and answers to questions that were asked, are free.
    pub(super) fn tier(&self) -> Option<Tier> {
        let (Self::Request { method, .. } | Self::Notification { method, .. }) = self else { return None };
        match method.as_str() {
            "session/prompt" => Some(Tier::Prompt),
            "session/list" => Some(Tier::Read),
            "_qwen/session/heartbeat" | "_qwen/session/update_metadata" => None,
            _ => Some(Tier::Mutation),
        }
    }
}

/// What is in a response.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Result(Value),
    /// Only the code of an error matters here.
    Error(Option<i64>),
}

/// Reads one message; an error is ready to be sent.
pub(super) fn read(value: Value) -> Result<Message, Problem> {
    let invalid = |id: Option<&Value>| Problem {
        code: INVALID_REQUEST,
        message: "Invalid Request: not a JSON-RPC 2.0 message".to_owned(),
        data: None,
        id: id.and_then(id_of),
    };
    let Value::Object(mut fields) = value else { return Err(invalid(None)) };
    let version = fields.get("jsonrpc").and_then(Value::as_str) == Some("2.0");
    let id = match fields.get("id") {
        None => None,
        Some(id) => Some(id_of(id).ok_or_else(|| invalid(None))?),
    };
    if !version {
        return Err(invalid(fields.get("id")));
    }
    match (fields.remove("method"), id) {
        (Some(Value::String(method)), id) => {
            let params = fields.remove("params").unwrap_or_default();
            Ok(match id {
                Some(id) => Message::Request { id, method, params },
                None => Message::Notification { method, params },
            })
        }
        (None, Some(id)) => match (fields.remove("result"), fields.remove("error")) {
            (Some(result), None) => Ok(Message::Response { id, answer: Reply::Result(result) }),
            (None, Some(error)) => {
                let code = error.get("code").and_then(Value::as_i64);
                Ok(Message::Response { id, answer: Reply::Error(code) })
            }
            (Some(_), Some(_)) | (None, None) => Err(invalid(Some(&id.0))),
        },
        (Some(_), _) | (None, None) => Err(invalid(fields.get("id"))),
    }
}

fn id_of(value: &Value) -> Option<Id> {
    match value {
        Value::String(text) if text.len() <= ID_BYTES_MAX => Some(Id(value.clone())),
        Value::Number(_) | Value::Null => Some(Id(value.clone())),
        Value::String(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Why a request is not answered with a result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Problem {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Option<Box<Value>>,
    /// Of the request, if it is known to this error.
    pub(super) id: Option<Id>,
}

impl Problem {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, id: None }
    }

    pub(super) fn with(mut self, data: Value) -> Self {
        self.data = Some(Box::new(data));
        self
    }

    pub(super) fn of(mut self, id: Id) -> Self {
        self.id = Some(id);
        self
    }

    /// The error as a whole message.
    pub(super) fn message(&self) -> Value {
        let id = self.id.as_ref().map_or(Value::Null, |id| id.0.clone());
        let mut error = json!({"code": self.code, "message": self.message});
        if let (Value::Object(error), Some(data)) = (&mut error, &self.data) {
            error.insert("data".to_owned(), Value::clone(data));
        }
        json!({"jsonrpc": "2.0", "id": id, "error": error})
    }
}

impl From<HttpError> for Problem {
    /// What REST answers, as a JSON-RPC error: `data.httpStatus` and `data.errorKind` say the same as there. An error of
    /// the agent keeps its own code.
    fn from(error: HttpError) -> Self {
        let status = error.status().as_u16();
        let mut body = error.into_body();
        let message = match body.remove("error") {
            Some(Value::String(message)) => message,
            Some(_) | None => "Internal error".to_owned(),
        };
        let mut data = Map::new();
        data.insert("httpStatus".to_owned(), json!(status));
        let code = match body.remove("code") {
            Some(Value::Number(code)) => code.as_i64(),
            Some(kind) => {
                data.insert("errorKind".to_owned(), kind);
                None
            }
            None => None,
        };
        data.extend(body);
        let usual = if status == 400 { INVALID_PARAMS } else { INTERNAL };
        Self { code: code.unwrap_or(usual), message, data: Some(Box::new(Value::Object(data))), id: None }
    }
}

/// A result as a whole message.
pub(super) fn result(id: &Id, result: &Value) -> Bytes {
    encode(&json!({"jsonrpc": "2.0", "id": id.0, "result": result}))
}

/// An error as a whole message.
pub(super) fn error(problem: &Problem) -> Bytes {
    encode(&problem.message())
}

/// A notification whose parameters were encoded before: an agent's update passes byte for byte.
pub(super) fn notification_raw(method: &str, params: &RawValue) -> Bytes {
    let params = params.get();
    Bytes::from(format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{params}}}"))
}

/// An event that ACP has no word for.
pub(super) fn notify(kind: &str, data: &RawValue) -> Bytes {
    let data = data.get();
    Bytes::from(format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"_qwen/notify\",\"params\":{{\"kind\":\"{kind}\",\"data\":{data}}}}}"
    ))
}

/// Takes a request back that this client need not answer any more.
pub(super) fn cancel_request(id: &str) -> Bytes {
    encode(&json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}}))
}

fn encode(message: &Value) -> Bytes {
    // A JSON value can't fail to encode into memory.
    Bytes::from(serde_json::to_vec(message).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn what_is_a_message() {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"a": 1}});
        let id = Id(json!(1));
        assert_eq!(read(request), Ok(Message::Request { id: id.clone(), method: "m".into(), params: json!({"a": 1}) }));
        let told = json!({"jsonrpc": "2.0", "method": "m"});
        assert_eq!(read(told), Ok(Message::Notification { method: "m".into(), params: Value::Null }));
        let answer = json!({"jsonrpc": "2.0", "id": 1, "result": null});
        assert_eq!(read(answer), Ok(Message::Response { id: id.clone(), answer: Reply::Result(Value::Null) }));
        let failed = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32800, "message": "x"}});
        assert_eq!(read(failed), Ok(Message::Response { id, answer: Reply::Error(Some(-32800)) }));
        for bad in [
            json!({"id": 1, "method": "m"}),
            json!({"jsonrpc": "1.0", "id": 1, "method": "m"}),
            json!({"jsonrpc": "2.0"}),
            json!({"jsonrpc": "2.0", "id": 1}),
            json!({"jsonrpc": "2.0", "id": 1, "method": 5}),
            json!({"jsonrpc": "2.0", "id": {}, "method": "m"}),
            json!({"jsonrpc": "2.0", "id": "x".repeat(257), "method": "m"}),
            json!({"jsonrpc": "2.0", "id": 1, "result": 1, "error": {}}),
            json!("text"),
            json!(null),
        ] {
            assert_eq!(read(bad.clone()).map_err(|problem| problem.code), Err(INVALID_REQUEST), "{bad}");
        }
        let named = read(json!({"jsonrpc": "1.0", "id": 7, "method": "m"})).unwrap_err();
        assert_eq!(named.id, Some(Id(json!(7))));
    }

    #[test]
    fn what_rest_answers_is_said_here_too() {
        let rest = HttpError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            json!({"error": "full", "code": "prompt_queue_full", "limit": 5}),
        );
        let problem = Problem::from(rest);
        assert_eq!((problem.code, problem.message.as_str()), (INTERNAL, "full"));
        let expected = json!({"httpStatus": 503, "errorKind": "prompt_queue_full", "limit": 5});
        assert_eq!(problem.data.as_deref(), Some(&expected));
        let agent = HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, json!({"error": "log in", "code": -32000}));
        assert_eq!(Problem::from(agent).code, -32000);
        assert_eq!(Problem::from(HttpError::malformed("no")).code, INVALID_PARAMS);
    }
}
