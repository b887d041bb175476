//! What does the model get to see of a long session?
//!
//! Three request processors behind the kernel's own, in this order: [`compression`] replaces the older part of the
//! session by a summary, [`masking`] replaces old tool output by a preview and a file, [`guard`] refuses a request that
//! can't fit. All three change or measure the *session*, not the outgoing request, so that what is kept and what is sent
//! agree; whoever keeps a record hears of each change through [`HistoryListener`].

pub(crate) mod compression;
pub(crate) mod guard;
mod ledger;
mod listener;
pub(crate) mod masking;
mod tokens;
pub(crate) mod trace;

pub(crate) use ledger::Meter;
pub use listener::{Compressed, HistoryListener, MaskedOutput, NoHistoryListener};
pub use masking::{MaskingOptions, MeasuredMasking};

use std::sync::Arc;

use convoke_adk::LiveSession;

/// What the stages share: the session's id, its sizes, and who is told of changes.
#[derive(Clone)]
pub(crate) struct History {
    pub(crate) session_id: String,
    pub(crate) meter: Meter,
    pub(crate) listener: Arc<dyn HistoryListener>,
}

impl History {
    /// The size of the next request in tokens, as far as that can be known before it is made.
    pub(crate) fn size(&self, session: &LiveSession, instruction_tokens: u64) -> Size {
        session.with(|session| self.meter.size(&session.events, instruction_tokens))
    }
}

/// A size in two parts, since one of them was counted and the other is guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// What the provider counted at the last call.
    pub(crate) counted: u64,
    /// What came since, estimated.
    pub(crate) estimated: u64,
}

impl Size {
    pub(crate) fn total(self) -> u64 {
        self.counted + self.estimated
    }
}
