//! Invalid input: the response is a `Status` with the error, and nothing is stored.

use kubewright_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::{raw::send, start};

const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";
const YAML: &str = "Content-Type: application/yaml";
const JSON: &str = "Content-Type: application/json";

fn config(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// Sends a create request, and checks the response and that nothing is stored.
async fn check(api: &ApiServer, content: &str, body: impl Into<Vec<u8>>, code: u16, message: &str) -> Value {
    let before = send(api, &format!("GET {CONFIGS}"), &[], "").await.text;
    let answer = send(api, &format!("POST {CONFIGS}?fieldValidation=Strict"), &[content], body).await;
    let status = answer.json();
    assert_eq!((answer.code, &status["kind"], &status["code"]), (code, &json!("Status"), &json!(code)), "{status}");
    assert!(status["message"].as_str().unwrap().contains(message), "{message}: {status}");
    assert_eq!(send(api, &format!("GET {CONFIGS}"), &[], "").await.text, before, "something was stored");
    status
}

#[tokio::test]
async fn malformed_bodies_are_refused() {
    let (api, _) = start();
    let deep = |open: &str, close: &str| {
        let nested = open.repeat(10_000) + "1" + &close.repeat(10_000);
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},"data":{nested}}}"#)
    };
    for body in ["", "{", "[]", "1", "\"\"", "{\"a\":}", "{}{}", "nonsense", "{\"data\":NaN}", "{\"data\":1e999}"] {
        check(&api, JSON, body, 400, "").await;
    }
    for body in ["a: [", "a: b: c", "\t- x", "a: .nan", "- 1", "!!binary x", "&a [*a]"] {
        check(&api, YAML, body, 400, "").await;
    }
    for content in [JSON, YAML] {
        check(&api, content, deep("[", "]"), 400, "").await;
        check(&api, content, deep("{\"a\":", "}"), 400, "").await;
        let mut invalid = config("a").to_string().into_bytes();
        invalid.insert(20, 0xff);
        check(&api, content, invalid, 400, "").await;
    }
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
                g: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n";
    check(&api, YAML, bomb, 400, "").await;
}

#[tokio::test]
async fn bodies_are_limited_in_size() {
    let (api, _) = start();
    let mut body = config("a").to_string();
    body.push_str(&" ".repeat(3 * 1024 * 1024 - body.len()));
    assert_eq!(send(&api, &format!("POST {CONFIGS}"), &[JSON], body.clone()).await.code, 201, "3 MiB are allowed");
    body.push(' ');
    let status = check(&api, JSON, body, 413, "Request entity too large: limit is 3145728").await;
    assert_eq!(status["reason"], "RequestEntityTooLarge");
}

#[tokio::test]
async fn wrong_kinds_names_and_namespaces_are_refused() {
    let (api, _) = start();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut object = config("a");
        change(&mut object);
        object.to_string()
    };
    check(
        &api,
        JSON,
        with(&|o| o["kind"] = json!("Secret")),
        400,
        "cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
    )
    .await;
    let list = "converting (v1.ConfigMapList) to (core.ConfigMap): unknown conversion";
    check(&api, JSON, with(&|o| o["kind"] = json!("ConfigMapList")), 400, list).await;
    check(&api, JSON, with(&|o| o["kind"] = json!("Nope")), 400, "no kind \"Nope\" is registered for version \"v1\"")
        .await;
    for (version, kind, is_known) in [
        ("v1", "Status", true),
        ("example.com/v1", "Status", true),
        ("apps/v1", "APIGroup", true),
        ("apps/v1", "ListOptions", true),
        ("example.com/v1", "ListOptions", false),
        ("meta.k8s.io/v1", "ListOptions", false),
        ("meta.k8s.io/v1", "Table", false),
    ] {
        let why = match is_known {
            true => format!("converting (v1.{kind}) to (core.ConfigMap): unknown conversion"),
            false => format!("no kind \"{kind}\" is registered for version \"{version}\""),
        };
        let body = with(&|o| (o["apiVersion"], o["kind"]) = (json!(version), json!(kind)));
        let expect = format!("{kind} in version \"v1\" cannot be handled as a ConfigMap: {why}");
        check(&api, JSON, body, 400, &expect).await;
    }
    check(
        &api,
        JSON,
        with(&|o| o["apiVersion"] = json!("v2")),
        400,
        "no kind \"ConfigMap\" is registered for version \"v2\"",
    )
    .await;
    check(&api, JSON, with(&|o| o["metadata"]["namespace"] = json!("other")), 400, "does not match the namespace")
        .await;
    check(&api, JSON, with(&|o| o["metadata"] = json!(7)), 400, "cannot unmarshal number").await;
    check(&api, JSON, with(&|o| o["metadata"]["labels"] = json!({"a": 1})), 400, "ObjectMeta.metadata.labels").await;
    check(&api, JSON, with(&|o| o["metadata"]["name"] = json!(["a"])), 400, "ObjectMeta.metadata.name").await;
    check(&api, JSON, with(&|o| o["metadata"]["resourceVersion"] = json!("7")), 500, "resourceVersion").await;
    check(&api, JSON, with(&|o| o["data"] = json!({"a": {}})), 400, "cannot be handled as a ConfigMap").await;
}

/// In Kubernetes, the core group may be followed by a slash.
#[tokio::test]
async fn the_version_of_the_core_group_may_begin_with_a_slash() {
    let (api, _) = start();
    let with = |version: &str| {
        json!({"apiVersion": version, "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "1"}}).to_string()
    };
    let apply = format!("PATCH {CONFIGS}/a?fieldManager=a");
    let applied = send(&api, &apply, &["Content-Type: application/apply-patch+yaml"], with("/v1")).await;
    assert_eq!(applied.expect_code(201).json()["apiVersion"], "v1");
    send(&api, &format!("DELETE {CONFIGS}/a"), &[], "").await.expect_code(200);
    let created = send(&api, &format!("POST {CONFIGS}"), &[JSON], with("/v1")).await.expect_code(201).json();
    assert_eq!(created["apiVersion"], "v1");
    check(&api, JSON, with("/apps/v1"), 400, "unexpected GroupVersion string: /apps/v1").await;
}

#[tokio::test]
async fn other_versions_of_a_kind_are_refused_in_words_of_their_own() {
    let (api, _) = start();
    let refuse = async |path: &str, version: &str, kind: &str, expect: &str| {
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}}).to_string();
        let refused = send(&api, &format!("POST {path}"), &[], body).await.expect_code(400).json();
        assert_eq!(refused["message"], expect);
    };
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let other = |sent: &str, expected: &str| {
        format!("the API version in the data ({sent}) does not match the expected API version ({expected})")
    };
    for version in ["apps/v1beta1", "extensions/v1beta1"] {
        refuse(deployments, version, "Deployment", &other(version, "apps/v1")).await;
    }
    let scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    refuse(scalers, "autoscaling/v1", "HorizontalPodAutoscaler", &other("autoscaling/v1", "autoscaling/v2")).await;
    refuse("/api/v1/namespaces/default/events", "events.k8s.io/v1", "Event", &other("events.k8s.io/v1", "v1")).await;
    let cannot =
        |version: &str, kind: &str| format!("{kind} in version {version:?} cannot be handled as a Deployment: ");
    let unknown =
        "no kind \"Deployment\" is registered for version \"apps/v2\" in scheme \"pkg/runtime/scheme.go:111\"";
    refuse(deployments, "apps/v2", "Deployment", &(cannot("v2", "Deployment") + unknown)).await;
    let converting = "converting (v1beta1.StatefulSet) to (apps.Deployment): unknown conversion";
    refuse(deployments, "apps/v1beta1", "StatefulSet", &(cannot("v1beta1", "StatefulSet") + converting)).await;
}

#[tokio::test]
async fn unknown_and_duplicate_fields_are_refused_in_strict_validation() {
    let (api, _) = start();
    let mut unknown = config("a");
    unknown["metadata"]["foo"] = json!(1);
    unknown["bar"] = json!({});
    check(&api, JSON, unknown.to_string(), 400, "unknown field \"bar\"").await;
    let twice = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1","x":"2"}}"#;
    check(&api, JSON, twice, 400, "duplicate field \"data.x\"").await;
    check(
        &api,
        YAML,
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  name: a\n",
        400,
        "strict decoding error",
    )
    .await;
}

#[tokio::test]
async fn invalid_names_and_labels_are_refused() {
    let (api, _) = start();
    let long = "a".repeat(254);
    for name in ["A", "a_b", "-a", "a..b", "a/b", "ü", " ", &long] {
        let status = check(&api, JSON, config(name).to_string(), 422, "metadata.name: Invalid value").await;
        assert_eq!(status["details"]["causes"][0]["field"], "metadata.name", "{name}");
    }
    for (labels, cause) in [
        (json!({"a b": "x"}), "metadata.labels"),
        (json!({"a": "x y"}), "metadata.labels"),
        (json!({"a": "a".repeat(64)}), "metadata.labels"),
    ] {
        let mut object = config("a");
        object["metadata"]["labels"] = labels;
        let status = check(&api, JSON, object.to_string(), 422, "Invalid value").await;
        assert_eq!(status["details"]["causes"][0]["field"], cause);
    }
    let mut object = config("A");
    object["metadata"]["labels"] = json!({"a b": "x"});
    let status = check(&api, JSON, object.to_string(), 422, "Invalid value").await;
    let causes = status["details"]["causes"].as_array().unwrap();
    let fields: Vec<_> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["metadata.name", "metadata.labels"], "all causes in one answer");
    let mut object = config("a");
    object["metadata"]["annotations"] = json!({"a": "x".repeat(256 * 1024)});
    check(&api, JSON, object.to_string(), 422, "metadata.annotations: Too long").await;
    object["metadata"]["annotations"] = json!({});
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p"}]);
    check(&api, JSON, object.to_string(), 422, "metadata.ownerReferences.uid").await;
    object["metadata"]["ownerReferences"] = json!([]);
    object["metadata"]["finalizers"] = json!(["not a name"]);
    check(&api, JSON, object.to_string(), 422, "metadata.finalizers").await;
}

#[tokio::test]
async fn some_groups_require_no_domain_in_the_names_of_finalizers() {
    let (api, _) = start();
    let metadata = json!({"name": "a", "finalizers": ["unqualified"]});
    let class = json!({"metadata": metadata, "handler": "h"}).to_string();
    send(&api, "POST /apis/node.k8s.io/v1/runtimeclasses", &[], class).await.expect_code(201);
    let config = json!({"metadata": metadata}).to_string();
    send(&api, "POST /api/v1/namespaces/default/configmaps", &[], config).await.expect_code(422);
}

#[tokio::test]
async fn numbers_of_wrong_types_are_refused() {
    let (api, _) = start();
    let path = "POST /apis/apps/v1/namespaces/default/deployments";
    for replicas in ["99999999999999999999999", "1.5", "1.0", "1e1", "\"3\"", "2147483648", "-99999999999", "true"] {
        let body = format!(
            r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"d"}},"spec":{{"replicas":{replicas},
            "selector":{{"matchLabels":{{"a":"b"}}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},
            "spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
        );
        let answer = send(&api, path, &[JSON], body).await;
        assert_eq!((answer.code, &answer.json()["kind"]), (400, &json!("Status")), "{replicas}: {}", answer.text);
    }
}

#[tokio::test]
async fn invalid_query_parameters_are_refused() {
    let (api, _) = start();
    for (query, code) in [
        ("limit=x", 400),
        ("continue=x", 400),
        ("resourceVersion=x", 400),
        ("resourceVersion=-1", 400),
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersionMatch=Odd&resourceVersion=1", 422),
        ("sendInitialEvents=true", 422),
        ("watch=true&sendInitialEvents=true", 422),
        ("watch=true&resourceVersionMatch=Exact&resourceVersion=1", 422),
        ("labelSelector=a%20in", 400),
        ("fieldSelector=a", 400),
        ("fieldSelector=spec.foo%3Da", 400),
        ("watch=true&timeoutSeconds=x", 400),
    ] {
        let answer = send(&api, &format!("GET {CONFIGS}?{query}"), &[], "").await;
        assert_eq!((answer.code, &answer.json()["kind"]), (code, &json!("Status")), "{query}: {}", answer.text);
    }
    for (query, causes) in [
        ("resourceVersionMatch=Odd", 2),
        ("resourceVersionMatch=Exact&continue=x", 2),
        ("watch=true&resourceVersionMatch=Exact&resourceVersion=1", 2),
        ("watch=true&resourceVersionMatch=NotOlderThan", 1),
    ] {
        let answer = send(&api, &format!("GET {CONFIGS}?{query}"), &[], "").await.json();
        assert_eq!(answer["details"]["causes"].as_array().map(Vec::len), Some(causes), "{query}: {answer}");
    }
    for query in ["dryRun=Some", "fieldValidation=Maybe", "fieldManager=%01"] {
        let answer = send(&api, &format!("POST {CONFIGS}?{query}"), &[JSON], config("a").to_string()).await;
        assert_eq!((answer.code, &answer.json()["reason"]), (422, &json!("Invalid")), "{query}: {}", answer.text);
    }
}

#[tokio::test]
async fn invalid_patches_are_refused() {
    let (api, _) = start();
    send(&api, &format!("POST {CONFIGS}"), &[JSON], config("a").to_string()).await;
    let before = send(&api, &format!("GET {CONFIGS}/a"), &[], "").await.text;
    let many =
        serde_json::to_string(&vec![json!({"op": "test", "path": "/kind", "value": "ConfigMap"}); 10_001]).unwrap();
    for (kind, body, code) in [
        ("json-patch+json", "{}", 400),
        ("json-patch+json", "[{}]", 422),
        ("json-patch+json", "[7]", 400),
        ("json-patch+json", r#"[{"op":"remove","path":"/nothing/here"}]"#, 422),
        ("json-patch+json", r#"[{"op":"replace","path":"","value":7}]"#, 422),
        ("json-patch+json", r#"[{"op":"replace","path":"/metadata/name","value":"b"}]"#, 400),
        ("json-patch+json", &many, 413),
        ("merge-patch+json", "{", 400),
        ("merge-patch+json", "7", 400),
        ("merge-patch+json", r#"{"metadata":null}"#, 400),
        ("merge-patch+json", r#"{"metadata":{"uid":"x"}}"#, 422),
        ("merge-patch+json", r#"{"metadata":{"deletionTimestamp":"2000-01-01T00:00:00Z"}}"#, 422),
        ("merge-patch+json", r#"{"metadata":{"resourceVersion":"1"}}"#, 409),
        ("merge-patch+json", r#"{"data":{"a":7}}"#, 422),
        ("apply-patch+yaml", "- 1", 400),
        ("apply-patch+yaml", "kind: ConfigMap", 400),
    ] {
        let content = format!("Content-Type: application/{kind}");
        let answer = send(&api, &format!("PATCH {CONFIGS}/a?fieldManager=m"), &[&content], body).await;
        assert_eq!((answer.code, &answer.json()["kind"]), (code, &json!("Status")), "{body:.60}: {}", answer.text);
    }
    assert_eq!(send(&api, &format!("GET {CONFIGS}/a"), &[], "").await.text, before, "something was stored");
}

#[tokio::test]
async fn nesting_within_the_limit_is_accepted() {
    let (api, _) = start();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "deeps.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Deep", "plural": "deeps"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }},
            }],
        },
    });
    let crds = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&api, crds, &[JSON], definition.to_string()).await.code, 201);
    let nested = |value: &str| {
        let spec = "{\"a\":".repeat(100) + value + &"}".repeat(100);
        format!(r#"{{"apiVersion":"example.com/v1","kind":"Deep","metadata":{{"name":"d"}},"spec":{spec}}}"#)
    };
    let path = "/apis/example.com/v1/namespaces/default/deeps";
    let created = send(&api, &format!("POST {path}"), &[JSON], nested("1")).await;
    assert_eq!(created.code, 201, "{}", created.text);
    for (kind, force) in [("merge-patch+json", ""), ("apply-patch+yaml", "&force=true")] {
        let content = format!("Content-Type: application/{kind}");
        let line = format!("PATCH {path}/d?fieldManager=m{force}");
        let patched = send(&api, &line, &[&content], nested("2")).await;
        assert_eq!(patched.code, 200, "{}", patched.text);
    }
    assert_eq!(send(&api, &format!("GET {path}"), &["Accept: application/yaml"], "").await.code, 200);
}

#[tokio::test]
async fn text_is_escaped_and_repaired_as_in_go() {
    let (api, _) = start();
    let configs = "/api/v1/namespaces/default/configmaps";
    let body = b"{\"metadata\":{\"name\":\"c\"},\"data\":{\"a\":\"<&>\xff\\ud800\"}}";
    let created = send(&api, &format!("POST {configs}"), &[], body.to_vec()).await.expect_code(201);
    let escaped = "\"data\":{\"a\":\"\\u003c\\u0026\\u003e\u{fffd}\u{fffd}\"}";
    assert!(created.text.contains(escaped), "{}", created.text);
    for path in [format!("{configs}/c"), configs.to_owned()] {
        assert!(send(&api, &format!("GET {path}"), &[], "").await.text.contains(escaped), "{path}");
    }
    let missing = send(&api, &format!("GET {configs}/%3Ca%3E"), &[], "").await.text;
    assert!(missing.contains("configmaps \\\"\\u003ca\\u003e\\\" not found"), "{missing}");
}
