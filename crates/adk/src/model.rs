//! The port to a model.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{Content, Tool};

/// A model, or whatever answers like one.
#[doc(alias = "BaseLlm")]
pub trait Llm: Send + Sync {
    /// The model that a request without a model of its own goes to.
    fn model(&self) -> String;

    /// Asks for one answer, in pieces.
    ///
    /// The stream ends after the last piece or the first error. Each piece carries only what is new; joining pieces
    /// is the flow's work. Cancellation: `cancel` or dropping the stream ends the exchange at once.
    fn generate(
        &self,
        request: LlmRequest,
        cancel: CancellationToken,
    ) -> BoxStream<'static, Result<LlmResponse, ModelError>>;
}

/// One question to a model. Stays model-neutral: vendor shapes are made per attempt.
#[derive(Clone, Debug, Default)]
pub struct LlmRequest {
    /// The model to ask.
    pub model: String,
    /// The conversation, oldest first. Shared with the session: change one through `Arc::make_mut`.
    pub contents: Vec<Arc<Content>>,
    /// Instructions, joined by blank lines.
    pub system_instruction: Vec<String>,
    /// How to generate.
    pub config: GenerateConfig,
    /// Tools on offer, in a stable order so that the provider's prompt cache holds. Shared, since a request is cloned for
    /// each call: change them through `Arc::make_mut`.
    pub tools: Arc<IndexMap<String, FunctionDeclaration>>,
    /// If set, only these tools may be called.
    pub allowed_tools: Option<Vec<String>>,
    /// The tools behind `tools`, for a model that is chosen later.
    pub offered: OfferedTools,
    /// Carried to the event of the answer, and never sent.
    pub metadata: Map<String, Value>,
    /// What the call is for, for whoever counts calls; never sent. Empty for the conversation itself.
    pub purpose: &'static str,
}

impl LlmRequest {
    /// Turns to another model: tools are declared anew, as it sees them. Tools that were taken out stay out, as does
    /// one that the model before was not told of.
    pub fn turn_to(&mut self, model: &str) {
        if self.model == model {
            return;
        }
        model.clone_into(&mut self.model);
        for tool in self.offered.0.iter() {
            let declaration = tool.declaration(model);
            if !tool.offered_to(model) {
                Arc::make_mut(&mut self.tools).shift_remove(&declaration.name);
                continue;
            }
            if self.tools.get(&declaration.name).is_some_and(|declared| *declared != declaration) {
                Arc::make_mut(&mut self.tools).insert(declaration.name.clone(), declaration);
            }
        }
    }
}

/// Tools that a request offers, shared with its copies.
#[derive(Clone, Default)]
pub struct OfferedTools(Arc<Vec<Arc<dyn Tool>>>);

impl From<Vec<Arc<dyn Tool>>> for OfferedTools {
    fn from(tools: Vec<Arc<dyn Tool>>) -> Self {
        Self(Arc::new(tools))
    }
}

impl fmt::Debug for OfferedTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfferedTools").field("count", &self.0.len()).finish()
    }
}

/// Generation parameters that every provider knows in some form; absent means the provider's default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerateConfig {
    /// 0.0 to 2.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// 0.0 to 1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Whether thoughts are asked for, where the model has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_thoughts: Option<bool>,
    /// How much to think before answering, where the model can be told; absent means the model's own measure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingLevel>,
    /// Vendor parameters, merged over the rest by the provider that understands them.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// How much a model thinks before it answers. Each provider says it in its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingLevel {
    /// Not at all, or as little as the model can.
    Off,
    /// A little.
    Low,
    /// In between.
    Medium,
    /// As much as is of use.
    High,
}

impl ThinkingLevel {
    /// Every level, least first.
    pub const ALL: [Self; 4] = [Self::Off, Self::Low, Self::Medium, Self::High];

    /// `off`, `low`, `medium`, `high`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// The level of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionDeclaration {
    /// The name to call.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of the arguments, an object schema.
    pub parameters: Value,
}

/// One piece of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LlmResponse {
    /// New parts, if any.
    pub content: Option<Content>,
    /// Why the answer ends; on the last piece.
    pub finish_reason: Option<FinishReason>,
    /// Tokens so far; the last one counts.
    pub usage: Option<UsageMetadata>,
    /// The model that really answered, where the provider says.
    pub model_version: Option<String>,
    /// Whether everything said so far is taken back because the answer starts over.
    pub retracted: bool,
    /// The model that was asked, where it is not the one of the request: another one may have taken over.
    pub model: Option<String>,
    /// Added to the metadata of the answer's event.
    pub metadata: Map<String, Value>,
}

/// Why an answer ended, in Gemini's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FinishReason(pub String);

impl FinishReason {
    /// The ordinary end.
    #[must_use]
    pub fn stop() -> Self {
        Self("STOP".to_owned())
    }
}

/// Tokens of one call, in Gemini's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageMetadata {
    /// Sent.
    pub prompt_token_count: u64,
    /// Received, thoughts not counted.
    pub candidates_token_count: u64,
    /// All.
    pub total_token_count: u64,
    /// Thought.
    pub thoughts_token_count: u64,
    /// Sent, but cached at the provider.
    pub cached_content_token_count: u64,
    /// Spent on the provider's own tools.
    pub tool_use_prompt_token_count: u64,
}

/// Why a model did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What kind of failure.
    pub kind: ModelErrorKind,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// The server's own message where it gave one. Never holds a credential.
    pub message: String,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// An error of this kind.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, status: None, message: message.into(), retry_after: None }
    }
}

/// Kinds of model failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelErrorKind {
    /// The credential is missing or refused.
    Auth,
    /// A quota is used up; waiting a little does not help.
    Quota,
    /// Too many requests; waiting helps.
    RateLimit,
    /// The model has no room for anybody at the moment; another one may.
    Capacity,
    /// The server failed or is overloaded.
    Server,
    /// No answer, or it broke off.
    Network,
    /// The request is wrong.
    BadRequest,
    /// No such model.
    NotFound,
    /// The answer can't be used: malformed or empty.
    InvalidStream,
    /// The caller cancelled.
    Cancelled,
    /// Anything else.
    Other,
}

impl ModelErrorKind {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimit | Self::Capacity | Self::Server | Self::Network)
    }
}
