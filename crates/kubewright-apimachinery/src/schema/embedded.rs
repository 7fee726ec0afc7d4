//! Resources within objects of a custom kind (`x-kubernetes-embedded-resource`).

use std::fmt::Display;

use serde_json::{Map, Value};

use super::{Additional, Node, Schema};
use crate::field_path::FieldPath;

/// Visits the fields of each embedded resource of an object, with its path. The object itself isn't one.
///
/// # Errors
/// Returns the first error of `visit`, after which the rest isn't visited.
pub fn visit_embedded<E>(
    node: Node<'_>,
    object: &mut Value,
    visit: &mut impl FnMut(&mut Map<String, Value>, &dyn Display) -> Result<(), E>,
) -> Result<(), E> {
    if !has_embedded(node.schema()) {
        return Ok(());
    }
    descend(node, object, &FieldPath::Root, visit)
}

/// Returns whether objects of a schema may contain embedded resources. Takes a step for each part of the schema.
pub fn has_embedded(schema: &Schema) -> bool {
    let additional = match &schema.additional {
        Additional::Schema(values) => Some(&**values),
        Additional::Unspecified | Additional::Allowed(_) => None,
    };
    schema.embedded_resource
        || schema.properties.values().chain(additional).chain(schema.items.as_deref()).any(has_embedded)
}

fn descend<E>(
    node: Node<'_>,
    value: &mut Value,
    path: &FieldPath<'_>,
    visit: &mut impl FnMut(&mut Map<String, Value>, &dyn Display) -> Result<(), E>,
) -> Result<(), E> {
    match value {
        _ if node.is_anything() => Ok(()),
        Value::Object(fields) => {
            if node.schema().embedded_resource {
                visit(fields, path)?;
            }
            for (name, value) in fields {
                let Some(inner) = node.field(name) else { continue };
                let is_declared = node.schema().properties.contains_key(name);
                descend(inner, value, &if is_declared { path.field(name) } else { path.key(name) }, visit)?;
            }
            Ok(())
        }
        Value::Array(items) => items
            .iter_mut()
            .enumerate()
            .try_for_each(|(index, item)| descend(node.items(), item, &path.item(index), visit)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{Definitions, parse::from_openapi};

    #[test]
    fn embedded_resources_are_visited_at_every_depth() {
        let resource = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"inner": {"type": "object", "x-kubernetes-embedded-resource": true}}});
        let schema = from_openapi(&json!({"type": "object", "properties": {
            "one": resource, "list": {"type": "array", "items": resource},
            "map": {"type": "object", "additionalProperties": resource}, "none": {"type": "object"},
        }}));
        let mut object = json!({"one": {"inner": {}}, "list": [{}, 1], "map": {"x.y": {}}, "none": {"one": {}}});
        let mut paths = Vec::new();
        let visited = visit_embedded(Node::new(&schema, &Definitions::default()), &mut object, &mut |_, path| {
            paths.push(path.to_string());
            Ok::<_, ()>(())
        });
        assert_eq!(visited, Ok(()));
        assert_eq!(paths, ["list[0]", "map[x.y]", "one", "one.inner"]);
    }
}
