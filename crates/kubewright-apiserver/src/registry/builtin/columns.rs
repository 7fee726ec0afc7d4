//! Columns shared by several kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    fields::{entries, has, int, list, text},
    registry::{Cell, Column},
    table::age_of,
};

/// The text of cells without a value.
pub(super) const NONE: &str = "<none>";

/// Returns a column of text.
pub(super) fn string(name: &str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    column(name, "string", cell)
}

/// Returns a column of whole numbers.
pub(super) fn integer(name: &str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    column(name, "integer", cell)
}

/// Returns a column of truth values.
pub(super) fn truth(name: &str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    column(name, "boolean", cell)
}

/// Returns the column `Name`, for kinds that show more than the name, or have other columns of the format `name`.
pub(super) fn name(cell: fn(&Value, Timestamp) -> Value) -> Column {
    string("Name", cell).of_format("name")
}

/// Returns the name of an object, with a mark if an annotation of it is `true`.
pub(super) fn marked_name(object: &Value, annotations: &[&str]) -> Value {
    let is_default = annotations.iter().any(|annotation| object["metadata"]["annotations"][*annotation] == "true");
    format!("{}{}", text(object, "/metadata/name"), if is_default { " (default)" } else { "" }).into()
}

fn column(name: &str, kind: &str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column {
        name: name.into(),
        kind: kind.into(),
        format: String::new(),
        description: String::new(),
        priority: 0,
        cell: Cell::Computed(cell),
    }
}

/// Returns the column `Age`.
pub(super) fn age() -> Column {
    string("Age", |object, now| age_of(object.pointer("/metadata/creationTimestamp"), now).into())
}

/// The name of the column that kinds without specific columns have.
pub(crate) const CREATED_AT: &str = "Created At";

/// Returns the column `Created At`, for kinds without specific columns.
pub(super) fn created_at() -> Column {
    column(CREATED_AT, "date", |object, _| text(object, "/metadata/creationTimestamp").into())
}

/// Returns the columns `Containers`, `Images` and `Selector` of kinds with a pod template, shown only with `-o wide`.
pub(super) fn of_template() -> Vec<Column> {
    vec![
        string("Containers", |object, _| container_fields(object, "/spec/template/spec/containers", "name")).wide(),
        string("Images", |object, _| container_fields(object, "/spec/template/spec/containers", "image")).wide(),
        string("Selector", |object, _| selector(object.pointer("/spec/selector")).into()).wide(),
    ]
}

/// Returns a field of all containers, joined by commas.
pub(super) fn container_fields(object: &Value, containers: &str, field: &str) -> Value {
    let names: Vec<_> = list(object, containers).iter().filter_map(|container| container[field].as_str()).collect();
    names.join(",").into()
}

/// Returns a cell such as `3/5`.
pub(super) fn ratio(object: &Value, part: &str, whole: &str) -> Value {
    format!("{}/{}", int(object, part), int(object, whole)).into()
}

/// Formats a `LabelSelector` in the syntax that kubectl accepts.
pub(super) fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return NONE.into() };
    let mut parts: Vec<_> = entries(selector, "/matchLabels")
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in list(selector, "/matchExpressions") {
        let values: Vec<_> = list(expression, "/values").iter().filter_map(Value::as_str).collect();
        let (key, values) = (text(expression, "/key"), values.join(","));
        parts.push(match text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    or_none(&parts.join(","))
}

/// Formats a map of labels as `key=value`, joined by commas.
pub(super) fn labels(object: &Value, pointer: &str) -> Value {
    let parts: Vec<_> =
        entries(object, pointer).map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    or_none(&parts.join(",")).into()
}

/// Returns the text, or `<none>` if it is empty.
pub(super) fn or_none(text: &str) -> String {
    if text.is_empty() { NONE.into() } else { text.into() }
}

/// Returns the value at a pointer, or `none` if it is absent.
pub(super) fn value_or(object: &Value, pointer: &str, none: &str) -> Value {
    if has(object, pointer) { object.pointer(pointer).cloned().unwrap_or_default() } else { json!(none) }
}

/// Returns the total number of map entries or list elements at several pointers.
pub(super) fn count(object: &Value, pointers: &[&str]) -> Value {
    let count = |pointer: &&str| match object.pointer(pointer) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(list)) => list.len(),
        _ => 0,
    };
    pointers.iter().map(count).sum::<usize>().into()
}

/// Returns `True`, `False`, or `none` if the value is absent.
pub(super) fn boolean(object: &Value, pointer: &str, none: &str) -> Value {
    match object.pointer(pointer) {
        Some(Value::Bool(true)) => "True".into(),
        Some(Value::Bool(false)) => "False".into(),
        _ => none.into(),
    }
}
