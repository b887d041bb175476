//! What does an answer look like on the wire? JSON as the peer writes it, bytes, or an event stream.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use serde::Serialize;

use crate::acp_http;
use crate::stream::{Destroyed, StreamReader};

/// One answer.
pub(crate) type Reply = Response<ReplyBody>;

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// Bytes; `None` once they are taken.
    Full(Option<Bytes>),
    /// An event stream.
    Events(StreamReader),
    /// A stream of an ACP connection.
    Acp(acp_http::OutletReader),
}

impl ReplyBody {
    pub(crate) fn empty() -> Self {
        Self::Full(None)
    }

    pub(crate) fn bytes(bytes: Bytes) -> Self {
        Self::Full(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Destroyed;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(reader) => reader.poll_bytes(context).map(|next| next.map(|bytes| bytes.map(Frame::data))),
            Self::Acp(reader) => reader.poll_bytes(context).map(|next| next.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Events(_) | Self::Acp(_) => SizeHint::default(),
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// A JSON answer.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Reply {
    // Bodies hold strings, numbers and JSON values only: encoding them into memory can't fail.
    let bytes = serde_json::to_vec(body).unwrap_or_default();
    json_bytes(status, Bytes::from(bytes))
}

/// A JSON answer that was encoded before.
pub(crate) fn json_bytes(status: StatusCode, bytes: Bytes) -> Reply {
    let mut reply = Response::new(ReplyBody::bytes(bytes));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, JSON);
    reply
}

/// An answer of text in another format than JSON.
pub(crate) fn text(text: String, media_type: &'static str) -> Reply {
    let mut reply = Response::new(ReplyBody::bytes(Bytes::from(text)));
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply
}

/// `429`, with when to come back.
pub(crate) fn too_many(tier: &str, retry_after: Duration, limit: u32) -> Reply {
    let millis = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
    let body = serde_json::json!({
        "error": "Rate limit exceeded",
        "code": "rate_limit_exceeded",
        "tier": tier,
        "retryAfterMs": millis,
    });
    let mut reply = json(StatusCode::TOO_MANY_REQUESTS, &body);
    let headers = reply.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000)));
    headers.insert("x-ratelimit-limit", HeaderValue::from(limit));
    reply
}

/// `204`.
pub(crate) fn no_content() -> Reply {
    let mut reply = Response::new(ReplyBody::empty());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
}

/// The HTML 404 by which clients learn that a feature is absent; never a 405.
pub(crate) fn cannot(method: &http::Method, path: &str) -> Reply {
    let shown = format!("Cannot {method} {}", escape(path));
    let page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Error</title>\n</head>\n<body>\n\
         <pre>{shown}</pre>\n</body>\n</html>\n"
    );
    let mut reply = Response::new(ReplyBody::bytes(Bytes::from(page)));
    *reply.status_mut() = StatusCode::NOT_FOUND;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

/// Text for HTML. A path is whatever a client sends.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_path_can_not_bring_markup_along() {
        let ReplyBody::Full(Some(page)) = cannot(&http::Method::GET, "/<script>&'\"").into_body() else { panic!() };
        let page = String::from_utf8(page.to_vec()).unwrap();
        assert!(page.contains("<pre>Cannot GET /&lt;script&gt;&amp;&#39;&quot;</pre>"), "{page}");
    }
}
