//! The limit of the nesting depth of documents.
//!
//! Cloning, comparing, printing and dropping a [`Value`] recurse, so the decoder and the patches limit the depth of
//! every incoming value.

use serde_json::Value;

/// The maximum number of levels of lists and objects in a decoded or patched document.
///
/// Kubernetes allows 10,000. This limit is deliberately lower: a server adds levels around an object (a list, a watch
/// event) and inside it (the managed fields repeat its nesting). Even with them, a response stays below the 128 levels
/// that `serde_json`, and with it every Rust client, accepts.
pub const LIMIT: usize = 110;

/// Returns the number of levels of lists and objects in `value`, 0 for a scalar. Doesn't recurse.
pub fn of(value: &Value) -> usize {
    measure(value).0
}

/// Returns the number of levels, as [`of`] does, and the number of visited values.
pub(crate) fn measure(value: &Value) -> (usize, usize) {
    let (mut deepest, mut visited) = (0, 0);
    let mut stack = vec![(value, 0)];
    while let Some((value, depth)) = stack.pop() {
        visited += 1;
        match value {
            Value::Array(items) => stack.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => stack.extend(fields.values().map(|field| (field, depth + 1))),
            _ => {
                deepest = deepest.max(depth);
                continue;
            }
        }
        deepest = deepest.max(depth + 1);
    }
    (deepest, visited)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn lists_and_objects_are_levels() {
        for (value, expect) in [(json!(1), 0), (json!([]), 1), (json!({"a": [1, {}]}), 3), (json!([[[1]], []]), 3)] {
            assert_eq!(super::of(&value), expect, "{value}");
        }
    }
}
