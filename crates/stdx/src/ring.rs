//! A queue that forgets its oldest entry instead of growing.

use std::collections::VecDeque;

/// A first-in-first-out ring of at most `capacity` entries.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    entries: VecDeque<T>,
    capacity: usize,
}

impl<T> Ring<T> {
    /// An empty ring. A capacity of 0 keeps nothing.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { entries: VecDeque::new(), capacity }
    }

    /// Adds `entry` and returns the one that had to leave, if any.
    pub fn push(&mut self, entry: T) -> Option<T> {
        if self.capacity == 0 {
            return Some(entry);
        }
        let gone = if self.entries.len() == self.capacity { self.entries.pop_front() } else { None };
        self.entries.push_back(entry);
        gone
    }

    /// Removes and returns the oldest entry.
    pub fn pop_oldest(&mut self) -> Option<T> {
        self.entries.pop_front()
    }

    /// The oldest entry.
    #[must_use]
    pub fn oldest(&self) -> Option<&T> {
        self.entries.front()
    }

    /// The newest entry.
    #[must_use]
    pub fn newest(&self) -> Option<&T> {
        self.entries.back()
    }

    /// The entry at `index`, counted from the oldest.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.entries.get(index)
    }

    /// Entries from the oldest to the newest.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.entries.iter()
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The most entries this ring keeps.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_oldest_when_full() {
        let mut ring = Ring::new(2);
        assert_eq!(ring.push(1), None);
        assert_eq!(ring.push(2), None);
        assert_eq!(ring.push(3), Some(1));
        assert_eq!(ring.iter().copied().collect::<Vec<_>>(), [2, 3]);
        assert_eq!((ring.oldest(), ring.newest()), (Some(&2), Some(&3)));
    }

    #[test]
    fn keeps_nothing_without_capacity() {
        let mut ring = Ring::new(0);
        assert_eq!(ring.push(1), Some(1));
        assert!(ring.is_empty());
    }
}
