//! Ownership of values by schema: as a whole, by field, or by item.

use serde_json::{Map, Value};

use super::fields::{FieldSet, PathElement};
use crate::{
    go_format,
    schema::{ANYTHING, Additional, Kind, List, Node, Schema},
};

/// A position in an object: its schema, and whether it is the root or its metadata, where only the server sets some
/// fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    node: Node<'a>,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Root,
    /// The root's `metadata`.
    Metadata,
    Inside,
}

/// The granularity of a value's ownership.
pub(crate) enum Shape<'v, 'a> {
    /// As a whole.
    Leaf,
    /// Field by field.
    Map(&'v Map<String, Value>),
    /// Item by item.
    Items(&'v [Value], Items<'a>),
}

/// The keys and the schema of list items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items<'a> {
    /// The keys of a list map. `None` for a set, whose items are their own keys.
    keys: Option<&'a [String]>,
    item: Cursor<'a>,
}

/// A violation of the schema by an applied configuration, with its path.
#[derive(Debug)]
pub(crate) struct SchemaError {
    /// The paths and the reasons.
    errors: Vec<(String, String)>,
}

impl std::fmt::Display for SchemaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let [(path, why)] = self.errors.as_slice() {
            return write!(f, "{path}: {why}");
        }
        f.write_str("errors:")?;
        self.errors.iter().try_for_each(|(path, why)| write!(f, "\n  {path}: {why}"))
    }
}

impl SchemaError {
    fn new(why: impl Into<String>) -> Self {
        Self { errors: vec![(String::new(), why.into())] }
    }

    fn below(mut self, element: &PathElement) -> Self {
        self.errors.iter_mut().for_each(|(path, _)| path.insert_str(0, &element.to_string()));
        self
    }
}

impl<'a> Cursor<'a> {
    /// Returns the root of an object.
    pub(crate) fn root(node: Node<'a>) -> Self {
        Self { node, place: Place::Root }
    }

    fn inside(node: Node<'a>) -> Self {
        Self { node, place: Place::Inside }
    }

    /// Returns whether the ownership of this field is tracked. It isn't for identifying fields and for fields that only
    /// the server sets.
    pub(crate) fn tracks(self, name: &str) -> bool {
        match self.place {
            Place::Inside => true,
            Place::Root => !matches!(name, "apiVersion" | "kind"),
            Place::Metadata => !matches!(
                name,
                "name"
                    | "namespace"
                    | "uid"
                    | "creationTimestamp"
                    | "generation"
                    | "resourceVersion"
                    | "managedFields"
                    | "selfLink"
            ),
        }
    }

    /// Returns whether this is the object's `metadata`, which always exists and has no owner.
    pub(crate) fn is_metadata(self) -> bool {
        self.place == Place::Metadata
    }

    /// Returns the position of a field, and whether the schema declares it by name. `None` if the schema doesn't allow
    /// the field.
    fn lookup(self, name: &str) -> Option<(Self, bool)> {
        let schema = self.node.schema();
        if self.place == Place::Inside && !schema.embedded_resource {
            if is_untyped(schema) {
                return Some((Self::inside(Node::new(&ANYTHING, self.node.definitions())), false));
            }
            return self.node.field(name).map(|node| (Self::inside(node), schema.properties.contains_key(name)));
        }
        let node = self.node.resource_field(name)?;
        let place = if self.place == Place::Root && name == "metadata" { Place::Metadata } else { Place::Inside };
        let named = matches!(name, "apiVersion" | "kind" | "metadata") || schema.properties.contains_key(name);
        Some((Self { node, place }, named))
    }

    /// Returns the position of a field. For an unknown field, the position allows any value.
    pub(crate) fn field(self, name: &str) -> Self {
        let unknown = || Self::inside(Node::new(&ANYTHING, self.node.definitions()));
        self.lookup(name).map_or_else(unknown, |(field, _)| field)
    }

    /// Returns the keys and schema of the list items at this position. `None` if the list is atomic.
    pub(crate) fn items(self) -> Option<Items<'a>> {
        let keys = match &self.node.schema().list {
            List::Unspecified | List::Atomic => return None,
            List::Set => None,
            List::Map(keys) => Some(keys.as_slice()),
        };
        Some(Items { keys, item: Self::inside(self.node.items()) })
    }

    /// Returns whether a map at this position is atomic.
    pub(crate) fn is_atomic_map(self) -> bool {
        self.node.is_atomic_map()
    }

    /// Collects the paths of the atomic lists and maps of a configuration.
    pub(crate) fn collect_atomics(self, config: &Value, path: &str, atomics: &mut Vec<String>) {
        match (self.shape(config), config) {
            (Shape::Map(map), _) => {
                for (name, value) in map {
                    self.field(name).collect_atomics(value, &format!("{path}.{name}"), atomics);
                }
            }
            (Shape::Items(items, kind), _) => {
                for (index, item) in items.iter().enumerate() {
                    kind.item().collect_atomics(item, &format!("{path}[{index}]"), atomics);
                }
            }
            (Shape::Leaf, Value::Object(_) | Value::Array(_)) => atomics.push(path.to_owned()),
            _ => {}
        }
    }

    /// Returns the granularity of `value` at this position. A value of a type that the schema doesn't allow is owned
    /// according to its actual type; validation reports it.
    pub(crate) fn shape<'v>(self, value: &'v Value) -> Shape<'v, 'a> {
        match value {
            Value::Object(map) if !self.is_atomic_map() => Shape::Map(map),
            Value::Array(items) => self.items().map_or(Shape::Leaf, |kind| Shape::Items(items, kind)),
            _ => Shape::Leaf,
        }
    }

    /// Returns the fields that a configuration applied at this position owns.
    ///
    /// # Errors
    /// If it has a field that the schema doesn't declare, a value of another type, an item without its keys, or two items with
    /// equal keys.
    pub(crate) fn claimed(self, config: &Value) -> Result<FieldSet, SchemaError> {
        if let Some(why) = wrong_type(self.node.schema(), config).filter(|_| self.place == Place::Inside) {
            return Err(SchemaError::new(why));
        }
        match self.shape(config) {
            Shape::Map(map) if !map.is_empty() => self.claimed_fields(map),
            Shape::Items(items, kind) => kind.claimed(items),
            _ if self.place == Place::Inside => Ok(FieldSet::leaf()),
            _ => Ok(FieldSet::default()),
        }
    }

    /// Returns the fields that an applied object owns. A declared field that has owned fields exists because of them, so
    /// it isn't owned itself. Entries of a map and items of a list are owned themselves.
    fn claimed_fields(self, map: &Map<String, Value>) -> Result<FieldSet, SchemaError> {
        let mut set = FieldSet::with_capacity(map.len());
        let mut errors = Vec::new();
        for (name, value) in map.iter().filter(|(name, _)| self.tracks(name)) {
            let element = PathElement::field(name);
            let Some((below, named)) = self.lookup(name) else {
                // Kubernetes' library looks no further.
                errors.extend(SchemaError::new("field not declared in schema").below(&element).errors);
                break;
            };
            match below.claimed(value) {
                Ok(mut child) => {
                    if !named {
                        child.set_owned(true);
                    }
                    set.push(element, child);
                }
                Err(error) => errors.extend(error.below(&element).errors),
            }
        }
        if errors.is_empty() { Ok(set.sorted()) } else { Err(SchemaError { errors }) }
    }

    /// Returns the fields that the creation of `value` creates: the value itself, and everything in it.
    pub(crate) fn created(self, value: &Value) -> FieldSet {
        let mut set = match self.shape(value) {
            Shape::Map(map) => {
                let mut set = FieldSet::with_capacity(map.len());
                for (name, value) in map.iter().filter(|(name, _)| self.tracks(name)) {
                    set.push(PathElement::field(name), self.field(name).created(value));
                }
                set.sorted()
            }
            Shape::Items(items, kind) => kind.all_created(items),
            Shape::Leaf => FieldSet::default(),
        };
        set.set_owned(self.place == Place::Inside);
        set
    }
}

/// Returns whether a schema has the type object and describes none of its fields. These are owned according to the structure of
/// the value, although they are pruned from objects of custom kinds.
fn is_untyped(schema: &Schema) -> bool {
    schema.kind == Some(Kind::Object)
        && schema.properties.is_empty()
        && matches!(schema.additional, Additional::Unspecified)
        && schema.reference.is_none()
}

/// Returns the error about a value whose type the schema doesn't allow, in the words of Kubernetes' library, which shows
/// the value as Go does.
fn wrong_type(schema: &Schema, value: &Value) -> Option<String> {
    let kind = schema.kind.filter(|_| !schema.int_or_string && !value.is_null())?;
    match (kind, value) {
        (Kind::Object, Value::Object(_))
        | (Kind::Array, Value::Array(_))
        | (Kind::Boolean, Value::Bool(_))
        | (Kind::Integer | Kind::Number, Value::Number(_))
        | (Kind::String, Value::String(_)) => None,
        // Times and quantities are of a type of their own in Go.
        (Kind::String, _) if schema.quantity || schema.format.as_deref().is_some_and(|format| format != "byte") => None,
        (Kind::Object, other) => Some(format!("expected map, got &{{{}}}", go_format::plain(other))),
        (Kind::Array, other) => Some(format!("expected list, got &{{{}}}", go_format::plain(other))),
        (Kind::Boolean, other) => Some(format!("expected boolean, got &{{{}}}", go_format::plain(other))),
        (Kind::Integer | Kind::Number, other) => {
            Some(format!("expected numeric (int or float), got {}", go_format::type_name(other)))
        }
        (Kind::String, other) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_format::syntax(other)))
        }
    }
}

impl<'a> Items<'a> {
    /// Returns the position of each item.
    pub(crate) fn item(self) -> Cursor<'a> {
        self.item
    }

    /// Returns the step to an item. An absent key is replaced by its default, or omitted if it has none.
    pub(crate) fn element(self, item: &Value) -> PathElement {
        let Some(keys) = self.keys else { return PathElement::value(item) };
        let values = keys.iter().filter_map(|key| Some((key.as_str(), self.key(key, item)?)));
        PathElement::key(values.collect())
    }

    /// Returns the value of a key of an item, or its default.
    fn key(self, key: &str, item: &'a Value) -> Option<&'a Value> {
        let default = || self.item.node.field(key).and_then(|node| node.schema().default.as_ref());
        item.get(key).or_else(default)
    }

    /// Returns the fields that the creation of an item, or of several items with equal keys, creates. Items with equal
    /// keys are owned as a whole, since no path distinguishes their fields.
    pub(crate) fn created(self, duplicates: &[&Value]) -> FieldSet {
        match (duplicates, self.keys) {
            ([item], Some(_)) => self.item.created(item),
            _ => FieldSet::leaf(),
        }
    }

    fn all_created(self, items: &[Value]) -> FieldSet {
        let mut items: Vec<_> = items.iter().map(|item| (self.element(item), item)).collect();
        items.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut set = FieldSet::with_capacity(items.len());
        for group in items.chunk_by(|(a, _), (b, _)| a == b) {
            let duplicates: Vec<_> = group.iter().map(|(_, item)| *item).collect();
            set.push(group[0].0.clone(), self.created(&duplicates));
        }
        set
    }

    /// Returns the items that an applied list owns. As in Kubernetes, the list itself isn't owned, even if it is empty.
    fn claimed(self, items: &[Value]) -> Result<FieldSet, SchemaError> {
        let mut children = Vec::with_capacity(items.len());
        for (place, item) in items.iter().enumerate() {
            let element = self.element(item);
            // The keys that an item has distinguish it from the others.
            if let Some(keys) = self.keys.filter(|keys| keys.iter().all(|key| self.key(key, item).is_none())) {
                let keys = keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(" ");
                return Err(SchemaError::new(format!(
                    "element {place}: associative list with keys has an element that omits all key fields [{keys}] (and \
                     doesn't have default values for any key fields)"
                )));
            }
            let mut child = match self.keys {
                Some(_) => self.item.claimed(item).map_err(|error| error.below(&element))?,
                None => FieldSet::default(),
            };
            child.set_owned(true);
            children.push((element, child));
        }
        children.sort_by(|(a, _), (b, _)| a.cmp(b));
        if let Some([(element, _), _]) = children.array_windows().find(|[(a, _), (b, _)]| a == b) {
            return Err(SchemaError::new(format!("duplicate entries for key {element}")));
        }
        let mut set = FieldSet::with_capacity(children.len());
        children.into_iter().for_each(|(element, child)| set.push(element, child));
        Ok(set)
    }
}
