//! Limits, patterns, formats and enumerations.

use serde_json::{Number, Value};

use super::{NO_FIELD, format, invalid};
use crate::{
    field_path::FieldPath,
    go_json::MAX_EXACT,
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
        Value::Number(number) => check_number(schema, number, path, causes),
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

fn check_number(schema: &Schema, number: &Number, path: &FieldPath<'_>, causes: &mut Vec<Cause>) {
    check_range(schema, number, path, causes);
    let limits = &schema.limits;
    let Some(value) = number.as_f64() else { return };
    let mut fail = |why: String| {
        let why = format!("{path} in body {why}");
        let shown = Value::Number(number.clone());
        causes.push(Cause::new("FieldValueInvalid", path.to_string(), invalid(&shown, &why)));
    };
    if let Some(factor) = limits.multiple_of.filter(|factor| *factor > 0.0) {
        let quotient = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
        // A float is a multiple only if the quotient is an integer that floats represent exactly
        // (`IsFloat64AJSONInteger` in `swag`). Decimal fractions are not exact, so a small error is allowed.
        let is_too_large = number.is_f64() && quotient.abs() > MAX_EXACT;
        if is_too_large || (quotient - quotient.round()).abs() > f64::EPSILON * quotient.abs().max(1.0) * 4.0 {
            fail(format!("should be a multiple of {factor}"));
        }
    }
    if let Some(max) = limits.maximum {
        if limits.exclusive_maximum && value >= max {
            fail(format!("should be less than {max}"));
        } else if value > max {
            fail(format!("should be less than or equal to {max}"));
        }
    }
    if let Some(min) = limits.minimum {
        if limits.exclusive_minimum && value <= min {
            fail(format!("should be greater than {min}"));
        } else if value < min {
            fail(format!("should be greater than or equal to {min}"));
        }
    }
}

/// Checks that a number is within the range of its type and format.
fn check_range(schema: &Schema, number: &Number, path: &FieldPath<'_>, causes: &mut Vec<Cause>) {
    let format = schema.format.as_deref();
    let fits = match (schema.kind, format) {
        (Some(Kind::Integer), Some("int32")) => in_range(number, i32::MIN.into(), i32::MAX.into()),
        // Kubernetes ignores formats that it doesn't know, such as `uint32`.
        (Some(Kind::Integer), _) => in_range(number, i64::MIN.into(), i64::MAX.into()),
        (Some(Kind::Number), Some("float" | "float32")) => {
            number.as_f64().is_some_and(|number| number.abs() <= f32::MAX.into())
        }
        _ => true,
    };
    if !fits {
        let kind = schema.kind.map_or("", Kind::as_str);
        let format = format.map_or_else(|| "(default format)".into(), |format| format!("with format {format}"));
        let why = format!("Checked value must be of type {kind} {format} in {path}");
        causes.push(Cause::invalid(NO_FIELD, &"".into(), &why));
    }
}

/// Returns whether a number is an integer in a range.
fn in_range(number: &Number, min: i128, max: i128) -> bool {
    let exact = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    match exact {
        Some(number) => (min..=max).contains(&number),
        None => number
            .as_f64()
            .is_some_and(|number| number.fract() == 0.0 && number >= min as f64 && number < (max + 1) as f64),
    }
}
