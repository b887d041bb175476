//! What an agent asks its client to do: files and terminals. Who may have what is the owner's to decide.

use std::sync::Arc;

use agent_client_protocol as sdk;
use convoke_protocol::SessionId;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::backlog::Backlog;
use crate::rpc_error::{INTERNAL, RpcError};

/// The methods that a client may serve. Source: ACP v1, file system and terminals.
const METHODS: &[&str] = &[
    "fs/read_text_file",
    "fs/write_text_file",
    "terminal/create",
    "terminal/output",
    "terminal/wait_for_exit",
    "terminal/kill",
    "terminal/release",
];

/// Whether a client may serve `method`.
pub(super) fn is_served(method: &str) -> bool {
    METHODS.contains(&method)
}

/// One request of an agent.
#[derive(Debug)]
pub struct ClientCall {
    /// The session that asks.
    pub session_id: SessionId,
    /// ACP's method, such as `fs/read_text_file`.
    pub method: String,
    /// Its parameters, as they were on the wire.
    pub params: Value,
    /// Takes the answer.
    pub reply: CallReply,
}

/// Answers one request, once; dropping it answers with an error.
#[derive(Debug)]
pub struct CallReply {
    responder: Option<sdk::Responder>,
    backlog: Arc<Backlog>,
    gone: CancellationToken,
}

impl CallReply {
    pub(super) fn new(responder: sdk::Responder, backlog: Arc<Backlog>, gone: CancellationToken) -> Self {
        Self { responder: Some(responder), backlog, gone }
    }

    /// The result, or why there is none; waits until the agent takes it, or is gone.
    ///
    /// For answers that are long: the messages to an agent are queued without a bound.
    pub async fn answer_and_wait(mut self, answer: Result<Value, RpcError>) {
        let Some(id) = self.responder.as_ref().map(|responder| responder.id().clone()) else { return };
        self.backlog.add(id.clone());
        respond(self.responder.take(), answer);
        self.backlog.wait(&id, &self.gone).await;
    }

    /// The result, or why there is none.
    pub fn answer(mut self, answer: Result<Value, RpcError>) {
        respond(self.responder.take(), answer);
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        if self.responder.is_some() {
            respond(self.responder.take(), Err(RpcError::new(INTERNAL, "the request was given up")));
        }
    }
}

fn respond(responder: Option<sdk::Responder>, answer: Result<Value, RpcError>) {
    let Some(responder) = responder else { return };
    if let Err(error) = responder.respond_with_result(answer.map_err(Into::into)) {
        tracing::debug!(code = error.code.value(), "an answer found no agent");
    }
}
