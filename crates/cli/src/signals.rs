//! Ctrl-C and TERM, as something to wait for.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Interrupts of this process. Once made, the signals no longer end it by themselves.
pub(crate) struct Interrupts {
    signals: Vec<Signal>,
}

impl Interrupts {
    /// Listens for INT, TERM and HUP.
    pub(crate) fn listen() -> Self {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        // A signal that can't be listened for keeps its default, which ends the process: still an end.
        Self { signals: kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect() }
    }

    /// The next interrupt. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        if self.signals.is_empty() {
            return std::future::pending().await;
        }
        let waits = self.signals.iter_mut().map(|signal| Box::pin(signal.recv()));
        futures::future::select_all(waits).await;
    }
}
