//! How do frames get from the driver to one client's socket?
//!
//! ```text
//! driver ─ StreamWriter::push ─▶ queue ─ StreamReader::poll_bytes ─▶ hyper ─▶ socket
//!    ◀──── Feedback: what was written, who is gone ────┘
//! ```
//! The queue has no bound of its own: the bridge counts what is in it, is told what left it, and evicts. Frames were
//! encoded when they were numbered; here they are only joined, so that a burst is one write. A reader that writes wakes
//! nobody: the driver collects its reports before the next input. Only a reader that goes away wakes the driver.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use convoke_bridge::SubscriberId;
use convoke_protocol::daemon::EncodedFrame;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The first bytes of every stream: how long a client waits before it comes back.
const PREAMBLE: &[u8] = b"retry: 3000\n\n";

/// Keeps proxies and clients from taking silence for an end.
const HEARTBEAT: &[u8] = b": heartbeat\n\n";

/// Most bytes joined into one write; what the kernel takes at once on loopback.
const BATCH_BYTES: usize = 64 * 1024;

/// Why a body broke off: its stream was evicted.
#[derive(Debug, thiserror::Error)]
#[error("the event stream was evicted")]
pub(crate) struct Destroyed;

/// Where readers report to.
#[derive(Debug, Default)]
pub(crate) struct Feedback {
    /// Readers with something to report, each at most once: no more than there are streams.
    dirty: Mutex<Vec<Arc<Queue>>>,
    /// A reader is gone.
    gone: Notify,
}

impl Feedback {
    /// Waits until a reader is gone. Cancel-safe: a missed notice is kept.
    pub(crate) async fn reader_gone(&self) {
        self.gone.notified().await;
    }

    /// What readers reported since the last call.
    pub(crate) fn collect(&self) -> Vec<Report> {
        let dirty = std::mem::take(&mut *lock(&self.dirty));
        dirty.into_iter().map(|queue| queue.report()).collect()
    }
}

/// What one reader did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Which.
    pub(crate) subscriber: SubscriberId,
    /// Counted frames it wrote.
    pub(crate) frames: usize,
    /// Their bytes.
    pub(crate) bytes: usize,
    /// Whether it is gone.
    pub(crate) gone: bool,
}

#[derive(Debug)]
struct Queue {
    subscriber: SubscriberId,
    feedback: Arc<Feedback>,
    destroy: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<(EncodedFrame, bool)>,
    end: Option<End>,
    waker: Option<Waker>,
    /// Something was pushed since the last wake.
    pushed: bool,
    preamble_due: bool,
    heartbeat_due: bool,
    written_frames: usize,
    written_bytes: usize,
    gone: bool,
    reported: bool,
    /// When the reader last took something, or first had something to take.
    progress: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Finished,
    Evicted,
}

/// A new stream: the driver's end and the socket's. `destroy` ends the stream's connection.
pub(crate) fn stream(
    subscriber: SubscriberId,
    feedback: &Arc<Feedback>,
    destroy: CancellationToken,
) -> (StreamWriter, StreamReader) {
    let state = State {
        waiting: VecDeque::new(),
        end: None,
        waker: None,
        pushed: false,
        preamble_due: true,
        heartbeat_due: false,
        written_frames: 0,
        written_bytes: 0,
        gone: false,
        reported: false,
        progress: Instant::now(),
    };
    let queue = Arc::new(Queue { subscriber, feedback: Arc::clone(feedback), destroy, state: Mutex::new(state) });
    (StreamWriter { queue: Arc::clone(&queue) }, StreamReader { queue })
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn report(&self) -> Report {
        let mut state = self.lock();
        state.reported = false;
        Report {
            subscriber: self.subscriber,
            frames: std::mem::take(&mut state.written_frames),
            bytes: std::mem::take(&mut state.written_bytes),
            gone: state.gone,
        }
    }
}

/// The driver's end of a stream.
#[derive(Debug)]
pub(crate) struct StreamWriter {
    queue: Arc<Queue>,
}

impl StreamWriter {
    /// Queues a frame; [`Self::wake`] makes the reader see it. `true` for the first one since the last wake.
    pub(crate) fn push(&self, frame: EncodedFrame, counted: bool) -> bool {
        let mut state = self.queue.lock();
        if state.waiting.is_empty() {
            state.progress = Instant::now();
        }
        state.waiting.push_back((frame, counted));
        !std::mem::replace(&mut state.pushed, true)
    }

    /// Has the reader write a comment, unless one is due already.
    pub(crate) fn heartbeat(&self) {
        self.queue.lock().heartbeat_due = true;
        self.wake();
    }

    /// Ends the stream once everything queued is written.
    pub(crate) fn finish(&self) {
        self.queue.lock().end.get_or_insert(End::Finished);
        self.wake();
    }

    /// Drops what is queued and destroys the connection, after `frame` if the socket takes it at once.
    pub(crate) fn evict(&self, frame: EncodedFrame) {
        let mut state = self.queue.lock();
        state.waiting.clear();
        state.waiting.push_back((frame, false));
        state.end = Some(End::Evicted);
        drop(state);
        self.wake();
        self.queue.destroy.cancel();
    }

    /// Wakes the reader: once for everything that was pushed since.
    pub(crate) fn wake(&self) {
        let mut state = self.queue.lock();
        state.pushed = false;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// For how long the reader has had something to take and took nothing.
    pub(crate) fn stalled_for(&self, now: Instant) -> Option<Duration> {
        let state = self.queue.lock();
        (!state.waiting.is_empty()).then(|| now.saturating_duration_since(state.progress))
    }
}

/// The socket's end of a stream; dropping it tells the driver that the client is gone.
#[derive(Debug)]
pub(crate) struct StreamReader {
    queue: Arc<Queue>,
}

impl StreamReader {
    /// The next bytes to write: everything that is queued, up to [`BATCH_BYTES`], or one larger frame.
    pub(crate) fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Destroyed>>> {
        let mut state = self.queue.lock();
        let comment = match (std::mem::take(&mut state.preamble_due), std::mem::take(&mut state.heartbeat_due)) {
            (true, _) => PREAMBLE,
            (false, true) => HEARTBEAT,
            (false, false) => b"",
        };
        if let Some(bytes) = next_batch(&mut state, comment) {
            self.progressed(state);
            return Poll::Ready(Some(Ok(bytes)));
        }
        state.nothing_now(context)
    }
}

impl StreamReader {
    /// Something was handed out: the driver hears of what was written, once until it has collected it.
    fn progressed(&self, mut state: MutexGuard<'_, State>) {
        state.progress = Instant::now();
        let report = state.written_frames > 0 && !std::mem::replace(&mut state.reported, true);
        drop(state);
        if report {
            lock(&self.queue.feedback.dirty).push(Arc::clone(&self.queue));
        }
    }

    /// Whether the stream was evicted; wakes the caller when it is. For a reader that rests while its socket is full.
    pub(crate) fn poll_evicted(&self, context: &Context<'_>) -> bool {
        let mut state = self.queue.lock();
        let evicted = state.end == Some(End::Evicted);
        if !evicted {
            state.waker = Some(context.waker().clone());
        }
        evicted
    }

    /// The next frame, for a reader that writes something else than server-sent events; it counts as written.
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<EncodedFrame, Destroyed>>> {
        let mut state = self.queue.lock();
        if let Some((frame, counted)) = state.waiting.pop_front() {
            state.written(&frame.sse, counted);
            self.progressed(state);
            return Poll::Ready(Some(Ok(frame)));
        }
        state.nothing_now(context)
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.gone = true;
        state.waiting = VecDeque::new();
        let report = !std::mem::replace(&mut state.reported, true);
        drop(state);
        if report {
            lock(&self.queue.feedback.dirty).push(Arc::clone(&self.queue));
        }
        self.queue.feedback.gone.notify_one();
    }
}

/// Takes `comment` and as many frames as fit. A frame that is alone is passed on without a copy.
fn next_batch(state: &mut State, comment: &'static [u8]) -> Option<Bytes> {
    let mut batch = BytesMut::new();
    if comment.is_empty() {
        let (first, counted) = state.waiting.pop_front()?;
        let first = first.sse;
        state.written(&first, counted);
        let fits = |next: &(EncodedFrame, bool)| first.len() + next.0.sse.len() <= BATCH_BYTES;
        if !state.waiting.front().is_some_and(fits) {
            return Some(first);
        }
        batch.extend_from_slice(&first);
    } else {
        batch.extend_from_slice(comment);
    }
    let fits = |batch: &BytesMut, next: &EncodedFrame| batch.len() + next.sse.len() <= BATCH_BYTES;
    while let Some((next, counted)) = state.waiting.pop_front_if(|(next, _)| fits(&batch, next)) {
        state.written(&next.sse, counted);
        batch.extend_from_slice(&next.sse);
    }
    Some(batch.freeze())
}

impl State {
    /// A read that finds nothing: the stream is over, or the reader is woken later.
    fn nothing_now<T>(&mut self, context: &Context<'_>) -> Poll<Option<Result<T, Destroyed>>> {
        match self.end {
            Some(End::Finished) => Poll::Ready(None),
            Some(End::Evicted) => Poll::Ready(Some(Err(Destroyed))),
            None => {
                self.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn written(&mut self, frame: &Bytes, counted: bool) {
        if counted {
            self.written_frames += 1;
            self.written_bytes += frame.len();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a lock here protects is whole between any two statements, so a panic elsewhere leaves nothing broken.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use convoke_protocol::daemon::FrameKind;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn frame(text: &str) -> EncodedFrame {
        let sse = Bytes::from(text.to_owned());
        EncodedFrame { id: None, kind: FrameKind::SessionUpdate, json: sse.clone(), sse }
    }

    struct Rig {
        feedback: Arc<Feedback>,
        writer: StreamWriter,
        reader: Option<StreamReader>,
        wakes: Arc<Count>,
        destroy: CancellationToken,
    }

    impl Rig {
        fn new() -> Self {
            let feedback = Arc::new(Feedback::default());
            let destroy = CancellationToken::new();
            let (writer, reader) = stream(SubscriberId(7), &feedback, destroy.clone());
            Self { feedback, writer, reader: Some(reader), wakes: Arc::default(), destroy }
        }

        /// The next bytes; `None` when there are none yet, or no more.
        fn poll(&mut self) -> Option<Result<String, ()>> {
            let waker = Waker::from(Arc::clone(&self.wakes));
            let reader = self.reader.as_mut().unwrap();
            match reader.poll_bytes(&mut Context::from_waker(&waker)) {
                Poll::Ready(next) => {
                    next.map(|bytes| bytes.map(|b| String::from_utf8(b.to_vec()).unwrap()).map_err(|_| ()))
                }
                Poll::Pending => None,
            }
        }

        fn woken(&self) -> usize {
            self.wakes.0.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn a_burst_is_one_wake_and_one_write() {
        let mut rig = Rig::new();
        assert_eq!(rig.poll(), Some(Ok("retry: 3000\n\n".to_owned())));
        assert_eq!(rig.poll(), None);
        let first: Vec<bool> = ["a", "b", "c"].map(|text| rig.writer.push(frame(text), true)).into();
        assert_eq!(first, [true, false, false]);
        assert_eq!(rig.woken(), 0);
        rig.writer.wake();
        rig.writer.wake();
        assert_eq!(rig.woken(), 1);
        assert_eq!(rig.poll(), Some(Ok("abc".to_owned())));
        assert_eq!(rig.poll(), None);
        let report = Report { subscriber: SubscriberId(7), frames: 3, bytes: 3, gone: false };
        assert_eq!(rig.feedback.collect(), [report]);
        assert_eq!(rig.feedback.collect(), []);
    }

    #[test]
    fn a_frame_alone_is_not_copied() {
        let mut rig = Rig::new();
        rig.poll();
        let large = frame(&"x".repeat(BATCH_BYTES + 1));
        let address = large.sse.as_ptr();
        rig.writer.push(large, true);
        rig.writer.push(frame("y"), true);
        let waker = Waker::noop();
        let reader = rig.reader.as_mut().unwrap();
        let Poll::Ready(Some(Ok(bytes))) = reader.poll_bytes(&mut Context::from_waker(waker)) else { panic!() };
        assert_eq!(bytes.as_ptr(), address);
        assert_eq!(rig.poll(), Some(Ok("y".to_owned())));
    }

    #[test]
    fn only_counted_frames_are_reported() {
        let mut rig = Rig::new();
        rig.writer.push(frame("replayed"), false);
        assert_eq!(rig.poll(), Some(Ok("retry: 3000\n\nreplayed".to_owned())));
        assert_eq!(rig.feedback.collect(), []);
        rig.writer.push(frame("live"), true);
        rig.poll();
        assert_eq!(rig.feedback.collect().first().map(|r| (r.frames, r.bytes)), Some((1, 4)));
    }

    #[test]
    fn the_end_comes_after_what_is_queued() {
        let mut rig = Rig::new();
        rig.poll();
        rig.writer.push(frame("last"), true);
        rig.writer.finish();
        assert_eq!(rig.poll(), Some(Ok("last".to_owned())));
        assert_eq!(rig.poll(), None);
        assert!(!rig.destroy.is_cancelled());
    }

    #[test]
    fn eviction_drops_the_queue_and_destroys_the_connection() {
        let mut rig = Rig::new();
        rig.poll();
        rig.writer.push(frame("old"), true);
        rig.writer.evict(frame("evicted"));
        assert!(rig.destroy.is_cancelled());
        assert_eq!(rig.poll(), Some(Ok("evicted".to_owned())));
        assert_eq!(rig.poll(), Some(Err(())));
    }

    #[test]
    fn heartbeats_do_not_pile_up() {
        let mut rig = Rig::new();
        rig.poll();
        for _ in 0..3 {
            rig.writer.heartbeat();
        }
        assert_eq!(rig.poll(), Some(Ok(": heartbeat\n\n".to_owned())));
        assert_eq!(rig.poll(), None);
    }

    #[tokio::test]
    async fn a_dropped_reader_is_heard_of() {
        let mut rig = Rig::new();
        rig.writer.push(frame("never read"), true);
        rig.reader = None;
        rig.feedback.reader_gone().await;
        let report = Report { subscriber: SubscriberId(7), frames: 0, bytes: 0, gone: true };
        assert_eq!(rig.feedback.collect(), [report]);
    }

    #[test]
    fn a_stall_is_counted_from_the_first_frame_that_waits() {
        let mut rig = Rig::new();
        let later = Instant::now() + Duration::from_secs(3600);
        assert_eq!(rig.writer.stalled_for(later), None);
        rig.writer.push(frame("a"), true);
        assert!(rig.writer.stalled_for(later).is_some_and(|d| d > Duration::from_secs(3500)));
        rig.poll();
        assert_eq!(rig.writer.stalled_for(later), None);
    }
}
