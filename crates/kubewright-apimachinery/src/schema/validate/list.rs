//! Lists whose elements must be told apart: sets and maps.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    schema::{List, Schema},
    status::Cause,
    trail::Trail,
};

/// Duplicates in a list of type set or map, or under `uniqueItems`.
///
/// A list with a patch merge key belongs to a built-in kind, and its own rules say whether an element may come twice:
/// an environment variable may, a container may not.
pub(super) fn check_unique(schema: &Schema, items: &[Value], trail: &Trail<'_>, causes: &mut Vec<Cause>) {
    match &schema.list {
        List::Set => causes.extend(second_ones(items).into_iter().map(|index| duplicate(trail, index, &items[index]))),
        List::Map(keys) if schema.patch_merge_key.is_none() => {
            if let Some(index) = items.iter().position(|item| !(item.is_object() || item.is_null())) {
                let why = "must be an object for an array of list-type map";
                causes.push(Cause::invalid(trail.item(index).to_string(), &items[index], why));
                return;
            }
            if items.len() < 2 {
                return;
            }
            let identities: Vec<Value> = items.iter().map(|item| identity(item, keys)).collect();
            let second_ones = second_ones(&identities);
            causes.extend(second_ones.into_iter().map(|index| duplicate(trail, index, &identities[index])));
        }
        _ => {}
    }
    if schema.limits.unique_items && !second_ones(items).is_empty() {
        let why = format!("{trail} in body shouldn't contain duplicates");
        causes.push(Cause::invalid(trail.to_string(), &"".into(), &why));
    }
}

fn duplicate(trail: &Trail<'_>, index: usize, value: &Value) -> Cause {
    Cause::duplicate(trail.item(index).to_string(), value)
}

/// The keys of an element, as an object.
fn identity(item: &Value, keys: &[String]) -> Value {
    let present = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
    Value::Object(present.collect::<Map<String, Value>>())
}

/// Where each value that comes more than once comes the second time.
fn second_ones(items: &[Value]) -> Vec<usize> {
    const FEW: usize = 16;
    if items.len() <= FEW {
        let earlier = |index: usize| items[..index].iter().filter(|item| **item == items[index]).count();
        return (1..items.len()).filter(|index| earlier(*index) == 1).collect();
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut second_ones = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let times = seen.entry(item.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            second_ones.push(index);
        }
    }
    second_ones
}

/// The element of `old` that has the same keys; usually it stands at the same index.
pub(super) fn counterpart<'a>(old: &'a Value, index: usize, item: &Value, keys: &[String]) -> Option<&'a Value> {
    let is_counterpart = |old: &&Value| keys.iter().all(|key| old.get(key) == item.get(key));
    let old = old.as_array()?;
    old.get(index).filter(is_counterpart).or_else(|| old.iter().find(is_counterpart))
}
