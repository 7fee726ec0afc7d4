//! Finds the fields that a write changed, in one walk over the old and the new object.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    fields::{FieldSet, PathElement},
    typed::{Cursor, Items, Shape},
};

/// The difference between two states of an object, as sets of fields.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// Fields that were added or have another value.
    pub(crate) changed: FieldSet,
    /// Removed fields, and those below them.
    pub(crate) removed: FieldSet,
}

impl Comparison {
    /// Compares two values. Visits every value once; beyond that, time and memory are proportional to the difference.
    pub(crate) fn of(cursor: Cursor<'_>, old: &Value, new: &Value) -> Self {
        let nothing = Map::new();
        match (cursor.shape(old), cursor.shape(new)) {
            (Shape::Map(old), Shape::Map(new)) => Self::of_fields(cursor, old, new),
            (Shape::Items(old, items), Shape::Items(new, _)) => Self::of_items(items, old, new),
            // Null has no fields or items. It differs from an empty map or list as a whole.
            (Shape::Leaf, Shape::Map(new)) if old.is_null() && !new.is_empty() => {
                Self::of_fields(cursor, &nothing, new)
            }
            (Shape::Map(old), Shape::Leaf) if new.is_null() && !old.is_empty() => {
                Self::of_fields(cursor, old, &nothing)
            }
            (Shape::Leaf, Shape::Items(new, items)) if old.is_null() && !new.is_empty() => {
                Self::of_items(items, &[], new)
            }
            (Shape::Items(old, items), Shape::Leaf) if new.is_null() && !old.is_empty() => {
                Self::of_items(items, old, &[])
            }
            _ if same(old, new) => Self::default(),
            (Shape::Leaf, Shape::Leaf) => Self { changed: FieldSet::leaf(), removed: FieldSet::default() },
            // A value of another type. What it contained was removed, but not the value itself.
            _ => {
                let [mut removed, mut changed] = [old, new].map(|value| cursor.created(value));
                removed.set_owned(false);
                changed.set_owned(true);
                Self { changed, removed }
            }
        }
    }

    /// Returns the difference that the creation of an object makes.
    pub(crate) fn creation(cursor: Cursor<'_>, new: &Value) -> Self {
        Self { changed: cursor.created(new), removed: FieldSet::default() }
    }

    /// Returns whether there is no difference.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    fn push(&mut self, element: PathElement, below: Self) {
        if below.removed.is_empty() {
            self.changed.push(element, below.changed);
        } else {
            self.changed.push(element.clone(), below.changed);
            self.removed.push(element, below.removed);
        }
    }

    fn sorted(self) -> Self {
        Self { changed: self.changed.sorted(), removed: self.removed.sorted() }
    }

    fn of_fields(cursor: Cursor<'_>, old: &Map<String, Value>, new: &Map<String, Value>) -> Self {
        let mut comparison = Self::default();
        for (name, value) in new.iter().filter(|(name, _)| cursor.tracks(name)) {
            let below = match old.get(name) {
                Some(before) => Self::of(cursor.field(name), before, value),
                None => Self { changed: cursor.field(name).created(value), removed: FieldSet::default() },
            };
            if !below.is_empty() {
                comparison.push(PathElement::field(name), below);
            }
        }
        for (name, value) in old.iter().filter(|(name, _)| !new.contains_key(*name) && cursor.tracks(name)) {
            comparison.removed.push(PathElement::field(name), cursor.field(name).created(value));
        }
        comparison.sorted()
    }

    fn of_items(items: Items<'_>, old: &[Value], new: &[Value]) -> Self {
        if old == new {
            return Self::default();
        }
        let mut pairs: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            pairs.entry(items.element(item)).or_default().0.push(item);
        }
        for item in new {
            pairs.entry(items.element(item)).or_default().1.push(item);
        }
        let mut comparison = Self::default();
        for (element, (old, new)) in pairs {
            let below = match (old.as_slice(), new.as_slice()) {
                ([old], [new]) => Self::of(items.item(), old, new),
                (old, []) => Self { changed: FieldSet::default(), removed: items.created(old) },
                (old, new) if old == new => Self::default(),
                // If several items have equal keys, it is unknown which of them changed, so all of them count as
                // changed.
                (_, new) => Self { changed: items.created(new), removed: FieldSet::default() },
            };
            comparison.push(element, below);
        }
        comparison
    }
}

/// Returns whether two values are equal, regardless of the notation of numbers.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || (a.is_f64() != b.is_f64() && a.as_f64() == b.as_f64()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}
