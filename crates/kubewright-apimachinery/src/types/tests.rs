use serde_json::{Value, json};

use super::*;
use crate::testing::json_value;

const TABLE: &str = r#"# A small table.
package io.k8s.apimachinery.pkg.apis.meta.v1 meta.k8s.io
special Time
special MicroTime
struct TypeMeta
1 kind? string
2 apiVersion? string
struct ObjectMeta
1 name? string
8 creationTimestamp?? Time
9 deletionTimestamp? *Time
11 labels? map[string]string
14 finalizers? []string list=set patch=merge
package io.k8s.apimachinery.pkg.api.resource -
special Quantity
package io.k8s.apimachinery.pkg.util.intstr -
special IntOrString
package io.k8s.apimachinery.pkg.runtime -
special RawExtension
package io.k8s.api.core.v1 core
alias Protocol string ["SCTP","TCP","UDP"]
alias ResourceName string
alias ResourceList map[ResourceName]io.k8s.apimachinery.pkg.api.resource.Quantity
struct Pod
- . io.k8s.apimachinery.pkg.apis.meta.v1.TypeMeta
1 metadata? io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta
2 spec? PodSpec
3 status? PodStatus
struct PodSpec
2 containers []Container list=map:name patch=merge key=name
25 priority? *int32
11 hostNetwork? bool
7 nodeSelector? map[string]string map=atomic
struct Container
1 name string
18 command? []string list=atomic
6 ports? []Port list=map:containerPort,protocol patch=merge key=containerPort
8 resources? ResourceRequirements
9 secret? bytes
10 args? []string list=atomic empty
11 . Probe
struct Probe
1 http? *HTTPGetAction
struct HTTPGetAction
1 path? string default="/"
2 port io.k8s.apimachinery.pkg.util.intstr.IntOrString
struct Port map=atomic
3 containerPort int32
4 protocol? Protocol default="TCP"
struct ResourceRequirements
1 limits? ResourceList
struct PodStatus
1 phase? string
2 conditions? []Condition
3 ratio? *float64
4 raw? io.k8s.apimachinery.pkg.runtime.RawExtension
struct Condition
1 type string
2 lastProbeTime? io.k8s.apimachinery.pkg.apis.meta.v1.Time
3 micro? *io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime
4 reasons []string optional
5 extra? map[string][]string
"#;

fn table() -> (Types, TypeId) {
    let types = Types::parse(TABLE).unwrap();
    let pod = types.kind("", "v1", "Pod").unwrap();
    (types, pod)
}

/// Decodes an object and returns it.
#[track_caller]
fn decoded(mut object: Value) -> Value {
    let (types, pod) = table();
    assert_eq!(types.decode(pod, &mut object).map(|decoded| decoded.unknown), Ok(Vec::new()));
    object
}

#[track_caller]
fn refuse(mut object: Value, expect: &str) {
    let (types, pod) = table();
    assert_eq!(types.decode(pod, &mut object).unwrap_err().to_string(), expect, "{object}");
}

#[test]
fn the_table_is_read() {
    let (types, pod) = table();
    assert_eq!(types.find("io.k8s.api.core.v1.Pod"), Some(pod));
    assert_eq!(types.kind("apps", "v1", "Pod"), None);
    assert_eq!(types.kind("", "v1", "Container"), None);
    let pod = types.get(pod).as_struct().unwrap();
    let names: Vec<_> = pod.fields().iter().map(Field::name).collect();
    assert_eq!(names, ["kind", "apiVersion", "metadata", "spec", "status"]);
    let spec = types.get(pod.field("spec").unwrap().ty()).as_struct().unwrap();
    let containers = spec.field("containers").unwrap();
    assert!(containers.is_required() && !containers.is_pointer());
    assert_eq!(containers.marks().unwrap().list, Some(ListMark::Map(vec!["name".into()])));
    assert_eq!(spec.field("nodeSelector").unwrap().marks().unwrap().atomic, Some(true));
    let Shape::List(container) = types.get(containers.ty()).shape() else { panic!("no list") };
    let container = types.get(*container).as_struct().unwrap();
    let probe = types.find("io.k8s.api.core.v1.Probe").unwrap();
    assert_eq!(container.fields().last().map(Field::name), Some("http"));
    assert_eq!((container.numbered(18), container.numbered(19)), (Some(Numbered::Field(1)), None));
    assert!(types.get(probe).as_struct().unwrap().numbered(1).is_some());
    let protocol = types.find("io.k8s.api.core.v1.Protocol").unwrap();
    assert_eq!(types.get(protocol).values(), ["SCTP", "TCP", "UDP"]);
    assert!(types.get(types.find("io.k8s.api.core.v1.Port").unwrap()).as_struct().unwrap().is_atomic());
}

#[test]
fn malformed_tables_are_refused() {
    for (text, why) in [
        ("1 a string", "a field without a struct"),
        ("package p -\nstruct A\nx a string", "\"x\" is not a number"),
        ("package p -\nstruct A\n1 a", "a field consists of a number, a name and a type"),
        ("package p -\nstruct A\n1 a Nothing", "unknown type Nothing"),
        ("package p -\nstruct A\n1 a string odd", "\"odd\" is not a marker"),
        ("package p -\nstruct A\n1 a string default={", "the default of a: EOF while parsing an object"),
        ("package p -\nstruct A\n- . A", "p.A embeds itself"),
        ("package p -\nspecial A", "A is not a special type"),
    ] {
        let error = Types::parse(text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn values_get_their_canonical_form() {
    let object = json!({
        "metadata": {"creationTimestamp": "2026-01-31T23:59:59.5+01:00", "deletionTimestamp": "2026-01-31T23:59:59Z"},
        "spec": {"containers": [{
            "name": "c", "secret": "YQ\n==", "resources": {"limits": {"cpu": "1000m", "memory": 1_073_741_824, "x": 0.5, "y": "5n"}},
        }]},
        "status": {"ratio": 2.0, "conditions": [{"type": "a", "micro": "2026-01-31T23:59:59.500000+02:00"}]},
    });
    let expect = json!({
        "metadata": {"creationTimestamp": "2026-01-31T22:59:59Z", "deletionTimestamp": "2026-01-31T23:59:59Z"},
        "spec": {"containers": [{
            "name": "c", "secret": "YQ==", "resources": {"limits": {"cpu": "1", "memory": "1073741824", "x": "500m", "y": "1m"}},
        }]},
        "status": {"ratio": 2, "conditions": [{"type": "a", "micro": "2026-01-31T21:59:59.500000Z"}]},
    });
    assert_eq!(decoded(object), expect);
    let secret = |secret: Value| json!({"spec": {"containers": [{"name": "c", "secret": secret}]}});
    assert_eq!(decoded(secret(json!([97, null]))), secret(json!("YQA=")));
}

#[test]
fn empty_fields_are_left_out_unless_they_are_required_or_pointers() {
    let object = json!({
        "metadata": {"name": "", "labels": {}, "finalizers": [], "creationTimestamp": "0001-01-01T00:00:00Z"},
        "spec": {"hostNetwork": false, "priority": 0, "nodeSelector": {}, "containers": [
            {"name": "", "command": [], "ports": [{"containerPort": 0, "protocol": ""}], "resources": {"limits": {}},
                "http": {"port": 0}, "args": []},
        ]},
        "status": {},
    });
    let expect = json!({"spec": {"priority": 0, "containers": [
        {"name": "", "ports": [{"containerPort": 0}], "http": {"port": 0}, "args": []},
    ]}});
    assert_eq!(decoded(object), expect);
}

#[test]
fn nulls_are_absent_or_zero() {
    let object = json!({
        "metadata": null,
        "spec": {"containers": [null, {"name": null, "command": [null], "http": null}], "nodeSelector": {"a": null}},
        "status": {"raw": {"a": null}, "conditions": [{"type": "a", "extra": {"a": null}}]},
    });
    let expect = json!({
        "spec": {"containers": [{}, {"command": [""]}], "nodeSelector": {"a": ""}},
        "status": {"raw": {"a": null}, "conditions": [{"type": "a", "extra": {"a": null}}]},
    });
    assert_eq!(decoded(object), expect);
    assert_eq!(decoded(Value::Null), Value::Null);
}

#[test]
fn unknown_fields_are_removed_and_reported() {
    let (types, pod) = table();
    let mut object = json!({
        "odd": 1, "metadata": {"labels": {"any": ""}, "odd": 1},
        "spec": {"containers": [{"name": "a"}, {"name": "b", "odd": {"x": 1}}]},
        "status": {"raw": {"odd": 1}},
    });
    let result = types.decode(pod, &mut object).unwrap();
    assert_eq!(result.unknown, ["metadata.odd", "odd", "spec.containers[1].odd"]);
    let expect = json!({
        "metadata": {"labels": {"any": ""}}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
        "status": {"raw": {"odd": 1}},
    });
    assert_eq!(object, expect);
    let many: serde_json::Map<_, _> = (0..1000).map(|number| (format!("x{number}"), json!(1))).collect();
    assert_eq!(types.decode(pod, &mut Value::Object(many)).unwrap().unknown.len(), 100);
}

#[test]
fn empty_lists_that_go_always_writes_are_kept_until_the_object_is_stored() {
    let (types, pod) = table();
    let decode = |object: Value| {
        let mut object = object;
        let decoded = types.decode(pod, &mut object).unwrap();
        (object, decoded.has_empty)
    };
    let (mut object, has_empty) = decode(json!({"spec": {"containers": [], "nodeSelector": {}}}));
    assert_eq!((&object, has_empty), (&json!({"spec": {"containers": []}}), true));
    types.complete(pod, &mut object);
    assert_eq!(object["spec"]["containers"], json!([]));
    types.complete_stored(pod, &mut object);
    assert_eq!(object["spec"]["containers"], json!(null));
    assert!(!decode(json!({"metadata": {"labels": {}}, "spec": {"containers": null}})).1);
}

#[test]
fn wrong_types_have_gos_errors() {
    let field = |what: &str| format!("json: cannot unmarshal {what}");
    let check = |object: Value, what: &str| refuse(object, &field(what));
    check(json!([]), "array into Go value of type v1.Pod");
    check(json!({"spec": 1}), "number into Go struct field Pod.spec of type v1.PodSpec");
    check(
        json!({"spec": {"containers": "x"}}),
        "string into Go struct field PodSpec.spec.containers of type []v1.Container",
    );
    check(
        json!({"spec": {"containers": [{"name": true}]}}),
        "bool into Go struct field Container.spec.containers.name of type string",
    );
    check(json!({"spec": {"priority": 1.5}}), "number 1.5 into Go struct field PodSpec.spec.priority of type int32");
    check(
        json!({"spec": {"priority": 3_000_000_000_i64}}),
        "number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
    );
    check(
        json!({"spec": {"nodeSelector": {"a": 1}}}),
        "number into Go struct field PodSpec.spec.nodeSelector of type string",
    );
    let container = |name: &str, value: Value| json!({"spec": {"containers": [{name: value}]}});
    check(
        container("ports", json!([{"protocol": 1}])),
        "number into Go struct field Port.spec.containers.ports.protocol of type v1.Protocol",
    );
    check(
        container("http", json!({"port": true})),
        "bool into Go struct field HTTPGetAction.spec.containers.Probe.http.port of type int32",
    );
    check(
        container("resources", json!({"limits": []})),
        "array into Go struct field ResourceRequirements.spec.containers.resources.limits of type v1.ResourceList",
    );
    check(
        json!({"metadata": {"creationTimestamp": 1}}),
        "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
    );
    refuse(container("secret", json!("a b")), "illegal base64 data at input byte 1");
    refuse(container("resources", json!({"limits": {"cpu": {}}})), quantity::FORMAT);
    refuse(
        json!({"metadata": {"creationTimestamp": "bad"}}),
        r#"parsing time "bad" as "2006-01-02T15:04:05Z07:00": cannot parse "bad" as "2006""#,
    );
}

#[test]
fn the_first_value_of_a_wrong_type_in_the_text_is_reported() {
    let (types, pod) = table();
    let check = |text: &str, by_name: &str, by_place: &str| {
        let wrong = types.decode(pod, &mut serde_json::from_str(text).unwrap()).unwrap_err();
        assert!(wrong.to_string().contains(by_name), "{wrong}");
        assert!(wrong.in_document(text.as_bytes()).contains(by_place), "{}", wrong.in_document(text.as_bytes()));
        assert!(wrong.in_document(b"{").contains(by_name), "{}", wrong.in_document(b"{"));
    };
    check(
        r#"{"spec": {"priority": "x"}, "metadata": {"name": 1}}"#,
        "ObjectMeta.metadata.name",
        "PodSpec.spec.priority",
    );
    check(
        r#"{"spec": {"containers": [{"command": ["a", 1], "secret": "!"}, {"name": 1, "command": [true]}]}}"#,
        "cannot unmarshal number into Go struct field Container.spec.containers.command",
        "cannot unmarshal number into Go struct field Container.spec.containers.command",
    );
    check(
        r#"{"spec": {"nodeSelector": {"b": 1, "a": true}, "containers": 1}}"#,
        "[]v1.Container",
        "cannot unmarshal number into Go struct field PodSpec.spec.nodeSelector",
    );
    // A type that decodes itself ends the decoding, whatever is wrong before it.
    check(
        r#"{"spec": {"priority": "x"}, "metadata": {"name": 1, "deletionTimestamp": "d", "creationTimestamp": "c"}}"#,
        "parsing time \"c\"",
        "parsing time \"d\"",
    );
    let many: Vec<_> = (0..1000).map(Value::from).collect();
    let wrong = types.decode(pod, &mut json!({"metadata": {"finalizers": many}})).unwrap_err();
    assert_eq!(format!("{wrong:?}").matches("WrongType {").count(), 100);
}

#[test]
fn fields_that_go_always_writes_are_added() {
    let (types, pod) = table();
    let mut object = json!({"spec": {"containers": [{"http": {}, "ports": [{}]}]}, "status": {"conditions": [{}]}});
    types.complete(pod, &mut object);
    let expect = json!({
        "metadata": {},
        "spec": {"containers": [{
            "name": "", "resources": {}, "http": {"path": "/", "port": 0}, "ports": [{"containerPort": 0, "protocol": "TCP"}],
        }]},
        "status": {"raw": null, "conditions": [{"type": "", "lastProbeTime": null, "reasons": null}]},
    });
    assert_eq!(object, expect);
    let mut empty = json!({});
    types.complete(pod, &mut empty);
    assert_eq!(empty, json!({"metadata": {}, "spec": {"containers": null}, "status": {"raw": null}}));
}

#[test]
fn fields_are_written_in_their_declared_order() {
    let (types, pod) = table();
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "zz": [1], "metadata": {"labels": {"b": "", "a\n": ""}, "name": "p"},
        "spec": {"hostNetwork": true, "containers": [{"http": {"port": 1, "path": "/"}, "name": "c"}]},
        "status": {"raw": {"spec": {}, "kind": "Pod", "apiVersion": "v1"}},
    });
    let mut out = Vec::new();
    types.write(pod, &object, &mut out);
    let expect = concat!(
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{"a\n":"","b":""}},"#,
        r#""spec":{"containers":[{"name":"c","http":{"path":"/","port":1}}],"hostNetwork":true},"#,
        r#""status":{"raw":{"kind":"Pod","apiVersion":"v1","spec":{}}},"zz":[1]}"#,
    );
    assert_eq!(String::from_utf8(out).unwrap(), expect);
}

#[test]
fn required_fields_are_reported() {
    let (types, pod) = table();
    let object =
        json!({"spec": {"containers": [{"name": "", "ports": [{}], "http": {}}, {}]}, "status": {"conditions": [{}]}});
    assert_eq!(types.missing(pod, &object), ["spec.containers[0].name", "spec.containers[1].name"]);
    assert_eq!(types.missing(pod, &json!({"spec": {}})), ["spec.containers"]);
    assert_eq!(types.missing(pod, &json!({})), Vec::<String>::new());
}

/// Returns all places of a value.
fn places(value: &Value, at: String, all: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, child)| places(child, format!("{at}/{name}"), all)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, child)| places(child, format!("{at}/{index}"), all));
        }
        _ => {}
    }
    all.push(at);
}

proptest::proptest! {
    #[test]
    fn any_value_anywhere_is_decoded_once_for_all(value in json_value(), place in proptest::prelude::any::<usize>()) {
        let (types, pod) = table();
        let mut object = json!({
            "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["f"], "creationTimestamp": "2026-01-31T23:59:59Z"},
            "spec": {"priority": 1, "hostNetwork": true, "nodeSelector": {"a": "b"}, "containers": [{
                "name": "c", "command": ["x"], "secret": "YQ==", "resources": {"limits": {"cpu": "1"}},
                "ports": [{"containerPort": 1, "protocol": "TCP"}], "http": {"path": "/", "port": 1},
            }]},
            "status": {"phase": "x", "ratio": 1.5, "raw": {"a": 1}, "conditions": [
                {"type": "t", "lastProbeTime": "2026-01-31T23:59:59Z", "micro": null, "reasons": ["r"], "extra": {"a": ["b"]}},
            ]},
        });
        let mut all = Vec::new();
        places(&object, String::new(), &mut all);
        *object.pointer_mut(&all[place % all.len()]).unwrap() = value;
        if types.decode(pod, &mut object).is_ok() {
            let first = object.clone();
            proptest::prop_assert_eq!(types.decode(pod, &mut object).map(|decoded| decoded.unknown), Ok(Vec::new()));
            proptest::prop_assert_eq!(&object, &first);
            // What Go writes is read as the same object.
            let mut written = first.clone();
            types.complete(pod, &mut written);
            let mut text = Vec::new();
            types.write(pod, &written, &mut text);
            proptest::prop_assert_eq!(&serde_json::from_slice::<Value>(&text).unwrap(), &written);
            let mut read = written.clone();
            proptest::prop_assert_eq!(types.decode(pod, &mut read).map(|decoded| decoded.unknown), Ok(Vec::new()));
            types.complete(pod, &mut read);
            proptest::prop_assert_eq!(read, written);
        }
    }
}
