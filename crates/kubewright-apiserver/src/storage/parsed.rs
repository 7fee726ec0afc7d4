//! The latest versions of the objects of a resource, which are kept parsed.
//!
//! The controllers and the next write of an object read its latest version soon after it was written, and objects that
//! are few, such as namespaces, are read often. A parsed value takes about ten times the memory of its text, so there
//! are few of them.

use std::{collections::VecDeque, sync::Arc};

use super::object::Stored;

/// The versions that are kept parsed, oldest first.
#[derive(Debug)]
pub(crate) struct Parsed {
    versions: VecDeque<Arc<Stored>>,
    /// The estimated memory of their values in bytes.
    bytes: usize,
    limit: usize,
}

impl Parsed {
    /// Creates an empty list whose values take this much memory at most, or that of the latest version.
    pub(crate) fn new(limit: usize) -> Self {
        Self { versions: VecDeque::new(), bytes: 0, limit }
    }

    /// Adds a version. Returns those beyond the limit, whose values the caller drops outside of the lock.
    pub(crate) fn push(&mut self, version: Arc<Stored>) -> Vec<Arc<Stored>> {
        self.bytes += version.value_memory();
        self.versions.push_back(version);
        self.pop_while(|parsed, _| parsed.bytes > parsed.limit && parsed.versions.len() > 1)
    }

    /// Removes the versions up to a revision, and returns them.
    pub(crate) fn compact(&mut self, oldest: u64) -> Vec<Arc<Stored>> {
        self.pop_while(|_, first| first.revision() <= oldest)
    }

    fn pop_while(&mut self, is_outdated: impl Fn(&Self, &Stored) -> bool) -> Vec<Arc<Stored>> {
        let mut outdated = Vec::new();
        while self.versions.front().is_some_and(|first| is_outdated(self, first)) {
            let Some(version) = self.versions.pop_front() else { break };
            self.bytes -= version.value_memory();
            outdated.push(version);
        }
        outdated
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::storage::ChangeKind;

    #[test]
    fn the_oldest_values_are_dropped_beyond_the_limit() {
        let version =
            |revision| Arc::new(Stored::new(ChangeKind::Added, revision, json!({"metadata": {"a": {"b": 1}}})));
        let mut parsed = Parsed::new(3 * version(1).value_memory());
        let outdated = |parsed: &mut Parsed, revision| {
            parsed.push(version(revision)).iter().map(|version| version.revision()).collect::<Vec<_>>()
        };
        for revision in 1..4 {
            assert_eq!(outdated(&mut parsed, revision), [0; 0]);
        }
        assert_eq!(outdated(&mut parsed, 4), [1]);
        let large = json!({"metadata": {}, "data": vec!["x"; 1000]});
        assert_eq!(parsed.push(Arc::new(Stored::new(ChangeKind::Added, 5, large))).len(), 3);
        assert_eq!(outdated(&mut parsed, 6), [5], "the latest one remains, however large it is");
        parsed.push(version(7));
        assert_eq!(parsed.compact(6).len(), 1);
        assert_eq!((parsed.versions.len(), parsed.bytes), (1, version(7).value_memory()));
    }
}
