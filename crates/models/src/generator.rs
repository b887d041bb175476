//! The port: what can a model be asked, and what does it answer?
//!
//! Requests are the kernel's model-neutral [`LlmRequest`]; answers are the JSON of the Gemini API, kept as it came and
//! read through views, so that nothing a provider adds gets lost on the way to a recording.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::{
    Content, FinishReason, FunctionCall, LlmRequest, LlmResponse, ModelError, Part, Role, UsageMetadata,
};
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// The pieces of one streamed answer; ends after the last piece or the first error.
pub type ResponseStream = BoxStream<'static, Result<GenerateResponse, ModelError>>;

/// Whatever answers model calls: a provider, a script, or a wrapper around one.
///
/// Each method is one attempt: nothing here retries. Cancelling ends the exchange at once with
/// [`Cancelled`](convoke_adk::ModelErrorKind::Cancelled); dropping the future or stream does the same silently.
#[async_trait]
pub trait ContentGenerator: Send + Sync {
    /// The whole answer at once.
    async fn generate_content(
        &self,
        request: Arc<LlmRequest>,
        cancel: CancellationToken,
    ) -> Result<GenerateResponse, ModelError>;

    /// The answer in pieces, each with only what is new. Nothing is sent before the first poll.
    fn generate_content_stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> ResponseStream;

    /// Whether a [`generate_content`](Self::generate_content) call that the work can do without may be made now. Only a
    /// script that answers line after line says no, unless its next line is the answer to such a call.
    fn has_answer_to_spare(&self) -> bool {
        true
    }

    /// How many tokens the request would cost.
    async fn count_tokens(&self, request: Arc<LlmRequest>, cancel: CancellationToken)
    -> Result<TokenCount, ModelError>;

    /// One vector per text, in order.
    async fn embed_content(
        &self,
        request: EmbedRequest,
        cancel: CancellationToken,
    ) -> Result<EmbedResponse, ModelError>;
}

/// The size of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenCount {
    /// All tokens.
    #[serde(default)]
    pub total_tokens: u64,
    /// Those that are cached at the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_content_token_count: Option<u64>,
}

/// Texts to be turned into vectors.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EmbedRequest {
    /// The embedding model.
    pub model: String,
    /// The texts.
    pub texts: Vec<String>,
}

/// Vectors, one per text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EmbedResponse {
    /// In the order of the request.
    #[serde(default)]
    pub embeddings: Vec<Embedding>,
    /// What the provider says about the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// One vector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Embedding {
    /// Its components.
    #[serde(default)]
    pub values: Vec<f32>,
}

/// One answer, or one piece of it, as the Gemini API writes it: `{candidates, usageMetadata, …}`.
///
/// Everything may be absent; the views look at the first candidate only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GenerateResponse {
    raw: Map<String, Value>,
}

impl From<Map<String, Value>> for GenerateResponse {
    fn from(raw: Map<String, Value>) -> Self {
        Self { raw }
    }
}

impl GenerateResponse {
    /// The response as it came.
    #[must_use]
    pub fn raw(&self) -> &Map<String, Value> {
        &self.raw
    }

    /// The first candidate, with grounding and URL metadata where a provider's own tool was used.
    #[must_use]
    pub fn candidate(&self) -> Option<&Map<String, Value>> {
        self.raw.get("candidates")?.get(0)?.as_object()
    }

    /// The parts as they came.
    pub fn parts(&self) -> impl Iterator<Item = &Map<String, Value>> {
        let parts = self.candidate().and_then(|candidate| candidate.get("content")?.get("parts")?.as_array());
        parts.into_iter().flatten().filter_map(Value::as_object)
    }

    /// All text, joined; thoughts are left out.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts().filter(|part| !is_thought(part)).filter_map(|part| part.get("text")?.as_str()).collect()
    }

    /// The calls that have a name, in order.
    #[must_use]
    pub fn function_calls(&self) -> Vec<FunctionCall> {
        self.parts().filter_map(|part| FunctionCall::deserialize(part.get("functionCall")?).ok()).collect()
    }

    /// Why the answer ended, in Gemini's words; not yet known in earlier pieces.
    #[must_use]
    pub fn finish_reason(&self) -> Option<&str> {
        self.candidate()?.get("finishReason")?.as_str()
    }

    /// Why the prompt was refused before any answer.
    #[must_use]
    pub fn block_reason(&self) -> Option<&str> {
        self.raw.get("promptFeedback")?.get("blockReason")?.as_str()
    }

    /// The model that really answered.
    #[must_use]
    pub fn model_version(&self) -> Option<&str> {
        self.raw.get("modelVersion")?.as_str()
    }

    /// Tokens so far. A count that is missing or not a number is 0.
    #[must_use]
    pub fn usage(&self) -> Option<UsageMetadata> {
        let usage = self.raw.get("usageMetadata")?.as_object()?;
        let count = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or_default();
        Some(UsageMetadata {
            prompt_token_count: count("promptTokenCount"),
            candidates_token_count: count("candidatesTokenCount"),
            total_token_count: count("totalTokenCount"),
            thoughts_token_count: count("thoughtsTokenCount"),
            cached_content_token_count: count("cachedContentTokenCount"),
            tool_use_prompt_token_count: count("toolUsePromptTokenCount"),
        })
    }

    /// The response as the kernel takes it. A candidate without content gives a piece without content.
    #[must_use]
    pub fn into_piece(mut self) -> LlmResponse {
        let finish_reason = self.finish_reason().map(|reason| FinishReason(reason.to_owned()));
        let model_version = self.model_version().map(str::to_owned);
        let usage = self.usage();
        let content = self.raw.get_mut("candidates").and_then(|c| c.get_mut(0)).and_then(|c| c.get_mut("content"));
        let content = match content.map(Value::take) {
            Some(Value::Object(mut content)) => content.remove("parts"),
            _ => None,
        };
        let content = match content {
            Some(Value::Array(parts)) => {
                let parts = parts.into_iter().filter_map(|part| match part {
                    Value::Object(raw) => Some(Part::from(raw)),
                    _ => None,
                });
                // Some pieces name no role; only the model can be speaking here.
                Some(Content { role: Role::Model, parts: parts.collect() })
            }
            _ => None,
        };
        LlmResponse { content, finish_reason, usage, model_version, ..LlmResponse::default() }
    }
}

/// Whether a raw part is a thought.
pub(crate) fn is_thought(part: &Map<String, Value>) -> bool {
    part.get("thought").and_then(Value::as_bool).unwrap_or(false)
}

/// The error that ends a cancelled exchange.
pub(crate) fn cancelled() -> ModelError {
    ModelError::new(convoke_adk::ModelErrorKind::Cancelled, "cancelled")
}

/// Runs `work` unless `cancel` comes first.
pub(crate) async fn or_cancelled<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, ModelError>>,
) -> Result<T, ModelError> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(cancelled()),
        done = work => done,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn response(value: Value) -> GenerateResponse {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_piece_keeps_every_field_of_its_parts() {
        let parts = json!([
            {"text": "hm", "thought": true},
            {"text": "a", "thoughtSignature": "s"},
            {"functionCall": {"name": "f", "args": {}, "x": 1}, "brandNew": [1]},
        ]);
        let response = response(json!({
            "candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": null},
            "modelVersion": "m-1",
        }));
        assert_eq!(response.text(), "a");
        assert_eq!(response.function_calls()[0].name, "f");
        let piece = response.into_piece();
        let content = piece.content.unwrap();
        assert_eq!(serde_json::to_value(&content.parts).unwrap(), parts);
        assert_eq!((content.role, piece.finish_reason), (Role::Model, Some(FinishReason::stop())));
        assert_eq!(piece.usage.unwrap().prompt_token_count, 3);
        assert_eq!(piece.model_version.as_deref(), Some("m-1"));
    }

    #[test]
    fn pieces_may_lack_anything() {
        for value in [
            json!({}),
            json!({"candidates": []}),
            json!({"candidates": [{}]}),
            json!({"candidates": [{"content": {"role": "model"}}]}),
            json!({"candidates": [{"content": {"parts": [null, 3]}}], "usageMetadata": 3}),
        ] {
            let piece = response(value.clone()).into_piece();
            assert!(piece.content.is_none_or(|content| content.parts.is_empty()), "{value}");
            assert!(piece.usage.is_none() && piece.finish_reason.is_none(), "{value}");
        }
    }
}
