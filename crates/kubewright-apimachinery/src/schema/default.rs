//! Defaulting
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting>).

use serde_json::Value;

use super::{Additional, Node, Schema};

/// Sets absent fields to the default of their schema, at every depth.
///
/// A null that is not allowed is replaced by the default, if there is one. A default beside a reference applies; a
/// default inside the referenced definition does not.
pub fn default(node: Node<'_>, object: &mut Value) {
    visit(node, object);
}

fn visit(node: Node<'_>, value: &mut Value) {
    if node.is_anything() {
        return;
    }
    let schema = node.schema();
    match value {
        Value::Object(fields) => {
            for (name, field) in schema.properties.iter().filter(|(_, field)| field.default.is_some()) {
                if fields.get(name).is_none_or(|value| value.is_null() && !is_nullable(field, node)) {
                    fields.insert(name.clone(), field.default.clone().unwrap_or_default());
                }
            }
            for (name, value) in fields {
                // Also of metadata, the defaults are those that the schema declares.
                let Some(inner) = node.field(name).filter(|inner| !inner.is_anything()) else { continue };
                if value.is_null()
                    && !inner.schema().nullable
                    && let Some(default) = additional_default(schema, name)
                {
                    *value = default.clone();
                }
                visit(inner, value);
            }
        }
        Value::Array(items) => {
            let inner = node.items();
            let default = schema.items.as_deref().and_then(|items| items.default.as_ref());
            for item in items {
                if let Some(default) = default.filter(|_| item.is_null() && !inner.schema().nullable) {
                    *item = default.clone();
                }
                visit(inner, item);
            }
        }
        _ => {}
    }
}

/// Removes fields that are null, where null isn't allowed and no default replaces it. Items of lists stay.
///
/// Kubernetes does so when it decodes an object, but not when it applies a configuration.
pub fn drop_nulls(node: Node<'_>, object: &mut Value) {
    drop_inner_nulls(true, node, object);
}

fn drop_inner_nulls(is_resource: bool, node: Node<'_>, value: &mut Value) {
    match value {
        _ if node.is_anything() => {}
        Value::Object(fields) => fields.retain(|name, value| {
            let Some(inner) = inner_field(is_resource, node, name) else { return true };
            if value.is_null() {
                return inner.schema().nullable || has_default(node, name);
            }
            drop_inner_nulls(false, inner, value);
            true
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| drop_inner_nulls(false, node.items(), item)),
        _ => {}
    }
}

/// Returns the schema of a field, unless it allows any value.
fn inner_field<'a>(is_resource: bool, node: Node<'a>, name: &str) -> Option<Node<'a>> {
    let is_resource = is_resource || node.schema().embedded_resource;
    let inner = if is_resource { node.resource_field(name) } else { node.field(name) };
    inner.filter(|inner| !inner.is_anything())
}

fn has_default(node: Node<'_>, name: &str) -> bool {
    let schema = node.schema();
    match schema.properties.get(name) {
        Some(field) => field.default.is_some(),
        None => additional_default(schema, name).is_some(),
    }
}

fn is_nullable(field: &Schema, node: Node<'_>) -> bool {
    Node::new(field, node.definitions()).schema().nullable
}

/// Returns the default of a map's values. It replaces only null, since a map has no absent fields.
fn additional_default<'a>(schema: &'a Schema, name: &str) -> Option<&'a Value> {
    match &schema.additional {
        Additional::Schema(values) if !schema.properties.contains_key(name) => values.default.as_ref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{Definitions, OBJECT_META, parse::from_openapi};

    #[track_caller]
    fn check(schema: Value, mut object: Value, expect: Value) {
        let schema = from_openapi(&schema);
        let named = |document| from_openapi(&document);
        let definitions = Definitions::from([
            ("port", named(json!({"type": "object", "properties": {"name": {"default": "http"}}}))),
            (OBJECT_META, named(json!({"type": "object", "properties": {"creationTimestamp": {}}}))),
        ]);
        let node = Node::new(&schema, &definitions);
        drop_nulls(node, &mut object);
        default(node, &mut object);
        assert_eq!(object, expect);
        default(node, &mut object);
        assert_eq!(object, expect, "defaulting twice changes nothing");
    }

    #[test]
    fn absent_fields() {
        let schema = json!({"properties": {
            "spec": {"default": {}, "properties": {"replicas": {"default": 1}, "other": {"type": "string"}}},
            "without": {"properties": {"a": {"default": 1}}},
        }});
        check(schema.clone(), json!({}), json!({"spec": {"replicas": 1}}));
        check(schema.clone(), json!({"spec": {"replicas": 0}}), json!({"spec": {"replicas": 0}}));
        check(schema, json!({"spec": 5, "without": {}}), json!({"spec": 5, "without": {"a": 1}}));
    }

    #[test]
    fn metadata_of_embedded_resources() {
        let metadata = json!({"type": "object", "properties": {"name": {"type": "string", "default": "x"}}});
        let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
            "kind": {"type": "string", "default": "K"}, "metadata": metadata,
        }});
        check(
            json!({"properties": {"template": embedded}}),
            json!({"metadata": {}, "template": {"metadata": {}}}),
            json!({"metadata": {}, "template": {"kind": "K", "metadata": {"name": "x"}}}),
        );
    }

    #[test]
    fn lists_and_maps() {
        check(
            json!({"properties": {
                "list": {"items": {"default": {}, "properties": {"a": {"default": 1}}}},
                "map": {"additionalProperties": {"default": {}, "properties": {"a": {"default": 1}}}},
            }}),
            json!({"list": [{}, null, {"a": 2}], "map": {"x": {}, "y": null}}),
            json!({"list": [{"a": 1}, {"a": 1}, {"a": 2}], "map": {"x": {"a": 1}, "y": {"a": 1}}}),
        );
    }

    #[test]
    fn nulls() {
        check(
            json!({"properties": {
                "dropped": {"type": "string"}, "kept": {"type": "string", "nullable": true},
                "filled": {"default": "x"}, "null": {"nullable": true, "default": "x"}, "list": {"items": {}},
                "free": {"x-kubernetes-preserve-unknown-fields": true},
            }}),
            json!({"dropped": null, "kept": null, "filled": null, "null": null, "list": [null], "free": {"a": null}}),
            json!({"kept": null, "filled": "x", "null": null, "list": [null], "free": {"a": null}}),
        );
        check(json!({}), json!({"metadata": {"creationTimestamp": null}}), json!({"metadata": {}}));
    }

    #[test]
    fn nulls_stay_until_they_are_dropped() {
        let schema = from_openapi(&json!({"properties": {"a": {"type": "string"}, "b": {"default": "x"}}}));
        let definitions = Definitions::default();
        let mut object = json!({"a": null, "b": null});
        default(Node::new(&schema, &definitions), &mut object);
        assert_eq!(object, json!({"a": null, "b": "x"}));
    }

    #[test]
    fn beside_a_reference() {
        check(
            json!({"properties": {"port": {"$ref": "#/definitions/port", "default": {}}}}),
            json!({}),
            json!({"port": {"name": "http"}}),
        );
    }
}
