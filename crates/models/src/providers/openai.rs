//! OpenAI's chat completions: `POST {base}/chat/completions`, as spoken by OpenAI, OpenRouter, vLLM, llama.cpp, Ollama.
//!
//! Answers become Gemini-shaped pieces: text and thoughts as they come, calls whole at the end. Servers differ, so
//! little is relied upon: see `assemble` for what may be missing. Source: OpenAI API reference, chat completions.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::{LlmRequest, ModelError};
use futures::StreamExt;
use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::connect::ConnectError;
use crate::credential::Credential;
use crate::generator::{
    ContentGenerator, EmbedRequest, EmbedResponse, Embedding, GenerateResponse, ResponseStream, TokenCount,
    or_cancelled,
};
use crate::http::{Http, HttpOptions, parse_base, parse_json, shown};
use crate::list::ListedModel;
use crate::providers::join::join;

mod assemble;
mod body;

use assemble::Assembler;
use body::{Dialect, Shape};

/// How to reach a server with chat completions.
#[derive(Clone)]
pub struct OpenAiOptions {
    /// Where, with or without a trailing slash. A base without a path gets `/v1`; any other path stays.
    pub base_url: String,
    /// The key. Without one, no `Authorization` header is sent, as local servers like it.
    pub api_key: Option<Credential>,
    /// Whether token counts are asked for in streams (`stream_options`), which a few old servers refuse.
    pub include_usage: bool,
    /// Added to every body, over what is there, such as `{"reasoning_effort": "low"}`.
    pub extra_body: Map<String, Value>,
    /// Headers and timeouts.
    pub http: HttpOptions,
}

impl fmt::Debug for OpenAiOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiOptions").field("base_url", &shown(&self.base_url)).finish_non_exhaustive()
    }
}

impl OpenAiOptions {
    /// A server without a key.
    #[must_use]
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            api_key: None,
            include_usage: true,
            extra_body: Map::new(),
            http: HttpOptions::default(),
        }
    }
}

/// A server with chat completions.
pub(crate) struct OpenAi {
    http: Arc<Http>,
    dialect: Arc<Dialect>,
}

impl OpenAi {
    pub(crate) fn new(options: OpenAiOptions) -> Result<Self, ConnectError> {
        let mut base = parse_base(&options.base_url)?;
        let path = base.path().trim_end_matches('/');
        // People paste the whole address.
        let path = path.strip_suffix("/chat/completions").unwrap_or(path).to_owned();
        base.set_path(if path.is_empty() { "/v1" } else { &path });
        let credential = options.api_key.map(|key| (AUTHORIZATION, "Bearer ", key));
        let http = Http::new(base, credential, options.http)?;
        let dialect = Dialect {
            include_usage: options.include_usage,
            // OpenAI's reasoning models refuse the old name; others know only that.
            max_completion_tokens: http.host() == "api.openai.com",
            extra_body: options.extra_body,
        };
        Ok(Self { http: Arc::new(http), dialect: Arc::new(dialect) })
    }

    pub(crate) async fn list(&self, cancel: &CancellationToken) -> Result<Vec<ListedModel>, ModelError> {
        crate::list::ask(&self.http, "models", cancel).await
    }
}

#[async_trait]
impl ContentGenerator for OpenAi {
    async fn generate_content(
        &self,
        request: Arc<LlmRequest>,
        cancel: CancellationToken,
    ) -> Result<GenerateResponse, ModelError> {
        let body = self.http.json(&body::chat(&request, &self.dialect, Shape::Whole))?;
        let work = async {
            let text = self.http.post("chat/completions", body).await?.bytes().await?;
            let mut assembler = Assembler::new(&request);
            let mut pieces: Vec<_> = assembler.take(&parse_json(&text)?)?.into_iter().collect();
            pieces.extend(assembler.finish());
            Ok(join(pieces))
        };
        or_cancelled(&cancel, work).await.map_err(|error| self.http.scrub(error))
    }

    fn generate_content_stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> ResponseStream {
        let http = Arc::clone(&self.http);
        let dialect = Arc::clone(&self.dialect);
        let pieces = async_stream::try_stream! {
            let body = http.json(&body::chat(&request, &dialect, Shape::Stream))?;
            let answer = or_cancelled(&cancel, http.post("chat/completions", body)).await?;
            let mut documents = answer.documents();
            let mut assembler = Assembler::new(&request);
            while let Some(text) = or_cancelled(&cancel, documents.next()).await? {
                if text.trim_ascii() == b"[DONE]" {
                    assembler.done();
                    break;
                }
                let piece = assembler.take(&parse_json(&text)?).map_err(|error| http.scrub(error))?;
                if let Some(piece) = piece {
                    yield piece;
                }
            }
            if let Some(last) = assembler.finish() {
                yield last;
            }
        };
        pieces.boxed()
    }

    /// An estimate of four bytes a token: the protocol has no way to ask.
    async fn count_tokens(&self, request: Arc<LlmRequest>, _: CancellationToken) -> Result<TokenCount, ModelError> {
        let body = self.http.json(&body::chat(&request, &self.dialect, Shape::Whole))?;
        let total_tokens = u64::try_from(body.len().div_ceil(4)).unwrap_or(u64::MAX);
        Ok(TokenCount { total_tokens, cached_content_token_count: None })
    }

    async fn embed_content(
        &self,
        request: EmbedRequest,
        cancel: CancellationToken,
    ) -> Result<EmbedResponse, ModelError> {
        #[derive(Deserialize)]
        struct Answer {
            data: Vec<Embedded>,
        }
        #[derive(Deserialize)]
        struct Embedded {
            #[serde(default)]
            index: usize,
            embedding: Vec<f32>,
        }
        let body = json!({"model": request.model, "input": request.texts}).to_string().into_bytes();
        let work = async { parse_json(&self.http.post("embeddings", body).await?.bytes().await?) };
        let mut answer: Answer = or_cancelled(&cancel, work).await?;
        answer.data.sort_by_key(|one| one.index);
        let embeddings = answer.data.into_iter().map(|one| Embedding { values: one.embedding }).collect();
        Ok(EmbedResponse { embeddings, metadata: None })
    }
}
