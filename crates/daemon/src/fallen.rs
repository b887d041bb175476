//! Which sessions ended because their agent died, and who was on them? The next prompt to one of those brings it back.

use std::collections::VecDeque;

use convoke_protocol::{ClientId, SessionId};

/// Sessions that are remembered: what a few agents host between them. A forgotten one is still there for `load`.
const SESSIONS_MAX: usize = 128;

struct Ended {
    session: SessionId,
    clients: Vec<ClientId>,
}

/// The sessions that fell with their agents, the last ones; each at most once.
#[derive(Default)]
pub(crate) struct Fallen(VecDeque<Ended>);

impl Fallen {
    /// A session is about to end with its agent.
    pub(crate) fn note(&mut self, session: SessionId, clients: Vec<ClientId>) {
        if self.0.len() >= SESSIONS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Ended { session, clients });
    }

    /// A session is live, again or for the first time.
    pub(crate) fn risen(&mut self, session: &SessionId) {
        self.0.retain(|ended| ended.session != *session);
    }

    /// Who was registered on a session when its agent died; `None` if it did not end that way.
    pub(crate) fn clients_of(&self, session: &SessionId) -> Option<&[ClientId]> {
        self.0.iter().find(|ended| ended.session == *session).map(|ended| ended.clients.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered_until_they_live_again() {
        let mut fallen = Fallen::default();
        for number in 0..=SESSIONS_MAX {
            fallen.note(SessionId(number.to_string()), vec![ClientId("a".to_owned())]);
        }
        let id = |text: &str| SessionId(text.to_owned());
        assert!(fallen.clients_of(&id("0")).is_none());
        assert_eq!(fallen.clients_of(&id("1")), Some([ClientId("a".to_owned())].as_slice()));
        fallen.risen(&id("1"));
        assert!(fallen.clients_of(&id("1")).is_none());
    }
}
