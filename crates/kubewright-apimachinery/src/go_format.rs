//! The notation of values in Go's `%v`, which some messages of kube-apiserver contain.

use serde_json::Value;

/// Returns a value as Go prints it: `map[a:1 b:[x y]]`.
///
/// ```
/// use kubewright_apimachinery::go_format::plain;
///
/// assert_eq!(plain(&serde_json::json!({"b": ["x", null], "a": 1.5})), "map[a:1.5 b:[x <nil>]]");
/// ```
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields: Vec<_> = fields.into_iter().map(|(name, value)| format!("{name}:{}", plain(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        scalar => scalar.to_string(),
    }
}
