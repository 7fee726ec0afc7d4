//! Why a key is woken: a change of an object, told without its type.

use std::fmt;

use serde_json::Value;

use crate::{
    object::{KindName, ObjectKey},
    predicate::ChangeType,
};

/// How many changed fields are told of a change.
const FIELDS: usize = 8;

/// A change that the cache has seen, as the trace tells it.
pub(crate) struct Cause<'a> {
    pub(crate) kind: &'a KindName,
    /// The object that has changed.
    pub(crate) object: &'a ObjectKey,
    pub(crate) change: ChangeType,
    /// It comes from a first list: nothing has happened, we only learn what is there.
    pub(crate) initial: bool,
    pub(super) states: &'a dyn Fn() -> Option<(Value, Value)>,
}

impl Cause<'_> {
    /// The paths of what an update has changed, such as `spec.replicas` or `status.conditions[0].status`: some, if there
    /// are many. Additions and deletions have none. It compares the two states each time.
    pub(crate) fn changed_fields(&self) -> Vec<String> {
        let mut paths = Vec::new();
        if let Some((old, new)) = (self.states)() {
            compare(&old, &new, "", &mut paths);
        }
        paths
    }
}

impl fmt::Debug for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cause").field("kind", self.kind).field("object", self.object).finish_non_exhaustive()
    }
}

fn compare(old: &Value, new: &Value, path: &str, paths: &mut Vec<String>) {
    if old == new || paths.len() >= FIELDS || path == "metadata.resourceVersion" {
        return;
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let gone = old.keys().filter(|key| !new.contains_key(*key));
            for key in new.keys().chain(gone) {
                let [old, new] = [old, new].map(|states| states.get(key).unwrap_or(&Value::Null));
                compare(old, new, &below(key), paths);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (at, (old, new)) in old.iter().zip(new).enumerate() {
                compare(old, new, &format!("{path}[{at}]"), paths);
            }
        }
        _ => paths.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_update_is_told_by_the_paths_that_changed() {
        let check = |old: Value, new: Value, expected: &[&str]| {
            let mut paths = Vec::new();
            compare(&old, &new, "", &mut paths);
            assert_eq!(paths, expected, "{old} → {new}");
        };
        let version = |version: &str| json!({"metadata": {"resourceVersion": version}});
        check(version("1"), version("2"), &[]);
        check(json!({"spec": {"replicas": 1}}), json!({"spec": {"replicas": 2}}), &["spec.replicas"]);
        check(json!({"a": [{"b": 1}, 2]}), json!({"a": [{"b": 2}, 2], "c": 1}), &["a[0].b", "c"]);
        check(json!({"a": [1], "gone": 1}), json!({"a": [1, 2]}), &["a", "gone"]);
        let many = |value: i32| Value::Object((0..20).map(|key| (format!("k{key:02}"), value.into())).collect());
        check(many(1), many(2), &["k00", "k01", "k02", "k03", "k04", "k05", "k06", "k07"]);
    }
}
