//! Pruning: the removal of fields that a schema doesn't declare
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#field-pruning>).

use serde_json::Value;

use super::{Additional, Node, Schema};
use crate::field_path::FieldPath;

/// Removes the fields of an object that its schema doesn't declare, and returns their paths: `spec.foo`,
/// `spec.containers[0].foo`. Strict field validation reports each as `unknown field "spec.foo"`.
///
/// `apiVersion`, `kind` and `metadata` of the object itself and of embedded resources are always known. The fields of
/// `metadata` are those of the `ObjectMeta` definition, if the node has it.
pub fn prune(node: Node<'_>, object: &mut Value) -> Vec<String> {
    prune_as(Root::Object, node, object)
}

/// Returns the paths of the fields that [`prune`] would remove.
pub fn unknown_fields(node: Node<'_>, object: &Value) -> Vec<String> {
    unknown_fields_as(Root::Object, node, object)
}

/// The kind of a value: an object with `apiVersion`, `kind` and `metadata`, or a part of one.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Root {
    Object,
    Part,
}

pub(super) fn unknown_fields_as(root: Root, node: Node<'_>, value: &Value) -> Vec<String> {
    prune_as(root, node, &mut value.clone())
}

fn prune_as(root: Root, node: Node<'_>, value: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    let place = Place { is_resource: root == Root::Object, is_preserving: false };
    visit(place, Some(node), value, &FieldPath::Root, &mut dropped);
    dropped
}

/// What is known of a value besides its schema.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Whether it has `apiVersion`, `kind` and `metadata`.
    is_resource: bool,
    /// Whether it is an item of a list that preserves unknown fields: its own are preserved, too.
    is_preserving: bool,
}

/// Visits a value. Without a node, the schema says nothing about it.
fn visit(place: Place, node: Option<Node<'_>>, value: &mut Value, path: &FieldPath<'_>, dropped: &mut Vec<String>) {
    if node.is_some_and(Node::is_anything) {
        return;
    }
    let schema = node.map(Node::schema);
    let is_preserving = place.is_preserving || schema.is_some_and(|schema| schema.preserve_unknown);
    let is_resource = place.is_resource || schema.is_some_and(|schema| schema.embedded_resource);
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let path = path.field(name);
            let is_meta = is_resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
            let field = node.and_then(|node| if is_meta { node.resource_field(name) } else { node.field(name) });
            if field.is_none() && !is_preserving {
                dropped.push(path.to_string());
                return false;
            }
            if let Some(field) = field {
                // `additionalProperties: true` allows the field, but says nothing about its value.
                let allows_all = |schema: &Schema| schema.additional == Additional::Allowed(true);
                let is_named = is_meta || schema.is_some_and(|schema| schema.properties.contains_key(name));
                let declared = Some(field).filter(|_| is_named || !schema.is_some_and(allows_all));
                visit(Place::default(), declared, value, &path, dropped);
            }
            true
        }),
        Value::Array(items) => {
            let node = node.filter(|node| node.schema().items.is_some()).map(Node::items);
            // Of preserved items without a schema, everything is.
            if node.is_none() && is_preserving {
                return;
            }
            let place = Place { is_resource: false, is_preserving };
            for (index, item) in items.iter_mut().enumerate() {
                visit(place, node, item, &path.item(index), dropped);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{Definitions, OBJECT_META, parse::from_openapi};

    #[track_caller]
    fn check(schema: Value, object: Value, expect: Value, dropped: &[&str]) {
        let schema = from_openapi(&schema);
        let meta = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let definitions = Definitions::from([(OBJECT_META, from_openapi(&meta))]);
        let node = Node::new(&schema, &definitions);
        let mut pruned = object.clone();
        assert_eq!(prune(node, &mut pruned), dropped);
        assert_eq!(pruned, expect);
        assert_eq!(unknown_fields(node, &object), dropped);
        assert!(unknown_fields(node, &pruned).is_empty());
    }

    #[test]
    fn unknown_fields_are_dropped() {
        check(
            json!({"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    "known": {"type": "string"},
                    "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                    "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {}}}},
                }},
            }}),
            json!({"spec": {"known": "", "x": 1, "list": [{"a": "", "b": 1}], "map": {"k": {"a": 1, "b": 2}}}, "y": {}}),
            json!({"spec": {"known": "", "list": [{"a": ""}], "map": {"k": {"a": 1}}}}),
            &["spec.list[0].b", "spec.map.k.b", "spec.x", "y"],
        );
    }

    #[test]
    fn preserved_fields_are_kept() {
        check(
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "known": {"type": "object", "properties": {"a": {}}},
            }}),
            json!({"known": {"a": 1, "b": 1}, "unknown": {"a": {"b": [1]}}}),
            json!({"known": {"a": 1}, "unknown": {"a": {"b": [1]}}}),
            &["known.b"],
        );
    }

    #[test]
    fn items_of_a_preserving_list_are_kept() {
        let item = json!({"type": "object", "properties": {"a": {"type": "object"}}});
        let list =
            |items: Value| json!({"type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": items});
        check(
            json!({"type": "object", "properties": {
                "list": list(item.clone()), "deep": list(json!({"type": "array", "items": item})),
            }}),
            json!({"list": [{"a": {"x": 1}, "b": {"c": 1}}], "deep": [[{"b": 1}]]}),
            json!({"list": [{"a": {}, "b": {"c": 1}}], "deep": [[{"b": 1}]]}),
            &["list[0].a.x"],
        );
    }

    #[test]
    fn values_of_which_the_schema_says_nothing_have_no_fields() {
        let open = json!({"type": "object", "additionalProperties": true, "properties": {"known": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }}});
        check(
            json!({"type": "object", "properties": {"open": open}}),
            json!({"open": {"known": {"a": 1}, "list": [{"a": 1}], "map": {"a": {"b": 1}}, "text": "x"}}),
            json!({"open": {"known": {"a": 1}, "list": [{}], "map": {}, "text": "x"}}),
            &["open.list[0].a", "open.map.a"],
        );
    }

    #[test]
    fn metadata_is_always_known() {
        let object = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}});
        check(json!({"type": "object"}), object.clone(), object, &[]);
        let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object", "properties": {}}}});
        check(
            json!({"type": "object", "properties": {"template": embedded, "metadata": {"type": "object"}}}),
            json!({"metadata": {"name": "n", "odd": 1},
                "template": {"apiVersion": "v1", "kind": "K", "metadata": {"odd": 1}, "spec": {"metadata": {}}}}),
            json!({"metadata": {"name": "n"},
                "template": {"apiVersion": "v1", "kind": "K", "metadata": {}, "spec": {}}}),
            &["metadata.odd", "template.metadata.odd", "template.spec.metadata"],
        );
    }
}
