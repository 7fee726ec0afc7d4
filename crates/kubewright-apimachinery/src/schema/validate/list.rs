//! Uniqueness of the elements of lists: sets and maps.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    field_path::FieldPath,
    schema::{List, Schema},
    status::Cause,
};

/// Checks that a list of type set or map, or with `uniqueItems`, has no duplicates.
///
/// A list with a patch merge key belongs to a built-in kind, whose own rules decide on duplicates: environment
/// variables may be repeated, containers may not.
pub(super) fn check_unique(schema: &Schema, items: &[Value], path: &FieldPath<'_>, causes: &mut Vec<Cause>) {
    match &schema.list {
        List::Set => causes.extend(second_ones(items).into_iter().map(|index| duplicate(path, index, &items[index]))),
        List::Map(keys) if schema.patch_merge_key.is_none() => {
            if let Some(index) = items.iter().position(|item| !(item.is_object() || item.is_null())) {
                let why = "must be an object for an array of list-type map";
                causes.push(Cause::invalid(path.item(index).to_string(), &items[index], why));
                return;
            }
            if items.len() < 2 {
                return;
            }
            let identities: Vec<Value> = items.iter().map(|item| identity(item, keys)).collect();
            let second_ones = second_ones(&identities);
            causes.extend(second_ones.into_iter().map(|index| duplicate(path, index, &identities[index])));
        }
        _ => {}
    }
    if schema.limits.unique_items && !second_ones(items).is_empty() {
        let why = format!("{path} in body shouldn't contain duplicates");
        causes.push(Cause::invalid(path.to_string(), &"".into(), &why));
    }
}

fn duplicate(path: &FieldPath<'_>, index: usize, value: &Value) -> Cause {
    Cause::duplicate(path.item(index).to_string(), value)
}

/// Returns the keys of an element, as an object.
fn identity(item: &Value, keys: &[String]) -> Value {
    let present = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
    Value::Object(present.collect::<Map<String, Value>>())
}

/// Returns the index of the second occurrence of each repeated value.
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
