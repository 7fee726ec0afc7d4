//! Strategic merge patches from the difference of two states.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{
    DELETE_FROM, PATCH, RETAIN_KEYS, SET_ORDER,
    merge_keys::{Field, Type},
};

/// Returns the strategic merge patch that turns one state of an object of a kind into another, as kubectl makes it:
/// items of lists that Kubernetes merges by a key are added, changed and deleted one by one, and all other lists are
/// replaced. It is an empty object if there is no difference. A null inside `to` can't be expressed, and is lost.
///
/// The keys are those of the built-in kinds of Kubernetes 1.36. Objects of other kinds have none, and the API server
/// doesn't accept strategic merge patches for custom resources.
pub fn diff(group: &str, version: &str, kind: &str, from: &Value, to: &Value) -> Value {
    let empty = Map::new();
    let [from, to] = [from, to].map(|state| state.as_object().unwrap_or(&empty));
    Value::Object(diff_maps(Type::of_kind(group, version, kind), from, to))
}

fn diff_maps(types: Type<'_>, from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in to.iter().filter(|(name, value)| from.get(*name) != Some(value)) {
        let (field, inner) = types.field(name);
        match (from.get(name), value) {
            (Some(Value::Object(_)), Value::Object(to)) if field.has("replace") => {
                let mut to = to.clone();
                to.insert(PATCH.into(), "replace".into());
                patch.insert(name.clone(), Value::Object(to));
            }
            (Some(Value::Object(from)), Value::Object(to)) => {
                let mut change = diff_maps(inner, from, to);
                if field.has("retainKeys") {
                    change.insert(RETAIN_KEYS.into(), to.keys().map(String::as_str).collect());
                }
                patch.insert(name.clone(), Value::Object(change));
            }
            (Some(Value::Array(from)), Value::Array(to)) if field.has("merge") => {
                let change = match field.key {
                    Some(key) => diff_items(field, key, inner, name, from, to),
                    None => diff_scalars(name, from, to),
                };
                patch.extend(change);
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    patch
}

/// Returns the fields of a patch that change a list whose items have a key.
fn diff_items(
    field: Field,
    key: &str,
    types: Type<'_>,
    name: &str,
    from: &[Value],
    to: &[Value],
) -> Vec<(String, Value)> {
    let Some((old, new)) = keyed(key, from).zip(keyed(key, to)) else {
        // The items can't be told apart by their keys, as ports of the same number with two protocols.
        let items = [json!({PATCH: "replace"})].into_iter().chain(to.iter().cloned()).collect();
        return vec![(name.to_owned(), Value::Array(items))];
    };
    let mut changes = Vec::new();
    for item in to.iter().filter_map(Value::as_object) {
        let before = old.get(&id(key, item));
        if before == Some(&item) {
            continue;
        }
        let mut change = before.map_or_else(|| item.clone(), |before| diff_maps(types, before, item));
        if field.has("retainKeys") {
            change.insert(RETAIN_KEYS.into(), item.keys().map(String::as_str).collect());
        }
        change.insert(key.into(), item[key].clone());
        changes.push(Value::Object(change));
    }
    let gone = from.iter().filter_map(Value::as_object).filter(|item| !new.contains_key(&id(key, item)));
    changes.extend(gone.map(|item| json!({PATCH: "delete", key: item[key]})));
    let order = to.iter().map(|item| json!({key: item[key]})).collect();
    let mut patch = vec![(format!("{SET_ORDER}{name}"), Value::Array(order))];
    if !changes.is_empty() {
        patch.push((name.to_owned(), Value::Array(changes)));
    }
    patch
}

/// Returns the items by the values of their keys; nothing if an item has no key, or two have the same one.
fn keyed<'a>(key: &str, items: &'a [Value]) -> Option<BTreeMap<String, &'a Map<String, Value>>> {
    let keyed = items.iter().map(|item| {
        let item = item.as_object().filter(|item| item.contains_key(key))?;
        Some((id(key, item), item))
    });
    let keyed: BTreeMap<_, _> = keyed.collect::<Option<_>>()?;
    (keyed.len() == items.len()).then_some(keyed)
}

fn id(key: &str, item: &Map<String, Value>) -> String {
    item.get(key).map(Value::to_string).unwrap_or_default()
}

/// Returns the fields of a patch that change a list of scalars.
fn diff_scalars(name: &str, from: &[Value], to: &[Value]) -> Vec<(String, Value)> {
    let [before, after] = [from, to].map(|items| items.iter().map(Value::to_string).collect::<BTreeSet<_>>());
    let without = |items: &[Value], others: &BTreeSet<String>| -> Vec<Value> {
        items.iter().filter(|item| !others.contains(&item.to_string())).cloned().collect()
    };
    let (added, removed) = (without(to, &before), without(from, &after));
    let mut patch = vec![(format!("{SET_ORDER}{name}"), Value::from(to))];
    if !added.is_empty() {
        patch.push((name.to_owned(), added.into()));
    }
    if !removed.is_empty() {
        patch.push((format!("{DELETE_FROM}{name}"), removed.into()));
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: Value, to: Value, expected: Value) {
        let pod = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
        let patch = diff("apps", "v1", "Deployment", &pod(from), &pod(to));
        assert_eq!(patch["spec"]["template"]["spec"], expected);
    }

    #[test]
    fn items_are_changed_by_their_keys() {
        check(
            json!({"containers": [{"name": "a", "image": "x:1", "args": ["1"]}, {"name": "b"}, {"name": "c"}]}),
            json!({"containers": [{"name": "a", "image": "x:2", "args": ["1"]}, {"name": "c"}, {"name": "d", "image": "y"}]}),
            json!({
                "$setElementOrder/containers": [{"name": "a"}, {"name": "c"}, {"name": "d"}],
                "containers": [
                    {"name": "a", "image": "x:2"},
                    {"name": "d", "image": "y"},
                    {"$patch": "delete", "name": "b"},
                ],
            }),
        );
        check(
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"containers": [{"name": "b"}, {"name": "a"}]}),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
        );
        check(
            json!({"tolerations": [{"key": "a"}], "hostname": "h"}),
            json!({"tolerations": [{"key": "b"}]}),
            json!({"tolerations": [{"key": "b"}], "hostname": null}),
        );
    }

    #[test]
    fn keys_of_a_union_are_retained() {
        check(
            json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
            json!({"volumes": [{"name": "v", "configMap": {"name": "m"}}]}),
            json!({
                "$setElementOrder/volumes": [{"name": "v"}],
                "volumes": [{"$retainKeys": ["configMap", "name"], "name": "v", "emptyDir": null, "configMap": {"name": "m"}}],
            }),
        );
        let strategy = |strategy: Value| json!({"spec": {"strategy": strategy}});
        let [from, to] =
            [json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}), json!({"type": "Recreate"})];
        let expected = json!({"type": "Recreate", "rollingUpdate": null, "$retainKeys": ["type"]});
        assert_eq!(diff("apps", "v1", "Deployment", &strategy(from), &strategy(to)), strategy(expected));
    }

    #[test]
    fn lists_of_scalars_are_merged() {
        let finalizers = |list: &[&str]| json!({"metadata": {"finalizers": list}});
        assert_eq!(
            diff("", "v1", "Pod", &finalizers(&["a", "b"]), &finalizers(&["b", "c"])),
            json!({"metadata": {
                "$setElementOrder/finalizers": ["b", "c"],
                "finalizers": ["c"],
                "$deleteFromPrimitiveList/finalizers": ["a"],
            }}),
        );
        assert_eq!(diff("", "v1", "Pod", &finalizers(&["a"]), &finalizers(&["a"])), json!({}));
        // A kind that isn't built in has no keys.
        assert_eq!(diff("x.org", "v1", "X", &finalizers(&["a"]), &finalizers(&["b"])), finalizers(&["b"]));
    }

    #[test]
    fn items_without_different_keys_replace_the_list() {
        let ports = |ports: Value| json!({"spec": {"ports": ports}});
        let [dns, both] = [
            json!([{"port": 53, "protocol": "UDP"}]),
            json!([{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]),
        ];
        assert_eq!(
            diff("", "v1", "Service", &ports(dns), &ports(both)),
            ports(json!([{"$patch": "replace"}, {"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}])),
        );
        let selector = |selector: Value| json!({"spec": {"selector": selector}});
        let [from, to] = ["a", "b"].map(|name| selector(json!({"matchLabels": {"app": name}})));
        let expected = selector(json!({"matchLabels": {"app": "b"}, "$patch": "replace"}));
        assert_eq!(diff("policy", "v1", "PodDisruptionBudget", &from, &to), expected);
    }
}
