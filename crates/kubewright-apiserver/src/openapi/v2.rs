//! OpenAPI v2: one document for all groups and versions.

use std::sync::Arc;

use kubewright_apimachinery::schema::{Kind, Schema, emit};
use serde_json::{Map, Value, json};

use super::{
    info,
    operations::{Operation, PRETTY, Parameter, Path, paths},
    schemas::{Dialect, INT_OR_STRING, QUANTITY, collect, of_kind},
};
use crate::registry::Resource;

/// Returns the document of all entries.
pub(super) fn document(entries: &[Arc<Resource>]) -> Value {
    let definitions: Map<_, _> =
        collect(entries, &dialect()).iter().map(|(name, schema)| (name.clone(), emit::openapi_v2(schema))).collect();
    let paths: Map<_, _> =
        entries.iter().flat_map(|entry| paths(entry)).map(|path| (path.path.clone(), path_item(&path))).collect();
    json!({"swagger": "2.0", "info": info(), "paths": paths, "definitions": definitions})
}

fn dialect() -> Dialect {
    let int_or_string = Schema { format: Some("int-or-string".into()), ..of_kind(Kind::String) };
    Dialect { special: vec![(QUANTITY, of_kind(Kind::String)), (INT_OR_STRING, int_or_string)], defaults: false }
}

fn path_item(path: &Path) -> Value {
    let mut item: Map<_, _> = path.operations.iter().map(|it| (it.method.to_owned(), operation(it))).collect();
    let mut parameters: Vec<_> =
        path.parameters().map(|name| json!({"name": name, "in": "path", "required": true, "type": "string"})).collect();
    parameters.push(query_parameter(PRETTY));
    item.insert("parameters".into(), parameters.into());
    item.into()
}

fn query_parameter(it: &Parameter) -> Value {
    json!({"name": it.name, "in": "query", "description": it.description, "type": it.kind, "uniqueItems": true})
}

fn operation(operation: &Operation) -> Value {
    let (group, version, kind) = &operation.kind;
    let reference = |schema: &str| json!({"$ref": format!("#/definitions/{schema}")});
    let mut parameters: Vec<_> = operation.query.iter().map(|it| query_parameter(it)).collect();
    if let Some((schema, _)) = &operation.body {
        let required = operation.method != "delete";
        parameters.insert(0, json!({"name": "body", "in": "body", "required": required, "schema": reference(schema)}));
    }
    let code = if operation.action == "post" { "201" } else { "200" };
    json!({
        "operationId": operation.id,
        "description": operation.description,
        "consumes": operation.body.as_ref().map_or(&["*/*"][..], |(_, types)| types),
        "produces": ["application/json", "application/yaml"],
        "parameters": parameters,
        "responses": {(code): {"description": "OK", "schema": reference(&operation.answer)}},
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
    })
}
