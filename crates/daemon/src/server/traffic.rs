//! What is going on in one connection? Requests under way, since when there is none, and the tasks of HTTP/2.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::connection::EVICT_TIME;
use crate::respond::ReplyBody;
use crate::stream::Destroyed;

/// Counts the requests of a connection, bodies of answers included.
#[derive(Debug)]
pub(super) struct Traffic {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    open: usize,
    idle_since: Instant,
}

impl Traffic {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { open: 0, idle_since: Instant::now() }) }
    }

    /// A request came in; it is over when the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Watch {
        self.lock().open += 1;
        let ended = CancellationToken::new();
        Watch { traffic: Arc::clone(self), ended: ended.clone(), _end: ended.drop_guard() }
    }

    /// Waits until there was no request for so long. Requests that come and go start it anew.
    pub(super) async fn idle_for(&self, limit: Duration) {
        loop {
            // While something is under way, a whole limit has to pass once more at least.
            let since = self.since().unwrap_or_else(Instant::now);
            tokio::time::sleep_until(since + limit).await;
            if self.since().is_some_and(|since| since.elapsed() >= limit) {
                return;
            }
        }
    }

    fn since(&self) -> Option<Instant> {
        let state = self.lock();
        (state.open == 0).then_some(state.idle_since)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Two plain fields are whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request under way.
#[derive(Debug)]
pub(super) struct Watch {
    traffic: Arc<Traffic>,
    ended: CancellationToken,
    _end: DropGuard,
}

impl Watch {
    /// Cancelled when the request is over.
    pub(super) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.traffic.lock();
        state.open = state.open.saturating_sub(1);
        state.idle_since = Instant::now();
    }
}

/// The body of an answer, as long as which its request is under way.
#[derive(Debug)]
pub(super) struct Watched {
    body: ReplyBody,
    _watch: Watch,
}

impl Watched {
    pub(super) fn new(body: ReplyBody, watch: Watch) -> Self {
        Self { body, _watch: watch }
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = Destroyed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Hands the streams of an HTTP/2 connection that may be evicted to its owner.
#[derive(Debug)]
pub(super) struct Evictions {
    streams: mpsc::Sender<(CancellationToken, CancellationToken)>,
}

/// The owner's end: which evicted streams don't end?
pub(super) struct Evicted {
    streams: mpsc::Receiver<(CancellationToken, CancellationToken)>,
    /// One per stream that is open: no more than the protocol lets a peer open.
    open: FuturesUnordered<BoxFuture<'static, bool>>,
}

impl Evictions {
    pub(super) fn new(streams_max: u32) -> (Self, Evicted) {
        let (sender, streams) = mpsc::channel(usize::try_from(streams_max).unwrap_or(1).max(1));
        (Self { streams: sender }, Evicted { streams, open: FuturesUnordered::new() })
    }

    /// A token that evicts a stream, given the one that tells of its end.
    pub(super) fn follow(&self, ended: CancellationToken) -> CancellationToken {
        let destroy = CancellationToken::new();
        // If the owner is behind, the stream is only not watched: its queue is bounded all the same.
        let _ = self.streams.try_send((destroy.clone(), ended));
        destroy
    }
}

impl Evicted {
    /// Waits for a stream that was evicted and did not end, since its peer takes nothing: only the end of the whole
    /// connection ends that one.
    pub(super) async fn stuck(&mut self) {
        loop {
            tokio::select! {
                Some((destroy, ended)) = self.streams.recv() => self.open.push(Box::pin(async move {
                    tokio::select! {
                        () = ended.cancelled() => return false,
                        () = destroy.cancelled() => {}
                    }
                    tokio::time::timeout(EVICT_TIME, ended.cancelled()).await.is_err()
                })),
                Some(stuck) = self.open.next() => {
                    if stuck {
                        return;
                    }
                }
                else => std::future::pending().await,
            }
        }
    }
}

/// The tasks that HTTP/2 makes for its streams, owned by their connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks {
    tracker: TaskTracker,
    abort: CancellationToken,
}

impl Tasks {
    /// Ends them.
    pub(super) async fn end(&self) {
        self.abort.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl<F> Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        let abort = self.abort.clone();
        self.tracker.spawn(async move {
            // Whatever it was doing, its connection is gone.
            let _ = abort.run_until_cancelled(task).await;
        });
    }
}
