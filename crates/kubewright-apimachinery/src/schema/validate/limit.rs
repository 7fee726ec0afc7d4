//! Limits, patterns, formats and enumerations.

use serde_json::Value;

use super::{format, invalid, number};
use crate::{
    field_path::FieldPath,
    pattern,
    schema::{Kind, Limits, Schema},
    status::Cause,
};

pub(super) fn check(schema: &Schema, value: &Value, path: &FieldPath<'_>, causes: &mut Vec<Cause>) {
    let limits = &schema.limits;
    let size = |size: usize| Value::from(size);
    let mut fail = |shown: &Value, why: String| {
        let why = format!("{path} in body {why}");
        causes.push(Cause::new("FieldValueInvalid", path.to_string(), invalid(shown, &why)));
    };
    match value {
        Value::String(text) => check_text(schema, text, path, causes),
        Value::Number(number) => number::check(schema, number, path, causes),
        Value::Array(items) => {
            if let Some(min) = limits.min_items.filter(|min| (items.len() as u64) < *min) {
                fail(&size(items.len()), format!("should have at least {min} items"));
            }
            if let Some(max) = limits.max_items.filter(|max| (items.len() as u64) > *max) {
                causes.push(too_many(path, items.len(), max));
            }
        }
        Value::Object(fields) => {
            if let Some(min) = limits.min_properties.filter(|min| (fields.len() as u64) < *min) {
                fail(&size(fields.len()), format!("should have at least {min} properties"));
            }
            if let Some(max) = limits.max_properties.filter(|max| (fields.len() as u64) > *max) {
                causes.push(too_many(path, fields.len(), max));
            }
        }
        _ => {}
    }
    check_enum(schema, value, path, causes);
}

/// Checks that a value is one of those that the schema lists.
pub(super) fn check_enum(schema: &Schema, value: &Value, path: &FieldPath<'_>, causes: &mut Vec<Cause>) {
    if let Some(values) = &schema.limits.enum_values
        && !values.iter().any(|allowed| is_same(allowed, value))
    {
        let names: Vec<String> =
            values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        causes.push(Cause::not_supported(path.to_string(), value, &names));
    }
}

fn too_many(path: &FieldPath<'_>, found: usize, max: u64) -> Cause {
    let items = if max == 1 { "item" } else { "items" };
    let message = format!("Too many: {found}: must have at most {max} {items}");
    Cause::new("FieldValueTooMany", path.to_string(), message)
}

/// Compares two values. `1` and `1.0` are the same number.
fn is_same(allowed: &Value, value: &Value) -> bool {
    match (allowed, value) {
        (Value::Number(allowed), Value::Number(value)) => allowed == value || allowed.as_f64() == value.as_f64(),
        _ => allowed == value,
    }
}

fn check_text(schema: &Schema, text: &str, path: &FieldPath<'_>, causes: &mut Vec<Cause>) {
    let Limits { min_length, max_length, pattern, .. } = &schema.limits;
    let fail = |causes: &mut Vec<Cause>, reason: &str, why: String| {
        let why = format!("{path} in body {why}");
        causes.push(Cause::new(reason, path.to_string(), invalid(&text.into(), &why)));
    };
    // Of the length and the pattern, only the first violation is reported. Lengths are in characters. A string never
    // has more characters than bytes.
    let length = || text.chars().count() as u64;
    if let Some(max) = max_length.filter(|max| text.len() as u64 > *max && length() > *max) {
        let bytes = if max == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {max} {bytes}");
        causes.push(Cause::new("FieldValueTooLong", path.to_string(), message));
    } else if let Some(min) = min_length.filter(|min| length() < *min) {
        fail(causes, "FieldValueInvalid", format!("should be at least {min} chars long"));
    } else if let Some(pattern) = pattern {
        match pattern::is_match(pattern, text) {
            Ok(true) => {}
            Ok(false) => fail(causes, "FieldValueInvalid", format!("should match '{pattern}'")),
            Err(why) => {
                fail(causes, "FieldValueInvalid", format!("should match '{pattern}, but pattern is invalid: {why}'"));
            }
        }
    }
    if let Some(format) = &schema.format
        && matches!(schema.kind, Some(Kind::String) | None)
        && !format::is_format(format, text)
    {
        fail(causes, "FieldValueTypeInvalid", format!("must be of type {format}: {}", Value::from(text)));
    }
}
