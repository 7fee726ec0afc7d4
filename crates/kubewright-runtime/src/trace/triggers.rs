//! The triggers of a key, kept while the key waits.

use std::{fmt, sync::Arc};

use super::Trigger;

/// The maximum number of triggers kept for one key, and of changed fields of each.
const MOST_TRIGGERS: usize = 8;
const MOST_FIELDS: usize = 8;

/// Computes the paths of the fields that differ between two states of an object. It traverses both states, so call it
/// without holding a lock.
pub(crate) type Difference = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// A change of an object that may trigger reconciles.
pub(crate) trait ObservedChange {
    /// Returns the trigger, without the changed fields.
    fn trigger(&self) -> Trigger;

    /// Computes the paths of the changed fields. It costs as much as a [`Difference`].
    fn fields(&self) -> Vec<String>;

    /// Returns a deferred computation of the changed fields; `None` if there is nothing to compare. It keeps both
    /// states in memory.
    fn difference(&self) -> Option<Difference>;
}

/// A trigger whose changed fields may not have been computed yet.
pub(crate) struct NewTrigger {
    pub(super) trigger: Trigger,
    pub(super) difference: Option<Difference>,
}

impl From<Trigger> for NewTrigger {
    fn from(trigger: Trigger) -> Self {
        Self { trigger, difference: None }
    }
}

/// The triggers of one key. Adding to them never compares objects.
#[derive(Clone, Default)]
pub(crate) struct Triggers {
    pub(super) kept: Vec<Trigger>,
    pub(super) more: u32,
    /// Differences that have not been computed, each with the index of its trigger.
    pending: Vec<(usize, Difference)>,
}

impl fmt::Debug for Triggers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Triggers").field("kept", &self.kept).field("more", &self.more).finish_non_exhaustive()
    }
}

impl Triggers {
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.more == 0
    }

    /// Adds a trigger, or only counts it if the limit is reached.
    pub(super) fn add(&mut self, NewTrigger { trigger, difference }: NewTrigger) {
        let index = self.insert(trigger);
        if let (Some(index), Some(difference)) = (index, difference) {
            self.defer(index, difference);
        }
    }

    /// Adds all triggers of another set.
    pub(super) fn append(&mut self, other: Self) {
        let indexes = other.kept.into_iter().map(|trigger| self.insert(trigger)).collect::<Vec<_>>();
        for (index, difference) in other.pending {
            if let Some(index) = indexes.get(index).copied().flatten() {
                self.defer(index, difference);
            }
        }
        self.more = self.more.saturating_add(other.more);
    }

    /// Computes the pending differences. Call it without holding a lock.
    pub(crate) fn settle(&mut self) {
        // In reverse order, as each is inserted before the known fields.
        for (index, difference) in std::mem::take(&mut self.pending).into_iter().rev() {
            if let Some(trigger) = self.kept.get_mut(index) {
                let later = std::mem::take(&mut trigger.fields);
                add_fields(trigger, difference());
                add_fields(trigger, later);
            }
        }
    }

    /// Adds a trigger, counts its repetition, or only counts it if the limit is reached. Returns its index if it is
    /// kept.
    fn insert(&mut self, trigger: Trigger) -> Option<usize> {
        let is_repeated = |known: &Trigger| {
            known.reason == trigger.reason && known.kind == trigger.kind && known.object == trigger.object
        };
        if let Some(index) = self.kept.iter().position(is_repeated) {
            let known = &mut self.kept[index];
            known.times = known.times.saturating_add(trigger.times);
            known.more_fields = known.more_fields.max(trigger.more_fields);
            add_fields(known, trigger.fields);
            return Some(index);
        }
        if self.kept.len() < MOST_TRIGGERS {
            self.kept.push(trigger);
            return Some(self.kept.len() - 1);
        }
        self.more = self.more.saturating_add(1);
        None
    }

    /// Defers a difference. Each keeps two states of an object in memory, so their number is bounded too.
    fn defer(&mut self, index: usize, difference: Difference) {
        if self.pending.len() < MOST_TRIGGERS {
            self.pending.push((index, difference));
        }
    }
}

/// Adds changed fields to a trigger, up to the limit.
fn add_fields(trigger: &mut Trigger, fields: Vec<String>) {
    for field in fields {
        if trigger.fields.contains(&field) {
            continue;
        }
        if trigger.fields.len() < MOST_FIELDS {
            trigger.fields.push(field);
        } else {
            trigger.more_fields = trigger.more_fields.saturating_add(1);
        }
    }
}
