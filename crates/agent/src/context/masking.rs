//! Old tool output makes room: which of it is replaced by a preview, and where does the whole of it go?
//!
//! The newest output is protected up to a number of tokens, and so is that of the current invocation; what is older is
//! masked together once it is worth it, so that the provider's prompt cache is not broken for a little. The decision
//! comes before any file is written, a part is named by its event, its call and its ordinal, and a masked output is
//! never masked again. Source: runtime specification §7.

mod apply;
mod files;
mod measured;
mod preview;
mod select;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::processors::Contents;
use convoke_adk::{Content, Event, FlowError, InvocationContext, LiveSession, LlmRequest, RequestProcessor};
use serde_json::{Map, Value};

pub use measured::MeasuredMasking;

use super::History;
use super::ledger::Output;
use crate::told;
use apply::{Change, Changes};

/// When output is masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskingOptions {
    /// Tokens of the newest output that stay as they are.
    pub protection_tokens: u64,
    /// Least that a pass takes out; below it nothing happens.
    pub min_prunable_tokens: u64,
    /// Whether output of the current invocation stays as it is.
    pub protect_latest_turn: bool,
}

impl Default for MaskingOptions {
    fn default() -> Self {
        // Source: runtime specification §7.
        Self { protection_tokens: 50_000, min_prunable_tokens: 30_000, protect_latest_turn: true }
    }
}

/// Output of these tools is never masked: it is what was agreed with a person, or what the agent is to do.
const EXEMPT: [&str; 4] = ["activate_skill", "ask_user", "enter_plan_mode", "exit_plan_mode"];

/// What every masked output begins with.
const OPENING: &str = "<tool_output_masked>";

/// Whether a function response may be masked: it has a body, its tool is not exempt, and it is not masked already.
pub(super) fn is_maskable(response: &Map<String, Value>) -> bool {
    let name = response.get("name").and_then(Value::as_str).unwrap_or_default();
    let Some(body) = response.get("response") else { return false };
    let masked = body.get("output").and_then(Value::as_str).is_some_and(|text| text.starts_with(OPENING));
    !masked && !EXEMPT.contains(&name)
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MaskingOutcome {
    pub(crate) masked: usize,
    /// Of everything that could have been masked.
    pub(crate) prunable_tokens: u64,
    pub(crate) tokens_before: u64,
    pub(crate) tokens_after: u64,
}

/// Masks the output of one session.
pub(crate) struct Masker {
    history: History,
    /// The session's folder of kept output, the same that truncation uses.
    folder: PathBuf,
    options: MaskingOptions,
}

/// An output that was selected: its place, and its content as it was then.
struct Selected {
    index: usize,
    event_id: String,
    content: Arc<Content>,
    part: usize,
    tokens: u64,
}

impl Masker {
    pub(crate) fn new(history: History, folder: PathBuf, options: MaskingOptions) -> Self {
        Self { history, folder, options }
    }

    /// Masks what is due. `current` is the invocation whose output is protected.
    pub(crate) async fn mask(&self, session: &LiveSession, current: Option<&str>) -> MaskingOutcome {
        let current = current.filter(|_| self.options.protect_latest_turn);
        self.pass(session, current, self.options.protection_tokens, self.options.min_prunable_tokens).await
    }

    /// Masks everything beyond the newest `budget` tokens of output, whatever invocation it belongs to.
    pub(super) async fn mask_beyond(&self, session: &LiveSession, budget: u64) -> MaskingOutcome {
        self.pass(session, None, budget, 1).await
    }

    async fn pass(
        &self,
        session: &LiveSession,
        current: Option<&str>,
        protection: u64,
        min_prunable: u64,
    ) -> MaskingOutcome {
        let selected = session.with(|session| self.select(&session.events, current, protection, min_prunable));
        if selected.is_empty() {
            return MaskingOutcome::default();
        }
        let prunable_tokens = selected.iter().map(|one| one.tokens).sum();
        let folder = self.folder.clone();
        // Previews, digests and files of many megabytes are no work for the thread that serves everybody.
        let work = tokio::task::spawn_blocking(move || apply::changes(selected, &folder));
        // It can only panic, and then nothing was changed.
        let changes = work.await.unwrap_or_default();
        let outcome = MaskingOutcome { prunable_tokens, ..self.write_back(session, &changes) };
        if outcome.masked > 0 {
            told::masked(&self.history.session_id, &outcome);
        }
        outcome
    }

    fn select(&self, events: &[Event], current: Option<&str>, protection: u64, min_prunable: u64) -> Vec<Selected> {
        let chosen = self.history.meter.with_outputs(events, |outputs: &mut dyn Iterator<Item = (usize, Output)>| {
            let protected = |index: usize| {
                events.get(index).is_some_and(|event: &Event| current == Some(event.invocation_id.as_str()))
            };
            let candidates = outputs.filter(|(index, output)| output.maskable && !protected(*index));
            select::prunable(candidates.map(|found| (found, found.1.tokens)), protection, min_prunable)
        });
        let selected = chosen.into_iter().filter_map(|((index, output), tokens)| {
            let event = events.get(index)?;
            let content = event.content.clone()?;
            Some(Selected { index, event_id: event.id.clone(), content, part: output.part, tokens })
        });
        selected.collect()
    }

    /// Puts the changes into the live session, wherever their parts are by now.
    fn write_back(&self, session: &LiveSession, changes: &Changes) -> MaskingOutcome {
        let Changes { made: changes, refused } = changes;
        for one in refused {
            self.history.meter.refuse(one.index, &one.content, one.part);
        }
        let applied: Vec<&Change> = session.with(|session| {
            let applied: Vec<&Change> =
                changes.iter().filter(|change| apply::write_back(&mut session.events, change)).collect();
            let saved = applied.iter().map(|change| change.tokens_before - change.tokens_after).sum();
            self.history.meter.discount(&session.events, saved);
            applied
        });
        for change in &applied {
            self.history.listener.masked(&self.history.session_id, &change.masked);
        }
        MaskingOutcome {
            masked: applied.len(),
            prunable_tokens: 0,
            tokens_before: applied.iter().map(|change| change.tokens_before).sum(),
            tokens_after: applied.iter().map(|change| change.tokens_after).sum(),
        }
    }
}

/// [`Masker`] among the stages that make a request.
#[derive(Clone)]
pub(crate) struct ToolOutputMaskingProcessor(Arc<Masker>);

impl ToolOutputMaskingProcessor {
    pub(crate) fn new(masker: Arc<Masker>) -> Self {
        Self(masker)
    }
}

#[async_trait]
impl RequestProcessor for ToolOutputMaskingProcessor {
    fn name(&self) -> &'static str {
        "tool-output-masking"
    }

    async fn run(&self, cx: &InvocationContext, request: &mut LlmRequest) -> Result<(), FlowError> {
        let outcome = self.0.mask(&cx.session, Some(&cx.invocation_id)).await;
        // Built anew from the session, so that both say the same.
        if outcome.masked > 0 { Contents.run(cx, request).await } else { Ok(()) }
    }
}
