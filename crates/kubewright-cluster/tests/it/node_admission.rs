//! Pods that name their node themselves, and are rejected by it.

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use kubewright_cluster::{Cluster, Pods};
use serde_json::{Value, json};

use crate::{create, gone, is_running, phase, pod, pods, until};

/// A pod that names its node.
fn placed(name: &str, spec: Value) -> Pod {
    let mut pod = pod(name, "sleep 1000", spec);
    pod.spec.as_mut().expect("a spec").node_name = Some("kubewright".into());
    pod
}

/// A spec with one container that requests CPU, and has a host port.
fn container(cpu: &str, port: Value) -> Value {
    let ports = json!([{"containerPort": 80, "hostPort": port}]);
    let resources = json!({"requests": {"cpu": cpu}});
    json!({"containers": [{
        "name": "main", "image": "busybox", "command": ["sleep", "1000"], "resources": resources,
        "ports": if port.is_null() { json!([]) } else { ports },
    }]})
}

/// Waits until a pod has failed, and returns the reason and the message.
async fn rejected(cluster: &Cluster, name: &str) -> (String, String) {
    let failed = until(cluster, name, |pod| phase(pod) == "Failed").await;
    let status = failed.status.expect("a status");
    assert!(status.start_time.is_some());
    assert_eq!(status.container_statuses, None, "nothing ran");
    (status.reason.unwrap_or_default(), status.message.unwrap_or_default())
}

async fn check(cluster: Cluster) {
    let nodes: Api<Node> = Api::all(cluster.client());
    let amounts = json!({"status": {"allocatable": {"cpu": "2"}}});
    nodes.patch_status("kubewright", &PatchParams::default(), &Patch::Merge(&amounts)).await.expect("patched");
    create(&cluster, &placed("first", container("1500m", json!(8080)))).await;
    until(&cluster, "first", is_running).await;
    create(&cluster, &placed("large", container("1", Value::Null))).await;
    create(&cluster, &placed("port", container("1m", json!(8080)))).await;
    create(&cluster, &placed("elsewhere", json!({"nodeSelector": {"disk": "hdd"}}))).await;
    let cpu = "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000";
    assert_eq!(rejected(&cluster, "large").await, ("OutOfcpu".into(), cpu.into()));
    let port = "node(s) didn't have free ports for the requested pod ports";
    let why = format!("Pod was rejected: Predicate NodePorts failed: {port}");
    assert_eq!(rejected(&cluster, "port").await, ("NodePorts".into(), why));
    let affinity = "node(s) didn't match Pod's node affinity/selector";
    let why = format!("Pod was rejected: Predicate NodeAffinity failed: {affinity}");
    assert_eq!(rejected(&cluster, "elsewhere").await, ("NodeAffinity".into(), why));

    // A rejected pod takes nothing, and one that is gone neither.
    pods(&cluster).delete("port", &DeleteParams::default()).await.expect("deleted");
    gone(&cluster, "port").await;
    pods(&cluster).delete("first", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    gone(&cluster, "first").await;
    create(&cluster, &placed("second", container("2", json!(8080)))).await;
    until(&cluster, "second", is_running).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_node_rejects_pods_that_it_has_no_room_for() {
    let cluster = Cluster::builder().pods(Pods::Run).start().await.expect("a cluster");
    create(&cluster, &placed("elsewhere", json!({"nodeSelector": {"disk": "hdd"}}))).await;
    let told = |events: &[&Event]| {
        events.iter().any(|event| {
            event.reason.as_deref() == Some("NodeAffinity")
                && event.type_.as_deref() == Some("Warning")
                && event.source.as_ref().and_then(|source| source.component.as_deref()) == Some("kubelet")
                && event.message.as_deref()
                    == Some("Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
        })
    };
    cluster.expect(told).await.expect("an event");
    pods(&cluster).delete("elsewhere", &DeleteParams::default()).await.expect("deleted");
    gone(&cluster, "elsewhere").await;
    check(cluster).await;
}

#[tokio::test]
async fn a_simulated_node_rejects_them_too() {
    check(Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster")).await;
}
