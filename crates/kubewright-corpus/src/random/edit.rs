//! Random changes of an object.

use serde_json::{Value, json};

use super::Generator;
use crate::{
    change::Change,
    generate::walk::{child, resolve},
};

/// The parts of an object that aren't changed: what identifies it.
const FIXED: [&str; 4] = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];

/// A part of an object: its pointer, declared type and value.
struct Place<'v> {
    at: String,
    kind: String,
    value: &'v Value,
}

impl Generator<'_> {
    /// Returns a random change of an object of a type; `None` if the chosen part can't be changed.
    pub(super) fn edit(&mut self, kind: &str, object: &Value) -> Option<Change> {
        let mut places = Vec::new();
        self.places(String::new(), kind, object, &mut places);
        let place = self.random.choice(&places)?;
        let (at, value) = (place.at.clone(), place.value);
        let kind = resolve(self.types, &place.kind);
        match value {
            Value::Object(fields) => {
                if self.random.u8(0..10) == 0 {
                    return Some(remove(at));
                }
                if let Some(entries) = kind.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
                    let (key, entry) = (self.text(), self.value(entries.1, 2));
                    return Some(set(format!("{at}/{}", escape(&key)), entry));
                }
                let missing: Vec<_> =
                    self.types.fields(&kind).into_iter().filter(|(name, _)| !fields.contains_key(*name)).collect();
                let (name, field) = self.random.choice(&missing).copied()?;
                let at = format!("{at}/{name}");
                if FIXED.contains(&at.as_str()) {
                    return None;
                }
                let (field, depth) = (field.to_owned(), 3);
                Some(set(at, self.value(&field, depth)))
            }
            Value::Array(items) => {
                let of = child(self.types, &kind, "0");
                let mut items = items.clone();
                match self.random.u8(0..6) {
                    0 => return Some(remove(at)),
                    1 => items.clear(),
                    2 => drop(items.pop()),
                    3 => items.extend(items.first().cloned()),
                    4 => items.reverse(),
                    _ => items.push(self.value(&of, 2)),
                }
                Some(set(at, Value::Array(items)))
            }
            _ => Some(match self.random.u8(0..10) {
                0 => remove(at),
                1 => set(at, Value::Null),
                2 => set(at, json!(1)),
                3..6 => {
                    let text = self.text();
                    set(at, text.into())
                }
                _ => set(at, self.value(&kind, 0)),
            }),
        }
    }

    /// Lists the parts of a value that can be changed.
    fn places<'v>(&self, at: String, kind: &str, value: &'v Value, places: &mut Vec<Place<'v>>) {
        if FIXED.contains(&at.as_str()) {
            return;
        }
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.places(format!("{at}/{}", escape(name)), &child(self.types, kind, name), field, places);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.places(format!("{at}/{index}"), &child(self.types, kind, "0"), item, places);
                }
            }
            _ => {}
        }
        if !at.is_empty() {
            places.push(Place { at, kind: kind.to_owned(), value });
        }
    }
}

fn remove(at: String) -> Change {
    Change { remove: vec![at], ..Change::default() }
}

fn set(at: String, value: Value) -> Change {
    Change { set: [(at, value)].into(), ..Change::default() }
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
