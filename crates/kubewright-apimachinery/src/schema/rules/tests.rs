use serde_json::{Value, json};

use super::{super::Definitions, *};
use crate::{
    schema::parse::from_openapi,
    testing::{finish, finish_counting},
};

/// Returns the causes as `field: message`, for a kind whose `spec` has this schema.
fn causes(spec: Value, value: Value, old: Option<Value>) -> Vec<String> {
    let schema = from_openapi(&json!({"type": "object", "properties": {"spec": spec}}));
    let whole = |spec: Value| json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "it"}, "spec": spec});
    let definitions = Definitions::default();
    let old = old.map(whole);
    let value = whole(value);
    let causes = finish(validate(Node::new(&schema, &definitions), &value, old.as_ref())).causes;
    causes.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check(spec: Value, value: Value, expect: &[&str]) {
    assert_eq!(causes(spec, value, None), expect);
}

fn ruled(mut schema: Value, rules: Value) -> Value {
    schema["x-kubernetes-validations"] = rules;
    schema
}

fn numbers() -> Value {
    json!({"type": "object", "properties": {
        "min": {"type": "integer"},
        "max": {"type": "integer"},
        "namespace": {"type": "string"},
        "x-y": {"type": "integer"},
        "ratio": {"type": "number"},
        "since": {"type": "string", "format": "date-time"},
        "every": {"type": "string", "format": "duration"},
        "port": {"x-kubernetes-int-or-string": true},
        "limits": {"type": "object", "additionalProperties": {"type": "string"}},
    }})
}

#[test]
fn sets_and_maps_are_equal_regardless_of_order() {
    let list = |kind: &str, items: Value| json!({"type": "array", "x-kubernetes-list-type": kind, "items": items});
    let mut pairs = list(
        "map",
        json!({"type": "object", "properties": {
            "x-y": {"type": "string"},
            "n": {"type": "integer"},
        }}),
    );
    pairs["x-kubernetes-list-map-keys"] = json!(["x-y"]);
    let strings = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {
        "set": list("set", strings.clone()),
        "same": list("set", strings.clone()),
        "pairs": pairs.clone(),
        "changed": pairs,
        "atomic": list("atomic", strings),
        "none": {"type": "string", "nullable": true},
    }});
    let value = json!({
        "set": ["a", "b"],
        "same": ["b", "a"],
        "pairs": [{"x-y": "a", "n": 1}, {"x-y": "b", "n": 2}],
        "changed": [{"x-y": "b", "n": 2}, {"x-y": "a", "n": 1}],
        "atomic": ["a", "b"],
        "none": null,
    });
    for (rule, holds) in [
        ("self.set == ['b', 'a'] && self.set == self.same && self.pairs == self.changed", true),
        ("self.set != ['b', 'c'] && self.set != ['a']", true),
        ("self.atomic == ['b', 'a'] || self.atomic == self.same || ['b', 'a'] == self.set", false),
        ("self.set + ['c', 'a', 'c'] == ['a', 'b', 'c'] && (self.set + ['a']).size() == 2", true),
        ("(self.pairs + self.changed).size() == 2 && (self.pairs + self.changed)[0].n == 1", true),
        ("self.set[0] == 'a' && 'b' in self.set && self.set.all(x, x != 'c') && self.set.join('-') == 'a-b'", true),
        (
            "[self.set] == [self.same] && optional.of(self.set).value() == self.same && '%s'.format([self.set]) == '[\"a\", \"b\"]'",
            true,
        ),
        ("[self.set, self.same].flatten() == ['a', 'b', 'b', 'a'] && self.atomic + ['a'] == ['a', 'b', 'a']", true),
        ("has(self.none)", false),
    ] {
        let expect: &[&str] = if holds { &[] } else { &["spec: Invalid value: no"] };
        check(ruled(schema.clone(), json!([{"rule": rule, "message": "no"}])), value.clone(), expect);
    }
}

#[test]
fn rules_hold_or_fail() {
    let rule = |rule: &str| ruled(numbers(), json!([{"rule": rule, "message": "no"}]));
    let no: &[&str] = &["spec: Invalid value: no"];
    let value = json!({
        "min": 1, "max": 3, "namespace": "n", "x-y": 2, "ratio": 1, "port": "http",
        "since": "2026-01-02T03:04:05Z", "every": "1h30m", "limits": {"cpu": "1500m", "in-use": "1"},
    });
    for (text, holds) in [
        ("self.min <= self.max", true),
        ("self.min > self.max", false),
        ("self.__namespace__ == 'n' && self.namespace == 'n' && self.x__dash__y == 2", true),
        ("self.ratio == 1.0 && type(self.ratio) == double", true),
        ("self.since < timestamp('2027-01-01T00:00:00Z')", true),
        ("self.every == duration('90m')", true),
        ("type(self.port) == string ? self.port == 'http' : self.port == 80", true),
        ("has(self.limits) && !has(self.other)", true),
        ("self.limits.all(name, isQuantity(self.limits[name]))", true),
        ("quantity(self.limits['cpu']).isGreaterThan(quantity('1'))", true),
        ("'in-use' in self.limits", true),
        ("self.limits.exists(name, name.startsWith('mem'))", false),
        ("self.?other.orValue(7) == 7 && self.?other.?deeper.orValue(7) == 7 && self.?min.value() == 1", true),
        ("size('äö') == 2 && 'äö'.size() == 2", true),
        ("'a-b-c'.split('-').size() == 3 && 'x'.matches('^[a-z]$')", true),
    ] {
        check(rule(text), value.clone(), if holds { &[] } else { no });
    }
}

#[test]
fn messages_are_those_of_the_rule() {
    let fail = |rest: Value| {
        let mut rule = json!({"rule": " self.min > 5 "});
        rule.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        causes(ruled(numbers(), json!([rule])), json!({"min": 1}), None)
    };
    assert_eq!(fail(json!({})), ["spec: Invalid value: failed rule: self.min > 5"]);
    assert_eq!(fail(json!({"message": "too few"})), ["spec: Invalid value: too few"]);
    let computed = json!({"messageExpression": "'%d is too few'.format([self.min])", "message": "too few"});
    assert_eq!(fail(computed), ["spec: Invalid value: 1 is too few"]);
    let broken = json!({"messageExpression": "self.nothing", "message": "too few"});
    assert_eq!(fail(broken), ["spec: Invalid value: too few"]);
    let placed = json!({"message": "too few", "fieldPath": ".min", "reason": "FieldValueForbidden"});
    assert_eq!(fail(placed), ["spec.min: Forbidden: too few"]);
    let placed = json!({"message": "x", "fieldPath": ".limits['a-b']", "reason": "FieldValueRequired"});
    assert_eq!(fail(placed), ["spec.limits[a-b]: Required value: x"]);
    assert_eq!(fail(json!({"message": "x", "reason": "FieldValueDuplicate"})), ["spec: Duplicate value"]);
}

#[test]
fn rules_apply_at_every_depth() {
    let positive = ruled(json!({"type": "integer"}), json!([{"rule": "self > 0", "message": "not positive"}]));
    let spec = json!({"type": "object", "properties": {
        "list": {"type": "array", "items": positive},
        "map": {"type": "object", "additionalProperties": positive},
        "all": {"type": "object", "allOf": [ruled(json!({}), json!([{"rule": "size(self) < 2"}]))],
            "additionalProperties": {"type": "integer"}},
    }});
    check(
        spec,
        json!({"list": [1, 0, null], "map": {"a": 1, "b": -1}, "all": {"a": 1, "b": 2}}),
        &[
            "spec.all: Invalid value: failed rule: size(self) < 2",
            "spec.list[1]: Invalid value: 0: not positive",
            "spec.map[b]: Invalid value: -1: not positive",
        ],
    );
}

#[test]
fn rules_of_the_root_see_its_type_and_names() {
    let rule =
        json!([{"rule": "self.metadata.name == self.spec.name && self.kind == 'K' && !has(self.metadata.labels)"}]);
    let schema = ruled(
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties":
        {"name": {"type": "string"}}}}}),
        rule,
    );
    let schema = from_openapi(&schema);
    let definitions = Definitions::default();
    let object = |name: &str| json!({"kind": "K", "metadata": {"name": name, "labels": {}}, "spec": {"name": "it"}});
    let node = Node::new(&schema, &definitions);
    assert_eq!(finish(validate(node, &object("it"), None)).causes, []);
    assert_eq!(finish(validate(node, &object("other"), None)).causes[0].field, "<nil>");
}

#[test]
fn transitions_need_an_old_value() {
    let frozen = ruled(json!({"type": "string"}), json!([{"rule": "self == oldSelf", "message": "frozen"}]));
    let spec = json!({"type": "object", "properties": {
        "value": frozen,
        "atomic": {"type": "array", "items": frozen},
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": frozen}},
        },
    }});
    let old =
        json!({"value": "a", "atomic": ["a"], "items": [{"name": "x", "value": "1"}, {"name": "y", "value": "2"}]});
    let new =
        json!({"value": "b", "atomic": ["b"], "items": [{"name": "y", "value": "3"}, {"name": "z", "value": "9"}]});
    assert_eq!(causes(spec.clone(), new.clone(), None), [""; 0]);
    assert_eq!(causes(spec.clone(), old.clone(), Some(old.clone())), [""; 0]);
    assert_eq!(
        causes(spec, new, Some(old)),
        [r#"spec.items[0].value: Invalid value: "3": frozen"#, r#"spec.value: Invalid value: "b": frozen"#]
    );

    let optional = json!([{
        "rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": true, "message": "must begin so",
    }]);
    let spec = json!({"type": "object", "properties": {"value": ruled(json!({"type": "string"}), optional)}});
    let other = json!({"value": "other"});
    let refused = [r#"spec.value: Invalid value: "other": must begin so"#];
    assert_eq!(causes(spec.clone(), other.clone(), None), refused);
    assert_eq!(causes(spec, other, Some(json!({"value": "first"}))), [""; 0]);
}

#[test]
fn unchanged_values_need_not_satisfy_new_rules() {
    let spec = json!({"type": "object", "properties": {
        "a": ruled(json!({"type": "integer"}), json!([{"rule": "self > 5", "message": "small"}])),
        "b": {"type": "integer"},
    }});
    let old = json!({"a": 1, "b": 1});
    assert_eq!(causes(spec.clone(), json!({"a": 1, "b": 2}), Some(old.clone())), [""; 0]);
    assert_eq!(causes(spec, json!({"a": 2, "b": 1}), Some(old)).len(), 1);
}

#[test]
fn a_rule_that_cannot_be_evaluated_is_violated() {
    let rule = |rule: &str| causes(ruled(numbers(), json!([{"rule": rule}])), json!({"min": 1}), None).concat();
    for (text, expect) in [
        ("self.max > 1", r#"spec: Invalid value: "object": no such key: max evaluating rule: self.max > 1"#),
        ("self.min", "must evaluate to a bool"),
        ("self.min / 0 == 1", "division by zero evaluating rule"),
        (
            "quantity('1') == quantity('1').add(0)",
            "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: quantity(",
        ),
        ("self.min >", "rule compile error: compilation failed: "),
        ("other == 1", "undeclared reference to 'other'"),
        ("", "rule compile error"),
    ] {
        let found = rule(text);
        assert!(found.contains(expect), "{text}: {found}");
    }
}

#[test]
fn rules_that_cannot_be_parsed_are_reported() {
    let schema = from_openapi(&json!({"type": "object", "properties": {"spec": {
        "type": "array",
        "items": ruled(
            json!({"type": "integer"}),
            json!([{"rule": "self >"}, {"rule": "true", "messageExpression": "'"}]),
        ),
    }}}));
    let causes = super::check(&schema, "", false);
    let shown = r#"Invalid value: {"Rule":"self \u003e","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: "#;
    assert!(causes[0].message.starts_with(shown), "{causes:?}");
    let fields: Vec<_> = causes.into_iter().map(|cause| cause.field).collect();
    let place = "openAPIV3Schema.properties[spec].items.x-kubernetes-validations";
    assert_eq!(fields, [format!("{place}[0].rule"), format!("{place}[1].messageExpression")]);
}

#[test]
fn evaluation_is_bounded() {
    let list = |rule: &str| {
        let list = json!({"type": "array", "items": {"type": "integer"}});
        let rules = json!([{"rule": rule}, {"rule": "false"}]);
        json!({"type": "object", "properties": {"list": ruled(list, rules)}})
    };
    let value = |items: i64| json!({"list": (0..items).collect::<Vec<_>>()});
    let cubic = "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))";
    let few = causes(list(cubic), value(10), None);
    assert_eq!(few, ["spec.list: Invalid value: failed rule: false"]);
    let many = causes(list(cubic), value(1000), None);
    assert_eq!(many.len(), 1);
    assert!(many[0].contains("call cost exceeds limit for rule: self.all(a,"), "{many:?}");

    let each = ruled(json!({"type": "integer"}), json!([{"rule": "[1, 2, 3].map(x, x * self).sum() >= 0"}]));
    let spec = json!({"type": "object", "properties": {"list": {"type": "array", "items": each}}});
    assert_eq!(causes(spec.clone(), value(100), None), [""; 0]);
}

#[test]
fn validation_yields_between_costly_rules() {
    let item = ruled(json!({"type": "integer"}), json!([{"rule": "lists.range(1000).all(n, n >= self)"}]));
    let schema = from_openapi(&json!({"type": "array", "items": item}));
    let definitions = Definitions::default();
    let yielded = |items: usize| {
        let value = json!(vec![0; items]);
        let (violations, yielded) = finish_counting(validate(Node::new(&schema, &definitions), &value, None));
        let causes = violations.causes;
        assert_eq!(causes, []);
        yielded
    };
    // Each item costs 7,001 units, and evaluation yields every 200,000 units.
    assert_eq!(yielded(10), 0);
    assert_eq!(yielded(1000), 1000 / 29);
}

#[test]
fn an_object_is_converted_once_for_all_its_rules() {
    let leaf = ruled(json!({"type": "string"}), json!([{"rule": "self == 'x'"}]));
    let nested = (0..20).fold(leaf, |inner, _| {
        ruled(
            json!({"type": "object", "properties": {"namespace": inner}}),
            json!([{"rule": "has(self.__namespace__)"}]),
        )
    });
    let value = (0..20).fold(json!("x"), |inner, _| json!({"namespace": inner}));
    assert_eq!(causes(nested.clone(), value, None), [""; 0]);
    let wrong = (0..20).fold(json!("y"), |inner, _| json!({"namespace": inner}));
    assert_eq!(causes(nested, wrong, None).len(), 1);
}

proptest::proptest! {
    #[test]
    fn no_text_and_no_value_panics(
        text in "[a-z0-9_.()\\[\\]{}'\"?:&|!+*/<>=, -]{0,30}",
        value in crate::testing::json_value(),
    ) {
        causes(ruled(numbers(), json!([{"rule": text}])), value, None);
    }
}

/// Returns the error of a rule on a list of `count` strings of `length` bytes each; empty if the rule holds.
fn error_on_texts(rule: &str, count: usize, length: usize) -> String {
    let list = json!({"type": "array", "items": {"type": "string"}});
    let spec = json!({"type": "object", "properties": {"list": ruled(list, json!([{"rule": rule}]))}});
    causes(spec, json!({"list": vec!["x".repeat(length); count]}), None).concat()
}

#[test]
fn calls_are_charged_by_sizes() {
    let repeated = |start: &str, step: &str, times: usize| format!("{start}{}", step.repeat(times));
    let doubled = repeated("['0123456789']", ".map(s, s + s)", 21) + ".size() == 1";
    let joined = repeated("[[1]]", ".map(l, l + l)", 20) + ".size() == 1";
    let replaced = repeated("'0123456789'", ".replace('', '0123456789')", 6) + ".size() > 1";
    for (rule, count, length) in [
        (doubled.as_str(), 0, 0),
        (&joined, 0, 0),
        (&replaced, 0, 0),
        ("'%.20000000f'.format([1.0]) != ''", 0, 0),
        ("lists.range(2000000).size() > 1", 0, 0),
        ("self.all(s, s.matches('^(x+y?){2,9}$'))", 1000, 4000),
        ("self.all(s, s.find('x+y?x+y?x+y?') != '')", 1000, 4000),
        ("self.all(s, s.contains(self[0]))", 100, 4000),
        ("self.all(s, self == self)", 1000, 100),
        ("self.all(s, self.join(s) != '')", 1000, 100),
        ("self.all(s, s.split('').size() > 1)", 400, 4000),
        ("sets.contains(self.map(s, s), self)", 2000, 1),
    ] {
        let error = error_on_texts(rule, count, length);
        assert!(error.contains("call cost exceeds limit for rule"), "{rule}: {error}");
    }
}

/// Rules for which Kubernetes 1.36.3 has another answer: it also checks literals, and knows a syntax that the parser
/// doesn't.
const KNOWN: [&str; 6] = [
    "self.name.matches('[') ",
    "'x'.matches('[')",
    "timestamp('bad') == self.since",
    "duration('bad') == self.every",
    "'%s'.format(['a', 1]) == 'x'",
    "self.`x-y` == 1",
];

/// `recorded-1.36.3.json` has the answers of a real API server to CRDs with these rules on `spec`. Errors about
/// estimated costs are left out, and the generated names of object types replaced.
#[test]
fn rules_have_the_types_that_kubernetes_gives_them() {
    let recorded: Value = serde_json::from_str(include_str!("recorded-1.36.3.json")).expect("a recording");
    let mut differences = Vec::new();
    for case in recorded["rules"].as_array().expect("rules") {
        let rule = case["rule"].as_str().expect("a rule");
        let spec = ruled(recorded["schema"].clone(), json!([{"rule": rule}]));
        let causes = super::check(&from_openapi(&json!({"type": "object", "properties": {"spec": spec}})), "", false);
        let found: Vec<_> = causes
            .iter()
            .filter(|cause| cause.reason != "FieldValueForbidden")
            .map(|cause| cause.message.split_once("}: ").expect("the rule is shown").1.to_owned())
            .collect();
        if json!(found) != case["errors"] && !KNOWN.contains(&rule) {
            differences.push(format!("{rule}\n  ours: {found:?}\n  recorded: {}", case["errors"]));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
