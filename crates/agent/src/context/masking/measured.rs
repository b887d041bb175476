//! Masking by itself, for measuring what a pass costs: everything else in a request costs more, or hides it.

use std::path::PathBuf;
use std::sync::Arc;

use convoke_adk::{LiveSession, Session};

use super::{Masker, MaskingOptions};
use crate::context::{History, Meter, NoHistoryListener};

/// A session that nobody talks to, and the masking of it.
pub struct MeasuredMasking {
    session: LiveSession,
    masker: Masker,
}

impl MeasuredMasking {
    /// Output of `session` is kept in `folder`.
    #[must_use]
    pub fn new(session: Session, folder: PathBuf, options: MaskingOptions) -> Self {
        let history = History {
            session_id: session.key.session_id.clone(),
            meter: Meter::default(),
            listener: Arc::new(NoHistoryListener),
        };
        Self { session: LiveSession::new(session), masker: Masker::new(history, folder, options) }
    }

    /// One pass, as before a model call; how many outputs it masked.
    pub async fn pass(&self) -> usize {
        self.masker.mask(&self.session, None).await.masked
    }
}
