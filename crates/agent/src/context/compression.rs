//! The older part of a session becomes a summary: when, how much of it, and what if the summary is no good?
//!
//! A recipe over the live session. Nothing is changed before a summary was made and checked, so every way in which it
//! can fail leaves the session as it was. A failure closes a gate that opens again when the session has grown, so one
//! bad answer costs one attempt and not the session. Source: runtime specification §8.

mod processor;
mod prompt;
mod replace;
mod split;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use convoke_adk::{Event, LiveSession, ModelError};
use convoke_protocol::{AgentEventBody, CompressOutcome};
use convoke_stdx::Clock;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::masking::Masker;
use super::{Compressed, History};
use crate::hooks::{CompressTrigger, LifecycleHooks};
use crate::models::SessionModel;
use crate::told;
use crate::tool_events::CurrentStream;

pub(crate) use processor::CompressionProcessor;
pub(crate) use prompt::transcript;

/// Tokens of the newest tool output that go into a summary whole. Source: §8.
const OUTPUT_BUDGET: u64 = 50_000;

/// What telemetry calls these model calls.
const PURPOSE: &str = "utility_compressor";

/// How much a session must grow after a failure before it is tried again, in percent of its size then. Each attempt
/// costs a call as large as the session.
const RETRY_GROWTH: u64 = 125;

/// What a compression needs.
pub(crate) struct CompressorParts {
    pub(crate) history: History,
    pub(crate) model: SessionModel,
    pub(crate) hooks: Arc<dyn LifecycleHooks>,
    pub(crate) masker: Option<Arc<Masker>>,
    pub(crate) stream: CurrentStream,
    /// The part of the model's window at which a session is compressed; 0 or less for never.
    pub(crate) threshold: f64,
    /// The author of what the agent says.
    pub(crate) agent_name: String,
}

/// Compresses one session.
pub(crate) struct Compressor {
    parts: CompressorParts,
    clock: Clock,
    /// The size at which the last attempt failed.
    failed_at: Mutex<Option<u64>>,
}

impl Compressor {
    pub(crate) fn new(parts: CompressorParts) -> Self {
        Self { parts, clock: Clock::start(), failed_at: Mutex::new(None) }
    }

    /// Whether a session of this size is due.
    fn is_due(&self, size: u64) -> bool {
        let threshold = self.parts.threshold;
        if threshold <= 0.0 {
            return false;
        }
        let window = self.parts.model.window().tokens;
        // Windows are far below 2^52, where a float still counts in ones.
        #[expect(clippy::cast_precision_loss, reason = "tokens of a window")]
        let due = size as f64 >= threshold * window as f64;
        due
    }

    /// Compresses if the session is due.
    pub(crate) async fn compress_if_due(
        &self,
        session: &LiveSession,
        instruction_tokens: u64,
        cancel: &CancellationToken,
    ) -> CompressOutcome {
        let size = self.parts.history.size(session, instruction_tokens).total();
        if !self.is_due(size) {
            return CompressOutcome::Noop;
        }
        let failed_at = *self.failed_at.lock().unwrap_or_else(PoisonError::into_inner);
        if failed_at.is_some_and(|failed| size < failed.saturating_mul(RETRY_GROWTH) / 100) {
            // Old output can make room at no risk.
            return self.cut_output(session, size).await;
        }
        self.compress(session, size, CompressTrigger::Auto, cancel).await
    }

    /// Compresses now, whatever the size.
    pub(crate) async fn compress_now(&self, session: &LiveSession, cancel: &CancellationToken) -> CompressOutcome {
        let size = self.parts.history.size(session, 0).total();
        self.compress(session, size, CompressTrigger::Manual, cancel).await
    }

    async fn cut_output(&self, session: &LiveSession, size: u64) -> CompressOutcome {
        let Some(masker) = &self.parts.masker else { return CompressOutcome::Noop };
        let masked = masker.mask_beyond(session, OUTPUT_BUDGET).await;
        if masked.masked == 0 {
            return CompressOutcome::Noop;
        }
        let after = size.saturating_sub(masked.tokens_before - masked.tokens_after);
        CompressOutcome::Compressed { before: size, after }
    }

    async fn compress(
        &self,
        session: &LiveSession,
        size: u64,
        trigger: CompressTrigger,
        cancel: &CancellationToken,
    ) -> CompressOutcome {
        if self.prefix(session).is_none() {
            return CompressOutcome::Noop;
        }
        let pre_compress = self.parts.hooks.pre_compress(trigger);
        if cancel.run_until_cancelled(pre_compress).await.is_none() {
            return CompressOutcome::Failed { why: "it was cancelled".to_owned() };
        }
        if let Some(masker) = &self.parts.masker {
            masker.mask_beyond(session, OUTPUT_BUDGET).await;
        }
        // Sizes have changed, and with them where the line is.
        let Some((prefix, prefix_tokens)) = self.prefix(session) else { return CompressOutcome::Noop };
        let outcome = match self.summarise(&prefix, cancel).await {
            _ if cancel.is_cancelled() => CompressOutcome::Failed { why: "it was cancelled".to_owned() },
            Err(error) => self.failed(size, format!("the summary could not be made: {error}")),
            Ok(summary) if summary.trim().is_empty() => self.failed(size, "the summary was empty".to_owned()),
            Ok(summary) => self.replace(session, &prefix, prefix_tokens, &summary, size),
        };
        self.tell(&outcome, trigger);
        outcome
    }

    /// The events to be replaced, and their size.
    fn prefix(&self, session: &LiveSession) -> Option<(Vec<Event>, u64)> {
        session.with(|session| {
            let tokens = self.parts.history.meter.tokens(&session.events);
            let cut = split::split(&session.events, &tokens)?;
            let prefix = session.events.get(..cut)?.to_vec();
            Some((prefix, tokens.iter().take(cut).sum()))
        })
    }

    /// A summary, looked over once. What is wrong with the second look leaves the first.
    async fn summarise(&self, prefix: &[Event], cancel: &CancellationToken) -> Result<String, ModelError> {
        let transcript = prompt::transcript(prefix);
        let model = &self.parts.model;
        let ask = |text: String| model.ask_aside(PURPOSE, prompt::alias, prompt::SYSTEM, text, cancel);
        let first = prompt::snapshot(&ask(prompt::summarise(&transcript)).await?).to_owned();
        if first.trim().is_empty() || cancel.is_cancelled() {
            return Ok(first);
        }
        match ask(prompt::verify(&transcript, &first)).await {
            Ok(second) if prompt::is_snapshot(&second) => Ok(prompt::snapshot(&second).to_owned()),
            Ok(_) => Ok(first),
            Err(error) => {
                tracing::debug!(%error, "a summary was not looked over");
                Ok(first)
            }
        }
    }

    fn replace(
        &self,
        session: &LiveSession,
        prefix: &[Event],
        prefix_tokens: u64,
        summary: &str,
        size: u64,
    ) -> CompressOutcome {
        let parts = &self.parts;
        let now = self.clock.now().wall_ms;
        let replaced = session.with(|session| {
            let tail = session.events.get(prefix.len()..).unwrap_or_default();
            let summary = replace::summary_events(prefix, tail, summary, &parts.agent_name, now);
            let summary_tokens: u64 = replace::tokens(&summary);
            if summary_tokens >= prefix_tokens {
                return Err(summary_tokens);
            }
            let first_kept = tail.first().map(|event| event.id.clone());
            // A provider may have counted less than we estimate; then both sizes are estimates.
            let estimated: u64 = parts.history.meter.tokens(&session.events).iter().sum();
            let before = size.max(estimated);
            session.events.splice(..prefix.len(), summary.iter().cloned());
            Ok((summary, first_kept, before, before.saturating_sub(prefix_tokens) + summary_tokens))
        });
        match replaced {
            Err(tokens) => {
                self.failed(size, format!("the summary ({tokens} tokens) was no smaller than what it stands for"))
            }
            Ok((summary, first_kept, before, after)) => {
                *self.failed_at.lock().unwrap_or_else(PoisonError::into_inner) = None;
                let compressed = Compressed {
                    summary: &summary,
                    first_kept: first_kept.as_deref(),
                    replaced: prefix.len(),
                    tokens_before: before,
                    tokens_after: after,
                };
                parts.history.listener.compressed(&parts.history.session_id, &compressed);
                CompressOutcome::Compressed { before, after }
            }
        }
    }

    fn failed(&self, size: u64, why: String) -> CompressOutcome {
        tracing::warn!(session.id = self.parts.history.session_id, why, "the session was not compressed");
        *self.failed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(size);
        CompressOutcome::Failed { why }
    }

    fn tell(&self, outcome: &CompressOutcome, trigger: CompressTrigger) {
        let trigger = trigger.name();
        let data = match outcome {
            CompressOutcome::Compressed { before, after } => {
                told::compressed(&self.parts.history.session_id, *before, *after, trigger);
                json!({"status": "compressed", "tokensBefore": before, "tokensAfter": after, "trigger": trigger})
            }
            CompressOutcome::Failed { why } => json!({"status": "failed", "why": why, "trigger": trigger}),
            CompressOutcome::Noop | CompressOutcome::Busy => return,
        };
        let Some(emitter) = self.parts.stream.get() else { return };
        emitter.emit(AgentEventBody::Custom { kind: "chat_compressed".to_owned(), data: Some(data) });
    }
}
