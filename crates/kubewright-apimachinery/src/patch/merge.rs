//! JSON merge patch ([RFC 7386](https://www.rfc-editor.org/rfc/rfc7386)): objects are merged, null removes, all other
//! values replace. As in Kubernetes, but not in the RFC, nulls are removed from objects in a list, too.

use serde_json::{Map, Value};

/// Applies `patch` to `document`. The depth of recursion is that of the patch, which the decoder limits.
pub fn apply(document: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *document = patch.clone();
        return;
    };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    let Value::Object(fields) = document else { return };
    for (name, change) in changes {
        match change {
            Value::Null => {
                fields.remove(name);
            }
            Value::Object(_) => apply(fields.entry(name.as_str()).or_insert(Value::Null), change),
            _ => {
                let mut change = change.clone();
                drop_nulls(&mut change);
                fields.insert(name.clone(), change);
            }
        }
    }
}

/// Removes the fields that are null from the objects in a list. Items that are null remain.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        _ => {}
    }
}

/// Returns the patch that turns `from` into `to`. A null inside `to` can't be expressed and is lost, as the RFC
/// specifies.
pub fn diff(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in to {
        match from.get(name) {
            Some(before) if before == value => {}
            Some(before) => {
                patch.insert(name.clone(), diff(before, value));
            }
            None => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::testing::json_value;

    #[track_caller]
    fn check(mut document: Value, patch: Value, expect: Value) {
        apply(&mut document, &patch);
        assert_eq!(document, expect);
    }

    #[test]
    fn examples_of_the_rfc() {
        check(json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"}));
        check(json!({"a": "b"}), json!({"a": null}), json!({}));
        check(json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"}));
        check(json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]}));
        check(json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}}));
        check(json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]}));
        check(json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"]));
        check(json!({"a": "b"}), json!(["c"]), json!(["c"]));
        check(json!({"a": "foo"}), json!(null), json!(null));
        check(json!({"a": "foo"}), json!("bar"), json!("bar"));
        check(json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1}));
        check(json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"}));
        check(json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}}));
    }

    #[test]
    fn objects_in_lists_have_no_nulls() {
        check(json!({}), json!({"a": [{"b": null, "c": [{"d": null}]}, null]}), json!({"a": [{"c": [{}]}, null]}));
    }

    fn without_nulls(mut value: Value) -> Value {
        drop_nulls(&mut value);
        value
    }

    proptest! {
        #[test]
        fn a_difference_turns_one_value_into_the_other(from in json_value(), to in json_value()) {
            let to = without_nulls(to);
            let mut document = from.clone();
            apply(&mut document, &diff(&from, &to));
            prop_assert_eq!(document, to);
        }

        #[test]
        fn applying_twice_changes_nothing(document in json_value(), patch in json_value()) {
            let mut once = document;
            apply(&mut once, &patch);
            let mut twice = once.clone();
            apply(&mut twice, &patch);
            prop_assert_eq!(twice, once);
        }
    }
}
