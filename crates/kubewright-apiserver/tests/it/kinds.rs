//! Built-in kinds with rules of their own, through the API.

use base64::{Engine, engine::general_purpose::STANDARD};
use kubewright_apiserver::{ApiServer, UserInfo};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::{
    raw::{send, send_as},
    start,
};

const JSON: &[&str] = &["Content-Type: application/json"];
const MERGE: &[&str] = &["Content-Type: application/merge-patch+json"];

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn signing_request(name: &str) -> String {
    let pem = CertificateParams::default().serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({
        "metadata": {"name": name},
        "spec": {
            "request": STANDARD.encode(pem), "signerName": "example.com/s", "usages": ["client auth"], "username": "other",
        },
        "status": {"conditions": [{"type": "Approved", "status": "True"}]},
    })
    .to_string()
}

#[tokio::test]
async fn a_signing_request_names_its_user_and_is_approved_by_its_subresource() {
    let api = ApiServer::builder().build();
    let jane = UserInfo::new("jane", ["system:masters"]);
    let created = send_as(&api, &jane, &format!("POST {REQUESTS}"), JSON, signing_request("a")).await.expect_code(201);
    let mut request = created.json();
    assert_eq!(request["spec"]["username"], "jane");
    assert_eq!((&request["spec"]["groups"], &request["status"]), (&json!(["system:masters"]), &json!({})));
    let owned = &request["metadata"]["managedFields"];
    assert!(!owned.to_string().contains("f:spec"), "{owned}");

    // Neither the object itself nor its status approves it.
    let approved = json!([{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]);
    request["status"]["conditions"] = approved.clone();
    let kept = send(&api, &format!("PUT {REQUESTS}/a"), JSON, request.to_string()).await.expect_code(200).json();
    assert_eq!(kept["status"], json!({}));
    let by_status = json!({"status": {"conditions": approved}}).to_string();
    let refused = send(&api, &format!("PATCH {REQUESTS}/a/status"), MERGE, by_status.clone()).await.expect_code(422);
    assert!(refused.text.contains("updates may not add a condition of type"), "{}", refused.text);
    let done = send(&api, &format!("PATCH {REQUESTS}/a/approval"), MERGE, by_status).await.expect_code(200).json();
    let condition = &done["status"]["conditions"][0];
    assert!(condition["lastTransitionTime"].is_string() && condition["lastUpdateTime"].is_string(), "{condition}");
}

#[tokio::test]
async fn only_users_of_a_signer_may_approve() {
    let api = ApiServer::builder().build();
    let role = json!({
        "metadata": {"name": "r"},
        "rules": [{"apiGroups": ["certificates.k8s.io"], "resources": ["*"], "verbs": ["get", "patch"]}],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    send(&api, &format!("POST {rbac}/clusterroles"), JSON, role.to_string()).await.expect_code(201);
    let binding = json!({
        "metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
    });
    send(&api, &format!("POST {rbac}/clusterrolebindings"), JSON, binding.to_string()).await.expect_code(201);
    send(&api, &format!("POST {REQUESTS}"), JSON, signing_request("a")).await.expect_code(201);
    let body = json!({"status": {"conditions": [{"type": "Denied", "status": "True"}]}}).to_string();
    let jane = UserInfo::new("jane", ["system:authenticated"]);
    let refused = send_as(&api, &jane, &format!("PATCH {REQUESTS}/a/approval"), MERGE, body).await.expect_code(403);
    assert!(refused.text.contains("user not permitted to approve requests with signerName"), "{}", refused.text);
}

#[tokio::test]
async fn both_versions_of_an_autoscaler_show_one_object() {
    let api = ApiServer::builder().build();
    let path = |version: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
    let (one, two) = (path("v1"), path("v2"));
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let spec = json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 60, "scaleTargetRef": target});
    let body = json!({"metadata": {"name": "h"}, "spec": spec}).to_string();
    let created = send(&api, &format!("POST {one}?fieldManager=one"), JSON, body).await.expect_code(201).json();
    assert_eq!(created["apiVersion"], "autoscaling/v1");
    assert_eq!(created["spec"]["minReplicas"], 1);
    let object = send(&api, &format!("GET {two}/h"), &[], "").await.expect_code(200).json();
    assert_eq!(object["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 60);
    assert_eq!(object["status"], json!({"currentMetrics": null, "desiredReplicas": 0}));

    let metric = |kind: &str| json!({"type": "Resource", "resource": {"name": kind, "target": {"type": "Utilization", "averageUtilization": 50}}});
    let patch = json!({"spec": {"metrics": [metric("memory")]}}).to_string();
    send(&api, &format!("PATCH {two}/h?fieldManager=two"), MERGE, patch).await.expect_code(200);
    let object = send(&api, &format!("GET {one}/h"), &[], "").await.expect_code(200).json();
    assert_eq!(object["spec"].get("targetCPUUtilizationPercentage"), None);
    let annotation = &object["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"];
    assert_eq!(*annotation, r#"[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":50}}]"#);
    // The percentage, which `one` owned in its own version, is no longer there.
    let managers = object["metadata"]["managedFields"].as_array().unwrap().clone();
    let of = |name: &str| managers.iter().find(|entry| entry["manager"] == name).unwrap().clone();
    assert_eq!(of("one")["fieldsV1"]["f:spec"].get("f:targetCPUUtilizationPercentage"), None, "{managers:?}");
    assert!(of("one")["fieldsV1"]["f:spec"].get("f:maxReplicas").is_some(), "{managers:?}");
    assert!(of("two")["fieldsV1"]["f:spec"].get("f:metrics").is_some(), "{managers:?}");

    let refused = send(&api, &format!("PATCH {one}/h"), MERGE, json!({"spec": {"maxReplicas": 0}}).to_string()).await;
    assert_eq!(refused.code, 422);
}

#[tokio::test]
async fn a_binding_assigns_the_pod_of_its_name() {
    let api = ApiServer::builder().build();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}).to_string();
    send(&api, "POST /api/v1/namespaces/default/pods", JSON, pod).await.expect_code(201);
    let binding = |name: &str| json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}).to_string();
    let path = "POST /api/v1/namespaces/default/bindings";
    send(&api, path, JSON, binding("none")).await.expect_code(404);
    send(&api, path, JSON, binding("p")).await.expect_code(201);
    let pod = send(&api, "GET /api/v1/namespaces/default/pods/p", &[], "").await.expect_code(200).json();
    assert_eq!(pod["spec"]["nodeName"], "n");
}

#[tokio::test]
async fn pods_follow_their_runtime_class() {
    let api = ApiServer::builder().build();
    let class =
        json!({"metadata": {"name": "s"}, "handler": "h", "overhead": {"podFixed": {"cpu": "10m"}}}).to_string();
    send(&api, "POST /apis/node.k8s.io/v1/runtimeclasses", JSON, class).await.expect_code(201);
    let pod = |name: &str, class: &str| {
        let spec = json!({"runtimeClassName": class, "containers": [{"name": "c", "image": "i"}]});
        json!({"metadata": {"name": name}, "spec": spec}).to_string()
    };
    let path = "POST /api/v1/namespaces/default/pods";
    let created = send(&api, path, JSON, pod("a", "s")).await.expect_code(201).json();
    assert_eq!(created["spec"]["overhead"], json!({"cpu": "10m"}));
    let refused = send(&api, path, JSON, pod("b", "t")).await.expect_code(403).json();
    assert_eq!(refused["message"], "pods \"b\" is forbidden: pod rejected: RuntimeClass \"t\" not found");
}

async fn list(api: &ApiServer, path: &str) -> Vec<Value> {
    let list = send(api, &format!("GET {path}"), &[], "").await.expect_code(200).json();
    list["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn every_group_has_an_available_api_service() {
    let api = ApiServer::builder().build();
    let groups = send(&api, "GET /apis", &[], "").await.expect_code(200).json();
    let services = list(&api, "/apis/apiregistration.k8s.io/v1/apiservices").await;
    assert!(services.iter().all(|service| service["status"]["conditions"][0]["status"] == "True"));
    for group in groups["groups"].as_array().unwrap().iter().filter(|group| group["name"] != "apiregistration.k8s.io") {
        for version in group["versions"].as_array().unwrap() {
            let name = format!("{}.{}", version["version"].as_str().unwrap(), group["name"].as_str().unwrap());
            assert!(services.iter().any(|service| service["metadata"]["name"] == name), "{name}");
        }
    }
}

#[tokio::test]
async fn responses_name_the_flow_schemas_that_exist() {
    let api = ApiServer::builder().build();
    let schemas = list(&api, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas").await;
    assert_eq!(schemas.len(), 11);
    assert!(schemas.iter().all(|schema| schema["status"]["conditions"][0]["reason"] == "Found"));
    let exempt = schemas.iter().find(|schema| schema["metadata"]["name"] == "exempt").unwrap();
    let answer = send(&api, "GET /api/v1/namespaces", &[], "").await;
    assert_eq!(answer.header("X-Kubernetes-PF-FlowSchema-UID"), exempt["metadata"]["uid"].as_str().unwrap());
    // A schema whose level doesn't exist says so.
    let rule = json!({"subjects": [{"kind": "User", "user": {"name": "u"}}], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]});
    let spec = json!({"priorityLevelConfiguration": {"name": "none"}, "rules": [rule]});
    let body = json!({"metadata": {"name": "s"}, "spec": spec}).to_string();
    let path = "POST /apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    let created = send(&api, path, JSON, body).await.expect_code(201).json();
    assert_eq!(created["spec"]["matchingPrecedence"], 1000);
    let found = send(&api, "GET /apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/s", &[], "").await.json();
    assert_eq!(found["status"]["conditions"][0]["reason"], "NotFound");
}

#[tokio::test]
async fn admission_policies_are_stored_with_their_defaults() {
    let api = ApiServer::builder().build();
    let rule =
        json!({"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]});
    let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]});
    let path = "POST /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let body = |spec: &Value| json!({"metadata": {"name": "p"}, "spec": spec}).to_string();
    let created = send(&api, path, JSON, body(&spec)).await.expect_code(201).json();
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created["spec"]["matchConstraints"]["resourceRules"][0]["scope"], "*");
    let mut wrong = spec;
    wrong["validations"][0]["expression"] = "1 +".into();
    send(&api, path, JSON, body(&wrong)).await.expect_code(422);
}

#[tokio::test]
async fn claims_and_ingresses_get_the_default_class() {
    let (api, _) = start();
    let post = async |path: &str, object: Value| send(&api, &format!("POST {path}"), &[], object.to_string()).await;
    let marked = |annotation: &str| json!({"name": "usual", "annotations": {annotation: "true"}});
    let class = |metadata: Value, expands: bool| json!({"metadata": metadata, "provisioner": "example.com/x", "allowVolumeExpansion": expands});
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    post(classes, class(json!({"name": "fixed"}), false)).await.expect_code(201);
    post(classes, class(marked("storageclass.kubernetes.io/is-default-class"), true)).await.expect_code(201);
    let ingress_class = json!({"metadata": marked("ingressclass.kubernetes.io/is-default-class"), "spec": {"controller": "example.com/i"}});
    post("/apis/networking.k8s.io/v1/ingressclasses", ingress_class).await.expect_code(201);

    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let backend = json!({"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}});
    for (name, annotations, expect) in
        [("plain", json!({}), json!("usual")), ("old", json!({"kubernetes.io/ingress.class": "x"}), Value::Null)]
    {
        let ingress = json!({"metadata": {"name": name, "annotations": annotations}, "spec": backend});
        let created = post(ingresses, ingress).await.expect_code(201).json();
        assert_eq!(created["spec"]["ingressClassName"], expect, "{name}");
    }

    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let only_dynamic = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc \
                        must support resize";
    for (name, class, expect, refused) in [
        ("plain", Value::Null, "usual", None),
        ("fixed", json!("fixed"), "fixed", Some(only_dynamic)),
        ("none", json!(""), "", Some(only_dynamic)),
    ] {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}}});
        let created = post(claims, json!({"metadata": {"name": name}, "spec": spec})).await.expect_code(201).json();
        assert_eq!(created["spec"]["storageClassName"], expect, "{name}");
        // A bound claim may grow if its class allows it.
        let bound = json!({"status": {"phase": "Bound"}}).to_string();
        send(&api, &format!("PATCH {claims}/{name}/status"), MERGE, bound).await.expect_code(200);
        let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}).to_string();
        let answer = send(&api, &format!("PATCH {claims}/{name}"), MERGE, larger).await;
        match refused {
            None => drop(answer.expect_code(200)),
            Some(why) => {
                let message = answer.expect_code(403).json()["message"].clone();
                assert_eq!(message, format!("persistentvolumeclaims {name:?} is forbidden: {why}"));
            }
        }
    }
}

#[tokio::test]
async fn requests_are_classified_by_stored_flow_schemas() {
    const FLOW_CONTROL: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let api = ApiServer::builder().build();
    let jane = UserInfo::new("jane", ["system:authenticated"]);
    let uids = async || {
        let answer = send_as(&api, &jane, "GET /version", &[], "").await.expect_code(200);
        ["X-Kubernetes-PF-FlowSchema-UID", "X-Kubernetes-PF-PriorityLevel-UID"]
            .map(|name| answer.header(name).to_owned())
    };
    let default = uids().await;
    let create = async |plural: &str, name: &str, spec: Value| {
        let body = json!({"metadata": {"name": name}, "spec": spec}).to_string();
        let created = send(&api, &format!("POST {FLOW_CONTROL}/{plural}"), JSON, body).await.expect_code(201).json();
        created["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let rule = json!({
        "subjects": [{"kind": "User", "user": {"name": "jane"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    });
    let schema = json!({"priorityLevelConfiguration": {"name": "l"}, "rules": [rule]});
    let schema = create("flowschemas", "s", schema).await;
    assert_eq!(uids().await, default, "a schema without its level isn't used");
    let dangling = async || {
        let found = send(&api, &format!("GET {FLOW_CONTROL}/flowschemas/s"), &[], "").await.expect_code(200).json();
        found["status"]["conditions"][0]["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(dangling().await, "True");
    let limited = json!({"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}});
    let level = create("prioritylevelconfigurations", "l", json!({"type": "Limited", "limited": limited})).await;
    assert_eq!((uids().await, dangling().await), ([schema, level], "False".to_owned()));
    let metrics = send(&api, "GET /metrics", &[], "").await.expect_code(200);
    assert!(metrics.header("Process-Start-Time-Unix").parse::<i64>().is_ok());
    for line in [
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"l\"} 3",
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"workload-low\"} 244",
        "apiserver_flowcontrol_lower_limit_seats{priority_level=\"l\"} 3",
        "apiserver_flowcontrol_upper_limit_seats{priority_level=\"l\"} 603",
    ] {
        assert!(metrics.text.contains(&format!("{line}\n")), "{line}");
    }
    send(&api, &format!("DELETE {FLOW_CONTROL}/prioritylevelconfigurations/l"), &[], "").await.expect_code(200);
    assert_eq!((uids().await, dangling().await), (default, "True".to_owned()));
}
