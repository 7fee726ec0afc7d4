use serde_json::json;

use super::*;

fn object() -> Value {
    json!({
        "metadata": {"labels": {"a.b/c": "dotted", "it's": "quoted"}},
        "spec": {"replicas": 3, "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}, {"port": 8080}]},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "count": 2},
            {"type": "Synced", "status": "False"},
        ]},
    })
}

#[track_caller]
fn check(path: &str, expect: Value) {
    let parsed = JsonPath::parse(path).unwrap_or_else(|why| panic!("{why}"));
    let object = object();
    assert_eq!(json!(parsed.find(&object)), expect, "{path}");
}

#[test]
fn fields() {
    check(".spec.replicas", json!([3]));
    check("{.spec.replicas}", json!([3]));
    check("$.spec.replicas", json!([3]));
    check(".spec.absent.below", json!([]));
    check(".spec.replicas.below", json!([]));
    check(r".metadata.labels.a\.b/c", json!(["dotted"]));
    check(".metadata.labels['a.b/c']", json!(["dotted"]));
    check(r".metadata.labels['it\'s']", json!(["quoted"]));
    check(r#".metadata.labels["it's"]"#, json!(["quoted"]));
    check(".", json!([object()]));
}

#[test]
fn lists() {
    check(".spec.ports[0].port", json!([80]));
    check(".spec.ports[-1].port", json!([8080]));
    check(".spec.ports[-4].port", json!([]));
    check(".spec.ports[7]", json!([]));
    check(".spec.ports[*].port", json!([80, 443, 8080]));
    check(".spec.ports.*.port", json!([80, 443, 8080]));
    check(".spec.ports[1:].port", json!([443, 8080]));
    check(".spec.ports[:-1].port", json!([80, 443]));
    check(".spec.ports[::2].port", json!([80, 8080]));
    check(".spec.ports[9:1].port", json!([]));
    check(".spec.ports[0,2].port", json!([80, 8080]));
    check(".spec.ports[0]['port','name']", json!([80, "http"]));
    check("..port", json!([80, 443, 8080]));
}

#[test]
fn filters() {
    check(r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"]));
    check(".status.conditions[?( @.type != 'Ready' )].status", json!(["False"]));
    check(".status.conditions[?(@.count)].type", json!(["Ready"]));
    check(".status.conditions[?(@.count>1)].type", json!(["Ready"]));
    check(".status.conditions[?(@.count>2)].type", json!([]));
    check(".spec.ports[?(@.port<=443)].name", json!(["http", "https"]));
    check(".spec.ports[?(@['name']=='http')].port", json!([80]));
}

#[track_caller]
fn check_error(path: &str, expect: &str) {
    let error = JsonPath::parse(path).unwrap_err().to_string();
    assert!(error.contains(expect), "{path}: {error}");
}

#[test]
fn syntax_errors() {
    check_error("spec", "unexpected character at character 0");
    check_error(".spec..", "a field without a name");
    check_error(".spec.", "a field without a name");
    check_error(".a[", "neither an index nor a quoted name");
    check_error(".a[0", "an unclosed bracket");
    check_error(".a['b]", "an unclosed string");
    check_error(".a[b]", "neither an index nor a quoted name");
    check_error(".a[0:2:0]", "a step must be at least 1");
    check_error(".a[?(@.b==)]", "neither a path nor a literal");
    check_error(".a[?(@.b==1]", "a filter without a closing parenthesis");
    check_error(".a[99999999999999999999]", "a number out of range");
    check_error(&format!(".a{}", "[?(@.a".repeat(1000)), "too many filters within filters");
}

#[test]
fn the_matches_of_a_path_are_bounded() {
    let path = JsonPath::parse(&"..*".repeat(30)).unwrap();
    assert!(path.find(&json!([[[[[[[[1, 2], [3]], []]]]]], object()])).len() <= MATCH_LIMIT);
}

#[test]
fn setting() {
    let path = JsonPath::parse(".spec.scale.replicas").unwrap();
    let mut object = json!({"spec": {"scale": null, "other": 1}});
    path.set(&mut object, json!(5)).unwrap();
    assert_eq!(object, json!({"spec": {"scale": {"replicas": 5}, "other": 1}}));

    let mut in_the_way = json!({"spec": 1});
    let error = path.set(&mut in_the_way, json!(5)).unwrap_err().to_string();
    assert_eq!(error, "cannot set .spec.scale.replicas: scale is not an object");
    let error = JsonPath::parse(".a[0]").unwrap().set(&mut object, json!(5)).unwrap_err().to_string();
    assert_eq!(error, "cannot set .a[0]: only paths of plain field names can be set");
}

proptest::proptest! {
    #[test]
    fn arbitrary_input_causes_no_panic(text in r#"[.$@?()\[\]*:,'"\\a0-1=<>{} -]{0,20}"#) {
        if let Ok(path) = JsonPath::parse(&text) {
            let mut object = object();
            path.find(&object);
            let _ = path.set(&mut object, json!(1));
        }
    }
}
