//! What is said to an invocation while it runs?
//!
//! A person who steers, or a plugin that wants the model to hear something, leaves a message here; the flow appends it
//! to the session before the next model call. Unlike a change of the outgoing request it is kept, so the steps that
//! follow and a session that is resumed see it too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};

use crate::Content;

/// Most messages that wait for one step: a person types a handful, and who sends more is no person.
const MESSAGES_MAX: usize = 64;

/// Something that is said in between.
#[derive(Clone, Debug, PartialEq)]
pub struct Interjection {
    /// What the model reads.
    pub content: Content,
    /// Kept with the event, such as whose message it is.
    pub metadata: Map<String, Value>,
}

/// What became of an interjection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It is said before the next model call.
    Yes,
    /// The invocation is over.
    Closed,
    /// Too many wait already.
    Full,
}

/// Messages that wait for the next step. Clones are the same inbox.
#[derive(Clone, Debug, Default)]
pub struct Inbox(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    messages: Vec<Interjection>,
    interruption: Option<String>,
    closed: bool,
}

impl Inbox {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Steps under this lock are single assignments: a panic leaves nothing half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a message for the next step.
    pub fn push(&self, message: Interjection) -> Accepted {
        let mut waiting = self.waiting();
        if waiting.closed {
            return Accepted::Closed;
        }
        if waiting.messages.len() >= MESSAGES_MAX {
            return Accepted::Full;
        }
        waiting.messages.push(message);
        Accepted::Yes
    }

    /// Leaves a message, and ends the answer that is under way after its current event: what was said is kept, calls of
    /// it are answered as cancelled because of `why`, and the model is asked again.
    pub fn interrupt(&self, why: impl Into<String>, message: Interjection) -> Accepted {
        let accepted = self.push(message);
        if accepted == Accepted::Yes {
            self.waiting().interruption.get_or_insert(why.into());
        }
        accepted
    }

    /// Why the answer that is under way is to end, if it is.
    #[must_use]
    pub fn interruption(&self) -> Option<String> {
        self.waiting().interruption.clone()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting().messages.is_empty()
    }

    /// What waits, oldest first; an interruption is over with it.
    #[must_use]
    pub fn take(&self) -> Vec<Interjection> {
        let mut waiting = self.waiting();
        waiting.interruption = None;
        std::mem::take(&mut waiting.messages)
    }

    /// Closes the inbox if nothing waits, in one step: whoever was told [`Accepted::Yes`] is heard. Whether it is closed.
    #[must_use]
    pub fn close_if_empty(&self) -> bool {
        let mut waiting = self.waiting();
        waiting.closed |= waiting.messages.is_empty();
        waiting.closed
    }

    /// Closes the inbox; what was never heard.
    #[must_use]
    pub fn close(&self) -> Vec<Interjection> {
        let mut waiting = self.waiting();
        waiting.closed = true;
        waiting.interruption = None;
        std::mem::take(&mut waiting.messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Interjection {
        Interjection { content: Content::user(text), metadata: Map::new() }
    }

    #[test]
    fn who_is_accepted_is_heard_and_a_closed_inbox_says_so() {
        let inbox = Inbox::default();
        assert_eq!(inbox.push(said("a")), Accepted::Yes);
        assert!(!inbox.close_if_empty());
        assert_eq!(inbox.interrupt("why", said("b")), Accepted::Yes);
        assert_eq!(inbox.interruption().as_deref(), Some("why"));
        assert_eq!(inbox.take(), [said("a"), said("b")]);
        assert_eq!(inbox.interruption(), None);
        assert!(inbox.close_if_empty());
        assert_eq!(inbox.push(said("late")), Accepted::Closed);
        assert_eq!(inbox.interrupt("late", said("late")), Accepted::Closed);
        assert_eq!(inbox.interruption(), None);
    }

    #[test]
    fn it_is_bounded() {
        let inbox = Inbox::default();
        for _ in 0..MESSAGES_MAX {
            assert_eq!(inbox.push(said("x")), Accepted::Yes);
        }
        assert_eq!(inbox.push(said("x")), Accepted::Full);
        assert_eq!(inbox.close().len(), MESSAGES_MAX);
    }
}
