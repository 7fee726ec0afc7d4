//! Unknown fields, duplicate fields and values of wrong types: which are reported, in which order, and for which
//! bodies.

use kubewright_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::raw::{RawResponse, send};

const CORE: &str = "/api/v1/namespaces/default";
const APPS: &str = "/apis/apps/v1/namespaces/default";
const MERGE: &str = "Content-Type: application/merge-patch+json";
const YAML: &str = "Content-Type: application/yaml";

/// Returns a server with a pod, a Deployment and a service account.
async fn start() -> ApiServer {
    let api = ApiServer::builder().build();
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": spec});
    for (path, object) in [
        (format!("{CORE}/pods"), json!({"metadata": {"name": "p"}, "spec": spec})),
        (format!("{CORE}/serviceaccounts"), json!({"metadata": {"name": "robot"}})),
        (
            format!("{APPS}/deployments"),
            json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}),
        ),
    ] {
        send(&api, &format!("POST {path}"), &[], object.to_string()).await.expect_code(201);
    }
    api
}

fn warnings(answer: &RawResponse) -> Vec<String> {
    let texts = answer.headers.get_all("warning").iter().map(|value| value.to_str().unwrap());
    texts.map(|text| text.trim_start_matches("299 - ").replace("\\\"", "'")).collect()
}

async fn message(api: &ApiServer, line: &str, headers: &[&str], body: &str) -> String {
    let answer = send(api, line, headers, body).await.expect_code(400).json();
    answer["message"].as_str().unwrap().to_owned()
}

/// Checks what each field validation makes of the unknown fields of a body, which changes nothing.
async fn check_unknown(api: &ApiServer, line: &str, kind: &str, body: Value, unknown: &[&str]) {
    // The result of a patch is refused as such.
    let is_patch = line.starts_with("PATCH");
    let headers: &[&str] = if is_patch { &[MERGE] } else { &[] };
    let (ok, bad) = match line.split_once(' ').unwrap().0 {
        "POST" => (201, 400),
        "PUT" => (200, 400),
        _ => (200, 422),
    };
    let send = async |query: &str| send(api, &format!("{line}?dryRun=All{query}"), headers, body.to_string()).await;
    let warned = send("").await.expect_code(ok);
    let expect: Vec<_> = unknown.iter().map(|path| format!("\"unknown field '{path}'\"")).collect();
    assert_eq!(warnings(&warned), expect, "{line}");
    let ignored = send("&fieldValidation=Ignore").await.expect_code(ok);
    assert_eq!(warnings(&ignored), [""; 0], "{line}");
    let strict = send("&fieldValidation=Strict").await.expect_code(bad).json();
    let unknown: Vec<_> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    let why = format!("strict decoding error: {}", unknown.join(", "));
    let message = strict["message"].as_str().unwrap();
    assert!(message.ends_with(&why), "{line}: {message}");
    assert!(is_patch || message.contains(&format!("cannot be handled as a {kind}: ")), "{line}: {message}");
}

#[tokio::test]
async fn bodies_that_are_not_stored_are_validated() {
    let api = start().await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n", "odd": 1}, "extra": 1});
    let in_binding = ["extra", "target.odd"];
    check_unknown(&api, &format!("POST {CORE}/pods/p/binding"), "Binding", binding.clone(), &in_binding).await;
    check_unknown(&api, &format!("POST {CORE}/bindings"), "Binding", binding, &in_binding).await;
    let eviction = json!({"metadata": {"name": "p"}, "deleteOptions": {"odd": 1}});
    check_unknown(&api, &format!("POST {CORE}/pods/p/eviction"), "Eviction", eviction, &["deleteOptions.odd"]).await;
    let request = json!({"spec": {"audiences": [], "odd": 1}});
    let token = format!("POST {CORE}/serviceaccounts/robot/token");
    check_unknown(&api, &token, "TokenRequest", request, &["spec.odd"]).await;
    let scale = json!({"metadata": {"name": "d", "odd": 1}, "spec": {"replicas": 2}});
    check_unknown(&api, &format!("PUT {APPS}/deployments/d/scale"), "Scale", scale, &["metadata.odd"]).await;
    let patch = json!({"spec": {"replicas": 2, "odd": 1}});
    check_unknown(&api, &format!("PATCH {APPS}/deployments/d/scale"), "Scale", patch, &["spec.odd"]).await;
}

#[tokio::test]
async fn the_result_of_a_patch_of_a_scale_passes_through_its_type() {
    let api = start().await;
    let line = format!("PATCH {APPS}/deployments/d/scale");
    let wrong = json!({"spec": {"replicas": "2"}}).to_string();
    let refused = send(&api, &line, &[MERGE], wrong).await.expect_code(422);
    let why = "json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32";
    assert!(refused.text.contains(why), "{}", refused.text);
    let patched = send(&api, &line, &[MERGE], json!({"spec": {"replicas": 2}}).to_string()).await.expect_code(200);
    assert_eq!(patched.json()["spec"], json!({"replicas": 2}));
}

/// In Kubernetes, too, field validation is an option of creates, updates and patches alone.
#[tokio::test]
async fn unknown_options_of_deletions_are_dropped() {
    let api = start().await;
    let options = json!({"gracePeriodSeconds": 0, "odd": 1, "preconditions": {"odd": 1}}).to_string();
    let line = format!("DELETE {CORE}/serviceaccounts/robot?fieldValidation=Strict");
    let answer = send(&api, &line, &[], options).await.expect_code(200);
    assert_eq!(warnings(&answer), [""; 0]);
}

#[tokio::test]
async fn a_body_that_is_refused_later_is_warned_of() {
    let api = start().await;
    let body = json!({"metadata": {"name": "p"}, "target": {"name": "n", "odd": 1}}).to_string();
    let line = format!("POST {CORE}/pods/p/binding");
    let bound = send(&api, &line, &[], body.clone()).await.expect_code(201);
    let conflict = send(&api, &line, &[], body.clone()).await.expect_code(409);
    let expect = ["\"unknown field 'target.odd'\""];
    assert_eq!(warnings(&bound), expect);
    assert_eq!(warnings(&conflict), expect);
    let ignored = send(&api, &format!("{line}?fieldValidation=Ignore"), &[], body).await.expect_code(409);
    assert_eq!(warnings(&ignored), [""; 0]);
}

#[tokio::test]
async fn fields_are_reported_in_the_order_of_the_document() {
    let api = start().await;
    let strict = |path: &str| format!("POST {path}?fieldValidation=Strict");
    let body = r#"{"zeta": {"a": 1, "a": 2}, "metadata": {"name": "m", "x": 1, "name": "m"}, "data": {"b": "1", "b": "2"},
        "alpha": 1, "zeta": 2}"#;
    let expect = concat!(
        r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "zeta", "#,
        r#"unknown field "metadata.x", duplicate field "metadata.name", duplicate field "data.b", unknown field "alpha""#
    );
    assert_eq!(message(&api, &strict(&format!("{CORE}/configmaps")), &[], body).await, expect);
    let binding = r#"{"target": {"name": "n", "odd": 1, "name": "n"}, "metadata": {"name": "p"}, "extra": 1}"#;
    let expect = concat!(
        r#"Binding in version "v1" cannot be handled as a Binding: strict decoding error: unknown field "target.odd", "#,
        r#"duplicate field "target.name", unknown field "extra""#
    );
    assert_eq!(message(&api, &strict(&format!("{CORE}/pods/p/binding")), &[], binding).await, expect);
    // YAML becomes JSON, which is sorted, and its own duplicate fields are found before.
    let body = "zeta: 1\nmetadata:\n  name: m\n  name: m\nalpha: 1\n";
    let yaml = message(&api, &strict(&format!("{CORE}/configmaps")), &[YAML], body).await;
    let (_, problems) = yaml.split_once("strict decoding error: ").unwrap();
    let expect = "yaml: unmarshal errors:\n  line 4: key \"name\" already set in map, unknown field \"alpha\", unknown field \"zeta\"";
    assert_eq!(problems, expect);
    let warned = send(&api, &format!("POST {CORE}/configmaps"), &[YAML], body).await.expect_code(201);
    assert_eq!(warnings(&warned)[0], r#""line 4: key 'name' already set in map""#);
}

/// Its duplicate fields are found when it has been applied, and it has no other unknown fields.
#[tokio::test]
async fn duplicate_fields_of_an_applied_configuration_are_those_of_yaml() {
    const APPLY: &str = "Content-Type: application/apply-patch+yaml";
    let api = start().await;
    let line = |validation: &str| format!("PATCH {CORE}/configmaps/m?fieldManager=me&fieldValidation={validation}");
    let config = |data: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {data}\n");
    let twice = config("{a: \"1\", a: \"2\"}");
    let expect = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  \
                  line 4: key \"a\" already set in map";
    // The object doesn't exist, and then it does.
    for _ in 0..2 {
        assert_eq!(message(&api, &line("Strict"), &[APPLY], &twice).await, expect);
        let warned = send(&api, &line("Warn"), &[APPLY], twice.clone()).await;
        assert_eq!(warnings(&warned), [r#""line 4: key 'a' already set in map""#]);
        assert_eq!(warned.json()["data"], json!({"a": "2"}));
    }
    let more = format!("{twice}more: 1\n");
    let refused = send(&api, &line("Strict"), &[APPLY], more).await.expect_code(500).json()["message"].to_string();
    assert!(refused.ends_with(".more: field not declared in schema\""), "{refused}");
}

#[tokio::test]
async fn the_first_value_of_a_wrong_type_in_the_document_is_reported() {
    let api = start().await;
    let field = |what: &str| format!("json: cannot unmarshal {what}");
    let create = format!("POST {APPS}/deployments");
    let body = r#"{"spec": {"selector": {}, "replicas": "x", "paused": 1}, "metadata": {"name": 5}}"#;
    let expect = field("string into Go struct field DeploymentSpec.spec.replicas of type int32");
    let refused = message(&api, &create, &[], body).await;
    assert!(refused.ends_with(&expect), "{refused}");
    // As YAML, it is sorted.
    let refused = message(&api, &create, &[YAML], &format!("# {body}\n{body}")).await;
    let by_name = field("number into Go struct field ObjectMeta.metadata.name of type string");
    assert!(refused.ends_with(&by_name), "{refused}");
    // A time is decoded by its own type, which ends the decoding.
    let body = r#"{"spec": {"replicas": "x"}, "metadata": {"name": 5, "creationTimestamp": "now"}}"#;
    let refused = message(&api, &create, &[], body).await;
    assert!(refused.contains(": parsing time \"now\""), "{refused}");
    let options = r#"{"orphanDependents": "x", "gracePeriodSeconds": "x", "dryRun": 1}"#;
    let refused = message(&api, &format!("DELETE {CORE}/pods/p"), &[], options).await;
    assert_eq!(refused, field("string into Go struct field DeleteOptions.orphanDependents of type bool"));
    let binding = r#"{"target": {"uid": 1, "name": true}, "metadata": {"name": "p"}, "kind": "Binding"}"#;
    let refused = message(&api, &format!("POST {CORE}/pods/p/binding"), &[], binding).await;
    assert!(
        refused.ends_with(&field("number into Go struct field ObjectReference.target.uid of type types.UID")),
        "{refused}"
    );
}

#[tokio::test]
async fn fields_of_operations_of_json_patches_are_reported() {
    const JSON_PATCH: &str = "Content-Type: application/json-patch+json";
    let api = start().await;
    let patch = r#"[{"op": "add", "path": "/metadata/labels", "zz": 1, "value": {"a": "b"}, "aa": 1, "aa": 2, "op": "add"},
        {"op": "test", "path": "/metadata/name", "value": "p", "extra": {"b": 1, "b": 2}}]"#;
    let paths = [
        "unknown field \"[0].zz\"",
        "unknown field \"[0].aa\"",
        "duplicate field \"[0].op\"",
        "unknown field \"[1].extra\"",
    ];
    let paths = paths.map(|path| format!("json patch {path}"));
    let line = |validation: &str| format!("PATCH {CORE}/pods/p?fieldValidation={validation}");
    let warned = send(&api, &line("Warn"), &[JSON_PATCH], patch).await.expect_code(200);
    assert_eq!(warnings(&warned), paths.clone().map(|path| format!("\"{}\"", path.replace('"', "'"))));
    let ignored = send(&api, &line("Ignore"), &[JSON_PATCH], patch).await.expect_code(200);
    assert_eq!(warnings(&ignored), [""; 0]);
    let refused = send(&api, &line("Strict"), &[JSON_PATCH], patch).await.expect_code(422).json();
    let message = refused["message"].as_str().unwrap();
    assert!(message.ends_with(&format!("strict decoding error: {}", paths.join(", "))), "{message}");
}

#[tokio::test]
async fn unknown_fields_in_the_metadata_of_embedded_resources_are_named_last() {
    let api = start().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
    }}}});
    let definition = json!({"metadata": {"name": "boxes.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "boxes", "kind": "Box"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
    }});
    let line = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&api, line, &[], definition.to_string()).await.expect_code(201);
    let template = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "zz": 1}, "unknown": 1});
    let body = json!({
        "apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "a", "q": 1},
        "spec": {"template": template, "unknown": 1}, "zz": 1,
    });
    let paths = ["metadata.q", "spec.template.unknown", "spec.unknown", "zz", "spec.template.metadata.zz"];
    check_unknown(&api, "POST /apis/example.com/v1/namespaces/default/boxes", "Box", body, &paths).await;
}
