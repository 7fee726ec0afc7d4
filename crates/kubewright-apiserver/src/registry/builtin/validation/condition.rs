//! Conditions in the form of `meta/v1`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    errors::Errors,
    meta::validate_label_name,
    path::Path,
    value::{field, int, string},
};

const REASON_LIMIT: usize = 1024;
const MESSAGE_LIMIT: usize = 32 * 1024;

/// Checks the conditions of a status (`ValidateConditions` of `meta/v1`), which kinds with conditions of their own
/// don't have.
pub(in crate::registry::builtin) fn validate_conditions(conditions: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let kind = string(condition, "type");
        if !seen.insert(kind) {
            errors.duplicate(&path.child("type"), kind);
        }
        validate_condition(condition, &path, errors);
    }
}

fn validate_condition(condition: &Value, path: &Path<'_>, errors: &mut Errors) {
    const STATES: &[&str] = &["False", "True", "Unknown"];
    validate_label_name(string(condition, "type"), &path.child("type"), errors);
    let state = string(condition, "status");
    if !STATES.contains(&state) {
        errors.not_supported(&path.child("status"), state, STATES);
    }
    let generation = int(condition, "observedGeneration");
    if generation < 0 {
        let why = "must be greater than or equal to zero";
        errors.invalid(&path.child("observedGeneration"), generation, why);
    }
    if field(condition, "lastTransitionTime").is_none() {
        errors.required(&path.child("lastTransitionTime"), "");
    }
    let (reason, at) = (string(condition, "reason"), path.child("reason"));
    if reason.is_empty() {
        errors.required(&at, "");
    } else {
        if !is_reason(reason) {
            let why = "a condition reason must start with alphabetic character, optionally followed by a string of \
                       alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. \
                       'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used \
                       for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
            errors.invalid(&at, reason, why);
        }
        if reason.len() > REASON_LIMIT {
            errors.too_long(&at, REASON_LIMIT);
        }
    }
    if string(condition, "message").len() > MESSAGE_LIMIT {
        errors.too_long(&path.child("message"), MESSAGE_LIMIT);
    }
}

fn is_reason(text: &str) -> bool {
    let in_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|byte| in_word(*byte))
        && bytes.iter().all(|byte| in_word(*byte) || matches!(byte, b',' | b':'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_are_checked() {
        let check = |conditions: Value, expected: &[&str]| {
            let conditions = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
            let causes = Errors::collect(|errors| validate_conditions(conditions, &Path::new("c"), errors));
            let causes = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message));
            let causes: Vec<_> = causes.map(|cause| cause.chars().take(70).collect::<String>()).collect();
            assert_eq!(causes, expected);
        };
        let time = "2024-01-01T00:00:00Z";
        let good = json!({"type": "a.b/C", "status": "True", "reason": "A,b:C_", "lastTransitionTime": time});
        check(json!([good]), &[]);
        check(json!([good, good]), &["c[1].type: Duplicate value: \"a.b/C\""]);
        check(
            json!([{"type": "A", "status": "X"}]),
            &[
                "c[0].status: Unsupported value: \"X\": supported values: \"False\", \"True\"",
                "c[0].lastTransitionTime: Required value",
                "c[0].reason: Required value",
            ],
        );
        let long = "x".repeat(MESSAGE_LIMIT + 1);
        check(
            json!([{
                "type": "A", "status": "True", "reason": "a b", "lastTransitionTime": time, "observedGeneration": -1,
                "message": long,
            }]),
            &[
                "c[0].observedGeneration: Invalid value: -1: must be greater than or eq",
                "c[0].reason: Invalid value: \"a b\": a condition reason must start with ",
                "c[0].message: Too long: may not be more than 32768 bytes",
            ],
        );
    }

    #[test]
    fn reasons_are_words() {
        for (text, expected) in [("a", true), ("A_", true), ("", false), ("1a", false), ("a:", false), ("a-b", false)] {
            assert_eq!(is_reason(text), expected, "{text}");
        }
    }
}
