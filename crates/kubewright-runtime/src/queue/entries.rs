//! The entries of the queue, found by key or by place.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::{HashTable, hash_table};
use slab::Slab;

use super::Entry;

/// All that is known of the keys. A key is kept once, in its entry, and goes by its place otherwise, so that it is hashed
/// only at the door.
///
/// Keys are names that a cluster's users choose, so they are hashed with a seed: without knowing it nobody makes names that
/// fall on one another. Nothing is ever done in the table's order, so nothing depends on the seed but time.
#[derive(Debug)]
pub(super) struct Entries<K> {
    places: HashTable<usize>,
    entries: Slab<Entry<K>>,
    hasher: FixedState,
}

impl<K: Eq + Hash> Entries<K> {
    pub(super) fn new(seed: u64) -> Self {
        Self { places: HashTable::new(), entries: Slab::new(), hasher: FixedState::with_seed(seed) }
    }

    pub(super) fn at(&self, place: usize) -> Option<&Entry<K>> {
        self.entries.get(place)
    }

    pub(super) fn at_mut(&mut self, place: usize) -> Option<&mut Entry<K>> {
        self.entries.get_mut(place)
    }

    pub(super) fn find(&self, key: &K) -> Option<usize> {
        let is_it = |place: &usize| self.entries.get(*place).is_some_and(|entry| entry.key == *key);
        self.places.find(self.hasher.hash_one(key), is_it).copied()
    }

    /// The place of a key, which it is given if it has none.
    pub(super) fn place(&mut self, key: K) -> usize {
        let Self { places, entries, hasher } = self;
        let hash = hasher.hash_one(&key);
        let is_it = |place: &usize| entries.get(*place).is_some_and(|entry| entry.key == key);
        let rehash = |place: &usize| entries.get(*place).map_or(0, |entry| entry.hash);
        match places.entry(hash, is_it, rehash) {
            hash_table::Entry::Occupied(known) => *known.get(),
            hash_table::Entry::Vacant(vacant) => {
                let place = entries.insert(Entry::new(key, hash));
                vacant.insert(place);
                place
            }
        }
    }

    pub(super) fn remove(&mut self, place: usize) {
        let Some(entry) = self.entries.try_remove(place) else { return };
        if let Ok(known) = self.places.find_entry(entry.hash, |other| *other == place) {
            known.remove();
        }
    }

    /// Changes all entries, and removes those of which `keep` says so.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&mut Entry<K>) -> bool) {
        let Self { places, entries, .. } = self;
        entries.retain(|_, entry| keep(entry));
        places.retain(|place| entries.contains(*place));
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> Vec<&K> {
        assert_eq!(self.places.len(), self.entries.len());
        self.entries.iter().map(|(_, entry)| &entry.key).collect()
    }
}
