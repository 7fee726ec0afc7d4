use serde_json::json;

use super::*;
use crate::schema::{Definitions, parse::from_openapi};

#[track_caller]
fn check(schema: Value, value: Value, expect: &[&str]) {
    check_update(schema, None, value, expect);
}

#[track_caller]
fn check_update(schema: Value, old: Option<Value>, value: Value, expect: &[&str]) {
    let schema = from_openapi(&schema);
    let definitions = Definitions::default();
    let causes = validate(Node::new(&schema, &definitions), &value, old.as_ref());
    assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), expect, "{value}");
}

/// Wraps a schema as that of `spec.x`.
fn spec(x: Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": x}}}})
}

fn of(x: Value) -> Value {
    json!({"spec": {"x": x}})
}

#[test]
fn types() {
    let check = |schema: Value, value: Value, what: &str| {
        check(spec(schema), of(value), &[&format!("spec.x: Invalid value: {what}")]);
    };
    check(json!({"type": "integer"}), json!("a"), r#""string": spec.x in body must be of type integer: "string""#);
    check(json!({"type": "string"}), json!(1), r#""integer": spec.x in body must be of type string: "integer""#);
    check(json!({"type": "string"}), json!(null), r#""null": spec.x in body must be of type string: "null""#);
    check(json!({"type": "array"}), json!({}), r#""object": spec.x in body must be of type array: "object""#);
    check(json!({"type": "object"}), json!([]), r#""array": spec.x in body must be of type object: "array""#);
    check(json!({"type": "boolean"}), json!("true"), r#""string": spec.x in body must be of type boolean: "string""#);
    check(
        json!({"x-kubernetes-int-or-string": true}),
        json!(true),
        r#""boolean": spec.x in body must be of type integer,string: "boolean""#,
    );
}

#[test]
fn multiples_of_large_numbers() {
    let schema = spec(json!({"type": "number", "multipleOf": 0.5}));
    check(schema.clone(), of(json!(4_503_599_627_370_495.0)), &[]);
    let definitions = Definitions::default();
    let schema = from_openapi(&schema);
    let causes = validate(Node::new(&schema, &definitions), &of(json!(1e30)), None);
    assert_eq!(causes.len(), 1);
    assert!(causes[0].message.ends_with("spec.x in body should be a multiple of 0.5"), "{}", causes[0]);
}

#[test]
fn numbers_that_are_no_integers() {
    check(
        spec(json!({"type": "integer"})),
        of(json!(1.5)),
        &[
            r#"spec.x: Invalid value: "number": spec.x in body must be of type integer: "number""#,
            r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.x"#,
        ],
    );
    check(
        spec(json!({"type": "integer", "format": "int64"})),
        of(json!(0.5)),
        &[
            r#"spec.x: Invalid value: "float64": spec.x in body must be of type int64: "float64""#,
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int64 in spec.x"#,
        ],
    );
}

#[test]
fn floats_beyond_the_exact_range_are_no_integers() {
    let wrong = r#"spec.x: Invalid value: "number": spec.x in body must be of type integer: "number""#;
    let range = r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.x"#;
    let integer = || spec(json!({"type": "integer"}));
    check(integer(), of(json!(9_007_199_254_740_991.0)), &[]);
    check(integer(), of(json!(1e18)), &[wrong]);
    check(integer(), of(json!(9_223_372_036_854_775_808.0)), &[wrong, range]);
    check(integer(), of(json!(i64::MAX)), &[]);
}

#[test]
fn fitting_types() {
    for (schema, value) in [
        (json!({"type": "integer"}), json!(1.0)),
        (json!({"type": "number"}), json!(1)),
        (json!({"type": "string", "nullable": true}), json!(null)),
        (json!({"x-kubernetes-int-or-string": true}), json!("50%")),
        (json!({"x-kubernetes-int-or-string": true}), json!(5)),
        (json!({}), json!([{}, null])),
    ] {
        check(spec(schema), of(value), &[]);
    }
    check(
        json!({"type": "object"}),
        json!([]),
        &[r#"Invalid value: "array":  in body must be of type object: "array""#],
    );
}

#[test]
fn numbers() {
    let check = |limit: Value, value: Value, what: &str| {
        let why = format!("spec.x: Invalid value: {value}: spec.x in body should be {what}");
        check(spec(limit), of(value), &[&why]);
    };
    check(json!({"type": "integer", "minimum": 1}), json!(0), "greater than or equal to 1");
    check(json!({"minimum": 0.5, "exclusiveMinimum": true}), json!(0.5), "greater than 0.5");
    check(json!({"maximum": 3}), json!(4), "less than or equal to 3");
    check(json!({"maximum": 3, "exclusiveMaximum": true}), json!(3), "less than 3");
    check(json!({"multipleOf": 5}), json!(7), "a multiple of 5");
    super::tests::check(spec(json!({"multipleOf": 0.1})), of(json!(0.3)), &[]);
    let range =
        |format: &str| format!("<nil>: Invalid value: \"\": Checked value must be of type integer {format} in spec.x");
    let int32 = json!({"type": "integer", "format": "int32"});
    super::tests::check(spec(int32), of(json!(3_000_000_000_u64)), &[&range("with format int32")]);
    let wrong = r#"spec.x: Invalid value: "number": spec.x in body must be of type integer: "number""#;
    super::tests::check(spec(json!({"type": "integer"})), of(json!(u64::MAX)), &[wrong, &range("(default format)")]);
}

#[test]
fn texts() {
    let check = |limit: Value, value: &str, what: &str| {
        check(spec(limit), of(value.into()), &[&format!("spec.x: {what}")]);
    };
    check(json!({"pattern": "^a+$"}), "b", r#"Invalid value: "b": spec.x in body should match '^a+$'"#);
    check(json!({"minLength": 2}), "ä", r#"Invalid value: "ä": spec.x in body should be at least 2 chars long"#);
    check(json!({"maxLength": 2}), "äöü", "Too long: may not be more than 2 bytes");
    check(json!({"enum": ["a", "b"]}), "c", r#"Unsupported value: "c": supported values: "a", "b""#);
    check(
        json!({"type": "string", "format": "date-time"}),
        "today",
        r#"Invalid value: "today": spec.x in body must be of type date-time: "today""#,
    );
    super::tests::check(spec(json!({"maxLength": 2, "pattern": "b", "format": "x"})), of("äb".into()), &[]);
    super::tests::check(spec(json!({"enum": [1, "a"]})), of(json!(1.0)), &[]);
}

#[test]
fn sizes() {
    let list = |value: Value, limit: Value, what: &str| check(spec(limit), of(value), &[&format!("spec.x: {what}")]);
    list(json!([]), json!({"minItems": 1}), "Invalid value: 0: spec.x in body should have at least 1 items");
    list(json!([1, 2, 3]), json!({"maxItems": 2}), "Too many: 3: must have at most 2 items");
    list(json!({}), json!({"minProperties": 1}), "Invalid value: 0: spec.x in body should have at least 1 properties");
    list(json!({"a": 1, "b": 2}), json!({"maxProperties": 1}), "Too many: 2: must have at most 1 item");
    list(
        json!([1, 1]),
        json!({"uniqueItems": true}),
        "Invalid value: \"\": spec.x in body shouldn't contain duplicates",
    );
}

#[test]
fn fields() {
    check(
        json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object", "required": ["a"]}}}),
        json!({"spec": {}}),
        &["spec.a: Required value"],
    );
    check(json!({"type": "object", "required": ["spec"]}), json!({}), &["spec: Required value"]);
    check(
        spec(json!({"type": "object", "additionalProperties": {"type": "integer"}})),
        of(json!({"k": "v"})),
        &[r#"spec.x.k: Invalid value: "string": spec.x.k in body must be of type integer: "string""#],
    );
    check(
        spec(json!({"type": "array", "items": {"type": "object", "required": ["a"]}})),
        of(json!([{"a": 1}, {}])),
        &["spec.x[1].a: Required value"],
    );
    check(
        spec(json!({"type": "object", "additionalProperties": false})),
        of(json!({"k": "v"})),
        &[r#"spec.x: Invalid value: "k": spec.x.k in body is a forbidden property"#],
    );
}

#[test]
fn duplicates() {
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    check(spec(set.clone()), of(json!(["a", "b", "a", "a"])), &["spec.x[2]: Duplicate value: \"a\""]);
    check(spec(set), of((0..100).map(|number| number.to_string()).collect()), &[]);
    let mut map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
        "items": {"type": "object"}});
    let twice = json!([{"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 2, "c": 3}]);
    check(spec(map.clone()), of(twice.clone()), &[r#"spec.x[2]: Duplicate value: {"a":1,"b":2}"#]);
    map["x-kubernetes-patch-merge-key"] = json!("a");
    check(spec(map), of(twice), &[]);
    let many: Vec<Value> = (0..40).map(|number| json!({"a": number % 39})).collect();
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]});
    check(spec(map), of(many.into()), &[r#"spec.x[39]: Duplicate value: {"a":0}"#]);
}

#[test]
fn combinations() {
    let one_of = json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(spec(one_of.clone()), of(json!({"a": 1})), &[]);
    check(
        spec(one_of.clone()),
        of(json!({})),
        &[
            r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.x.a: Required value",
        ],
    );
    check(
        spec(one_of),
        of(json!({"a": 1, "b": 1})),
        &[
            r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ],
    );
    check(
        spec(json!({"anyOf": [{"minimum": 10}, {"maximum": 5}]})),
        of(json!(7)),
        &[
            r#"<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)"#,
            "spec.x: Invalid value: 7: spec.x in body should be greater than or equal to 10",
        ],
    );
    check(
        spec(json!({"allOf": [{"minimum": 10}, {"maximum": 9}]})),
        of(json!(7)),
        &[
            "spec.x: Invalid value: 7: spec.x in body should be greater than or equal to 10",
            r#"<nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf)"#,
        ],
    );
    check(
        spec(json!({"not": {"enum": [7]}})),
        of(json!(7)),
        &[r#"<nil>: Invalid value: "": "spec.x" must not validate the schema (not)"#],
    );
}

#[test]
fn the_alternative_with_the_most_checks_is_reported() {
    let none = r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid"#;
    // The second one checks `value` as well, and the second one of those checks a format.
    let address = json!({"oneOf": [
        {"properties": {"type": {"not": {"enum": ["IP"]}}}},
        {"properties": {"type": {"enum": ["IP"]}, "value": {"anyOf": [{"minLength": 100}, {"format": "ipv4"}]}}},
    ]});
    check(
        spec(address),
        of(json!({"type": "IP", "value": "1.2.3.4:80"})),
        &[
            none,
            r#"<nil>: Invalid value: "": "spec.x.value" must validate at least one schema (anyOf)"#,
            r#"spec.x.value: Invalid value: "1.2.3.4:80": spec.x.value in body must be of type ipv4: "1.2.3.4:80""#,
        ],
    );
    // Of those with as many checks it's the first one, however many of them fail.
    let required = json!({"type": "object", "oneOf": [{"required": ["a", "b"]}, {"required": ["c"]}]});
    check(spec(required), of(json!({})), &[none, "spec.x.a: Required value", "spec.x.b: Required value"]);
}

#[test]
fn embedded_resources() {
    let schema = spec(json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true}));
    check(schema.clone(), of(json!({"apiVersion": "v1", "kind": "Pod"})), &[]);
    check(schema.clone(), of(json!({})), &["spec.x.apiVersion: Required value", "spec.x.kind: Required value"]);
    check(
        schema,
        of(json!({"apiVersion": "a/b/c", "kind": ""})),
        &[
            r#"spec.x.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
            r#"spec.x.kind: Invalid value: "": must not be empty"#,
        ],
    );
}

#[test]
fn ratcheting() {
    let schema = json!({"type": "object", "properties": {"a": {"minimum": 5}, "b": {"type": "string"},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"v": {"minimum": 5}}, "required": ["w"]}}}});
    let too_small = "a: Invalid value: 2: a in body should be greater than or equal to 5";
    let old = json!({"a": 1, "list": [{"k": "x", "v": 1}, {"k": "y", "v": 1, "w": 1}]});
    let update = |value: Value, expect: &[&str]| check_update(schema.clone(), Some(old.clone()), value, expect);
    update(json!({"a": 1, "b": "new"}), &[]);
    update(json!({"a": 2, "b": "new"}), &[too_small]);
    update(json!({"a": 1, "list": [{"k": "y", "v": 1, "w": 2}, {"k": "x", "v": 1}]}), &[]);
    update(json!({"a": 1, "list": [{"k": "x", "v": 1, "new": 1}]}), &["list[0].w: Required value"]);
}

/// As recorded on Kubernetes 1.36.3.
#[test]
fn ratcheting_of_lists_and_types() {
    let items = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}});
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
        "items": items, "maxItems": 2});
    let schema = json!({"type": "object", "properties": {"m": list, "s": {"type": "array",
        "x-kubernetes-list-type": "set", "items": {"type": "string"}}, "kind": {"type": "string", "pattern": "^other$"}}});
    let update = |old: Value, value: Value, expect: &[&str]| check_update(schema.clone(), Some(old), value, expect);
    let item = |a: i64| json!({"a": a});
    let three = json!({"m": [item(1), item(2), item(3)]});
    update(three.clone(), json!({"m": [item(3), item(2), item(1)]}), &[]);
    let too_many = "m: Too many: 4: must have at most 2 items";
    update(three, json!({"m": [item(1), item(2), item(3), item(4)]}), &[too_many]);
    let twice = json!({"m": [item(1), {"a": 1, "b": 2}]});
    update(twice.clone(), json!({"m": [item(1), {"a": 1, "b": 3}], "s": ["x", "x"]}), &[]);
    update(json!({"m": [item(1)]}), twice, &[r#"m[1]: Duplicate value: {"a":1}"#]);
    let kind = r#"kind: Invalid value: "Thing": kind in body should match '^other$'"#;
    update(json!({"kind": "Thing"}), json!({"kind": "Thing", "s": ["x"]}), &[kind]);
}
