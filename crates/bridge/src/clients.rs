//! Who is here: the client ids registered on one session.
//!
//! Ids are minted outside and only registered here; a client cannot choose its own. They are counted, since one id may
//! be attached several times, and forgotten when the count is back at nothing. An id is a claim and not a proof: who
//! has seen one can send it. Source: daemon specification, §b "Client identity".
//!
//! Invariants: I1 every registered id has a count of at least one. I2 the registry obeys its bound. I3 a snapshot
//! never changes once taken.

use std::sync::Arc;

use convoke_protocol::ClientId;
use indexmap::IndexMap;

/// The registry of one session, in the order of arrival.
#[derive(Debug)]
pub(crate) struct Clients {
    refs: IndexMap<ClientId, u32>,
    limit: usize,
    /// Shared by all requests that were issued since the last arrival or departure.
    snapshot: Option<Arc<[ClientId]>>,
}

impl Clients {
    pub(crate) fn new(limit: usize) -> Self {
        Self { refs: IndexMap::new(), limit, snapshot: None }
    }

    /// Registers `claimed` once more if it is known here, else `minted`. `None` if there is no room.
    pub(crate) fn attach(&mut self, claimed: Option<ClientId>, minted: ClientId) -> Option<ClientId> {
        let id = claimed.filter(|id| self.refs.contains_key(id)).unwrap_or(minted);
        if self.refs.len() >= self.limit && !self.refs.contains_key(&id) {
            return None;
        }
        let count = self.refs.entry(id.clone()).or_insert(0);
        *count = count.saturating_add(1);
        if *count == 1 {
            self.snapshot = None;
        }
        Some(id)
    }

    /// Takes one attachment back. Whether that made the session empty; unknown ids change nothing.
    pub(crate) fn detach(&mut self, id: &ClientId) -> bool {
        let Some(count) = self.refs.get_mut(id) else { return false };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        self.refs.shift_remove(id);
        self.snapshot = None;
        self.refs.is_empty()
    }

    pub(crate) fn contains(&self, id: &ClientId) -> bool {
        self.refs.contains_key(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.refs.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &ClientId> {
        self.refs.keys()
    }

    /// Everyone who is here now.
    pub(crate) fn snapshot(&mut self) -> Arc<[ClientId]> {
        let refs = &self.refs;
        self.snapshot.get_or_insert_with(|| refs.keys().cloned().collect()).clone()
    }

    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn check_invariants(&self) {
        assert!(self.refs.values().all(|count| *count > 0), "I1: an id without attachment");
        assert!(self.refs.len() <= self.limit, "I2: too many ids");
        if let Some(snapshot) = &self.snapshot {
            assert!(snapshot.iter().eq(self.refs.keys()), "I3: the shared snapshot is stale");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ClientId {
        text.into()
    }

    #[test]
    fn an_unknown_claim_is_replaced_and_a_known_one_counts_up() {
        let mut clients = Clients::new(8);
        assert_eq!(clients.attach(Some(id("alice")), id("c1")), Some(id("c1")));
        assert_eq!(clients.attach(Some(id("c1")), id("c2")), Some(id("c1")));
        assert!(!clients.contains(&id("alice")) && !clients.contains(&id("c2")));
        assert!(!clients.detach(&id("c1")), "still attached once");
        assert!(clients.contains(&id("c1")));
        assert!(clients.detach(&id("c1")));
        assert!(!clients.contains(&id("c1")));
        assert!(!clients.detach(&id("c1")), "leaving twice does not empty it twice");
        clients.check_invariants();
    }

    #[test]
    fn a_full_registry_takes_no_new_id_but_counts_known_ones() {
        let mut clients = Clients::new(1);
        assert!(clients.attach(None, id("c1")).is_some());
        assert_eq!(clients.attach(None, id("c2")), None);
        assert_eq!(clients.attach(Some(id("c1")), id("c2")), Some(id("c1")));
    }

    #[test]
    fn a_snapshot_outlives_departures() {
        let mut clients = Clients::new(8);
        clients.attach(None, id("c1"));
        clients.attach(None, id("c2"));
        let before = clients.snapshot();
        clients.detach(&id("c1"));
        assert_eq!(&*before, [id("c1"), id("c2")]);
        assert_eq!(&*clients.snapshot(), [id("c2")]);
        clients.check_invariants();
    }
}
