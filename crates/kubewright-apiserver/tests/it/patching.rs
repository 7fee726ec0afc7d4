//! Patches and managed fields.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::params::ValidationDirective,
};
use serde_json::{Value, json};

use crate::{raw::send, refused, start};

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]},
            },
        },
    })
}

fn images(deployment: &Deployment) -> Vec<String> {
    let template = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    template.containers.iter().map(|container| container.image.clone().unwrap()).collect()
}

#[tokio::test]
async fn objects_are_patched_by_all_patch_types() {
    let (_, client) = start();
    let api: Api<Deployment> = Api::default_namespaced(client);
    let created: Deployment = serde_json::from_value(deployment()).unwrap();
    let created = api.create(&PostParams::default(), &created).await.unwrap();
    assert_eq!(created.metadata.generation, Some(1));
    let params = PatchParams::default();

    let containers = json!([{"name": "b", "image": "b:2"}]);
    let body = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let strategic = api.patch("d", &params, &Patch::Strategic(&body)).await.unwrap();
    assert_eq!(images(&strategic), ["a:1", "b:2"], "a strategic patch merges lists by key");
    assert_eq!(strategic.metadata.generation, Some(2));
    let merge = api.patch("d", &params, &Patch::Merge(&body)).await.unwrap();
    assert_eq!(images(&merge), ["b:2"], "a merge patch replaces them");

    let operations = json!([{"op": "test", "path": "/spec/replicas", "value": 1}, {"op": "replace", "path": "/spec/replicas", "value": 2}]);
    let operations = || Patch::Json::<()>(serde_json::from_value(operations.clone()).unwrap());
    let patched = api.patch("d", &params, &operations()).await.unwrap();
    assert_eq!(patched.spec.unwrap().replicas, Some(2));
    refused(api.patch("d", &params, &operations()).await, 422, "the server rejected our request");
    let labels = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(api.patch("d", &params, &labels).await.unwrap().metadata.generation, Some(4), "labels are no spec");
    let annotations = json!({"metadata": {"annotations": {"a": "b"}}});
    let annotated = api.patch("d", &params, &Patch::Merge(&annotations)).await.unwrap();
    assert_eq!(annotated.metadata.generation, Some(5), "annotations count, since replica sets inherit them");
    let repeated = api.patch("d", &params, &Patch::Merge(&annotations)).await.unwrap();
    assert_eq!(repeated.metadata.generation, Some(5));
    let status = Patch::Merge(json!({"metadata": {"annotations": {"a": "c"}}, "status": {"replicas": 1}}));
    let noted = api.patch_status("d", &params, &status).await.unwrap();
    assert_eq!((noted.metadata.generation, &noted.annotations()["a"]), (Some(5), &"c".to_owned()));
}

#[tokio::test]
async fn several_managers_apply_one_object() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let config =
        |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data});
    let apply = async |manager: &str, force: bool, data: Value| {
        let params = PatchParams { force, field_manager: Some(manager.into()), ..PatchParams::default() };
        api.patch("c", &params, &Patch::Apply(config(data))).await
    };
    apply("one", false, json!({"a": "1", "b": "1"})).await.unwrap();
    let second = apply("two", false, json!({"c": "2"})).await.unwrap();
    assert_eq!(json!(second.data), json!({"a": "1", "b": "1", "c": "2"}));
    let again = apply("two", false, json!({"c": "2"})).await.unwrap();
    assert_eq!(again.metadata.resource_version, second.metadata.resource_version);
    refused(apply("two", false, json!({"a": "2", "c": "2"})).await, 409, "conflict with \"one\"");
    let forced = apply("two", true, json!({"a": "2"})).await.unwrap();
    assert_eq!(json!(forced.data), json!({"a": "2", "b": "1"}), "what is applied no more goes");

    let params = PatchParams::default();
    api.patch("c", &params, &Patch::Merge(json!({"data": {"b": "3"}}))).await.unwrap();
    refused(apply("one", false, json!({"b": "1"})).await, 409, "conflict with \"kubewright\"");
    refused(api.patch("c", &params, &Patch::Apply(config(json!({})))).await, 422, "is required for apply patch");
}

/// As in Kubernetes, metadata that is applied no more is removed as a whole, with the name.
#[tokio::test]
async fn a_configuration_goes_on_having_metadata() {
    let (api, _) = start();
    let apply = async |manager: &str, metadata: Value| {
        let mut config = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}});
        if !metadata.is_null() {
            config["metadata"] = metadata;
        }
        let path = format!("PATCH /api/v1/namespaces/default/configmaps/c?fieldManager={manager}");
        send(&api, &path, &["Content-Type: application/apply-patch+yaml"], config.to_string()).await
    };
    apply("one", json!({"name": "c", "labels": {"a": "b"}})).await.expect_code(201);
    let refused = apply("one", Value::Null).await.expect_code(400).json();
    let expect = "the name of the object (c based on URL) was undeterminable: name must be provided";
    assert_eq!(refused["message"], expect);
    apply("two", Value::Null).await.expect_code(200);
    let changed = apply("one", json!({})).await.expect_code(200).json();
    assert_eq!((&changed["metadata"]["name"], changed["metadata"].get("labels")), (&json!("c"), None));
}

#[tokio::test]
async fn applied_numbers_are_whole() {
    let (api, _) = start();
    let mut config = deployment();
    config["spec"]["replicas"] = json!(2.5);
    let path = "PATCH /apis/apps/v1/namespaces/default/deployments/d?fieldManager=a";
    let headers = ["Content-Type: application/apply-patch+yaml"];
    let refused = send(&api, path, &headers, config.to_string()).await.expect_code(500).json();
    let message = refused["message"].as_str().unwrap();
    assert!(message.ends_with("to apps/v1, Kind=Deployment: cannot convert float64 to int32"), "{message}");
}

#[tokio::test]
async fn fields_set_by_the_server_have_no_owner() {
    let (_, client) = start();
    let services: Api<Service> = Api::default_namespaced(client);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let created = services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    assert!(created.spec.unwrap().cluster_ip.is_some());
    let owned = serde_json::to_value(created.metadata.managed_fields.unwrap()).unwrap();
    let spec = &owned[0]["fieldsV1"]["f:spec"];
    assert!(spec.get("f:ports").is_some(), "{spec}");
    assert!(spec.get("f:clusterIP").is_none(), "{spec}");
}

#[tokio::test]
async fn strict_validation_names_unknown_fields() {
    let (api, client) = start();
    let mut body = deployment();
    body["spec"]["foo"] = json!(1);
    let path = "POST /apis/apps/v1/namespaces/default/deployments";
    let strict = send(&api, &format!("{path}?fieldValidation=Strict"), &[], body.to_string()).await;
    assert_eq!(strict.code, 400);
    let expect = "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown field \"spec.foo\"";
    assert_eq!(strict.json()["message"], expect);
    let warned = send(&api, path, &[], body.to_string()).await;
    assert_eq!((warned.code, warned.header("warning")), (201, r#"299 - "unknown field \"spec.foo\"""#));
    assert!(warned.json()["spec"].get("foo").is_none());

    let deployments: Api<Deployment> = Api::default_namespaced(client);
    let params = PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::default() };
    let unknown = Patch::Merge(json!({"spec": {"bar": 1}}));
    refused(deployments.patch("d", &params, &unknown).await, 422, "unknown field \"spec.bar\"");
}

#[tokio::test]
async fn every_kind_with_replicas_has_a_scale() {
    let (_, client) = start();
    let api: Api<Deployment> = Api::default_namespaced(client);
    let created: Deployment = serde_json::from_value(deployment()).unwrap();
    api.create(&PostParams::default(), &created).await.unwrap();
    let scale = api.get_scale("d").await.unwrap();
    assert_eq!((scale.spec.unwrap().replicas, scale.status.unwrap().selector.as_deref()), (Some(1), Some("app=d")));
    let three = Patch::Merge(json!({"spec": {"replicas": 3}}));
    assert_eq!(api.patch_scale("d", &PatchParams::default(), &three).await.unwrap().spec.unwrap().replicas, Some(3));
    let mut scale = api.get_scale("d").await.unwrap();
    scale.spec.as_mut().unwrap().replicas = Some(4);
    api.replace_scale("d", &PostParams::default(), &scale).await.unwrap();
    refused(api.replace_scale("d", &PostParams::default(), &scale).await, 409, "the object has been modified");
    let scaled = api.get("d").await.unwrap();
    assert_eq!((scaled.spec.unwrap().replicas, scaled.metadata.generation), (Some(4), Some(3)));
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 5}});
    let scaled = api.patch_scale("d", &PatchParams::default(), &Patch::Strategic(&other)).await.unwrap();
    assert_eq!(scaled.spec.unwrap().replicas, Some(5), "a strategic patch need not know the type");
    refused(api.patch_scale("d", &PatchParams::default(), &Patch::Merge(&other)).await, 422, "unknown conversion");
    let below = Patch::Merge(json!({"spec": {"replicas": -1}}));
    refused(api.patch_scale("d", &PatchParams::default(), &below).await, 422, "must be greater than or equal to 0");
}

#[tokio::test]
async fn an_object_is_replaced_by_an_object_only() {
    let (api, _) = start();
    let path = "/api/v1/namespaces/default";
    for (value, message) in [
        (
            "[]",
            r#" "" is invalid: patch: Invalid value: "[]": couldn't get version/kind; json parse error: json: cannot unmarshal array"#,
        ),
        ("1", "the server rejected our request due to an error in our request"),
        ("null", "the server rejected our request due to an error in our request"),
    ] {
        let patch = format!(r#"[{{"op": "replace", "path": "", "value": {value}}}]"#);
        let answer = send(&api, &format!("PATCH {path}"), &["Content-Type: application/json-patch+json"], patch).await;
        let status = answer.expect_code(422).json();
        assert!(status["message"].as_str().unwrap().starts_with(message), "{status}");
    }
}

#[tokio::test]
async fn results_of_strategic_patches_have_errors_of_their_own() {
    let (api, _) = start();
    let maps = "/api/v1/namespaces/default/configmaps";
    send(&api, &format!("POST {maps}"), &[], r#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#).await.expect_code(201);
    let strategic = ["Content-Type: application/strategic-merge-patch+json"];
    for (patch, why) in [
        (r#"{"metadata":{"labels":"x"}}"#, "cannot restore map from string"),
        (r#"{"metadata":"x"}"#, "cannot restore struct from: string"),
        (r#"{"data":["a"]}"#, "cannot restore map from slice"),
        (r#"{"metadata":{"finalizers":"x"}}"#, "cannot restore slice from string"),
        (r#"{"metadata":{"ownerReferences":["a"]}}"#, "cannot restore struct from: string"),
        (r#"{"metadata":{"labels":5}}"#, "cannot restore map from int64"),
        (r#"{"metadata":{"labels":{"a":5}}}"#, "cannot convert int64 to string"),
        (r#"{"metadata":{"generation":"x"}}"#, "unrecognized type: int64"),
    ] {
        let answer = send(&api, &format!("PATCH {maps}/a"), &strategic, patch).await.expect_code(422).json();
        let cause = answer["details"]["causes"][0]["message"].as_str().unwrap().to_owned();
        assert!(cause.ends_with(why), "{patch}: {cause}");
    }
    for patch in [r#"{"kind":"Secret"}"#, r#"{"apiVersion":"v2"}"#, r#"{"kind":null}"#] {
        let answer = send(&api, &format!("PATCH {maps}/a"), &strategic, patch).await.expect_code(200).json();
        assert_eq!((&answer["kind"], &answer["apiVersion"]), (&json!("ConfigMap"), &json!("v1")), "{patch}");
    }
    for (kind, patch, code, why) in [
        ("strategic-merge-patch", r#"{"kind":5}"#, 422, "cannot convert int64 to string"),
        ("strategic-merge-patch", r#"{"apiVersion":{}}"#, 422, "unrecognized type: string"),
        ("merge-patch", r#"{"kind":5}"#, 422, "cannot unmarshal number into Go struct field .kind of type string"),
        ("merge-patch", r#"{"apiVersion":"a/b/c"}"#, 422, "unexpected GroupVersion string: a/b/c"),
        ("merge-patch", r#"{"apiVersion":null}"#, 400, "(a based on URL) was undeterminable: name must be provided"),
        ("json-patch", r#"[{"op":"remove","path":"/apiVersion"}]"#, 400, "undeterminable: name must be provided"),
    ] {
        let header = format!("Content-Type: application/{kind}+json");
        let answer = send(&api, &format!("PATCH {maps}/a"), &[&header], patch).await.expect_code(code).json();
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.ends_with(why), "{patch}: {message}");
    }
    // What precedes the first slash of a path is ignored.
    let json_patch = ["Content-Type: application/json-patch+json"];
    let patch = r#"[{"op":"add","path":"x/data/k","value":"w"}]"#;
    let answer = send(&api, &format!("PATCH {maps}/a"), &json_patch, patch).await.expect_code(200).json();
    assert_eq!(answer["data"], json!({"k": "w"}));
}

/// As recorded on Kubernetes 1.36.3.
#[tokio::test]
async fn json_patches_follow_the_library_of_kubernetes() {
    let (api, _) = start();
    let configs = "/api/v1/namespaces/default/configmaps";
    let config = json!({"metadata": {"name": "c"}, "data": {"a": "1"}});
    send(&api, &format!("POST {configs}"), &[], config.to_string()).await.expect_code(201);
    for (kind, body, code) in [
        ("json-patch", json!(null), 200),
        ("strategic-merge-patch", json!(null), 200),
        ("merge-patch", json!(null), 400),
        ("json-patch", json!([null]), 422),
        ("json-patch", json!([{"path": "/data/a"}]), 422),
        ("json-patch", json!([{"op": "add", "value": 1}]), 422),
        ("json-patch", json!([{"op": "move", "path": "/data/b"}]), 422),
        ("json-patch", json!([{"op": "add", "path": 5}]), 400),
        ("json-patch", json!([{"op": "add", "path": "", "value": {}}]), 422),
        ("json-patch", json!([{"op": "add", "path": "/data/x"}]), 200),
        ("json-patch", json!([{"op": "copy", "from": "/data/none", "path": "/data/y"}]), 200),
    ] {
        let header = format!("Content-Type: application/{kind}+json");
        let answer = send(&api, &format!("PATCH {configs}/c"), &[&header], body.to_string()).await;
        assert_eq!(answer.code, code, "{kind} {body}: {}", answer.text);
    }
    let config = send(&api, &format!("GET {configs}/c"), &[], "").await.json();
    assert_eq!(config["data"], json!({"a": "1", "x": "", "y": ""}));
}
