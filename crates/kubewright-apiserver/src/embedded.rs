//! Decoding of the metadata of custom objects, and of resources embedded in them. Kubernetes decodes it as
//! `ObjectMeta`, whatever the schema says (`apiextensions-apiserver/pkg/apiserver/schema/objectmeta`).

use std::convert::Infallible;

use kubewright_apimachinery::{
    schema::{self, Node},
    status::Cause,
};
use serde_json::{Map, Value};

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

fn decode_metadata(fields: &mut Map<String, Value>, path: &str) -> Result<Vec<String>, String> {
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
