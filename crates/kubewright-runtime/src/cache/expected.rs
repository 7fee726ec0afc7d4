//! The state that the cache must show before a key's next run.

use std::collections::BTreeSet;

use crate::object::ObjectKey;

/// A set of objects with more keys than this becomes [`ObjectSet::All`]: one list then costs less than a request for
/// each.
const MAX_KEYS: usize = 8;

/// The state of the cache that a write or a live read makes the key's next run wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedState {
    /// The cache has seen this resource version, or a later one.
    Version(u64),
    /// The object with this key and UID is gone or is being deleted. If `version` is given, the object existed at that
    /// version, and the cache must have seen it.
    Gone { key: ObjectKey, uid: String, version: Option<u64> },
    /// The object with this key and UID, which a list at this resource version did not contain, is gone, or the cache
    /// has a newer state of it than the list: an object that stops matching a selector may match it again later.
    Absent { key: ObjectKey, uid: String, list: u64 },
}

/// Some or all objects of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ObjectSet {
    /// The objects with these keys.
    Keys(BTreeSet<ObjectKey>),
    /// All objects: their keys are unknown, or too many.
    All,
}

impl ObjectSet {
    /// Returns the set of one object.
    pub(crate) fn one(key: ObjectKey) -> Self {
        Self::Keys(BTreeSet::from([key]))
    }

    /// Adds the objects of another set.
    pub(crate) fn merge(&mut self, others: &Self) {
        match (&mut *self, others) {
            (Self::Keys(keys), Self::Keys(others)) => keys.extend(others.iter().cloned()),
            _ => *self = Self::All,
        }
        if matches!(self, Self::Keys(keys) if keys.len() > MAX_KEYS) {
            *self = Self::All;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_many_keys_becomes_the_set_of_all_objects() {
        let key = |number: usize| ObjectKey::cluster(&format!("k{number}"));
        let mut objects = ObjectSet::one(key(0));
        (0..MAX_KEYS).for_each(|number| objects.merge(&ObjectSet::one(key(number))));
        assert!(matches!(&objects, ObjectSet::Keys(keys) if keys.len() == MAX_KEYS));
        let mut one = ObjectSet::one(key(0));
        one.merge(&ObjectSet::All);
        objects.merge(&ObjectSet::one(key(MAX_KEYS)));
        assert_eq!((one, objects), (ObjectSet::All, ObjectSet::All));
    }
}
