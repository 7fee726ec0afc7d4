//! A sorted map whose clones are cheap, because they share their content until one of them changes.
//!
//! The entries are in chunks, and a list refers to the chunks. A change of a shared map copies the list and one chunk,
//! whose entries are references here: some microseconds for a hundred thousand entries. A map that isn't shared is
//! changed in place.

use std::{
    ops::{Bound, RangeFrom},
    sync::Arc,
};

/// The maximum number of entries in a chunk.
const CHUNK: usize = 128;

type Chunk<K, V> = Arc<Vec<(K, V)>>;

/// The map.
#[derive(Clone, Debug)]
pub(crate) struct SortedMap<K, V> {
    /// None of them is empty.
    chunks: Arc<Vec<Chunk<K, V>>>,
    len: usize,
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self { chunks: Arc::default(), len: 0 }
    }
}

impl<K, V> SortedMap<K, V> {
    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the entries in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|(key, value)| (key, value))
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

impl<K: Ord + Clone, V: Clone> SortedMap<K, V> {
    /// Returns the value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let (chunk, entry) = self.find(key);
        self.chunks.get(chunk)?.get(entry.ok()?).map(|(_, value)| value)
    }

    /// Returns the entries from a bound on.
    pub(crate) fn from(&self, start: Bound<&K>) -> impl Iterator<Item = (&K, &V)> + use<'_, K, V> {
        let (chunk, entry) = match start {
            Bound::Unbounded => (0, 0),
            Bound::Included(key) => {
                let (chunk, entry) = self.find(key);
                (chunk, entry.unwrap_or_else(|place| place))
            }
            Bound::Excluded(key) => {
                let (chunk, entry) = self.find(key);
                (chunk, entry.map_or_else(|place| place, |found| found + 1))
            }
        };
        let (first, rest) = self.chunks.get(chunk..).and_then(<[_]>::split_first).unzip();
        let first = first.and_then(|chunk| chunk.get(entry..)).unwrap_or_default();
        let rest = rest.unwrap_or_default().iter().flat_map(|chunk| chunk.iter());
        first.iter().chain(rest).map(|(key, value)| (key, value))
    }

    /// Returns the entries from a key on.
    pub(crate) fn range(&self, range: RangeFrom<K>) -> impl Iterator<Item = (&K, &V)> + use<'_, K, V> {
        self.from(Bound::Included(&range.start))
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let (at, entry) = self.find(&key);
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(chunk) = chunks.get_mut(at).map(Arc::make_mut) else {
            chunks.push(Arc::new(vec![(key, value)]));
            self.len = 1;
            return;
        };
        match entry {
            Ok(found) => chunk[found].1 = value,
            Err(place) => {
                chunk.insert(place, (key, value));
                self.len += 1;
                if chunk.len() > CHUNK {
                    // Chunks that are filled in order stay full.
                    let half = if place == CHUNK { CHUNK } else { CHUNK / 2 };
                    let rest = chunk.split_off(half);
                    chunks.insert(at + 1, Arc::new(rest));
                }
            }
        }
    }

    /// Removes a key, and returns its value.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (at, entry) = self.find(key);
        let found = entry.ok()?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(chunks.get_mut(at)?);
        let (_, value) = chunk.remove(found);
        self.len -= 1;
        let size = chunk.len();
        // Small neighbours become one chunk, so that the list stays short.
        let fits = |other: Option<&Chunk<K, V>>| other.is_some_and(|other| size + other.len() <= CHUNK / 2);
        if size == 0 {
            chunks.remove(at);
        } else if fits(chunks.get(at + 1)) {
            let next = chunks.remove(at + 1);
            Arc::make_mut(&mut chunks[at]).extend(Arc::unwrap_or_clone(next));
        } else if at > 0 && fits(chunks.get(at - 1)) {
            let next = chunks.remove(at);
            Arc::make_mut(&mut chunks[at - 1]).extend(Arc::unwrap_or_clone(next));
        }
        Some(value)
    }

    /// Returns the chunk in which a key is or belongs, and its place there: `Err` if it is absent.
    fn find(&self, key: &K) -> (usize, Result<usize, usize>) {
        let after = self.chunks.partition_point(|chunk| chunk.first().is_some_and(|(first, _)| first <= key));
        let chunk = after.saturating_sub(1);
        let entries = self.chunks.get(chunk).map(|chunk| chunk.as_slice()).unwrap_or_default();
        (chunk, entries.binary_search_by(|(other, _)| other.cmp(key)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kubewright_apimachinery::random::Random;

    use super::*;

    fn same(map: &SortedMap<u64, u64>, model: &BTreeMap<u64, u64>) {
        assert_eq!(map.len(), model.len());
        assert!(map.iter().eq(model.iter()));
        assert!(map.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK));
        let small = map.chunks.windows(2).filter(|pair| pair[0].len() + pair[1].len() <= CHUNK / 2).count();
        assert_eq!(small, 0, "small neighbours are joined");
    }

    #[test]
    fn it_behaves_as_a_map_and_its_clones_do_not_change() {
        let random = Random::seeded(1);
        let (mut map, mut model) = (SortedMap::default(), BTreeMap::new());
        let mut clones = Vec::new();
        for step in 0..20_000u64 {
            let key = random.u64() % 2_000;
            // It grows to nearly all keys, then shrinks to few.
            if random.u64() % 10 < if step < 10_000 { 8 } else { 1 } {
                map.insert(key, step);
                model.insert(key, step);
            } else {
                assert_eq!(map.remove(&key), model.remove(&key));
            }
            assert_eq!(map.get(&key), model.get(&key));
            if step % 500 == 0 {
                same(&map, &model);
                for start in [Bound::Unbounded, Bound::Included(&key), Bound::Excluded(&key)] {
                    assert!(map.from(start).eq(model.range((start, Bound::Unbounded))), "{start:?}");
                }
                clones.push((map.clone(), model.clone()));
            }
        }
        for (map, model) in &clones {
            same(map, model);
        }
        assert!(clones.iter().any(|(map, _)| map.len() > 1_500) && map.len() < 400);
    }

    #[test]
    fn keys_in_order_fill_their_chunks() {
        let mut map = SortedMap::default();
        for key in 0..10 * CHUNK {
            map.insert(key, ());
        }
        assert_eq!(map.chunks.len(), 10);
        for key in 0..10 * CHUNK {
            assert_eq!(map.remove(&key), Some(()));
        }
        assert_eq!((map.len(), map.chunks.len()), (0, 0));
        assert!(map.get(&1).is_none() && map.from(Bound::Included(&1)).next().is_none());
    }
}
