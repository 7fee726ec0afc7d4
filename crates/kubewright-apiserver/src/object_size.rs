//! The size limit of stored objects, which etcd sets for a real API server.

use kubewright_apimachinery::status::Status;
use serde_json::Value;

use crate::meta;

/// The maximum size of an encoded object in bytes: etcd's default for `--max-request-bytes`, 1.5 MiB.
const MAX_OBJECT: usize = 3 << 19;

/// Returns the object as it can be stored. As in Kubernetes, one that is too large loses its managed fields first,
/// unless it is `applied`: an apply is about them.
///
/// # Errors
/// 500 with etcd's own message if it is still too large.
pub(crate) fn limit(mut object: Value, applied: bool) -> Result<Value, Status> {
    if encoded_size(&object) <= MAX_OBJECT {
        return Ok(object);
    }
    if !applied {
        meta::set(&mut object, "managedFields", None);
        if encoded_size(&object) <= MAX_OBJECT {
            return Ok(object);
        }
    }
    Err(Status::new(500, "", "etcdserver: request is too large"))
}

/// Returns the size of a value as JSON in bytes, without escapes in strings. A real API server stores built-in kinds as
/// protobuf, which has no escapes.
fn encoded_size(value: &Value) -> usize {
    match value {
        Value::Null => 4,
        Value::Bool(_) => 5,
        Value::Number(number) => number.to_string().len(),
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| 1 + encoded_size(item)).sum::<usize>(),
        Value::Object(fields) => {
            2 + fields.iter().map(|(key, value)| key.len() + 4 + encoded_size(value)).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_size_is_about_that_of_the_json_text() {
        for value in [json!(null), json!([1, 2.5, true]), json!({"a": {"b": ["c", "d"]}, "e": -7})] {
            let (size, text) = (encoded_size(&value), value.to_string().len());
            assert!(size >= text && size <= text + 8, "{value}: {size}, {text}");
        }
        assert_eq!(encoded_size(&json!("\n\n")), 4);
    }
}
