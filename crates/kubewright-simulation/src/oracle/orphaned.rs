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
        let expected = |role| self.0.last.get(role).copied().unwrap_or_default();
        let more = seen.created.alive().iter().filter(|(role, alive)| **alive > expected(role));
        more.map(|(role, alive)| format!("{alive} {role} are left; without faults {}", expected(role))).collect()
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
        let alive = |role| seen.created.alive().get(role).copied().unwrap_or_default();
        let fewer = self.0.last.iter().filter(|(role, expected)| alive(role) < **expected);
        fewer.map(|(role, expected)| format!("there are {} {role}; without faults {expected}", alive(role))).collect()
    }
}
