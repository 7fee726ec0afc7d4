//! Requests for custom objects, and what Kubernetes 1.36 answers.

use kubewright_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::raw::send;

const APPLY: &str = "Content-Type: application/apply-patch+yaml";
const MERGE: &str = "Content-Type: application/merge-patch+json";
const GATES: &str = "/apis/example.com/v1/namespaces/default/gates";

fn object(fields: &Value) -> Value {
    json!({"type": "object", "properties": fields})
}

/// A server with a kind `Gate`.
async fn server() -> ApiServer {
    let api = ApiServer::builder().build();
    let mut spec = object(&json!({
        "replicas": {"type": "integer"}, "min": {"type": "integer", "default": 0}, "name": {"type": "string"},
        "nullable": {"type": "string", "nullable": true}, "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "inner": object(&json!({"a": {"type": "string"}})), "list": {"type": "array", "items": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    }));
    spec["x-kubernetes-validations"] = json!([{"rule": "self.min >= 0"}]);
    let definition = json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "metadata": {"name": "gates.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Gate", "plural": "gates"}, "versions": [{
            "name": "v1", "served": true, "storage": true, "subresources": {
                "status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            "schema": {"openAPIV3Schema": object(&json!({
                "spec": spec, "status": object(&json!({
                    "replicas": {"type": "integer"},
                    "address": {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}}))}))},
        }]},
    });
    let path = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&api, path, &[], definition.to_string()).await.expect_code(201);
    api
}

fn gate(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Gate", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn an_applied_null_is_validated() {
    let api = server().await;
    let spec = json!({"name": "a", "map": {"x": "y"}, "list": ["a"], "inner": {"a": "b"}});
    let path = format!("PATCH {GATES}/a?fieldManager=a");
    send(&api, &path, &[APPLY], gate("a", &spec).to_string()).await.expect_code(201);
    for (spec, expect) in [
        (json!({"name": null}), "spec.name in body must be of type string: \"null\""),
        (json!({"list": null}), "spec.list in body must be of type array: \"null\""),
        (json!({"map": {"x": null}}), "spec.map.x in body must be of type string: \"null\""),
        (json!({"inner": null}), ""),
        (json!({"nullable": null, "min": null}), ""),
    ] {
        let answer = send(&api, &path.replace("=a", "=b&force=true"), &[APPLY], gate("a", &spec).to_string()).await;
        let code = if expect.is_empty() { 200 } else { 422 };
        assert_eq!(answer.code, code, "{}", answer.text);
        assert!(answer.json()["message"].as_str().unwrap_or_default().contains(expect), "{}", answer.text);
    }
    let found = send(&api, &format!("GET {GATES}/a"), &[], "").await.json();
    let expect =
        json!({"name": "a", "map": {"x": "y"}, "list": ["a"], "inner": {"a": "b"}, "nullable": null, "min": 0});
    assert_eq!(found["spec"], expect);
    let status = json!({"apiVersion": "example.com/v1", "kind": "Gate", "metadata": {"name": "a"}, "status": null});
    let path = format!("PATCH {GATES}/a/status?fieldManager=a");
    send(&api, &path, &[APPLY], status.to_string()).await.expect_code(200);
    let mut filled = status.clone();
    filled["status"] = json!({"replicas": 1});
    send(&api, &path, &[APPLY], filled.to_string()).await.expect_code(200);
    let refused = send(&api, &path, &[APPLY], status.to_string()).await.expect_code(422).json();
    let expect = r#"status: Invalid value: "null":  in body must be of type object: "null""#;
    assert!(refused["message"].as_str().unwrap().contains(expect), "{refused}");
    // The metadata has a type of its own, and other writes drop nulls.
    let mut labelled = gate("b", &json!({"name": null}));
    labelled["metadata"]["labels"] = json!({"x": null});
    labelled["metadata"]["finalizers"] = json!(["a.b/c", "a.b/c"]);
    let created = send(&api, &format!("POST {GATES}"), &[], labelled.to_string()).await;
    assert_eq!((created.code, created.json()["metadata"]["labels"].clone()), (201, json!({"x": ""})));
    labelled["metadata"] = json!({"name": "c", "labels": {"x": null}});
    labelled["spec"] = json!({});
    let applied = send(&api, &format!("PATCH {GATES}/c?fieldManager=a"), &[APPLY], labelled.to_string()).await;
    assert_eq!((applied.code, applied.json()["metadata"]["labels"].clone()), (201, json!({"x": ""})));
}

#[tokio::test]
async fn the_metadata_of_embedded_resources_is_decoded_and_validated() {
    let api = server().await;
    let pod = |metadata: Value| json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}});
    for (spec, code, expect) in [
        (
            pod(json!({"name": 5})),
            400,
            "Gate in version \"v1\" cannot be handled as a Gate: spec.template.metadata: Invalid value: {\"name\":5}: json: \
             cannot unmarshal number into Go struct field ObjectMeta.name of type string",
        ),
        (
            json!({"template": {"apiVersion": 1, "kind": "Pod"}}),
            400,
            "spec.template.apiVersion: Invalid value: 1: must be a string",
        ),
        (
            pod(json!({"labels": {"a b": "c"}})),
            422,
            "spec.template.metadata.labels: Invalid value: \"a b\": name part must consist of",
        ),
        (pod(json!({"name": "a/b"})), 422, "spec.template.metadata.name: Invalid value: \"a/b\": may not contain '/'"),
        (pod(json!({"namespace": "a.b"})), 422, "spec.template.metadata.namespace: Invalid value: \"a.b\":"),
        (json!({"template": {"kind": "Pod"}}), 422, "spec.template.apiVersion: Required value"),
        (pod(json!({"name": "X_Y", "odd": 1, "creationTimestamp": null, "labels": {"a": "b"}})), 201, ""),
    ] {
        let answer = send(&api, &format!("POST {GATES}"), &[], gate("a", &spec).to_string()).await;
        assert_eq!(answer.code, code, "{}", answer.text);
        assert!(answer.json()["message"].as_str().unwrap_or_default().contains(expect), "{}", answer.text);
        if code == 201 {
            let found = send(&api, &format!("GET {GATES}/a"), &[], "").await.json();
            assert_eq!(found["spec"]["template"]["metadata"], json!({"name": "X_Y", "labels": {"a": "b"}}));
        }
    }
    let patch = json!({"spec": {"template": {"metadata": {"name": 5}}}}).to_string();
    send(&api, &format!("PATCH {GATES}/a"), &[MERGE], patch).await.expect_code(422);
}

#[tokio::test]
async fn the_scale_of_a_custom_object_is_a_number_that_has_owners() {
    let api = server().await;
    send(&api, &format!("POST {GATES}?fieldManager=a"), &[], gate("a", &json!({"name": "x"})).to_string())
        .await
        .expect_code(201);
    let scale = format!("{GATES}/a/scale");
    let missing = send(&api, &format!("GET {scale}"), &[], "").await;
    let why = "Internal error occurred: the spec replicas field \".spec.replicas\" does not exist";
    assert_eq!((missing.code, missing.json()["message"].clone()), (500, json!(why)));
    let patch = |replicas: Value| json!({"spec": {"replicas": replicas}}).to_string();
    let labels = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let unset = send(&api, &format!("PATCH {scale}"), &[MERGE], labels).await;
    let why = "the spec replicas field \".spec.replicas\" cannot be empty";
    assert_eq!((unset.code, unset.json()["message"].clone()), (400, json!(why)));
    let scale = format!("{GATES}/c/scale");
    send(&api, &format!("POST {GATES}?fieldManager=a"), &[], gate("c", &json!({"replicas": 1})).to_string())
        .await
        .expect_code(201);
    send(&api, &format!("PATCH {scale}?fieldManager=b"), &[MERGE], patch(json!(3))).await.expect_code(200);
    let owners = |object: &Value| {
        let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
        entries
            .map(|entry| json!([entry["manager"], entry["subresource"], entry["fieldsV1"]["f:spec"]]))
            .collect::<Value>()
    };
    let found = send(&api, &format!("GET {GATES}/c"), &[], "").await.json();
    let expect = json!([["b", "scale", {"f:replicas": {}}], ["a", null, {".": {}, "f:min": {}}]]);
    assert_eq!((found["spec"]["replicas"].clone(), owners(&found)), (json!(3), expect));
    // Kubernetes can't convert the result of an apply.
    let config = |replicas: i32| {
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "c", "namespace": "default"},
            "spec": {"replicas": replicas}})
    };
    let applied =
        send(&api, &format!("PATCH {scale}?fieldManager=c&force=true"), &[APPLY], config(4).to_string()).await;
    assert_eq!(applied.code, 500, "{}", applied.text);
    assert!(
        applied.text.contains("request to convert CR to an invalid group/version: autoscaling/v1"),
        "{}",
        applied.text
    );
    send(&api, &format!("PATCH {scale}?fieldManager=c"), &[APPLY], config(3).to_string()).await.expect_code(200);
    let another = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}).to_string();
    let refused = send(&api, &format!("PUT {scale}"), &[], another.clone()).await.expect_code(400).json();
    assert_eq!(
        refused["message"],
        "no kind is registered for the type v1.Scale in scheme \"pkg/runtime/scheme.go:111\""
    );
    let refused = send(&api, &format!("PATCH {scale}"), &[MERGE], another).await.expect_code(422).json();
    let message = refused["message"].as_str().unwrap_or_default();
    let why = "no kind \"ConfigMap\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"";
    assert!(message.ends_with(why), "{message}");
    let accept = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = send(&api, &format!("GET {scale}"), &[accept], "").await.json();
    assert_eq!(
        table["rows"][0]["cells"].as_array().map(|cells| &cells[..3]),
        Some(&[json!("c"), json!(3), json!(0)][..])
    );
    // A write through the scale sets no defaults.
    let bare = json!({"apiVersion": "example.com/v1", "kind": "Gate", "metadata": {"name": "b"}});
    send(&api, &format!("POST {GATES}"), &[], bare.to_string()).await.expect_code(201);
    let invalid = send(&api, &format!("PATCH {GATES}/b/scale"), &[MERGE], patch(json!(1))).await;
    assert_eq!(invalid.code, 422, "{}", invalid.text);
    assert!(invalid.text.contains("no such key: min"), "{}", invalid.text);
}

#[tokio::test]
async fn an_apply_to_the_scale_of_a_built_in_object_conflicts_about_its_replicas() {
    let api = ApiServer::builder().build();
    let path = "/apis/apps/v1/namespaces/default/replicasets";
    let set = json!({"metadata": {"name": "a"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    send(&api, &format!("POST {path}?fieldManager=a"), &[], set.to_string()).await.expect_code(201);
    let scale = |spec: Value| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a", "namespace": "default"}, "spec": spec});
    for (spec, code, expect) in [
        (
            json!({"replicas": 0}),
            409,
            "Apply failed with 1 conflict: conflict with \"a\" using autoscaling/v1: .spec.replicas",
        ),
        (
            json!({"replicas": 0, "x": 1}),
            500,
            "failed to create typed patch object (default/a; autoscaling/v1, Kind=Scale): .spec.x: field not declared in schema",
        ),
    ] {
        let answer =
            send(&api, &format!("PATCH {path}/a/scale?fieldManager=b"), &[APPLY], scale(spec).to_string()).await;
        assert_eq!((answer.code, answer.json()["message"].clone()), (code, json!(expect)));
    }
}

#[tokio::test]
async fn methods_that_a_custom_resource_does_not_have_are_named() {
    let api = server().await;
    send(&api, &format!("POST {GATES}"), &[], gate("a", &json!({})).to_string()).await.expect_code(201);
    let unsupported = |verb: &str| format!("{verb} is not supported on resources of kind \"gates.example.com\"");
    for (line, code, expect) in [
        (format!("OPTIONS {GATES}/a"), 405, unsupported("")),
        (format!("DELETE {GATES}/a/status"), 405, unsupported("delete")),
        (format!("POST {GATES}/a/scale"), 405, unsupported("create")),
        (format!("PUT {GATES}"), 400, "name must be provided".to_owned()),
        (format!("PATCH {GATES}"), 400, "name must be provided".to_owned()),
    ] {
        let answer = send(&api, &line, &[MERGE], "{}").await;
        assert_eq!((answer.code, answer.json()["message"].clone()), (code, json!(expect)), "{line}");
    }
    send(&api, &format!("POST {GATES}/a"), &[], gate("b", &json!({})).to_string()).await.expect_code(201);
    send(&api, &format!("GET {GATES}/b"), &[], "").await.expect_code(200);
}

#[tokio::test]
async fn a_node_created_by_an_apply_keeps_its_status() {
    let api = ApiServer::builder().build();
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "1"}}});
    let answer = send(&api, "PATCH /api/v1/nodes/n?fieldManager=a", &[APPLY], node.to_string()).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
    let object = answer.json();
    assert_eq!(object["status"]["capacity"], json!({"cpu": "1"}));
    assert_eq!(object["metadata"]["managedFields"], Value::Null);
}

#[tokio::test]
async fn an_applied_value_of_the_wrong_syntax_is_an_error_of_the_server() {
    let api = ApiServer::builder().build();
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "binaryData": {"x": "!!"}});
    let path = "PATCH /api/v1/namespaces/default/configmaps/a?fieldManager=a";
    let answer = send(&api, path, &[APPLY], config.to_string()).await;
    let expect = "failed to convert new object (/a; /v1, Kind=ConfigMap) to proper version: unable to convert unstructured \
                  object to /v1, Kind=ConfigMap: error decoding from json: illegal base64 data at input byte 0";
    assert_eq!((answer.code, answer.json()["message"].clone()), (500, json!(expect)));
}

#[tokio::test]
async fn an_unchanged_value_that_violates_a_new_rule_causes_a_warning() {
    let api = server().await;
    send(&api, &format!("POST {GATES}"), &[], gate("a", &json!({"name": "x"})).to_string()).await.expect_code(201);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gates.example.com";
    let rules = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/name/x-kubernetes-validations",
        "value": [{"rule": "self != 'x'"}]}]);
    let json_patch = "Content-Type: application/json-patch+json";
    send(&api, &format!("PATCH {path}"), &[json_patch], rules.to_string()).await.expect_code(200);
    let labels = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let answer = send(&api, &format!("PATCH {GATES}/a"), &[MERGE], labels).await.expect_code(200);
    assert_eq!(answer.header("warning"), "299 - \"spec.name: Invalid value: \\\"x\\\": failed rule: self != 'x'\"");
}

/// Returns the fields of the causes of an answer.
fn fields(answer: &Value) -> Vec<&str> {
    let causes = answer["details"]["causes"].as_array().into_iter().flatten();
    causes.filter_map(|cause| cause["field"].as_str()).collect()
}

#[tokio::test]
async fn causes_have_the_order_of_kubernetes_steps() {
    let api = server().await;
    let template = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a b": "c"}}});
    let mut all = gate("", &json!({"list": "a", "replicas": -1, "set": ["a", "a"], "template": template}));
    all["metadata"] = json!({"labels": {"a b": "c"}});
    let answer = send(&api, &format!("POST {GATES}"), &[], all.to_string()).await.expect_code(422).json();
    assert_eq!(
        fields(&answer),
        [
            "metadata.name",
            "metadata.labels",
            "spec.list",
            ".spec.replicas",
            "spec.template.metadata.labels",
            "spec.set[1]",
            "<nil>"
        ]
    );
    let mut rule = gate("a", &json!({"min": -1}));
    rule["metadata"]["labels"] = json!({"a b": "c"});
    let answer = send(&api, &format!("POST {GATES}"), &[], rule.to_string()).await.expect_code(422).json();
    assert_eq!(fields(&answer), ["metadata.labels", "spec"]);
    send(&api, &format!("POST {GATES}"), &[], gate("a", &json!({})).to_string()).await.expect_code(201);
    let patch = json!({"metadata": {"labels": {"a b": "c"}}, "spec": {"min": -1}}).to_string();
    let answer = send(&api, &format!("PATCH {GATES}/a"), &[MERGE], patch).await.expect_code(422).json();
    assert_eq!(fields(&answer), ["metadata.labels", "spec"]);
}

#[tokio::test]
async fn a_missing_name_is_one_of_several_causes() {
    let api = ApiServer::builder().build();
    for (path, object, expect) in [
        ("/api/v1/namespaces/default/pods", json!({}), &["metadata.name", "spec.containers"][..]),
        ("/api/v1/namespaces/default/configmaps", json!({"data": {"a/b": ""}}), &["metadata.name", "data[a/b]"]),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({}),
            &["metadata.name", "spec.selector", "spec.template.metadata.labels", "spec.template.spec.containers"],
        ),
    ] {
        let answer = send(&api, &format!("POST {path}"), &[], object.to_string()).await.expect_code(422).json();
        assert_eq!(fields(&answer), expect, "{answer}");
    }
    let definition = json!({"metadata": {"generateName": "a"}, "spec": {"group": "a.b", "names": {"plural": "c"}}});
    let path = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let answer = send(&api, path, &[], definition.to_string()).await.expect_code(422).json();
    assert_eq!(fields(&answer)[..2], ["metadata.generateName", "metadata.name"]);
}

#[tokio::test]
async fn a_status_that_fits_no_schema_is_named_relative_to_itself() {
    let api = server().await;
    send(&api, &format!("POST {GATES}"), &[], gate("a", &json!({})).to_string()).await.expect_code(201);
    let patch = json!({"status": {"address": "x"}}).to_string();
    let answer = send(&api, &format!("PATCH {GATES}/a/status"), &[MERGE], patch).await.expect_code(422).json();
    let cause = &answer["details"]["causes"][0];
    assert_eq!(cause["field"], "status");
    assert_eq!(cause["message"], "Invalid value: \"\": \"address\" must validate at least one schema (anyOf)");
}

/// The aggregated document leaves both empty for the built-in kinds.
#[tokio::test]
async fn custom_kinds_are_discovered_with_their_group_and_version() {
    let api = server().await;
    let aggregated = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let document = send(&api, "GET /apis", &[aggregated], "").await.expect_code(200).json();
    let group =
        document["items"].as_array().unwrap().iter().find(|group| group["metadata"]["name"] == "example.com").unwrap();
    let gates = &group["versions"][0]["resources"][0];
    let own = json!({"group": "example.com", "version": "v1", "kind": "Gate"});
    assert_eq!(gates["responseKind"], own);
    let kinds: Vec<_> =
        gates["subresources"].as_array().unwrap().iter().map(|entry| entry["responseKind"].clone()).collect();
    assert_eq!(kinds, [own, json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})]);
}

/// An applied null of a field without a type is owned, but not stored.
#[tokio::test]
async fn an_applied_null_is_owned_but_not_stored() {
    let api = ApiServer::builder().build();
    let open = json!({"x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"any": open, "spec": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"typed": {"type": "string"}},
    }}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "opens", "kind": "Open"});
    let spec = json!({"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]});
    let definition = json!({"metadata": {"name": "opens.example.com"}, "spec": spec}).to_string();
    let path = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&api, path, &[], definition).await.expect_code(201);
    let apply = async |spec: Value| {
        let config = json!({
            "apiVersion": "example.com/v1", "kind": "Open", "metadata": {"name": "a"}, "any": null, "spec": spec,
        });
        send(&api, "PATCH /apis/example.com/v1/opens/a?fieldManager=m", &[APPLY], config.to_string()).await
    };
    for code in [201, 200] {
        let object = apply(json!({"x": null})).await.expect_code(code).json();
        assert_eq!((object.get("any"), &object["spec"]), (None, &json!({"x": null})));
        let owned = json!({"f:any": {}, "f:spec": {"f:x": {}}});
        assert_eq!(object["metadata"]["managedFields"][0]["fieldsV1"], owned);
        assert_eq!(object["metadata"]["generation"], 1);
    }
    apply(json!({"typed": null})).await.expect_code(422);
}
