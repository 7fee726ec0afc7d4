//! Types as values, such as `int` and `type(1)`.

use std::sync::Arc;

use kube_cel::cel::{
    IdedExpr, Value,
    common::ast::Expr,
    objects::{Opaque, ValueType},
};

/// The names of types, which evaluate to themselves. The language compares them, as in `type(self) == string`.
pub(super) const TYPES: [&str; 15] = [
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
    "optional_type",
    "net.IP",
    "net.CIDR",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
];

/// A type.
#[derive(Debug, PartialEq, Eq)]
struct TypeValue(String);

impl Opaque for TypeValue {
    fn runtime_type_name(&self) -> &'static str {
        "type"
    }
}

/// Returns the type of this name.
pub(super) fn named(name: &str) -> Value {
    Value::Opaque(Arc::new(TypeValue(name.to_owned())))
}

/// Returns the qualified name of a type that an expression selects, such as `google.protobuf.Duration`.
pub(super) fn qualified(tree: &IdedExpr) -> Option<String> {
    fn name(tree: &IdedExpr) -> Option<String> {
        match &tree.expr {
            Expr::Ident(name) => Some(name.clone()),
            Expr::Select(select) if !select.test => Some(format!("{}.{}", name(&select.operand)?, select.field)),
            _ => None,
        }
    }
    let last = TYPES.iter().filter_map(|name| name.rsplit_once('.'));
    let Expr::Select(select) = &tree.expr else { return None };
    last.into_iter()
        .any(|(_, last)| last == select.field)
        .then(|| name(tree))?
        .filter(|name| TYPES.contains(&name.as_str()))
}

/// Returns the name of a type that is a value, or `None` for other values.
pub(super) fn name_of_type(value: &Value) -> Option<&str> {
    match value {
        Value::Opaque(value) => value.downcast_ref().map(|TypeValue(name)| name.as_str()),
        _ => None,
    }
}

/// Returns the name of a value's type.
pub(super) fn name(value: &Value) -> String {
    match value {
        Value::Opaque(value) => value.runtime_type_name().to_owned(),
        Value::Timestamp(_) => "google.protobuf.Timestamp".to_owned(),
        Value::Duration(_) => "google.protobuf.Duration".to_owned(),
        value => match value.type_of() {
            ValueType::Float => "double".to_owned(),
            ValueType::Null => "null_type".to_owned(),
            other => other.to_string(),
        },
    }
}

/// Returns the name that a value's type has in cel-go.
pub(super) fn go_name(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "Bool",
        Value::Int(_) => "Int",
        Value::UInt(_) => "Uint",
        Value::Float(_) => "Double",
        Value::String(_) => "String",
        Value::Bytes(_) => "Bytes",
        Value::Duration(_) => "Duration",
        Value::Timestamp(_) => "Timestamp",
        Value::Null => "Null",
        _ => "Value",
    }
}
