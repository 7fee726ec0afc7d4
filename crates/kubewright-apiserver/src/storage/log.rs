//! The event log: the latest changes, limited in number and memory.

use std::{collections::VecDeque, sync::Arc};

use super::{key::Key, object::Stored};

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

/// The limits of a [`Log`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum number of events.
    pub(crate) events: usize,
    /// The maximum estimated memory in bytes.
    pub(crate) bytes: usize,
    /// The number of latest changes whose objects remain parsed.
    pub(crate) warm: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { events: 10_000, bytes: 64 << 20, warm: 1_000 }
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

    /// Appends a change. Returns the events beyond the limits, which the caller drops outside of the lock.
    pub(crate) fn push(&mut self, event: Arc<Event>) -> Vec<Arc<Event>> {
        self.bytes += event.object.weight();
        self.events.push_back(event);
        let mut dropped = Vec::new();
        while self.events.len() > self.limits.events || (self.bytes > self.limits.bytes && self.events.len() > 1) {
            let Some(event) = self.events.pop_front() else { break };
            self.bytes -= event.object.weight();
            self.floor = event.object.revision();
            dropped.push(event);
        }
        dropped
    }

    /// Returns the object of the event that just ceased to be one of the latest, so that its value can be dropped.
    pub(crate) fn outdated(&self) -> Option<Arc<Stored>> {
        let index = self.events.len().checked_sub(self.limits.warm + 1)?;
        Some(self.events.get(index)?.object.clone())
    }

    /// Returns the changes after `revision`, oldest first.
    pub(crate) fn after(&self, revision: u64) -> Result<impl DoubleEndedIterator<Item = &Arc<Event>>, Expired> {
        if revision < self.floor {
            return Err(Expired { oldest: self.floor });
        }
        let start = self.events.partition_point(|event| event.object.revision() <= revision);
        Ok(self.events.range(start..))
    }
}
