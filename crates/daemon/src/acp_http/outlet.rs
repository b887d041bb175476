//! How do messages get from a connection's attendant to one socket?
//!
//! As [`crate::stream`] for event streams, with one difference: the writer looks whether there is room before it takes
//! an event of the bridge, so that what a slow client does not read stays where the bridge counts it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::stream::Destroyed;

/// No further event is taken while more than this waits.
const ROOM_BYTES: usize = 64 * 1024;

/// What may wait at all: one replay of the largest size, and answers.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Ends the connection below.
    destroy: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Bytes>,
    bytes: usize,
    /// A sign of life is due.
    pulse_due: bool,
    end: Option<End>,
    gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// How an outlet ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// After everything that waits; with a code and a reason where the socket has them.
    Finished(u16, &'static str),
    /// At once.
    Evicted,
}

/// What a reader takes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    Bytes(Bytes),
    Pulse,
    End(End),
}

/// The attendant's end.
#[derive(Debug)]
pub(super) struct Writer(Arc<Shared>);

/// The socket's end; dropping it tells the attendant that it is gone.
#[derive(Debug)]
pub(crate) struct Reader(Arc<Shared>);

pub(super) fn outlet(destroy: CancellationToken) -> (Writer, Reader) {
    let shared = Arc::new(Shared { state: Mutex::default(), destroy });
    (Writer(Arc::clone(&shared)), Reader(shared))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What is protected here is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake_reader(&mut self) -> Option<Waker> {
        self.reader.take()
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Writer {
    /// Queues bytes; `false` if far too much waits already.
    pub(super) fn push(&self, bytes: Bytes) -> bool {
        let mut state = self.0.lock();
        if state.gone || state.end.is_some() {
            return true;
        }
        if state.bytes > 0 && state.bytes + bytes.len() > WAITING_BYTES_MAX {
            return false;
        }
        state.bytes += bytes.len();
        state.waiting.push_back(bytes);
        let reader = state.wake_reader();
        drop(state);
        wake(reader);
        true
    }

    /// Has the reader show a sign of life, unless one is due.
    pub(super) fn pulse(&self) {
        let mut state = self.0.lock();
        state.pulse_due = true;
        let reader = state.wake_reader();
        drop(state);
        wake(reader);
    }

    /// Ends it once everything that waits is written.
    pub(super) fn finish(&self, code: u16, reason: &'static str) {
        self.end(End::Finished(code, reason));
    }

    /// Drops what waits but the last message, and ends the connection below.
    pub(super) fn evict(&self) {
        let mut state = self.0.lock();
        let last = state.waiting.pop_back();
        state.waiting = last.into_iter().collect();
        drop(state);
        self.end(End::Evicted);
        self.0.destroy.cancel();
    }

    fn end(&self, end: End) {
        let mut state = self.0.lock();
        state.end.get_or_insert(end);
        let reader = state.wake_reader();
        drop(state);
        wake(reader);
    }

    /// Whether an event may be taken; wakes the caller when that changes.
    pub(super) fn poll_room(&self, context: &Context<'_>) -> bool {
        let mut state = self.0.lock();
        let room = state.bytes < ROOM_BYTES;
        if !room {
            state.writer = Some(context.waker().clone());
        }
        room
    }

    /// Whether the reader is gone; wakes the caller when it goes.
    pub(super) fn poll_gone(&self, context: &Context<'_>) -> bool {
        let mut state = self.0.lock();
        if !state.gone {
            state.writer = Some(context.waker().clone());
        }
        state.gone
    }
}

impl Reader {
    /// The next thing to write.
    pub(super) fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Item> {
        let mut state = self.0.lock();
        if let Some(bytes) = state.waiting.pop_front() {
            let was_full = state.bytes >= ROOM_BYTES;
            state.bytes -= bytes.len();
            let writer = (was_full && state.bytes < ROOM_BYTES).then(|| state.writer.take()).flatten();
            drop(state);
            wake(writer);
            return Poll::Ready(Item::Bytes(bytes));
        }
        if let Some(end) = state.end {
            return Poll::Ready(Item::End(end));
        }
        if std::mem::take(&mut state.pulse_due) {
            return Poll::Ready(Item::Pulse);
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// The next bytes of an event stream.
    pub(crate) fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Destroyed>>> {
        self.poll_item(context).map(|item| match item {
            Item::Bytes(bytes) => Some(Ok(bytes)),
            Item::Pulse => Some(Ok(Bytes::from_static(b": hb\n\n"))),
            Item::End(End::Finished(..)) => None,
            Item::End(End::Evicted) => Some(Err(Destroyed)),
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.gone = true;
        state.waiting = VecDeque::new();
        state.bytes = 0;
        let writer = state.writer.take();
        drop(state);
        wake(writer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(reader: &mut Reader) -> Option<Item> {
        match reader.poll_item(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(item) => Some(item),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_end_comes_after_what_waits_and_pulses_do_not_pile_up() {
        let (writer, mut reader) = outlet(CancellationToken::new());
        writer.pulse();
        writer.pulse();
        assert_eq!(poll(&mut reader), Some(Item::Pulse));
        assert_eq!(poll(&mut reader), None);
        assert!(writer.push("a".into()));
        writer.finish(1000, "bye");
        assert!(writer.push("late".into()));
        assert_eq!(poll(&mut reader), Some(Item::Bytes("a".into())));
        assert_eq!(poll(&mut reader), Some(Item::End(End::Finished(1000, "bye"))));
    }

    #[test]
    fn room_and_the_bound() {
        let context = Context::from_waker(Waker::noop());
        let (writer, mut reader) = outlet(CancellationToken::new());
        assert!(writer.push(vec![b'x'; WAITING_BYTES_MAX + 1].into()), "one message of any size");
        assert!(!writer.poll_room(&context));
        assert!(!writer.push("more".into()));
        poll(&mut reader);
        assert!(writer.poll_room(&context));
        assert!(!writer.poll_gone(&context));
        drop(reader);
        assert!(writer.poll_gone(&context));
    }

    #[test]
    fn eviction_keeps_the_last_word_and_destroys() {
        let destroy = CancellationToken::new();
        let (writer, mut reader) = outlet(destroy.clone());
        writer.push("old".into());
        writer.push("evicted".into());
        writer.evict();
        assert!(destroy.is_cancelled());
        assert_eq!(poll(&mut reader), Some(Item::Bytes("evicted".into())));
        assert_eq!(poll(&mut reader), Some(Item::End(End::Evicted)));
    }
}
