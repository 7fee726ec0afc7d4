use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use kubewright_apimachinery::random::Random;
use serde_json::json;

use super::*;

/// Bodies sent by commands of kubectl 1.32, and the objects that they encode.
fn captured() -> Vec<(Vec<u8>, Value)> {
    let file: Value = serde_json::from_str(include_str!("../../tests/data/kubectl.json")).unwrap();
    let records = file.as_array().unwrap().iter();
    records.map(|one| (STANDARD.decode(one["body"].as_str().unwrap()).unwrap(), one["object"].clone())).collect()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn number(field: u64, value: i64) -> Vec<u8> {
    [varint(field << 3), varint(value as u64)].concat()
}

fn bytes(field: u64, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [varint(field << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

fn message(field: u64, parts: &[Vec<u8>]) -> Vec<u8> {
    bytes(field, parts.concat())
}

fn body(version: &str, kind: &str, parts: &[Vec<u8>]) -> Vec<u8> {
    let envelope = [message(1, &[bytes(1, version), bytes(2, kind)]), message(2, parts), bytes(3, ""), bytes(4, "")];
    [MAGIC.to_vec(), envelope.concat()].concat()
}

/// Returns the fields of an object except version and kind.
#[track_caller]
fn check(version: &str, kind: &str, parts: &[Vec<u8>], mut expect: Value) {
    expect["apiVersion"] = version.into();
    expect["kind"] = kind.into();
    match decode(&body(version, kind, parts)) {
        Ok(object) => assert_eq!(object, expect),
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn refuse(body: &[u8], why: &str) {
    assert_eq!(decode(body).unwrap_err().to_string(), why);
}

#[test]
fn protobuf_bodies_decode_to_the_same_json() {
    for (body, expect) in captured() {
        assert_eq!(decode(&body).unwrap(), expect);
    }
}

#[test]
fn zeros_are_dropped_unless_the_field_is_a_pointer() {
    let template = message(3, &[message(2, &[bytes(3, ""), number(11, 0), number(4, 0)])]);
    let spec = message(2, &[number(1, 0), template, number(5, 0)]);
    let expect = json!({
        "metadata": {}, "status": {},
        "spec": {"replicas": 0, "template": {"spec": {"terminationGracePeriodSeconds": 0}}},
    });
    check("apps/v1", "Deployment", &[message(1, &[bytes(8, "")]), spec, message(3, &[])], expect);
    // `containerPort` is written even if it is zero; `hostPort` and `protocol` are not.
    let port = message(6, &[bytes(1, "p"), number(2, 0), number(3, 0), bytes(4, "")]);
    let expect = json!({"spec": {"containers": [{"ports": [{"name": "p", "containerPort": 0}]}]}});
    check("v1", "Pod", &[message(2, &[message(2, &[port])])], expect);
    check("v1", "ConfigMap", &[message(2, &[bytes(1, "empty"), bytes(2, "")])], json!({"data": {"empty": ""}}));
}

#[test]
fn messages_with_other_forms_are_decoded() {
    let times = [message(8, &[number(1, 1_700_000_000), number(2, 5)]), message(9, &[number(1, 0), number(2, 0)])];
    let expect = json!({"metadata": {
        "creationTimestamp": "2023-11-14T22:13:20Z", "deletionTimestamp": "1970-01-01T00:00:00Z",
    }});
    check("v1", "Namespace", &[message(1, &times)], expect);
    let time = message(2, &[message(4, &[number(1, 1_700_000_000), number(2, 1_500)])]);
    check("coordination.k8s.io/v1", "Lease", &[time], json!({"spec": {"renewTime": "2023-11-14T22:13:20.000001Z"}}));
    let port = |parts: &[Vec<u8>]| message(1, &[number(3, 80), message(4, parts)]);
    let ports = [port(&[number(1, 0), number(2, 8080), bytes(3, "")]), port(&[number(1, 1), bytes(3, "web")])];
    let expect = json!({"spec": {"ports": [{"port": 80, "targetPort": 8080}, {"port": 80, "targetPort": "web"}]}});
    check("v1", "Service", &[message(2, &ports)], expect);
    let hard = message(1, &[bytes(1, "cpu"), message(2, &[bytes(1, "100m")])]);
    check("v1", "ResourceQuota", &[message(2, &[hard])], json!({"spec": {"hard": {"cpu": "100m"}}}));
    check("v1", "Secret", &[message(2, &[bytes(1, "k"), bytes(2, b"\0\xff")])], json!({"data": {"k": "AP8="}}));
    let data = [message(2, &[bytes(1, r#"{"a":[null]}"#)]), number(3, 7)];
    check("apps/v1", "ControllerRevision", &data, json!({"data": {"a": [null]}, "revision": 7}));
    let extra = message(4, &[bytes(1, "scopes"), message(2, &[bytes(1, "a"), bytes(1, "b")])]);
    let expect = json!({"status": {"user": {"extra": {"scopes": ["a", "b"]}}}});
    check("authentication.k8s.io/v1", "TokenReview", &[message(3, &[message(2, &[extra])])], expect);
}

#[test]
fn embedded_messages_belong_to_their_parent() {
    let volume = message(1, &[bytes(1, "v"), message(2, &[message(19, &[message(1, &[bytes(1, "cm")])])])]);
    let expect = json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "cm"}}]}});
    check("v1", "Pod", &[message(2, &[volume])], expect);
}

#[test]
fn schemas_in_schemas() {
    let either = [message(30, &[message(2, &[bytes(5, "string")]), number(1, 1)]), message(33, &[number(1, 0)])];
    let default = message(8, &[bytes(1, "3.5")]);
    let root = message(4, &[message(1, &[either.concat(), default, bytes(4, "")])]);
    let version = message(7, &[bytes(1, "v1"), root]);
    let schema = json!({"additionalProperties": {"type": "string"}, "additionalItems": false, "default": 3.5});
    let decoded = decode(&body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &[message(2, &[version])]));
    assert_eq!(decoded.unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"], schema);
}

#[test]
fn repeated_fields_replace_merge_or_append() {
    let parts = [
        message(1, &[bytes(1, "a"), bytes(3, "x")]),
        message(1, &[bytes(1, "b"), bytes(3, "")]),
        message(1, &[message(11, &[bytes(1, "k"), bytes(2, "1")])]),
        message(1, &[message(11, &[bytes(1, "k"), bytes(2, "2")])]),
        message(1, &[bytes(14, "f"), bytes(14, "g")]),
    ];
    let expect = json!({"metadata": {"name": "b", "labels": {"k": "2"}, "finalizers": ["f", "g"]}});
    check("v1", "Namespace", &parts, expect);
    let groups = |list: Vec<u8>| [message(2, &[message(14, &[list])])];
    let expect = json!({"spec": {"securityContext": {"supplementalGroups": [1, 300]}}});
    check("v1", "Pod", &groups([number(4, 1), number(4, 300)].concat()), expect.clone());
    check("v1", "Pod", &groups(bytes(4, [varint(1), varint(300)].concat())), expect);
}

#[test]
fn unknown_fields_are_dropped() {
    let unknown = [number(900, 1), bytes(901, "x"), [varint(902 << 3 | 5), vec![0; 4]].concat()].concat();
    let parts = [message(1, &[bytes(1, "n"), bytes(15, ""), unknown.clone()]), unknown];
    check("v1", "Namespace", &parts, json!({"metadata": {"name": "n"}}));
}

#[test]
fn options_are_the_same_in_all_groups() {
    let parts = [number(1, 0), message(2, &[bytes(1, "u")]), bytes(4, "Foreground")];
    let expect = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}, "propagationPolicy": "Foreground"});
    for version in ["v1", "meta.k8s.io/v1", "apps/v1", "example.com/v1"] {
        check(version, "DeleteOptions", &parts, expect.clone());
    }
}

#[test]
fn statuses_are_the_same_in_all_groups() {
    let parts = [message(1, &[]), bytes(2, "Failure"), bytes(3, "why"), bytes(4, "NotFound"), number(6, 404)];
    let expect = json!({"metadata": {}, "status": "Failure", "message": "why", "reason": "NotFound", "code": 404});
    for version in ["v1", "apps/v1", "example.com/v1"] {
        check(version, "Status", &parts, expect.clone());
    }
}

#[test]
fn malformed_messages_are_refused() {
    refuse(b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]");
    refuse(b"k8s\0", "Object 'Kind' is missing");
    refuse(&body("v1", "Nothing", &[]), r#"no kind "Nothing" is registered for version "v1""#);
    refuse(&body("example.com/v1", "At", &[]), r#"no kind "At" is registered for version "example.com/v1""#);
    let encoded = [&body("v1", "Pod", &[])[..], &bytes(3, "gzip")].concat();
    refuse(&encoded, r#"the encoding "gzip" of the object is not supported"#);
    let other = [&body("v1", "Pod", &[])[..], &bytes(4, "application/json")].concat();
    refuse(&other, r#"the encoding "application/json" of the object is not supported"#);
    let pod = |parts: &[u8]| body("v1", "Pod", &[parts.to_vec()]);
    refuse(&pod(&number(2, 1)), "proto: wrong wire type 0 for field spec");
    refuse(&pod(&message(1, &[bytes(1, b"\xff")])), "proto: field name is not UTF-8");
    refuse(&pod(&[0x12, 0x7f]), "proto: unexpected end of data");
    refuse(&pod(&[vec![0x12], varint(u64::MAX)].concat()), "proto: unexpected end of data");
    refuse(&pod(&[0xff; 11]), "proto: integer overflow");
    refuse(&pod(&[0x03]), "proto: illegal tag 3");
    refuse(&pod(&[0x00, 0x00]), "proto: illegal tag 0");
    let time = |seconds, nanos| pod(&message(1, &[message(8, &[number(1, seconds), number(2, nanos)])]));
    for seconds in [i64::MIN, -62_135_596_801, i64::MAX] {
        refuse(&time(seconds, 0), "proto: field creationTimestamp: the time is out of range");
    }
    let revision = body("apps/v1", "ControllerRevision", &[message(2, &[bytes(1, "{")])]);
    assert!(decode(&revision).unwrap_err().to_string().starts_with("proto: field data: "));
}

/// Returns a schema of levels that are nested through the given fields.
fn nested(levels: usize, wrap: impl Fn(Vec<u8>) -> Vec<u8>) -> Vec<u8> {
    let schema = (0..levels).fold(Vec::new(), |inner, _| wrap(inner));
    let version = message(7, &[message(4, &[bytes(1, schema)])]);
    body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &[message(2, &[version])])
}

#[test]
fn deep_nesting_is_refused() {
    let by_not = |inner: Vec<u8>| bytes(28, inner);
    let by_values = |inner: Vec<u8>| message(30, &[bytes(2, inner)]);
    assert!(decode(&nested(100, by_not)).is_ok());
    assert!(decode(&nested(100, by_values)).is_ok());
    for levels in [110, 200, 1_000, 20_000] {
        refuse(&nested(levels, by_not), "exceeded max depth");
        refuse(&nested(levels, by_values), "exceeded max depth");
    }
}

#[test]
fn arbitrary_bytes_do_not_panic() {
    let random = Random::seeded(8);
    let below = |bound: usize| usize::try_from(random.u64() % bound as u64).unwrap();
    for (body, _) in captured() {
        for end in 0..body.len() {
            let _ = decode(&body[..end]);
        }
        for _ in 0..500 {
            let mut body = body.clone();
            for _ in 0..=below(4) {
                let at = MAGIC.len() + below(body.len() - MAGIC.len());
                body[at] = random.u64() as u8;
            }
            let _ = decode(&body);
        }
    }
    for (version, kind) in [("v1", "Pod"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition"), ("", "")] {
        for length in 0..500 {
            let noise: Vec<u8> = (0..length).map(|_| random.u64() as u8).collect();
            let _ = decode(&[MAGIC, &noise[..]].concat());
            let _ = decode(&body(version, kind, &[noise]));
        }
    }
}

/// Answers of kube-apiserver 1.36.3 in JSON and in protobuf: objects of nearly all kinds, lists and errors.
#[test]
fn objects_are_encoded_as_by_kubernetes() {
    let recorded = include_str!("../../tests/data/protobuf.jsonl");
    let mut count = 0;
    for line in recorded.lines() {
        let pair: Value = serde_json::from_str(line).unwrap();
        let expected = STANDARD.decode(pair["protobuf"].as_str().unwrap()).unwrap();
        let object = &pair["json"];
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        assert!(encode(object).unwrap() == expected, "{name}");
        count += 1;
    }
    assert!(count > 80, "{count}");
}

#[test]
fn lists_are_encoded_one_by_one() {
    let config = |name: &str| Arc::new(json!({"metadata": {"name": name}, "data": {"a": "b"}}));
    let objects = [config("a"), config("b")];
    let metadata = json!({"resourceVersion": "7", "continue": "x", "remainingItemCount": 3});
    let of = ObjectType::of("", "v1", "ConfigMap").unwrap();
    let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": objects.clone().map(|one| (*one).clone())});
    assert_eq!(encode_list(("v1", "ConfigMapList"), &metadata, of, objects), encode(&list).unwrap());
    assert_eq!(encode(&json!({"apiVersion": "example.com/v1", "kind": "ConfigMap"})), None);
}

#[test]
fn times_before_1970_have_a_positive_fraction() {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {}, "spec": {"renewTime": "1969-12-31T23:59:59.500000Z"}});
    assert_eq!(decode(&encode(&lease).unwrap()).unwrap()["spec"], lease["spec"]);
}
