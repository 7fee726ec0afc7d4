//! Embedded resources.

use serde_json::{Map, Value};

use crate::{field_path::FieldPath, name, status::Cause};

/// Checks that an embedded resource has an `apiVersion` and a `kind`.
pub(super) fn check(fields: &Map<String, Value>, path: &FieldPath<'_>, causes: &mut Vec<Cause>) {
    for field in ["apiVersion", "kind"] {
        let path = || path.field(field).to_string();
        match fields.get(field) {
            None => causes.push(Cause::required(path(), "")),
            Some(Value::String(text)) if text.is_empty() => {
                causes.push(Cause::invalid(path(), &"".into(), "must not be empty"));
            }
            Some(Value::String(text)) if field == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    let why = format!("unexpected GroupVersion string: {text}");
                    causes.push(Cause::invalid(path(), &text.as_str().into(), &why));
                }
            }
            Some(Value::String(text)) => {
                let wrong = name::dns1035_label(&text.to_lowercase());
                if !wrong.is_empty() {
                    let why = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
                    causes.push(Cause::invalid(path(), &text.as_str().into(), &why));
                }
            }
            Some(other) => causes.push(Cause::invalid(path(), other, "must be a string")),
        }
    }
}
