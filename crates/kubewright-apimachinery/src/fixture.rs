//! Schemas for this crate's tests, written as OpenAPI has them.

use serde_json::Value;

use crate::schema::{Additional, Kind, List, Schema};

/// The schema that `document` describes; it must be right.
pub(crate) fn schema(document: &Value) -> Schema {
    let text = |key: &str| document[key].as_str();
    let strings = |key: &str| -> Vec<String> {
        document[key].as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let kinds = [Kind::Object, Kind::Array, Kind::String, Kind::Integer, Kind::Number, Kind::Boolean];
    Schema {
        reference: text("$ref").map(Into::into),
        kind: kinds.into_iter().find(|kind| text("type") == Some(kind.as_str())),
        properties: document["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, property)| (name.clone(), schema(property)))
            .collect(),
        additional: match document.get("additionalProperties") {
            None => Additional::Unspecified,
            Some(Value::Bool(allowed)) => Additional::Allowed(*allowed),
            Some(other) => Additional::Schema(Box::new(schema(other))),
        },
        items: document.get("items").map(|items| Box::new(schema(items))),
        default: document.get("default").cloned(),
        nullable: document["nullable"] == true,
        preserve_unknown: document["x-kubernetes-preserve-unknown-fields"] == true,
        embedded_resource: document["x-kubernetes-embedded-resource"] == true,
        list: match text("x-kubernetes-list-type") {
            Some("set") => List::Set,
            Some("map") => List::Map(strings("x-kubernetes-list-map-keys")),
            _ => List::Atomic,
        },
        atomic_map: text("x-kubernetes-map-type") == Some("atomic"),
        patch_strategy: text("x-kubernetes-patch-strategy")
            .map(|strategies| strategies.split(',').map(str::to_owned).collect())
            .unwrap_or_default(),
        patch_merge_key: text("x-kubernetes-patch-merge-key").map(str::to_owned),
        ..Schema::default()
    }
}
