//! What the agent writes: what of it goes to the owner, what to the SDK, and what nowhere?
//!
//! Between the pipe and the SDK's unbounded queues stands a [`Gate`]. It lets through one request at a time, answers
//! only to calls that are open, and withdrawals only of requests that are open and once each. Updates and permission
//! requests wait for a place in the owner's queue before the next line is read, so their order is the wire's.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol as sdk;
use convoke_protocol::SessionId;
use futures::channel::mpsc::UnboundedSender;
use sdk::{RawJsonRpcId, RawJsonRpcMessage, TransportFrame};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::AsyncRead;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::lines::{Line, Lines};

use super::backlog::Backlog;
use super::error::EndCause;
use super::event::{ChildEvent, Publisher, Slot, UpdateEvent};
use super::permission::{PermissionAsk, PermissionReply};
use super::served::{CallReply, ClientCall, is_served};

/// Requests that an agent may leave open. A daemon caps pending permissions at 64 per session; an agent serves some
/// sessions, and hundreds more are a flood.
const REQUESTS_MAX: usize = 1024;

/// How much of a line that makes no sense is logged.
const LOGGED_CHARS: usize = 200;

/// The envelope of a JSON-RPC message, its parts unread.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateParams {
    session_id: SessionId,
    update: Box<RawValue>,
    #[serde(rename = "_meta", default)]
    meta: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PermissionParams {
    session_id: SessionId,
    #[serde(default)]
    tool_call: Value,
    #[serde(default)]
    options: Value,
    #[serde(rename = "_meta", default)]
    meta: Option<Value>,
}

/// Which messages are open between the agent and us.
#[derive(Debug, Default)]
pub(super) struct Gate {
    open: Mutex<Open>,
    moved: Notify,
    gone: CancellationToken,
    /// Whether the owner serves files and terminals.
    serves: bool,
    /// The owner's answers that the agent has not taken.
    backlog: Arc<Backlog>,
}

#[derive(Debug, Default)]
struct Open {
    /// The agent's requests without an answer yet, and whether each was withdrawn.
    inbound: HashMap<RawJsonRpcId, bool>,
    /// Our calls without an answer yet.
    outbound: HashSet<RawJsonRpcId>,
    /// The request that the SDK is looking at.
    handing: Option<RawJsonRpcId>,
    /// The place in the owner's queue for that request.
    slot: Option<Slot>,
}

impl Gate {
    /// `gone` is cancelled when the connection ends.
    pub(super) fn new(gone: CancellationToken, serves: bool) -> Self {
        Self { gone, serves, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request of this method goes to the owner.
    fn is_for_owner(&self, method: &str) -> bool {
        method == PERMISSION || self.serves && is_served(method)
    }

    /// Notes a message on its way to the agent. Every one passes here before it is written.
    pub(super) fn outgoing(&self, message: &RawJsonRpcMessage) {
        match message {
            RawJsonRpcMessage::Request(request) => {
                self.lock().outbound.insert(request.id.clone());
            }
            RawJsonRpcMessage::Notification(_) => {}
            RawJsonRpcMessage::Response(_) => {
                if let Some(id) = message.response_id() {
                    self.lock().inbound.remove(id);
                    self.backlog.written(id);
                    self.handed(id);
                }
            }
        }
    }

    /// The SDK is done looking at this request, whether or not it is answered.
    fn handed(&self, id: &RawJsonRpcId) {
        let mut open = self.lock();
        if open.handing.as_ref() == Some(id) {
            open.handing = None;
            open.slot = None;
            drop(open);
            self.moved.notify_one();
        }
    }

    async fn wait_handed(&self) {
        while self.lock().handing.is_some() {
            // A notification between the look and the wait is kept for this wait.
            self.moved.notified().await;
        }
    }

    /// Hands a request that the SDK read to the owner, or refuses it: this client has no other methods.
    pub(super) fn request(&self, request: sdk::UntypedMessage, responder: sdk::Responder) -> Result<(), sdk::Error> {
        let id = responder.raw_id().clone();
        let slot = self.lock().slot.take();
        let result = match (slot, request.method.as_str()) {
            (Some(slot), PERMISSION) => match PermissionParams::deserialize(request.params) {
                Ok(PermissionParams { session_id, tool_call, options, meta }) => {
                    let reply = PermissionReply::new(responder, self.gone.clone());
                    let ask = PermissionAsk { session_id, tool_call, options, meta, reply };
                    slot.send(ChildEvent::PermissionRequest(Box::new(ask)));
                    Ok(())
                }
                Err(error) => responder.respond_with_error(sdk::Error::invalid_params().data(error.to_string())),
            },
            // No place was kept: the agent is being closed.
            (None, PERMISSION) => {
                drop(PermissionReply::new(responder, self.gone.clone()));
                Ok(())
            }
            (Some(slot), method) if self.is_for_owner(method) => {
                match request.params.get("sessionId").and_then(Value::as_str).map(SessionId::from) {
                    Some(session_id) => {
                        let reply = CallReply::new(responder, Arc::clone(&self.backlog), self.gone.clone());
                        let call = ClientCall { session_id, method: request.method, params: request.params, reply };
                        slot.send(ChildEvent::Call(Box::new(call)));
                        Ok(())
                    }
                    None => responder.respond_with_error(sdk::Error::invalid_params().data("sessionId is missing")),
                }
            }
            (_, method) => responder.respond_with_error(sdk::Error::method_not_found().data(method.to_owned())),
        };
        self.handed(&id);
        result
    }
}

const PERMISSION: &str = "session/request_permission";
const UPDATE: &str = "session/update";
const CANCEL: &str = "$/cancel_request";

/// Reads an agent's output.
pub(super) struct Intake {
    pub(super) gate: Arc<Gate>,
    pub(super) publisher: Publisher,
    pub(super) to_sdk: UnboundedSender<TransportFrame>,
    pub(super) closing: CancellationToken,
    /// Counts lines that made no sense.
    pub(super) ignored: Arc<AtomicU64>,
}

impl Intake {
    /// Reads until the pipe ends, and says why.
    pub(super) async fn run(self, output: impl AsyncRead + Unpin, line_bytes_max: usize) -> EndCause {
        let mut lines = Lines::new(output, line_bytes_max);
        loop {
            let line = match lines.next().await {
                Ok(Line::Bytes(line)) => line,
                Ok(Line::End) => return EndCause::Exited,
                Ok(Line::TooLong) => return EndCause::LineTooLong { limit: line_bytes_max },
                Err(error) => return EndCause::Broken(format!("read from the agent: {error}")),
            };
            if let Err(end) = self.line(&line).await {
                return end;
            }
        }
    }

    async fn line(&self, line: &[u8]) -> Result<(), EndCause> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let Ok(text) = std::str::from_utf8(line) else { return self.ignore(&String::from_utf8_lossy(line)) };
        let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(text) else { return self.ignore(text) };
        if envelope.method.as_deref() == Some(UPDATE) && envelope.id.is_none() {
            let params = envelope.params.and_then(|params| UpdateParams::deserialize(params).ok());
            return match params {
                Some(params) => self.update(params, line.len()).await,
                None => self.ignore(text),
            };
        }
        match TransportFrame::parse_json(text) {
            TransportFrame::Single(message) => self.message(message, text).await,
            _ => self.ignore(text),
        }
    }

    fn ignore(&self, text: &str) -> Result<(), EndCause> {
        let count = self.ignored.fetch_add(1, Ordering::Relaxed) + 1;
        let start: String = text.chars().take(LOGGED_CHARS).collect();
        tracing::debug!(count, line = start, "ignored a line of the agent's output");
        Ok(())
    }

    async fn update(&self, params: UpdateParams, bytes: usize) -> Result<(), EndCause> {
        let UpdateParams { session_id, update, meta } = params;
        if let Some(slot) = self.reserve(bytes).await? {
            slot.send(ChildEvent::Update(UpdateEvent { session_id, update, meta }));
        }
        Ok(())
    }

    /// A place in the owner's queue. While the agent is being closed nobody waits for one: the pipe must keep flowing,
    /// or the agent could not exit.
    async fn reserve(&self, bytes: usize) -> Result<Option<Slot>, EndCause> {
        tokio::select! {
            biased;
            slot = self.publisher.reserve(bytes) => slot.map(Some).ok_or(EndCause::Closed),
            () = self.closing.cancelled() => Ok(None),
        }
    }

    async fn message(&self, message: RawJsonRpcMessage, text: &str) -> Result<(), EndCause> {
        match &message {
            RawJsonRpcMessage::Request(request) => {
                let id = request.id.clone();
                let known = {
                    let open = self.gate.lock();
                    if open.inbound.len() >= REQUESTS_MAX {
                        return Err(EndCause::TooManyRequests { limit: REQUESTS_MAX });
                    }
                    open.inbound.contains_key(&id)
                };
                if known || id == RawJsonRpcId::Null {
                    return self.ignore(text);
                }
                let slot = match self.gate.is_for_owner(&request.method) {
                    true => self.reserve(text.len()).await?,
                    false => None,
                };
                {
                    let mut open = self.gate.lock();
                    open.inbound.insert(id.clone(), false);
                    open.handing = Some(id);
                    open.slot = slot;
                }
                self.forward(message)?;
                self.gate.wait_handed().await;
                Ok(())
            }
            RawJsonRpcMessage::Notification(notification) if &*notification.method == CANCEL => {
                let params = notification.params.clone().map(sdk::RawJsonRpcParams::into_value);
                let id = params.as_ref().and_then(|params| RawJsonRpcId::deserialize(params.get("requestId")?).ok());
                let first = id
                    .and_then(|id| self.gate.lock().inbound.get_mut(&id).map(|done| !std::mem::replace(done, true)))
                    .unwrap_or(false);
                if first { self.forward(message) } else { Ok(()) }
            }
            RawJsonRpcMessage::Notification(notification) => {
                tracing::debug!(method = %notification.method, "ignored a notification of the agent");
                Ok(())
            }
            RawJsonRpcMessage::Response(_) => {
                let open = message.response_id().is_some_and(|id| self.gate.lock().outbound.remove(id));
                if open { self.forward(message) } else { self.ignore(text) }
            }
        }
    }

    fn forward(&self, message: RawJsonRpcMessage) -> Result<(), EndCause> {
        self.to_sdk
            .unbounded_send(TransportFrame::Single(message))
            .map_err(|_| EndCause::Broken("the connection's driver ended".to_owned()))
    }
}
