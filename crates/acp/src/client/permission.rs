//! An agent's question and the one answer it gets.

use std::sync::Arc;

use agent_client_protocol as sdk;
use convoke_protocol::SessionId;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::rpc_error::RpcError;

/// Where a cancelled answer says why. Source: daemon spec §f.6, "Answer to the agent".
const CANCEL_REASON: &str = "qwen.daemon.permissionCancelReason";

/// An agent asks for permission. Everything but the session's id is as it was on the wire.
#[derive(Debug)]
pub struct PermissionAsk {
    /// The session that asks.
    pub session_id: SessionId,
    /// ACP's `toolCall`.
    pub tool_call: Value,
    /// ACP's `options`.
    pub options: Value,
    /// `_meta` of the request, if there is any.
    pub meta: Option<Value>,
    /// Takes the answer.
    pub reply: PermissionReply,
}

/// Answers one question, once; dropping it answers that the question was cancelled.
///
/// An answer to an agent that is gone, or to a question that it withdrew, goes nowhere.
#[derive(Debug)]
pub struct PermissionReply {
    responder: Option<sdk::Responder>,
    withdrawn: sdk::RequestCancellation,
    settled: CancellationToken,
    gone: CancellationToken,
}

impl PermissionReply {
    /// `gone` is cancelled when the agent's connection ends.
    pub(super) fn new(responder: sdk::Responder, gone: CancellationToken) -> Self {
        let withdrawn = responder.cancellation();
        Self { withdrawn, responder: Some(responder), settled: CancellationToken::new(), gone }
    }

    /// One of the options was chosen.
    pub fn selected(self, option_id: &str) {
        self.selected_with(option_id, Map::new());
    }

    /// One of the options was chosen; `extra` fields, such as `answers`, go beside `outcome`.
    pub fn selected_with(self, option_id: &str, extra: Map<String, Value>) {
        let mut answer = Map::new();
        answer.insert("outcome".to_owned(), json!({"outcome": "selected", "optionId": option_id}));
        answer.extend(extra.into_iter().filter(|(key, _)| key != "outcome"));
        self.answer(Ok(Value::Object(answer)));
    }

    /// Nobody will choose. `reason` is told to the agent in `_meta`: `timeout`, `session_closed`, `agent_cancelled`.
    pub fn cancelled(self, reason: Option<&str>) {
        self.answer(Ok(cancelled(reason)));
    }

    /// The question itself can't be put to anyone.
    pub fn error(self, error: RpcError) {
        self.answer(Err(error));
    }

    /// Tells when the agent withdraws the question. May outlive the reply.
    #[must_use]
    pub fn withdrawal(&self) -> Withdrawal {
        let withdrawn = Arc::new(self.withdrawn.clone());
        Withdrawal { withdrawn, settled: self.settled.clone(), gone: self.gone.clone() }
    }

    fn answer(mut self, answer: Result<Value, RpcError>) {
        respond(self.responder.take(), answer);
    }
}

impl Drop for PermissionReply {
    fn drop(&mut self) {
        respond(self.responder.take(), Ok(cancelled(None)));
        self.settled.cancel();
    }
}

fn respond(responder: Option<sdk::Responder>, answer: Result<Value, RpcError>) {
    let Some(responder) = responder else { return };
    if let Err(error) = responder.respond_with_result(answer.map_err(Into::into)) {
        tracing::debug!(code = error.code.value(), "a permission answer found no agent");
    }
}

fn cancelled(reason: Option<&str>) -> Value {
    let outcome = json!({"outcome": "cancelled"});
    match reason {
        Some(reason) => json!({"outcome": outcome, "_meta": {CANCEL_REASON: reason}}),
        None => json!({"outcome": outcome}),
    }
}

/// Tells whether an agent took its question back.
#[derive(Clone)]
pub struct Withdrawal {
    withdrawn: Arc<sdk::RequestCancellation>,
    settled: CancellationToken,
    gone: CancellationToken,
}

impl Withdrawal {
    /// Waits until the question is over: `true` if the agent withdrew it or is gone, `false` once it was answered or
    /// dropped. Cancel-safe.
    pub async fn wait(&self) -> bool {
        tokio::select! {
            biased;
            () = self.withdrawn.cancelled() => true,
            () = self.gone.cancelled() => true,
            () = self.settled.cancelled() => false,
        }
    }

    /// Whether the question ended with its agent rather than by its wish.
    #[must_use]
    pub fn agent_is_gone(&self) -> bool {
        self.gone.is_cancelled()
    }
}

impl std::fmt::Debug for Withdrawal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Withdrawal").field("withdrawn", &self.withdrawn.is_cancelled()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_answer_says_why_only_if_it_knows() {
        assert_eq!(cancelled(None), json!({"outcome": {"outcome": "cancelled"}}));
        assert_eq!(
            cancelled(Some("timeout")),
            json!({"outcome": {"outcome": "cancelled"}, "_meta": {"qwen.daemon.permissionCancelReason": "timeout"}})
        );
    }
}
