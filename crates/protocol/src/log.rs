//! The trajectory of a session: one log, any number of readers, nothing queued per reader.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::Stream;

use crate::{AgentEvent, EventId};

/// How many events a log keeps. A long day of work has some tens of thousands; at about 300 bytes each the log stays
/// under 20 MB, and a reader that falls further behind than this has stopped reading.
const EVENTS_MAX: usize = 65_536;

/// An append-only log of events. A reader is a cursor into it, so a slow one costs nothing and loses nothing until
/// the log itself forgets.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    events: VecDeque<Arc<AgentEvent>>,
    /// Position of `events[0]` since the beginning.
    first: u64,
    wakers: Vec<Waker>,
    closed: bool,
}

impl Shared {
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn get(&self, position: u64) -> Option<&Arc<AgentEvent>> {
        self.events.get(usize::try_from(position.checked_sub(self.first)?).ok()?)
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
            if shared.events.len() == EVENTS_MAX {
                shared.events.pop_front();
                shared.first += 1;
            }
            shared.events.push_back(Arc::new(event));
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
        self.lock().events.iter().cloned().collect()
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
        let events = shared.events.iter().cloned().collect();
        let next = shared.end();
        drop(shared);
        (events, Subscription { log: self.clone(), next })
    }

    /// The event with this id, if it is still held.
    #[must_use]
    pub fn find(&self, id: &EventId) -> Option<Arc<AgentEvent>> {
        self.lock().events.iter().rev().find(|event| event.id == *id).cloned()
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
        let position = self.next.max(shared.first);
        if let Some(event) = shared.get(position) {
            self.next = position + 1;
            return Poll::Ready(Some(event.clone()));
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
