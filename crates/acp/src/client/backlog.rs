//! Which answers has the agent not taken yet? The SDK's queue of messages has no bound; who answers at length waits here.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_client_protocol::RawJsonRpcId;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The long answers that wait in the SDK's queue; as many as their owner lets be worked on at once.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: Mutex<HashSet<RawJsonRpcId>>,
    moved: Notify,
}

impl Backlog {
    fn lock(&self) -> MutexGuard<'_, HashSet<RawJsonRpcId>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer is about to be queued.
    pub(super) fn add(&self, id: RawJsonRpcId) {
        self.lock().insert(id);
    }

    /// An answer's turn to be written has come.
    pub(super) fn written(&self, id: &RawJsonRpcId) {
        if self.lock().remove(id) {
            self.moved.notify_waiters();
        }
    }

    /// Waits until an answer is being written, or the agent is gone.
    pub(super) async fn wait(&self, id: &RawJsonRpcId, gone: &CancellationToken) {
        loop {
            let mut moved = std::pin::pin!(self.moved.notified());
            // From here on no move is missed.
            moved.as_mut().enable();
            if !self.lock().contains(id) {
                return;
            }
            tokio::select! {
                () = moved => {}
                () = gone.cancelled() => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn id(number: i64) -> RawJsonRpcId {
        serde_json::from_value(number.into()).unwrap()
    }

    #[tokio::test]
    async fn an_answer_is_waited_for_until_it_is_written_or_nobody_is_there() {
        let (backlog, gone) = (Backlog::default(), CancellationToken::new());
        backlog.wait(&id(1), &gone).await;
        backlog.add(id(1));
        backlog.add(id(2));
        let (one, two) = (id(1), id(2));
        let mut first = std::pin::pin!(backlog.wait(&one, &gone));
        let mut second = std::pin::pin!(backlog.wait(&two, &gone));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        backlog.written(&id(1));
        assert!(first.now_or_never().is_some());
        assert!(second.as_mut().now_or_never().is_none(), "another answer moved");
        gone.cancel();
        second.await;
    }
}
