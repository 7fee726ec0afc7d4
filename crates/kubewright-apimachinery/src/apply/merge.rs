//! Merges an applied configuration into the live object, and removes fields that are no longer applied.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    fields::{FieldSet, PathElement},
    typed::{Cursor, Items},
};

/// Merges `config` into `live`: maps by field, lists by their type. All other values are replaced. Null has no fields
/// and no items, so it leaves those of a map or list that is merged.
pub(crate) fn merge(cursor: Cursor<'_>, live: &mut Value, config: &Value) {
    match (live, config) {
        (Value::Object(live), Value::Object(config)) if !cursor.is_atomic_map() => {
            for (name, value) in config {
                match live.get_mut(name) {
                    Some(live) => merge(cursor.field(name), live, value),
                    None => drop(live.insert(name.clone(), value.clone())),
                }
            }
        }
        (Value::Array(live), Value::Array(config)) => match cursor.items() {
            Some(items) => *live = merge_items(items, std::mem::take(live), config),
            None => live.clone_from(config),
        },
        (live, Value::Null) if cursor.is_merged(live) => {}
        (live, config) => live.clone_from(config),
    }
}

/// Merges the items of a list. The configuration determines the order of its items. An item that only the live list has
/// keeps its place before the item that it preceded, as far as that order allows.
fn merge_items(items: Items<'_>, live: Vec<Value>, config: &[Value]) -> Vec<Value> {
    let config: Vec<_> = config.iter().map(|item| (items.element(item), item)).collect();
    let configured: BTreeSet<&PathElement> = config.iter().map(|(element, _)| element).collect();
    // Items that only the live list has keep their order. Items in both lists are set aside.
    let mut order = Vec::with_capacity(live.len());
    let mut both: BTreeMap<PathElement, Vec<Value>> = BTreeMap::new();
    for item in live {
        let element = items.element(&item);
        if configured.contains(&element) {
            order.push((element.clone(), None));
            both.entry(element).or_default().push(item);
        } else {
            order.push((element, Some(item)));
        }
    }
    let mut order = order.into_iter().peekable();
    let shared: Vec<_> =
        config.iter().map(|(element, _)| element).filter(|element| both.contains_key(element)).collect();
    let mut shared = shared.into_iter().peekable();
    let mut merged = Vec::with_capacity(order.len() + config.len());
    for (element, item) in &config {
        while let Some((_, only_live)) = order.next_if(|(other, _)| Some(&other) != shared.peek()) {
            merged.extend(only_live);
        }
        if shared.next_if_eq(&element).is_some() {
            order.next_if(|(other, _)| other == element);
        }
        merged.push(match both.remove(element).as_deref_mut() {
            Some([one]) => {
                merge(items.item(), one, item);
                std::mem::take(one)
            }
            // Items with equal keys can't be distinguished, so the configured item replaces all of them.
            _ => (*item).clone(),
        });
    }
    merged.extend(order.filter_map(|(_, only_live)| only_live));
    merged
}

/// Removes the fields of `last`, which a manager applied before, from `value`, unless they are in `held`, the fields
/// that any manager owns now.
///
/// A field is removed together with its content. An object stays while any field in it is owned; a list item stays
/// while the item itself is owned. As in Kubernetes, a map or list of which nothing is left becomes null.
pub(crate) fn prune(cursor: Cursor<'_>, value: &mut Value, last: &FieldSet, held: &FieldSet) {
    let nothing = FieldSet::default();
    match value {
        Value::Object(map) if !cursor.is_atomic_map() => {
            let was_empty = map.is_empty();
            for (element, last) in last.children() {
                // A client may have written an owner of the name, for example. It can't be removed.
                let Some(name) = element.as_field().filter(|name| cursor.tracks(name)) else { continue };
                let below = cursor.field(name);
                match (held.child(element), map.get_mut(name)) {
                    (None, Some(_)) if !below.is_metadata() => drop(map.remove(name)),
                    (held, Some(value)) => prune(below, value, last, held.unwrap_or(&nothing)),
                    (_, None) => {}
                }
            }
            if map.is_empty() && !was_empty {
                *value = Value::Null;
            }
        }
        Value::Array(list) => {
            let Some(items) = cursor.items() else { return };
            let was_empty = list.is_empty();
            list.retain_mut(|item| {
                let element = items.element(item);
                let Some(last) = last.child(&element) else { return true };
                let held = held.child(&element).unwrap_or(&nothing);
                if last.is_owned() && !held.is_owned() {
                    return false;
                }
                prune(items.item(), item, last, held);
                true
            });
            if list.is_empty() && !was_empty {
                *value = Value::Null;
            }
        }
        _ => {}
    }
}
