//! The event log: a ring of the latest changes, bounded by number and by memory.

use std::{collections::VecDeque, sync::Arc};

use super::object::Stored;

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    /// Where the object is stored: `group/plural`.
    pub(crate) storage: Arc<str>,
    /// Which object.
    pub(crate) key: super::Key,
    /// The object after the change; after a removal, as it was last, at the revision of the removal.
    pub(crate) object: Arc<Stored>,
    /// The object before the change.
    pub(crate) previous: Option<Arc<Stored>>,
}

/// How much a [`Log`] keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most events.
    pub(crate) events: usize,
    /// The most memory, estimated, in bytes.
    pub(crate) bytes: usize,
    /// The latest changes whose objects stay parsed.
    pub(crate) warm: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { events: 10_000, bytes: 64 << 20, warm: 1_000 }
    }
}

/// A reader asked for changes that the log no longer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    /// The oldest revision from which changes are still complete.
    pub(crate) oldest: u64,
}

/// The latest changes in revision order.
#[derive(Debug)]
pub(crate) struct Log {
    events: VecDeque<Arc<Event>>,
    /// Every event above this revision is here.
    floor: u64,
    bytes: usize,
    limits: Limits,
}

impl Log {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { events: VecDeque::new(), floor: 0, bytes: 0, limits }
    }

    /// Appends a change and gives back those that no longer fit, for the caller to drop when it holds no lock.
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

    /// The object of the event that just ceased to be one of the latest, to be cooled.
    pub(crate) fn cooling(&self) -> Option<Arc<Stored>> {
        let index = self.events.len().checked_sub(self.limits.warm + 1)?;
        Some(self.events.get(index)?.object.clone())
    }

    /// The changes after `revision`, oldest first.
    pub(crate) fn after(&self, revision: u64) -> Result<impl DoubleEndedIterator<Item = &Arc<Event>>, Expired> {
        if revision < self.floor {
            return Err(Expired { oldest: self.floor });
        }
        let start = self.events.partition_point(|event| event.object.revision() <= revision);
        Ok(self.events.range(start..))
    }
}
