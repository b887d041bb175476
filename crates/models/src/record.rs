//! Recording: what did the model answer, in a form that can be played again?
//!
//! A [`Recorder`] passes calls on and appends one line of the [fake-response](crate::FakeScript) format for each that
//! finished; a failed or abandoned call leaves no line. Kept are `candidates` and `usageMetadata`, so no prompt gets
//! into the file, but answers do. A line is written with one append: recordings of several sessions may share a file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::{LlmRequest, ModelError, ModelErrorKind};
use futures::StreamExt;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::generator::{ContentGenerator, EmbedRequest, EmbedResponse, GenerateResponse, ResponseStream, TokenCount};

/// A generator whose answers are written down.
pub struct Recorder {
    inner: Arc<dyn ContentGenerator>,
    path: Arc<Path>,
}

impl Recorder {
    /// Records what `inner` answers in `path`, which is made at the first line and appended to if it exists.
    #[must_use]
    pub fn new(inner: Arc<dyn ContentGenerator>, path: PathBuf) -> Self {
        Self { inner, path: path.into() }
    }
}

/// Who records wants the recording: a line that can't be written fails the call.
async fn append(path: Arc<Path>, method: &'static str, response: Value) -> Result<(), ModelError> {
    let mut line = json!({"method": method, "response": response}).to_string();
    line.push('\n');
    let told = Arc::clone(&path);
    let write = move || std::fs::OpenOptions::new().create(true).append(true).open(&path)?.write_all(line.as_bytes());
    let done = match tokio::task::spawn_blocking(write).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    done.map_err(|error| {
        ModelError::new(ModelErrorKind::Other, format!("record the answer in {}: {error}", told.display()))
    })
}

/// The part of a response that is replayed.
fn essence(response: &GenerateResponse) -> Value {
    let keep = ["candidates", "usageMetadata"];
    let kept = keep.iter().filter_map(|key| Some(((*key).to_owned(), response.raw().get(*key)?.clone())));
    Value::Object(kept.collect::<Map<_, _>>())
}

#[async_trait]
impl ContentGenerator for Recorder {
    async fn generate_content(
        &self,
        request: Arc<LlmRequest>,
        cancel: CancellationToken,
    ) -> Result<GenerateResponse, ModelError> {
        let response = self.inner.generate_content(request, cancel).await?;
        append(Arc::clone(&self.path), "generateContent", essence(&response)).await?;
        Ok(response)
    }

    fn has_answer_to_spare(&self) -> bool {
        self.inner.has_answer_to_spare()
    }

    fn generate_content_stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> ResponseStream {
        let mut stream = self.inner.generate_content_stream(request, cancel);
        let path = Arc::clone(&self.path);
        let recorded = async_stream::try_stream! {
            let mut pieces = Vec::new();
            while let Some(piece) = stream.next().await {
                let piece = piece?;
                pieces.push(essence(&piece));
                yield piece;
            }
            append(path, "generateContentStream", Value::Array(pieces)).await?;
        };
        recorded.boxed()
    }

    async fn count_tokens(
        &self,
        request: Arc<LlmRequest>,
        cancel: CancellationToken,
    ) -> Result<TokenCount, ModelError> {
        let count = self.inner.count_tokens(request, cancel).await?;
        append(Arc::clone(&self.path), "countTokens", json!(count)).await?;
        Ok(count)
    }

    async fn embed_content(
        &self,
        request: EmbedRequest,
        cancel: CancellationToken,
    ) -> Result<EmbedResponse, ModelError> {
        let response = self.inner.embed_content(request, cancel).await?;
        append(Arc::clone(&self.path), "embedContent", json!(response)).await?;
        Ok(response)
    }
}
