//! The Gemini API: `POST {base}/v1beta/models/{model}:streamGenerateContent?alt=sse`.
//!
//! Answers are passed on as they come. Source: runtime specification §5.5, Gemini API reference v1beta.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::{LlmRequest, ModelError, ModelErrorKind};
use futures::StreamExt;
use reqwest::header::{AUTHORIZATION, HeaderName};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::connect::ConnectError;
use crate::credential::Credential;
use crate::error::classify_inline;
use crate::generator::{
    ContentGenerator, EmbedRequest, EmbedResponse, Embedding, GenerateResponse, ResponseStream, TokenCount,
    or_cancelled,
};
use crate::http::{Http, HttpOptions, parse_base, parse_json, shown};
use crate::list::ListedModel;

mod body;
mod path;

pub(crate) use body::request_as_json;
pub(crate) use path::Place;

/// How the key is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GeminiAuth {
    /// `x-goog-api-key`.
    #[default]
    ApiKeyHeader,
    /// `Authorization: Bearer`, for gateways.
    Bearer,
}

/// How to reach the Gemini API.
#[derive(Clone)]
pub struct GeminiOptions {
    /// Where; a path in it stays, and so does an API version at its end.
    pub base_url: String,
    /// The API version, if the base URL does not end in one.
    pub api_version: String,
    /// The key. Without one, none is sent.
    pub api_key: Option<Credential>,
    /// How the key is sent.
    pub auth: GeminiAuth,
    /// Headers and timeouts.
    pub http: HttpOptions,
}

impl fmt::Debug for GeminiOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeminiOptions")
            .field("base_url", &shown(&self.base_url))
            .field("auth", &self.auth)
            .finish_non_exhaustive()
    }
}

impl Default for GeminiOptions {
    fn default() -> Self {
        Self {
            base_url: "https://generativelanguage.googleapis.com".to_owned(),
            api_version: "v1beta".to_owned(),
            api_key: None,
            auth: GeminiAuth::default(),
            http: HttpOptions::default(),
        }
    }
}

/// The Gemini API.
pub(crate) struct Gemini {
    http: Arc<Http>,
    place: Arc<Place>,
}

impl Gemini {
    pub(crate) fn new(options: GeminiOptions) -> Result<Self, ConnectError> {
        let mut base = parse_base(&options.base_url)?;
        let path = base.path().trim_end_matches('/').to_owned();
        if !super::ends_in_version(&path) {
            base.set_path(&format!("{path}/{}", options.api_version.trim_matches('/')));
        }
        let credential = options.api_key.map(|key| match options.auth {
            GeminiAuth::ApiKeyHeader => (HeaderName::from_static("x-goog-api-key"), "", key),
            GeminiAuth::Bearer => (AUTHORIZATION, "Bearer ", key),
        });
        Ok(Self::at(Place::Gemini, Http::new(base, credential, options.http)?))
    }

    /// Models of another place with the same requests and answers.
    pub(crate) fn at(place: Place, http: Http) -> Self {
        Self { http: Arc::new(http), place: Arc::new(place) }
    }

    pub(crate) async fn list(&self, cancel: &CancellationToken) -> Result<Vec<ListedModel>, ModelError> {
        crate::list::ask(&self.http, self.place.list(), cancel).await
    }

    /// One vector: Vertex AI takes one text a call.
    async fn predict(&self, model: &str, text: &str, cancel: &CancellationToken) -> Result<Embedding, ModelError> {
        let body = json!({"instances": [{"content": text}]}).to_string().into_bytes();
        let mut answer: Value = self.call(&self.place.of(model, "predict"), body, cancel).await?;
        let vector = answer.pointer_mut("/predictions/0/embeddings").map(Value::take).unwrap_or_default();
        Embedding::deserialize(vector).map_err(|error| {
            ModelError::new(ModelErrorKind::InvalidStream, format!("the model's answer has an unknown shape: {error}"))
        })
    }

    async fn call<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        body: Vec<u8>,
        cancel: &CancellationToken,
    ) -> Result<T, ModelError> {
        let text = or_cancelled(cancel, async { self.http.post(path, body).await?.bytes().await }).await?;
        let value: Value = parse_json(&text)?;
        if value.get("error").is_some() {
            return Err(self.http.scrub(classify_inline(&value)));
        }
        T::deserialize(value).map_err(|error| {
            ModelError::new(ModelErrorKind::InvalidStream, format!("the model's answer has an unknown shape: {error}"))
        })
    }
}

#[async_trait]
impl ContentGenerator for Gemini {
    async fn generate_content(
        &self,
        request: Arc<LlmRequest>,
        cancel: CancellationToken,
    ) -> Result<GenerateResponse, ModelError> {
        let path = self.place.of(&request.model, "generateContent");
        self.call(&path, self.http.json(&body::generate(&request))?, &cancel).await
    }

    fn generate_content_stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> ResponseStream {
        let http = Arc::clone(&self.http);
        let place = Arc::clone(&self.place);
        let pieces = async_stream::try_stream! {
            let path = place.of(&request.model, "streamGenerateContent") + "?alt=sse";
            let answer = or_cancelled(&cancel, async { http.post(&path, http.json(&body::generate(&request))?).await }).await?;
            let mut documents = answer.documents();
            while let Some(text) = or_cancelled(&cancel, documents.next()).await? {
                for piece in pieces(&http, &text)? {
                    yield piece;
                }
            }
        };
        pieces.boxed()
    }

    async fn count_tokens(
        &self,
        request: Arc<LlmRequest>,
        cancel: CancellationToken,
    ) -> Result<TokenCount, ModelError> {
        let path = self.place.of(&request.model, "countTokens");
        let body = match *self.place {
            Place::Gemini => self.http.json(&body::count(&request))?,
            Place::Vertex { .. } => self.http.json(&body::count_flat(&request))?,
        };
        self.call(&path, body, &cancel).await
    }

    async fn embed_content(
        &self,
        request: EmbedRequest,
        cancel: CancellationToken,
    ) -> Result<EmbedResponse, ModelError> {
        if let Place::Vertex { .. } = *self.place {
            let mut embeddings = Vec::with_capacity(request.texts.len());
            for text in &request.texts {
                embeddings.push(self.predict(&request.model, text, &cancel).await?);
            }
            return Ok(EmbedResponse { embeddings, metadata: None });
        }
        let path = self.place.of(&request.model, "batchEmbedContents");
        self.call(&path, self.http.json(&body::embed(&request))?, &cancel).await
    }
}

/// The responses in one text of a stream: one, or an array where a gateway drops `alt=sse`.
fn pieces(http: &Http, text: &[u8]) -> Result<Vec<GenerateResponse>, ModelError> {
    // Some gateways end Gemini streams as OpenAI ends its own.
    if text.trim_ascii() == b"[DONE]" {
        return Ok(Vec::new());
    }
    let values = match parse_json(text)? {
        Value::Array(values) => values,
        value => vec![value],
    };
    let mut pieces = Vec::with_capacity(values.len());
    for value in values {
        match value {
            Value::Object(raw) if raw.contains_key("error") => {
                return Err(http.scrub(classify_inline(&Value::Object(raw))));
            }
            Value::Object(raw) => pieces.push(GenerateResponse::from(raw)),
            // Neither says nor breaks anything.
            _ => {}
        }
    }
    Ok(pieces)
}
