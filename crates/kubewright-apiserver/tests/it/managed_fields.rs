//! Field ownership as Kubernetes records it: requests with the managed fields that Kubernetes 1.36.3 answered
//! (`tests/data/managed-fields.py` records them), or with its errors.

use kubewright_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::{raw::send, start};

const RECORDED: &str = include_str!("../data/managed-fields.json");

/// Returns the managed fields of an answer as they are recorded: without times, and after a write without controllers,
/// of which the API server has one.
fn managed_fields(answer: &Value, written: bool) -> Value {
    let entries = answer["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let is_recorded = |entry: &Value| !written || entry["manager"] != "kube-apiserver";
    let mut entries: Vec<_> = entries.into_iter().filter(is_recorded).collect();
    for time in entries.iter_mut().filter_map(|entry| entry.get_mut("time")) {
        *time = json!("TIME");
    }
    sorted(entries)
}

/// Returns entries in an order that doesn't depend on their times.
fn sorted(mut entries: Vec<Value>) -> Value {
    entries.sort_by_key(|entry| {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        ["operation", "manager", "subresource", "apiVersion", "time"].map(text)
    });
    entries.into()
}

#[tokio::test]
async fn owners_are_recorded_as_in_kubernetes() {
    let api = ApiServer::builder().build();
    let namespace = json!({"metadata": {"name": "fields"}}).to_string();
    send(&api, "POST /api/v1/namespaces", &[], namespace).await.expect_code(201);
    let scenarios: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    let mut wrong = Vec::new();
    for scenario in &scenarios {
        for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            let text = |field: &str| step[field].as_str().unwrap_or("application/json");
            let line = format!("{} {}", text("method"), text("path"));
            let header = format!("Content-Type: {}", text("type"));
            let answer = send(&api, &line, &[&header], step["body"].to_string()).await;
            let place = format!("{}, request {number}: {line}", scenario["name"]);
            if step["fails"] == true {
                let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
                let found = json!([answer.code, message.lines().next()]);
                if found != step["error"] {
                    wrong.push(format!("{place}\n    Kubernetes {}\n    embedded   {found}", step["error"]));
                }
                continue;
            }
            let expect = sorted(step["managedFields"].as_array().unwrap().clone());
            let found = managed_fields(&answer.json(), step["method"] != "GET");
            if answer.code >= 300 {
                wrong.push(format!("{place}: {}", answer.text));
            } else if found != expect {
                wrong.push(format!("{place}\n    Kubernetes {expect}\n    embedded   {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of the recorded answers differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// As recorded on Kubernetes 1.36.3: Cluster API cleans up such owners before it removes a version.
#[tokio::test]
async fn owners_in_a_removed_version_prevent_an_apply_and_are_lost_with_an_update() {
    let (api, _) = start();
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let crd = |versions: &[(&str, bool)]| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}}}});
        let version = |(name, storage): &(&str, bool)| json!({"name": name, "served": true, "storage": storage, "schema": schema});
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "gones.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"plural": "gones", "singular": "gone", "kind": "Gone"},
                "versions": versions.iter().map(version).collect::<Vec<_>>()}})
    };
    let object = |version: &str, field: &str| {
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Gone", "metadata": {"name": "x"},
            "spec": {field: "1"}})
    };
    let patch = async |path: String, of: &str, body: &Value| {
        send(&api, &format!("PATCH {path}"), &[&format!("Content-Type: application/{of}")], body.to_string()).await
    };
    let place = |version: &str| format!("/apis/example.com/{version}/namespaces/default/gones/x");
    let applied = async |version: &str, field: &str| {
        patch(format!("{}?fieldManager=m", place(version)), "apply-patch+yaml", &object(version, field)).await
    };
    let merge = "merge-patch+json";
    let crd_path = || format!("{crds}/gones.example.com");

    send(&api, &format!("POST {crds}"), &[], crd(&[("v1beta1", true)]).to_string()).await.expect_code(201);
    applied("v1beta1", "a").await.expect_code(201);
    patch(crd_path(), merge, &crd(&[("v1beta1", false), ("v1beta2", true)])).await.expect_code(200);
    applied("v1beta2", "a").await.expect_code(200);
    applied("v1beta1", "a").await.expect_code(200);
    let stored = json!({"status": {"storedVersions": ["v1beta2"]}});
    patch(format!("{}/status", crd_path()), merge, &stored).await.expect_code(200);
    patch(crd_path(), merge, &crd(&[("v1beta2", true)])).await.expect_code(200);

    let refused = applied("v1beta2", "b").await.expect_code(500).json();
    assert_eq!(refused["message"], "request to convert CR to an invalid group/version: example.com/v1beta1");
    let updated = patch(place("v1beta2"), merge, &json!({"spec": {"b": "2"}})).await.expect_code(200).json();
    assert_eq!(updated["spec"], json!({"a": "1", "b": "2"}));
    assert_eq!(updated["metadata"].get("managedFields"), None);
}

/// A CRD with a field `b` that the older version doesn't have, and a default of the status.
fn crd_of_two_versions() -> Value {
    let version = |name: &str, storage: bool, spec: Value| {
        let status =
            json!({"type": "object", "default": {"observed": -1}, "properties": {"observed": {"type": "integer"}}});
        let properties = json!({"spec": {"type": "object", "properties": spec}, "status": status});
        json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}})
    };
    let number = json!({"type": "integer"});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gones.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
            "names": {"plural": "gones", "singular": "gone", "kind": "Gone"},
            "versions": [version("v1beta1", false, json!({"a": number, "c": number})),
                version("v1", true, json!({"a": number, "b": number, "c": number}))]}})
}

/// As recorded on Kubernetes 1.36.3: Flux migrates such owners.
#[tokio::test]
async fn objects_fit_the_schemas_of_all_versions_in_which_fields_are_owned() {
    let (api, _) = start();
    let crds = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&api, crds, &[], crd_of_two_versions().to_string()).await.expect_code(201);
    let apply = async |version: &str, manager: &str, spec: Value| {
        let version = format!("example.com/{version}");
        let line = format!("PATCH /apis/{version}/gones/x?fieldManager={manager}");
        let object = json!({"apiVersion": version, "kind": "Gone", "metadata": {"name": "x"}, "spec": spec});
        send(&api, &line, &["Content-Type: application/apply-patch+yaml"], object.to_string()).await
    };
    let refused = async |manager: &str, spec: Value, expect: &str| {
        let answer = apply("v1", manager, spec).await.expect_code(500).json();
        assert_eq!(answer["message"], format!("{expect}: .spec.b: field not declared in schema"));
    };
    let created = apply("v1beta1", "m1", json!({"a": 1})).await.expect_code(201).json();
    assert_eq!(created["status"], json!({"observed": -1}), "the default of the status");
    let last = "failed to prune fields: failed to convert merged object to last applied version";
    refused("m1", json!({"a": 1, "b": 2}), last).await;
    refused("m2", json!({"b": 2}), "failed to convert new object").await;
    apply("v1", "m3", json!({"c": 2})).await.expect_code(200);
    let other = "failed to prune fields: failed add back owned items: failed to convert merged object at version \
                 example.com/v1beta1";
    refused("m3", json!({"b": 2, "c": 2}), other).await;

    // An update loses all owners.
    let merge = ["Content-Type: application/merge-patch+json"];
    let patch = async |path: &str, body: Value| {
        send(&api, &format!("PATCH {path}"), &merge, body.to_string()).await.expect_code(200).json()
    };
    let patched = patch("/apis/example.com/v1/gones/x", json!({"spec": {"b": 7}})).await;
    assert_eq!((&patched["spec"]["b"], patched["metadata"].get("managedFields")), (&json!(7), None));

    // A field that a default adds later is in the live object, too.
    apply("v1beta1", "m4", json!({"a": 1})).await.expect_code(200);
    patch("/apis/example.com/v1/gones/x", json!({"spec": {"b": null}})).await;
    apply("v1beta1", "m4", json!({"a": 1})).await.expect_code(200);
    let mut crd = crd_of_two_versions();
    crd["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["b"]["default"] =
        json!(3);
    patch("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gones.example.com", crd).await;
    let answer = apply("v1", "m5", json!({"c": 2})).await.expect_code(500).json();
    assert_eq!(answer["message"], ".spec.b: field not declared in schema");
}

const SECRET: &str = "/api/v1/namespaces/default/secrets/s";

/// As recorded on Kubernetes 1.36.3: a field that isn't stored keeps its owner, who owns nothing else of the value
/// around it.
#[tokio::test]
async fn fields_that_are_not_stored_keep_their_owners() {
    let (api, _) = start();
    let apply = async |manager: &str, fields: Value| {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        secret.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let line = format!("PATCH {SECRET}?fieldManager={manager}");
        send(&api, &line, &["Content-Type: application/apply-patch+yaml"], secret.to_string()).await
    };
    let owners = |answer: &Value| -> Vec<(Value, Value)> {
        let entries = sorted(answer["metadata"]["managedFields"].as_array().unwrap().clone());
        entries.as_array().unwrap().iter().map(|one| (one["manager"].clone(), one["fieldsV1"].clone())).collect()
    };
    let string = |name: &str| json!({"f:stringData": {format!("f:{name}"): {}}});
    apply("m1", json!({"stringData": {"a": "1"}})).await.expect_code(201);
    apply("m2", json!({"stringData": {"a": "1"}})).await.expect_code(409);
    let answer = apply("m2", json!({"stringData": {"b": "1"}})).await.expect_code(200).json();
    assert_eq!(owners(&answer), [(json!("m1"), string("a")), (json!("m2"), string("b"))]);
    let answer = apply("m3", json!({"stringData": {}})).await.expect_code(200).json();
    let whole = json!({"f:stringData": {}});
    assert_eq!(owners(&answer), [(json!("m1"), string("a")), (json!("m2"), string("b")), (json!("m3"), whole)]);
    let answer = apply("m1", json!({})).await.expect_code(200).json();
    assert_eq!(owners(&answer).len(), 2);
}

/// As recorded on Kubernetes 1.36.3.
#[tokio::test]
async fn sent_managed_fields_are_checked() {
    let (api, _) = start();
    let place = "/api/v1/namespaces/default/configmaps/c";
    let body = json!({"metadata": {"name": "c"}, "data": {"a": "1"}}).to_string();
    send(&api, "POST /api/v1/namespaces/default/configmaps", &[], body).await.expect_code(201);
    let send_fields = async |entries: Vec<Value>| {
        let body = json!({"metadata": {"managedFields": entries}}).to_string();
        send(&api, &format!("PATCH {place}"), &["Content-Type: application/merge-patch+json"], body).await
    };
    let entry = |manager: &str, operation: &str, version: &str| {
        json!({"manager": manager, "operation": operation, "apiVersion": version, "time": "2020-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}})
    };
    let owners = |answer: Value| answer["metadata"]["managedFields"].as_array().map_or(0, Vec::len);
    let kept = send_fields(vec![entry("m", "Apply", "v1"), entry("n", "Apply", "v9")]).await.expect_code(200).json();
    assert_eq!(owners(kept), 1, "an entry of an unknown version is dropped");
    let many = (0..14).map(|number| entry(&format!("u{number}"), "Update", "v1")).collect();
    assert_eq!(owners(send_fields(many).await.expect_code(200).json()), 10);
    let refused = send_fields(vec![entry(&"x".repeat(129), "Apply", "v1")]).await.expect_code(422).json();
    assert_eq!(refused["details"]["causes"][0]["field"], "metadata.managedFields[0].manager");
}

/// As in Kubernetes, an apply of the status creates objects of these kinds, and owns what the status may change.
#[tokio::test]
async fn an_apply_of_the_status_creates_some_kinds() {
    let (api, _) = start();
    let apply = async |path: &str, config: Value| {
        let line = format!("PATCH {path}/a/status?fieldManager=m");
        send(&api, &line, &["Content-Type: application/apply-patch+yaml"], config.to_string()).await
    };
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let config = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "a", "labels": {"a": "b"}},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]},
        "status": {"observedGeneration": 7},
    });
    let created = apply(policies, config).await.expect_code(201).json();
    assert_eq!(created["status"], json!({}));
    let entry = &created["metadata"]["managedFields"][0];
    assert_eq!((&entry["subresource"], &entry["operation"]), (&json!("status"), &json!("Apply")));
    assert_eq!(entry["fieldsV1"], json!({"f:status": {"f:observedGeneration": {}}}));
    let config = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "labels": {"a": "b"}},
        "spec": {"ports": [{"port": 80}]}, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
    });
    let created = apply("/api/v1/namespaces/default/services", config).await.expect_code(201).json();
    let owned = json!({
        "f:metadata": {"f:labels": {"f:a": {}}}, "f:status": {"f:loadBalancer": {"f:ingress": {}}},
    });
    assert_eq!(created["metadata"]["managedFields"][0]["fieldsV1"], owned);
    let config = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "status": {}});
    apply("/api/v1/namespaces/default/pods", config).await.expect_code(404);
}
