//! The kind and the version in bodies and patched objects, which Kubernetes reads before the rest.

use kubewright_apimachinery::{name, types::json_type};
use serde_json::Value;

/// Returns why the kind or the version of an object can't be read. A custom object has to have a kind.
pub(super) fn unreadable(object: &Value) -> Option<String> {
    for field in ["apiVersion", "kind"] {
        if let Some(value) = object.get(field).filter(|value| !value.is_string() && !value.is_null()) {
            return Some(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{field} \
                 of type string",
                json_type(value)
            ));
        }
    }
    let version = object["apiVersion"].as_str().unwrap_or_default();
    (version.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {version}"))
}

/// Returns the version of an object as it is usually written, or an empty text.
pub(super) fn version(object: &Value) -> &str {
    name::api_version(object["apiVersion"].as_str().unwrap_or_default())
}

/// Returns why the kind or the version in a strategic merge patch can't be converted to text. Null is ignored.
pub(super) fn unconvertible(patch: &Value) -> Option<&'static str> {
    let mut sent = ["kind", "apiVersion"].iter().filter_map(|field| patch.get(*field));
    let wrong = sent.find(|value| !value.is_string() && !value.is_null())?;
    let is_integer = wrong.is_i64() || wrong.is_u64();
    Some(if is_integer { "cannot convert int64 to string" } else { "unrecognized type: string" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_and_versions_are_text() {
        for (object, expect) in [
            (json!({"kind": 5}), "cannot unmarshal number into Go struct field .kind of type string"),
            (json!({"kind": true, "apiVersion": []}), "cannot unmarshal array into Go struct field .apiVersion of"),
            (json!({"apiVersion": "a/b/c"}), "unexpected GroupVersion string: a/b/c"),
        ] {
            let why = unreadable(&object).unwrap_or_default();
            assert!(why.contains(expect), "{object}: {why}");
        }
        assert_eq!(unreadable(&json!({"kind": null, "apiVersion": "apps/v1"})), None);
    }

    #[test]
    fn a_strategic_patch_converts_neither_numbers_nor_objects() {
        assert_eq!(unconvertible(&json!({"kind": 5})), Some("cannot convert int64 to string"));
        assert_eq!(unconvertible(&json!({"apiVersion": 5.5})), Some("unrecognized type: string"));
        assert_eq!(unconvertible(&json!({"kind": null, "apiVersion": "v1"})), None);
    }
}
