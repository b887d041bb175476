//! Telemetry: what is told about a model call?
//!
//! Events and spans of the [`tracing`] crate, for whoever listens; nothing is exported here. An event is on the target
//! [`TELEMETRY`] and has its name in the field `event.name`; names are those that dashboards for Gemini CLI know, with the
//! conventions of OpenTelemetry (`gen_ai.*`) beside them:
//!
//! | event | fields |
//! |---|---|
//! | `gemini_cli.api_request` | `call_id`, `model`, `role` (what for: `main`, `subagent`, `utility_…`), `request_text` (the contents as JSON), `gen_ai.operation.name`, `gen_ai.provider.name`, `gen_ai.request.model` |
//! | `gemini_cli.api_response` | as the request without its text, and `status_code`, `duration_ms`, `finish_reasons`, `response_text`, `input_token_count`, `output_token_count`, `thoughts_token_count`, `cached_content_token_count`, `tool_token_count`, `total_token_count`, `gen_ai.response.model`, `gen_ai.response.finish_reasons`, `gen_ai.usage.input_tokens`, `gen_ai.usage.output_tokens` |
//! | `gemini_cli.api_error` | as the request without its text, and `duration_ms`, `status_code`, `error_type`, `error`, `error.type` |
//! | `gen_ai.client.inference.operation.details`, on the target [`MESSAGES`] | `call_id`, `gen_ai.request.model`, `gen_ai.input.messages`, `gen_ai.output.messages` (JSON) |
//! | `gemini_cli.network_retry_attempt` | `attempt`, `max_attempts`, `delay_ms`, `error_type` |
//! | `gemini_cli.chat.invalid_chunk` | `model`, `error_message` (what is wrong with a stream that is no answer) |
//! | `gemini_cli.chat.content_retry` | the same and `model` |
//! | `gemini_cli.chat.content_retry_failure` | `error_type` |
//! | `gemini_cli.malformed_json_response` | `model` (a side request's answer that can't be read) |
//! | `gemini_cli.model_routing` | `decision_model`, `decision_source`, `routing_latency_ms`, `reasoning`, `failed`, `error_message` |
//! | `gemini_cli.flash_fallback` | `from_model`, `to_model`, `error_type`, `asked` |
//! | `convoke.model_fallback_question` | `from_model`, `to_model`, `error_type`, `intent` |
//!
//! There is one request event per attempt to get an answer; counting tokens and embedding are told as debug lines only. No
//! text is put together unless somebody listens on the target. A call is a span `generate_content` as well.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::{LlmRequest, ModelError, UsageMetadata};
use convoke_stdx::{Clock, Now};
use futures::StreamExt;
use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Level, Span, enabled, event};

use crate::catalog::ModelName;
use crate::chain::FailureKind;
use crate::fallback::{FallbackQuestion, Intent};
use crate::generator::{
    ContentGenerator, EmbedRequest, EmbedResponse, GenerateResponse, ResponseStream, TokenCount, cancelled,
};
use crate::retry::RetryNotice;
use crate::routing::Decision;

/// The target of telemetry events. They hold what people wrote: a listener that writes logs leaves them out.
pub const TELEMETRY: &str = "convoke::telemetry";

/// The target of events that hold whole conversations, as the conventions for generative AI want them.
pub const MESSAGES: &str = "convoke::telemetry::messages";

/// The target of spans that are meant for export.
const TRACE: &str = "convoke::trace";

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

    fn begin(&self, request: &LlmRequest) -> Call {
        let model = request.model.as_str();
        let span = tracing::info_span!(
            target: TRACE,
            "generate_content",
            otel.name = format!("generate_content {model}"),
            otel.kind = "client",
            otel.status_code = Empty,
            gen_ai.operation.name = OPERATION,
            gen_ai.provider.name = self.provider,
            gen_ai.request.model = model,
            gen_ai.response.model = Empty,
            gen_ai.response.finish_reasons = Empty,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            error.r#type = Empty,
        );
        let call = Call {
            open: true,
            id: uuid::Uuid::new_v4().to_string(),
            provider: self.provider,
            model: model.to_owned(),
            role: if request.purpose.is_empty() { "main" } else { request.purpose },
            clock: self.clock,
            start: self.clock.now(),
            input: enabled!(target: MESSAGES, Level::INFO).then(|| text(&request.contents)),
            span,
        };
        if enabled!(target: TELEMETRY, Level::INFO) {
            event!(
                target: TELEMETRY,
                Level::INFO,
                event.name = "gemini_cli.api_request",
                call_id = call.id,
                model,
                role = call.role,
                request_text = text(&request.contents),
                gen_ai.operation.name = OPERATION,
                gen_ai.provider.name = self.provider,
                gen_ai.request.model = model,
            );
        }
        tracing::debug!(call_id = call.id, model, provider = self.provider, "asks a model");
        call
    }
}

const OPERATION: &str = "generate_content";

/// One call under way. One that is dropped before its end was given up by its caller, and says so.
struct Call {
    open: bool,
    id: String,
    provider: &'static str,
    model: String,
    role: &'static str,
    clock: Clock,
    start: Now,
    /// What was sent, if somebody listens.
    input: Option<String>,
    span: Span,
}

/// What is known of an answer at its end.
#[derive(Default)]
struct Seen {
    model: Option<String>,
    finish_reason: Option<String>,
    usage: UsageMetadata,
    said: Option<Said>,
}

/// What was answered, if somebody listens: the text, and the calls in between.
#[derive(Default)]
struct Said {
    text: String,
    calls: Vec<Value>,
}

impl Seen {
    fn new() -> Self {
        Self { said: enabled!(target: TELEMETRY, Level::INFO).then(Said::default), ..Self::default() }
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
        if let Some(said) = &mut self.said {
            said.text.push_str(&piece.text());
            said.calls.extend(
                piece
                    .function_calls()
                    .into_iter()
                    .map(|call| json!({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.args})),
            );
        }
    }
}

impl Call {
    fn duration_ms(&self) -> u64 {
        millis(self.clock.now().tick.since(self.start.tick))
    }

    fn succeeded(&mut self, seen: &Seen) {
        self.open = false;
        let answered_by = seen.model.as_deref().unwrap_or(&self.model);
        let (usage, duration_ms) = (&seen.usage, self.duration_ms());
        self.span.record("gen_ai.response.model", answered_by);
        self.span.record("gen_ai.response.finish_reasons", seen.finish_reason.as_deref());
        self.span.record("gen_ai.usage.input_tokens", usage.prompt_token_count);
        self.span.record("gen_ai.usage.output_tokens", usage.candidates_token_count);
        tracing::debug!(call_id = self.id, model = self.model, duration_ms, "a model answered");
        let Some(said) = &seen.said else { return };
        event!(
            target: TELEMETRY,
            Level::INFO,
            event.name = "gemini_cli.api_response",
            call_id = self.id,
            model = answered_by,
            role = self.role,
            status_code = 200,
            duration_ms,
            finish_reasons = seen.finish_reason.as_deref(),
            response_text = said.text,
            input_token_count = usage.prompt_token_count,
            output_token_count = usage.candidates_token_count,
            thoughts_token_count = usage.thoughts_token_count,
            cached_content_token_count = usage.cached_content_token_count,
            tool_token_count = usage.tool_use_prompt_token_count,
            total_token_count = usage.total_token_count,
            gen_ai.operation.name = OPERATION,
            gen_ai.provider.name = self.provider,
            gen_ai.request.model = self.model,
            gen_ai.response.model = answered_by,
            gen_ai.response.finish_reasons = seen.finish_reason.as_deref(),
            gen_ai.usage.input_tokens = usage.prompt_token_count,
            gen_ai.usage.output_tokens = usage.candidates_token_count,
        );
        if let Some(input) = &self.input {
            event!(
                target: MESSAGES,
                Level::INFO,
                event.name = "gen_ai.client.inference.operation.details",
                call_id = self.id,
                gen_ai.operation.name = OPERATION,
                gen_ai.provider.name = self.provider,
                gen_ai.request.model = self.model,
                gen_ai.response.model = answered_by,
                gen_ai.input.messages = input,
                gen_ai.output.messages = output_messages(said, seen.finish_reason.as_deref()).to_string(),
            );
        }
    }

    fn failed(&mut self, error: &ModelError) {
        self.open = false;
        let error_type = format!("{:?}", error.kind);
        self.span.record("otel.status_code", "ERROR");
        self.span.record("error.type", error_type.as_str());
        tracing::debug!(call_id = self.id, model = self.model, error_type, error.message, "a model failed");
        event!(
            target: TELEMETRY,
            Level::INFO,
            event.name = "gemini_cli.api_error",
            call_id = self.id,
            model = self.model,
            role = self.role,
            duration_ms = self.duration_ms(),
            status_code = error.status,
            error_type,
            error = error.message,
            error.r#type = error_type,
            gen_ai.operation.name = OPERATION,
            gen_ai.provider.name = self.provider,
            gen_ai.request.model = self.model,
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

/// The answer as the conventions for generative AI write one.
fn output_messages(said: &Said, finish_reason: Option<&str>) -> Value {
    let text = (!said.text.is_empty()).then(|| json!({"type": "text", "content": said.text}));
    let parts: Vec<Value> = text.into_iter().chain(said.calls.iter().cloned()).collect();
    let reason = match finish_reason {
        _ if !said.calls.is_empty() => "tool_call".to_owned(),
        Some(reason) => reason.to_ascii_lowercase(),
        None => "error".to_owned(),
    };
    json!([{"role": "assistant", "parts": parts, "finish_reason": reason}])
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
        let mut call = self.begin(&request);
        let result = self.inner.generate_content(request, cancel).await;
        call.ended(&result, |response, seen| seen.see(response));
        result
    }

    fn has_answer_to_spare(&self) -> bool {
        self.inner.has_answer_to_spare()
    }

    fn generate_content_stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> ResponseStream {
        let mut call = self.begin(&request);
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
        tracing::debug!(model = request.model, provider = self.provider, "counts tokens");
        self.inner.count_tokens(request, cancel).await
    }

    async fn embed_content(
        &self,
        request: EmbedRequest,
        cancel: CancellationToken,
    ) -> Result<EmbedResponse, ModelError> {
        tracing::debug!(model = request.model, texts = request.texts.len(), provider = self.provider, "embeds texts");
        self.inner.embed_content(request, cancel).await
    }
}

/// A wait is about to begin.
pub(crate) fn network_retry(notice: &RetryNotice) {
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.network_retry_attempt",
        attempt = notice.failed_attempts,
        max_attempts = notice.max_attempts,
        delay_ms = millis(notice.delay),
        error_type = ?notice.error.kind,
    );
}

/// A stream ended, and what came is no answer.
pub(crate) fn no_answer(model: &str, error: &ModelError) {
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.chat.invalid_chunk",
        model,
        error_message = error.message,
    );
}

/// A side request was answered with something else than it asked for.
pub(crate) fn unreadable(model: &str) {
    event!(target: TELEMETRY, Level::INFO, event.name = "gemini_cli.malformed_json_response", model);
}

/// A stream is about to be repeated.
pub(crate) fn content_retry(model: &str, notice: &RetryNotice) {
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.chat.content_retry",
        model,
        attempt = notice.failed_attempts,
        max_attempts = notice.max_attempts,
        delay_ms = millis(notice.delay),
        error_type = ?notice.error.kind,
    );
}

/// A model was chosen for a prompt.
pub(crate) fn routed(decision: &Decision) {
    event!(
        target: TELEMETRY,
        Level::INFO,
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
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "convoke.model_fallback_question",
        from_model = question.failed.as_str(),
        to_model = question.stand_in.as_str(),
        error_type = question.kind.name(),
        intent = intent.map(Intent::name),
    );
}

/// Another model takes over.
pub(crate) fn fell_back(from: &ModelName, to: &ModelName, kind: FailureKind, asked: bool) {
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.flash_fallback",
        from_model = from.as_str(),
        to_model = to.as_str(),
        error_type = kind.name(),
        asked,
    );
}

/// A stream is not repeated any more.
pub(crate) fn gave_up(error: &ModelError) {
    event!(target: TELEMETRY, Level::INFO, event.name = "gemini_cli.chat.content_retry_failure", error_type = ?error.kind);
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
