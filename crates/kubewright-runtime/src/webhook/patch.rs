//! The patch of a defaulter.
//!
//! A defaulter changes an object of its type, which may lack fields that were sent, and add fields that weren't. So the
//! difference is computed between the object before and after the defaulter, and applied to the object as it was sent.

use serde_json::{Map, Value};

/// Applies the difference between `before` and `after` to `sent`. Fields that `before` lacks are kept.
pub(super) fn carry_over(sent: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return sent.clone();
    }
    match (sent, before, after) {
        (Value::Object(sent), Value::Object(before), Value::Object(after)) => fields(sent, before, after).into(),
        (Value::Array(sent), Value::Array(before), Value::Array(after)) if sent.len() == before.len() => {
            items(sent, before, after).into()
        }
        _ => after.clone(),
    }
}

fn fields(sent: &Map<String, Value>, before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
    let kept = sent.iter().filter(|(name, _)| after.contains_key(*name) || !before.contains_key(*name));
    let mut fields: Map<_, _> = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    for (name, value) in after {
        match (sent.get(name), before.get(name)) {
            (_, Some(unchanged)) if unchanged == value => {}
            (Some(sent), Some(before)) => drop(fields.insert(name.clone(), carry_over(sent, before, value))),
            _ => drop(fields.insert(name.clone(), value.clone())),
        }
    }
    fields
}

/// Items are matched by equality, by name or, if the lengths are the same, by index.
fn items(sent: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    if before.len() == after.len() {
        let places = sent.iter().zip(before).zip(after);
        return places.map(|((sent, before), after)| carry_over(sent, before, after)).collect();
    }
    let name = |item: &Value| item.get("name").and_then(Value::as_str).map(str::to_owned);
    let mut free: Vec<_> = sent.iter().zip(before).collect();
    let mut take = |is_it: &dyn Fn(&Value) -> bool| {
        let place = free.iter().position(|(_, before)| is_it(before))?;
        Some(free.remove(place))
    };
    let same: Vec<_> = after.iter().map(|item| take(&|before| before == item)).collect();
    let pairs = after.iter().zip(same);
    pairs
        .map(|(item, same)| {
            let named = || name(item).and_then(|own| take(&|before| name(before).as_ref() == Some(&own)));
            match same.or_else(named) {
                Some((sent, before)) => carry_over(sent, before, item),
                None => item.clone(),
            }
        })
        .collect()
}

/// Returns the JSON patch from one value to another; `None` if they are equal.
pub(super) fn operations(from: &Value, to: &Value) -> Option<Value> {
    let patch = json_patch::diff(from, to);
    (!patch.0.is_empty()).then(|| serde_json::to_value(patch).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::patch::json;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(sent: Value, before: Value, after: Value, expected: Value) {
        let found = carry_over(&sent, &before, &after);
        assert_eq!(found, expected);
        match operations(&sent, &found) {
            Some(patch) => assert_eq!(json::apply(&sent, &patch).unwrap(), expected, "{patch}"),
            None => assert_eq!(sent, expected),
        }
    }

    #[test]
    fn only_changed_fields_are_written() {
        let (sent, before) = (json!({"a": 1, "unknown": {"x": [1]}, "n": null}), json!({"a": 1, "d": 3}));
        check(sent.clone(), before.clone(), before.clone(), sent.clone());
        let after = json!({"a": 2, "d": 3, "new": true});
        check(sent.clone(), before.clone(), after, json!({"a": 2, "unknown": {"x": [1]}, "n": null, "new": true}));
        check(sent.clone(), before, json!({"d": 4}), json!({"unknown": {"x": [1]}, "n": null, "d": 4}));
    }

    #[test]
    fn another_notation_of_the_same_value_is_kept() {
        let sent = json!({"time": "2020-01-01T01:00:00+01:00", "spec": {"a": 1}});
        let before = json!({"time": "2020-01-01T00:00:00Z", "spec": {"a": 1}});
        let after = json!({"time": "2020-01-01T00:00:00Z", "spec": {"a": 1, "b": 2}});
        check(sent, before, after, json!({"time": "2020-01-01T01:00:00+01:00", "spec": {"a": 1, "b": 2}}));
    }

    #[test]
    fn items_keep_what_is_unknown_of_them() {
        let sent = json!([{"name": "a", "x": 1}, {"name": "b", "x": 2}]);
        let before = json!([{"name": "a"}, {"name": "b"}]);
        let check = |after: Value, expected: Value| check(sent.clone(), before.clone(), after, expected);
        check(
            json!([{"name": "a", "port": 1}, {"name": "b"}]),
            json!([{"name": "a", "x": 1, "port": 1}, {"name": "b", "x": 2}]),
        );
        check(json!([{"name": "b"}]), json!([{"name": "b", "x": 2}]));
        check(
            json!([{"name": "new"}, {"name": "b", "port": 1}, {"name": "a"}]),
            json!([{"name": "new"}, {"name": "b", "x": 2, "port": 1}, {"name": "a", "x": 1}]),
        );
        check(json!([]), json!([]));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..3i64).prop_map(Value::from)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c/~]", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// With a type that has all fields, the patch results in exactly the changed object.
        #[test]
        fn a_patch_sets_the_known_fields(before in value(), after in value()) {
            let [before, after] = [before, after].map(|value| json!({"field": value}));
            check(before.clone(), before, after.clone(), after);
        }

        /// A type that knows nothing of a field never loses it.
        #[test]
        fn unknown_fields_are_kept(before in value(), after in value(), unknown in value()) {
            let sent = json!({"known": before, "unknown": unknown});
            check(sent, json!({"known": before}), json!({"known": after}), json!({"known": after, "unknown": unknown}));
        }
    }
}
