//! One model's attempts: calls until a stream begins, or until it is clear that none will.

use std::sync::Arc;

use convoke_adk::{LlmRequest, ModelError, ModelErrorKind};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use super::GeneratorLlm;
use crate::catalog::ModelName;
use crate::chain::FailureKind;
use crate::fallback::ModelNotice;
use crate::generator::{GenerateResponse, ResponseStream, cancelled};
use crate::retry::{Backoff, RetryNotice, RetryPolicy, entropy, wait};
use crate::steering::refused;

/// A stream and what it began with.
pub(super) struct Opened {
    pub(super) first: Option<Result<GenerateResponse, ModelError>>,
    pub(super) stream: ResponseStream,
}

impl GeneratorLlm {
    /// Calls `model` until its stream gives something, and returns that with the stream.
    ///
    /// Errors: the last one, when repeating is of no use any more.
    pub(super) async fn open(
        &self,
        model: &ModelName,
        request: &Arc<LlmRequest>,
        max_attempts: Option<u32>,
        cancel: &CancellationToken,
    ) -> Result<Opened, ModelError> {
        let generator = self.session.connections.of(model)?;
        let mut policy = self.patience(&self.session.options.retry, model);
        policy.max_attempts = max_attempts.unwrap_or(policy.max_attempts).min(policy.max_attempts);
        let mut backoff = Backoff::new(policy);
        // A model without room is worth a moment if another one is there, and as much as a busy one if not.
        let mut short = Backoff::new(self.patience(&RetryPolicy::for_capacity(), model));
        loop {
            if cancel.is_cancelled() {
                return Err(cancelled());
            }
            self.check_mark(model)?;
            let mut stream = generator.generate_content_stream(Arc::clone(request), cancel.clone());
            let error = match next(&mut stream, cancel).await {
                Some(Err(error)) if error.kind.is_retryable() => error,
                Some(Err(error)) if error.kind != ModelErrorKind::InvalidStream => return Err(error),
                first => return Ok(Opened { first, stream }),
            };
            drop(stream);
            let replaceable = error.kind == ModelErrorKind::Capacity && self.has_stand_in(model, FailureKind::Capacity);
            let notice = if replaceable { short.after(&error, entropy()) } else { backoff.after(&error, entropy()) };
            match notice {
                Some(notice) => self.wait(model, &notice, cancel).await?,
                None => return Err(error),
            }
        }
    }

    /// Errors if `model` was marked since it was admitted, by whoever shares the marks.
    fn check_mark(&self, model: &ModelName) -> Result<(), ModelError> {
        let now = self.now();
        let mark = self.steer(|_, availability| availability.mark(now, model));
        mark.map_or(Ok(()), |mark| Err(refused(now, model, mark)))
    }

    fn has_stand_in(&self, model: &ModelName, kind: FailureKind) -> bool {
        let now = self.now();
        self.steer(|steering, availability| steering.has_stand_in(now, availability, model, kind))
    }

    /// Tells of a wait, and waits.
    pub(super) async fn wait(
        &self,
        model: &ModelName,
        notice: &RetryNotice,
        cancel: &CancellationToken,
    ) -> Result<(), ModelError> {
        self.tell(&ModelNotice::Retrying {
            model: model.clone(),
            failed_attempts: notice.failed_attempts,
            max_attempts: notice.max_attempts,
            delay: notice.delay,
            error: notice.error.clone(),
        });
        wait(notice, cancel).await
    }
}

/// The next piece, or the cancellation if that comes first.
pub(super) async fn next(
    stream: &mut ResponseStream,
    cancel: &CancellationToken,
) -> Option<Result<GenerateResponse, ModelError>> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Some(Err(cancelled())),
        item = stream.next() => item,
    }
}
