//! `POST`, `GET` and `DELETE /acp`: what is accepted, and with which status?
//!
//! Source: daemon specification, §g.

use bytes::Bytes;
use convoke_protocol::SessionId;
use futures::FutureExt;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};
use hyper::body::Body;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::AcpDesk;
use super::attendant::{Attendant, Memo, Opened};
use super::rpc::{self, Id, Message, Problem};
use super::seat::{Binding, Lane, Resume};
use crate::body;
use crate::http_error::HttpError;
use crate::peer::Connection;
use crate::rate::Admission;
use crate::respond::{self, Reply, ReplyBody};

pub(super) const CONNECTION_ID: HeaderName = HeaderName::from_static("acp-connection-id");
const SESSION_ID: HeaderName = HeaderName::from_static("acp-session-id");
const EPOCH: HeaderName = HeaderName::from_static("x-qwen-event-epoch");
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const EVENT_STREAM: &str = "text/event-stream";

pub(super) async fn answer<B>(desk: &AcpDesk, from: &Connection, head: &Parts, body: B) -> Result<Reply, HttpError>
where
    B: Body<Data = Bytes> + Unpin,
{
    match head.method {
        Method::POST => post(desk, from, head, body).await,
        Method::GET => get(desk, from, head).await,
        _ => delete(desk, head).await,
    }
}

pub(super) fn unauthorized() -> Reply {
    respond::json(StatusCode::UNAUTHORIZED, &json!({"error": "Unauthorized"}))
}

/// All places are taken; there may be one soon.
pub(super) fn full() -> HttpError {
    let body = json!({"error": "Too many ACP connections", "code": "acp_connection_limit"});
    HttpError::new(StatusCode::SERVICE_UNAVAILABLE, body).retry_soon()
}

async fn post<B>(desk: &AcpDesk, from: &Connection, head: &Parts, body: B) -> Result<Reply, HttpError>
where
    B: Body<Data = Bytes> + Unpin,
{
    if !body::is_json(&head.headers) {
        let body = json!({"error": "Content-Type must be application/json"});
        return Err(HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, body));
    }
    let value = body::read_value(body, &desk.facts.limits).await?;
    if value.is_array() {
        let problem = Problem::new(rpc::INVALID_REQUEST, "JSON-RPC batches are not supported");
        return Err(HttpError::new(StatusCode::NOT_IMPLEMENTED, problem.message()));
    }
    let message = rpc::read(value).map_err(|p| HttpError::new(StatusCode::BAD_REQUEST, p.message()))?;
    if let (Some(rate), Some(tier)) = (&desk.rate, message.tier())
        && let Admission::Wait { retry_after, limit } = rate.take(from.peer, tier)
    {
        return Ok(respond::too_many(tier.name(), retry_after, limit));
    }
    if let Message::Request { id, method, .. } = &message
        && method == "initialize"
    {
        return initialize(desk, id).await;
    }
    let id = match &message {
        Message::Request { id, .. } => Some(id.clone()),
        Message::Notification { .. } | Message::Response { .. } => None,
    };
    let memos = find(desk, head, id.as_ref())?;
    let memo = Memo::Message { message, loopback: from.is_loopback() };
    memos.send(memo).await.map_err(|_| unknown(id.as_ref()))?;
    Ok(accepted())
}

/// Every `initialize` makes a connection.
async fn initialize(desk: &AcpDesk, id: &Id) -> Result<Reply, HttpError> {
    let (place, _, memos) = desk.registry.admit(true).ok_or_else(full)?;
    let connection = place.id.clone();
    let attendant = Attendant::new(desk, place, memos, Binding::Streams);
    if desk.tasks.send(attendant.run().boxed()).await.is_err() {
        return Err(HttpError::draining());
    }
    let welcome = rpc::result(id, &desk.house.welcome(&connection));
    let mut reply = respond::json_bytes(StatusCode::OK, welcome);
    name_connection(&mut reply, &connection);
    Ok(reply)
}

pub(super) fn name_connection(reply: &mut Reply, connection: &str) {
    if let Ok(value) = HeaderValue::from_str(connection) {
        reply.headers_mut().insert(CONNECTION_ID, value);
    }
}

async fn get(desk: &AcpDesk, from: &Connection, head: &Parts) -> Result<Reply, HttpError> {
    let accepts = head.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let media = accepts.flat_map(|value| value.split(',')).map(|range| range.split(';').next().unwrap_or_default());
    if !media.into_iter().any(|media| media.trim().eq_ignore_ascii_case(EVENT_STREAM)) {
        return Err(HttpError::new(StatusCode::NOT_ACCEPTABLE, json!({"error": "Accept must be text/event-stream"})));
    }
    let memos = find(desk, head, None)?;
    let (lane, resume) = match text(head, &SESSION_ID) {
        None => (Lane::Connection, Resume::default()),
        Some(session) => {
            let last = text(head, &HeaderName::from_static("last-event-id"));
            let last_event_id = last.filter(|id| id.bytes().all(|b| b.is_ascii_digit())).and_then(|id| id.parse().ok());
            let epoch = text(head, &EPOCH).filter(|epoch| !epoch.is_empty()).map(str::to_owned);
            (Lane::Session(SessionId::from(session)), Resume { last_event_id, epoch })
        }
    };
    let (reply, opened) = oneshot::channel();
    let memo = Memo::Open { lane, resume, destroy: from.destroy.clone(), reply };
    memos.send(memo).await.map_err(|_| unknown(None))?;
    let Some(Opened { reader, epoch }) = opened.await.map_err(|_| unknown(None))? else {
        let problem = Problem::new(rpc::INVALID_REQUEST, "The session is not this connection's");
        return Err(HttpError::new(StatusCode::FORBIDDEN, problem.message()));
    };
    let mut reply = Reply::new(ReplyBody::Acp(reader));
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(NO_BUFFERING, HeaderValue::from_static("no"));
    if let Some(epoch) = epoch.and_then(|epoch| HeaderValue::from_str(&epoch).ok()) {
        headers.insert(EPOCH, epoch);
    }
    Ok(reply)
}

/// The client says goodbye. Its sessions stay.
async fn delete(desk: &AcpDesk, head: &Parts) -> Result<Reply, HttpError> {
    let memos = find(desk, head, None)?;
    memos.send(Memo::Leave).await.map_err(|_| unknown(None))?;
    Ok(accepted())
}

fn accepted() -> Reply {
    let mut reply = Reply::new(ReplyBody::empty());
    *reply.status_mut() = StatusCode::ACCEPTED;
    reply
}

fn text<'a>(head: &'a Parts, name: &HeaderName) -> Option<&'a str> {
    head.headers.get(name)?.to_str().ok()
}

fn find(desk: &AcpDesk, head: &Parts, id: Option<&Id>) -> Result<mpsc::Sender<Memo>, HttpError> {
    let Some(connection) = text(head, &CONNECTION_ID) else {
        let problem = problem("The Acp-Connection-Id header is missing", id);
        return Err(HttpError::new(StatusCode::BAD_REQUEST, problem));
    };
    desk.registry.find(connection).ok_or_else(|| unknown(id))
}

fn unknown(id: Option<&Id>) -> HttpError {
    HttpError::new(StatusCode::NOT_FOUND, problem("There is no such ACP connection", id))
}

fn problem(message: &str, id: Option<&Id>) -> Value {
    let problem = Problem::new(rpc::INVALID_REQUEST, message);
    match id {
        Some(id) => problem.of(id.clone()).message(),
        None => problem.message(),
    }
}
