//! JSON pointers (RFC 6901).
//!
//! `serde_json` allocates two strings for each step of a pointer, which adds up: each object is read by many pointers.

use serde_json::Value;

/// Returns the value at a pointer such as `/spec/containers/0/name`. Allocates only for a pointer with escapes.
pub fn get<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.contains('~') {
        return value.pointer(pointer);
    }
    let Some(steps) = pointer.strip_prefix('/') else { return Some(value).filter(|_| pointer.is_empty()) };
    steps.split('/').try_fold(value, |value, step| match value {
        Value::Object(fields) => fields.get(step),
        Value::Array(items) => items.get(index(step)?),
        _ => None,
    })
}

/// Returns the index that a step denotes: a number without a sign and leading zeros.
fn index(step: &str) -> Option<usize> {
    let is_plain = step.bytes().all(|byte| byte.is_ascii_digit()) && (step == "0" || !step.starts_with('0'));
    step.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pointers_lead_where_those_of_serde_json_do() {
        let value = json!({"a": {"b": [1, {"c": null}], "": 2}, "d": "x", "0": {"01": 3}, "e/f": 4});
        let pointers = [
            "", "/", "a", "/a", "/e~1f", "/e~0f", "/a/", "/a/b", "/a/b/0", "/a/b/1/c", "/a/b/2", "/a/b/00", "/a/b/+1",
            "/a/b/-", "/a/b/", "/d/0", "/0/01", "/x/y",
        ];
        for pointer in pointers {
            assert_eq!(get(&value, pointer), value.pointer(pointer), "{pointer:?}");
        }
    }
}
