//! The difference of a request's object from the valid object of its kind.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Changes of an object, by JSON pointers. Fields are removed before others are set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The pointers of fields and elements to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// The values to set. Missing objects on the way are added, and an index equal to the length appends.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, Value>,
}

impl Change {
    /// Returns a changed object. A pointer into a value that is neither object nor list has no effect.
    pub fn apply(&self, object: &Value) -> Value {
        let mut object = object.clone();
        for pointer in &self.remove {
            remove(&mut object, pointer);
        }
        for (pointer, value) in &self.set {
            set(&mut object, pointer, value);
        }
        object
    }
}

fn unescape(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.remove(&unescape(last));
        }
        Some(Value::Array(items)) => {
            if let Some(index) = last.parse().ok().filter(|index| *index < items.len()) {
                items.remove(index);
            }
        }
        _ => {}
    }
}

fn set(object: &mut Value, pointer: &str, value: &Value) {
    let mut target = object;
    for step in pointer.split('/').skip(1).map(unescape) {
        if target.is_null() {
            *target = Value::Object(Map::new());
        }
        target = match target {
            Value::Object(fields) => fields.entry(step).or_insert(Value::Null),
            Value::Array(items) => {
                let Ok(index) = step.parse::<usize>() else { return };
                if index == items.len() {
                    items.push(Value::Null);
                }
                let Some(item) = items.get_mut(index) else { return };
                item
            }
            _ => return,
        };
    }
    *target = value.clone();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_removed_and_set() {
        let object = json!({"a": {"b/c": [1, 2]}, "d": 1});
        let change = Change {
            remove: vec!["/d".into(), "/a/b~1c/0".into(), "/x/y".into()],
            set: [("/a/b~1c/1".into(), json!(3)), ("/e/f".into(), json!(null)), ("/a/b~1c/7".into(), json!(4))].into(),
        };
        assert_eq!(change.apply(&object), json!({"a": {"b/c": [2, 3]}, "e": {"f": null}}));
    }
}
