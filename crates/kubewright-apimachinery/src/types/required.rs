//! Required fields.

use serde_json::Value;

use super::{Field, Shape, Type, TypeId, Types};
use crate::field_path::FieldPath;

impl Types {
    /// Returns the paths of required fields that are absent or empty, except those of the `status` and those of a
    /// completed part of the object in which nothing is set. Numbers, booleans and structs are never missing, since Go
    /// doesn't distinguish an absent one from its zero value.
    pub fn missing(&self, ty: TypeId, object: &Value) -> Vec<String> {
        let mut missing = Vec::new();
        if let (Shape::Struct(all), Value::Object(fields)) = (&self.get(ty).shape, object) {
            let content = fields.iter().filter(|(name, value)| *name != "status" && !is_blank(value));
            let mut content = content.filter_map(|(name, value)| Some((self.get(all.field(name)?.ty), value)));
            // Nearly all objects are complete, which is found out much faster than what an object lacks.
            if content.all(|(ty, value)| !self.lacks(ty, value)) {
                return missing;
            }
            for field in all.fields.iter().filter(|field| field.name != "status") {
                if let Some(value) = fields.get(field.name).filter(|value| !is_blank(value)) {
                    self.visit(self.get(field.ty), value, &FieldPath::Root.field(field.name), &mut missing);
                }
            }
        }
        missing
    }

    /// Returns whether a required field is absent or empty.
    fn lacks(&self, ty: &Type, value: &Value) -> bool {
        if !ty.requires {
            return false;
        }
        match (&ty.shape, value) {
            (Shape::Struct(all), Value::Object(fields)) => {
                all.required().any(|field| self.is_missing(field, fields.get(field.name)))
                    || fields.iter().any(|(name, value)| {
                        matches!(value, Value::Object(_) | Value::Array(_))
                            && all.field(name).is_some_and(|field| self.lacks(self.get(field.ty), value))
                    })
            }
            (Shape::List(of), Value::Array(items)) => {
                let of = self.get(*of);
                items.iter().any(|item| self.lacks(of, item))
            }
            (Shape::Map(of), Value::Object(entries)) => {
                let of = self.get(*of);
                entries.values().any(|entry| self.lacks(of, entry))
            }
            _ => false,
        }
    }

    /// Returns whether a field is required, but absent or empty.
    fn is_missing(&self, field: &Field, value: Option<&Value>) -> bool {
        field.required
            && match value {
                None | Some(Value::Null) => {
                    let shape = &self.get(field.ty).shape;
                    field.pointer || matches!(shape, Shape::String | Shape::List(_) | Shape::Map(_) | Shape::Bytes)
                }
                Some(Value::String(text)) => text.is_empty() && !field.pointer,
                Some(_) => false,
            }
    }

    fn visit(&self, ty: &Type, value: &Value, path: &FieldPath<'_>, missing: &mut Vec<String>) {
        match (&ty.shape, value) {
            (Shape::Struct(all), Value::Object(fields)) => {
                for field in &all.fields {
                    let (value, path) = (fields.get(field.name), path.field(field.name));
                    if self.is_missing(field, value) {
                        missing.push(path.to_string());
                    } else if let Some(value) = value {
                        self.visit(self.get(field.ty), value, &path, missing);
                    }
                }
            }
            (Shape::List(of), Value::Array(items)) => {
                let of = self.get(*of);
                for (index, item) in items.iter().enumerate() {
                    self.visit(of, item, &path.item(index), missing);
                }
            }
            (Shape::Map(of), Value::Object(entries)) => {
                let of = self.get(*of);
                for (name, entry) in entries {
                    self.visit(of, entry, &path.key(name), missing);
                }
            }
            _ => {}
        }
    }
}

/// Returns whether a value is what Go writes for an absent object with required fields.
fn is_blank(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| !fields.is_empty() && fields.values().all(Value::is_null))
}
