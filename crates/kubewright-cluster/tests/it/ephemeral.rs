//! Ephemeral containers, as `kubectl debug` adds them.

use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kube::api::{LogParams, Patch, PatchParams};
use kubewright_cluster::{Cluster, Pods};
use serde_json::{Value, json};

use crate::{
    create,
    exec::{Exec, SUCCESS, V5},
    is_running, phase, pod, pods, running, until,
    wire::listen,
};

/// Adds an ephemeral container to a pod.
async fn debug(cluster: &Cluster, pod: &str, container: Value) -> Pod {
    let patch = Patch::Strategic(json!({"spec": {"ephemeralContainers": [container]}}));
    let params = PatchParams::default();
    pods(cluster).patch_subresource("ephemeralcontainers", pod, &params, &patch).await.expect("added")
}

/// The state of an ephemeral container.
fn debugger(pod: &Pod, name: &str) -> ContainerState {
    let statuses = pod.status.as_ref().and_then(|status| status.ephemeral_container_statuses.as_ref());
    let found = statuses.and_then(|list| list.iter().find(|status| status.name == name));
    found.and_then(|status| status.state.clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_client_debugs_a_running_pod() {
    let cluster = running().await;
    create(&cluster, &pod("web", "sleep 3600", json!({"terminationGracePeriodSeconds": 0}))).await;
    let before = until(&cluster, "web", is_running).await;
    let container = json!({
        "name": "debugger", "image": "busybox", "targetContainerName": "main", "stdin": true, "tty": true,
    });
    let patched = debug(&cluster, "web", container).await;
    assert_eq!(patched.metadata.generation, Some(2));
    let debugged = until(&cluster, "web", |pod| debugger(pod, "debugger").running.is_some()).await;
    assert!(is_running(&debugged));
    let conditions = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().map(|one| (one.type_, one.status)).collect::<Vec<_>>()
    };
    assert_eq!(conditions(&debugged), conditions(&before), "its readiness doesn't depend on the new container");

    let endpoint = listen(&cluster).await;
    let path = |action: &str| format!("/api/v1/namespaces/default/pods/web/{action}&container=debugger");
    let mut client = Exec::open(&endpoint, V5, &path("attach?stdin=true&stdout=true&tty=true")).await;
    client.send(b"\0test -t 0 && echo $HOSTNAME has a screen\n").await;
    client.until("web has a screen").await;
    let mut command = Exec::open(&endpoint, V5, &path("exec?stdout=true&command=echo&command=there")).await;
    let (out, _, result) = command.rest().await;
    assert_eq!((&*out, &*result.to_string()), ("there\n", SUCCESS));

    // It runs once, and the pod goes on.
    client.send(b"\0exit 3\n").await;
    let ended = until(&cluster, "web", |pod| debugger(pod, "debugger").terminated.is_some()).await;
    assert_eq!(debugger(&ended, "debugger").terminated.map(|ended| ended.exit_code), Some(3));
    assert!(is_running(&ended));
    let params = LogParams { container: Some("debugger".into()), ..LogParams::default() };
    let log = pods(&cluster).logs("web", &params).await.expect("a log");
    assert!(log.contains("web has a screen"), "{log}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn an_ephemeral_container_ends_with_its_pod() {
    let cluster = running().await;
    create(&cluster, &pod("short", "until test -e ../debugger/end; do sleep 0.02; done", json!({}))).await;
    until(&cluster, "short", is_running).await;
    let command = ["sh", "-c", "test -z \"$KUBECONFIG\" && touch end; sleep 3600"];
    debug(&cluster, "short", json!({"name": "debugger", "image": "busybox", "command": command})).await;
    let ended = until(&cluster, "short", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(debugger(&ended, "debugger").terminated.map(|ended| ended.exit_code), Some(137));
    cluster.shutdown().await;
}

#[tokio::test]
async fn an_unknown_image_is_reported_by_its_container() {
    let cluster = running().await;
    create(&cluster, &pod("web", "sleep 3600", json!({}))).await;
    until(&cluster, "web", is_running).await;
    debug(&cluster, "web", json!({"name": "debugger", "image": "example.com/nothing"})).await;
    let reason = |pod: &Pod| debugger(pod, "debugger").waiting.and_then(|waiting| waiting.reason);
    let found = until(&cluster, "web", |pod| reason(pod).as_deref() == Some("ErrImagePull")).await;
    assert!(is_running(&found));
    // Another container can be added while the first one waits.
    debug(&cluster, "web", json!({"name": "second", "image": "busybox", "command": ["true"]})).await;
    until(&cluster, "web", |pod| debugger(pod, "second").terminated.is_some()).await;
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn ephemeral_containers_of_simulated_pods_run_at_once() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    create(&cluster, &pod("web", "sleep 3600", json!({}))).await;
    until(&cluster, "web", is_running).await;
    debug(&cluster, "web", json!({"name": "debugger", "image": "busybox"})).await;
    until(&cluster, "web", |pod| debugger(pod, "debugger").running.is_some() && is_running(pod)).await;
    cluster.finish_pod("default", "web", 0).await.expect("it ends");
    let ended = until(&cluster, "web", |pod| phase(pod) == "Succeeded").await;
    assert!(debugger(&ended, "debugger").terminated.is_some());
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_node_accepts_other_resources() {
    let cluster = running().await;
    let resources = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}});
    let container = json!({
        "name": "main", "image": "busybox", "command": ["sleep", "3600"], "resources": resources("100m", "1Mi"),
        "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
    });
    create(&cluster, &pod("web", "", json!({"restartPolicy": "Always", "containers": [container]}))).await;
    until(&cluster, "web", is_running).await;
    let resize = async |to: Value| {
        let patch = Patch::Strategic(json!({"spec": {"containers": [{"name": "main", "resources": to}]}}));
        pods(&cluster).patch_subresource("resize", "web", &PatchParams::default(), &patch).await.expect("resized")
    };
    let accepted = |pod: &Pod, expect: &Value| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone()).unwrap_or_default();
        let status = serde_json::to_value(&statuses[0]).expect("a status");
        (status["resources"] == *expect && is_running(pod)).then_some(status["restartCount"].as_i64()).flatten()
    };
    assert_eq!(resize(resources("200m", "1Mi")).await.metadata.generation, Some(2));
    until(&cluster, "web", |pod| accepted(pod, &resources("200m", "1Mi")) == Some(0)).await;
    resize(resources("200m", "2Mi")).await;
    until(&cluster, "web", |pod| accepted(pod, &resources("200m", "2Mi")) == Some(1)).await;
    let huge = json!({"spec": {"containers": [{"name": "main", "resources": resources("100k", "2Mi")}]}});
    let huge = Patch::Strategic(huge);
    let refused = pods(&cluster).patch_subresource("resize", "web", &PatchParams::default(), &huge).await;
    assert!(
        matches!(refused, Err(kube::Error::Api(status)) if status.message.contains("enough allocatable resources"))
    );
    cluster.shutdown().await;
}
