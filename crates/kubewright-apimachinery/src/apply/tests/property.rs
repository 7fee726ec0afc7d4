//! Properties of apply for arbitrary schemas, managers and sequences of writes: no field is lost, misplaced or taken
//! over.
//!
//! The expected results are computed from flat maps of paths to leaves, independently of the tested code.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{
    apply::{Context, Writable, apply, managed_fields, take_managed, update},
    schema::{Definitions, Node, parse::from_openapi},
};

/// A schema, reduced to the aspects of ownership.
#[derive(Clone, Debug)]
enum Type {
    Text,
    /// Named fields `a`, `b`, …
    Struct(Vec<Type>),
    /// Allows any names.
    Map(Box<Type>),
    /// Has no schema.
    Free,
    AtomicMap,
    AtomicList,
    Set,
    /// Items with a `name` and these fields.
    Items(Vec<Type>),
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn any_type() -> impl Strategy<Value = Type> {
    let leaf = prop_oneof![
        3 => Just(Type::Text),
        1 => Just(Type::Free),
        1 => Just(Type::AtomicMap),
        1 => Just(Type::AtomicList),
        1 => Just(Type::Set),
    ];
    let inner = leaf.prop_recursive(3, 12, 3, |inner| {
        let fields = || prop::collection::vec(inner.clone(), 1..=3);
        prop_oneof![
            fields().prop_map(Type::Struct),
            inner.clone().prop_map(|entry| Type::Map(Box::new(entry))),
            fields().prop_map(Type::Items),
        ]
    });
    prop::collection::vec(inner, 1..=3).prop_map(Type::Struct)
}

fn document(kind: &Type) -> Value {
    let fields = |fields: &[Type]| -> Map<String, Value> {
        fields.iter().zip(NAMES).map(|(field, name)| (name.to_owned(), document(field))).collect()
    };
    match kind {
        Type::Text => json!({"type": "string"}),
        Type::Struct(kinds) => json!({"type": "object", "properties": fields(kinds)}),
        Type::Map(entry) => json!({"type": "object", "additionalProperties": document(entry)}),
        Type::Free => json!({"x-kubernetes-preserve-unknown-fields": true}),
        Type::AtomicMap => {
            json!({"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}})
        }
        Type::AtomicList => json!({"type": "array", "items": {"type": "string"}}),
        Type::Set => json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        Type::Items(kinds) => {
            let mut properties = fields(kinds);
            properties.insert("name".into(), json!({"type": "string"}));
            json!({
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": properties},
            })
        }
    }
}

fn text() -> impl Strategy<Value = Value> {
    prop_oneof!["x", "y"].prop_map(Value::from)
}

/// Generates a subset of the names, in any order.
fn some_names() -> impl Strategy<Value = Vec<&'static str>> {
    Just(NAMES.to_vec()).prop_shuffle().prop_flat_map(|names| (0..=names.len()).prop_map(move |n| names[..n].to_vec()))
}

fn any_value(kind: &Type) -> BoxedStrategy<Value> {
    let fields = |kinds: &[Type]| -> BoxedStrategy<Map<String, Value>> {
        let fields: Vec<_> = kinds.iter().map(|kind| prop::option::weighted(0.7, any_value(kind))).collect();
        fields
            .prop_map(|values| {
                values.into_iter().zip(NAMES).filter_map(|(value, name)| Some((name.to_owned(), value?))).collect()
            })
            .boxed()
    };
    match kind {
        Type::Text => text().boxed(),
        Type::Struct(kinds) => fields(kinds).prop_map(Value::Object).boxed(),
        Type::Map(entry) => prop::collection::btree_map(prop::sample::select(NAMES.to_vec()), any_value(entry), 0..3)
            .prop_map(|entries| entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            .prop_map(Value::Object)
            .boxed(),
        Type::Free => {
            let names = prop::sample::select(NAMES.to_vec());
            text()
                .prop_recursive(2, 4, 2, move |inner| {
                    prop_oneof![
                        prop::collection::vec(inner.clone(), 0..2).prop_map(Value::from),
                        prop::collection::btree_map(names.clone(), inner, 0..3)
                            .prop_map(|entries| entries
                                .into_iter()
                                .map(|(name, value)| (name.to_owned(), value))
                                .collect())
                            .prop_map(Value::Object),
                    ]
                })
                .boxed()
        }
        Type::AtomicMap => some_names().prop_map(|names| names.into_iter().map(|name| (name, name)).collect()).boxed(),
        Type::AtomicList | Type::Set => some_names().prop_map(Value::from).boxed(),
        Type::Items(kinds) => (some_names(), prop::collection::vec(fields(kinds), NAMES.len()))
            .prop_map(|(names, items)| {
                names
                    .into_iter()
                    .zip(items)
                    .map(|(name, mut item)| {
                        item.insert("name".into(), name.into());
                        Value::Object(item)
                    })
                    .collect()
            })
            .boxed(),
    }
}

#[derive(Clone, Debug)]
enum Write {
    Apply {
        manager: &'static str,
        config: Value,
        force: bool,
    },
    /// Replaces the whole object.
    Replace {
        manager: &'static str,
        spec: Value,
    },
    /// Replaces a few of its fields.
    Change {
        manager: &'static str,
        fields: Value,
    },
}

fn any_write(kind: &Type) -> impl Strategy<Value = Write> + use<> {
    let manager = || prop::sample::select(vec!["amy", "bob", "eve"]);
    prop_oneof![
        4 => (manager(), any_value(kind), prop::bool::weighted(0.3))
            .prop_map(|(manager, config, force)| Write::Apply { manager, config, force }),
        1 => (manager(), any_value(kind)).prop_map(|(manager, spec)| Write::Replace { manager, spec }),
        1 => (manager(), any_value(kind)).prop_map(|(manager, fields)| Write::Change { manager, fields }),
    ]
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "it"}, "spec": spec})
}

type Leaves = BTreeMap<String, Value>;

/// Collects the leaves of a value by path, where an empty map or list is a leaf, and the order of items in each keyed
/// list.
fn flatten(kind: &Type, value: &Value, path: &str, state: &mut State) {
    match (kind, value) {
        (Type::Struct(_) | Type::Map(_) | Type::Free, Value::Object(map)) if !map.is_empty() => {
            for (name, value) in map {
                let below = match kind {
                    Type::Struct(kinds) => &kinds[NAMES.iter().position(|one| one == name).unwrap()],
                    Type::Map(entry) => entry,
                    _ => &Type::Free,
                };
                let path = format!("{path}/f:{name}");
                flatten(below, value, &path, state);
                if matches!(kind, Type::Map(_)) {
                    // The entries of a map are owned themselves.
                    state.empty.remove(&path);
                }
            }
        }
        (Type::Set, Value::Array(items)) if !items.is_empty() => {
            for item in items {
                state.leaves.insert(format!("{path}/v:{item}"), item.clone());
                state.order.entry(path.to_owned()).or_default().push(item.to_string());
            }
        }
        (Type::Items(kinds), Value::Array(items)) if !items.is_empty() => {
            for item in items {
                let Value::Object(mut fields) = item.clone() else { unreachable!("items are objects") };
                let name = fields.remove("name").unwrap();
                state.order.entry(path.to_owned()).or_default().push(name.to_string());
                let path = format!("{path}/k:{{\"name\":{name}}}");
                state.leaves.insert(format!("{path}/f:name"), name);
                if !fields.is_empty() {
                    flatten(&Type::Struct(kinds.clone()), &Value::Object(fields), &path, state);
                }
            }
        }
        (_, leaf) => {
            if matches!(kind, Type::Set | Type::Items(_)) {
                state.empty.insert(path.to_owned());
            }
            state.leaves.insert(path.to_owned(), leaf.clone());
        }
    }
}

/// The flattened state of the object after a write.
#[derive(Clone, Debug, Default)]
struct State {
    exists: bool,
    leaves: Leaves,
    order: BTreeMap<String, Vec<String>>,
    /// The empty lists whose items have owners of their own. Applying one owns nothing.
    empty: BTreeSet<String>,
    owners: BTreeMap<String, BTreeSet<String>>,
}

impl State {
    fn of(kind: &Type, object: Option<&Value>) -> Self {
        let mut state = Self::default();
        let Some(object) = object else { return state };
        state.exists = true;
        if let Some(spec) = object.get("spec") {
            flatten(kind, spec, "/f:spec", &mut state);
        }
        for entry in managed_fields(object).and_then(Value::as_array).into_iter().flatten() {
            let who = format!("{}/{}", entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap());
            let mut paths = BTreeSet::new();
            collect(&entry["fieldsV1"], "", &mut paths);
            state.owners.insert(who, paths);
        }
        state
    }

    fn has(&self, path: &str) -> bool {
        self.leaves.contains_key(path) || below(self.leaves.keys(), path)
    }

    fn owned(&self, who: &str) -> BTreeSet<String> {
        self.owners.get(who).cloned().unwrap_or_default()
    }

    fn others<'a>(&'a self, who: &'a str) -> impl Iterator<Item = &'a String> {
        self.owners.iter().filter(move |(other, _)| *other != who).flat_map(|(_, paths)| paths)
    }
}

fn collect(fields: &Value, path: &str, paths: &mut BTreeSet<String>) {
    let fields = fields.as_object().unwrap();
    if fields.is_empty() || fields.contains_key(".") {
        paths.insert(path.to_owned());
    }
    for (key, child) in fields.iter().filter(|(key, _)| *key != ".") {
        collect(child, &format!("{path}/{key}"), paths);
    }
}

fn below<'a>(mut paths: impl Iterator<Item = &'a String>, path: &str) -> bool {
    paths.any(|other| other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Returns whether `path` is in a list item that only `who` owned and that is no longer in the configuration.
fn in_abandoned_item(before: &State, config: &State, who: &str, path: &str) -> bool {
    let items = path.match_indices("/k:").map(|(start, _)| {
        let end = path[start + 1..].find('/').map_or(path.len(), |length| start + 1 + length);
        &path[..end]
    });
    items.into_iter().any(|item| {
        before.owned(who).contains(item) && !config.has(item) && !before.others(who).any(|other| other == item)
    })
}

/// Returns whether applying the configuration changes fields that others own. Before the first apply (`is_first`),
/// values with content are owned themselves.
fn clashes(before: &State, config: &State, who: &str, is_first: bool) -> bool {
    config.leaves.iter().any(|(path, wanted)| {
        let there = before.leaves.get(path);
        if there == Some(wanted) {
            return false;
        }
        let contents_only = is_empty(wanted) && there.is_none() && below(before.leaves.keys(), path) && {
            // An empty map leaves a non-empty map unchanged, and replaces any other value.
            let content = before.leaves.keys().find(|other| other.starts_with(&format!("{path}/"))).unwrap();
            content[path.len()..].starts_with("/f:") == wanted.is_object()
        };
        if contents_only {
            return false;
        }
        if is_first && below(before.leaves.keys(), path) {
            return true;
        }
        before.others(who).any(|other| {
            let replaced_above = path.strip_prefix(other.as_str()).is_some_and(|rest| {
                let there = before.leaves.get(other);
                rest.starts_with('/')
                    && there.is_some_and(|there| {
                        !there.is_null() && (!is_empty(there) || there.is_object() != rest.starts_with("/f:"))
                    })
            });
            other == path || replaced_above
        })
    })
}

fn check_apply(before: &State, config: &State, after: &State, who: &str, force: bool) -> Result<(), TestCaseError> {
    // (a) The applied fields are set.
    for (path, wanted) in &config.leaves {
        let there = after.leaves.get(path);
        let unowned = config.empty.contains(path);
        let fine = there == Some(wanted) || is_empty(wanted) && after.has(path) || unowned;
        prop_assert!(fine, "{path} should be {wanted}");
        prop_assert!(after.owned(who).contains(path) != unowned, "{path} should be owned");
    }
    for path in after.owned(who) {
        prop_assert!(config.has(&path), "{path} should not be owned");
    }
    // (b) Fields owned by others are unchanged, unless they are in a value that is replaced by one of another type: as
    // in Kubernetes, only who owns that value itself is asked.
    for path in before.others(who).filter(|_| !force) {
        let Some(was) = before.leaves.get(path) else { continue };
        let is = after.leaves.get(path);
        let is_replaced = config.leaves.keys().any(|leaf| below(std::iter::once(path), leaf));
        let fine = is == Some(was)
            || (is_empty(was) || was.is_null()) && after.has(path)
            || in_abandoned_item(before, config, who, path)
            || is_replaced;
        prop_assert!(fine, "{path} of another was {was} and is {is:?}");
    }
    // (d) Fields that are no longer applied are removed, unless another manager owns them.
    for path in before.owned(who) {
        let others_hold = before.others(who).any(|other| *other == path) || below(before.others(who), &path);
        if !config.has(&path) && !others_hold {
            prop_assert!(!after.has(&path), "{path} should be gone");
        }
    }
    // (e) Lists have the order of the configuration; items only in the live list have the order of that list.
    for (path, items) in &after.order {
        let none = Vec::new();
        let (wanted, was) = (config.order.get(path).unwrap_or(&none), before.order.get(path).unwrap_or(&none));
        let configured: Vec<_> = items.iter().filter(|item| wanted.contains(item)).collect();
        prop_assert_eq!(configured, wanted.iter().collect::<Vec<_>>());
        let rest: Vec<_> = items.iter().filter(|item| !wanted.contains(item)).collect();
        prop_assert_eq!(&rest, &was.iter().filter(|item| rest.contains(item)).collect::<Vec<_>>());
    }
    Ok(())
}

/// Checks (f): an update owns only the fields that it changed, and no manager gains fields by another's update.
fn check_update(before: &State, after: &State, who: &str) -> Result<(), TestCaseError> {
    if before.owners.is_empty() && before.exists {
        prop_assert!(after.owners.is_empty(), "what nobody owned is not tracked");
        return Ok(());
    }
    for (path, value) in &after.leaves {
        if before.leaves.get(path) != Some(value) && !(is_empty(value) && before.has(path)) {
            prop_assert!(after.owned(who).contains(path), "{path} should be owned by {who}");
            prop_assert!(!after.others(who).any(|other| other == path), "{path} should be owned by {who} alone");
        }
    }
    for path in after.owned(who).difference(&before.owned(who)) {
        let changed = before.leaves.get(path) != after.leaves.get(path);
        prop_assert!(changed || !before.has(path), "{path} was not changed");
    }
    for (other, paths) in after.owners.iter().filter(|(other, _)| *other != who) {
        let gained: Vec<_> = paths.difference(&before.owned(other)).cloned().collect();
        prop_assert!(gained.is_empty(), "{} gained {:?}", other, gained);
    }
    Ok(())
}

fn run(kind: &Type, writes: Vec<Write>) -> Result<(), TestCaseError> {
    let schema = from_openapi(&json!({"type": "object", "properties": {"spec": document(kind)}}));
    let definitions = Definitions::default();
    let at = |second: usize| Timestamp::from_second(1_700_000_000 + i64::try_from(second).unwrap()).unwrap();
    let ctx = |manager, force, second| Context {
        node: Node::new(&schema, &definitions),
        group_version: "v1",
        kind: "Thing",
        manager,
        subresource: None,
        force,
        now: Some(at(second)),
        writable: Writable::All,
        blank: None,
        schema_changes: false,
        versions: None,
    };
    let mut live: Option<Value> = None;
    for (second, write) in writes.into_iter().enumerate() {
        let mut before = State::of(kind, live.as_ref());
        let (who, next) = match write {
            Write::Apply { manager, config, force } => {
                let who = format!("{manager}/Apply");
                let is_first = before.owners.is_empty();
                if is_first {
                    before.owners.insert("before-first-apply/Update".into(), before.leaves.keys().cloned().collect());
                }
                let config = object(config);
                let wanted = State::of(kind, Some(&config));
                let clash = clashes(&before, &wanted, &who, is_first);
                let Ok(next) = apply(live.as_ref(), &config, &ctx(manager, force, 2 * second)) else {
                    prop_assert!(clash && !force, "nothing to conflict about");
                    continue;
                };
                prop_assert!(!clash || force, "another's field was taken");
                let after = State::of(kind, Some(&next));
                check_apply(&before, &wanted, &after, &who, force)?;
                // (c) A repeated apply changes nothing. An empty map or list of which nothing is left is null after the
                // first, and comes back with the second; if the first apply owns nothing, ownership begins with the
                // second.
                if !after.owners.is_empty() && !wanted.leaves.values().any(is_empty) {
                    let again = apply(Some(&next), &config, &ctx(manager, force, 2 * second + 1)).unwrap();
                    prop_assert_eq!(&again, &next);
                }
                (who, next)
            }
            Write::Replace { manager, spec } => {
                let mut new = live.clone().unwrap_or_else(|| object(json!({})));
                new["spec"] = spec;
                let next = update(live.as_ref(), new, &ctx(manager, false, 2 * second));
                let who = format!("{manager}/Update");
                check_update(&before, &State::of(kind, Some(&next)), &who)?;
                (who, next)
            }
            Write::Change { manager, fields } => {
                let mut new = live.clone().unwrap_or_else(|| object(json!({})));
                take_managed(&mut new);
                crate::patch::merge::apply(&mut new["spec"], &fields);
                let next = update(live.as_ref(), new, &ctx(manager, false, 2 * second));
                let who = format!("{manager}/Update");
                check_update(&before, &State::of(kind, Some(&next)), &who)?;
                (who, next)
            }
        };
        let after = State::of(kind, Some(&next));
        for path in after.owners.values().flatten() {
            prop_assert!(after.has(path), "{path} is owned and not there, after {who}");
        }
        live = Some(next);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_apply_loses_misplaces_or_steals(
        (kind, writes) in any_type().prop_flat_map(|kind| {
            let writes = prop::collection::vec(any_write(&kind), 1..8);
            (Just(kind), writes)
        })
    ) {
        run(&kind, writes)?;
    }
}
