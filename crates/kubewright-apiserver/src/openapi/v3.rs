//! OpenAPI v3: one document for each group and version.

use std::sync::Arc;

use kubewright_apimachinery::schema::{Kind, Logic, Schema, emit};
use serde_json::{Map, Value, json};

use super::{
    info,
    operations::{Operation, PRETTY, Parameter, Path, paths},
    schemas::{Dialect, INT_OR_STRING, QUANTITY, collect, of_kind},
};
use crate::registry::Resource;

/// Returns the document of one group and version.
pub(super) fn document(entries: &[Arc<Resource>]) -> Value {
    let schemas: Map<_, _> =
        collect(entries, &dialect()).iter().map(|(name, schema)| (name.clone(), emit::openapi_v3(schema))).collect();
    let paths: Map<_, _> =
        entries.iter().flat_map(|entry| paths(entry)).map(|path| (path.path.clone(), path_item(&path))).collect();
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": security_schemes(),
        },
    })
}

/// Returns the document of `/version`.
pub(super) fn version_document() -> Value {
    const NAME: &str = "io.k8s.apimachinery.pkg.version.Info";
    let required =
        ["major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"];
    let optional = ["emulationMajor", "emulationMinor", "minCompatibilityMajor", "minCompatibilityMinor"];
    let fields = required.iter().chain(&optional);
    let properties: Map<_, _> = fields.map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    let get = json!({
        "operationId": "getCodeVersion",
        "description": "get the version information for this server",
        "tags": ["version"],
        "responses": {"200": {"description": "OK", "content": content(NAME, &["application/json"])}},
    });
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": {"/version/": {"get": get}},
        "components": {
            "schemas": {(NAME): {"type": "object", "required": required, "properties": properties}},
            "securitySchemes": security_schemes(),
        },
    })
}

fn security_schemes() -> Value {
    json!({"BearerToken": {"type": "apiKey", "in": "header", "name": "authorization"}})
}

fn dialect() -> Dialect {
    let either = |one, other| Schema {
        logic: Logic { one_of: vec![of_kind(one), of_kind(other)], ..Logic::default() },
        ..Schema::default()
    };
    let int_or_string = Schema { format: Some("int-or-string".into()), ..either(Kind::Integer, Kind::String) };
    Dialect {
        special: vec![(QUANTITY, either(Kind::String, Kind::Number)), (INT_OR_STRING, int_or_string)],
        defaults: true,
    }
}

fn path_item(path: &Path) -> Value {
    let mut item: Map<_, _> = path.operations.iter().map(|it| (it.method.to_owned(), operation(it))).collect();
    let mut parameters: Vec<_> = path
        .parameters()
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    parameters.push(query_parameter(PRETTY));
    item.insert("parameters".into(), parameters.into());
    item.into()
}

fn query_parameter(it: &Parameter) -> Value {
    json!({"name": it.name, "in": "query", "description": it.description, "schema": {"type": it.kind, "uniqueItems": true}})
}

fn operation(operation: &Operation) -> Value {
    let (group, version, kind) = &operation.kind;
    let parameters: Vec<_> = operation.query.iter().map(|it| query_parameter(it)).collect();
    let code = if operation.action == "post" { "201" } else { "200" };
    let mut document = json!({
        "operationId": operation.id,
        "description": operation.description,
        "parameters": parameters,
        "responses": {(code): {"description": "OK", "content": content(&operation.answer, &["application/json"])}},
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
    });
    if let Some((schema, types)) = &operation.body {
        // Only deletions have an optional body.
        let required = operation.method != "delete";
        document["requestBody"] = json!({"required": required, "content": content(schema, types)});
    }
    document
}

fn content(schema: &str, types: &[&str]) -> Value {
    let reference = json!({"schema": {"$ref": format!("#/components/schemas/{schema}")}});
    types.iter().map(|name| ((*name).to_owned(), reference.clone())).collect::<Map<_, _>>().into()
}
