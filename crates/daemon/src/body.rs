//! What is in a request's body? A JSON object, or nothing.
//!
//! A body of another content type is not looked at, and an array counts as an empty object: both as the peer does.
//! Source: daemon specification, §b, "Body".

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use hyper::body::Body;
use serde_json::{Map, Value, json};

use crate::http_error::HttpError;
use crate::options::DaemonLimits;

/// How many times the limit is read and thrown away before the connection is closed, so that a client that writes
/// before it reads gets to see why.
const DRAINED_LIMITS: usize = 4;

/// What is read and thrown away of a request that was refused before its body was looked at, and for how long.
const REFUSED_BYTES: usize = 1024 * 1024;
const REFUSED_TIME: Duration = Duration::from_secs(1);

/// The fields of a body.
pub(crate) type Fields = Map<String, Value>;

/// Reads a JSON body of any kind, within the limits; the caller has looked at its type.
pub(crate) async fn read_value<B>(body: B, limits: &DaemonLimits) -> Result<Value, HttpError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let Ok(collected) = tokio::time::timeout(limits.body_time, collect(body, limits.body_bytes)).await else {
        return Err(problem(StatusCode::REQUEST_TIMEOUT, "Request body took too long"));
    };
    let malformed = |_| problem(StatusCode::BAD_REQUEST, "Invalid JSON in request body");
    serde_json::from_slice(&collected?).map_err(malformed)
}

/// Reads a body within the limits.
pub(crate) async fn read<B>(headers: &HeaderMap, body: B, limits: &DaemonLimits) -> Result<Fields, HttpError>
where
    B: Body<Data = Bytes> + Unpin,
{
    if !is_json(headers) || body.is_end_stream() {
        return Ok(Fields::new());
    }
    match tokio::time::timeout(limits.body_time, collect(body, limits.body_bytes)).await {
        Ok(collected) => parse(&collected?),
        Err(_) => Err(problem(StatusCode::REQUEST_TIMEOUT, "Request body took too long")),
    }
}

/// Reads what is left of a body and throws it away, within bounds: a connection that is closed with unread bytes is
/// reset, and its client might not see the answer.
pub(crate) async fn drain<B>(mut body: B)
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut seen = 0_usize;
    let draining = async {
        while !body.is_end_stream() && seen <= REFUSED_BYTES {
            let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await else { break };
            seen = seen.saturating_add(frame.data_ref().map_or(0, Bytes::len));
        }
    };
    // What takes longer is cut off.
    let _ = tokio::time::timeout(REFUSED_TIME, draining).await;
}

async fn collect<B>(mut body: B, limit: usize) -> Result<Bytes, HttpError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut collected = BytesMut::new();
    let mut seen = 0_usize;
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(frame) = frame else { return Err(problem(StatusCode::BAD_REQUEST, "Request body was cut off")) };
        let Ok(data) = frame.into_data() else { continue };
        seen = seen.saturating_add(data.len());
        if seen > limit.saturating_mul(DRAINED_LIMITS) {
            break;
        }
        if seen <= limit {
            collected.extend_from_slice(&data);
        }
    }
    if seen > limit {
        let text = format!("Request body too large (max {} MB)", limit / (1024 * 1024));
        return Err(problem(StatusCode::PAYLOAD_TOO_LARGE, &text));
    }
    Ok(collected.freeze())
}

fn problem(status: StatusCode, text: &str) -> HttpError {
    HttpError::new(status, json!({ "error": text }))
}

pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let media = value.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("application/json")
}

/// Reads the bytes of a JSON body. Empty is an empty object; a bare number or string is malformed.
fn parse(bytes: &[u8]) -> Result<Fields, HttpError> {
    if bytes.trim_ascii().is_empty() {
        return Ok(Fields::new());
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(Value::Array(_)) => Ok(Fields::new()),
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | Err(_) => {
            Err(problem(StatusCode::BAD_REQUEST, "Invalid JSON in request body"))
        }
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::respond::ReplyBody;

    async fn status(content_type: &'static str, body: &str, limit: usize) -> Result<Value, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        let body = ReplyBody::bytes(Bytes::from(body.to_owned()));
        let limits = DaemonLimits { body_bytes: limit, ..DaemonLimits::default() };
        match read(&headers, body, &limits).await {
            Ok(fields) => Ok(Value::Object(fields)),
            Err(error) => Err(error.reply().status().as_u16()),
        }
    }

    #[tokio::test]
    async fn what_counts_as_what() {
        let json = "application/json";
        for (content_type, text, expected) in [
            (json, r#"{"a":1}"#, Ok(json!({"a": 1}))),
            ("Application/JSON; charset=utf-8", r#"{"a":1}"#, Ok(json!({"a": 1}))),
            (json, "", Ok(json!({}))),
            (json, " \n", Ok(json!({}))),
            (json, "[1,2]", Ok(json!({}))),
            (json, "{bad json", Err(400)),
            (json, "{x", Err(400)),
            (json, "5", Err(400)),
            (json, "\"text\"", Err(400)),
            (json, "null", Err(400)),
            (json, r#"{"a":1} trailing"#, Err(400)),
            ("text/plain", r#"{"a":1}"#, Ok(json!({}))),
            ("application/x-www-form-urlencoded", "x=1", Ok(json!({}))),
            ("application/jsonx", "{bad", Ok(json!({}))),
            (json, r#"{"a":"0123456789"}"#, Err(413)),
        ] {
            assert_eq!(status(content_type, text, 16).await, expected, "{content_type} {text}");
        }
    }

    #[test]
    fn deep_nesting_is_malformed_not_fatal() {
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes()).is_err());
    }
}
