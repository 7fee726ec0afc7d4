use serde_json::json;

use super::*;

#[track_caller]
fn check_schema(schema: Value, expect: &[&str]) {
    let causes: Vec<String> = check(&schema, "").0.iter().map(ToString::to_string).collect();
    assert_eq!(causes, expect, "{schema}");
}

/// Wraps a schema as that of `spec`.
fn spec(schema: Value) -> Value {
    json!({"type": "object", "properties": {"spec": schema}})
}

#[test]
fn good_schemas() {
    check_schema(json!({"type": "object"}), &[]);
    check_schema(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), &[]);
    check_schema(
        json!({"type": "object", "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 10}}},
            "spec": {
                "type": "object", "required": ["a"], "oneOf": [{"required": ["a"]}, {"properties": {"b": {"minimum": 1}}}],
                "properties": {
                    "a": {"type": "string", "pattern": "^a", "default": "abc"},
                    "b": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                    "c": {"x-kubernetes-int-or-string": true,
                        "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "%$"}]},
                    "d": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                        "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
                    "e": {"type": "object", "x-kubernetes-embedded-resource": true,
                        "x-kubernetes-preserve-unknown-fields": true},
                    "f": {"type": "object", "additionalProperties": {"type": "string"}},
                },
                "x-kubernetes-validations": [{"rule": "true", "message": "m", "reason": "FieldValueInvalid"}],
            },
        }}),
        &[],
    );
}

#[test]
fn structure() {
    let at = |what: &str| format!("openAPIV3Schema.{what}");
    check_schema(json!({}), &[&at("type: Required value: must not be empty at the root")]);
    check_schema(json!({"type": "string"}), &[&at("type: Invalid value: \"string\": must be object at the root")]);
    check_schema(
        spec(json!({"properties": {"a": {}}})),
        &[
            &at("properties[spec].properties[a].type: Required value: must not be empty for specified object fields"),
            &at("properties[spec].type: Required value: must not be empty for specified object fields"),
        ],
    );
    check_schema(spec(json!({"type": "array"})), &[&at("properties[spec].items: Required value: must be specified")]);
    check_schema(
        spec(json!({"type": "array", "items": {}})),
        &[&at("properties[spec].items.type: Required value: must not be empty for specified array items")],
    );
    check_schema(
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        &[&at("additionalProperties: Forbidden: must not be used at the root")],
    );
    check_schema(
        json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
        &[&at("properties[metadata]: Forbidden: must not specify anything other than name and generateName, but \
               metadata is implicitly specified")],
    );
    let pattern = check(&spec(json!({"type": "string", "pattern": "("})), "").0;
    let expect = at("properties[spec].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: ");
    assert!(pattern[0].to_string().starts_with(&expect), "{}", pattern[0]);
}

#[test]
fn junctors() {
    let at = |what: &str| format!("openAPIV3Schema.properties[spec].{what}");
    check_schema(
        spec(
            json!({"type": "object", "anyOf": [{"type": "object", "default": {}, "description": "d", "nullable": true}]}),
        ),
        &[
            &at("anyOf[0].default: Forbidden: must be undefined to be structural"),
            &at("anyOf[0].description: Forbidden: must be empty to be structural"),
            &at("anyOf[0].nullable: Forbidden: must be false to be structural"),
            &at("anyOf[0].type: Forbidden: must be empty to be structural"),
        ],
    );
    // What junctors below the root constrain need not be specified.
    check_schema(spec(json!({"type": "object", "not": {"properties": {"a": {"minimum": 1}}}})), &[]);
    check_schema(spec(json!({"type": "object", "not": {"additionalProperties": false}})), &[]);
    let root = json!({"type": "object", "anyOf": [{"properties": {"a": {"type": "string"}}}]});
    let causes = check(&root, "spec.validation").0.into_iter().map(|cause| cause.to_string()).collect::<Vec<_>>();
    let place = "spec.validation.openAPIV3Schema";
    let expected = [
        format!("{place}.anyOf[0].properties[a].type: Forbidden: must be empty to be structural"),
        format!("{place}.properties[a]: Required value: because it is defined in {place}.anyOf[0].properties[a]"),
    ];
    assert_eq!(causes, expected);
    check_schema(
        spec(json!({"anyOf": [{"type": "integer"}, {"type": "string"}]})),
        &[&at("type: Required value: must not be empty for specified object fields")],
    );
    check_schema(
        spec(json!({"type": "object", "oneOf": [{"x-kubernetes-list-type": "set"}]})),
        &[
            &at("oneOf[0].x-kubernetes-list-type: Forbidden: must be undefined to be structural"),
            &at("oneOf[0].type: Required value: must be array if x-kubernetes-list-type is specified"),
        ],
    );
    check_schema(
        spec(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "boolean"}]})),
        &[
            &at("anyOf[0].type: Forbidden: must be empty to be structural"),
            &at("anyOf[1].type: Forbidden: must be empty to be structural"),
        ],
    );
}

#[test]
fn keywords() {
    let at = |what: &str| format!("openAPIV3Schema.properties[spec].{what}");
    check_schema(
        spec(json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true, "$ref": "#/x"})),
        &[
            &at("$ref: Forbidden: $ref is not supported"),
            &at(
                "uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ),
        ],
    );
    check_schema(
        spec(
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        ),
        &[&at("additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive")],
    );
    check_schema(
        spec(json!({"type": "float"})),
        &[&at(
            "type: Unsupported value: \"float\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \
               \"object\", \"string\"",
        )],
    );
    check_schema(
        json!({"type": "object", "properties": {"kind": {"type": "string", "default": "K"}}}),
        &["openAPIV3Schema.properties[kind].default: Forbidden: must not be set in top-level kind"],
    );
    check_schema(
        spec(
            json!({"type": "string", "x-kubernetes-validations": [{"rule": " "}, {"rule": "a\nb"}, {"rule": "a", "reason": "No"}]}),
        ),
        &[
            &at("x-kubernetes-validations[0].rule: Required value: rule is not specified"),
            &at(
                "x-kubernetes-validations[1].message: Required value: message must be specified if rule contains line breaks",
            ),
            &at("x-kubernetes-validations[2].reason: Unsupported value: \"No\": supported values: \
                 \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\""),
        ],
    );
}

#[test]
fn unsupported_keywords() {
    check_schema(
        json!({"$schema": "x"}),
        &["openAPIV3Schema: Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported"],
    );
    // The structure of a schema with an unsupported keyword isn't checked.
    check_schema(json!({"id": "x"}), &["openAPIV3Schema.id: Forbidden: id is not supported"]);
    let types = "supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"";
    check_schema(
        spec(json!({"type": "null"})),
        &[
            &format!("openAPIV3Schema.properties[spec].type: Unsupported value: \"null\": {types}"),
            "openAPIV3Schema.properties[spec].type: Forbidden: type cannot be set to null, use nullable as an alternative",
        ],
    );
}

#[test]
fn rules() {
    let at = |what: &str| format!("openAPIV3Schema.properties[spec].x-kubernetes-validations[0].{what}");
    let check_rule = |rule: Value, expect: &[&str]| {
        let properties = json!({
            "a": {"type": "object", "additionalProperties": {"type": "string"}}, "b.c": {"type": "string"}, "d": {"type": "string"},
        });
        let schema = json!({"type": "object", "properties": properties, "x-kubernetes-validations": [rule]});
        check_schema(spec(schema), expect);
    };
    for path in [".a", ".a.x", ".a['x.y']", "['b.c']", "['a'].x"] {
        check_rule(json!({"rule": "true", "fieldPath": path}), &[]);
    }
    for path in ["a", ".z", ".", ".d.x", ".a[x]", "['b.c'", "['\\q']"] {
        let why = format!("Invalid value: {}: must be a valid path", json!(path));
        check_rule(json!({"rule": "true", "fieldPath": path}), &[&at(&format!("fieldPath: {why}"))]);
    }
    let why = "message: Invalid value: \"a\\nb\": must not contain line breaks";
    check_rule(json!({"rule": "true", "message": "a\nb"}), &[&at(why)]);
    let why = "message: Invalid value: \" \": must be non-empty if specified";
    check_rule(json!({"rule": "true", "message": " "}), &[&at(why)]);
}

#[test]
fn list_types() {
    let at = |what: &str| format!("openAPIV3Schema.properties[spec].{what}");
    check_schema(
        spec(json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"})),
        &[&at("x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map")],
    );
    check_schema(
        spec(json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "none"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}}}})),
        &[
            &at(
                "x-kubernetes-list-map-keys: Invalid value: [\"k\",\"none\"]: entries must all be names of item properties",
            ),
            &at("items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it \
                 must have a default or be a required property"),
        ],
    );
    check_schema(
        spec(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}})),
        &[&at("items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with \
               x-kubernetes-list-type=set")],
    );
    check_schema(
        spec(json!({"type": "object", "x-kubernetes-list-type": "set"})),
        &[&at("type: Invalid value: \"object\": must be array if x-kubernetes-list-type is specified")],
    );
    check_schema(
        spec(json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["a"]})),
        &[&at("x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty")],
    );
}

#[test]
fn defaults() {
    let at = |what: &str| format!("openAPIV3Schema.properties[spec].{what}");
    check_schema(
        spec(json!({"type": "integer", "default": "a"})),
        &[&at("default: Invalid value: \"string\":  in body must be of type integer: \"string\"")],
    );
    check_schema(
        spec(
            json!({"type": "object", "default": {"b": 1, "a": 0}, "properties": {"a": {"type": "integer", "minimum": 1}}}),
        ),
        &[
            &at("default: Invalid value: {\"a\":0,\"b\":1}: must not have unknown fields"),
            &at("default.a: Invalid value: 0: a in body should be greater than or equal to 1"),
        ],
    );
    check_schema(
        spec(json!({"type": "integer", "default": 1.5})),
        &[
            &at("default: Invalid value: \"number\":  in body must be of type integer: \"number\""),
            &at("default: Invalid value: \"\": Checked value must be of type integer (default format) in "),
        ],
    );
    check_schema(
        json!({"type": "object", "default": {}}),
        &["openAPIV3Schema.default.apiVersion: Required value", "openAPIV3Schema.default.kind: Required value"],
    );
    check_schema(spec(json!({"type": "object", "additionalProperties": {"type": "string", "default": 5}})), &[]);
}

/// The errors are those of Kubernetes 1.36.3.
#[test]
fn defaults_of_metadata_may_have_unknown_fields() {
    let resource = |metadata: Value| {
        spec(json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"metadata": metadata}}))
    };
    let unknown = json!({"name": "a", "odd": "x"});
    check_schema(resource(json!({"type": "object", "default": unknown})), &[]);
    check_schema(
        resource(json!({"type": "object", "properties": {"labels": {"type": "object", "default": unknown}}})),
        &[],
    );
    let metadata = json!({"metadata": {"type": "object", "default": unknown}});
    check_schema(
        spec(json!({"type": "object", "properties": metadata})),
        &[
            "openAPIV3Schema.properties[spec].properties[metadata].default: Invalid value: {\"name\":\"a\",\"odd\":\"x\"}: \
           must not have unknown fields",
        ],
    );
}

#[test]
fn defaults_follow_the_rules_of_their_schema() {
    let at = |what: &str| format!("openAPIV3Schema.properties[spec].{what}");
    let rules = |rule: Value| json!([rule]);
    let own = |of: &str, default: Value, rule: Value| json!({"type": of, "default": default, "x-kubernetes-validations": rules(rule)});
    let not_y = json!({"rule": "self == \"y\""});
    let failed = "Invalid value: \"x\": failed rule: self == \"y\"";
    check_schema(spec(own("string", json!("x"), not_y.clone())), &[&at(&format!("default: {failed}"))]);
    let inner = json!({"type": "string", "x-kubernetes-validations": rules(not_y)});
    check_schema(
        spec(json!({"type": "object", "default": {"a": "x"}, "properties": {"a": inner}})),
        &[&at(&format!("default.a: {failed}"))],
    );
    // Nested defaults aren't set.
    check_schema(
        spec(json!({
            "type": "object", "default": {}, "properties": {"a": {"type": "string", "default": "y"}},
            "x-kubernetes-validations": rules(json!({"rule": "self.a == \"y\""})),
        })),
        &[&at("default: Invalid value: \"object\": no such key: a evaluating rule: self.a == \"y\"")],
    );
    let forbidden = json!({"rule": "self == \"y\"", "message": "mm", "reason": "FieldValueForbidden"});
    check_schema(spec(own("string", json!("x"), forbidden)), &[&at("default: Forbidden: mm")]);
    let transition = json!({"rule": "self == oldSelf"});
    check_schema(spec(own("string", json!("x"), transition)), &[]);
    let division = json!({"rule": "self / 0 == 1"});
    check_schema(
        spec(own("integer", json!(5), division)),
        &[&at("default: Invalid value: \"integer\": division by zero evaluating rule: self / 0 == 1")],
    );
}

#[test]
fn a_deep_schema_is_refused() {
    let deep = (0..depth::LIMIT).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    assert!(check(&deep, "").0[0].to_string().contains("must not nest deeper"));
}

#[test]
fn a_document_without_a_meaning_is_not_parsed() {
    let causes = parse(&json!({"type": "object", "properties": {"a": {"type": "strnig"}}})).unwrap_err();
    assert_eq!(
        causes[0].to_string(),
        "openAPIV3Schema.properties[a].type: Unsupported value: \"strnig\": supported values: \
         \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\""
    );
    let deep = (0..depth::LIMIT).fold(json!({}), |inner, _| json!({"items": inner}));
    assert!(parse(&deep).unwrap_err()[0].to_string().contains("must not nest deeper"));
}
