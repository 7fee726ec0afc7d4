//! The event log: the latest changes, limited in number and memory.

use std::{collections::VecDeque, sync::Arc};

use super::{
    key::Key,
    object::{ChangeKind, Stored},
};

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    /// The stored resource: `group/plural`.
    pub(crate) storage: Arc<str>,
    /// The key of the object.
    pub(crate) key: Key,
    /// The object after the change; for a removal, its last state, at the revision of the removal.
    pub(crate) object: Arc<Stored>,
    /// The object before the change.
    pub(crate) previous: Option<Arc<Stored>>,
}

impl Event {
    /// Returns the estimated memory in bytes that is needed for this event alone: that of versions which are no longer
    /// current. The version after a change is the current one, or the one before the object's next change.
    fn memory(&self) -> usize {
        const WITHOUT_OBJECTS: usize = 160;
        let removed = Some(&self.object).filter(|object| object.change() == ChangeKind::Deleted);
        let versions = self.previous.iter().chain(removed);
        WITHOUT_OBJECTS + versions.map(|version| version.text_memory()).sum::<usize>()
    }
}

/// The limits of the history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum number of events of a [`Log`] that lists no longer need.
    pub(crate) events: usize,
    /// The maximum number of events of a [`Log`], that of kube-apiserver's watch cache.
    pub(crate) recent_events: usize,
    /// The maximum estimated memory of a [`Log`] in bytes.
    pub(crate) bytes: usize,
    /// The maximum estimated memory of the parsed values of a resource in bytes.
    pub(crate) parsed: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { events: 10_000, recent_events: 100 << 10, bytes: 20 << 20, parsed: 6 << 20 }
    }
}

/// The error of reading changes that the log has dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    /// The oldest revision after which all changes are available.
    pub(crate) oldest: u64,
}

/// The latest changes in revision order.
#[derive(Debug)]
pub(crate) struct Log {
    events: VecDeque<Arc<Event>>,
    /// The log contains all events after this revision.
    floor: u64,
    bytes: usize,
    limits: Limits,
}

impl Log {
    /// Creates a log of the changes after the revision `floor`.
    pub(crate) fn new(limits: Limits, floor: u64) -> Self {
        Self { events: VecDeque::new(), floor, bytes: 0, limits }
    }

    /// Appends a change. Returns the events beyond the limits, which the caller drops outside of the lock. Lists read
    /// the revisions from `needed` on.
    pub(crate) fn push(&mut self, event: Arc<Event>, needed: u64) -> Vec<Arc<Event>> {
        self.bytes += event.memory();
        self.events.push_back(event);
        self.shrink(needed)
    }

    /// Shortens the log after the history before `needed` was given up, so that a burst of changes doesn't take memory
    /// for as long as no others follow. Returns the dropped events.
    pub(crate) fn compact(&mut self, needed: u64) -> Vec<Arc<Event>> {
        let dropped = self.shrink(needed);
        if !dropped.is_empty() {
            self.events.shrink_to_fit();
        }
        dropped
    }

    /// Drops the first events that are beyond the limits.
    fn shrink(&mut self, needed: u64) -> Vec<Arc<Event>> {
        let mut dropped = Vec::new();
        while self.is_excessive(needed) {
            let Some(event) = self.events.pop_front() else { break };
            self.bytes -= event.memory();
            self.floor = event.object.revision();
            dropped.push(event);
        }
        dropped
    }

    /// Returns whether the first event is beyond the limits.
    fn is_excessive(&self, needed: u64) -> bool {
        let Limits { events, recent_events, bytes, .. } = self.limits;
        let is_needed = self.events.front().is_some_and(|first| first.object.revision() > needed);
        let most = if is_needed { recent_events } else { events };
        self.events.len() > most || (self.bytes > bytes && self.events.len() > 1)
    }

    /// Returns the revision after which the log contains all events.
    #[cfg(test)]
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the index of the first change after `revision`. Most readers are near the end, so the search begins
    /// there.
    fn index_after(&self, revision: u64) -> usize {
        let is_after = |index: usize| self.events.get(index).is_none_or(|event| event.object.revision() > revision);
        let (mut low, mut high, mut width) = (self.events.len(), self.events.len(), 1);
        while low > 0 && is_after(low - 1) {
            (low, high, width) = (low.saturating_sub(width), low - 1, width * 2);
        }
        while low < high {
            let middle = low.midpoint(high);
            if is_after(middle) { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// Returns the changes after `revision`, oldest first.
    pub(crate) fn after(&self, revision: u64) -> Result<impl DoubleEndedIterator<Item = &Arc<Event>>, Expired> {
        if revision < self.floor {
            return Err(Expired { oldest: self.floor });
        }
        Ok(self.events.range(self.index_after(revision)..))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reader_continues_after_any_revision() {
        for count in 0..20 {
            // Revisions of one resource have gaps.
            let revisions: Vec<u64> = (0..count).map(|index| 10 + index * 3).collect();
            let mut log = Log::new(Limits::default(), 5);
            for revision in &revisions {
                let object = Arc::new(Stored::new(ChangeKind::Added, *revision, json!({})));
                let key = Key::new("", "a");
                log.push(Arc::new(Event { storage: "a".into(), key, object, previous: None }), 0);
            }
            assert!(log.after(4).is_err());
            for revision in 5..80 {
                let seen: Vec<_> = log.after(revision).unwrap().map(|event| event.object.revision()).collect();
                let expect: Vec<_> = revisions.iter().copied().filter(|other| *other > revision).collect();
                assert_eq!(seen, expect, "after {revision} of {revisions:?}");
            }
        }
    }
}
