//! Validation shared by several kinds, in Kubernetes' wording.

use kubewright_apimachinery::status::Cause;
use serde_json::Value;

/// The message for changes of immutable fields.
pub(super) const IMMUTABLE: &str = "field is immutable";

/// Checks that a string field, if present, has one of these values.
pub(super) fn one_of(object: &Value, path: &str, field: &str, allowed: &[&str], causes: &mut Vec<Cause>) {
    if let Some(value) = object.get(field)
        && value.as_str().is_some_and(|value| !allowed.contains(&value))
    {
        causes.push(Cause::not_supported(format!("{path}.{field}"), value, allowed));
    }
}

/// Checks a string field by a rule, unless it is empty.
pub(super) fn each_sentence(
    object: &Value,
    path: &str,
    field: &str,
    rule: fn(&str) -> Vec<String>,
    causes: &mut Vec<Cause>,
) {
    let value = object.get(field).and_then(Value::as_str).unwrap_or_default();
    if !value.is_empty() {
        let sentences = rule(value);
        causes.extend(sentences.iter().map(|why| Cause::invalid(format!("{path}.{field}"), &value.into(), why)));
    }
}

/// Checks that a number, if present, isn't less than a minimum.
pub(super) fn at_least(object: &Value, path: &str, field: &str, least: i64, causes: &mut Vec<Cause>) {
    if let Some(value) = object.get(field)
        && value.as_i64().is_some_and(|number| number < least)
    {
        let why = format!("must be greater than or equal to {least}");
        causes.push(Cause::invalid(format!("{path}.{field}"), value, &why));
    }
}

/// Checks a port number.
pub(super) fn positive_port(value: &Value, field: &str, causes: &mut Vec<Cause>) {
    if !value.as_i64().is_some_and(|port| (1..=65535).contains(&port)) {
        causes.push(Cause::invalid(field, value, "must be between 1 and 65535, inclusive"));
    }
}

/// Checks that a part of the spec doesn't change.
pub(super) fn immutable(old: &Value, new: &Value, pointer: &str, causes: &mut Vec<Cause>) {
    let (before, after) = (old.pointer(pointer), new.pointer(pointer));
    if before != after {
        let field = pointer.trim_start_matches('/').replace('/', ".");
        causes.push(Cause::invalid(field, after.unwrap_or(&Value::Null), IMMUTABLE));
    }
}
