//! Reading of values that are parsed already, as the result of a strategic merge patch is: the same values fit as those
//! that are read from text (`Types::decode`), but the errors are others.

use serde_json::Value;

use super::{Shape, Type, TypeId, Types};

impl Types {
    /// Returns why a value can't be read, in the words of Go's `DefaultUnstructuredConverter`. `None` if it can be
    /// read, or if the types that read themselves, such as times and quantities, have an error of their own.
    pub fn unrestorable(&self, ty: TypeId, value: &Value) -> Option<String> {
        let ty = self.get(ty);
        let from = kind_of(value)?;
        match (ty.shape(), value) {
            (Shape::Struct(all), Value::Object(fields)) => {
                all.fields.iter().find_map(|field| self.unrestorable(field.ty, fields.get(field.name)?))
            }
            (Shape::Struct(_), _) => Some(format!("cannot restore struct from: {from}")),
            (Shape::List(of), Value::Array(items)) => items.iter().find_map(|item| self.unrestorable(*of, item)),
            (Shape::Bytes, Value::String(_)) => None,
            (Shape::List(_) | Shape::Bytes, _) => Some(format!("cannot restore slice from {from}")),
            (Shape::Map(of), Value::Object(entries)) => {
                entries.values().find_map(|entry| self.unrestorable(*of, entry))
            }
            (Shape::Map(_), _) => Some(format!("cannot restore map from {from}")),
            (Shape::String, Value::String(_))
            | (Shape::Bool, Value::Bool(_))
            | (Shape::Int32 | Shape::Int64, Value::Number(_))
            | (Shape::Float64, Value::Number(_)) => self.truncated(ty, value),
            (Shape::String | Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Float64, _) => {
                Some(self.unconvertible(ty, from))
            }
            _ => None,
        }
    }

    /// Returns the error of a number that isn't whole.
    fn truncated(&self, ty: &Type, value: &Value) -> Option<String> {
        let is_whole = !value.is_f64() || value.as_f64().is_some_and(|number| number.fract() == 0.0);
        let wants_whole = matches!(ty.shape(), Shape::Int32 | Shape::Int64);
        (wants_whole && !is_whole).then(|| format!("cannot convert float64 to {}", self.go_name(ty)))
    }

    /// Returns the error of a value of another simple type, such as a number in place of a text.
    fn unconvertible(&self, ty: &Type, from: &str) -> String {
        if matches!(ty.shape(), Shape::String) && from == "int64" {
            return format!("cannot convert int64 to {}", self.go_name(ty));
        }
        format!("unrecognized type: {}", simple(ty.shape()))
    }

    /// Returns the name of a simple type in Go, such as `v1.Protocol`.
    fn go_name(&self, ty: &Type) -> String {
        let Some(name) = ty.name() else { return simple(ty.shape()).to_owned() };
        let mut parts = name.rsplit('.');
        let (local, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        format!("{package}.{local}")
    }
}

/// Returns the name of a simple type in Go.
fn simple(shape: &Shape) -> &'static str {
    match shape {
        Shape::Bool => "bool",
        Shape::Int32 => "int32",
        Shape::Int64 => "int64",
        Shape::Float64 => "float64",
        _ => "string",
    }
}

/// Returns the kind of a value in Go; `None` for null, which fits every type.
fn kind_of(value: &Value) -> Option<&'static str> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    })
}
