//! The trajectory of a session: one log, any number of readers, nothing queued per reader.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::Stream;

use crate::AgentEvent;

/// How many events a log keeps. A long day of work has some tens of thousands; a reader that falls further behind than
/// this has stopped reading.
const EVENTS_MAX: usize = 65_536;

/// Bytes of events that are not among the newest. A turn that reads a hundred files of the largest size has a tenth.
const PACKED_BYTES_MAX: usize = 64 << 20;

/// How many events are kept as they are. Readers are rarely further behind; what is older is kept as its JSON, which takes
/// less than half of the memory.
const FRESH_MAX: usize = 128;

/// An append-only log of events. A reader is a cursor into it, so a slow one costs nothing and loses nothing until
/// the log itself forgets.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    shared: Arc<Mutex<Shared>>,
}

/// An event that is kept.
#[derive(Clone, Debug)]
enum Kept {
    Fresh(Arc<AgentEvent>),
    Packed(Arc<[u8]>),
}

impl Kept {
    fn pack(&mut self) {
        if let Self::Fresh(event) = self
            && let Ok(json) = serde_json::to_vec(event)
        {
            *self = Self::Packed(json.into());
        }
    }

    fn packed_bytes(&self) -> usize {
        match self {
            Self::Fresh(_) => 0,
            Self::Packed(json) => json.len(),
        }
    }

    /// As it was, and as it would be on a wire: data that is `null` is no data. `None` would be an event that can't be read as it was written.
    fn event(&self) -> Option<Arc<AgentEvent>> {
        match self {
            Self::Fresh(event) => Some(Arc::clone(event)),
            Self::Packed(json) => serde_json::from_slice(json).ok().map(Arc::new),
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    events: VecDeque<Kept>,
    packed_bytes: usize,
    /// Position of `events[0]` since the beginning.
    first: u64,
    wakers: Vec<Waker>,
    closed: bool,
}

impl Shared {
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn get(&self, position: u64) -> Option<&Kept> {
        self.events.get(usize::try_from(position.checked_sub(self.first)?).ok()?)
    }

    fn push(&mut self, event: AgentEvent) {
        self.events.push_back(Kept::Fresh(Arc::new(event)));
        if let Some(at) = self.events.len().checked_sub(FRESH_MAX + 1)
            && let Some(old) = self.events.get_mut(at)
        {
            old.pack();
            self.packed_bytes += old.packed_bytes();
        }
    }

    fn forget(&mut self, events_max: usize, packed_bytes_max: usize) {
        while self.events.len() > events_max || self.packed_bytes > packed_bytes_max {
            let Some(oldest) = self.events.pop_front() else { return };
            self.packed_bytes -= oldest.packed_bytes();
            self.first += 1;
        }
    }
}

impl EventLog {
    /// An empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nothing panics while the lock is held, and a log is still readable after a panic elsewhere.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an event and wakes its readers. Ignored once the log is closed.
    pub fn push(&self, event: AgentEvent) {
        let wakers = {
            let mut shared = self.lock();
            if shared.closed {
                return;
            }
            shared.push(event);
            shared.forget(EVENTS_MAX, PACKED_BYTES_MAX);
            std::mem::take(&mut shared.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends every subscription once it has delivered what is there.
    pub fn close(&self) {
        let wakers = {
            let mut shared = self.lock();
            shared.closed = true;
            std::mem::take(&mut shared.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The events that are still held, oldest first.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Arc<AgentEvent>> {
        let held = self.lock().events.clone();
        held.iter().filter_map(Kept::event).collect()
    }

    /// Live events from here on.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        let next = self.lock().end();
        Subscription { log: self.clone(), next }
    }

    /// Everything that is still held, then live events.
    #[must_use]
    pub fn replay(&self) -> Subscription {
        let next = self.lock().first;
        Subscription { log: self.clone(), next }
    }

    /// The events held now, with a subscription that continues right behind them.
    pub(crate) fn snapshot_and_subscribe(&self) -> (Vec<Arc<AgentEvent>>, Subscription) {
        let shared = self.lock();
        let held = shared.events.clone();
        let next = shared.end();
        drop(shared);
        (held.iter().filter_map(Kept::event).collect(), Subscription { log: self.clone(), next })
    }
}

/// A reader of an [`EventLog`]. Dropping it is all there is to unsubscribing. Cancel-safe.
#[derive(Debug)]
pub struct Subscription {
    log: EventLog,
    next: u64,
}

impl Stream for Subscription {
    type Item = Arc<AgentEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let log = self.log.clone();
        let mut shared = log.lock();
        self.next = self.next.max(shared.first);
        while let Some(kept) = shared.get(self.next) {
            let event = kept.event();
            self.next += 1;
            if event.is_some() {
                return Poll::Ready(event);
            }
        }
        if shared.closed {
            return Poll::Ready(None);
        }
        if !shared.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            shared.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};
    use serde_json::json;

    use super::*;
    use crate::{
        AgentEventBody, ContentPart, DisplayContent, EventId, MessageRole, Meta, StreamId, ToolDisplay, ToolKind,
    };

    fn event(number: usize, body: AgentEventBody) -> AgentEvent {
        AgentEvent {
            id: EventId(format!("s-{number}")),
            thread_id: number.is_multiple_of(3).then(|| "thread".to_owned()),
            stream_id: StreamId("s".to_owned()),
            timestamp: "2026-11-21T10:00:00.000Z".to_owned(),
            body,
            meta: if number.is_multiple_of(2) {
                Meta::new()
            } else {
                Meta::from_iter([("k".to_owned(), json!([number]))])
            },
        }
    }

    fn said(number: usize, text: String) -> AgentEvent {
        event(number, AgentEventBody::Message { role: MessageRole::Agent, content: vec![ContentPart::text(text)] })
    }

    /// One of every kind that has something optional in it, by turns.
    fn any(number: usize) -> AgentEvent {
        let display = ToolDisplay {
            name: Some("ReadFile".to_owned()),
            result: Some(DisplayContent::Diff { path: "/a".into(), before_text: None, after_text: "x\n".into() }),
            ..ToolDisplay::default()
        };
        let body = match number % 4 {
            0 => AgentEventBody::ToolRequest {
                request_id: "c".into(),
                name: "read_file".into(),
                args: json!({"a": 1.5, "b": [null, "\u{1f980}"]}),
                display: Some(display),
                kind: ToolKind::Read,
                locations: Vec::new(),
            },
            1 => AgentEventBody::Usage {
                model: "m".into(),
                input_tokens: Some(1),
                output_tokens: None,
                cached_tokens: None,
            },
            2 => AgentEventBody::Custom { kind: "notice".into(), data: Some(json!({"n": null})) },
            _ => return said(number, format!("words {number}")),
        };
        event(number, body)
    }

    #[test]
    fn what_is_old_is_told_as_it_was() {
        let log = EventLog::new();
        let mut reader = log.replay();
        let count = 3 * FRESH_MAX;
        (0..count).for_each(|number| log.push(any(number)));
        let held = log.snapshot();
        assert_eq!(held.len(), count);
        for (number, held) in held.iter().enumerate() {
            let told = reader.next().now_or_never().flatten().unwrap();
            assert_eq!(*told, any(number));
            assert_eq!(told, *held);
        }
        assert!(reader.next().now_or_never().is_none());
        let shared = log.lock();
        assert_eq!(shared.events.iter().filter(|kept| matches!(kept, Kept::Fresh(_))).count(), FRESH_MAX);
    }

    #[test]
    fn the_log_forgets_by_number_and_by_bytes_and_its_readers_go_on_behind_that() {
        let log = EventLog::new();
        let mut reader = log.replay();
        let mut shared = log.lock();
        for number in 0..FRESH_MAX + 20 {
            shared.push(said(number, if number < 20 { "x".repeat(1_000) } else { String::new() }));
            shared.forget(FRESH_MAX + 15, 8_500);
            assert!(shared.packed_bytes <= 8_500 && shared.events.len() <= FRESH_MAX + 15);
            assert_eq!(shared.packed_bytes, shared.events.iter().map(Kept::packed_bytes).sum::<usize>());
        }
        assert_eq!(shared.first, 13, "seven of a thousand bytes, and what is around them");
        shared.forget(5, 8_500);
        let first = shared.first;
        assert_eq!((first, shared.packed_bytes), (FRESH_MAX as u64 + 15, 0));
        drop(shared);
        assert_eq!(reader.next().now_or_never().flatten().unwrap().id, EventId(format!("s-{first}")));
    }
}
