//! A scripted model and a bare context for the kernel's tests.

use std::sync::{Arc, Mutex};

use futures::stream::{self, BoxStream, StreamExt};
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{FinishReason, FunctionCall, Llm, LlmRequest, LlmResponse, ModelError, Part, Role};

pub(crate) fn key() -> SessionKey {
    SessionKey { app_name: "app".into(), user_id: "user".into(), session_id: "s".into() }
}

pub(crate) fn context(sessions: &dyn SessionService) -> InvocationContext {
    InvocationContext {
        invocation_id: "e-1".into(),
        session: sessions.create(key(), Map::new(), 0).unwrap(),
        agent_name: "agent".into(),
        branch: None,
        cancel: CancellationToken::new(),
        stop: StopSignal::default(),
        inbox: Inbox::default(),
        plugins: Arc::new(PluginManager::default()),
        config: RunConfig::default(),
        clock: Clock::start(),
        llm_calls: Arc::default(),
    }
}

/// One scripted answer: pieces, or a failure behind them.
pub(crate) type Answer = Vec<Result<LlmResponse, ModelError>>;

/// Answers from a list and remembers what it was asked.
#[derive(Default)]
pub(crate) struct ScriptedLlm {
    pub(crate) answers: Mutex<Vec<Answer>>,
    pub(crate) requests: Mutex<Vec<LlmRequest>>,
}

impl ScriptedLlm {
    pub(crate) fn new(answers: Vec<Answer>) -> Arc<Self> {
        let mut answers = answers;
        answers.reverse();
        Arc::new(Self { answers: Mutex::new(answers), requests: Mutex::default() })
    }
}

impl Llm for ScriptedLlm {
    fn model(&self) -> String {
        "scripted".into()
    }

    fn generate(
        &self,
        request: LlmRequest,
        _: CancellationToken,
    ) -> BoxStream<'static, Result<LlmResponse, ModelError>> {
        self.requests.lock().unwrap().push(request);
        match self.answers.lock().unwrap().pop() {
            Some(answer) => stream::iter(answer).boxed(),
            None => stream::pending().boxed(),
        }
    }
}

pub(crate) fn text(text: &str) -> Result<LlmResponse, ModelError> {
    piece(vec![Part::text(text)])
}

pub(crate) fn piece(parts: Vec<Part>) -> Result<LlmResponse, ModelError> {
    Ok(LlmResponse { content: Some(Content { role: Role::Model, parts }), ..LlmResponse::default() })
}

pub(crate) fn call(name: &str) -> Part {
    Part::call(&FunctionCall { id: None, name: name.into(), args: json!({"n": 1}) })
}

pub(crate) fn end(reason: &str) -> Result<LlmResponse, ModelError> {
    Ok(LlmResponse { finish_reason: Some(FinishReason(reason.into())), ..LlmResponse::default() })
}
