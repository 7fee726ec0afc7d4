//! The limit of nesting.
//!
//! Cloning, comparing, printing and dropping a [`Value`] recurse, so the decoder and the patches bound the depth of every
//! value that comes in.

use serde_json::Value;

/// Levels of lists and objects that a decoded or patched document may have.
///
/// Kubernetes allows 10,000. This is lower on purpose: with what a server puts around an object (a list, a watch event)
/// and inside it (the managed fields repeat its nesting), it stays below the 128 levels that `serde_json`, and with it
/// every Rust client, reads.
pub const LIMIT: usize = 110;

/// Levels of lists and objects in `value`; a scalar has none. Doesn't recurse.
pub fn of(value: &Value) -> usize {
    measure(value).0
}

/// The levels, as [`of`] counts them, and how many values were visited for it.
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
