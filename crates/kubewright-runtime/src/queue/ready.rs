//! What is ready to be handed out, best first.

use std::{cmp::Reverse, collections::BTreeMap};

use super::Ticket;

/// No place.
const NONE: usize = usize::MAX;

/// Places by priority, and within a priority by sequence.
///
/// Mostly what comes has a higher sequence than all that waits with its priority: it is hung at the end of a list, which
/// costs the same however long that is. What comes late (parked keys return to their old place, worked on ones to that of
/// their first wish) is kept beside it in a tree. Whatever is at the head of one of the two is next.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// None is empty.
    lanes: BTreeMap<Reverse<i32>, Lane>,
    /// By place, the neighbours in the list that it is in.
    links: Vec<Link>,
}

#[derive(Debug)]
struct Lane {
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
        self.lanes.is_empty()
    }

    /// How many there are, by priority, the highest first.
    pub(super) fn depths(&self) -> impl Iterator<Item = (i32, usize)> {
        self.lanes.iter().map(|(priority, lane)| (priority.0, lane.length))
    }

    /// Adds a place, which is not there yet.
    pub(super) fn insert(&mut self, ticket: Ticket, place: usize) {
        let Ticket { priority, sequence, .. } = ticket;
        if self.links.len() <= place {
            self.links.resize(place + 1, Link { sequence: 0, before: NONE, after: NONE });
        }
        let empty = || Lane { first: NONE, last: NONE, late: BTreeMap::new(), length: 0 };
        let lane = self.lanes.entry(Reverse(priority)).or_insert_with(empty);
        lane.length += 1;
        let last = lane.last;
        match self.links.get_mut(last) {
            Some(end) if end.sequence > sequence => {
                lane.late.insert(sequence, place);
                return;
            }
            Some(end) => end.after = place,
            None => lane.first = place,
        }
        lane.last = place;
        self.links[place] = Link { sequence, before: last, after: NONE };
    }

    /// Removes a place, which was added with this ticket.
    pub(super) fn remove(&mut self, ticket: Ticket, place: usize) {
        let Some(lane) = self.lanes.get_mut(&Reverse(ticket.priority)) else { return };
        lane.length -= 1;
        if lane.late.remove(&ticket.sequence).is_none() {
            let Link { before, after, .. } = self.links[place];
            match self.links.get_mut(before) {
                Some(link) => link.after = after,
                None => lane.first = after,
            }
            match self.links.get_mut(after) {
                Some(link) => link.before = before,
                None => lane.last = before,
            }
        }
        if lane.length == 0 {
            self.lanes.remove(&Reverse(ticket.priority));
        }
    }

    /// Takes the best.
    pub(super) fn pop(&mut self) -> Option<usize> {
        let mut best = self.lanes.first_entry()?;
        let lane = best.get_mut();
        let link = self.links.get(lane.first).copied();
        let late = lane.late.first_entry().filter(|late| link.is_none_or(|link| *late.key() < link.sequence));
        let place = match (late, link) {
            (Some(late), _) => late.remove(),
            (None, Some(Link { after, .. })) => {
                let first = std::mem::replace(&mut lane.first, after);
                match self.links.get_mut(after) {
                    Some(next) => next.before = NONE,
                    None => lane.last = NONE,
                }
                first
            }
            (None, None) => return None,
        };
        lane.length -= 1;
        if lane.length == 0 {
            best.remove();
        }
        Some(place)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
