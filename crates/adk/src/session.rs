//! Sessions that are referenced, not copied.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::Event;

/// Events that a session makes room for at least, when it has none left.
const EVENTS_MORE: usize = 16;

/// A conversation and its state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    /// Whose it is.
    pub key: SessionKey,
    /// Session-local state.
    pub state: Map<String, Value>,
    /// What happened, oldest first; never a partial event.
    pub events: Vec<Event>,
    /// Milliseconds since the Unix epoch of the last event.
    pub last_update_ms: u64,
}

/// Application, user and session id.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The application.
    pub app_name: String,
    /// The user.
    pub user_id: String,
    /// The session.
    pub session_id: String,
}

/// A session that everyone who holds it sees change.
///
/// The lock is for single steps: nobody holds it across an `await`.
#[derive(Clone, Debug, Default)]
pub struct LiveSession(Arc<Mutex<Session>>);

impl LiveSession {
    /// Wraps a session.
    #[must_use]
    pub fn new(session: Session) -> Self {
        Self(Arc::new(Mutex::new(session)))
    }

    /// Reads or changes the session in one step.
    pub fn with<T>(&self, step: impl FnOnce(&mut Session) -> T) -> T {
        // A panic in a step can leave no half-changed invariant behind: each step is one push or one replacement.
        step(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether both are the same session.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Which view of a session to get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetSession {
    /// Only the newest so many events.
    pub num_recent_events: Option<usize>,
    /// Only events at or after this moment, in milliseconds since the Unix epoch.
    pub after_timestamp_ms: Option<u64>,
}

/// One line of a list of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    /// Whose it is.
    pub key: SessionKey,
    /// How many events it has.
    pub event_count: usize,
    /// Milliseconds since the Unix epoch of the last event.
    pub last_update_ms: u64,
}

/// Keeps sessions. Source: the implementation details of the replatforming, "GcliSessionService".
pub trait SessionService: Send + Sync {
    /// A new session; `None` if the key is taken.
    fn create(&self, key: SessionKey, state: Map<String, Value>, now_ms: u64) -> Option<LiveSession>;

    /// The live session. With a filter: a copy, so that nobody can change a truncated live one.
    fn get(&self, key: &SessionKey, filter: &GetSession) -> Option<LiveSession>;

    /// Appends an event once and applies its state delta. A partial event changes nothing.
    fn append(&self, session: &LiveSession, event: Event);

    /// The sessions of one user of one application, newest first.
    fn list(&self, app_name: &str, user_id: &str) -> Vec<SessionSummary>;

    /// Forgets a session; whether there was one.
    fn delete(&self, key: &SessionKey) -> bool;
}

/// Sessions in memory. Supports session-local state only.
#[derive(Debug, Default)]
pub struct InMemorySessionService {
    live: Mutex<BTreeMap<SessionKey, LiveSession>>,
}

impl InMemorySessionService {
    fn with<T>(&self, step: impl FnOnce(&mut BTreeMap<SessionKey, LiveSession>) -> T) -> T {
        step(&mut self.live.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SessionService for InMemorySessionService {
    fn create(&self, key: SessionKey, state: Map<String, Value>, now_ms: u64) -> Option<LiveSession> {
        self.with(|live| {
            if live.contains_key(&key) {
                return None;
            }
            let session =
                LiveSession::new(Session { key: key.clone(), state, events: Vec::new(), last_update_ms: now_ms });
            live.insert(key, session.clone());
            Some(session)
        })
    }

    fn get(&self, key: &SessionKey, filter: &GetSession) -> Option<LiveSession> {
        let session = self.with(|live| live.get(key).cloned())?;
        if *filter == GetSession::default() {
            return Some(session);
        }
        let mut copy = session.with(|s| s.clone());
        if let Some(after) = filter.after_timestamp_ms {
            copy.events.retain(|event| event.timestamp_ms >= after);
        }
        if let Some(newest) = filter.num_recent_events {
            copy.events.drain(..copy.events.len().saturating_sub(newest));
        }
        Some(LiveSession::new(copy))
    }

    fn append(&self, session: &LiveSession, event: Event) {
        if event.partial {
            return;
        }
        session.with(|s| {
            let kept = event.actions.state_delta.iter().filter(|(key, _)| !key.starts_with("temp:"));
            s.state.extend(kept.map(|(key, value)| (key.clone(), value.clone())));
            s.last_update_ms = event.timestamp_ms;
            if s.events.len() == s.events.capacity() {
                // Not twice as much: a session lives long, and its events are wide.
                s.events.reserve_exact((s.events.len() / 4).max(EVENTS_MORE));
            }
            s.events.push(event);
        });
    }

    fn list(&self, app_name: &str, user_id: &str) -> Vec<SessionSummary> {
        let sessions: Vec<LiveSession> = self.with(|live| {
            let of_user = |key: &&SessionKey| key.app_name == app_name && key.user_id == user_id;
            live.iter().filter(|(key, _)| of_user(key)).map(|(_, session)| session.clone()).collect()
        });
        let mut list: Vec<SessionSummary> = sessions
            .iter()
            .map(|session| {
                session.with(|s| SessionSummary {
                    key: s.key.clone(),
                    event_count: s.events.len(),
                    last_update_ms: s.last_update_ms,
                })
            })
            .collect();
        list.sort_by_key(|summary| std::cmp::Reverse(summary.last_update_ms));
        list
    }

    fn delete(&self, key: &SessionKey) -> bool {
        self.with(|live| live.remove(key).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Content;
    use serde_json::json;

    fn key(id: &str) -> SessionKey {
        SessionKey { app_name: "app".into(), user_id: "user".into(), session_id: id.into() }
    }

    fn event(at: u64) -> Event {
        Event { timestamp_ms: at, content: Some(Arc::new(Content::user("x"))), ..Event::default() }
    }

    #[test]
    fn a_live_session_is_one_object_and_a_filtered_one_is_a_copy() {
        let service = InMemorySessionService::default();
        let made = service.create(key("a"), Map::new(), 1).unwrap();
        assert!(service.create(key("a"), Map::new(), 1).is_none());
        let got = service.get(&key("a"), &GetSession::default()).unwrap();
        assert!(made.same(&got));
        for at in 2..5 {
            service.append(&got, event(at));
        }
        service.append(&got, Event { partial: true, ..event(9) });
        assert_eq!(made.with(|s| (s.events.len(), s.last_update_ms)), (3, 4));
        let filter = GetSession { num_recent_events: Some(1), after_timestamp_ms: Some(3) };
        let copy = service.get(&key("a"), &filter).unwrap();
        assert_eq!(copy.with(|s| s.events.iter().map(|e| e.timestamp_ms).collect::<Vec<_>>()), [4]);
        copy.with(|s| s.events.clear());
        assert_eq!(made.with(|s| s.events.len()), 3);
    }

    #[test]
    fn state_deltas_apply_except_temporary_keys() {
        let service = InMemorySessionService::default();
        let session = service.create(key("a"), Map::new(), 1).unwrap();
        let mut changed = event(2);
        changed.actions.state_delta = json!({"kept": 1, "temp:gone": 2}).as_object().unwrap().clone();
        service.append(&session, changed);
        assert_eq!(session.with(|s| Value::Object(s.state.clone())), json!({"kept": 1}));
    }

    #[test]
    fn lists_newest_first_and_deletes() {
        let service = InMemorySessionService::default();
        let old = service.create(key("old"), Map::new(), 1).unwrap();
        service.create(key("new"), Map::new(), 5).unwrap();
        service.append(&old, event(2));
        let ids: Vec<_> = service.list("app", "user").into_iter().map(|s| s.key.session_id).collect();
        assert_eq!(ids, ["new", "old"]);
        assert!(service.list("app", "other").is_empty());
        assert!(service.delete(&key("old")));
        assert!(!service.delete(&key("old")));
        assert!(service.get(&key("old"), &GetSession::default()).is_none());
    }
}
