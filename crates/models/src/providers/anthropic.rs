//! Anthropic's Messages: `POST {base}/v1/messages`, as spoken by Anthropic and by gateways in front of others.
//!
//! Answers become Gemini-shaped pieces: text and thoughts as they come, each call whole when its block ends. Signed
//! thoughts and blocks of unknown kinds are kept under a field of their own and go back as they came. Where a prompt
//! repeats, it is marked for the provider's cache. Source: Anthropic API reference, version 2023-06-01.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::{LlmRequest, ModelError, ModelErrorKind};
use futures::StreamExt;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::connect::ConnectError;
use crate::credential::Credential;
use crate::generator::{
    ContentGenerator, EmbedRequest, EmbedResponse, GenerateResponse, ResponseStream, TokenCount, or_cancelled,
};
use crate::http::{Http, HttpOptions, parse_base, parse_json, shown};
use crate::list::ListedModel;
use crate::providers::join::join;

mod assemble;
mod body;
mod generation;

use assemble::Assembler;
use body::{Dialect, Shape};

/// The version of the protocol that is spoken here.
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// How the key is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnthropicAuth {
    /// `x-api-key`.
    #[default]
    ApiKeyHeader,
    /// `Authorization: Bearer`, for tokens and gateways.
    Bearer,
}

/// How to reach a server with Anthropic's Messages.
#[derive(Clone)]
pub struct AnthropicOptions {
    /// Where; `/v1` is added unless the path ends in a version.
    pub base_url: String,
    /// The key. Without one, none is sent.
    pub api_key: Option<Credential>,
    /// How the key is sent.
    pub auth: AnthropicAuth,
    /// Whether repeated prompts are marked for the cache, which a few gateways refuse.
    pub caching: bool,
    /// Added to every body, over what is there, such as `{"thinking": {"type": "adaptive"}}`.
    pub extra_body: Map<String, Value>,
    /// Headers and timeouts.
    pub http: HttpOptions,
}

impl fmt::Debug for AnthropicOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnthropicOptions")
            .field("base_url", &shown(&self.base_url))
            .field("auth", &self.auth)
            .finish_non_exhaustive()
    }
}

impl Default for AnthropicOptions {
    fn default() -> Self {
        Self {
            base_url: "https://api.anthropic.com".to_owned(),
            api_key: None,
            auth: AnthropicAuth::default(),
            caching: true,
            extra_body: Map::new(),
            http: HttpOptions::default(),
        }
    }
}

/// A server with Anthropic's Messages.
pub(crate) struct Anthropic {
    http: Arc<Http>,
    dialect: Arc<Dialect>,
}

impl Anthropic {
    pub(crate) fn new(options: AnthropicOptions) -> Result<Self, ConnectError> {
        let mut base = parse_base(&options.base_url)?;
        let path = base.path().trim_end_matches('/');
        // People paste the whole address.
        let path = path.strip_suffix("/messages").unwrap_or(path).to_owned();
        base.set_path(&if super::ends_in_version(&path) { path } else { format!("{path}/v1") });
        let proof = options.api_key.map(|key| match options.auth {
            AnthropicAuth::ApiKeyHeader => (HeaderName::from_static("x-api-key"), "", key),
            AnthropicAuth::Bearer => (AUTHORIZATION, "Bearer ", key),
        });
        let http = Http::new(base, proof, options.http)?.with_header("anthropic-version", VERSION);
        let dialect = Dialect { caching: options.caching, extra_body: options.extra_body };
        Ok(Self { http: Arc::new(http), dialect: Arc::new(dialect) })
    }

    pub(crate) async fn list(&self, cancel: &CancellationToken) -> Result<Vec<ListedModel>, ModelError> {
        crate::list::ask(&self.http, "models?limit=1000", cancel).await
    }
}

#[async_trait]
impl ContentGenerator for Anthropic {
    async fn generate_content(
        &self,
        request: Arc<LlmRequest>,
        cancel: CancellationToken,
    ) -> Result<GenerateResponse, ModelError> {
        let body = self.http.json(&body::messages(&request, &self.dialect, Shape::Whole))?;
        let work = async {
            let text = self.http.post("messages", body).await?.bytes().await?;
            let mut assembler = Assembler::new(&request);
            let mut pieces: Vec<_> = assembler.take(parse_json(&text)?)?.into_iter().collect();
            pieces.push(assembler.finish()?);
            Ok(join(pieces))
        };
        or_cancelled(&cancel, work).await.map_err(|error| self.http.scrub(error))
    }

    fn generate_content_stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> ResponseStream {
        let http = Arc::clone(&self.http);
        let dialect = Arc::clone(&self.dialect);
        let pieces = async_stream::try_stream! {
            let body = http.json(&body::messages(&request, &dialect, Shape::Stream))?;
            let answer = or_cancelled(&cancel, http.post("messages", body)).await?;
            let mut documents = answer.documents();
            let mut assembler = Assembler::new(&request);
            while let Some(text) = or_cancelled(&cancel, documents.next()).await? {
                // Some gateways end their streams as OpenAI does.
                if text.trim_ascii() == b"[DONE]" {
                    break;
                }
                let piece = assembler.take(parse_json(&text)?).map_err(|error| http.scrub(error))?;
                if let Some(piece) = piece {
                    yield piece;
                }
                if assembler.is_over() {
                    break;
                }
            }
            yield assembler.finish()?;
        };
        pieces.boxed()
    }

    async fn count_tokens(
        &self,
        request: Arc<LlmRequest>,
        cancel: CancellationToken,
    ) -> Result<TokenCount, ModelError> {
        let body = self.http.json(&body::messages(&request, &self.dialect, Shape::Count))?;
        let work = async { self.http.post("messages/count_tokens", body).await?.bytes().await };
        let counted: Value = parse_json(&or_cancelled(&cancel, work).await?)?;
        let tokens = counted.get("input_tokens").and_then(Value::as_u64);
        let total_tokens = tokens.ok_or_else(|| {
            ModelError::new(ModelErrorKind::InvalidStream, "the server counted tokens and did not say how many")
        })?;
        Ok(TokenCount { total_tokens, cached_content_token_count: None })
    }

    /// Refused: the protocol has no vectors.
    async fn embed_content(&self, _: EmbedRequest, _: CancellationToken) -> Result<EmbedResponse, ModelError> {
        Err(ModelError::new(ModelErrorKind::BadRequest, "Anthropic's protocol has no embeddings"))
    }
}
