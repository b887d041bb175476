//! Who hears that the session's past was changed? Everything else that happens to a session is an event in it.

use convoke_adk::{Event, FunctionResponse};

/// Hears of changes to what already happened. Called after the live session was changed; must not block.
pub trait HistoryListener: Send + Sync {
    /// A tool's output was replaced by a preview.
    fn masked(&self, _session_id: &str, _masked: &MaskedOutput) {}

    /// Older events were replaced by a summary.
    fn compressed(&self, _session_id: &str, _compressed: &Compressed<'_>) {}
}

/// One masked output, named by what stays the same wherever it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskedOutput {
    /// The event that holds the response.
    pub event_id: String,
    /// The call's id; `None` where its provider gives none.
    pub call_id: Option<String>,
    /// Which response of that event with this id, beginning at 0.
    pub ordinal: usize,
    /// What stands in the session now.
    pub replacement: FunctionResponse,
    /// Where the whole output is.
    pub file: String,
}

/// A compression.
#[derive(Clone, Debug, PartialEq)]
pub struct Compressed<'a> {
    /// The events that stand at the session's beginning now.
    pub summary: &'a [Event],
    /// The first event that was kept behind them; `None` if everything was replaced.
    pub first_kept: Option<&'a str>,
    /// How many events were replaced.
    pub replaced: usize,
    /// The session's size before, in tokens.
    pub tokens_before: u64,
    /// And after.
    pub tokens_after: u64,
}

/// Nobody listens.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHistoryListener;

impl HistoryListener for NoHistoryListener {}
