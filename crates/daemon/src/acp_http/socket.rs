//! `/acp` as a WebSocket: one socket for everything.
//!
//! HTTP/1.1 only: over HTTP/2 a client has the event streams. Source: daemon specification, §g; RFC 6455.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{FutureExt, SinkExt, StreamExt};
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message as Frame, Utf8Bytes};
use tokio_util::sync::CancellationToken;

use super::AcpDesk;
use super::attendant::{Attendant, Memo};
use super::http::{full, name_connection};
use super::outlet::{self, End, Item, Reader};
use super::rpc::{self, Message, Problem};
use super::seat::Binding;
use crate::http_error::HttpError;
use crate::peer::{Connection, Peer};
use crate::rate::{Admission, Tier};
use crate::respond::{self, Reply, ReplyBody};
use crate::toll::Toll;

/// The subprotocol that is agreed on; one that carries a token is never echoed.
const SUBPROTOCOL: &str = "qwen-ws";

/// Pings without any sign of life of the client after which it is given up.
const SILENT_PULSES: u32 = 4;

/// How long a client may take to answer the closing of its socket.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Bytes that are gathered for one write to the socket, and how many may wait for it.
const WRITE_BYTES: usize = 64 * 1024;
const WRITE_BYTES_MAX: usize = 32 * 1024 * 1024;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Whether a request wants a WebSocket.
pub(super) fn is_upgrade(head: &Parts) -> bool {
    head.method == Method::GET && lists(head, &header::UPGRADE, "websocket")
}

fn lists(head: &Parts, name: &header::HeaderName, wanted: &str) -> bool {
    let values = head.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(wanted))
}

/// Agrees to a WebSocket; it is served once the answer is out.
pub(super) async fn open(desk: &AcpDesk, from: &Connection, head: &Parts) -> Result<Reply, HttpError> {
    let key = head.headers.get(header::SEC_WEBSOCKET_KEY);
    let version = head.headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
    let upgrade = head.extensions.get::<OnUpgrade>().cloned();
    let (Some(key), true, Some(upgrade)) = (key, version && lists(head, &header::CONNECTION, "upgrade"), upgrade)
    else {
        return Err(HttpError::malformed("Not a WebSocket handshake of version 13"));
    };
    if let Some(rate) = &desk.rate
        && let Admission::Wait { retry_after, limit } = rate.take(from.peer, Tier::Mutation)
    {
        return Ok(respond::too_many(Tier::Mutation.name(), retry_after, limit));
    }
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).map_err(|_| HttpError::internal())?;
    let (place, sender, memos) = desk.registry.admit(false).ok_or_else(full)?;
    let mut reply = Reply::new(ReplyBody::empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    name_connection(&mut reply, &place.id);
    let headers = reply.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if lists(head, &header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL) {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    }
    let destroy = CancellationToken::new();
    let (writer, reader) = outlet::outlet(destroy.clone());
    let mut attendant = Attendant::new(desk, place, memos, Binding::Socket);
    attendant.plug(writer);
    let mut config = WebSocketConfig::default();
    config.max_message_size = Some(desk.facts.limits.body_bytes);
    config.max_frame_size = Some(desk.facts.limits.body_bytes);
    config.write_buffer_size = WRITE_BYTES;
    config.max_write_buffer_size = WRITE_BYTES_MAX;
    let (peer, loopback) = (from.peer, from.is_loopback());
    let (rate, silence) = (desk.rate.clone(), desk.heartbeat * SILENT_PULSES);
    let serve = async move {
        // The answer may never get out: then there is no socket, and nobody to serve.
        let Ok(upgraded) = upgrade.await else { return };
        let socket = Socket::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
        let carrying = async move {
            let carrier = Carrier { sender, peer, loopback, rate, silence };
            tokio::select! {
                () = carrier.carry(socket, reader) => {}
                () = destroy.cancelled() => {}
            }
            // It may have left before.
            let _ = carrier.sender.send(Memo::Leave).await;
        };
        tokio::join!(attendant.run(), carrying);
    };
    if desk.tasks.send(serve.boxed()).await.is_err() {
        return Err(HttpError::draining());
    }
    Ok(reply)
}

/// Carries between a socket and its attendant.
struct Carrier {
    sender: mpsc::Sender<Memo>,
    peer: Peer,
    loopback: bool,
    rate: Option<Arc<Toll>>,
    silence: Duration,
}

impl Carrier {
    /// Runs until the socket is closed by either side.
    async fn carry(&self, socket: Socket, reader: Reader) {
        let (sink, stream) = socket.split();
        let heard = std::sync::Mutex::new(Instant::now());
        let mut stream = stream;
        let ended = tokio::select! {
            () = self.read(&mut stream, &heard) => None,
            sink = self.write(sink, reader, &heard) => sink,
        };
        // We closed: the client gets a moment to answer, so that it sees why.
        if ended.is_some() {
            let _ = tokio::time::timeout(CLOSE_TIME, async { while let Some(Ok(_)) = stream.next().await {} }).await;
        }
    }

    async fn read(&self, stream: &mut SplitStream<Socket>, heard: &std::sync::Mutex<Instant>) {
        while let Some(Ok(frame)) = stream.next().await {
            if let Ok(mut heard) = heard.lock() {
                *heard = Instant::now();
            }
            let memo = match frame {
                Frame::Text(text) => self.charge(read(&text, self.loopback)),
                Frame::Binary(_) => Memo::Rubbish(Problem::new(rpc::INVALID_REQUEST, "Messages are text frames")),
                Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_) => continue,
                Frame::Close(_) => return,
            };
            if self.sender.send(memo).await.is_err() {
                // The seat is empty; the writer says so.
                std::future::pending::<()>().await;
            }
        }
    }

    /// A message that comes too often is answered instead of passed on. The socket itself was counted when it was opened.
    fn charge(&self, memo: Memo) -> Memo {
        let Memo::Message { message, .. } = &memo else { return memo };
        let (Some(rate), Some(tier)) = (&self.rate, message.tier()) else { return memo };
        let id = match message {
            Message::Request { method, .. } if method == "initialize" => return memo,
            Message::Request { id, .. } => Some(id.clone()),
            Message::Notification { .. } | Message::Response { .. } => None,
        };
        let Admission::Wait { retry_after, limit } = rate.take(self.peer, tier) else { return memo };
        let problem = Problem::new(rpc::INTERNAL, "Rate limit exceeded").with(json!({
            "httpStatus": 429,
            "errorKind": "rate_limit_exceeded",
            "tier": tier.name(),
            "limit": limit,
            "retryAfterMs": crate::facts::millis(retry_after),
        }));
        Memo::Rubbish(match id {
            Some(id) => problem.of(id),
            None => problem,
        })
    }

    /// The socket's half is handed back if it was closed in good order.
    async fn write(
        &self,
        mut sink: SplitSink<Socket, Frame>,
        mut reader: Reader,
        heard: &std::sync::Mutex<Instant>,
    ) -> Option<SplitSink<Socket, Frame>> {
        loop {
            let frame = match poll_fn(|context| reader.poll_item(context)).await {
                Item::Bytes(bytes) => Frame::Text(Utf8Bytes::try_from(bytes).unwrap_or_default()),
                Item::Pulse => {
                    let silent = heard.lock().is_ok_and(|heard| heard.elapsed() >= self.silence);
                    if silent {
                        return None;
                    }
                    Frame::Ping(Bytes::new())
                }
                Item::End(End::Finished(code, reason)) => {
                    let close = CloseFrame { code: CloseCode::from(code), reason: reason.into() };
                    // A client that is gone needs no goodbye.
                    let sent = sink.send(Frame::Close(Some(close))).await;
                    return sent.is_ok().then_some(sink);
                }
                Item::End(End::Evicted) => return None,
            };
            if sink.send(frame).await.is_err() {
                return None;
            }
        }
    }
}

fn read(text: &str, loopback: bool) -> Memo {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Array(_)) => Memo::Rubbish(Problem::new(rpc::INVALID_REQUEST, "JSON-RPC batches are not supported")),
        Ok(value) => match rpc::read(value) {
            Ok(message) => Memo::Message { message, loopback },
            Err(problem) => Memo::Rubbish(problem),
        },
        Err(_) => {
            let mut problem = Problem::new(PARSE_ERROR, "Parse error");
            problem = problem.with(json!({"httpStatus": 400}));
            Memo::Rubbish(problem)
        }
    }
}

/// What is no JSON. Source: JSON-RPC 2.0.
const PARSE_ERROR: i64 = -32700;
