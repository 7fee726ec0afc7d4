//! Checks values against the types of a built-in kind, with the errors of decoding into Go structs.

use serde_json::{Number, Value};

use super::{Additional, Kind, Node, Schema, validate::is_format};
use crate::field_path::FieldPath;

/// Returns the error about the first value of a wrong type, in the wording of Go's decoder, such as `json: cannot
/// unmarshal string into Go struct field PodSpec.spec.replicas of type int32`.
///
/// Null is valid for every type, since decoding it leaves a field unchanged.
pub fn type_check(node: Node<'_>, value: &Value) -> Option<String> {
    let root = node.schema();
    let kind = root.group_version_kind.first().map(|(_, _, kind)| kind.as_str()).unwrap_or_default();
    // The root type is named like the kind.
    visit(&Place { schema: root, node, owner: kind }, value, &FieldPath::Root)
}

struct Place<'a> {
    /// The schema, which may be a reference.
    schema: &'a Schema,
    /// The schema with its reference resolved.
    node: Node<'a>,
    /// The type that contains this field.
    owner: &'a str,
}

impl<'a> Place<'a> {
    fn inner(&self, schema: &'a Schema) -> Self {
        let node = Node::new(schema, self.node.definitions());
        let owner = self.schema.reference.as_deref().map_or(self.owner, short_name);
        Self { schema, node, owner }
    }

    fn field(&self, name: &str) -> Option<Self> {
        let schema = self.node.schema();
        match (schema.properties.get(name), &schema.additional) {
            (Some(field), _) => Some(self.inner(field)),
            (None, Additional::Schema(values)) => Some(self.inner(values)),
            _ => None,
        }
    }
}

/// Returns `PodSpec` for `io.k8s.api.core.v1.PodSpec`.
fn short_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn visit(place: &Place<'_>, value: &Value, path: &FieldPath<'_>) -> Option<String> {
    let schema = place.node.schema();
    if value.is_null() || place.node.is_anything() {
        return None;
    }
    if is_named(place, "Quantity") {
        return check_quantity(value);
    }
    if schema.int_or_string {
        let fits = value.is_string() || matches!(value, Value::Number(number) if fits_integer(number, Some("int32")));
        return (!fits).then(|| mismatch(place, value, path));
    }
    match (schema.kind, value) {
        (Some(Kind::Object), Value::Object(fields)) => fields.iter().find_map(|(name, value)| {
            let field = place.field(name)?;
            visit(&field, value, &path.field(name))
        }),
        (Some(Kind::Array), Value::Array(items)) => {
            let item = place.inner(schema.items.as_deref()?);
            items.iter().enumerate().find_map(|(index, value)| visit(&item, value, &path.item(index)))
        }
        (Some(Kind::String), Value::String(text)) => check_text(schema.format.as_deref(), text),
        (Some(Kind::Integer), Value::Number(number)) if fits_integer(number, schema.format.as_deref()) => None,
        (Some(Kind::Number), Value::Number(_)) | (Some(Kind::Boolean), Value::Bool(_)) | (None, _) => None,
        _ => Some(mismatch(place, value, path)),
    }
}

fn is_named(place: &Place<'_>, name: &str) -> bool {
    place.schema.reference.as_deref().is_some_and(|reference| short_name(reference) == name)
}

fn fits_integer(number: &Number, format: Option<&str>) -> bool {
    match (number.as_i64(), format) {
        (Some(number), Some("int32")) => i32::try_from(number).is_ok(),
        (Some(_), _) => true,
        (None, _) => false,
    }
}

fn check_text(format: Option<&str>, text: &str) -> Option<String> {
    match format {
        Some("date-time") if !is_format("date-time", text) => {
            const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
            Some(format!("parsing time {text:?} as {LAYOUT:?}: cannot parse {text:?} as \"2006\""))
        }
        Some("byte") => first_bad_base64(text).map(|at| format!("illegal base64 data at input byte {at}")),
        _ => None,
    }
}

fn first_bad_base64(text: &str) -> Option<usize> {
    if is_format("byte", text) {
        return None;
    }
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    Some(text.bytes().position(|byte| !is_digit(&byte)).unwrap_or(text.len()))
}

fn check_quantity(value: &Value) -> Option<String> {
    let fits = match value {
        Value::String(text) => is_quantity(text),
        Value::Number(_) => true,
        _ => false,
    };
    let pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$";
    (!fits).then(|| format!("quantities must match the regular expression '{pattern}'"))
}

/// Returns whether the text is a number with a decimal or binary SI suffix, or an exponent
/// (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>).
fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let suffix = unsigned.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &unsigned[..unsigned.len() - suffix.len()];
    let number_fits = number.bytes().any(|byte| byte.is_ascii_digit()) && number.matches('.').count() <= 1;
    const SUFFIXES: [&str; 16] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let is_exponent = || {
        let exponent = suffix.strip_prefix(['e', 'E']).unwrap_or_default();
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    number_fits && (SUFFIXES.contains(&suffix) || is_exponent())
}

fn mismatch(place: &Place<'_>, value: &Value, path: &FieldPath<'_>) -> String {
    let found = match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(number) if matches!(place.node.schema().kind, Some(Kind::Integer)) => format!("number {number}"),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(_) => "array".into(),
        Value::Object(_) => "object".to_owned(),
    };
    let wanted = go_type(place.schema, place.node);
    match path {
        FieldPath::Root => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
        _ => {
            let owner = if place.owner.is_empty() { String::new() } else { format!("{}.", place.owner) };
            format!("json: cannot unmarshal {found} into Go struct field {owner}{path} of type {wanted}")
        }
    }
}

fn go_type(schema: &Schema, node: Node<'_>) -> String {
    if let Some(name) = &schema.reference {
        // `v1.PodSpec` for `io.k8s.api.core.v1.PodSpec`.
        let from = name.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
        return name[from..].to_owned();
    }
    let inner = |schema: &Schema| go_type(schema, Node::new(schema, node.definitions()));
    match (schema.kind, &schema.additional) {
        (Some(Kind::Array), _) => format!("[]{}", schema.items.as_deref().map_or("interface {}".into(), inner)),
        (Some(Kind::Object), Additional::Schema(values)) => format!("map[string]{}", inner(values)),
        (Some(Kind::Object), _) => match schema.group_version_kind.first() {
            Some((_, version, kind)) => format!("{version}.{kind}"),
            None => "map[string]interface {}".into(),
        },
        (Some(Kind::String), _) if schema.format.as_deref() == Some("byte") => "[]uint8".into(),
        (Some(Kind::String), _) => "string".into(),
        (Some(Kind::Integer), _) => if schema.format.as_deref() == Some("int32") { "int32" } else { "int64" }.into(),
        (Some(Kind::Number), _) => "float64".into(),
        (Some(Kind::Boolean), _) => "bool".into(),
        (None, _) => "interface {}".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{Definitions, parse::from_openapi};

    fn definitions() -> Definitions {
        let table = [
            (
                "io.k8s.api.core.v1.PodSpec",
                json!({"type": "object", "properties": {
                    "containers": {"type": "array", "items": {"$ref": "#/$defs/io.k8s.api.core.v1.Container"}},
                    "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}},
                    "priority": {"type": "integer", "format": "int32"},
                    "hostNetwork": {"type": "boolean"},
                }}),
            ),
            (
                "io.k8s.api.core.v1.Container",
                json!({"type": "object", "properties": {
                    "name": {"type": "string"}, "secret": {"type": "string", "format": "byte"},
                    "startedAt": {"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.Time"},
                    "cpu": {"$ref": "#/$defs/io.k8s.apimachinery.pkg.api.resource.Quantity"},
                    "port": {"x-kubernetes-int-or-string": true},
                }}),
            ),
            ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", json!({"type": "string", "format": "date-time"})),
            ("io.k8s.apimachinery.pkg.api.resource.Quantity", json!({"type": "string"})),
        ];
        Definitions(table.into_iter().map(|(name, schema)| (name.into(), from_openapi(&schema))).collect())
    }

    #[track_caller]
    fn check(object: Value, expect: Option<&str>) {
        let schema = from_openapi(&json!({
            "type": "object", "properties": {"spec": {"$ref": "#/$defs/io.k8s.api.core.v1.PodSpec"}},
            "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}],
        }));
        let definitions = definitions();
        assert_eq!(type_check(Node::new(&schema, &definitions), &object).as_deref(), expect, "{object}");
    }

    #[test]
    fn fitting_values() {
        check(json!({}), None);
        check(json!({"spec": null, "unknown": 1}), None);
        check(
            json!({"spec": {"priority": 1, "nodeSelector": {"a": "b"}, "containers": [
                {"name": "a", "secret": "YQ==", "startedAt": "2026-01-31T23:59:59Z", "cpu": "100m", "port": "http"},
                {"cpu": 1, "port": 80}, null,
            ]}}),
            None,
        );
    }

    #[test]
    fn mismatches() {
        let in_field = |what: &str| format!("json: cannot unmarshal {what}");
        let check = |object: Value, what: &str| check(object, Some(&in_field(what)));
        check(json!([]), "array into Go value of type v1.Pod");
        check(json!({"spec": 1}), "number into Go struct field Pod.spec of type v1.PodSpec");
        check(
            json!({"spec": {"containers": "x"}}),
            "string into Go struct field PodSpec.spec.containers of type []v1.Container",
        );
        check(
            json!({"spec": {"containers": [{"name": true}]}}),
            "bool into Go struct field Container.spec.containers[0].name of type string",
        );
        check(
            json!({"spec": {"priority": 1.5}}),
            "number 1.5 into Go struct field PodSpec.spec.priority of type int32",
        );
        check(
            json!({"spec": {"priority": 3_000_000_000_i64}}),
            "number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
        );
        check(
            json!({"spec": {"nodeSelector": {"a": 1}}}),
            "number into Go struct field PodSpec.spec.nodeSelector.a of type string",
        );
    }

    #[test]
    fn formats_of_strings() {
        let container = |field: &str, value: Value| json!({"spec": {"containers": [{field: value}]}});
        check(container("secret", json!("a b")), Some("illegal base64 data at input byte 1"));
        check(
            container("startedAt", json!("now")),
            Some(r#"parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006""#),
        );
        let quantity = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        for wrong in [json!("lots"), json!(true), json!(""), json!("1.2.3"), json!("1x"), json!("1e")] {
            check(container("cpu", wrong), Some(quantity));
        }
        for right in ["1", "-1.5Gi", "100m", "1e3", "2E-3", ".5", "1E"] {
            check(container("cpu", json!(right)), None);
        }
    }
}
