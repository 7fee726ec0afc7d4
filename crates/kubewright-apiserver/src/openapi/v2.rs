//! OpenAPI v2: one document for all groups and versions.

use std::{collections::BTreeSet, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE};
use kubewright_apimachinery::schema::{Kind, Schema, emit};
use serde_json::{Map, Value, json};

use super::{
    base_path, info, information,
    operations::{self, Operation, Parameter, Path},
    response,
    schemas::{Dialect, INT_OR_STRING, QUANTITY, of_kind, schemas},
    security_schemes,
};
use crate::registry::Resource;

/// Returns the document of all entries.
pub(super) fn document(entries: &[Arc<Resource>]) -> Value {
    let mut paths = operations::paths(entries);
    let builtin = entries.iter().filter(|entry| !entry.schema.custom).map(|entry| base_path(entry));
    for path in builtin.chain(information(entries)).collect::<BTreeSet<_>>() {
        let operations = operations::information(&path).into_iter().collect();
        paths.insert(format!("/{path}/"), Path { operations });
    }
    let definitions = schemas(entries, &paths, &dialect());
    let mut shared = Map::new();
    let items: Map<_, _> = paths.iter().map(|(name, path)| (name.clone(), path_item(path, &mut shared))).collect();
    json!({
        "swagger": "2.0", "info": info(), "paths": items, "definitions": definitions, "parameters": shared,
        "securityDefinitions": security_schemes(), "security": [{"BearerToken": []}],
    })
}

fn dialect() -> Dialect {
    let int_or_string = Schema { format: Some("int-or-string".into()), ..of_kind(Kind::String) };
    Dialect { special: vec![(QUANTITY, of_kind(Kind::String)), (INT_OR_STRING, int_or_string)], emit: emit::openapi_v2 }
}

fn path_item(path: &Path, shared: &mut Map<String, Value>) -> Value {
    let common = path.shared();
    let mut item = Map::new();
    for one in &path.operations {
        item.insert(one.method.into(), operation(one, &common, shared));
    }
    if !common.is_empty() {
        let common = common.iter().map(|it| share(it.name, parameter(it), shared));
        item.insert("parameters".into(), common.collect());
    }
    item.into()
}

fn parameter(it: &Parameter) -> Value {
    let place = if it.in_path { "path" } else { "query" };
    let mut document = json!({
        "uniqueItems": true, "type": it.kind, "description": it.description, "name": it.name, "in": place,
    });
    if it.in_path {
        document["required"] = true.into();
    }
    document
}

/// Returns a reference to a parameter among those of the document, or the parameter itself if it belongs to a kind, or
/// is one that old versions of kubectl look for.
fn share(name: &str, parameter: Value, shared: &mut Map<String, Value>) -> Value {
    if ["name", "dryRun", "fieldValidation"].contains(&name) {
        return parameter;
    }
    let key = format!("{name}-{}", fingerprint(&parameter));
    let reference = json!({"$ref": format!("#/parameters/{key}")});
    shared.insert(key, parameter);
    reference
}

/// Returns the fingerprint of a parameter in names: the first bytes of an FNV-1 hash of its JSON text in the order of
/// Go's fields.
fn fingerprint(parameter: &Value) -> String {
    const FIELDS: [&str; 7] = ["uniqueItems", "type", "description", "name", "in", "required", "schema"];
    let fields = FIELDS.iter().filter_map(|name| Some(format!("\"{name}\":{}", parameter.get(name)?)));
    let text = format!("{{{}}}", fields.collect::<Vec<_>>().join(","));
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(byte));
    URL_SAFE.encode(&hash.to_be_bytes()[..6])
}

fn operation(operation: &Operation, common: &[&Parameter], shared: &mut Map<String, Value>) -> Value {
    let reference = |schema: &str| json!({"$ref": format!("#/definitions/{schema}")});
    let mut parameters = Vec::new();
    if let Some((schema, required)) = &operation.body {
        let mut body = json!({"name": "body", "in": "body", "schema": reference(schema)});
        if *required {
            body["required"] = true.into();
        }
        let is_shared = schema.starts_with("io.k8s.apimachinery");
        parameters.push(if is_shared { share("body", body, shared) } else { body });
    }
    let own = operation.parameters.iter().filter(|it| !common.contains(it));
    parameters.extend(own.map(|it| share(it.name, parameter(it), shared)));
    let answer = operation.answer.as_deref().map_or_else(|| json!({"type": "string"}), reference);
    let mut responses: Map<_, _> = operation
        .codes
        .iter()
        .map(|code| (code.to_string(), json!({"description": response(*code), "schema": answer})))
        .collect();
    responses.insert("401".into(), json!({"description": "Unauthorized"}));
    let mut document = json!({
        "operationId": operation.id,
        "description": operation.description,
        "tags": [operation.tag],
        "schemes": ["https"],
        "produces": operation.produces,
        "responses": responses,
    });
    if !operation.consumes.is_empty() {
        document["consumes"] = json!(operation.consumes);
    }
    if !parameters.is_empty() {
        document["parameters"] = parameters.into();
    }
    operation.mark(&mut document);
    document
}
