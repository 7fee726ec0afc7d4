//! The entries of the queue, by key or by slot.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::{HashTable, hash_table};
use slab::Slab;

use super::Entry;

/// The entries of all keys. A key is stored once, in its entry, and referred to by its slot, so that it is hashed only
/// when it enters the queue.
///
/// Users of the cluster choose the keys, so they are hashed with a seed: without it, names that collide can't be
/// chosen. Nothing uses the order of the table, so the seed affects nothing but time.
#[derive(Debug)]
pub(super) struct Entries<K> {
    slots: HashTable<usize>,
    entries: Slab<Entry<K>>,
    hasher: FixedState,
}

impl<K: Eq + Hash> Entries<K> {
    pub(super) fn new(seed: u64) -> Self {
        Self { slots: HashTable::new(), entries: Slab::new(), hasher: FixedState::with_seed(seed) }
    }

    pub(super) fn at(&self, slot: usize) -> Option<&Entry<K>> {
        self.entries.get(slot)
    }

    pub(super) fn at_mut(&mut self, slot: usize) -> Option<&mut Entry<K>> {
        self.entries.get_mut(slot)
    }

    pub(super) fn find(&self, key: &K) -> Option<usize> {
        let is_it = |slot: &usize| self.entries.get(*slot).is_some_and(|entry| entry.key == *key);
        self.slots.find(self.hasher.hash_one(key), is_it).copied()
    }

    /// Returns the slot of a key, which is added if it is absent.
    pub(super) fn slot(&mut self, key: K) -> usize {
        let Self { slots, entries, hasher } = self;
        let hash = hasher.hash_one(&key);
        let is_it = |slot: &usize| entries.get(*slot).is_some_and(|entry| entry.key == key);
        let rehash = |slot: &usize| entries.get(*slot).map_or(0, |entry| entry.hash);
        match slots.entry(hash, is_it, rehash) {
            hash_table::Entry::Occupied(known) => *known.get(),
            hash_table::Entry::Vacant(vacant) => {
                let slot = entries.insert(Entry::new(key, hash));
                vacant.insert(slot);
                slot
            }
        }
    }

    pub(super) fn remove(&mut self, slot: usize) {
        let Some(entry) = self.entries.try_remove(slot) else { return };
        if let Ok(known) = self.slots.find_entry(entry.hash, |other| *other == slot) {
            known.remove();
        }
    }

    /// Passes all entries to `keep`, and removes those for which it returns false.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&mut Entry<K>) -> bool) {
        let Self { slots, entries, .. } = self;
        entries.retain(|_, entry| keep(entry));
        slots.retain(|slot| entries.contains(*slot));
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> Vec<&K> {
        assert_eq!(self.slots.len(), self.entries.len());
        self.entries.iter().map(|(_, entry)| &entry.key).collect()
    }
}
