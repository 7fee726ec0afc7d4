//! OpenAPI v2 in protobuf: the part of gnostic's `openapi.v2.Document` that kubectl reads
//! (<https://github.com/google/gnostic-models/blob/main/openapiv2/OpenAPIv2.proto>), whose field numbers these are.
//!
//! Paths contain operations with their query parameters and extensions, without responses and bodies.

use serde_json::Value;

/// Encodes a v2 document.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let info = Message::default().text(1, &document["info"]["title"]).text(2, &document["info"]["version"]);
    let paths = each(&document["paths"]).fold(Message::default(), |paths, (name, item)| {
        paths.message(2, Message::default().string(1, name).message(2, path_item(item)))
    });
    let document = Message::default()
        .text(1, &document["swagger"])
        .message(2, info)
        .message(8, paths)
        .message(9, named_schemas(&document["definitions"]));
    document.0
}

fn each(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// `PathItem`.
fn path_item(item: &Value) -> Message {
    let methods = [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")];
    methods.into_iter().fold(Message::default(), |path, (number, method)| match item.get(method) {
        Some(operation) => path.message(number, self::operation(operation)),
        None => path,
    })
}

/// `Operation`.
fn operation(operation: &Value) -> Message {
    let mut message = Message::default()
        .text(3, &operation["description"])
        .text(5, &operation["operationId"])
        .texts(6, &operation["produces"])
        .texts(7, &operation["consumes"]);
    for parameter in items(&operation["parameters"]).filter(|parameter| parameter["in"] == "query") {
        // `ParametersItem`, `Parameter`, `NonBodyParameter` and `QueryParameterSubSchema`.
        let query = Message::default()
            .text(2, &parameter["in"])
            .text(3, &parameter["description"])
            .text(4, &parameter["name"])
            .text(6, &parameter["type"]);
        message = message.message(8, query.within(3).within(2).within(1));
    }
    extensions(message, 13, operation)
}

/// `Any`: a value without a fixed schema as YAML, of which JSON is a subset.
fn any(value: &Value) -> Message {
    Message::default().string(2, &value.to_string())
}

/// Adds extensions as fields of type `NamedAny`.
fn extensions(message: Message, number: u32, value: &Value) -> Message {
    each(value).filter(|(name, _)| name.starts_with("x-")).fold(message, |message, (name, value)| {
        message.message(number, Message::default().string(1, name).message(2, any(value)))
    })
}

/// `Definitions` and `Properties`.
fn named_schemas(schemas: &Value) -> Message {
    each(schemas).fold(Message::default(), |message, (name, value)| {
        message.message(1, Message::default().string(1, name).message(2, schema(value)))
    })
}

/// `Schema`.
fn schema(value: &Value) -> Message {
    let mut message = Message::default()
        .text(1, &value["$ref"])
        .text(2, &value["format"])
        .text(3, &value["title"])
        .text(4, &value["description"])
        .number(6, &value["multipleOf"])
        .number(7, &value["maximum"])
        .flag(8, &value["exclusiveMaximum"])
        .number(9, &value["minimum"])
        .flag(10, &value["exclusiveMinimum"])
        .count(11, &value["maxLength"])
        .count(12, &value["minLength"])
        .text(13, &value["pattern"])
        .count(14, &value["maxItems"])
        .count(15, &value["minItems"])
        .flag(16, &value["uniqueItems"])
        .count(17, &value["maxProperties"])
        .count(18, &value["minProperties"])
        .texts(19, &value["required"]);
    for allowed in items(&value["enum"]) {
        message = message.message(20, any(allowed));
    }
    match &value["additionalProperties"] {
        // One of two fields, so `false` is encoded too.
        Value::Bool(allowed) => message = message.message(21, Message::default().varint(2, u64::from(*allowed))),
        schema @ Value::Object(_) => message = message.message(21, self::schema(schema).within(1)),
        _ => {}
    }
    if value["type"].is_string() {
        message = message.message(22, Message::default().text(1, &value["type"]));
    }
    if let Some(items) = value.get("items") {
        message = message.message(23, schema(items).within(1));
    }
    if let Some(properties) = value.get("properties") {
        message = message.message(25, named_schemas(properties));
    }
    extensions(message, 31, value)
}

/// A message in the [wire format](https://protobuf.dev/programming-guides/encoding/). As in proto3, zeros and empty
/// strings are omitted.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn text(self, number: u32, value: &Value) -> Self {
        self.string(number, value.as_str().unwrap_or_default())
    }

    fn string(self, number: u32, text: &str) -> Self {
        if text.is_empty() { self } else { self.bytes(number, text.as_bytes()) }
    }

    /// Adds a repeated string.
    fn texts(self, number: u32, values: &Value) -> Self {
        let texts = items(values).filter_map(Value::as_str);
        texts.fold(self, |message, text| message.bytes(number, text.as_bytes()))
    }

    fn message(self, number: u32, message: Self) -> Self {
        self.bytes(number, &message.0)
    }

    /// Returns a message that contains only this one.
    fn within(self, number: u32) -> Self {
        Self::default().message(number, self)
    }

    fn flag(self, number: u32, value: &Value) -> Self {
        if value == true { self.varint(number, 1) } else { self }
    }

    fn count(self, number: u32, value: &Value) -> Self {
        match value.as_i64() {
            None | Some(0) => self,
            Some(count) => self.varint(number, count.cast_unsigned()),
        }
    }

    fn number(mut self, number: u32, value: &Value) -> Self {
        if let Some(value) = value.as_f64().filter(|value| *value != 0.0) {
            self.push_key(number, 1);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
        self
    }

    fn varint(mut self, number: u32, value: u64) -> Self {
        self.push_key(number, 0);
        self.push_varint(value);
        self
    }

    fn bytes(mut self, number: u32, bytes: &[u8]) -> Self {
        self.push_key(number, 2);
        self.push_varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn push_key(&mut self, number: u32, wire_type: u32) {
        self.push_varint(u64::from(number << 3 | wire_type));
    }

    fn push_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use serde_json::json;

    use super::*;

    #[derive(Clone, PartialEq, prost::Message)]
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

    #[derive(Clone, PartialEq, prost::Message)]
    struct Info {
        #[prost(string, tag = "1")]
        title: String,
        #[prost(string, tag = "2")]
        version: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Paths {
        #[prost(message, repeated, tag = "2")]
        path: Vec<NamedPathItem>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct NamedPathItem {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, optional, tag = "2")]
        value: Option<PathItem>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
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

    #[derive(Clone, PartialEq, prost::Message)]
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

    #[derive(Clone, PartialEq, prost::Message)]
    struct ParametersItem {
        #[prost(message, optional, tag = "1")]
        parameter: Option<Parameter>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Parameter {
        #[prost(message, optional, tag = "2")]
        non_body_parameter: Option<NonBodyParameter>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct NonBodyParameter {
        #[prost(message, optional, tag = "3")]
        query: Option<QueryParameter>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
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

    #[derive(Clone, PartialEq, prost::Message)]
    struct Definitions {
        #[prost(message, repeated, tag = "1")]
        additional_properties: Vec<NamedSchema>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct NamedSchema {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, optional, tag = "2")]
        value: Option<Schema>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
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

    #[derive(Clone, PartialEq, prost::Message)]
    struct AdditionalProperties {
        #[prost(message, optional, boxed, tag = "1")]
        schema: Option<Box<Schema>>,
        #[prost(bool, optional, tag = "2")]
        boolean: Option<bool>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct TypeItem {
        #[prost(string, repeated, tag = "1")]
        value: Vec<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct ItemsItem {
        #[prost(message, repeated, tag = "1")]
        schema: Vec<Schema>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Properties {
        #[prost(message, repeated, tag = "1")]
        additional_properties: Vec<NamedSchema>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct NamedAny {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, optional, tag = "2")]
        value: Option<Any>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Any {
        #[prost(string, tag = "2")]
        yaml: String,
    }

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
                    "e": {
                        "additionalProperties": false, "description": "ü", "enum": ["a", 1, null], "exclusiveMaximum": true,
                        "exclusiveMinimum": false, "format": "f", "maxItems": 300, "maxLength": -1, "maximum": 1.5,
                        "minProperties": 0, "minimum": -2, "multipleOf": 0, "pattern": "^a$", "title": "t",
                        "uniqueItems": true,
                    },
                },
            }},
        });
        let encoded = encode(&document);
        let decoded = Document::decode(&*encoded).unwrap();
        // All fields are known, and in the order of their numbers.
        assert_eq!(decoded.encode_to_vec(), encoded);
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
        let full = fields[3].value.clone().unwrap();
        assert_eq!(full.additional_properties.unwrap().boolean, Some(false));
        let allowed = full.enumeration.iter().map(|any| any.yaml.as_str()).collect::<Vec<_>>();
        assert_eq!((allowed, full.description.as_str()), (vec!["\"a\"", "1", "null"], "ü"));
        assert_eq!((full.max_items, full.max_length, full.maximum, full.minimum), (300, -1, 1.5, -2.0));
        assert!(full.exclusive_maximum && full.unique_items && !full.exclusive_minimum);
    }
}
