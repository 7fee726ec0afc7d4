//! Ownership of values by schema: as a whole, by field, or by item.

use std::collections::BTreeSet;

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
    /// True if a schema around this position preserves unknown fields. As in Kubernetes, an apply may then contain them
    /// here, too, even if they are pruned afterwards.
    preserves: bool,
    /// True if lists may have several items with equal keys. An applied configuration may not.
    duplicates: bool,
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
        Self { node, place: Place::Root, preserves: false, duplicates: false }
    }

    fn inside(self, node: Node<'a>) -> Self {
        let preserves = self.preserves || self.node.schema().preserve_unknown;
        Self { node, place: Place::Inside, preserves, ..self }
    }

    fn anything(self) -> Self {
        self.inside(Node::new(&ANYTHING, self.node.definitions()))
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
                return Some((self.anything(), false));
            }
            let is_preserved = self.preserves && schema.additional == Additional::Unspecified;
            return self.field_of_schema(name).or_else(|| is_preserved.then(|| (self.anything(), false)));
        }
        if !matches!(name, "apiVersion" | "kind" | "metadata") {
            return self.field_of_schema(name);
        }
        let inside = self.inside(self.node.resource_field(name)?);
        let place = if self.place == Place::Root && name == "metadata" { Place::Metadata } else { Place::Inside };
        // The metadata has a type of its own, whatever is around it.
        let preserves = inside.preserves && name != "metadata";
        Some((Self { place, preserves, ..inside }, true))
    }

    /// Returns the position of a field that the schema allows, and whether it declares it by name.
    fn field_of_schema(self, name: &str) -> Option<(Self, bool)> {
        match self.node.declared_field(name) {
            Some(node) => Some((self.inside(node), true)),
            None => Some((self.inside(self.node.additional_field()?), false)),
        }
    }

    /// Returns the position of a field. For an unknown field, the position allows any value.
    pub(crate) fn field(self, name: &str) -> Self {
        self.lookup(name).map_or_else(|| self.anything(), |(field, _)| field)
    }

    /// Returns the keys and schema of the list items at this position. `None` if the list is atomic.
    pub(crate) fn items(self) -> Option<Items<'a>> {
        let keys = match &self.node.schema().list {
            List::Unspecified | List::Atomic => return None,
            List::Set => None,
            List::Map(keys) => Some(keys.as_slice()),
        };
        Some(Items { keys, item: self.inside(self.node.items()) })
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

    /// Returns whether a value has fields or items that are merged one by one.
    pub(crate) fn is_merged(self, value: &Value) -> bool {
        match self.shape(value) {
            Shape::Map(map) => !map.is_empty(),
            Shape::Items(items, _) => !items.is_empty(),
            Shape::Leaf => false,
        }
    }

    /// Returns the fields that a configuration applied at this position owns.
    ///
    /// # Errors
    /// If it has a field that the schema doesn't declare, a value of another type, an item without its keys, or two
    /// items with equal keys.
    pub(crate) fn claimed(self, config: &Value) -> Result<FieldSet, SchemaError> {
        if let Some(why) = wrong_type(self.node.schema(), config).filter(|_| self.place != Place::Root) {
            return Err(SchemaError::new(why));
        }
        match (self.shape(config), config) {
            (Shape::Map(map), _) if !map.is_empty() => return self.claimed_fields(map),
            (Shape::Items(items, kind), _) => return kind.claimed(items),
            // The schema applies inside of atomic values, too.
            (Shape::Leaf, Value::Object(map)) => drop(self.claimed_fields(map)?),
            (Shape::Leaf, Value::Array(items)) => self.check_items(items)?,
            _ => {}
        }
        Ok(if self.place == Place::Inside { FieldSet::leaf() } else { FieldSet::default() })
    }

    /// Checks that an object fits the schema. Its lists may have items with equal keys.
    ///
    /// # Errors
    /// The way in which it doesn't.
    pub(crate) fn check(self, object: &Value) -> Result<(), SchemaError> {
        Self { duplicates: true, ..self }.claimed(object).map(drop)
    }

    fn check_items(self, items: &[Value]) -> Result<(), SchemaError> {
        let inner = self.inside(self.node.items());
        let wrong = items.iter().enumerate().filter_map(|(index, item)| {
            let error = inner.claimed(item).err()?;
            Some(error.below(&PathElement::index(index)).errors)
        });
        let errors: Vec<_> = wrong.flatten().collect();
        if errors.is_empty() { Ok(()) } else { Err(SchemaError { errors }) }
    }

    /// Returns the fields that an applied object owns. A declared field that has owned fields exists because of them,
    /// so it isn't owned itself. Entries of a map and items of a list are owned themselves.
    fn claimed_fields(self, map: &Map<String, Value>) -> Result<FieldSet, SchemaError> {
        let mut set = FieldSet::with_capacity(map.len());
        let mut errors = Vec::new();
        for (name, value) in map {
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
                    if self.tracks(name) {
                        set.push(element, child);
                    }
                }
                Err(error) => errors.extend(error.below(&element).errors),
            }
        }
        if errors.is_empty() { Ok(set.sorted()) } else { Err(SchemaError { errors }) }
    }

    /// Checks that there is no null in fields with a type, which an expression of a policy may have made. Nulls in
    /// lists are left to [`claimed`](Self::claimed).
    pub(super) fn refuse_nulls(self, value: &Value) -> Result<(), SchemaError> {
        match value {
            Value::Null => wrong_null(self.node.schema()).map_or(Ok(()), |why| Err(SchemaError::new(why))),
            Value::Object(map) => {
                let known = map.iter().filter_map(|(name, value)| Some((name, self.lookup(name)?.0, value)));
                let wrong = known.filter_map(|(name, below, value)| {
                    Some(below.refuse_nulls(value).err()?.below(&PathElement::field(name)).errors)
                });
                let errors: Vec<_> = wrong.flatten().collect();
                if errors.is_empty() { Ok(()) } else { Err(SchemaError { errors }) }
            }
            _ => Ok(()),
        }
    }

    /// Adapts a set of fields to the schema: who owned something in a map or list that is atomic now owns it as a
    /// whole.
    pub(crate) fn reconcile(self, fields: &mut FieldSet) {
        let schema = self.node.schema();
        let is_atomic = match schema.kind {
            Some(Kind::Object) => self.is_atomic_map(),
            Some(Kind::Array) => self.items().is_none(),
            _ => false,
        };
        if is_atomic && self.place == Place::Inside && !fields.children().is_empty() {
            *fields = FieldSet::leaf();
        }
        fields.map_children(|element, child| match (element.as_field(), self.items()) {
            (Some(name), _) => self.field(name).reconcile(child),
            (None, Some(items)) => items.item().reconcile(child),
            (None, None) => {}
        });
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

/// Returns whether a schema has the type object and describes none of its fields. These are owned according to the
/// structure of the value, although they are pruned from objects of custom kinds.
fn is_untyped(schema: &Schema) -> bool {
    schema.kind == Some(Kind::Object)
        && schema.properties.is_empty()
        && matches!(schema.additional, Additional::Unspecified)
        && schema.reference.is_none()
}

/// Returns the error about a value whose type the schema doesn't allow, in the words of Kubernetes' library, which
/// shows the value as Go does.
fn wrong_type(schema: &Schema, value: &Value) -> Option<String> {
    let kind = schema.kind.filter(|_| !value.is_null())?;
    match (kind, value) {
        (Kind::Object, Value::Object(_))
        | (Kind::Array, Value::Array(_))
        | (Kind::Boolean, Value::Bool(_))
        | (Kind::Integer | Kind::Number, Value::Number(_))
        | (Kind::String, Value::String(_)) => None,
        // Times and quantities are of a type of their own in Go.
        (Kind::String, other) if is_any_scalar(schema) => match other {
            Value::Array(_) | Value::Object(_) => {
                Some(format!("expected any scalar, got &{{{}}}", go_format::plain(other)))
            }
            _ => None,
        },
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

/// Returns whether a schema of strings allows any scalar, as far as the type is concerned.
fn is_any_scalar(schema: &Schema) -> bool {
    schema.quantity || schema.format.as_deref().is_some_and(|format| format != "byte")
}

/// Returns the error about CEL's null, which is a number in Go, in a field with a type.
fn wrong_null(schema: &Schema) -> Option<String> {
    let (expected, shown) = match schema.kind? {
        Kind::Object => ("map", "&{NULL_VALUE}"),
        Kind::Array => ("list", "&{NULL_VALUE}"),
        Kind::Boolean => ("boolean", "&{NULL_VALUE}"),
        Kind::String if is_any_scalar(schema) => ("any scalar", "&{NULL_VALUE}"),
        Kind::String => ("string", "&value.valueUnstructured{Value:0}"),
        Kind::Integer | Kind::Number => ("numeric (int or float)", "structpb.NullValue"),
    };
    Some(format!("expected {expected}, got {shown}"))
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
        let mut set = FieldSet::with_capacity(items.len());
        let mut seen = BTreeSet::new();
        let mut errors = Vec::new();
        for (place, item) in items.iter().enumerate() {
            if let Some(why) = self.unidentified(item) {
                // Kubernetes' library looks no further.
                errors.extend(SchemaError::new(format!("element {place}: {why}")).errors);
                break;
            }
            let element = self.element(item);
            if !seen.insert(element.clone()) && !self.item.duplicates {
                errors.extend(SchemaError::new(format!("duplicate entries for key {element}")).errors);
            }
            match self.item.claimed(item) {
                Ok(mut child) => {
                    child.set_owned(true);
                    set.push(element, child);
                }
                Err(error) => errors.extend(error.below(&element).errors),
            }
        }
        if errors.is_empty() { Ok(set.sorted()) } else { Err(SchemaError { errors }) }
    }

    /// Returns why an item can't be identified, in the words of Kubernetes' library.
    fn unidentified(self, item: &Value) -> Option<String> {
        let why = match (self.keys, item) {
            (None, Value::Object(_)) => "associative list without keys has an element that's a map type",
            (None, Value::Array(_)) => "not supported: associative list with lists as elements",
            (None, Value::Null) => "associative list without keys has an element that's an explicit null",
            (None, _) => return None,
            (Some(_), Value::Null) => "associative list with keys may not have a null element",
            // The keys that an item has distinguish it from the others.
            (Some(keys), Value::Object(_)) if keys.iter().any(|key| self.key(key, item).is_some()) => return None,
            (Some(keys), Value::Object(_)) => {
                let keys = keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(" ");
                return Some(format!(
                    "associative list with keys has an element that omits all key fields [{keys}] (and doesn't have \
                     default values for any key fields)"
                ));
            }
            (Some(_), _) => "associative list with keys may not have non-map elements",
        };
        Some(why.to_owned())
    }
}
