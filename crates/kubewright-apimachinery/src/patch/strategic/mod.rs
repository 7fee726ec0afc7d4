//! Strategic merge patch: a merge patch that merges lists by the keys that the schema declares
//! (<https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/>).
//!
//! Without patch markers in the schema it equals a merge patch: maps are merged, `null` deletes, all other values
//! replace. Custom resources have no such markers; the API server rejects the patch for them (415).
//!
//! Directives modify a patch: `$patch: delete replace merge` in a map or a list item, `$retainKeys: [..]` beside the
//! retained keys, and `$deleteFromPrimitiveList/<field>` and `$setElementOrder/<field>` beside the list that they apply
//! to.

mod diff;
mod merge_keys;

use std::collections::{BTreeMap, BTreeSet, HashSet, btree_map::Entry};

use serde_json::{Map, Value};

pub use self::diff::diff;
use super::PatchError;
use crate::{go_format::plain, schema::Node};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Returns the patched document. `node` is the schema of the document.
///
/// # Errors
/// Returns [`PatchError::Malformed`] for directives of a wrong type, [`PatchError::Unknown`] if the patch contradicts
/// the schema, and [`PatchError::Rejected`] if it contradicts itself or contains lists of lists.
pub fn apply(node: Node<'_>, doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        let kind = match patch {
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Number(_) => "number",
            _ => "bool",
        };
        return malformed(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"));
    };
    let mut target = match doc {
        Value::Object(doc) => doc.clone(),
        _ => Map::new(),
    };
    merge_map(Some(node), &mut target, patch)?;
    Ok(Value::Object(target))
}

fn malformed<T>(why: impl Into<String>) -> Result<T, PatchError> {
    Err(PatchError::Malformed(why.into()))
}

fn unknown<T>(why: impl Into<String>) -> Result<T, PatchError> {
    Err(PatchError::Unknown(why.into()))
}

fn unknown_directive<T>(directive: &Value, map: &Map<String, Value>) -> Result<T, PatchError> {
    let directive = directive.as_str().map_or_else(|| directive.to_string(), str::to_owned);
    unknown(format!("unknown patch type: {directive} in map: {}", plain(&Value::Object(map.clone()))))
}

fn list<'a>(value: &'a Value, what: &str) -> Result<&'a [Value], PatchError> {
    value.as_array().map_or_else(|| malformed(format!("invalid patch format of {what}")), |list| Ok(list.as_slice()))
}

fn is_directive(key: &str) -> bool {
    key == PATCH || key == RETAIN_KEYS || key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER)
}

fn merge_map(
    node: Option<Node<'_>>,
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), PatchError> {
    match patch.get(PATCH) {
        None => {}
        Some(Value::String(directive)) if directive == "merge" => {}
        Some(Value::String(directive)) if directive == "replace" => {
            *target = map_without_directives(patch);
            return Ok(());
        }
        Some(Value::String(directive)) if directive == "delete" => {
            target.clear();
            return Ok(());
        }
        Some(other) => return unknown_directive(other, patch),
    }
    if let Some(keep) = patch.get(RETAIN_KEYS) {
        // As in Kubernetes, the list must not be empty.
        let keep = list(keep, "retainKeys")?;
        if keep.is_empty() {
            return malformed("invalid patch format of retainKeys");
        }
        retain_keys(target, patch, keep)?;
    }
    for (key, value) in patch {
        if !is_directive(key) {
            let order = patch.get(&format!("{SET_ORDER}{key}"));
            merge_field(node.and_then(|node| node.field(key)), target, key, value, order)?;
        }
    }
    for (key, value) in patch {
        if let Some(name) = key.strip_prefix(SET_ORDER) {
            let order = list(value, "setElementOrder list")?;
            let merge = node.and_then(|node| node.field(name)).and_then(MergeList::of);
            if let (false, Some(merge), Some(Value::Array(items))) =
                (patch.contains_key(name), merge, target.get_mut(name))
            {
                let live = items.clone();
                *items = merge.ordered(std::mem::take(items), order, &live);
            }
        } else if let Some(name) = key.strip_prefix(DELETE_FROM) {
            let mut deleted = Deleted::new(list(value, "primitive list")?);
            if let Some(Value::Array(items)) = target.get_mut(name) {
                items.retain(|item| !deleted.contains(item));
            }
        }
    }
    Ok(())
}

/// The items of a `$deleteFromPrimitiveList`. Each is read only once, regardless of the length of the list.
struct Deleted {
    items: HashSet<String>,
    /// The number of items that were read.
    #[cfg(test)]
    read: usize,
}

impl Deleted {
    fn new(items: &[Value]) -> Self {
        Self {
            items: items.iter().map(Value::to_string).collect(),
            #[cfg(test)]
            read: items.len(),
        }
    }

    fn contains(&mut self, item: &Value) -> bool {
        #[cfg(test)]
        {
            self.read += 1;
        }
        self.items.contains(&item.to_string())
    }
}

/// Applies `$retainKeys`: the target keeps only these keys, and the patch may set no others.
fn retain_keys(target: &mut Map<String, Value>, patch: &Map<String, Value>, keep: &[Value]) -> Result<(), PatchError> {
    let keep: BTreeSet<&str> = keep.iter().filter_map(Value::as_str).collect();
    if patch.iter().any(|(key, value)| !value.is_null() && !is_directive(key) && !keep.contains(key.as_str())) {
        return malformed("invalid patch format of retainKeys");
    }
    target.retain(|key, _| keep.contains(key.as_str()));
    Ok(())
}

fn merge_field(
    node: Option<Node<'_>>,
    target: &mut Map<String, Value>,
    key: &str,
    patch: &Value,
    order: Option<&Value>,
) -> Result<(), PatchError> {
    match (target.get_mut(key), patch) {
        (_, Value::Null) => {
            target.remove(key);
        }
        (Some(Value::Object(target)), Value::Object(patch)) => {
            if node.is_some_and(|node| has_strategy(node, "replace")) {
                *target = map_without_directives(patch);
            } else {
                merge_map(node, target, patch)?;
            }
        }
        (Some(Value::Array(target)), Value::Array(patch)) => {
            *target = match node.and_then(MergeList::of) {
                Some(merge) => merge.merge(std::mem::take(target), patch, order)?,
                None => patch.clone(),
            };
        }
        (_, Value::Array(patch)) => {
            let merge = node.and_then(MergeList::of);
            let mut items: Vec<_> = patch.iter().filter_map(added).collect();
            if let Some((merge, order)) = merge.zip(order) {
                let order = list(order, "setElementOrder list")?;
                merge.check_order(&merge.keyed(patch)?, order, patch)?;
                items = merge.ordered(items, order, &[]);
            }
            target.insert(key.to_owned(), Value::Array(items));
        }
        (_, value) => match added(value) {
            Some(value) => drop(target.insert(key.to_owned(), value)),
            None => drop(target.remove(key)),
        },
    }
    Ok(())
}

/// Returns a value of a patch that there is nothing to merge with: as it is, but without nulls and directives. `None`
/// if it is a directive itself. Items with equal keys are kept.
fn added(value: &Value) -> Option<Value> {
    Some(match value {
        Value::Object(map) if map.contains_key(PATCH) => return None,
        Value::Object(map) => Value::Object(map.iter().filter_map(added_field).collect()),
        Value::Array(items) => Value::Array(items.iter().filter_map(added).collect()),
        scalar => scalar.clone(),
    })
}

fn has_strategy(node: Node<'_>, strategy: &str) -> bool {
    node.patch_strategy().iter().any(|one| one == strategy)
}

/// Returns the map that a patch sets when it replaces instead of merging. It has no directives, and no nulls, which
/// mean "absent".
fn map_without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    let kept = patch.iter().filter(|(key, value)| !is_directive(key) && !value.is_null());
    kept.map(|(key, value)| (key.clone(), without_directives(value))).collect()
}

fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(map_without_directives(map)),
        Value::Array(items) => {
            Value::Array(items.iter().filter(|item| item.get(PATCH).is_none()).map(without_directives).collect())
        }
        scalar => scalar.clone(),
    }
}

/// Like [`added`], for a field of a map.
fn added_field((key, value): (&String, &Value)) -> Option<(String, Value)> {
    if is_directive(key) || value.is_null() {
        return None;
    }
    Some((key.clone(), added(value)?))
}

/// An item of a patch with the value of its merge key.
type KeyedItem<'p> = (Option<String>, &'p Map<String, Value>);

/// A list with the patch strategy `merge`.
struct MergeList<'a> {
    items: Node<'a>,
    /// The merge key, which identifies items. Lists of scalars have none.
    key: Option<&'a str>,
}

impl<'a> MergeList<'a> {
    fn of(node: Node<'a>) -> Option<Self> {
        has_strategy(node, "merge").then(|| Self { items: node.items(), key: node.patch_merge_key() })
    }

    fn merge(&self, mut live: Vec<Value>, patch: &[Value], order: Option<&Value>) -> Result<Vec<Value>, PatchError> {
        let order = order.map(|order| list(order, "setElementOrder list")).transpose()?;
        let all = || live.iter().chain(patch);
        if all().any(Value::is_array) {
            return Err(PatchError::Rejected("lists of lists are not supported".into()));
        }
        let objects = all().any(Value::is_object);
        if objects && all().any(|item| !item.is_object()) {
            return unknown("list element types are not identical");
        }
        if !objects {
            return Ok(self.merge_scalars(live, patch, order));
        }
        let items = self.keyed(patch)?;
        if items.iter().any(|(_, item)| item.get(PATCH).and_then(Value::as_str) == Some("replace")) {
            let kept = items.iter().filter(|(_, item)| !item.contains_key(PATCH));
            return Ok(kept.map(|(_, item)| Value::Object(map_without_directives(item))).collect());
        }
        if let Some(order) = order {
            self.check_order(&items, order, patch)?;
        }
        let before = live.clone();
        self.merge_items(&mut live, items)?;
        let wanted: Vec<Value> = match order {
            Some(order) => order.to_vec(),
            None => patch.iter().filter(|item| item.get(PATCH).is_none()).cloned().collect(),
        };
        Ok(self.ordered(live, &wanted, &before))
    }

    fn merge_scalars(&self, live: Vec<Value>, patch: &[Value], order: Option<&[Value]>) -> Vec<Value> {
        let mut seen = BTreeSet::new();
        let both = live.iter().chain(patch).filter(|item| seen.insert(item.to_string())).cloned().collect();
        self.ordered(both, order.unwrap_or(patch), &live)
    }

    fn merge_items(&self, live: &mut Vec<Value>, items: Vec<KeyedItem<'_>>) -> Result<(), PatchError> {
        let deleted: BTreeSet<_> = items
            .iter()
            .filter(|(_, item)| item.get(PATCH).and_then(Value::as_str) == Some("delete"))
            .filter_map(|(key, _)| key.clone())
            .collect();
        live.retain(|item| self.identity(item).is_none_or(|key| !deleted.contains(&key)));
        let mut places = BTreeMap::new();
        for (place, item) in live.iter().enumerate() {
            if let Some(key) = self.identity(item) {
                places.entry(key).or_insert(place);
            }
        }
        for (key, item) in items {
            match item.get(PATCH) {
                None => {}
                Some(Value::String(directive)) if directive == "delete" => continue,
                Some(Value::String(directive)) if directive == "merge" => {}
                Some(other) => return unknown_directive(other, item),
            }
            let Some(key) = key else { continue };
            match places.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(live.len());
                    live.push(Value::Object(item.iter().filter_map(added_field).collect()));
                }
                Entry::Occupied(entry) => {
                    if let Some(Value::Object(target)) = live.get_mut(*entry.get()) {
                        merge_map(Some(self.items), target, item)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the items of a patch that are maps, with the values of their merge keys.
    fn keyed<'p>(&self, patch: &'p [Value]) -> Result<Vec<KeyedItem<'p>>, PatchError> {
        let maps = patch.iter().filter_map(Value::as_object);
        maps.map(|item| Ok((self.key_of(item)?, item))).collect()
    }

    /// Returns the merge key's value in an item of a patch. Only an item that replaces the whole list lacks it.
    fn key_of(&self, item: &Map<String, Value>) -> Result<Option<String>, PatchError> {
        let Some(key) = self.key else { return unknown("cannot merge lists without merge key") };
        match item.get(key) {
            Some(value) => Ok(Some(value.to_string())),
            None if item.get(PATCH).and_then(Value::as_str) == Some("replace") => Ok(None),
            None => {
                let item = plain(&Value::Object(item.clone()));
                unknown(format!("map: {item} does not contain declared merge key: {key}"))
            }
        }
    }

    /// Checks that `$setElementOrder` names every item that the patch sets, in the same order.
    fn check_order(&self, items: &[KeyedItem<'_>], order: &[Value], patch: &[Value]) -> Result<(), PatchError> {
        let mut rest = order.iter().filter_map(|item| self.identity(item));
        let set = items.iter().filter(|(_, item)| !item.contains_key(PATCH)).filter_map(|(key, _)| key.as_ref());
        for key in set {
            if !rest.any(|ordered| ordered == *key) && !order.is_empty() {
                return unknown(format!(
                    "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                    plain(&Value::from(patch)),
                    plain(&Value::from(order))
                ));
            }
        }
        Ok(())
    }

    /// Returns the identity of an item: the value of its key or, for a scalar, the item itself.
    fn identity(&self, item: &Value) -> Option<String> {
        match (item, self.key) {
            (Value::Object(item), Some(key)) => item.get(key).map(Value::to_string),
            (Value::Object(_), None) => None,
            (scalar, _) => Some(scalar.to_string()),
        }
    }

    /// Sorts `items`: those in `wanted` by their order there, all others by their order in `live`. An unlisted item
    /// that precedes a wanted one in `live` also precedes it in the result.
    fn ordered(&self, items: Vec<Value>, wanted: &[Value], live: &[Value]) -> Vec<Value> {
        let (wanted, live) = (self.places(wanted), self.places(live));
        let (mut listed, mut others) = (Vec::new(), Vec::new());
        for item in items {
            let identity = self.identity(&item);
            let place = |places: &BTreeMap<String, usize>| identity.as_ref().and_then(|key| places.get(key).copied());
            let stood = place(&live);
            match place(&wanted) {
                Some(place) => listed.push((place, stood, item)),
                None => others.push((stood.unwrap_or(usize::MAX), stood, item)),
            }
        }
        listed.sort_by_key(|(place, ..)| *place);
        others.sort_by_key(|(place, ..)| *place);
        let mut others = others.into_iter().peekable();
        let mut merged = Vec::new();
        for (_, stood, item) in listed {
            while let Some((_, _, other)) =
                others.next_if(|(_, before, _)| matches!((before, stood), (Some(a), Some(b)) if *a < b))
            {
                merged.push(other);
            }
            merged.push(item);
        }
        merged.extend(others.map(|(.., item)| item));
        merged
    }

    fn places(&self, items: &[Value]) -> BTreeMap<String, usize> {
        let mut places = BTreeMap::new();
        for (place, item) in items.iter().enumerate() {
            if let Some(identity) = self.identity(item) {
                places.entry(identity).or_insert(place);
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        schema::{Definitions, parse::from_openapi},
        testing::json_value,
    };

    fn patched(doc: Value, patch: Value) -> Result<Value, PatchError> {
        let schema = from_openapi(&json!({"type": "object", "properties": {
            "metadata": {"type": "object", "properties": {
                "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-patch-strategy": "merge"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            }},
            "spec": {"type": "object", "properties": {
                "strategy": {"type": "object", "properties": {}},
                "frozen": {"type": "object", "x-kubernetes-patch-strategy": "replace"},
                "args": {"type": "array", "items": {"type": "string"}},
                "containers": {
                    "type": "array",
                    "x-kubernetes-patch-strategy": "merge",
                    "x-kubernetes-patch-merge-key": "name",
                    "items": {"type": "object", "properties": {
                        "name": {"type": "string"},
                        "image": {"type": "string"},
                        "ports": {
                            "type": "array",
                            "x-kubernetes-patch-strategy": "merge",
                            "x-kubernetes-patch-merge-key": "containerPort",
                            "items": {"type": "object"},
                        },
                    }},
                },
                "keyless": {"type": "array", "x-kubernetes-patch-strategy": "merge", "items": {"type": "object"}},
            }},
        }}));
        apply(Node::new(&schema, &Definitions::default()), &doc, &patch)
    }

    #[track_caller]
    fn check(doc: Value, patch: Value, expect: Value) {
        assert_eq!(patched(doc, patch), Ok(expect));
    }

    #[track_caller]
    fn check_spec(doc: Value, patch: Value, expect: Value) {
        check(json!({"spec": doc}), json!({"spec": patch}), json!({"spec": expect}));
    }

    #[test]
    fn maps_merge_and_null_deletes() {
        check(
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"args": ["x", "y"]}}),
            json!({"metadata": {"labels": {"a": null, "c": "3", "d": null}}, "spec": {"args": ["z"]}}),
            json!({"metadata": {"labels": {"b": "2", "c": "3"}}, "spec": {"args": ["z"]}}),
        );
        check(json!({}), json!({"spec": {"new": {"x": null, "y": 1}}}), json!({"spec": {"new": {"y": 1}}}));
        check_spec(json!({"strategy": "odd"}), json!({"strategy": {"a": 1}}), json!({"strategy": {"a": 1}}));
        check_spec(json!({"strategy": {"a": 1}}), json!({"strategy": "odd"}), json!({"strategy": "odd"}));
    }

    #[test]
    fn unknown_fields_are_merged_plainly() {
        check(
            json!({"free": {"a": {"x": 1}, "list": [{"name": "a"}]}}),
            json!({"free": {"a": {"y": 2}, "list": [{"name": "b"}]}}),
            json!({"free": {"a": {"x": 1, "y": 2}, "list": [{"name": "b"}]}}),
        );
    }

    #[test]
    fn map_directives() {
        check_spec(
            json!({"strategy": {"a": 1, "b": {"c": 2}}}),
            json!({"strategy": {"$patch": "replace", "d": 3, "e": null}}),
            json!({"strategy": {"d": 3}}),
        );
        check_spec(json!({"strategy": {"a": 1}}), json!({"strategy": {"$patch": "delete"}}), json!({"strategy": {}}));
        check_spec(json!({}), json!({"strategy": {"$patch": "delete"}}), json!({}));
        check_spec(
            json!({"strategy": {"a": 1}}),
            json!({"strategy": {"$patch": "merge", "b": 2}}),
            json!({"strategy": {"a": 1, "b": 2}}),
        );
        check_spec(json!({"frozen": {"a": 1}}), json!({"frozen": {"b": 2}}), json!({"frozen": {"b": 2}}));
    }

    #[test]
    fn retain_keys_drops_the_rest() {
        check_spec(
            json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}),
            json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}),
            json!({"strategy": {"type": "Recreate"}}),
        );
    }

    #[test]
    fn lists_merge_by_key() {
        // New items precede those that the patch does not name, as in the example of the Kubernetes documentation.
        check_spec(
            json!({"containers": [{"name": "a", "image": "a:1", "ports": [{"containerPort": 80}]}, {"name": "b"}]}),
            json!({"containers": [
                {"name": "a", "image": "a:2", "ports": [{"containerPort": 81, "name": null}]},
                {"name": "c"},
            ]}),
            json!({"containers": [
                {"name": "a", "image": "a:2", "ports": [{"containerPort": 81}, {"containerPort": 80}]},
                {"name": "c"},
                {"name": "b"},
            ]}),
        );
    }

    #[test]
    fn list_directives() {
        let live = json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "a", "image": "twin"}]});
        check_spec(
            live.clone(),
            json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "gone", "$patch": "delete"}]}),
            json!({"containers": [{"name": "b"}]}),
        );
        check_spec(
            live.clone(),
            json!({"containers": [{"$patch": "replace"}, {"name": "z", "image": null}]}),
            json!({"containers": [{"name": "z"}]}),
        );
        check_spec(
            json!({}),
            json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "b"}]}),
            json!({"containers": [{"name": "b"}]}),
        );
        check_spec(
            json!({"containers": [{"name": "b", "image": "b:1"}]}),
            json!({"containers": [{"name": "b", "$patch": "merge", "image": "b:2"}]}),
            json!({"containers": [{"name": "b", "image": "b:2"}]}),
        );
    }

    #[test]
    fn element_order_is_kept() {
        let live = json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}]});
        // Items that only the server has stay before the ordered item that follows them.
        check_spec(
            live.clone(),
            json!({"$setElementOrder/containers": [{"name": "d"}, {"name": "b"}]}),
            json!({"containers": [{"name": "a"}, {"name": "c"}, {"name": "d"}, {"name": "b"}]}),
        );
        check_spec(
            live,
            json!({
                "$setElementOrder/containers": [{"name": "x"}, {"name": "c"}, {"name": "a"}],
                "containers": [{"name": "x"}, {"name": "b", "$patch": "delete"}, {"name": "c", "image": "c:1"}],
            }),
            json!({"containers": [{"name": "x"}, {"name": "c", "image": "c:1"}, {"name": "a"}, {"name": "d"}]}),
        );
        check_spec(json!({}), json!({"$setElementOrder/containers": [{"name": "a"}]}), json!({}));
    }

    #[test]
    fn lists_of_scalars_merge_and_shrink() {
        check(
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"finalizers": ["b", "c"]}}),
            json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
        );
        check(
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["a", "x"],
                "$setElementOrder/finalizers": ["c", "b"],
                "finalizers": ["c"],
            }}),
            json!({"metadata": {"finalizers": ["c", "b"]}}),
        );
        check(json!({}), json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}), json!({"metadata": {}}));
    }

    #[test]
    fn each_item_to_delete_is_read_once() {
        let items: Vec<Value> = (0..1000).map(|item| json!(format!("item {item}"))).collect();
        let mut deleted = Deleted::new(&items);
        assert!(items.iter().rev().all(|item| deleted.contains(item)));
        assert!(!deleted.contains(&json!("other")));
        assert_eq!(deleted.read, 2001);
    }

    #[test]
    fn items_with_equal_keys_stay_in_a_new_list() {
        let items = || json!([{"name": "a", "image": "1"}, {"name": "a", "image": "2", "args": null}]);
        let patch = json!({"spec": {"containers": items()}});
        let kept = json!([{"name": "a", "image": "1"}, {"name": "a", "image": "2"}]);
        assert_eq!(patched(json!({"spec": {}}), patch.clone()).unwrap()["spec"]["containers"], kept);
        assert_eq!(patched(json!({}), patch).unwrap()["spec"]["containers"], kept);
        // In a list that exists, each one is merged with the first of its key.
        let live = json!({"spec": {"containers": kept}});
        let patch = json!({"spec": {"containers": [{"name": "a", "image": "3"}, {"name": "b", "image": "1"}, {"name": "b", "image": "2"}]}});
        let merged = json!([{"name": "a", "image": "3"}, {"name": "a", "image": "2"}, {"name": "b", "image": "2"}]);
        assert_eq!(patched(live, patch).unwrap()["spec"]["containers"], merged);
    }

    #[test]
    fn contradictions_are_refused() {
        let cases = [
            (json!({"containers": [{"image": "x"}]}), "does not contain declared merge key: name"),
            (json!({"containers": [{"name": "x", "$patch": "melt"}]}), "unknown patch type: melt in map: map["),
            (json!({"strategy": {"$patch": 7}}), "unknown patch type: 7 in map: map["),
            (json!({"containers": ["x"]}), "list element types are not identical"),
            (json!({"containers": [["x"]]}), "lists of lists are not supported"),
            (json!({"keyless": [{"a": 1}]}), "cannot merge lists without merge key"),
            (json!({"strategy": {"$retainKeys": "type"}}), "invalid patch format of retainKeys"),
            (json!({"strategy": {"$retainKeys": [], "a": 1}}), "invalid patch format of retainKeys"),
            (json!({"strategy": {"$retainKeys": ["b"], "a": 1}}), "invalid patch format of retainKeys"),
            (json!({"$deleteFromPrimitiveList/args": "x"}), "invalid patch format of primitive list"),
            (json!({"$setElementOrder/containers": {}}), "invalid patch format of setElementOrder list"),
            (
                json!({
                    "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                    "containers": [{"name": "a"}, {"name": "b"}],
                }),
                "The order in patch list:\n",
            ),
        ];
        for (patch, expect) in cases {
            let doc =
                json!({"spec": {"containers": [{"name": "a"}], "strategy": {"type": "x"}, "keyless": [{"a": 0}]}});
            let error = patched(doc, json!({"spec": patch})).unwrap_err().to_string();
            assert!(error.contains(expect), "{patch}: {error}");
        }
        assert!(patched(json!({}), json!([])).is_err());
    }

    #[test]
    fn unexpected_live_objects_cause_no_failure() {
        check_spec(
            json!({"containers": [{"image": "keyless"}, {"name": "a"}]}),
            json!({"containers": [{"name": "a", "image": "a:1"}]}),
            json!({"containers": [{"name": "a", "image": "a:1"}, {"image": "keyless"}]}),
        );
        check(json!("odd"), json!({"spec": {}}), json!({"spec": {}}));
    }

    proptest::proptest! {
        #[test]
        fn without_markers_it_is_a_merge_patch(doc in json_value(), patch in json_value()) {
            let schema = crate::schema::ANYTHING.clone();
            match apply(Node::new(&schema, &Definitions::default()), &doc, &patch) {
                Ok(patched) => {
                    let mut expect = if doc.is_object() { doc } else { json!({}) };
                    crate::patch::merge::apply(&mut expect, &patch);
                    // A merge patch keeps nulls in lists.
                    proptest::prop_assert_eq!(added(&patched), added(&expect));
                }
                Err(_) => proptest::prop_assert!(!patch.is_object()),
            }
        }
    }
}
