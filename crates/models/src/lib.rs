//! Models: which model answers, and what if it cannot?
//!
//! Everything here stands on one port, [`ContentGenerator`]: generate, stream, count, embed, in the shapes of the
//! Gemini API. [`connect`] makes one from [`Options`]: the Gemini API, Vertex AI, any server with OpenAI's chat completions or
//! Anthropic's Messages, or a file of [fake responses](FakeScript); optionally [recorded](record). [`GeneratorLlm`] puts the kernel's
//! [`Llm`](convoke_adk::Llm) on top and adds what a conversation needs: failed calls are repeated with growing waits
//! ([`retry`]), and so are streams that broke off or said nothing, with `retracted` set on the piece that takes the
//! first attempt's text back.
//!
//! ```
//! use std::sync::Arc;
//! use convoke_models::{Catalog, FakeMode, FakeScript, LlmOptions, Provider, Registry, connect_llm};
//!
//! let script = FakeScript::embedded(
//!     r#"{"method":"generateContentStream","response":[{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}]}"#,
//!     true,
//! )?;
//! let provider = Provider::Fake { script: Arc::new(script), mode: FakeMode::Strict };
//! let registry = Registry::new("gemini", provider);
//! let mut options = LlmOptions::new("auto");
//! options.catalog = Arc::new(Catalog::new(&registry));
//! let llm = connect_llm(&registry, options)?;
//! assert_eq!(convoke_adk::Llm::model(&llm), "gemini-3-pro-preview");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Before the first call of a prompt, [`routing`] chooses a model. One that fails for good is replaced within the same
//! call: [`chain`] says who may stand in and who is asked, [`steering`] decides, [`availability`] remembers. What names
//! mean is in the [`catalog`], whom they are answered by in a [`Registry`].
//!
//! What this room does not do: read the environment or settings, export telemetry. Its [`tracing`] events are listed in
//! [`observe`].

pub mod availability;
pub mod catalog;
pub mod chain;
mod connect;
mod credential;
pub mod error;
mod fake;
mod fallback;
mod generator;
mod google;
mod http;
mod list;
mod llm;
pub mod observe;
mod providers;
pub mod record;
mod registry;
pub mod retry;
pub mod routing;
mod sse;
pub mod steering;
mod stream_check;

pub use catalog::{Catalog, CatalogError, ConfigKey, ModelName};
pub use connect::{ConnectError, Options, Provider, check_base_url, connect, connect_llm};
pub use credential::{Credential, CredentialSource, Fetched};
pub use fake::{FakeGenerator, FakeMode, FakeScript, FakeScriptError};
pub use fallback::{FallbackPort, FallbackQuestion, Intent, ModelNotice};
pub use generator::{
    ContentGenerator, EmbedRequest, EmbedResponse, Embedding, GenerateResponse, ResponseStream, TokenCount,
};
pub use google::{GoogleCredential, GoogleCredentialError};
pub use http::{HttpOptions, install_tls_provider};
pub use list::{ListedModel, list_models};
pub use llm::{GeneratorLlm, LlmOptions, NoticeListener, SharedAvailability, TimeSource};
pub use providers::anthropic::{AnthropicAuth, AnthropicOptions};
pub use providers::gemini::{GeminiAuth, GeminiOptions};
pub use providers::openai::OpenAiOptions;
pub use providers::vertex::{VertexAccess, VertexOptions};
pub use registry::{Connections, Registry};
pub use retry::{Backoff, RetryNotice, RetryPolicy, retry_with_backoff};
pub use sse::{EventTooLong, SseDecoder};
