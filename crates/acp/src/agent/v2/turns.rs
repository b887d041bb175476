//! Which prompts of version 2 are in, which wait, and what state is each session in?
//!
//! A referee without clock and pipe: it is told what happens and says what follows, in order. A session has one turn at a
//! time; prompts behind it are held and come in one by one, and a cancellation ends those that were there before it.
//! Source: ACP v2, "Prompt Lifecycle".

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value, json};

use crate::rpc_error::RpcError;

use super::requests::Fields;
use super::updates::Thread;

/// Prompts behind a turn. A person types a few; more are a flood.
const HELD_MAX: usize = 64;

/// Bytes of all prompts that are held: one of the largest messages that are read.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A prompt whose message is not in yet.
#[derive(Debug)]
pub(super) struct Prompt {
    /// The client's id of the request.
    pub(super) id: Value,
    pub(super) params: Fields,
    /// As it was read.
    pub(super) bytes: usize,
}

/// What follows.
#[derive(Debug)]
pub(super) enum Effect {
    /// The prompt's message is in and its turn begins: answer it, say it, start it.
    Begin(String, Prompt),
    /// This prompt will never be in.
    Refuse(Value, RpcError),
    /// The session is in another state.
    State(String, Fields),
}

/// The sessions of one client. They are as many as the agent end opens.
#[derive(Debug, Default)]
pub(super) struct Turns {
    sessions: HashMap<String, Session>,
    held_bytes: usize,
    /// Open questions and whose they are; the agent end asks a few per session at once.
    questions: HashMap<String, String>,
}

#[derive(Debug, Default)]
struct Session {
    running: bool,
    closing: bool,
    held: VecDeque<Prompt>,
    thread: Thread,
}

impl Turns {
    /// A session is open. One that was open already goes on.
    pub(super) fn open(&mut self, session: &str) {
        self.sessions.entry(session.to_owned()).or_default();
    }

    pub(super) fn thread(&mut self, session: &str) -> Option<&mut Thread> {
        self.sessions.get_mut(session).map(|session| &mut session.thread)
    }

    /// Prompts that are held.
    pub(super) fn held(&self) -> usize {
        self.sessions.values().map(|session| session.held.len()).sum()
    }

    /// The state of a session.
    pub(super) fn state(&self, session: &str) -> Fields {
        let state = match self.sessions.get(session) {
            Some(Session { running: true, .. }) if self.asks(session) => "requires_action",
            Some(Session { running: true, .. }) => "running",
            _ => "idle",
        };
        Map::from_iter([("state".to_owned(), json!(state))])
    }

    fn asks(&self, session: &str) -> bool {
        self.questions.values().any(|asking| asking == session)
    }

    /// The client prompts `session`.
    pub(super) fn prompt(&mut self, session: &str, prompt: Prompt, effects: &mut Vec<Effect>) {
        let Some(open) = self.sessions.get_mut(session).filter(|session| !session.closing) else {
            return effects.push(Effect::Refuse(prompt.id, RpcError::no_session(session)));
        };
        if !open.running {
            open.running = true;
            effects.push(Effect::Begin(session.to_owned(), prompt));
            effects.push(Effect::State(session.to_owned(), self.state(session)));
        } else if open.held.len() >= HELD_MAX || self.held_bytes.saturating_add(prompt.bytes) > HELD_BYTES_MAX {
            effects.push(Effect::Refuse(prompt.id, RpcError::busy()));
        } else {
            self.held_bytes += prompt.bytes;
            open.held.push_back(prompt);
        }
    }

    /// The turn of `session` ended as `end` says; where the session is gone, so is what was held.
    pub(super) fn ended(&mut self, session: &str, end: Fields, is_gone: bool, effects: &mut Vec<Effect>) {
        self.questions.retain(|_, asking| asking != session);
        effects.push(Effect::State(session.to_owned(), end));
        if is_gone {
            self.empty(session, RpcError::no_session, effects);
            self.sessions.remove(session);
            return;
        }
        let Some(open) = self.sessions.get_mut(session) else { return };
        let next = open.held.pop_front();
        open.running = next.is_some();
        if let Some(next) = next {
            self.held_bytes -= next.bytes;
            effects.push(Effect::Begin(session.to_owned(), next));
            effects.push(Effect::State(session.to_owned(), self.state(session)));
        }
    }

    /// The client cancels what `session` does and holds. Whether there is a turn to cancel.
    pub(super) fn cancel(&mut self, session: &str, effects: &mut Vec<Effect>) -> bool {
        self.empty(session, |_| RpcError::withdrawn(), effects);
        self.sessions.get(session).is_some_and(|session| session.running)
    }

    /// The client takes back a prompt; whether it was held.
    pub(super) fn withdraw(&mut self, id: &Value, effects: &mut Vec<Effect>) -> bool {
        for session in self.sessions.values_mut() {
            let place = session.held.iter().position(|prompt| prompt.id == *id);
            if let Some(prompt) = place.and_then(|place| session.held.remove(place)) {
                self.held_bytes -= prompt.bytes;
                effects.push(Effect::Refuse(prompt.id, RpcError::withdrawn()));
                return true;
            }
        }
        false
    }

    /// The client closes `session`: nothing comes in any more.
    pub(super) fn close(&mut self, session: &str, effects: &mut Vec<Effect>) {
        self.empty(session, |_| RpcError::withdrawn(), effects);
        if let Some(open) = self.sessions.get_mut(session) {
            open.closing = true;
        }
    }

    /// The agent end answered the request to close.
    pub(super) fn closed(&mut self, session: &str, is_closed: bool) {
        if is_closed {
            self.questions.retain(|_, asking| asking != session);
            self.sessions.remove(session);
        } else if let Some(open) = self.sessions.get_mut(session) {
            open.closing = false;
        }
    }

    fn empty(&mut self, session: &str, why: impl Fn(&str) -> RpcError, effects: &mut Vec<Effect>) {
        let Some(open) = self.sessions.get_mut(session) else { return };
        for prompt in open.held.drain(..) {
            self.held_bytes -= prompt.bytes;
            effects.push(Effect::Refuse(prompt.id, why(session)));
        }
    }

    /// A question of `session` is on its way to the client.
    pub(super) fn asked(&mut self, question: &Value, session: &str, effects: &mut Vec<Effect>) {
        if !self.sessions.get(session).is_some_and(|session| session.running) {
            return;
        }
        let is_first = !self.asks(session);
        self.questions.insert(question.to_string(), session.to_owned());
        if is_first {
            effects.push(Effect::State(session.to_owned(), self.state(session)));
        }
    }

    /// A question was answered or withdrawn.
    pub(super) fn settled(&mut self, question: &Value, effects: &mut Vec<Effect>) {
        let Some(session) = self.questions.remove(&question.to_string()) else { return };
        if !self.asks(&session) {
            let state = self.state(&session);
            effects.push(Effect::State(session, state));
        }
    }

    /// What holds after every step.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let mut bytes = 0;
        for session in self.sessions.values() {
            assert!(session.held.is_empty() || (session.running && !session.closing), "only a turn holds prompts");
            assert!(session.held.len() <= HELD_MAX);
            bytes += session.held.iter().map(|prompt| prompt.bytes).sum::<usize>();
        }
        assert_eq!(bytes, self.held_bytes);
        assert!(bytes <= HELD_BYTES_MAX);
        for session in self.questions.values() {
            assert!(self.sessions.get(session).is_some_and(|session| session.running), "only a turn asks");
        }
    }

    /// Whether a turn of `session` runs.
    #[cfg(test)]
    pub(super) fn is_running(&self, session: &str) -> bool {
        self.sessions.get(session).is_some_and(|session| session.running)
    }
}
