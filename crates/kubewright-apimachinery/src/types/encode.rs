//! Encoding: JSON with the fields in their declared order.

use serde_json::{Map, Value};

use super::{Shape, Struct, Type, TypeId, Types};
use crate::go_json;

impl Types {
    /// Writes a value as JSON: the fields of structs in their declared order, the entries of maps sorted.
    ///
    /// Fields that the type doesn't declare follow the others.
    pub fn write(&self, ty: TypeId, value: &Value, out: &mut Vec<u8>) {
        Writer { types: self, out, order: Vec::new() }.value(self.get(ty), value);
    }
}

struct Writer<'a> {
    types: &'a Types,
    out: &'a mut Vec<u8>,
    /// The fields of the structs that are being written, from the outermost to the innermost: their places in the
    /// declared order, their types, names and values.
    order: Vec<(usize, Option<TypeId>, &'a str, &'a Value)>,
}

impl<'a> Writer<'a> {
    fn value(&mut self, ty: &'a Type, value: &'a Value) {
        match (&ty.shape, value) {
            (Shape::Struct(all), Value::Object(fields)) => self.fields(all, fields),
            (Shape::Map(of), Value::Object(entries)) => self.entries(*of, entries),
            (Shape::List(of) | Shape::SchemaOrArray(of), Value::Array(items)) => self.items(*of, items),
            (
                Shape::SchemaOrArray(schema) | Shape::SchemaOrBool(schema) | Shape::SchemaOrStrings(schema),
                Value::Object(_),
            ) => self.value(self.types.get(*schema), value),
            (Shape::Any, Value::Object(fields)) => match self.embedded(fields) {
                Some(ty) => self.value(ty, value),
                None => self.plain(value),
            },
            _ => self.plain(value),
        }
    }

    /// Returns the type of an object inside of another, such as a row's in a table.
    fn embedded(&self, fields: &Map<String, Value>) -> Option<&'a Type> {
        let (version, kind) = (fields.get("apiVersion")?.as_str()?, fields.get("kind")?.as_str()?);
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        self.types.kind(group, version, kind).map(|id| self.types.get(id))
    }

    /// Writes a value without a declared order.
    fn plain(&mut self, value: &Value) {
        go_json::write(value, self.out);
    }

    fn separate(&mut self, place: usize) {
        if place > 0 {
            self.out.push(b',');
        }
    }

    fn name(&mut self, name: &str) {
        go_json::write_string(name, self.out);
        self.out.push(b':');
    }

    fn fields(&mut self, all: &'a Struct, fields: &'a Map<String, Value>) {
        let start = self.order.len();
        for (name, value) in fields {
            let (place, of) = match all.index(name) {
                Some(index) => (index, Some(all.fields[index].ty)),
                None => (usize::MAX, None),
            };
            self.order.push((place, of, name, value));
        }
        // Undeclared fields keep their order.
        self.order[start..].sort_by_key(|(place, ..)| *place);
        self.out.push(b'{');
        for at in start..self.order.len() {
            let (_, of, name, value) = self.order[at];
            self.separate(at - start);
            match of {
                Some(of) => {
                    // Declared names need no escapes.
                    self.out.push(b'"');
                    self.out.extend_from_slice(name.as_bytes());
                    self.out.extend_from_slice(b"\":");
                    self.value(self.types.get(of), value);
                }
                None => {
                    self.name(name);
                    self.plain(value);
                }
            }
        }
        self.out.push(b'}');
        self.order.truncate(start);
    }

    fn entries(&mut self, of: TypeId, entries: &'a Map<String, Value>) {
        let of = self.types.get(of);
        self.out.push(b'{');
        for (place, (name, value)) in entries.iter().enumerate() {
            self.separate(place);
            self.name(name);
            self.value(of, value);
        }
        self.out.push(b'}');
    }

    fn items(&mut self, of: TypeId, items: &'a [Value]) {
        let of = self.types.get(of);
        self.out.push(b'[');
        for (place, item) in items.iter().enumerate() {
            self.separate(place);
            self.value(of, item);
        }
        self.out.push(b']');
    }
}
