//! A session's questions on their way to the client.

use std::sync::Arc;

use agent_client_protocol as sdk;
use async_trait::async_trait;
use convoke_protocol::{PermissionOutcome, PermissionPort, PermissionRequest};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::content;

/// Questions on their way to the session's task. They leave at once, unless the client does not read; then the rest
/// waits where it asks.
const QUESTIONS_MAX: usize = 64;

/// A question, and where its answer goes.
pub(super) struct Question {
    pub(super) request: PermissionRequest,
    pub(super) answer: oneshot::Sender<PermissionOutcome>,
}

/// The port that a session gets. It hands questions to the session's task, which puts them behind the events that came
/// before: a client never hears of a call first through a question about it.
#[derive(Debug)]
pub(super) struct AcpPermission {
    questions: mpsc::Sender<Question>,
}

pub(super) fn port() -> (Arc<AcpPermission>, mpsc::Receiver<Question>) {
    let (questions, receiver) = mpsc::channel(QUESTIONS_MAX);
    (Arc::new(AcpPermission { questions }), receiver)
}

#[async_trait]
impl PermissionPort for AcpPermission {
    async fn request(&self, request: PermissionRequest) -> PermissionOutcome {
        let (answer, answered) = oneshot::channel();
        if self.questions.send(Question { request, answer }).await.is_err() {
            return PermissionOutcome::Cancelled;
        }
        answered.await.unwrap_or(PermissionOutcome::Cancelled)
    }
}

/// `params` of `session/request_permission`. Source: ACP v1; `_meta.toolName` as in the daemon's transcripts.
pub(super) fn params(request: &PermissionRequest) -> Value {
    let content: Vec<Value> = request.content.iter().map(content::asked).collect();
    json!({
        "sessionId": request.session_id,
        "toolCall": {
            "toolCallId": request.tool_call_id,
            "title": request.title,
            "kind": request.kind,
            "status": "pending",
            "content": content,
            "locations": request.locations,
            "rawInput": request.raw_input,
            "_meta": {"toolName": request.tool_name},
        },
        "options": request.options,
    })
}

/// Waits for the client's answer. `cancelled` or an asker that went away withdraws the question: the client is sent
/// `$/cancel_request` and is not waited for.
pub(super) async fn settle(sent: sdk::v1::SentRequest<Value>, question: Question, cancelled: CancellationToken) {
    let Question { request, mut answer } = question;
    let outcome = tokio::select! {
        biased;
        () = cancelled.cancelled() => PermissionOutcome::Cancelled,
        () = answer.closed() => return,
        answered = sent.block_task() => match answered {
            Ok(answered) => outcome(&answered, &request),
            Err(error) => {
                tracing::debug!(code = error.code.value(), "the client did not answer a permission request");
                PermissionOutcome::Cancelled
            }
        },
    };
    // The asker may have gone in the same moment.
    let _ = answer.send(outcome);
}

/// An answer that is not on offer is none.
fn outcome(answered: &Value, request: &PermissionRequest) -> PermissionOutcome {
    let chosen = answered.pointer("/outcome/optionId").and_then(Value::as_str);
    let selected = answered.pointer("/outcome/outcome").and_then(Value::as_str) == Some("selected");
    match chosen.filter(|id| selected && request.options.iter().any(|option| option.option_id == **id)) {
        Some(id) => PermissionOutcome::Selected { option_id: id.to_owned() },
        None => PermissionOutcome::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use convoke_protocol::{PermissionOption, PermissionOptionKind, ToolKind};

    use super::*;

    #[test]
    fn only_an_option_on_offer_is_chosen() {
        let option = |id: &str| PermissionOption {
            option_id: id.into(),
            name: id.into(),
            kind: PermissionOptionKind::AllowOnce,
        };
        let request = PermissionRequest {
            session_id: "s".into(),
            tool_call_id: "t".into(),
            tool_name: "x".into(),
            title: "x".into(),
            kind: ToolKind::Other,
            content: vec![],
            locations: vec![],
            raw_input: Value::Null,
            options: vec![option("proceed_once")],
        };
        let selected = |id: &str| outcome(&json!({"outcome": {"outcome": "selected", "optionId": id}}), &request);
        assert_eq!(selected("proceed_once"), PermissionOutcome::Selected { option_id: "proceed_once".into() });
        assert_eq!(selected("proceed_always"), PermissionOutcome::Cancelled);
        let odd = json!({"outcome": {"outcome": "cancelled", "optionId": "proceed_once"}});
        assert_eq!(outcome(&odd, &request), PermissionOutcome::Cancelled);
        assert_eq!(outcome(&json!(null), &request), PermissionOutcome::Cancelled);
    }
}
