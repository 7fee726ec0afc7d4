//! Admission of scales, bindings, evictions and connections, and webhooks behind services.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use http::Response;
use kubewright_apimachinery::status::Status;
use kubewright_apiserver::{Action, ActionRequest, ApiServer, Body};
use serde_json::{Value, json};

use crate::{
    admission::{CONFIG_MAPS, MERGE, config, configure, create, entry, refused},
    raw::send,
    webhook::{Hook, Reply, allow, annotate, patch},
};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn rule(group: &str, resource: &str) -> Value {
    json!({"rules": [{"operations": ["*"], "apiGroups": [group], "apiVersions": ["*"], "resources": [resource]}]})
}

#[tokio::test]
async fn webhooks_see_scales_as_scales() {
    let api = ApiServer::builder().build();
    let labels = json!({"app": "d"});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(create(&api, path, deployment).await.code, 201);
    let hook = Hook::start(|_, request| match request["object"]["spec"]["replicas"].as_i64() {
        Some(100..) => patch(&json!([{"op": "replace", "path": "/spec/replicas", "value": 10}])),
        Some(50..) => Reply::Response(json!({"allowed": false})),
        _ => allow(),
    })
    .await;
    configure(&api, "Mutating", "m", &[entry("m", hook.client("/"), rule("apps", "*/scale"))]).await;
    let scale = async |replicas: u32| {
        let body = json!({"spec": {"replicas": replicas}}).to_string();
        send(&api, &format!("PATCH {path}/d/scale"), &[MERGE], body).await
    };
    assert_eq!(scale(3).await.json()["spec"]["replicas"], 3);
    let request = &hook.requests()[0];
    assert_eq!(request["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!((&request["resource"]["resource"], &request["subResource"]), (&json!("deployments"), &json!("scale")));
    assert_eq!((&request["oldObject"]["spec"]["replicas"], &request["object"]["kind"]), (&json!(1), &json!("Scale")));
    // As in Kubernetes, only those who change a scale see its owners.
    let owned = |object: &str| {
        let owners = request[object]["metadata"]["managedFields"].as_array().unwrap();
        owners.iter().map(|owner| (owner["subresource"] == "scale", owner["time"].is_string())).collect::<Vec<_>>()
    };
    assert_eq!((owned("oldObject"), owned("object")), (vec![(false, true)], vec![(true, true)]));
    refused(&scale(50).await, 400, "denied the request");
    assert_eq!(scale(100).await.json()["spec"]["replicas"], 10);
    let stored = send(&api, &format!("GET {path}/d"), &[], "").await.json();
    assert_eq!((&stored["spec"]["replicas"], &stored["metadata"]["generation"]), (&json!(10), &json!(3)));
}

#[tokio::test]
async fn bindings_and_evictions_are_reviewed_as_creations() {
    let api = ApiServer::builder().build();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(create(&api, PODS, pod).await.code, 201);
    let hook = Hook::start(|_, request| match request["object"]["target"]["name"].as_str() {
        Some("wrong") => Reply::Response(json!({"allowed": false})),
        _ => Reply::Response(json!({"allowed": true, "warnings": ["seen"]})),
    })
    .await;
    let all =
        [entry("a", hook.client("/below"), rule("", "pods/*")), entry("b", hook.client("/pods"), rule("", "pods"))];
    configure(&api, "Validating", "v", &all).await;
    let bind = async |node: &str| {
        let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
        create(&api, &format!("{PODS}/p/binding"), binding).await
    };
    refused(&bind("wrong").await, 400, "denied the request");
    let bound = bind("right").await;
    assert_eq!((bound.code, bound.header("warning")), (201, "299 - \"seen\""));
    let requests = hook.requests();
    assert_eq!((&requests[1]["kind"]["kind"], &requests[1]["operation"]), (&json!("Binding"), &json!("CREATE")));
    let owned = &requests[1]["object"]["metadata"]["managedFields"][0];
    assert_eq!((&owned["subresource"], &owned["fieldsV1"]), (&json!("binding"), &json!({"f:target": {}})));
    let eviction = json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p"}});
    assert_eq!(create(&api, &format!("{PODS}/p/eviction"), eviction).await.code, 201);
    let requests = hook.requests();
    assert_eq!(requests.len(), 1, "nobody is asked about the deletion, too");
    assert_eq!((&requests[0]["kind"]["group"], &requests[0]["kind"]["kind"]), (&json!("policy"), &json!("Eviction")));
    assert_eq!(requests[0]["object"]["metadata"]["namespace"], "default");
}

#[tokio::test]
async fn bindings_of_their_own_resource_are_reviewed_as_such() {
    let api = ApiServer::builder().build();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(create(&api, PODS, pod).await.code, 201);
    let hook = Hook::start(|_, request| match request["object"]["target"]["name"].as_str() {
        Some("wrong") => Reply::Response(json!({"allowed": false})),
        _ => allow(),
    })
    .await;
    let all = [
        entry("a", hook.client("/bindings"), rule("", "bindings")),
        entry("b", hook.client("/pods"), rule("", "pods/*")),
    ];
    configure(&api, "Validating", "v", &all).await;
    let bind = async |node: &str| {
        let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
        create(&api, "/api/v1/namespaces/default/bindings", binding).await
    };
    refused(&bind("wrong").await, 400, "denied the request");
    assert_eq!(bind("right").await.code, 201);
    let requests = hook.requests();
    assert_eq!(requests.len(), 2);
    let request = &requests[1];
    assert_eq!((&request["name"], &request["kind"]["kind"]), (&json!("p"), &json!("Binding")));
    assert_eq!((&request["resource"]["resource"], request.get("subResource")), (&json!("bindings"), None));
    let owned = &request["object"]["metadata"]["managedFields"][0];
    assert_eq!((owned.get("subresource"), &owned["fieldsV1"]), (None, &json!({"f:target": {}})));
    let pod = send(&api, &format!("GET {PODS}/p"), &[], "").await.json();
    assert_eq!(pod["spec"]["nodeName"], "right");
}

#[tokio::test]
async fn owners_that_webhooks_repeat_are_removed() {
    let api = ApiServer::builder().build();
    let hook = Hook::start(|_, _| {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
        patch(&json!([{"op": "add", "path": "/metadata/ownerReferences", "value": [owner, owner]}]))
    })
    .await;
    configure(&api, "Mutating", "m", &[entry("m", hook.client("/"), json!({}))]).await;
    let created = create(&api, CONFIG_MAPS, config("c")).await.expect_code(201);
    let body = json!({"data": {"a": "2"}}).to_string();
    let patched = send(&api, &format!("PATCH {CONFIG_MAPS}/c"), &[MERGE], body).await.expect_code(200);
    for answer in [created, patched] {
        assert_eq!(answer.json()["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
        let warning = answer.header("warning");
        assert!(warning.contains("contains duplicate entries after mutating admission happens"), "{warning}");
        assert!(warning.contains("duplicate UID(s) observed: u"), "{warning}");
    }
}

#[derive(Debug)]
pub(crate) struct Echo;

impl Action for Echo {
    fn call(&self, request: ActionRequest) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        async move { Ok(Response::new(Body::from(request.body))) }.boxed()
    }
}

#[tokio::test]
async fn webhooks_see_the_options_of_connections() {
    let api = ApiServer::builder()
        .action("", "v1", "pods", "exec", Arc::new(Echo))
        .action("", "v1", "pods", "log", Arc::new(Echo))
        .action("", "v1", "serviceaccounts", "token", Arc::new(Echo))
        .build();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(create(&api, PODS, pod).await.code, 201);
    let account = json!({"metadata": {"name": "a"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(create(&api, accounts, account).await.code, 201);
    let hook = Hook::start(|path, request| match request["object"]["kind"].as_str() {
        Some("PodExecOptions") if request["object"]["command"][0] == "rm" => Reply::Response(json!({"allowed": false})),
        Some("TokenRequest") if path == "/m" => {
            patch(&json!([{"op": "add", "path": "/spec/expirationSeconds", "value": 600}]))
        }
        _ => allow(),
    })
    .await;
    configure(&api, "Mutating", "m", &[entry("m", hook.client("/m"), rule("", "*/*"))]).await;
    configure(&api, "Validating", "v", &[entry("v", hook.client("/v"), rule("", "*/*"))]).await;
    let exec = |command: &str| format!("POST {PODS}/p/exec?command={command}&command=-l&container=c&stdout=&tty=False");
    assert_eq!(send(&api, &exec("ls"), &[], "").await.code, 200);
    let requests = hook.requests();
    assert_eq!(requests.len(), 2);
    let expect = json!({
        "kind": "PodExecOptions", "apiVersion": "v1", "stdout": true, "tty": false, "container": "c", "command": ["ls", "-l"],
    });
    assert_eq!((&requests[1]["operation"], &requests[1]["object"]), (&json!("CONNECT"), &expect));
    assert_eq!(requests[1]["kind"]["kind"], "PodExecOptions");
    refused(&send(&api, &exec("rm"), &[], "").await, 400, "denied the request");
    hook.requests();
    assert_eq!(send(&api, &format!("GET {PODS}/p/log"), &[], "").await.code, 200);
    assert_eq!(hook.requests(), Vec::<Value>::new(), "reading is nobody's business");
    let token = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"audiences": []}});
    let echoed = create(&api, &format!("{accounts}/a/token"), token).await;
    assert_eq!((echoed.code, &echoed.json()["spec"]["expirationSeconds"]), (200, &json!(600)));
}

#[tokio::test]
async fn connections_are_reviewed_before_their_object_is_looked_for() {
    let api = ApiServer::builder().build();
    let hook = Hook::start(|_, _| allow()).await;
    configure(&api, "Validating", "v", &[entry("v", hook.client("/v"), rule("", "pods/*"))]).await;
    for (subresource, kind) in [("exec?command=a&stdout=1", "PodExecOptions"), ("portforward", "PodPortForwardOptions")]
    {
        refused(&send(&api, &format!("POST {PODS}/p/{subresource}"), &[], "").await, 404, "pods \"p\" not found");
        let requests = hook.requests();
        assert_eq!((&requests[0]["operation"], &requests[0]["object"]["kind"]), (&json!("CONNECT"), &json!(kind)));
    }
    // What can't be asked for isn't reviewed.
    for (query, expect) in [
        ("exec?dryRun=All", "dryRun is not supported"),
        ("proxy?dryRun=All", "dryRun is not supported"),
        ("portforward?ports=x", "cannot convert to []int32"),
    ] {
        refused(&send(&api, &format!("POST {PODS}/p/{query}"), &[], "").await, 400, expect);
        assert_eq!(hook.requests(), Vec::<Value>::new());
    }
}

#[tokio::test]
async fn reviews_of_deletions_have_the_options_that_the_object_completes() {
    let api = ApiServer::builder().build();
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(create(&api, PODS, pod).await.code, 201);
    let namespace = create(&api, "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await.json();
    let hook = Hook::start(|_, _| allow()).await;
    let all = [entry("p", hook.client("/p"), rule("", "pods")), entry("n", hook.client("/n"), rule("", "namespaces"))];
    configure(&api, "Validating", "v", &all).await;
    assert_eq!(send(&api, &format!("DELETE {PODS}/p"), &[], "").await.code, 200);
    assert_eq!(send(&api, "DELETE /api/v1/namespaces/n", &[], "").await.code, 200);
    let requests = hook.requests();
    assert_eq!(requests[0]["options"]["gracePeriodSeconds"], 30);
    assert_eq!(requests[1]["options"]["preconditions"], json!({"uid": namespace["metadata"]["uid"]}));
    assert_eq!(requests[1]["oldObject"]["status"]["phase"], "Active");
}

#[tokio::test]
async fn token_requests_are_reviewed_with_their_defaults() {
    let api = ApiServer::builder().build();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(create(&api, accounts, json!({"metadata": {"name": "a"}})).await.code, 201);
    let hook = Hook::start(|_, _| allow()).await;
    configure(&api, "Mutating", "m", &[entry("m", hook.client("/m"), rule("", "serviceaccounts/token"))]).await;
    configure(&api, "Validating", "v", &[entry("v", hook.client("/v"), rule("", "serviceaccounts/token"))]).await;
    assert_eq!(create(&api, &format!("{accounts}/a/token?fieldManager=m"), json!({})).await.code, 201);
    let requests = hook.requests();
    let object = &requests[0]["object"];
    assert_eq!(object["spec"], json!({"audiences": null, "expirationSeconds": 3600, "boundObjectRef": null}));
    assert_eq!(object["metadata"]["namespace"], "default");
    assert_eq!(requests[0]["options"]["fieldManager"], "m");
    let owner = &object["metadata"]["managedFields"][0];
    assert_eq!((&owner["manager"], &owner["subresource"]), (&json!("m"), &json!("token")));
    assert_eq!(owner["fieldsV1"], json!({"f:spec": {"f:expirationSeconds": {}}}));
    // Between them, the request gets the identity of the account and the audiences of the server.
    let object = &requests[1]["object"];
    let account = send(&api, &format!("GET {accounts}/a"), &[], "").await.json();
    assert_eq!((&object["metadata"]["name"], &object["metadata"]["uid"]), (&json!("a"), &account["metadata"]["uid"]));
    assert!(
        object["metadata"]["creationTimestamp"].is_string() && object["spec"]["audiences"][0].is_string(),
        "{object}"
    );
}

#[tokio::test]
async fn the_time_of_deletion_that_a_webhook_sets_is_kept() {
    let api = ApiServer::builder().build();
    let hook = Hook::start(|_, _| {
        patch(&json!([{"op": "add", "path": "/metadata/deletionTimestamp", "value": "2030-01-01T00:00:00Z"}]))
    })
    .await;
    configure(&api, "Mutating", "m", &[entry("m", hook.client("/m"), rule("", "configmaps"))]).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let created = create(&api, path, json!({"metadata": {"name": "a"}})).await.json();
    assert_eq!(created["metadata"]["deletionTimestamp"], "2030-01-01T00:00:00Z");
    let found = send(&api, &format!("GET {path}/a"), &[], "").await.json();
    assert_eq!(found["metadata"]["deletionTimestamp"], "2030-01-01T00:00:00Z");
    // As nothing holds it, the next change removes it.
    let merge = ["Content-Type: application/merge-patch+json"];
    let patched = send(&api, &format!("PATCH {path}/a"), &merge, r#"{"data":{"x":"y"}}"#).await;
    assert_eq!((patched.code, send(&api, &format!("GET {path}/a"), &[], "").await.code), (200, 404));
}

#[tokio::test]
async fn patches_of_bodies_without_a_schema_are_checked() {
    let api = ApiServer::builder().build();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
    }});
    assert_eq!(create(&api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await.code, 201);
    let hook = Hook::start(|_, request| patch(&request["object"]["patch"])).await;
    configure(&api, "Mutating", "m", &[entry("m", hook.client("/"), rule("example.com", "*"))]).await;
    let thing = async |metadata: Value, operations: Value| {
        let thing = json!({"kind": "Thing", "apiVersion": "example.com/v1", "metadata": metadata, "patch": operations});
        create(&api, "/apis/example.com/v1/things", thing).await
    };
    let add = |path: &str, value: Value| json!([{"op": "add", "path": path, "value": value}]);
    for operations in [
        add("/metadata/labels", json!({"a": 7})),
        add("/metadata/finalizers", json!({"a": "b"})),
        json!([{"op": "remove", "path": "/kind"}]),
    ] {
        let answer = thing(json!({"name": "t"}), operations).await;
        refused(&answer, 500, "Internal error occurred: ");
    }
    refused(&thing(json!({"name": "t"}), add("/metadata", json!(null))).await, 422, "metadata.name: Required value");
    let cluster_scoped = thing(json!({"name": "t"}), add("/metadata/namespace", json!("elsewhere"))).await;
    assert_eq!((cluster_scoped.code, &cluster_scoped.json()["metadata"]["namespace"]), (201, &json!(null)));
    let named = thing(json!({"generateName": "t-"}), add("/metadata/name", json!("given"))).await;
    assert_eq!((named.code, &named.json()["metadata"]["name"]), (201, &json!("given")));
}

#[tokio::test]
async fn a_webhook_of_a_service_is_called_at_its_endpoints() {
    let api = ApiServer::builder().build();
    let hook = Hook::start(|_, request| annotate(request, "seen", "yes")).await;
    let service = json!({"namespace": "default", "name": "hook", "path": "/mutate"});
    let client = json!({"service": service, "caBundle": hook.authority});
    configure(&api, "Mutating", "m", &[entry("m", client, json!({}))]).await;
    let url = r#"failed to call webhook: Post "https://hook.default.svc:443/mutate?timeout=5s": "#;
    let absent = create(&api, CONFIG_MAPS, config("c")).await;
    refused(&absent, 500, &format!(r#"{url}service "hook" not found"#));
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443, "targetPort": 9443}]}});
    assert_eq!(create(&api, "/api/v1/namespaces/default/services", service).await.code, 201);
    let empty = create(&api, CONFIG_MAPS, config("c")).await;
    refused(&empty, 500, &format!(r#"{url}no endpoints available for service "hook""#));
    let slice = json!({
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4", "ports": [{"name": "", "port": hook.address.port()}],
        "endpoints": [{"addresses": ["127.0.0.9"], "conditions": {"ready": false}}, {"addresses": ["127.0.0.1"]}],
    });
    let created = create(&api, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
    assert_eq!(created.code, 201, "{}", created.text);
    let created = create(&api, CONFIG_MAPS, config("c")).await;
    assert_eq!((created.code, &created.json()["metadata"]["annotations"]["seen"]), (201, &json!("yes")));
    assert_eq!(hook.paths(), ["/mutate"]);
}
