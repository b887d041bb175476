//! Which ACP connections are there? At most 64, by their ids.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use uuid::Uuid;

use super::attendant::Memo;

/// Connections at a time. Source: daemon specification, §j.
const CONNECTIONS_MAX: usize = 64;

/// Messages of one client that wait for its attendant; a client that is ahead waits with its next one.
const MEMOS_MAX: usize = 64;

/// The open connections.
#[derive(Debug, Default)]
pub(super) struct Registry {
    places: Mutex<BTreeMap<String, Option<mpsc::Sender<Memo>>>>,
}

/// One connection's place; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    registry: Arc<Registry>,
    pub(super) id: String,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Option<mpsc::Sender<Memo>>>> {
        // Each change is one statement: a panic elsewhere leaves nothing broken.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection that posts find by its id, or for a WebSocket, which they don't; `None` if all are taken.
    pub(super) fn admit(self: &Arc<Self>, by_post: bool) -> Option<(Place, mpsc::Sender<Memo>, mpsc::Receiver<Memo>)> {
        let mut places = self.lock();
        if places.len() >= CONNECTIONS_MAX {
            return None;
        }
        let id = Uuid::new_v4().to_string();
        let (sender, memos) = mpsc::channel(MEMOS_MAX);
        places.insert(id.clone(), by_post.then(|| sender.clone()));
        Some((Place { registry: Arc::clone(self), id }, sender, memos))
    }

    /// The way to a connection that is made of posts.
    pub(super) fn find(&self, id: &str) -> Option<mpsc::Sender<Memo>> {
        self.lock().get(id).cloned().flatten()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_64_places_and_each_is_given_back() {
        let registry = Arc::new(Registry::default());
        let mut places: Vec<_> = std::iter::repeat_with(|| registry.admit(true)).map_while(|place| place).collect();
        assert_eq!(places.len(), 64);
        let (place, ..) = places.pop().unwrap();
        let id = place.id.clone();
        assert!(registry.find(&id).is_some());
        drop(place);
        assert!(registry.find(&id).is_none());
        let (socket, ..) = registry.admit(false).unwrap();
        assert!(registry.find(&socket.id).is_none(), "a WebSocket takes no posts");
        assert!(registry.admit(false).is_none());
    }
}
