//! Pruning: the removal of fields that a schema doesn't declare
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#field-pruning>).

use serde_json::Value;

use super::Node;
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
    visit(root == Root::Object, node, value, &FieldPath::Root, &mut dropped);
    dropped
}

fn visit(is_resource: bool, node: Node<'_>, value: &mut Value, path: &FieldPath<'_>, dropped: &mut Vec<String>) {
    if node.is_anything() {
        return;
    }
    let is_resource = is_resource || node.schema().embedded_resource;
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let path = path.field(name);
            let node = if is_resource { node.resource_field(name) } else { node.field(name) };
            match node {
                Some(node) => visit(false, node, value, &path, dropped),
                None => dropped.push(path.to_string()),
            }
            node.is_some()
        }),
        Value::Array(items) => {
            let node = node.items();
            for (index, item) in items.iter_mut().enumerate() {
                visit(false, node, item, &path.item(index), dropped);
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
