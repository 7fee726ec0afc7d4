use serde_json::json;

use super::*;
use crate::schema::parse::from_openapi;

/// Returns the estimated cost of a rule on a value.
fn cost(schema: &Value, rule: &str) -> u64 {
    let schema = from_openapi(schema);
    let this = declare::type_of(Node::new(&schema, &NONE), false).expect("a type");
    let environment = Environment::default().with("self", this.clone()).with("oldSelf", this);
    let size = size_of(&schema, false).expect("a size");
    check_rule(rule, &environment, &size.limits).expect("a valid rule").cost
}

fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

fn map(values: &Value) -> Value {
    json!({"type": "object", "additionalProperties": values})
}

fn limited(mut schema: Value, field: &str, limit: u64) -> Value {
    schema[field] = limit.into();
    schema
}

/// The costs are those that Kubernetes 1.36.3 estimates.
#[test]
fn costs_are_estimated_as_by_kubernetes() {
    let of = |kind: &str| json!({"type": kind});
    let formatted = |format: &str| json!({"type": "string", "format": format});
    let number_or_text = json!({"x-kubernetes-int-or-string": true});
    let text = of("string");
    let object =
        json!({"type": "object", "required": ["required"], "properties": {"required": text, "optional": text}});
    let short = |length: u64| limited(text.clone(), "maxLength", length);
    let named = json!({"type": "string", "enum": ["A", "B", "C", "LongValue"]});
    let replaced = |length: Option<u64>| {
        let text = length.map_or_else(|| text.clone(), short);
        json!({"type": "object", "properties": {"str": text, "before": short(2), "after": short(4)}})
    };
    let all = "self.all(x, true)";
    for (schema, rule, expect) in [
        (list(&of("number")), all, 4_718_591),
        (limited(list(&of("number")), "maxItems", 10), all, 32),
        (list(&text), all, 3_145_727),
        (list(&of("boolean")), all, 1_887_437),
        (list(&list(&of("number"))), all, 3_145_727),
        (list(&object), all, 555_128),
        (list(&number_or_text), all, 4_718_591),
        (list(&formatted("duration")), all, 2_359_295),
        (list(&formatted("date")), all, 725_936),
        (list(&formatted("date-time")), all, 428_963),
        (map(&of("number")), all, 1_348_169),
        (map(&text), all, 1_179_647),
        (limited(map(&text), "maxProperties", 3), all, 11),
        (map(&object), all, 428_963),
        (map(&formatted("date-time")), all, 349_526),
        (text.clone(), "self.contains('test')", 314_574),
        (short(10), "self.contains('test')", 5),
        (text.clone(), "self.startsWith('test')", 2),
        (text.clone(), "size(self + \"hello\") > size(\"hello\")", 314_578),
        (short(4), "size(self + \"hello\") > size(\"hello\")", 7),
        (list(&of("number")), "self[1] == 0.0", 2),
        (list(&text), "self[1] == self[1]", 314_577),
        (limited(list(&of("number")), "maxItems", 10), "self.all(x, self.all(y, true))", 352),
        (limited(list(&of("number")), "maxItems", 10), "self.all(x, self.all(y, self.all(z, true)))", 3552),
        (text.clone(), "self.matches(\"x\")", 314_574),
        (short(50), "self.matches(\"x\")", 22),
        (text.clone(), "\"\".matches(\"(((((((((())))))))))[0-9]\")", 7),
        (text.clone(), "self.matches(\"\")", 1),
        (map(&text), "self.all(x, x.contains(self[x]))", 2_752_507),
        (limited(map(&short(10)), "maxProperties", 10), "self.all(x, x.contains(self[x]))", 72),
        (text.clone(), "self == \"x\"", 2),
        (short(0), "self == \"x\"", 1),
        (text.clone(), "(self == 'a' || self == 'b') == (self == 'c' && self == 'd')", 9),
        (list(&of("number")), "self.all(x, x == 0.0)", 6_291_454),
        (list(&map(&object)), "self.all(x, x[\"y\"].required == \"z\")", 7_340_027),
        (list(&number_or_text), "self[0] == 5", 3),
        (list(&object), "self[0] == null", 2),
        (list(&list(&of("number"))), "self[0][0] == -1.0", 3),
        (list(&map(&of("number"))), "self.all(x, x.y == 25.2)", 6_291_452),
        (list(&map(&of("number"))), "self[0].x > 2.0", 4),
        (list(&formatted("duration")), "self[0].getHours() == 2", 4),
        (text.clone(), "self.find('[0-9]+') == ''", 629_147),
        (short(10), "self.find('[0-9]+') == ''", 11),
        (list(&text), "self.join(' ') == 'aa bb'", 329_853_068_905),
        (limited(list(&short(10)), "maxItems", 10), "self.join(' ') == 'aa bb'", 43),
        (list(&text), "self.isSorted() == true", 329_854_432_052),
        (replaced(None), "self.str.replace(self.before, self.after) == 'does not matter'", 629_154),
        (replaced(Some(4)), "self.str.replace(self.before, self.after) == 'does not matter'", 12),
        (replaced(None), "self.str.split(self.before) == []", 629_160),
        (text.clone(), "self.lowerAscii() == 'lower!'", 314_575),
        (map(&of("integer")), "oldSelf.size() == self.size()", 5),
        (map(&formatted("date-time")), "self[\"a\"] == self[\"b\"]", 8),
        (named.clone(), "self.contains('A')", 2),
        (limited(named, "maxLength", 1000), "self.contains('A')", 401),
        (number_or_text.clone(), "isQuantity(self)", 314_574),
        (limited(number_or_text, "maxLength", 20), "isQuantity(self)", 9),
    ] {
        assert_eq!(cost(&schema, rule), expect, "{rule} on {schema}");
    }
}

/// Returns the causes of a schema's rules.
fn causes_of(spec: &Value, is_known: bool) -> Vec<String> {
    let schema = from_openapi(&json!({"type": "object", "properties": {"spec": spec}}));
    let causes = check(&schema, "spec.validation", is_known);
    causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

#[test]
fn rules_that_may_cost_too_much_are_refused() {
    const AT: &str = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Forbidden: ";
    let texts = |limits: Value| {
        let mut items = json!({"type": "array", "items": {"type": "string"}});
        items["maxItems"] = limits[1].clone();
        items["items"]["maxLength"] = limits[2].clone();
        let rule = json!({"rule": "self.all(s, s.all(t, t.contains('string constant')))"});
        json!({"type": "array", "items": items, "maxItems": limits[0], "x-kubernetes-validations": [rule]})
    };
    let found = causes_of(&texts(json!([null, null, null])), false);
    assert!(found[0].starts_with(AT) && found[0].contains("budget by factor of more than 100x (try"), "{found:#?}");
    assert!(found[1].contains("contributed to estimated rule cost total exceeding cost limit"), "{found:#?}");
    assert!(found[2].starts_with("spec.validation.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated"));
    assert_eq!(causes_of(&texts(json!([10, 10, 10])), false), [] as [&str; 0]);
    // What is stored stays, as long as all rules together don't cost too much.
    let found = causes_of(&texts(json!([1000, 1000, 10])), false);
    assert!(found.len() == 1 && found[0].starts_with(AT), "{found:#?}");
    assert_eq!(causes_of(&texts(json!([1000, 1000, 10])), true), [] as [&str; 0]);
}

#[test]
fn rules_use_the_old_value_only_where_there_is_one() {
    let list = |kind: &str| {
        let rule = json!([{"rule": "self.v == oldSelf.v"}]);
        let text = json!({"type": "string", "maxLength": 3});
        let item = json!({"type": "object", "properties": {"k": text, "v": text}, "x-kubernetes-validations": rule});
        json!({"type": "array", "maxItems": 3, "items": item, "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": ["k"]})
    };
    let found = causes_of(&list("atomic"), false);
    let why = "Invalid value: \"self.v == oldSelf.v\": oldSelf cannot be used on the uncorrelatable portion of the schema \
               within spec.validation.openAPIV3Schema.properties[spec]";
    assert!(found.len() == 1 && found[0].ends_with(why), "{found:#?}");
    assert_eq!(causes_of(&list("map"), false), [] as [&str; 0]);
}
