//! Telemetry: what is told about a model call?
//!
//! Events of the [`tracing`] crate, for whoever listens; nothing is exported here. Names are in the field
//! `event.name`:
//!
//! | event | level | fields |
//! |---|---|---|
//! | `gemini_cli.api_request` | info | `call_id`, `gen_ai.operation.name`, `gen_ai.provider.name`, `gen_ai.request.model` |
//! | `gemini_cli.api_request` on target [`PROMPTS`] | debug | `call_id`, `request_text` (the contents as JSON) |
//! | `gemini_cli.api_response` | info | as the request, and `duration_ms`, `gen_ai.response.model`, `gen_ai.response.finish_reasons`, `gen_ai.usage.input_tokens`, `.output_tokens`, `.thoughts_tokens`, `.cached_tokens`, `.tool_tokens`, `.total_tokens` |
//! | `gemini_cli.api_response` on target [`PROMPTS`] | debug | `call_id`, `response_text` |
//! | `gemini_cli.api_error` | info | as the request, and `duration_ms`, `status_code`, `error.type`, `error.message` |
//! | `gemini_cli.network_retry_attempt` | info | `attempt`, `max_attempts`, `delay_ms`, `error.type` |
//! | `gemini_cli.chat.content_retry` | info | the same and `gen_ai.request.model` |
//! | `gemini_cli.chat.content_retry_failure` | info | `error.type` |
//! | `gemini_cli.model_routing` | info | `decision_model`, `decision_source`, `routing_latency_ms`, `reasoning`, `failed`, `error_message` |
//! | `gemini_cli.flash_fallback` | info | `from_model`, `to_model`, `error.type`, `asked` |
//! | `convoke.model_fallback_question` | info | `from_model`, `to_model`, `error.type`, `intent` |
//!
//! There is one request event per attempt. No prompt and no answer is told above debug level.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::{LlmRequest, ModelError, UsageMetadata};
use convoke_stdx::{Clock, Now};
use futures::StreamExt;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tracing::{Level, enabled, event, info};

use crate::catalog::ModelName;
use crate::chain::FailureKind;
use crate::fallback::{FallbackQuestion, Intent};
use crate::generator::{
    ContentGenerator, EmbedRequest, EmbedResponse, GenerateResponse, ResponseStream, TokenCount, cancelled,
};
use crate::retry::RetryNotice;
use crate::routing::Decision;

/// The target of the events that carry text.
pub const PROMPTS: &str = "convoke_models::prompts";

/// Tells about every call that passes.
pub(crate) struct Observed {
    inner: Arc<dyn ContentGenerator>,
    provider: &'static str,
    clock: Clock,
}

impl Observed {
    pub(crate) fn new(inner: Arc<dyn ContentGenerator>, provider: &'static str) -> Self {
        Self { inner, provider, clock: Clock::start() }
    }

    fn begin(&self, operation: &'static str, model: &str, text: impl FnOnce() -> Option<String>) -> Call {
        let call = Call {
            open: true,
            id: uuid::Uuid::new_v4().to_string(),
            operation,
            provider: self.provider,
            model: model.to_owned(),
            clock: self.clock,
            start: self.clock.now(),
        };
        info!(
            event.name = "gemini_cli.api_request",
            call_id = call.id,
            gen_ai.operation.name = operation,
            gen_ai.provider.name = self.provider,
            gen_ai.request.model = model,
        );
        if enabled!(target: PROMPTS, Level::DEBUG)
            && let Some(request_text) = text()
        {
            event!(target: PROMPTS, Level::DEBUG, event.name = "gemini_cli.api_request", call_id = call.id, request_text);
        }
        call
    }
}

/// One call under way. One that is dropped before its end was given up by its caller, and says so.
struct Call {
    open: bool,
    id: String,
    operation: &'static str,
    provider: &'static str,
    model: String,
    clock: Clock,
    start: Now,
}

/// What is known of an answer at its end.
#[derive(Default)]
struct Seen {
    model: Option<String>,
    finish_reason: Option<String>,
    usage: UsageMetadata,
    text: Option<String>,
}

impl Seen {
    fn new() -> Self {
        Self { text: enabled!(target: PROMPTS, Level::DEBUG).then(String::new), ..Self::default() }
    }

    fn see(&mut self, piece: &GenerateResponse) {
        if let Some(model) = piece.model_version() {
            self.model = Some(model.to_owned());
        }
        if let Some(reason) = piece.finish_reason() {
            self.finish_reason = Some(reason.to_owned());
        }
        if let Some(usage) = piece.usage() {
            self.usage = usage;
        }
        if let Some(text) = &mut self.text {
            text.push_str(&piece.text());
        }
    }
}

impl Call {
    fn duration_ms(&self) -> u64 {
        millis(self.clock.now().tick.since(self.start.tick))
    }

    fn succeeded(&mut self, seen: &Seen) {
        self.open = false;
        info!(
            event.name = "gemini_cli.api_response",
            call_id = self.id,
            gen_ai.operation.name = self.operation,
            gen_ai.provider.name = self.provider,
            gen_ai.request.model = self.model,
            gen_ai.response.model = seen.model.as_deref().unwrap_or(&self.model),
            gen_ai.response.finish_reasons = seen.finish_reason.as_deref(),
            gen_ai.usage.input_tokens = seen.usage.prompt_token_count,
            gen_ai.usage.output_tokens = seen.usage.candidates_token_count,
            gen_ai.usage.thoughts_tokens = seen.usage.thoughts_token_count,
            gen_ai.usage.cached_tokens = seen.usage.cached_content_token_count,
            gen_ai.usage.tool_tokens = seen.usage.tool_use_prompt_token_count,
            gen_ai.usage.total_tokens = seen.usage.total_token_count,
            duration_ms = self.duration_ms(),
        );
        if let Some(response_text) = &seen.text {
            event!(target: PROMPTS, Level::DEBUG, event.name = "gemini_cli.api_response", call_id = self.id, response_text);
        }
    }

    fn failed(&mut self, error: &ModelError) {
        self.open = false;
        info!(
            event.name = "gemini_cli.api_error",
            call_id = self.id,
            gen_ai.operation.name = self.operation,
            gen_ai.provider.name = self.provider,
            gen_ai.request.model = self.model,
            error.r#type = ?error.kind,
            error.message = error.message,
            status_code = error.status,
            duration_ms = self.duration_ms(),
        );
    }

    fn ended<T>(&mut self, result: &Result<T, ModelError>, see: impl FnOnce(&T, &mut Seen)) {
        match result {
            Ok(value) => {
                let mut seen = Seen::new();
                see(value, &mut seen);
                self.succeeded(&seen);
            }
            Err(error) => self.failed(error),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.open {
            self.failed(&cancelled());
        }
    }
}

#[async_trait]
impl ContentGenerator for Observed {
    async fn generate_content(
        &self,
        request: Arc<LlmRequest>,
        cancel: CancellationToken,
    ) -> Result<GenerateResponse, ModelError> {
        let mut call = self.begin("generate_content", &request.model, || json(&request.contents));
        let result = self.inner.generate_content(request, cancel).await;
        call.ended(&result, |response, seen| seen.see(response));
        result
    }

    fn generate_content_stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> ResponseStream {
        let mut call = self.begin("generate_content", &request.model, || json(&request.contents));
        let mut stream = self.inner.generate_content_stream(request, cancel);
        let told = async_stream::stream! {
            let mut seen = Seen::new();
            while let Some(item) = stream.next().await {
                match &item {
                    Ok(piece) => seen.see(piece),
                    Err(error) => {
                        call.failed(error);
                        yield item;
                        return;
                    }
                }
                yield item;
            }
            call.succeeded(&seen);
        };
        told.boxed()
    }

    async fn count_tokens(
        &self,
        request: Arc<LlmRequest>,
        cancel: CancellationToken,
    ) -> Result<TokenCount, ModelError> {
        let mut call = self.begin("count_tokens", &request.model, || json(&request.contents));
        let result = self.inner.count_tokens(request, cancel).await;
        call.ended(&result, |count, seen| seen.usage.prompt_token_count = count.total_tokens);
        result
    }

    async fn embed_content(
        &self,
        request: EmbedRequest,
        cancel: CancellationToken,
    ) -> Result<EmbedResponse, ModelError> {
        let mut call = self.begin("embeddings", &request.model, || json(&request.texts));
        let result = self.inner.embed_content(request, cancel).await;
        call.ended(&result, |_, _| {});
        result
    }
}

/// A wait is about to begin.
pub(crate) fn network_retry(notice: &RetryNotice) {
    info!(
        event.name = "gemini_cli.network_retry_attempt",
        attempt = notice.failed_attempts,
        max_attempts = notice.max_attempts,
        delay_ms = millis(notice.delay),
        error.r#type = ?notice.error.kind,
    );
}

/// A stream is about to be repeated.
pub(crate) fn content_retry(model: &str, notice: &RetryNotice) {
    info!(
        event.name = "gemini_cli.chat.content_retry",
        gen_ai.request.model = model,
        attempt = notice.failed_attempts,
        max_attempts = notice.max_attempts,
        delay_ms = millis(notice.delay),
        error.r#type = ?notice.error.kind,
    );
}

/// A model was chosen for a prompt.
pub(crate) fn routed(decision: &Decision) {
    info!(
        event.name = "gemini_cli.model_routing",
        decision_model = decision.model.as_str(),
        decision_source = decision.source,
        routing_latency_ms = decision.latency_ms,
        reasoning = decision.reasoning,
        failed = decision.error.is_some(),
        error_message = decision.error,
    );
}

/// Somebody was asked whether another model may take over.
pub(crate) fn asked(question: &FallbackQuestion, intent: Option<Intent>) {
    info!(
        event.name = "convoke.model_fallback_question",
        from_model = question.failed.as_str(),
        to_model = question.stand_in.as_str(),
        error.r#type = question.kind.name(),
        intent = intent.map(Intent::name),
    );
}

/// Another model takes over.
pub(crate) fn fell_back(from: &ModelName, to: &ModelName, kind: FailureKind, asked: bool) {
    info!(
        event.name = "gemini_cli.flash_fallback",
        from_model = from.as_str(),
        to_model = to.as_str(),
        error.r#type = kind.name(),
        asked,
    );
}

/// A stream is not repeated any more.
pub(crate) fn gave_up(error: &ModelError) {
    info!(event.name = "gemini_cli.chat.content_retry_failure", error.r#type = ?error.kind);
}

fn json(value: &impl Serialize) -> Option<String> {
    serde_json::to_string(value).ok()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
