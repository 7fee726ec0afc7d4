//! Packing is lossless for what is read, and drops the rest.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use proptest::{collection, prelude::*};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::*;

/// An object packed after it was read as a `T`.
fn packed<'de, T: Deserialize<'de>>(object: &Value, dictionary: &Dictionary) -> Vec<u8> {
    let draft: RawObject = serde_json::from_str(&object.to_string()).expect("an object");
    let marks = ReadMarks::new(&draft);
    Document::raw(&draft, identity(&draft), &marks).read::<T>(dictionary).map(drop).expect("a T");
    pack(&draft, &marks, draft.metadata.name.as_deref().unwrap_or_default(), dictionary)
}

fn identity(draft: &RawObject) -> Identity<'_> {
    let metadata = &draft.metadata;
    Identity {
        api_version: "v1",
        kind: "Thing",
        name: metadata.name.as_deref(),
        namespace: metadata.namespace.as_deref(),
        uid: metadata.uid.as_ref().map(|uid| uid as _),
        resource_version: metadata.resource_version.as_ref().map(|version| version as _),
    }
}

/// An object after it was read as a `T`, packed, and read as whatever is left.
fn kept<'de, T: Deserialize<'de>>(object: &Value) -> Value {
    let dictionary = Dictionary::default();
    let draft: RawObject = serde_json::from_str(&object.to_string()).expect("an object");
    let bytes = packed::<T>(object, &dictionary);
    Document::packed(&bytes, identity(&draft)).read(&dictionary).expect("any value")
}

fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "[a-z]{0,4}",
        ".{0,40}",
        Just("2026-01-01T00:00:00Z".to_owned()),
        Just("2026-02-30T00:00:00Z".to_owned()),
        Just("0b7e9b7e-1111-4222-8333-a00000000001".to_owned()),
        Just("0B7E9B7E-1111-4222-8333-A00000000001".to_owned()),
        "(|sha256:|containerd://|docker://)[0-9a-f]{30,34}",
        "(|sha256:|cri-o://|other://)[0-9a-fA-F]{64}",
    ];
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0..40u64).prop_map(Value::from),
        any::<i32>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        text.clone().prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            collection::vec((text.clone(), inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #[test]
    fn any_object_comes_back(spec in any_json(), extra in any_json(), rounds in 1..24usize) {
        let dictionary = Dictionary::default();
        let object = |name: usize| json!({
            "apiVersion": "v1", "kind": "Thing",
            "metadata": {"name": name.to_string(), "uid": "u", "resourceVersion": "7", "extra": extra},
            "spec": spec,
        });
        // The first ones are packed before, the last after what they have in common is in the dictionary.
        let bytes = (0..rounds).map(|name| packed::<Value>(&object(name), &dictionary)).collect::<Vec<_>>();
        for (name, packed) in bytes.iter().enumerate() {
            let draft: RawObject = serde_json::from_value(object(name)).expect("an object");
            let back: Value = Document::packed(packed, identity(&draft)).read(&dictionary).expect("any value");
            prop_assert_eq!(back, object(name));
            prop_assert_eq!(changed_fields(&bytes[0], packed, &dictionary), Vec::<String>::new());
        }
    }

    #[test]
    fn malformed_bytes_are_an_error(bytes in collection::vec(any::<u8>(), 0..60)) {
        let dictionary = Dictionary::default();
        (0..20).for_each(|name| drop(packed::<Value>(&json!({"metadata": {"name": name.to_string()}, "a": {"b": ["cde"]}}), &dictionary)));
        let _ = Document::packed(&bytes, Identity::default()).read::<Value>(&dictionary);
        let _ = changed_fields(&bytes, &[], &dictionary);
    }
}

#[test]
fn managed_fields_of_an_object_are_left_out_of_its_json() {
    let managed = json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]);
    let object = json!({
        "apiVersion": "v1", "metadata": {"name": "a", "managedFields": managed, "labels": {"managedFields": "x"}},
        "spec": {"metadata": {"managedFields": managed}},
    });
    let mut without = object.clone();
    without["metadata"].as_object_mut().expect("metadata").remove("managedFields");
    let text = object.to_string();
    assert_eq!(Json::parse_without_managed_fields(&text).expect("JSON").read::<Value>().expect("a value"), without);
    let whole = Json::parse(&text).expect("JSON");
    assert_eq!(whole.read::<Value>().expect("a value"), object);
    assert_eq!(whole.read::<BTreeMap<String, Value>>().expect("a map").len(), 3);
    for malformed in ["", "[]", "{} {}", r#"{"metadata": {"managedFields": [}}"#] {
        assert!(Json::parse_without_managed_fields(malformed).is_err(), "{malformed}");
    }
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(122), "]".repeat(122));
    let error = Json::parse_without_managed_fields(&deep).expect_err("it is too deep").to_string();
    assert_eq!(error, "nested more than 120 levels deep");
}

#[derive(Deserialize, Serialize)]
struct View {
    metadata: ViewMetadata,
    status: Option<ViewStatus>,
    spec: ViewSpec,
}

#[derive(Deserialize, Serialize)]
struct ViewMetadata {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Serialize)]
struct ViewSpec {
    containers: Vec<Named>,
}

#[derive(Deserialize, Serialize)]
struct Named {
    name: String,
}

#[derive(Deserialize, Serialize)]
struct ViewStatus {
    phase: Option<String>,
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Thing",
        "metadata": {
            "name": "a", "namespace": "b", "uid": "c", "resourceVersion": "12", "labels": {"app": "web"},
            "annotations": {"x": "y", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {"containers": [{"name": "one", "image": "i"}, {"image": "i", "name": "two"}], "nodeName": "n"},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    })
}

#[test]
fn only_what_is_read_is_kept() {
    assert_eq!(
        kept::<View>(&pod()),
        json!({
            "apiVersion": "v1", "kind": "Thing",
            "metadata": {"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "12", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "one"}, {"name": "two"}]},
            "status": {"phase": "Running"},
        })
    );
}

#[test]
fn a_value_keeps_all_but_managed_fields_and_the_last_applied_copy() {
    let mut expected = pod();
    expected["metadata"]["annotations"] = json!({"x": "y"});
    expected["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
    assert_eq!(kept::<Value>(&pod()), expected);
}

#[test]
fn enums_and_keys_that_are_numbers_are_read_as_from_json() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Odd {
        unit: Choice,
        newtype: Choice,
        fields: Choice,
        tuple: Choice,
        numbers: BTreeMap<u16, Option<bool>>,
        timed: Choice,
    }
    #[derive(Debug, PartialEq, Deserialize)]
    enum Choice {
        Unit,
        Newtype(String),
        Fields { a: i8 },
        Tuple(u8, f32),
    }
    let object = json!({
        "metadata": {"name": "a"}, "unit": "Unit", "newtype": {"Newtype": "text"}, "fields": {"Fields": {"a": -4}},
        "tuple": {"Tuple": [1, 2.5]}, "numbers": {"7": true, "300": null}, "timed": {"Newtype": "2026-01-01T00:00:00Z"},
    });
    let dictionary = Dictionary::default();
    let bytes = packed::<Odd>(&object, &dictionary);
    let odd: Odd = Document::packed(&bytes, Identity::default()).read(&dictionary).expect("it is odd");
    assert_eq!(odd, serde_json::from_value(object).expect("it is odd"));
}

#[test]
fn a_mismatch_is_reported_in_serdes_words() {
    let draft: RawObject = serde_json::from_value(json!({"metadata": {}, "spec": 4})).expect("an object");
    let marks = ReadMarks::new(&draft);
    let identity = Identity { api_version: "v1", kind: "Pod", ..Identity::default() };
    let read = Document::raw(&draft, identity, &marks).read::<Pod>(&Dictionary::default());
    assert!(read.is_err_and(|why| why.to_string().contains("invalid type: integer `4`")));
    let headless = serde_json::from_value::<RawObject>(json!({"spec": 4}));
    assert!(headless.is_err_and(|why| why.to_string() == "an object without metadata"));
}

#[test]
fn strings_are_shared_once_several_objects_have_them() {
    let dictionary = Dictionary::default();
    let object =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"image": "registry.example.com/some/image:1"}});
    let first = packed::<Value>(&object("0"), &dictionary).len();
    // One object that changes often has its strings for itself.
    (0..40).for_each(|_| drop(packed::<Value>(&object("0"), &dictionary)));
    assert_eq!(packed::<Value>(&object("0"), &dictionary).len(), first);
    (1..10).for_each(|name| drop(packed::<Value>(&object(&name.to_string()), &dictionary)));
    assert!(packed::<Value>(&object("10"), &dictionary).len() < first - 40);
}

#[test]
fn hashes_take_a_byte_for_two_digits() {
    let dictionary = Dictionary::default();
    let digits = "0123456789abcdef".repeat(4);
    let length = |text: &str| packed::<Value>(&json!({"metadata": {}, "a": text}), &dictionary).len();
    let empty = length("");
    for prefix in ["", "sha256:", "containerd://", "cri-o://", "docker://"] {
        assert_eq!(length(&format!("{prefix}{digits}")) - empty, 34, "{prefix}");
    }
    // Two bytes of the head and the text itself.
    for text in [format!("image@{digits}"), digits.to_uppercase(), digits[1..].to_owned()] {
        assert_eq!(length(&text) - empty, text.len() + 1, "{text}");
    }
}

#[test]
fn lists_and_maps_are_shared_once_several_objects_have_them() {
    let dictionary = Dictionary::default();
    let object = |name: usize, port: u64| {
        let container =
            json!({"name": name.to_string(), "ports": [{"containerPort": port, "hostPorts": [1, 2, 3]}], "env": []});
        json!({"metadata": {"name": name.to_string()}, "spec": {"containers": [container], "limits": {"cpu": 1, "gpu": 2}}})
    };
    let first = packed::<Value>(&object(0, 80), &dictionary);
    // Their strings are shared before them.
    (1..30).for_each(|name| drop(packed::<Value>(&object(name, 80), &dictionary)));
    let shared = packed::<Value>(&object(0, 80), &dictionary);
    // `ports` and `limits` take two bytes each.
    assert!(shared.len() < 30 && shared.len() < first.len() - 60, "{} and {} bytes", shared.len(), first.len());
    // One value that differs is written in place, with those around it.
    let other = packed::<Value>(&object(0, 81), &dictionary);
    assert_eq!(changed_fields(&first, &shared, &dictionary), Vec::<String>::new());
    assert_eq!(changed_fields(&shared, &other, &dictionary), ["spec.containers[0].ports[0].containerPort"]);
    let identity = Identity { api_version: "v1", kind: "Thing", name: Some("0"), ..Identity::default() };
    for (bytes, port) in [(&first, 80), (&shared, 80), (&other, 81)] {
        let mut expected = object(0, port);
        (expected["apiVersion"], expected["kind"]) = ("v1".into(), "Thing".into());
        assert_eq!(Document::packed(bytes, identity).read::<Value>(&dictionary), Ok(expected));
    }
    // A shared value may have the wrong shape for a type, or be skipped by one.
    #[derive(Debug, Deserialize)]
    struct Limits {
        #[serde(rename = "limits")]
        _limits: String,
    }
    #[derive(Debug, Deserialize)]
    struct Spec<T> {
        spec: T,
    }
    let error = Document::packed(&shared, identity).read::<Spec<Limits>>(&dictionary).unwrap_err();
    assert_eq!(error.to_string(), "invalid type: map, expected a string");
    #[derive(Debug, Deserialize)]
    struct Named {
        name: String,
    }
    #[derive(Debug, Deserialize)]
    struct Containers {
        containers: Vec<Named>,
    }
    let read = Document::packed(&shared, identity).read::<Spec<Containers>>(&dictionary).unwrap();
    assert_eq!(read.spec.containers[0].name, "0");
}

#[test]
fn changed_fields_are_reported_by_path() {
    let check = |old: Value, new: Value, expected: &[&str]| {
        let dictionary = Dictionary::default();
        let [old, new] = [old, new].map(|mut object: Value| {
            object["metadata"]["name"] = "a".into();
            packed::<Value>(&object, &dictionary)
        });
        assert_eq!(changed_fields(&old, &new, &dictionary), expected);
    };
    let version = |version: &str| json!({"metadata": {"resourceVersion": version}});
    check(version("1"), version("2"), &[]);
    check(json!({"spec": {"replicas": 1}}), json!({"spec": {"replicas": 2}}), &["spec.replicas"]);
    check(
        json!({"metadata": {"labels": {"a": "1"}}}),
        json!({"metadata": {"labels": {"a": "2"}}}),
        &["metadata.labels.a"],
    );
    check(json!({"a": [{"b": 1}, 2]}), json!({"a": [{"b": 2}, 2], "c": 1}), &["a[0].b", "c"]);
    check(json!({"a": [1], "gone": 1}), json!({"a": [1, 2]}), &["a", "gone"]);
    let many =
        |value: i32| json!({"spec": (0..20).map(|key| (format!("k{key:02}"), value)).collect::<BTreeMap<_, _>>()});
    check(
        many(1),
        many(2),
        &["spec.k00", "spec.k01", "spec.k02", "spec.k03", "spec.k04", "spec.k05", "spec.k06", "spec.k07"],
    );
}

#[test]
fn fields_can_be_dropped_from_maps_and_lists() {
    let draft: RawObject = serde_json::from_value(pod()).expect("an object");
    let field = |path: &str| path.split('.').map(Into::into).collect::<Vec<String>>();
    let dropped = ["metadata.annotations", "spec.containers.image", "spec.nodeName.x", "status", "absent"].map(field);
    let draft = draft.without(&dropped);
    let dictionary = Dictionary::default();
    let left: Value =
        Document::raw(&draft, identity(&draft), &ReadMarks::new(&draft)).read(&dictionary).expect("a value");
    let mut expected = pod();
    expected["metadata"] =
        json!({"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "12", "labels": {"app": "web"}});
    expected["spec"]["containers"] = json!([{"name": "one"}, {"name": "two"}]);
    expected.as_object_mut().map(|pod| pod.remove("status"));
    assert_eq!(left, expected);
}

#[test]
fn from_text_and_from_value_read_as_serde_json_does() {
    let mut pod = pod();
    pod["kind"] = "Pod".into();
    let text = pod.to_string();
    let expected: Pod = serde_json::from_str(&text).expect("a pod");
    assert_eq!(from_text::<Pod>(&text).expect("a pod"), expected);
    assert_eq!(from_value::<Pod>(&pod).expect("a pod"), expected);
    assert_eq!(from_text::<Value>(&text).expect("JSON"), pod);
    for wrong in ["", "{", "{} {}", "[1]", r#"{"spec": 4}"#, &"[".repeat(1000)] {
        assert!(from_text::<Pod>(wrong).is_err(), "{wrong}");
    }
    let why = from_text::<Pod>(r#"{"spec": {"containers": {}}}"#).map_err(|why| why.to_string());
    assert_eq!(why.unwrap_err(), "invalid type: map, expected a sequence");
}
