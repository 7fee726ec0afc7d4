//! The keys that are ready, ordered by priority and sequence.

use std::{cmp::Reverse, collections::BTreeMap};

use super::ReadyPosition;

/// The absence of a slot.
const NONE: usize = usize::MAX;

/// Slots by priority, and within a priority by sequence.
///
/// Most added slots have a higher sequence than all others of their priority: they are appended to a linked list, in
/// constant time. Slots with a lower sequence (a parked key keeps its position, a key that is added while it is
/// processed has that of the first call) go to a tree. The next slot is the lower of the two heads.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// No band is empty.
    bands: BTreeMap<Reverse<i32>, PriorityBand>,
    /// The neighbours of each slot in its list.
    links: Vec<Link>,
}

/// The ready slots of one priority.
#[derive(Debug)]
struct PriorityBand {
    first: usize,
    last: usize,
    late: BTreeMap<u64, usize>,
    length: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    sequence: u64,
    before: usize,
    after: usize,
}

impl Ready {
    pub(super) fn is_empty(&self) -> bool {
        self.bands.is_empty()
    }

    /// Returns the number of slots by priority, the highest first.
    pub(super) fn depths(&self) -> impl Iterator<Item = (i32, usize)> {
        self.bands.iter().map(|(priority, band)| (priority.0, band.length))
    }

    /// Adds a slot, which must not be present.
    pub(super) fn insert(&mut self, position: ReadyPosition, slot: usize) {
        let ReadyPosition { priority, sequence, .. } = position;
        if self.links.len() <= slot {
            self.links.resize(slot + 1, Link { sequence: 0, before: NONE, after: NONE });
        }
        let empty = || PriorityBand { first: NONE, last: NONE, late: BTreeMap::new(), length: 0 };
        let band = self.bands.entry(Reverse(priority)).or_insert_with(empty);
        band.length += 1;
        let last = band.last;
        match self.links.get_mut(last) {
            Some(end) if end.sequence > sequence => {
                band.late.insert(sequence, slot);
                return;
            }
            Some(end) => end.after = slot,
            None => band.first = slot,
        }
        band.last = slot;
        self.links[slot] = Link { sequence, before: last, after: NONE };
    }

    /// Removes a slot that was added with this position.
    pub(super) fn remove(&mut self, position: ReadyPosition, slot: usize) {
        let Some(band) = self.bands.get_mut(&Reverse(position.priority)) else { return };
        band.length -= 1;
        if band.late.remove(&position.sequence).is_none() {
            let Link { before, after, .. } = self.links[slot];
            match self.links.get_mut(before) {
                Some(link) => link.after = after,
                None => band.first = after,
            }
            match self.links.get_mut(after) {
                Some(link) => link.before = before,
                None => band.last = before,
            }
        }
        if band.length == 0 {
            self.bands.remove(&Reverse(position.priority));
        }
    }

    /// Removes and returns the next slot.
    pub(super) fn pop(&mut self) -> Option<usize> {
        let mut best = self.bands.first_entry()?;
        let band = best.get_mut();
        let link = self.links.get(band.first).copied();
        let late = band.late.first_entry().filter(|late| link.is_none_or(|link| *late.key() < link.sequence));
        let slot = match (late, link) {
            (Some(late), _) => late.remove(),
            (None, Some(Link { after, .. })) => {
                let first = std::mem::replace(&mut band.first, after);
                match self.links.get_mut(after) {
                    Some(next) => next.before = NONE,
                    None => band.last = NONE,
                }
                first
            }
            (None, None) => return None,
        };
        band.length -= 1;
        if band.length == 0 {
            best.remove();
        }
        Some(slot)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
