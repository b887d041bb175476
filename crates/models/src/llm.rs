//! The kernel's model: what is done when an answer fails halfway?
//!
//! Two bounds, as upstream has them. A call that is *refused* before its first piece is repeated by
//! [`LlmOptions::retry`]. A stream that *broke* after it, or that turns out to be no answer (see the rules in
//! `stream_check`), is repeated by [`LlmOptions::stream_retry`]; each repetition is a fresh call with a fresh bound
//! for refusals. If pieces were already given out, one with `retracted` set takes them back first.
//! Source: runtime specification §4.5, §4.7.

use std::fmt;
use std::sync::Arc;

use convoke_adk::{Llm, LlmRequest, LlmResponse, ModelError, ModelErrorKind};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;

use crate::catalog::{Catalog, ConfigKey};
use crate::generator::{ContentGenerator, GenerateResponse, ResponseStream, cancelled};
use crate::retry::{Backoff, RetryNotice, RetryPolicy, entropy, retry_with_backoff, wait};
use crate::stream_check::{Fault, StreamCheck};

/// Appended to the instructions after an answer without words: the same question tends to get the same silence.
const NUDGE: &str = "Your last answer had no visible text. Answer with text or with a function call.";

/// Hears of waits; called from within the stream, so it must not block.
pub type RetryListener = Arc<dyn Fn(&RetryNotice) + Send + Sync>;

/// How a [`GeneratorLlm`] asks.
#[derive(Clone)]
pub struct LlmOptions {
    /// The model for requests without one; an id.
    pub model: String,
    /// For calls that are refused.
    pub retry: RetryPolicy,
    /// For streams that break or say nothing.
    pub stream_retry: RetryPolicy,
    /// Fills open generation parameters with those of a conversation; `None` leaves them open.
    pub chat_defaults: Option<Arc<Catalog>>,
    /// Told before each wait.
    pub on_retry: Option<RetryListener>,
}

impl fmt::Debug for LlmOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmOptions")
            .field("model", &self.model)
            .field("retry", &self.retry)
            .field("stream_retry", &self.stream_retry)
            .finish_non_exhaustive()
    }
}

impl LlmOptions {
    /// The usual bounds.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            retry: RetryPolicy::default(),
            stream_retry: RetryPolicy::for_streams(),
            chat_defaults: Some(Arc::new(Catalog::gemini())),
            on_retry: None,
        }
    }
}

/// A [`ContentGenerator`] as the kernel's [`Llm`].
#[derive(Clone)]
pub struct GeneratorLlm {
    generator: Arc<dyn ContentGenerator>,
    options: LlmOptions,
}

impl fmt::Debug for GeneratorLlm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeneratorLlm").field("options", &self.options).finish_non_exhaustive()
    }
}

impl GeneratorLlm {
    /// A model that asks `generator`.
    #[must_use]
    pub fn new(generator: Arc<dyn ContentGenerator>, options: LlmOptions) -> Self {
        Self { generator, options }
    }

    /// The generator below: for side requests without retries, counting and embedding.
    #[must_use]
    pub fn generator(&self) -> &Arc<dyn ContentGenerator> {
        &self.generator
    }

    /// How it asks; change a clone with [`GeneratorLlm::new`].
    #[must_use]
    pub fn options(&self) -> &LlmOptions {
        &self.options
    }

    /// A side request: one whole answer, without the defaults of a conversation, repeated when it is refused.
    ///
    /// Source: runtime specification §4.8. Errors: the last one; a refused prompt is a
    /// [`BadRequest`](ModelErrorKind::BadRequest).
    pub async fn ask(&self, request: LlmRequest, cancel: &CancellationToken) -> Result<GenerateResponse, ModelError> {
        let request = Arc::new(self.named(request));
        let max_attempts = self.options.retry.max_attempts.min(RetryPolicy::for_side_requests().max_attempts);
        let policy = RetryPolicy { max_attempts, ..self.options.retry.clone() };
        let call = || self.generator.generate_content(Arc::clone(&request), cancel.clone());
        let response = retry_with_backoff(&policy, cancel, call).await?;
        refused_prompt(&response).map_or(Ok(response), Err)
    }

    fn named(&self, mut request: LlmRequest) -> LlmRequest {
        if request.model.is_empty() {
            request.model.clone_from(&self.options.model);
        }
        request
    }

    async fn wait(&self, notice: &RetryNotice, cancel: &CancellationToken) -> Result<(), ModelError> {
        if let Some(tell) = &self.options.on_retry {
            tell(notice);
        }
        wait(notice, cancel).await
    }

    /// Calls until a stream gives something, and returns it with the stream.
    async fn open(&self, request: &Arc<LlmRequest>, cancel: &CancellationToken) -> Result<Opened, ModelError> {
        let mut backoff = Backoff::new(self.options.retry.clone());
        loop {
            let mut stream = self.generator.generate_content_stream(Arc::clone(request), cancel.clone());
            let error = match next(&mut stream, cancel).await {
                Some(Err(error)) if error.kind.is_retryable() => error,
                Some(Err(error)) if error.kind != ModelErrorKind::InvalidStream => return Err(error),
                first => return Ok(Opened { first, stream }),
            };
            match backoff.after(&error, entropy()) {
                Some(notice) => self.wait(&notice, cancel).await?,
                None => return Err(error),
            }
        }
    }
}

struct Opened {
    first: Option<Result<GenerateResponse, ModelError>>,
    stream: ResponseStream,
}

impl Llm for GeneratorLlm {
    fn model(&self) -> String {
        self.options.model.clone()
    }

    fn generate(
        &self,
        request: LlmRequest,
        cancel: CancellationToken,
    ) -> BoxStream<'static, Result<LlmResponse, ModelError>> {
        let llm = self.clone();
        let mut request = self.named(request);
        if let Some(catalog) = &self.options.chat_defaults {
            let model = catalog.resolve(&request.model);
            request.config = catalog.config(&ConfigKey::chat(&request.model), &model, &request.config);
        }
        let mut request = Arc::new(request);
        let answer = async_stream::try_stream! {
            let mut backoff = Backoff::new(llm.options.stream_retry.clone());
            let mut nudged = false;
            loop {
                let Opened { first, mut stream } = llm.open(&request, &cancel).await?;
                let mut check = StreamCheck::new(&request);
                let mut given_out = false;
                let mut item = first;
                let broken = loop {
                    match item {
                        Some(Ok(response)) => {
                            if let Some(error) = refused_prompt(&response) {
                                Err(error)?;
                            }
                            check.see(&response);
                            given_out = true;
                            yield response.into_piece();
                        }
                        Some(Err(error)) => break Broken::Failed(error),
                        None => match check.finish() {
                            Ok(()) => return,
                            Err(fault) => break Broken::NoAnswer(fault),
                        },
                    }
                    item = next(&mut stream, &cancel).await;
                };
                drop(stream);
                let error = broken.error();
                let may_repeat = error.kind == ModelErrorKind::InvalidStream || error.kind.is_retryable();
                let notice = if may_repeat { backoff.after(&error, entropy()) } else { None };
                let Some(notice) = notice else {
                    crate::observe::gave_up(&error);
                    Err(error)?;
                    return;
                };
                crate::observe::content_retry(&request.model, &notice);
                if given_out {
                    yield LlmResponse { retracted: true, ..LlmResponse::default() };
                }
                if broken.is_silence() && !nudged {
                    nudged = true;
                    Arc::make_mut(&mut request).system_instruction.push(NUDGE.to_owned());
                }
                llm.wait(&notice, &cancel).await?;
            }
        };
        answer.boxed()
    }
}

/// How an attempt ended without an answer.
enum Broken {
    Failed(ModelError),
    NoAnswer(Fault),
}

impl Broken {
    fn error(&self) -> ModelError {
        match self {
            Self::Failed(error) => error.clone(),
            Self::NoAnswer(fault) => fault.into(),
        }
    }

    fn is_silence(&self) -> bool {
        matches!(self, Self::NoAnswer(fault) if fault.is_silence())
    }
}

/// A prompt that the provider's filter refused will be refused again.
fn refused_prompt(response: &GenerateResponse) -> Option<ModelError> {
    let reason = response.block_reason().filter(|_| response.candidate().is_none())?;
    Some(ModelError::new(ModelErrorKind::BadRequest, format!("the provider refused the prompt ({reason})")))
}

async fn next(stream: &mut ResponseStream, cancel: &CancellationToken) -> Option<Result<GenerateResponse, ModelError>> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Some(Err(cancelled())),
        item = stream.next() => item,
    }
}

#[cfg(test)]
mod tests;
