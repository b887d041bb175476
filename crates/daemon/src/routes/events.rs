//! `GET /session/:id/events`: where does a stream begin, and how far may its reader lag?
//!
//! Source: daemon specification, §e.

use bytes::Bytes;
use convoke_bridge::{Answer, Limits, SubscribeRequest};
use convoke_protocol::SessionId;
use http::header::{self, HeaderName, HeaderValue};
use uuid::Uuid;

use super::Incoming;
use crate::http_error::HttpError;
use crate::respond::{Reply, ReplyBody};
use crate::service::Service;

const EPOCH: HeaderName = HeaderName::from_static("x-qwen-event-epoch");
const STREAM_ID: HeaderName = HeaderName::from_static("x-qwen-sse-stream-id");
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Opens an event stream. A client id is for logs only here, whatever its shape.
pub(super) async fn open(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let max_queued = max_queued(incoming.query("maxQueued").as_deref())?;
    let last_event_id = incoming.header("last-event-id").and_then(event_id);
    let epoch = incoming.header(EPOCH.as_str()).filter(|epoch| !epoch.is_empty()).map(str::to_owned);
    let snapshot = incoming.query("snapshot").as_deref() == Some("1");
    let stream_id = Uuid::new_v4().to_string();
    if let Some(reason) = incoming.query("connectReason") {
        let (reason, previous) = (reason.chars().take(40).collect::<String>(), incoming.query("previousStreamId"));
        tracing::debug!(sessionId = id, streamId = stream_id, reason, previous, "event stream");
    }
    let destroy = incoming.connection.destroy.clone();
    let subscribe = service.handle.subscribe(SessionId::from(id), destroy, |subscriber| SubscribeRequest {
        subscriber,
        last_event_id,
        epoch,
        max_queued,
        snapshot,
    });
    let (answer, reader) = subscribe.await?;
    let Answer::Subscribed { epoch } = answer else { return Err(HttpError::internal()) };
    let mut reply = Reply::new(ReplyBody::Events(reader));
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("keep-alive"));
    headers.insert(NO_BUFFERING, HeaderValue::from_static("no"));
    for (name, value) in [(EPOCH, epoch), (STREAM_ID, stream_id)] {
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(value)) {
            headers.insert(name, value);
        }
    }
    Ok(reply)
}

/// Reads `Last-Event-ID`; anything but a decimal number is as if it were not there.
fn event_id(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn max_queued(text: Option<&str>) -> Result<Option<usize>, HttpError> {
    let Some(text) = text else { return Ok(None) };
    let range = Limits::QUEUED_FRAMES;
    let number = event_id(text).and_then(|number| usize::try_from(number).ok()).filter(|n| range.contains(n));
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(HttpError::bad_request(
            &format!("`maxQueued` must be an integer in [{}, {}]", range.start(), range.end()),
            "invalid_max_queued",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (text, expected) in [
            ("0", Some(0)),
            ("42", Some(42)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("x", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(event_id(text), expected, "{text:?}");
        }
        assert_eq!(max_queued(None), Ok(None));
        assert_eq!(max_queued(Some("16")), Ok(Some(16)));
        assert_eq!(max_queued(Some("2048")), Ok(Some(2048)));
        for bad in ["15", "2049", "x", "", "1e2"] {
            assert!(max_queued(Some(bad)).is_err(), "{bad:?}");
        }
    }
}
