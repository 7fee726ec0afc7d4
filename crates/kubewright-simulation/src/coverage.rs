//! Which states of the cluster a run has reached, without names and times.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use kubewright_apiserver::{Change, ChangeKind};
use serde_json::Value;

use crate::world::text;

/// The fields that differ between runs that do the same.
const SKIPPED: [&str; 9] = [
    "uid",
    "name",
    "namespace",
    "generateName",
    "resourceVersion",
    "managedFields",
    "creationTimestamp",
    "labels",
    "annotations",
];
/// The kinds of which nobody's work depends.
const IGNORED: [&str; 7] = ["Event", "Lease", "Node", "EndpointSlice", "IPAddress", "ResourceQuota", "ServiceCIDR"];
/// The longest text that is taken for a phase, a type or a reason.
const LONGEST: usize = 40;

/// The states that were reached. A state is the sum of the hashes of its objects.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    objects: BTreeMap<(String, String, String), u64>,
    sum: u64,
    reached: BTreeSet<u64>,
}

impl Coverage {
    /// Follows a change.
    pub(crate) fn follow(&mut self, change: &Change) {
        let kind = &*change.resource.kind;
        if IGNORED.contains(&kind) {
            return;
        }
        let object = change.object();
        let key = (kind.to_owned(), text(object, "namespace").to_owned(), text(object, "name").to_owned());
        let before = match change.kind {
            ChangeKind::Deleted => self.objects.remove(&key),
            ChangeKind::Added | ChangeKind::Modified => {
                let mut hasher = DefaultHasher::new();
                kind.hash(&mut hasher);
                shape(object, &mut hasher);
                let hash = hasher.finish();
                self.sum = self.sum.wrapping_add(hash);
                self.objects.insert(key, hash)
            }
        };
        self.sum = self.sum.wrapping_sub(before.unwrap_or_default());
        self.reached.insert(self.sum);
    }

    /// Returns the states.
    pub(crate) fn reached(self) -> BTreeSet<u64> {
        self.reached
    }
}

/// Hashes a value without what differs between runs that do the same.
fn shape(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Null => 0_u8.hash(hasher),
        Value::Bool(value) => value.hash(hasher),
        Value::Number(number) => number.to_string().hash(hasher),
        // Phases, types and reasons; not times, names with suffixes, or messages.
        Value::String(text) if text.len() <= LONGEST && text.chars().all(char::is_alphabetic) => text.hash(hasher),
        Value::String(_) => 1_u8.hash(hasher),
        Value::Array(items) => items.iter().for_each(|item| shape(item, hasher)),
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(name, _)| !SKIPPED.contains(&name.as_str())) {
                name.hash(hasher);
                shape(field, hasher);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hash(value: &Value) -> u64 {
        let mut hasher = DefaultHasher::new();
        shape(value, &mut hasher);
        hasher.finish()
    }

    #[test]
    fn names_and_times_make_no_state() {
        let pod = |name: &str, time: &str, phase: &str| {
            let metadata = json!({"name": name, "resourceVersion": time, "deletionTimestamp": time});
            json!({"metadata": metadata, "status": {"phase": phase, "startTime": time}})
        };
        let one = hash(&pod("web-1", "2020-01-30T10:00:00Z", "Running"));
        assert_eq!(one, hash(&pod("web-2", "2021-01-30T10:00:00Z", "Running")));
        assert_ne!(one, hash(&pod("web-1", "2020-01-30T10:00:00Z", "Failed")));
    }
}
