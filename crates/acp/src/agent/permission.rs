//! A session's questions on their way to the client.

use std::sync::Arc;

use agent_client_protocol as sdk;
use async_trait::async_trait;
use convoke_protocol::{PermissionOutcome, PermissionPort, PermissionRequest, QuestionOutcome, QuestionRequest};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::abilities::Abilities;
use super::{content, form};

/// Questions on their way to the session's task. They leave at once, unless the client does not read; then the rest
/// waits where it asks.
const QUESTIONS_MAX: usize = 64;

/// A question, and where its answer goes. Without an answer it counts as cancelled.
pub(super) enum Question {
    /// Whether a call may run, or which of some options it is to be.
    Options(PermissionRequest, oneshot::Sender<PermissionOutcome>),
    /// For a form.
    Form(QuestionRequest, oneshot::Sender<QuestionOutcome>),
}

impl Question {
    /// The request that the client gets.
    pub(super) fn message(&self) -> sdk::UntypedMessage {
        let (method, params) = match self {
            Self::Options(request, _) => ("session/request_permission", params(request)),
            Self::Form(question, _) => (form::CREATE, form::params(question)),
        };
        sdk::UntypedMessage { method: method.to_owned(), params }
    }

    /// Ready once nobody waits for the answer any more.
    async fn withdrawn(&mut self) {
        match self {
            Self::Options(_, answer) => answer.closed().await,
            Self::Form(_, answer) => answer.closed().await,
        }
    }

    /// Hands on what the client answered. An asker that went in the same moment needs nothing.
    fn settle(self, answered: &Value) {
        match self {
            Self::Options(request, answer) => _ = answer.send(outcome(answered, &request)),
            Self::Form(question, answer) => _ = answer.send(form::outcome(answered, &question)),
        }
    }
}

/// The port that a session gets. It hands questions to the session's task, which puts them behind the events that came
/// before: a client never hears of a call first through a question about it.
#[derive(Debug)]
pub(super) struct AcpPermission {
    questions: mpsc::Sender<Question>,
    abilities: Abilities,
}

pub(super) fn port(abilities: Abilities) -> (Arc<AcpPermission>, mpsc::Receiver<Question>) {
    let (questions, receiver) = mpsc::channel(QUESTIONS_MAX);
    (Arc::new(AcpPermission { questions, abilities }), receiver)
}

#[async_trait]
impl PermissionPort for AcpPermission {
    async fn request(&self, request: PermissionRequest) -> PermissionOutcome {
        let (answer, answered) = oneshot::channel();
        if self.questions.send(Question::Options(request, answer)).await.is_err() {
            return PermissionOutcome::Cancelled;
        }
        answered.await.unwrap_or(PermissionOutcome::Cancelled)
    }

    fn takes_questions(&self) -> bool {
        self.abilities.forms()
    }

    async fn ask(&self, question: QuestionRequest) -> QuestionOutcome {
        let (answer, answered) = oneshot::channel();
        if !self.abilities.forms() || self.questions.send(Question::Form(question, answer)).await.is_err() {
            return QuestionOutcome::Cancelled;
        }
        answered.await.unwrap_or(QuestionOutcome::Cancelled)
    }
}

/// `params` of `session/request_permission`. Source: ACP v1; `_meta.toolName` as in the daemon's transcripts.
///
/// A subagent's question says who asks, for people in its title and for programs in `_meta.agentPath`.
pub(super) fn params(request: &PermissionRequest) -> Value {
    let mut meta = json!({"toolName": request.tool_name});
    let mut title = request.title.clone();
    if let (Some(agent), Value::Object(meta)) = (request.origin.last(), &mut meta) {
        title = format!("{}: {title}", request.origin.join(" › "));
        meta.insert("agentName".to_owned(), json!(agent));
        meta.insert("agentPath".to_owned(), json!(request.origin));
    }
    let content: Vec<Value> = request.content.iter().map(content::asked).collect();
    json!({
        "sessionId": request.session_id,
        "toolCall": {
            "toolCallId": request.tool_call_id,
            "title": title,
            "kind": request.kind,
            "status": "pending",
            "content": content,
            "locations": request.locations,
            "rawInput": request.raw_input,
            "_meta": meta,
        },
        "options": request.options,
    })
}

/// Waits for the client's answer. `cancelled` or an asker that went away withdraws the question: the client is sent
/// `$/cancel_request` and is not waited for.
pub(super) async fn settle(sent: sdk::v1::SentRequest<Value>, mut question: Question, cancelled: CancellationToken) {
    let answered = tokio::select! {
        biased;
        () = cancelled.cancelled() => return,
        () = question.withdrawn() => return,
        answered = sent.block_task() => answered,
    };
    match answered {
        Ok(answered) => question.settle(&answered),
        Err(error) => tracing::debug!(code = error.code.value(), "the client did not answer a question"),
    }
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
    fn a_subagents_question_says_who_asks() {
        let mut request = request(Vec::new());
        assert_eq!(params(&request)["toolCall"]["title"], "x");
        assert_eq!(params(&request)["toolCall"]["_meta"], json!({"toolName": "x"}));
        request.origin = vec!["generalist".into(), "tester".into()];
        assert_eq!(params(&request)["toolCall"]["title"], "generalist › tester: x");
        let meta = json!({"toolName": "x", "agentName": "tester", "agentPath": ["generalist", "tester"]});
        assert_eq!(params(&request)["toolCall"]["_meta"], meta);
    }

    fn request(options: Vec<PermissionOption>) -> PermissionRequest {
        PermissionRequest {
            session_id: "s".into(),
            tool_call_id: "t".into(),
            tool_name: "x".into(),
            title: "x".into(),
            kind: ToolKind::Other,
            content: vec![],
            locations: vec![],
            raw_input: Value::Null,
            options,
            origin: vec![],
        }
    }

    #[test]
    fn only_an_option_on_offer_is_chosen() {
        let option = |id: &str| PermissionOption {
            option_id: id.into(),
            name: id.into(),
            kind: PermissionOptionKind::AllowOnce,
        };
        let request = request(vec![option("proceed_once")]);
        let selected = |id: &str| outcome(&json!({"outcome": {"outcome": "selected", "optionId": id}}), &request);
        assert_eq!(selected("proceed_once"), PermissionOutcome::Selected { option_id: "proceed_once".into() });
        assert_eq!(selected("proceed_always"), PermissionOutcome::Cancelled);
        let odd = json!({"outcome": {"outcome": "cancelled", "optionId": "proceed_once"}});
        assert_eq!(outcome(&odd, &request), PermissionOutcome::Cancelled);
        assert_eq!(outcome(&json!(null), &request), PermissionOutcome::Cancelled);
    }
}
