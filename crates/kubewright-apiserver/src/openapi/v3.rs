//! OpenAPI v3: one document for each group and version, and for each document beside the resources.

use std::sync::Arc;

use kubewright_apimachinery::schema::{Kind, Logic, Schema, emit};
use serde_json::{Map, Value, json};

use super::{
    are_custom, info,
    operations::{self, Operation, Parameter, Path},
    response,
    schemas::{Dialect, INT_OR_STRING, QUANTITY, of_kind, schemas},
    security_schemes,
};
use crate::registry::Resource;

/// Returns the document at a path, such as `apis/apps/v1`, which describes these entries.
pub(super) fn document(path: &str, entries: &[Arc<Resource>]) -> Value {
    let custom = are_custom(entries);
    let mut paths = operations::paths(entries);
    if let Some(operation) = operations::information(path).filter(|_| !custom) {
        paths.insert(format!("/{path}/"), Path { operations: vec![operation] });
    }
    let schemas = schemas(entries, &paths, &dialect());
    let items: Map<_, _> = paths.iter().map(|(name, path)| (name.clone(), path_item(path))).collect();
    let mut components = Map::new();
    if !schemas.is_empty() {
        components.insert("schemas".into(), schemas.into());
    }
    if !custom {
        components.insert("securitySchemes".into(), security_schemes());
    }
    let info = if custom { json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}) } else { info() };
    json!({"openapi": "3.0.0", "info": info, "paths": items, "components": components})
}

fn dialect() -> Dialect {
    let either = |one, other| Schema {
        logic: Logic { one_of: vec![of_kind(one), of_kind(other)], ..Logic::default() },
        ..Schema::default()
    };
    let int_or_string = Schema { format: Some("int-or-string".into()), ..either(Kind::Integer, Kind::String) };
    Dialect {
        special: vec![(QUANTITY, either(Kind::String, Kind::Number)), (INT_OR_STRING, int_or_string)],
        emit: emit::openapi_v3,
    }
}

fn path_item(path: &Path) -> Value {
    let common = path.shared();
    let mut item: Map<_, _> = path.operations.iter().map(|it| (it.method.to_owned(), operation(it, &common))).collect();
    if !common.is_empty() {
        item.insert("parameters".into(), common.iter().map(|it| parameter(it)).collect());
    }
    item.into()
}

fn parameter(it: &Parameter) -> Value {
    let place = if it.in_path { "path" } else { "query" };
    let schema = json!({"type": it.kind, "uniqueItems": true});
    let mut document = json!({"name": it.name, "in": place, "description": it.description, "schema": schema});
    if it.in_path {
        document["required"] = true.into();
    }
    document
}

fn operation(operation: &Operation, common: &[&Parameter]) -> Value {
    let mut responses: Map<_, _> = operation
        .codes
        .iter()
        .map(|code| {
            let content = content(operation.answer.as_deref(), &operation.produces);
            (code.to_string(), json!({"description": response(*code), "content": content}))
        })
        .collect();
    responses.insert("401".into(), json!({"description": "Unauthorized"}));
    let mut document = json!({
        "operationId": operation.id,
        "description": operation.description,
        "tags": [operation.tag],
        "responses": responses,
    });
    let own: Vec<_> = operation.parameters.iter().filter(|it| !common.contains(it)).map(parameter).collect();
    if !own.is_empty() {
        document["parameters"] = own.into();
    }
    if let Some((schema, required)) = &operation.body {
        document["requestBody"] = json!({"content": content(Some(schema), operation.consumes)});
        if *required {
            document["requestBody"]["required"] = true.into();
        }
    }
    operation.mark(&mut document);
    document
}

fn content(schema: Option<&str>, types: &[&str]) -> Value {
    let schema = match schema {
        Some(name) => json!({"$ref": format!("#/components/schemas/{name}")}),
        None => json!({"type": "string"}),
    };
    types.iter().map(|name| ((*name).to_owned(), json!({"schema": schema}))).collect::<Map<_, _>>().into()
}
