//! Completion: the fields that Go always writes are added.

use serde_json::{Map, Value};

use super::{Field, Omit, Shape, Type, TypeId, Types, decode::is_empty_collection, parse::default};

impl Types {
    /// Adds the declared defaults, and the fields that Go writes even if they have the zero value: structs that aren't
    /// pointers, and fields without `omitempty`. Other values, and values of wrong types, are unchanged.
    pub fn complete(&self, ty: TypeId, value: &mut Value) {
        self.complete_as(self.get(ty), false, value);
    }

    /// Like [`Self::complete`], for an object that is about to be stored: an empty list or map that Go always writes
    /// becomes null, since it is read as such from the store.
    pub fn complete_stored(&self, ty: TypeId, value: &mut Value) {
        self.complete_as(self.get(ty), true, value);
    }

    fn complete_as(&self, ty: &Type, stored: bool, value: &mut Value) {
        if !ty.grows {
            return;
        }
        match (&ty.shape, value) {
            (Shape::Struct(all), Value::Object(fields)) => {
                for field in all.always() {
                    match fields.get_mut(field.name) {
                        None => drop(fields.insert(field.name.to_owned(), self.absent(field))),
                        Some(value) if stored && self.is_stored_as_null(field, value) => *value = Value::Null,
                        Some(_) => {}
                    }
                }
                for (name, value) in fields.iter_mut().filter(|(_, value)| value.is_object() || value.is_array()) {
                    if let Some(field) = all.field(name) {
                        self.complete_as(self.get(field.ty), stored, value);
                    }
                }
            }
            (Shape::List(of) | Shape::SchemaOrArray(of), Value::Array(items)) => {
                let of = self.get(*of);
                items.iter_mut().for_each(|item| self.complete_as(of, stored, item));
            }
            (Shape::Map(of), Value::Object(entries)) => {
                let of = self.get(*of);
                entries.values_mut().for_each(|entry| self.complete_as(of, stored, entry));
            }
            (
                Shape::SchemaOrArray(schema) | Shape::SchemaOrBool(schema) | Shape::SchemaOrStrings(schema),
                schemas @ Value::Object(_),
            ) => self.complete_as(self.get(*schema), stored, schemas),
            _ => {}
        }
    }

    /// Returns whether the value of a field is an empty list or map that is null when it is read from the store.
    fn is_stored_as_null(&self, field: &Field, value: &Value) -> bool {
        !field.pointer
            && is_empty_collection(self.get(field.ty), value)
            && !field.marks().is_some_and(|marks| marks.empty)
    }

    /// Returns the value that Go writes for a field that was not set.
    fn absent(&self, field: &Field) -> Value {
        match default(field) {
            Some(default) => default.clone(),
            None if field.pointer => Value::Null,
            None => self.zero(self.get(field.ty)),
        }
    }

    /// Returns the object in which no field is set, without the declared defaults.
    pub fn blank(&self, ty: TypeId) -> Value {
        self.zero(self.get(ty))
    }

    /// Returns the zero value. That of a struct has only the fields that Go always writes.
    pub(super) fn zero(&self, ty: &Type) -> Value {
        match &ty.shape {
            Shape::String => Value::String(String::new()),
            Shape::Bool | Shape::SchemaOrBool(_) => Value::Bool(false),
            Shape::Int32 | Shape::Int64 | Shape::Float64 | Shape::IntOrString => Value::from(0),
            Shape::Quantity => Value::String("0".to_owned()),
            Shape::Bytes
            | Shape::Time
            | Shape::MicroTime
            | Shape::Any
            | Shape::SchemaOrArray(_)
            | Shape::SchemaOrStrings(_)
            | Shape::List(_)
            | Shape::Map(_) => Value::Null,
            // Structs contain themselves only through pointers, lists and maps.
            Shape::Struct(all) => {
                let is_written = |field: &&Field| field.omit == Omit::Never || default(field).is_none();
                let zero = |field: &Field| if field.pointer { Value::Null } else { self.zero(self.get(field.ty)) };
                let fields = all.always().filter(is_written).map(|field| (field.name.to_owned(), zero(field)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}
