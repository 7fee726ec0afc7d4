//! OpenAPI documents for [`Schema`]s, as Kubernetes publishes them.

use serde_json::{Map, Number, Value, json};

use super::{Additional, Kind, Limits, List, OBJECT_META, Rule, Schema};

/// The page to which descriptions refer.
const CONVENTIONS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// Returns the schema in OpenAPI v3, as an entry of `components.schemas` or a part of one.
pub fn openapi_v3(schema: &Schema) -> Value {
    Dialect::V3.schema(schema)
}

/// Returns the schema in OpenAPI v2, as an entry of `definitions` or a part of one.
///
/// Constraints that v2 can't express are omitted, so that clients accept everything that the server accepts:
/// combinations, defaults, and the structure and types of values that may be null or have unknown fields. Of a kind
/// with unknown fields, nothing is left but its name.
pub fn openapi_v2(schema: &Schema) -> Value {
    if schema.preserve_unknown && !schema.group_version_kind.is_empty() {
        let group_version_kind = schema.group_version_kind.clone();
        return Dialect::V2.schema(&Schema { kind: Some(Kind::Object), group_version_kind, ..Schema::default() });
    }
    Dialect::V2.schema(schema)
}

#[derive(Clone, Copy, PartialEq)]
enum Dialect {
    V2,
    V3,
}

impl Dialect {
    fn schema(self, schema: &Schema) -> Value {
        let mut out = Out(Map::new());
        out.put("description", schema.description.as_deref().map(Value::from));
        if self == Self::V3 {
            out.put("default", schema.default.clone());
        }
        if let Some(name) = &schema.reference {
            extensions(schema, &mut out);
            return self.reference(name, out);
        }
        let is_v3 = self == Self::V3;
        out.put("title", schema.title.as_deref().map(Value::from));
        if is_v3 || !is_untyped(schema) {
            out.put("type", schema.kind.map(|kind| kind.as_str().into()));
        }
        out.put("format", schema.format.as_deref().map(Value::from));
        self.structure(schema, &mut out);
        // With them, kubectl would refuse unknown fields.
        let embeds = schema.embedded_resource && (is_v3 || !schema.preserve_unknown);
        if embeds {
            self.embed(&mut out);
        }
        if is_v3 {
            out.flag("nullable", schema.nullable);
            let list = |schemas: &[Schema]| {
                (!schemas.is_empty()).then(|| schemas.iter().map(|schema| self.schema(schema)).collect())
            };
            out.put("allOf", list(&schema.logic.all_of));
            out.put("anyOf", list(&schema.logic.any_of));
            if schema.int_or_string {
                either_type(&mut out);
            }
            out.put("oneOf", list(&schema.logic.one_of));
            out.put("not", schema.logic.not.as_deref().map(|schema| self.schema(schema)));
        }
        let own = self.required(schema).map(String::as_str);
        let missing = ["kind", "apiVersion"].into_iter().filter(|name| !schema.required.iter().any(|own| own == name));
        out.texts("required", own.chain(missing.filter(|_| embeds)));
        out.put("example", schema.example.clone());
        out.put("externalDocs", schema.external_docs.as_deref().cloned());
        limits(&schema.limits, &mut out);
        extensions(schema, &mut out);
        Value::Object(out.0)
    }

    /// Returns a reference. `$ref` may have siblings only in v2; v3 needs a wrapper for them.
    fn reference(self, name: &str, mut out: Out) -> Value {
        match self {
            Self::V2 => out.put("$ref", Some(format!("#/definitions/{name}").into())),
            Self::V3 => {
                let target = format!("#/components/schemas/{name}");
                if out.0.is_empty() {
                    out.put("$ref", Some(target.into()));
                } else {
                    out.put("allOf", Some(json!([{ "$ref": target }])));
                }
            }
        }
        Value::Object(out.0)
    }

    /// Adds the fields that each object in a field has.
    fn embed(self, out: &mut Out) {
        let described = |text: &str, section: &str| json!(format!("{text} More info: {CONVENTIONS}#{section}"));
        let version =
            described("apiVersion defines the versioned schema of this representation of an object.", "resources");
        let kind =
            described("kind is a string value representing the type of this object. In CamelCase.", "types-kinds");
        let mut metadata = Out(Map::new());
        metadata.put("description", Some(described("Standard object's metadata.", "metadata")));
        let fields = out.0.entry("properties").or_insert_with(|| json!({}));
        fields["apiVersion"] = json!({"type": "string", "description": version});
        fields["kind"] = json!({"type": "string", "description": kind});
        fields["metadata"] = self.reference(OBJECT_META, metadata);
    }

    fn structure(self, schema: &Schema, out: &mut Out) {
        let is_open = self.is_open(schema);
        if !schema.properties.is_empty() && !is_open {
            let fields = schema.properties.iter().map(|(name, schema)| (name.clone(), self.schema(schema)));
            out.put("properties", Some(Value::Object(fields.collect())));
        }
        match &schema.additional {
            Additional::Unspecified => {}
            Additional::Allowed(allowed) => out.put("additionalProperties", Some((*allowed).into())),
            Additional::Schema(schema) => out.put("additionalProperties", Some(self.schema(schema))),
        }
        out.put("items", schema.items.as_deref().filter(|_| !is_open).map(|schema| self.schema(schema)));
    }

    /// Returns whether v2 clients must not know the fields or items of a value: it may be null or have unknown fields.
    fn is_open(self, schema: &Schema) -> bool {
        self == Self::V2 && (schema.nullable || schema.preserve_unknown)
    }

    /// Returns the required fields. v2 clients don't know null, so they must not require a declared field that may be
    /// null, nor any field if the undeclared ones may be.
    fn required(self, schema: &Schema) -> impl Iterator<Item = &String> {
        let is_known = self == Self::V2 && !self.is_open(schema);
        let may_be_null = move |field: &String| schema.properties.get(field).is_some_and(|field| field.nullable);
        let others = matches!(&schema.additional, Additional::Schema(schema) if schema.nullable) && self == Self::V2;
        schema.required.iter().filter(move |field| !(others || is_known && may_be_null(field)))
    }
}

/// Adds the types of a value that is an integer or a string, unless `anyOf` has them there already, or that of the
/// first part of `allOf`.
fn either_type(out: &mut Out) {
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    if out.0.get("anyOf") == Some(&either) || out.0.get("allOf").is_some_and(|all| all[0].get("anyOf") == Some(&either))
    {
        return;
    }
    match out.0.contains_key("anyOf") {
        false => out.put("anyOf", Some(either)),
        true => {
            let own = out.0.remove("allOf").and_then(|own| own.as_array().cloned()).unwrap_or_default();
            let all = [json!({"anyOf": either})].into_iter().chain(own);
            out.put("allOf", Some(all.collect()));
        }
    }
}

/// Returns whether v2 clients must not know the type of a value: it may be null, an object with unknown fields, or a
/// list without a schema of its items, which they can't read.
fn is_untyped(schema: &Schema) -> bool {
    schema.nullable
        || schema.preserve_unknown && matches!(schema.kind, Some(Kind::Object | Kind::Array))
        || schema.kind == Some(Kind::Array) && schema.items.is_none()
}

/// The members of a document, without absent ones.
struct Out(Map<String, Value>);

impl Out {
    fn put(&mut self, name: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.0.insert(name.into(), value);
        }
    }

    fn flag(&mut self, name: &str, set: bool) {
        self.put(name, set.then_some(Value::Bool(true)));
    }

    fn texts<'a>(&mut self, name: &str, texts: impl IntoIterator<Item = &'a str>) {
        let texts: Vec<Value> = texts.into_iter().map(Into::into).collect();
        self.put(name, (!texts.is_empty()).then_some(texts.into()));
    }
}

/// Returns a number, without a fraction if it is whole, as in Kubernetes' documents.
pub(super) fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        Value::from(value as i64)
    } else {
        Number::from_f64(value).map_or(Value::Null, Value::Number)
    }
}

fn limits(limits: &Limits, out: &mut Out) {
    out.put("minimum", limits.minimum.map(number));
    out.put("maximum", limits.maximum.map(number));
    out.flag("exclusiveMinimum", limits.exclusive_minimum);
    out.flag("exclusiveMaximum", limits.exclusive_maximum);
    out.put("multipleOf", limits.multiple_of.map(number));
    out.put("minLength", limits.min_length.map(Value::from));
    out.put("maxLength", limits.max_length.map(Value::from));
    out.put("minItems", limits.min_items.map(Value::from));
    out.put("maxItems", limits.max_items.map(Value::from));
    out.flag("uniqueItems", limits.unique_items);
    out.put("minProperties", limits.min_properties.map(Value::from));
    out.put("maxProperties", limits.max_properties.map(Value::from));
    out.put("pattern", limits.pattern.as_deref().map(Value::from));
    out.put("enum", limits.enum_values.clone().map(Value::from));
}

fn extensions(schema: &Schema, out: &mut Out) {
    out.flag("x-kubernetes-int-or-string", schema.int_or_string);
    out.flag("x-kubernetes-preserve-unknown-fields", schema.preserve_unknown);
    out.flag("x-kubernetes-embedded-resource", schema.embedded_resource);
    match &schema.list {
        List::Unspecified => {}
        List::Atomic => out.put("x-kubernetes-list-type", Some("atomic".into())),
        List::Set => out.put("x-kubernetes-list-type", Some("set".into())),
        List::Map(keys) => {
            out.put("x-kubernetes-list-type", Some("map".into()));
            out.texts("x-kubernetes-list-map-keys", keys.iter().map(String::as_str));
        }
    }
    out.put("x-kubernetes-map-type", schema.atomic_map.map(|atomic| if atomic { "atomic" } else { "granular" }.into()));
    let strategy = (!schema.patch_strategy.is_empty()).then(|| schema.patch_strategy.join(",").into());
    out.put("x-kubernetes-patch-strategy", strategy);
    out.put("x-kubernetes-patch-merge-key", schema.patch_merge_key.as_deref().map(Value::from));
    out.put("x-kubernetes-validations", (!schema.rules.is_empty()).then(|| schema.rules.iter().map(rule).collect()));
    if !schema.group_version_kind.is_empty() {
        let kinds = schema.group_version_kind.iter();
        let kinds = kinds.map(|(group, version, kind)| json!({"group": group, "version": version, "kind": kind}));
        out.put("x-kubernetes-group-version-kind", Some(kinds.collect()));
    }
}

fn rule(rule: &Rule) -> Value {
    let mut out = Out(Map::new());
    out.put("rule", Some(rule.rule.as_str().into()));
    out.put("message", rule.message.as_deref().map(Value::from));
    out.put("messageExpression", rule.message_expression.as_deref().map(Value::from));
    out.put("reason", rule.reason.as_deref().map(Value::from));
    out.put("fieldPath", rule.field_path.as_deref().map(Value::from));
    out.put("optionalOldSelf", rule.optional_old_self.map(Value::from));
    Value::Object(out.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::parse::from_openapi;

    #[track_caller]
    fn check(document: Value, v3: Value, v2: Value) {
        let schema = from_openapi(&document);
        assert_eq!(openapi_v3(&schema), v3);
        assert_eq!(openapi_v2(&schema), v2);
        assert_eq!(from_openapi(&v3), schema, "v3 loses nothing");
    }

    #[test]
    fn references() {
        check(
            json!({"$ref": "#/$defs/X"}),
            json!({"$ref": "#/components/schemas/X"}),
            json!({"$ref": "#/definitions/X"}),
        );
        check(
            json!({"$ref": "#/$defs/X", "x-kubernetes-patch-strategy": "retainKeys", "x-kubernetes-map-type": "granular"}),
            json!({"allOf": [{"$ref": "#/components/schemas/X"}], "x-kubernetes-patch-strategy": "retainKeys",
                "x-kubernetes-map-type": "granular"}),
            json!({"$ref": "#/definitions/X", "x-kubernetes-patch-strategy": "retainKeys",
                "x-kubernetes-map-type": "granular"}),
        );
        check(
            json!({"$ref": "#/$defs/X", "description": "d", "default": {}}),
            json!({"allOf": [{"$ref": "#/components/schemas/X"}], "description": "d", "default": {}}),
            json!({"$ref": "#/definitions/X", "description": "d"}),
        );
    }

    #[test]
    fn everything_survives_v3() {
        let conventions = |text: &str, section: &str| format!("{text} More info: {CONVENTIONS}#{section}");
        let version = "apiVersion defines the versioned schema of this representation of an object.";
        let kind = "kind is a string value representing the type of this object. In CamelCase.";
        let embedded = json!({
            "apiVersion": {"type": "string", "description": conventions(version, "resources")},
            "kind": {"type": "string", "description": conventions(kind, "types-kinds")},
            "metadata": {"description": conventions("Standard object's metadata.", "metadata"),
                "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]},
        });
        let document = json!({
            "title": "t", "description": "d", "type": "object", "nullable": true, "example": {"a": 1},
            "externalDocs": {"url": "https://example.com"},
            "properties": {
                "n": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9.5, "exclusiveMinimum": true,
                    "exclusiveMaximum": true, "multipleOf": 0.5, "default": 3},
                "s": {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^a", "enum": ["a", "b"]},
                "l": {"type": "array", "items": {"type": "object", "x-kubernetes-map-type": "atomic"}, "minItems": 1,
                    "maxItems": 2, "uniqueItems": true, "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["a"], "x-kubernetes-patch-strategy": "merge,retainKeys",
                    "x-kubernetes-patch-merge-key": "a"},
                "m": {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1,
                    "maxProperties": 2},
                "x": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "e": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true, "required": ["kind", "apiVersion"],
                    "properties": embedded},
                "c": {"oneOf": [{"required": ["a"]}], "allOf": [{"minimum": 1}, {"maximum": 2}], "not": {"enum": [1]}},
                "f": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "g": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
            },
            "required": ["n"],
            "x-kubernetes-validations": [{"rule": "r", "message": "m", "messageExpression": "e", "reason": "f",
                "fieldPath": ".a", "optionalOldSelf": true}],
            "x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "K"}],
        });
        assert_eq!(openapi_v3(&from_openapi(&document)), document);
    }

    #[test]
    fn v2_says_less() {
        check(
            json!({"type": "object", "properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"]}),
            json!({"type": "object", "properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"]}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
        );
        check(
            json!({"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}}),
            json!({"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}}),
            json!({}),
        );
        let map = json!({"type": "object", "nullable": true, "additionalProperties": {"type": "string"}});
        check(map.clone(), map, json!({"additionalProperties": {"type": "string"}}));
        check(
            json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true}),
            json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true}),
            json!({"x-kubernetes-int-or-string": true}),
        );
        let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        check(free.clone(), free, json!({"x-kubernetes-preserve-unknown-fields": true}));
        check(json!({"type": "array"}), json!({"type": "array"}), json!({}));
        let nullable =
            json!({"type": "object", "properties": {"a": {"type": "string", "nullable": true}}, "required": ["a"]});
        check(nullable.clone(), nullable, json!({"type": "object", "properties": {"a": {}}}));
        let open = json!({"type": "object", "nullable": true, "required": ["a"],
            "properties": {"a": {"type": "string", "nullable": true}}});
        check(open.clone(), open, json!({"required": ["a"]}));
        let others = json!({"type": "object", "required": ["a"],
            "additionalProperties": {"type": "string", "nullable": true}});
        check(others.clone(), others, json!({"type": "object", "additionalProperties": {}}));
        let kinds = json!([{"group": "g", "version": "v1", "kind": "K"}]);
        let root = json!({"type": "object", "description": "d", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"a": {"type": "string"}}, "x-kubernetes-group-version-kind": kinds});
        check(root.clone(), root, json!({"type": "object", "x-kubernetes-group-version-kind": kinds}));
    }

    #[test]
    fn what_kubernetes_adds() {
        let schema = from_openapi(&json!({"x-kubernetes-int-or-string": true}));
        let either = json!([{"type": "integer"}, {"type": "string"}]);
        assert_eq!(openapi_v3(&schema), json!({"anyOf": either, "x-kubernetes-int-or-string": true}));
        let schema =
            from_openapi(&json!({"x-kubernetes-int-or-string": true, "anyOf": [{"minimum": 1}, {"pattern": "a"}],
            "allOf": [{"maximum": 9}]}));
        assert_eq!(openapi_v3(&schema)["allOf"], json!([{"anyOf": either}, {"maximum": 9}]));
        let complete = json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": either}]});
        assert_eq!(openapi_v3(&from_openapi(&complete)), complete);
        let schema =
            from_openapi(&json!({"type": "object", "x-kubernetes-embedded-resource": true, "required": ["kind"]}));
        for added in [openapi_v3(&schema), openapi_v2(&schema)] {
            assert_eq!(added["required"], json!(["kind", "apiVersion"]));
            let names = added["properties"].as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>();
            assert_eq!(names, ["apiVersion", "kind", "metadata"]);
        }
    }
}
