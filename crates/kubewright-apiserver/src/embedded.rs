//! Decoding of the metadata of custom objects, and of resources embedded in them. Kubernetes decodes it as
//! `ObjectMeta`, whatever the schema says (`apiextensions-apiserver/pkg/apiserver/schema/objectmeta`).

use std::convert::Infallible;

use kubewright_apimachinery::{
    schema::{self, Additional, Definitions, Node, Schema},
    status::Cause,
};
use serde_json::{Map, Value, json};

use crate::object_type::ObjectType;

/// The fields that, besides the metadata, identify the type of a resource.
const TYPE: [&str; 2] = ["apiVersion", "kind"];

/// The paths of unknown fields, which were removed.
#[derive(Debug, Default)]
pub(crate) struct Unknown {
    /// Those in the metadata of the object.
    pub(crate) own: Vec<String>,
    /// Those in the metadata of the resources embedded in it.
    pub(crate) embedded: Vec<String>,
}

/// Rewrites the metadata of an object and of the resources embedded in it. Returns the unknown fields.
///
/// # Errors
/// If a field has a value of a wrong type.
pub(crate) fn decode(node: Node<'_>, object: &mut Value) -> Result<Unknown, String> {
    let mut unknown = Unknown::default();
    if let Some(fields) = object.as_object_mut() {
        unknown.own = decode_metadata(fields, "")?;
    }
    schema::visit_embedded(node, object, &mut |fields, path| {
        let wrong = |field: &str, value: &Value, why: &str| {
            let cause = Cause::invalid(format!("{path}.{field}"), value, why);
            format!("{}: {}", cause.field, cause.message)
        };
        let untyped =
            TYPE.iter().find_map(|field| Some((field, fields.get(*field).filter(|value| !value.is_string())?)));
        if let Some((field, value)) = untyped {
            return Err(wrong(field, value, "must be a string"));
        }
        let sent = fields.get("metadata").cloned().unwrap_or_default();
        let found = decode_metadata(fields, &format!("{path}.")).map_err(|why| wrong("metadata", &sent, &why))?;
        unknown.embedded.extend(found);
        Ok(())
    })?;
    Ok(unknown)
}

/// Rewrites the metadata of a resource with these fields. Returns the unknown ones, whose paths begin with `path`.
///
/// # Errors
/// If a field has a value of a wrong type.
pub(crate) fn decode_metadata(fields: &mut Map<String, Value>, path: &str) -> Result<Vec<String>, String> {
    let Some(metadata) = fields.get_mut("metadata").filter(|metadata| !metadata.is_null()) else {
        return Ok(Vec::new());
    };
    let Some(ty) = ObjectType::of_metadata() else { return Ok(Vec::new()) };
    let unknown = ty.decode(metadata)?.unknown;
    Ok(unknown.into_iter().map(|field| format!("{path}metadata.{field}")).collect())
}

/// Removes values of wrong types from the embedded resources of a stored object. It may be older than the schema that
/// declares them.
pub(crate) fn repair(node: Node<'_>, object: &mut Value) {
    let Ok(()) = schema::visit_embedded(node, object, &mut |fields, _| {
        for field in TYPE {
            if fields.get(field).is_some_and(|value| !value.is_string()) {
                fields.remove(field);
            }
        }
        if decode_metadata(fields, "").is_err()
            && let Some(Value::Object(metadata)) = fields.get_mut("metadata")
        {
            metadata.retain(|name, value| {
                let field = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
                decode_metadata(&mut Map::from_iter([("metadata".to_owned(), field)]), "").is_ok()
            });
        }
        Ok::<_, Infallible>(())
    });
}

/// Removes unknown fields, and values of wrong types, of the metadata of embedded resources from the defaults of a
/// schema (`PruneDefaults` in `apiextensions-apiserver`).
pub(crate) fn prune_defaults(root: &mut Schema, definitions: &Definitions) {
    if schema::has_embedded(root) {
        let whole = root.clone();
        prune_below(Node::new(&whole, definitions), root, &mut Vec::new());
    }
}

/// A step from a schema to one below it: to that of a field, or to that of the items of a list.
#[derive(Clone)]
pub(crate) enum Step {
    Field(String),
    Items,
}

/// Prunes the defaults of the schema to which a path leads, and of those below it.
fn prune_below(root: Node<'_>, schema: &mut Schema, path: &mut Vec<Step>) {
    if let Some(default) = schema.default.take() {
        let mut object = surround(default, path);
        repair(root, &mut object);
        schema.default = inner(object, path);
    }
    let mut visit = |step: Step, schema: &mut Schema| {
        path.push(step);
        prune_below(root, schema, path);
        path.pop();
    };
    for (name, field) in &mut schema.properties {
        visit(Step::Field(name.clone()), field);
    }
    if let Additional::Schema(values) = &mut schema.additional {
        visit(Step::Field("*".to_owned()), values);
    }
    if let Some(items) = &mut schema.items {
        visit(Step::Items, items);
    }
}

/// Returns an object in which a value is at the end of a path.
pub(crate) fn surround(value: Value, path: &[Step]) -> Value {
    path.iter().rev().fold(value, |value, step| match step {
        Step::Field(name) => json!({ name: value }),
        Step::Items => json!([value]),
    })
}

/// Returns the value at the end of a path, if it is there.
fn inner(object: Value, path: &[Step]) -> Option<Value> {
    path.iter().try_fold(object, |mut value, step| match step {
        Step::Field(name) => value.get_mut(name).map(Value::take),
        Step::Items => value.get_mut(0).map(Value::take),
    })
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::schema::parse::from_openapi;

    use super::*;

    #[test]
    fn unknown_fields_of_metadata_are_removed_from_defaults() {
        let metadata = json!({"name": "a", "odd": "x", "labels": {"l": "x"}});
        let known = json!({"name": "a", "labels": {"l": "x"}});
        let document = |metadata: &Value| {
            let template = json!({"kind": "K", "metadata": metadata, "odd": 1});
            let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true});
            let mut with_default = embedded.clone();
            with_default["default"] = template.clone();
            let mut of_metadata = embedded.clone();
            of_metadata["properties"] = json!({"metadata": {"type": "object", "default": metadata, "properties": {
                "name": {"type": "string", "default": "a"},
            }}});
            let spanning = json!({"type": "object", "default": {"inner": template}, "properties": {"inner": embedded}});
            json!({"type": "object", "properties": {
                "template": with_default, "metadata": of_metadata, "spanning": spanning,
                "list": {"type": "array", "default": [template], "items": with_default},
                "map": {"type": "object", "additionalProperties": with_default},
                "plain": {"type": "object", "default": {"metadata": {"odd": "x"}}},
            }})
        };
        let mut schema = from_openapi(&document(&metadata));
        prune_defaults(&mut schema, &Definitions::default());
        assert_eq!(schema, from_openapi(&document(&known)));
    }

    #[test]
    fn fields_that_metadata_does_not_have_lose_their_defaults() {
        let mut schema = from_openapi(&json!({"type": "object", "properties": {"template": {
            "type": "object", "x-kubernetes-embedded-resource": true, "properties": {"metadata": {
                "type": "object", "properties": {"odd": {"type": "string", "default": "x"}},
            }},
        }}}));
        prune_defaults(&mut schema, &Definitions::default());
        assert_eq!(schema.properties["template"].properties["metadata"].properties["odd"].default, None);
    }
}
