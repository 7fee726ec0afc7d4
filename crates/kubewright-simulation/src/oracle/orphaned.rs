//! Objects that are left behind, or missing, compared with the run without faults.

use std::sync::Arc;

use super::{Calm, Oracle, Seen};

/// Finds more objects at the end than in the run without faults.
pub(super) struct Orphaned(Arc<Calm>);

impl Orphaned {
    pub(super) fn new(calm: Arc<Calm>) -> Self {
        Self(calm)
    }
}

impl Oracle for Orphaned {
    fn name(&self) -> &'static str {
        "orphaned"
    }

    fn at_rest(&mut self, seen: &Seen<'_>) -> Vec<String> {
        let more = self.0.more_than_last(seen);
        more.map(|(role, alive, expected)| format!("{alive} {role} are left; without faults {expected}")).collect()
    }
}

/// Finds fewer objects at the end than in the run without faults.
pub(super) struct Missing(Arc<Calm>);

impl Missing {
    pub(super) fn new(calm: Arc<Calm>) -> Self {
        Self(calm)
    }
}

impl Oracle for Missing {
    fn name(&self) -> &'static str {
        "missing"
    }

    fn at_rest(&mut self, seen: &Seen<'_>) -> Vec<String> {
        let fewer = self.0.fewer(seen);
        fewer.map(|(role, alive, expected)| format!("there are {alive} {role}; without faults {expected}")).collect()
    }
}
