//! Parsing of schema documents.
//!
//! One parser reads both dialects: a CRD's `openAPIV3Schema`, and the JSON schema that `schemars` and k8s-openapi
//! generate for Rust types. [`super::structural`] checks the schemas of CRDs. Keywords without a field in [`Schema`]
//! are dropped.

use serde_json::{Map, Value};

use super::{Additional, Kind, Limits, List, Logic, Rule, Schema};

/// Parses a schema of OpenAPI v2 or v3, or a JSON schema by `schemars`. A `$ref` becomes a reference to the name after
/// its last slash. Definitions inside the document are not read.
pub fn from_openapi(document: &Value) -> Schema {
    let Value::Object(document) = document else {
        // In JSON schema, `true` allows any value.
        return Schema { preserve_unknown: *document == Value::Bool(true), ..Schema::default() };
    };
    let document = Document(document);
    if let Some(name) = document.reference() {
        return Schema {
            reference: Some(name.into()),
            description: document.text("description"),
            default: document.value("default"),
            atomic_map: document.atomic_map(),
            patch_strategy: document.patch_strategy(),
            patch_merge_key: document.text("x-kubernetes-patch-merge-key"),
            ..Schema::default()
        };
    }
    let (kind, null_is_a_type) = document.kind();
    Schema {
        reference: None,
        title: document.text("title"),
        description: document.text("description"),
        kind,
        format: document.text("format"),
        properties: document.schemas_by_name("properties"),
        additional: match document.0.get("additionalProperties") {
            None | Some(Value::Null) => Additional::Unspecified,
            Some(Value::Bool(allowed)) => Additional::Allowed(*allowed),
            Some(schema) => Additional::Schema(Box::new(from_openapi(schema))),
        },
        items: document.schema("items"),
        required: document.texts("required"),
        nullable: null_is_a_type || document.flag("nullable"),
        default: document.value("default"),
        example: document.value("example"),
        external_docs: document.value("externalDocs").map(Box::new),
        limits: document.limits(),
        int_or_string: document.flag("x-kubernetes-int-or-string"),
        quantity: false,
        preserve_unknown: document.flag("x-kubernetes-preserve-unknown-fields"),
        embedded_resource: document.flag("x-kubernetes-embedded-resource"),
        list: match document.str("x-kubernetes-list-type") {
            Some("set") => List::Set,
            Some("map") => List::Map(document.texts("x-kubernetes-list-map-keys")),
            Some("atomic") => List::Atomic,
            _ => List::Unspecified,
        },
        atomic_map: document.atomic_map(),
        patch_strategy: document.patch_strategy(),
        patch_merge_key: document.text("x-kubernetes-patch-merge-key"),
        rules: document.list("x-kubernetes-validations").filter_map(Value::as_object).map(rule).collect(),
        logic: Logic {
            all_of: document.schemas("allOf"),
            any_of: document.schemas("anyOf"),
            one_of: document.schemas("oneOf"),
            not: document.schema("not"),
        },
        group_version_kind: document.group_version_kinds(),
    }
}

/// Returns the JSON type with that name.
pub(super) fn kind(name: &str) -> Option<Kind> {
    const KINDS: [Kind; 6] = [Kind::Object, Kind::Array, Kind::String, Kind::Integer, Kind::Number, Kind::Boolean];
    KINDS.into_iter().find(|kind| kind.as_str() == name)
}

fn rule(document: &Map<String, Value>) -> Rule {
    let document = Document(document);
    Rule {
        rule: document.text("rule").unwrap_or_default(),
        message: document.text("message"),
        message_expression: document.text("messageExpression"),
        reason: document.text("reason"),
        field_path: document.text("fieldPath"),
        optional_old_self: document.0.get("optionalOldSelf").and_then(Value::as_bool),
        ..Rule::default()
    }
}

/// The members of a schema document. A member of a wrong type counts as absent.
struct Document<'a>(&'a Map<String, Value>);

impl<'a> Document<'a> {
    fn str(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).and_then(Value::as_str)
    }

    fn atomic_map(&self) -> Option<bool> {
        match self.str("x-kubernetes-map-type") {
            Some("atomic") => Some(true),
            Some("granular") => Some(false),
            _ => None,
        }
    }

    fn patch_strategy(&self) -> Vec<String> {
        let names = self.str("x-kubernetes-patch-strategy");
        names.map(|names| names.split(',').map(str::to_owned).collect()).unwrap_or_default()
    }

    fn text(&self, name: &str) -> Option<String> {
        self.str(name).map(str::to_owned)
    }

    fn flag(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Bool(true))
    }

    fn float(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(Value::as_f64)
    }

    fn count(&self, name: &str) -> Option<u64> {
        let value = self.0.get(name)?;
        value.as_u64().or_else(|| value.as_f64().filter(|count| *count >= 0.0).map(|count| count as u64))
    }

    fn value(&self, name: &str) -> Option<Value> {
        self.0.get(name).filter(|value| !value.is_null()).cloned()
    }

    fn list(&self, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.0.get(name).and_then(Value::as_array).into_iter().flatten()
    }

    fn texts(&self, name: &str) -> Vec<String> {
        self.list(name).filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn schema(&self, name: &str) -> Option<Box<Schema>> {
        self.0.get(name).filter(|value| !value.is_null()).map(|schema| Box::new(from_openapi(schema)))
    }

    fn schemas(&self, name: &str) -> Vec<Schema> {
        self.list(name).map(from_openapi).collect()
    }

    fn schemas_by_name(&self, name: &str) -> std::collections::BTreeMap<String, Schema> {
        let fields = self.0.get(name).and_then(Value::as_object).into_iter().flatten();
        fields.map(|(name, schema)| (name.clone(), from_openapi(schema))).collect()
    }

    /// Returns the target of `$ref`. A reference with siblings is wrapped: `allOf: [{$ref: …}]`.
    fn reference(&self) -> Option<&'a str> {
        let target = match self.str("$ref") {
            Some(target) => target,
            None => match self.0.get("allOf")?.as_array()?.as_slice() {
                [Value::Object(only)] if only.len() == 1 => only.get("$ref")?.as_str()?,
                _ => return None,
            },
        };
        Some(target.rsplit('/').next().unwrap_or(target))
    }

    /// Returns the type, and whether null is allowed. In JSON schema, the type may be a list that contains `null`.
    fn kind(&self) -> (Option<Kind>, bool) {
        match self.0.get("type") {
            Some(Value::String(name)) => (kind(name), false),
            Some(Value::Array(names)) => {
                let mut names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                let all = names.len();
                names.retain(|name| *name != "null");
                let only = if let [only] = names.as_slice() { kind(only) } else { None };
                (only, names.len() < all)
            }
            _ => (None, false),
        }
    }

    fn limits(&self) -> Limits {
        // An exclusive bound is a separate number in JSON schema, and a flag beside the bound in OpenAPI.
        let exclusive_minimum = self.float("exclusiveMinimum");
        let exclusive_maximum = self.float("exclusiveMaximum");
        let values: Vec<Value> = self.list("enum").cloned().collect();
        let constant = self.0.get("const").cloned();
        Limits {
            minimum: exclusive_minimum.or(self.float("minimum")),
            maximum: exclusive_maximum.or(self.float("maximum")),
            exclusive_minimum: exclusive_minimum.is_some() || self.flag("exclusiveMinimum"),
            exclusive_maximum: exclusive_maximum.is_some() || self.flag("exclusiveMaximum"),
            multiple_of: self.float("multipleOf"),
            min_length: self.count("minLength"),
            max_length: self.count("maxLength"),
            min_items: self.count("minItems"),
            max_items: self.count("maxItems"),
            unique_items: self.flag("uniqueItems"),
            min_properties: self.count("minProperties"),
            max_properties: self.count("maxProperties"),
            pattern: self.text("pattern"),
            enum_values: if values.is_empty() { constant.map(|value| vec![value]) } else { Some(values) },
        }
    }

    fn group_version_kinds(&self) -> Vec<(String, String, String)> {
        let part = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let entries = self.list("x-kubernetes-group-version-kind");
        entries.map(|entry| (part(entry, "group"), part(entry, "version"), part(entry, "kind"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references() {
        for document in [
            json!({"$ref": "#/$defs/io.k8s.api.core.v1.PodSpec", "description": "d"}),
            json!({"$ref": "#/definitions/io.k8s.api.core.v1.PodSpec", "description": "d"}),
            json!({"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.PodSpec"}], "description": "d"}),
        ] {
            let expect = Schema {
                reference: Some("io.k8s.api.core.v1.PodSpec".into()),
                description: Some("d".into()),
                ..Schema::default()
            };
            assert_eq!(from_openapi(&document), expect, "{document}");
        }
    }

    #[test]
    fn the_dialect_of_schemars() {
        let schema = from_openapi(&json!({"type": ["string", "null"], "const": "a"}));
        assert_eq!((schema.kind, schema.nullable), (Some(Kind::String), true));
        assert_eq!(schema.limits.enum_values, Some(vec![json!("a")]));
        let schema = from_openapi(&json!({"type": "integer", "exclusiveMinimum": 0, "format": "uint8"}));
        assert_eq!((schema.limits.minimum, schema.limits.exclusive_minimum), (Some(0.0), true));
        assert!(from_openapi(&json!(true)).preserve_unknown);
    }

    #[test]
    fn extensions() {
        let schema = from_openapi(&json!({
            "type": "array", "items": {"type": "object", "x-kubernetes-map-type": "atomic"},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
            "x-kubernetes-patch-strategy": "merge,retainKeys",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "optionalOldSelf": true, "fieldPath": ".a"}],
        }));
        assert_eq!(schema.list, List::Map(vec!["a".into(), "b".into()]));
        assert_eq!(schema.patch_strategy, ["merge", "retainKeys"]);
        assert_eq!(schema.items.unwrap().atomic_map, Some(true));
        assert_eq!(schema.rules[0].optional_old_self, Some(true));
    }
}
