//! Hooks around a model call, as a plugin of the kernel.
//!
//! The kernel asks once per model call: retries and stand-ins are behind it. Where nothing is configured nothing is
//! translated either, so a stream is not held up.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use convoke_adk::{Content, InvocationContext, LlmRequest, LlmResponse, Plugin, PluginError, Role, StopReason};
use serde_json::{Map, Value};

use super::verdict::Verdict;
use super::{BLOCKED, HookEvent, STOP_EXECUTION, SessionHooks, conversation};

/// Invocations that may be under way with one bridge: a session has one at a time, and agents that it started a few more.
const INVOCATIONS_MAX: usize = 32;

/// Runs `BeforeToolSelection`, `BeforeModel` and `AfterModel`.
pub(crate) struct HookBridge {
    hooks: Arc<SessionHooks>,
    running: Mutex<Vec<Running>>,
}

/// What is remembered of an invocation from its request to the pieces of its answer.
struct Running {
    invocation: String,
    request: Arc<Value>,
    /// A hook ended it: what the model says after that is not heard.
    over: bool,
}

impl HookBridge {
    pub(crate) fn new(hooks: Arc<SessionHooks>) -> Self {
        Self { hooks, running: Mutex::default() }
    }

    fn with<T>(&self, step: impl FnOnce(&mut Vec<Running>) -> T) -> T {
        step(&mut self.running.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Remembers the request for the hooks of its answer.
    fn asked(&self, cx: &InvocationContext, request: Value) {
        self.with(|running| {
            running.retain(|one| one.invocation != cx.invocation_id);
            if running.len() == INVOCATIONS_MAX {
                running.remove(0);
            }
            let invocation = cx.invocation_id.clone();
            running.push(Running { invocation, request: Arc::new(request), over: false });
        });
    }

    fn request_of(&self, cx: &InvocationContext) -> (Arc<Value>, bool) {
        self.with(|running| {
            let found = running.iter().find(|one| one.invocation == cx.invocation_id);
            found.map_or_else(|| (Arc::new(Value::Null), false), |one| (one.request.clone(), one.over))
        })
    }

    fn end(&self, cx: &InvocationContext) {
        self.with(|running| {
            running.iter_mut().filter(|one| one.invocation == cx.invocation_id).for_each(|one| one.over = true);
        });
    }
}

/// Ends the invocation if `verdict` says so; whether it does.
fn stopped(cx: &InvocationContext, verdict: &Verdict) -> bool {
    let reason = match (&verdict.stop, &verdict.deny) {
        (Some(why), _) => {
            StopReason { code: STOP_EXECUTION.to_owned(), message: format!("Agent execution stopped by hook: {why}") }
        }
        (None, Some(why)) => StopReason { code: BLOCKED.to_owned(), message: why.clone() },
        (None, None) => return false,
    };
    cx.stop.request(reason);
    true
}

/// Nothing is said.
fn silence() -> LlmResponse {
    LlmResponse { content: Some(Content { role: Role::Model, parts: Vec::new() }), ..LlmResponse::default() }
}

fn field(name: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value)])
}

#[async_trait]
impl Plugin for HookBridge {
    fn name(&self) -> &str {
        "hooks"
    }

    async fn before_tool_selection(
        &self,
        _: &InvocationContext,
        request: &LlmRequest,
    ) -> Result<Option<Vec<String>>, PluginError> {
        let event = HookEvent::BeforeToolSelection;
        if !self.hooks.has(event) {
            return Ok(None);
        }
        let fields = field("llm_request", conversation::request_json(request));
        let allowed = self.hooks.fire(event, None, fields).await.allowed_tools();
        // A hook can't offer what is not there.
        Ok(allowed.map(|names| names.into_iter().filter(|name| request.tools.contains_key(name)).collect()))
    }

    async fn before_model(
        &self,
        cx: &InvocationContext,
        request: &mut LlmRequest,
    ) -> Result<Option<LlmResponse>, PluginError> {
        let event = HookEvent::BeforeModel;
        if self.hooks.has(event) {
            let fields = field("llm_request", conversation::request_json(request));
            let verdict = self.hooks.fire(event, None, fields).await;
            let answer = verdict.llm_response.as_ref().map(conversation::synthetic);
            if stopped(cx, &verdict) {
                return Ok(Some(answer.unwrap_or_else(silence)));
            }
            if answer.is_some() {
                return Ok(answer);
            }
            if let Some(changed) = &verdict.llm_request {
                conversation::change_request(request, changed);
            }
        }
        if self.hooks.has(HookEvent::AfterModel) {
            self.asked(cx, conversation::request_json(request));
        }
        Ok(None)
    }

    async fn after_model(
        &self,
        cx: &InvocationContext,
        response: &LlmResponse,
    ) -> Result<Option<LlmResponse>, PluginError> {
        let event = HookEvent::AfterModel;
        if !self.hooks.has(event) {
            return Ok(None);
        }
        let (request, over) = self.request_of(cx);
        if over {
            // Tokens were spent all the same.
            return Ok(Some(LlmResponse { usage: response.usage.clone(), ..silence() }));
        }
        let mut fields = field("llm_request", Value::clone(&request));
        fields.insert("llm_response".to_owned(), conversation::response_json(response));
        let verdict = self.hooks.fire(event, None, fields).await;
        let changed = verdict.llm_response.as_ref().map(|value| conversation::changed_response(response, value));
        if stopped(cx, &verdict) {
            self.end(cx);
            // Not the calls, and not the words, unless the hook put its own in their place.
            let own = verdict.llm_response.as_ref().map(conversation::synthetic);
            return Ok(Some(LlmResponse { usage: response.usage.clone(), ..own.unwrap_or_else(silence) }));
        }
        Ok(changed)
    }

    async fn after_run(&self, cx: &InvocationContext) -> Result<(), PluginError> {
        self.with(|running| running.retain(|one| one.invocation != cx.invocation_id));
        Ok(())
    }
}
