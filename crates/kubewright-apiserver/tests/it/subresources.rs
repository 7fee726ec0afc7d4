//! Actions, bindings, evictions, graceful deletion.

use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture, stream};
use http::Response;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, EvictParams, LogParams, Patch, PatchParams, PostParams},
};
use kubewright_apimachinery::status::Status;
use kubewright_apiserver::{Action, ActionRequest, ApiServer, Body, UserInfo};
use serde_json::json;

use crate::{
    raw::{send, send_as},
    refused, start,
};

async fn create_pod(client: &Client, name: &str) -> Api<Pod> {
    let api = Api::default_namespaced(client.clone());
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}});
    api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    api
}

async fn bind(api: &ApiServer, name: &str) -> u16 {
    let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
    let path = format!("POST /api/v1/namespaces/default/pods/{name}/binding");
    send(api, &path, &[], binding.to_string()).await.code
}

#[derive(Debug)]
struct Log;

impl Action for Log {
    fn call(&self, request: ActionRequest) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        async move {
            let lines = [request.name.clone(), request.parameter("container").unwrap_or("none").to_owned()];
            if request.flag("previous") {
                return Err(Status::bad_request("previous terminated container not found"));
            }
            let lines = lines.map(|line| Ok(Bytes::from(line + "\n")));
            Ok(Response::new(Body::stream(stream::iter(lines))))
        }
        .boxed()
    }
}

#[tokio::test]
async fn an_action_serves_logs() {
    let api = ApiServer::builder().action("", "v1", "pods", "log", Arc::new(Log)).build();
    let client = api.client();
    let pods = create_pod(&client, "p").await;
    let params = LogParams { container: Some("main".into()), ..LogParams::default() };
    assert_eq!(pods.logs("p", &params).await.unwrap(), "p\nmain\n");
    refused(pods.logs("p", &LogParams { previous: true, ..LogParams::default() }).await, 400, "previous");
    refused(pods.logs("q", &params).await, 404, "pods \"q\" not found");
}

#[tokio::test]
async fn pods_without_a_node_have_no_logs() {
    let (api, client) = start();
    let pods = create_pod(&client, "p").await;
    assert_eq!(pods.logs("p", &LogParams::default()).await.unwrap(), "");
    let stream = "GET /api/v1/namespaces/default/pods/p/log?stream=Stdout";
    let refusal = send(&api, stream, &[], "").await.expect_code(422).text;
    assert!(refusal.contains("stream: Forbidden: may not be specified"), "{refusal}");
    let negative = LogParams { tail_lines: Some(-1), ..LogParams::default() };
    refused(pods.logs("p", &negative).await, 422, "tailLines: Invalid value: -1: must be greater than or equal to 0");
    let unknown = LogParams { container: Some("nope".into()), ..LogParams::default() };
    refused(pods.logs("p", &unknown).await, 400, "container nope is not valid for pod p");
}

#[tokio::test]
async fn a_pod_is_bound_once_and_deleted_with_grace() {
    let (api, client) = start();
    let pods = create_pod(&client, "p").await;
    assert_eq!(bind(&api, "p").await, 201);
    assert_eq!(bind(&api, "p").await, 409);
    let pod = pods.get("p").await.unwrap();
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("n"));
    assert_eq!(pod.status.unwrap().conditions.unwrap()[0].type_, "PodScheduled");

    let marked = pods.delete("p", &DeleteParams::default()).await.unwrap().left().unwrap().metadata;
    assert_eq!(marked.deletion_grace_period_seconds, Some(30));
    let again = pods.delete("p", &DeleteParams::default()).await.unwrap().left().unwrap().metadata;
    assert_eq!(again.resource_version, marked.resource_version, "a second request changes nothing");
    let shorter = pods.delete("p", &DeleteParams::default().grace_period(5)).await.unwrap().left().unwrap().metadata;
    assert_eq!(shorter.deletion_grace_period_seconds, Some(5));
    assert!(shorter.deletion_timestamp < marked.deletion_timestamp);
    let removed = pods.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap().left().unwrap();
    assert_eq!(removed.metadata.deletion_grace_period_seconds, Some(0));
    refused(pods.get("p").await, 404, "not found");
}

#[tokio::test]
async fn pods_without_a_node_are_deleted_at_once() {
    let (_, client) = start();
    let pods = create_pod(&client, "p").await;
    pods.delete("p", &DeleteParams::default().grace_period(30)).await.unwrap();
    refused(pods.get("p").await, 404, "not found");
    create_pod(&client, "q").await.evict("q", &EvictParams::default()).await.unwrap();
    refused(pods.get("q").await, 404, "not found");
}

#[tokio::test]
async fn preconditions_and_propagation() {
    let (_, client) = start();
    let pods = create_pod(&client, "p").await;
    let uid = pods.get("p").await.unwrap().metadata.uid;
    let mut params = DeleteParams::foreground();
    params.preconditions = Some(kube::api::Preconditions { uid: Some("other".into()), resource_version: None });
    refused(pods.delete("p", &params).await, 409, "the UID in the precondition (other) does not match");
    params.preconditions = Some(kube::api::Preconditions { uid, resource_version: None });
    let marked = pods.delete("p", &params).await.unwrap().left().unwrap();
    assert_eq!(marked.metadata.finalizers.unwrap(), ["foregroundDeletion"]);
    let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("p", &PatchParams::default(), &released).await.unwrap();
    refused(pods.get("p").await, 404, "not found");
}

#[tokio::test]
async fn a_namespace_is_removed_when_it_is_finalized() {
    let (api, client) = start();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let body = json!({"metadata": {"name": "n"}});
    namespaces.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    let marked = namespaces.delete("n", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(marked.status.unwrap().phase.as_deref(), Some("Terminating"));
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}});
    let pods: Api<Pod> = Api::namespaced(client, "n");
    let late = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await;
    refused(late, 403, "unable to create new content in namespace n because it is being terminated");
    let done = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}, "spec": {"finalizers": []}});
    let answer = send(&api, "PUT /api/v1/namespaces/n/finalize", &[], done.to_string()).await;
    assert_eq!(answer.code, 200, "{}", answer.text);
    refused(namespaces.get("n").await, 404, "not found");
}

#[tokio::test]
async fn a_panic_of_an_action_becomes_500() {
    #[derive(Debug)]
    struct Broken;
    impl Action for Broken {
        fn call(&self, _request: ActionRequest) -> BoxFuture<'static, Result<Response<Body>, Status>> {
            panic!("a bug")
        }
    }
    let api = ApiServer::builder().action("", "v1", "pods", "log", Arc::new(Broken)).build();
    let pods = create_pod(&api.client(), "p").await;
    refused(pods.logs("p", &LogParams::default()).await, 500, "Internal error occurred");
    assert!(pods.get("p").await.is_ok(), "and nothing else is affected");
}

#[tokio::test]
async fn a_scale_has_a_table() {
    let (api, _) = start();
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    let path = "/apis/apps/v1/namespaces/default/deployments";
    send(&api, &format!("POST {path}"), &[], deployment.to_string()).await.expect_code(201);
    let accept = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = send(&api, &format!("GET {path}/d/scale"), &[accept], "").await.json();
    let columns: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(columns, ["Name", "Desired", "Available", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("d"), json!(3), json!(0)]);
}

#[tokio::test]
async fn a_connection_needs_the_right_to_create() {
    let api = ApiServer::builder().action("", "v1", "pods", "exec", Arc::new(Log)).build();
    create_pod(&api.client(), "p").await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = |verbs: &[&str]| json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": verbs}]});
    send(&api, &format!("POST {roles}/roles"), &[], role(&["get"]).to_string()).await.expect_code(201);
    let binding = json!({
        "metadata": {"name": "r"}, "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "jane"}],
    });
    send(&api, &format!("POST {roles}/rolebindings"), &[], binding.to_string()).await.expect_code(201);
    let jane = UserInfo::new("jane", ["system:authenticated"]);
    let path = "GET /api/v1/namespaces/default/pods/p/exec";
    let websocket = ["Connection: Upgrade", "Upgrade: websocket"];
    send_as(&api, &jane, path, &[], "").await.expect_code(403);
    let refused = send_as(&api, &jane, path, &websocket, "").await.expect_code(403);
    let message = "pods \"p\" is forbidden: User \"jane\" cannot create resource \"pods/exec\" in API group \"\" in the \
                   namespace \"default\"";
    assert_eq!(refused.json()["message"], message);
    send(&api, &format!("PUT {roles}/roles/r"), &[], role(&["create", "get"]).to_string()).await.expect_code(200);
    send_as(&api, &jane, path, &websocket, "").await.expect_code(200);
}

/// The messages are those of Kubernetes.
#[tokio::test]
async fn bodies_pass_through_their_types() {
    let api = ApiServer::builder().build();
    create_pod(&api.client(), "typed").await;
    let pod = "/api/v1/namespaces/default/pods/typed";
    let handled =
        |kind: &str, why: &str| format!("{kind} in version \"v1\" cannot be handled as a {kind}: json: {why}");
    let other = |kind: &str, package: &str| {
        format!(
            "Pod in version \"v1\" cannot be handled as a {kind}: converting (v1.Pod) to ({package}.{kind}): \
             unknown conversion"
        )
    };
    let target = "cannot unmarshal number into Go struct field ObjectReference.target.name of type string";
    let grace = "cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64";
    let own_grace =
        "cannot unmarshal string into Go struct field DeleteOptions.deleteOptions.gracePeriodSeconds of type int64";
    let cases = [
        (format!("POST {pod}/binding"), json!({"target": {"name": 5}}), handled("Binding", target)),
        (format!("POST {pod}/binding"), json!({"kind": "Pod", "apiVersion": "v1"}), other("Binding", "core")),
        (
            format!("POST {pod}/binding"),
            json!({"kind": "Binding", "apiVersion": "v2"}),
            "Binding in version \"v2\" cannot be handled as a Binding: no kind \"Binding\" is registered for version \
             \"v2\" in scheme \"pkg/runtime/scheme.go:111\""
                .to_owned(),
        ),
        (
            format!("POST {pod}/eviction"),
            json!({"metadata": {"name": "typed"}, "deleteOptions": {"gracePeriodSeconds": "x"}}),
            handled("Eviction", own_grace),
        ),
        (format!("POST {pod}/eviction"), json!({"kind": "Pod", "apiVersion": "v1"}), other("Eviction", "policy")),
        (format!("DELETE {pod}"), json!({"gracePeriodSeconds": "x"}), format!("json: {grace}")),
    ];
    for (line, body, expect) in cases {
        let answer = send(&api, &line, &[], body.to_string()).await;
        assert_eq!(answer.expect_code(400).json()["message"], expect, "{line} {body}");
    }
    let eviction = json!({"kind": "Eviction", "apiVersion": "policy/v1beta1", "metadata": {"name": "typed"}});
    send(&api, &format!("POST {pod}/eviction"), &[], eviction.to_string()).await.expect_code(201);
}
