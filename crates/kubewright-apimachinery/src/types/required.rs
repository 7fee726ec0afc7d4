//! Required fields.

use serde_json::Value;

use super::{Shape, Type, TypeId, Types};
use crate::field_path::FieldPath;

impl Types {
    /// Returns the paths of required fields that are absent or empty, except those of the `status` and those of a
    /// completed part of the object in which nothing is set. Numbers, booleans and structs are never missing, since Go
    /// doesn't distinguish an absent one from its zero value.
    pub fn missing(&self, ty: TypeId, object: &Value) -> Vec<String> {
        let mut missing = Vec::new();
        if let (Shape::Struct(all), Value::Object(fields)) = (&self.get(ty).shape, object) {
            for field in all.fields.iter().filter(|field| field.name != "status") {
                if let Some(value) = fields.get(field.name).filter(|value| !is_blank(value)) {
                    self.visit(self.get(field.ty), value, &FieldPath::Root.field(field.name), &mut missing);
                }
            }
        }
        missing
    }

    fn visit(&self, ty: &Type, value: &Value, path: &FieldPath<'_>, missing: &mut Vec<String>) {
        match (&ty.shape, value) {
            (Shape::Struct(all), Value::Object(fields)) => {
                for field in &all.fields {
                    let (of, value) = (self.get(field.ty), fields.get(field.name));
                    let path = path.field(field.name);
                    match value {
                        None | Some(Value::Null) => {
                            let is_visible = field.pointer
                                || matches!(of.shape, Shape::String | Shape::List(_) | Shape::Map(_) | Shape::Bytes);
                            if field.required && is_visible {
                                missing.push(path.to_string());
                            }
                        }
                        Some(Value::String(text)) if field.required && text.is_empty() && !field.pointer => {
                            missing.push(path.to_string());
                        }
                        Some(value) => self.visit(of, value, &path, missing),
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
