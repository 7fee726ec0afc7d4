//! OpenAPI v2 in protobuf: the part of gnostic's `openapi.v2.Document` that kubectl reads
//! (<https://github.com/google/gnostic-models/blob/main/openapiv2/OpenAPIv2.proto>).
//!
//! Paths contain operations with their query parameters and extensions, without responses and bodies.

use prost::Message;
use serde_json::Value;

/// Encodes a v2 document.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let info = Info { title: text(&document["info"]["title"]), version: text(&document["info"]["version"]) };
    let paths =
        each(&document["paths"]).map(|(name, item)| NamedPathItem { name: name.clone(), value: Some(path_item(item)) });
    Document {
        swagger: text(&document["swagger"]),
        info: Some(info),
        paths: Some(Paths { path: paths.collect() }),
        definitions: Some(Definitions { additional_properties: named_schemas(&document["definitions"]) }),
    }
    .encode_to_vec()
}

fn each(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(String::from).collect()
}

fn path_item(item: &Value) -> PathItem {
    let operation = |method: &str| item.get(method).map(self::operation);
    PathItem {
        get: operation("get"),
        put: operation("put"),
        post: operation("post"),
        delete: operation("delete"),
        patch: operation("patch"),
    }
}

fn operation(operation: &Value) -> Operation {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let query = parameters.filter(|parameter| parameter["in"] == "query").map(|parameter| {
        let query = QueryParameter {
            r#in: "query".into(),
            description: text(parameter, "description"),
            name: text(parameter, "name"),
            r#type: text(parameter, "type"),
        };
        let parameter = NonBodyParameter { query: Some(query) };
        ParametersItem { parameter: Some(Parameter { non_body_parameter: Some(parameter) }) }
    });
    Operation {
        description: text(operation, "description"),
        operation_id: text(operation, "operationId"),
        produces: texts(&operation["produces"]),
        consumes: texts(&operation["consumes"]),
        parameters: query.collect(),
        vendor_extension: extensions(operation),
    }
}

/// Encodes values without a fixed schema as YAML, of which JSON is a subset.
fn any(value: &Value) -> Any {
    Any { yaml: value.to_string() }
}

fn extensions(value: &Value) -> Vec<NamedAny> {
    each(value)
        .filter(|(name, _)| name.starts_with("x-"))
        .map(|(name, value)| NamedAny { name: name.clone(), value: Some(any(value)) })
        .collect()
}

fn named_schemas(schemas: &Value) -> Vec<NamedSchema> {
    each(schemas).map(|(name, value)| NamedSchema { name: name.clone(), value: Some(schema(value)) }).collect()
}

fn schema(value: &Value) -> Schema {
    let count = |field: &str| value[field].as_i64().unwrap_or_default();
    let flag = |field: &str| value[field].as_bool().unwrap_or_default();
    let number = |field: &str| value[field].as_f64().unwrap_or_default();
    let additional = match &value["additionalProperties"] {
        Value::Bool(allowed) => Some(AdditionalProperties { schema: None, boolean: Some(*allowed) }),
        Value::Object(_) => {
            let schema = schema(&value["additionalProperties"]);
            Some(AdditionalProperties { schema: Some(Box::new(schema)), boolean: None })
        }
        _ => None,
    };
    Schema {
        reference: text(value, "$ref"),
        format: text(value, "format"),
        title: text(value, "title"),
        description: text(value, "description"),
        multiple_of: number("multipleOf"),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        max_length: count("maxLength"),
        min_length: count("minLength"),
        pattern: text(value, "pattern"),
        max_items: count("maxItems"),
        min_items: count("minItems"),
        unique_items: flag("uniqueItems"),
        max_properties: count("maxProperties"),
        min_properties: count("minProperties"),
        required: texts(&value["required"]),
        enumeration: value["enum"].as_array().into_iter().flatten().map(any).collect(),
        additional_properties: additional,
        r#type: value["type"].as_str().map(|name| TypeItem { value: vec![name.into()] }),
        items: value.get("items").map(|items| ItemsItem { schema: vec![schema(items)] }),
        properties: value
            .get("properties")
            .map(|properties| Properties { additional_properties: named_schemas(properties) }),
        vendor_extension: extensions(value),
    }
}

#[derive(Clone, PartialEq, Message)]
struct Document {
    #[prost(string, tag = "1")]
    swagger: String,
    #[prost(message, optional, tag = "2")]
    info: Option<Info>,
    #[prost(message, optional, tag = "8")]
    paths: Option<Paths>,
    #[prost(message, optional, tag = "9")]
    definitions: Option<Definitions>,
}

#[derive(Clone, PartialEq, Message)]
struct Info {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Paths {
    #[prost(message, repeated, tag = "2")]
    path: Vec<NamedPathItem>,
}

#[derive(Clone, PartialEq, Message)]
struct NamedPathItem {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<PathItem>,
}

#[derive(Clone, PartialEq, Message)]
struct PathItem {
    #[prost(message, optional, tag = "2")]
    get: Option<Operation>,
    #[prost(message, optional, tag = "3")]
    put: Option<Operation>,
    #[prost(message, optional, tag = "4")]
    post: Option<Operation>,
    #[prost(message, optional, tag = "5")]
    delete: Option<Operation>,
    #[prost(message, optional, tag = "8")]
    patch: Option<Operation>,
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(string, tag = "3")]
    description: String,
    #[prost(string, tag = "5")]
    operation_id: String,
    #[prost(string, repeated, tag = "6")]
    produces: Vec<String>,
    #[prost(string, repeated, tag = "7")]
    consumes: Vec<String>,
    #[prost(message, repeated, tag = "8")]
    parameters: Vec<ParametersItem>,
    #[prost(message, repeated, tag = "13")]
    vendor_extension: Vec<NamedAny>,
}

#[derive(Clone, PartialEq, Message)]
struct ParametersItem {
    #[prost(message, optional, tag = "1")]
    parameter: Option<Parameter>,
}

#[derive(Clone, PartialEq, Message)]
struct Parameter {
    #[prost(message, optional, tag = "2")]
    non_body_parameter: Option<NonBodyParameter>,
}

#[derive(Clone, PartialEq, Message)]
struct NonBodyParameter {
    #[prost(message, optional, tag = "3")]
    query: Option<QueryParameter>,
}

#[derive(Clone, PartialEq, Message)]
struct QueryParameter {
    #[prost(string, tag = "2")]
    r#in: String,
    #[prost(string, tag = "3")]
    description: String,
    #[prost(string, tag = "4")]
    name: String,
    #[prost(string, tag = "6")]
    r#type: String,
}

#[derive(Clone, PartialEq, Message)]
struct Definitions {
    #[prost(message, repeated, tag = "1")]
    additional_properties: Vec<NamedSchema>,
}

#[derive(Clone, PartialEq, Message)]
struct NamedSchema {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Schema>,
}

#[derive(Clone, PartialEq, Message)]
struct Schema {
    #[prost(string, tag = "1")]
    reference: String,
    #[prost(string, tag = "2")]
    format: String,
    #[prost(string, tag = "3")]
    title: String,
    #[prost(string, tag = "4")]
    description: String,
    #[prost(double, tag = "6")]
    multiple_of: f64,
    #[prost(double, tag = "7")]
    maximum: f64,
    #[prost(bool, tag = "8")]
    exclusive_maximum: bool,
    #[prost(double, tag = "9")]
    minimum: f64,
    #[prost(bool, tag = "10")]
    exclusive_minimum: bool,
    #[prost(int64, tag = "11")]
    max_length: i64,
    #[prost(int64, tag = "12")]
    min_length: i64,
    #[prost(string, tag = "13")]
    pattern: String,
    #[prost(int64, tag = "14")]
    max_items: i64,
    #[prost(int64, tag = "15")]
    min_items: i64,
    #[prost(bool, tag = "16")]
    unique_items: bool,
    #[prost(int64, tag = "17")]
    max_properties: i64,
    #[prost(int64, tag = "18")]
    min_properties: i64,
    #[prost(string, repeated, tag = "19")]
    required: Vec<String>,
    #[prost(message, repeated, tag = "20")]
    enumeration: Vec<Any>,
    #[prost(message, optional, tag = "21")]
    additional_properties: Option<AdditionalProperties>,
    #[prost(message, optional, tag = "22")]
    r#type: Option<TypeItem>,
    #[prost(message, optional, tag = "23")]
    items: Option<ItemsItem>,
    #[prost(message, optional, tag = "25")]
    properties: Option<Properties>,
    #[prost(message, repeated, tag = "31")]
    vendor_extension: Vec<NamedAny>,
}

#[derive(Clone, PartialEq, Message)]
struct AdditionalProperties {
    #[prost(message, optional, boxed, tag = "1")]
    schema: Option<Box<Schema>>,
    #[prost(bool, optional, tag = "2")]
    boolean: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeItem {
    #[prost(string, repeated, tag = "1")]
    value: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ItemsItem {
    #[prost(message, repeated, tag = "1")]
    schema: Vec<Schema>,
}

#[derive(Clone, PartialEq, Message)]
struct Properties {
    #[prost(message, repeated, tag = "1")]
    additional_properties: Vec<NamedSchema>,
}

#[derive(Clone, PartialEq, Message)]
struct NamedAny {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "2")]
    yaml: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_keeps_what_clients_read() {
        let document = json!({
            "swagger": "2.0", "info": {"title": "t", "version": "v"},
            "paths": {"/a/{name}": {"patch": {
                "operationId": "o", "parameters": [
                    {"in": "query", "name": "dryRun", "type": "string"}, {"in": "body", "name": "body"},
                ],
                "x-kubernetes-group-version-kind": {"kind": "K"},
            }}},
            "definitions": {"A": {
                "type": "object", "required": ["b"], "x-kubernetes-patch-strategy": "merge",
                "properties": {
                    "b": {"$ref": "#/definitions/B"}, "c": {"type": "array", "items": {"type": "string"}},
                    "d": {"type": "object", "additionalProperties": {"type": "integer"}},
                },
            }},
        });
        let decoded = Document::decode(&*encode(&document)).unwrap();
        let patch = decoded.paths.unwrap().path[0].value.clone().unwrap().patch.unwrap();
        assert_eq!(patch.parameters.len(), 1);
        assert_eq!(patch.vendor_extension[0].value.as_ref().unwrap().yaml, r#"{"kind":"K"}"#);
        let schema = decoded.definitions.unwrap().additional_properties[0].value.clone().unwrap();
        assert_eq!(
            (&*schema.r#type.unwrap().value, &*schema.required),
            (&["object".to_owned()][..], &["b".into()][..])
        );
        let fields = schema.properties.unwrap().additional_properties;
        assert_eq!(fields[0].value.as_ref().unwrap().reference, "#/definitions/B");
        assert_eq!(fields[1].value.as_ref().unwrap().items.as_ref().unwrap().schema.len(), 1);
        assert!(fields[2].value.as_ref().unwrap().additional_properties.as_ref().unwrap().schema.is_some());
    }
}
