//! Pods that can't be bound wait, with a condition that says why.

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use kubewright_cluster::{Cluster, Pods};
use serde_json::{Value, json};

use crate::{create, phase, pod, until};

const PREEMPTION: &str = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

async fn node(cluster: &Cluster, patch: Value) {
    let nodes: Api<Node> = Api::all(cluster.client());
    nodes.patch("kubewright", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
}

/// Returns the message of a pod's condition if it isn't scheduled.
fn unscheduled(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|one| one.type_ == "PodScheduled" && one.status == "False")?;
    assert_eq!(condition.reason.as_deref(), Some("Unschedulable"));
    condition.message.clone()
}

#[tokio::test]
async fn a_cordoned_node_takes_no_pods_until_it_is_uncordoned() {
    let cluster = Cluster::builder().pods(Pods::Run).start().await.expect("a cluster");
    node(&cluster, json!({"spec": {"unschedulable": true}})).await;
    create(&cluster, &pod("web", "sleep 1000", json!({}))).await;
    let waiting = until(&cluster, "web", |pod| unscheduled(pod).is_some()).await;
    let why = format!("0/1 nodes are available: 1 node(s) were unschedulable. {PREEMPTION}");
    assert_eq!((unscheduled(&waiting), phase(&waiting)), (Some(why.clone()), "Pending"));
    let told = |events: &[&Event]| {
        events.iter().any(|event| {
            event.reason.as_deref() == Some("FailedScheduling")
                && event.type_.as_deref() == Some("Warning")
                && event.message.as_deref() == Some(&why)
        })
    };
    cluster.expect(told).await.expect("a warning");
    node(&cluster, json!({"spec": {"unschedulable": null}})).await;
    until(&cluster, "web", crate::is_running).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn labels_and_taints_decide_which_pods_are_bound() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    create(&cluster, &pod("picky", "true", json!({"nodeSelector": {"disk": "ssd"}}))).await;
    let why = |obstacle: &str| format!("0/1 nodes are available: 1 {obstacle}. {PREEMPTION}");
    let found = until(&cluster, "picky", |pod| unscheduled(pod).is_some()).await;
    assert_eq!(unscheduled(&found), Some(why("node(s) didn't match Pod's node affinity/selector")));
    node(&cluster, json!({"metadata": {"labels": {"disk": "ssd"}}})).await;
    until(&cluster, "picky", |pod| phase(pod) == "Running").await;

    node(&cluster, json!({"spec": {"taints": [{"key": "for", "value": "cows", "effect": "NoSchedule"}]}})).await;
    create(&cluster, &pod("pig", "true", json!({}))).await;
    create(&cluster, &pod("cow", "true", json!({"tolerations": [{"key": "for", "value": "cows"}]}))).await;
    until(&cluster, "cow", |pod| phase(pod) == "Running").await;
    let repelled = why("node(s) had untolerated taint {for: cows}");
    until(&cluster, "pig", |pod| unscheduled(pod).as_ref() == Some(&repelled)).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn pods_wait_for_what_they_request() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    let nodes: Api<Node> = Api::all(cluster.client());
    let amounts = json!({"status": {"allocatable": {"cpu": "2", "memory": "4Gi"}}});
    nodes.patch_status("kubewright", &PatchParams::default(), &Patch::Merge(&amounts)).await.expect("patched");
    let large = |name: &str, cpu: &str, memory: &str| {
        let requests = json!({"requests": {"cpu": cpu, "memory": memory}});
        let container = json!({"name": "main", "image": "busybox", "resources": requests});
        pod(name, "", json!({"containers": [container]}))
    };
    create(&cluster, &large("first", "1500m", "3Gi")).await;
    until(&cluster, "first", |pod| phase(pod) == "Running").await;
    let no_victims = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    create(&cluster, &large("second", "1", "2Gi")).await;
    let why = format!("0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. {no_victims}");
    let waiting = until(&cluster, "second", |pod| unscheduled(pod).is_some()).await;
    assert_eq!(unscheduled(&waiting), Some(why));
    create(&cluster, &large("huge", "3", "1Gi")).await;
    let huge = until(&cluster, "huge", |pod| unscheduled(pod).is_some()).await;
    assert_eq!(unscheduled(&huge), Some(format!("0/1 nodes are available: 1 Insufficient cpu. {PREEMPTION}")));
    create(&cluster, &large("small", "500m", "1Gi")).await;
    until(&cluster, "small", |pod| phase(pod) == "Running").await;

    crate::pods(&cluster).delete("first", &DeleteParams::default().grace_period(0)).await.expect("accepted");
    until(&cluster, "second", |pod| phase(pod) == "Running").await;
    assert_eq!(phase(&until(&cluster, "huge", |_| true).await), "Pending");
    cluster.shutdown().await;
}

#[tokio::test]
async fn pods_wait_for_their_host_ports() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    let with_port = |name: &str, mut port: Value| {
        port["containerPort"] = json!(80);
        port["hostPort"] = json!(8080);
        pod(name, "", json!({"containers": [{"name": "main", "image": "busybox", "ports": [port]}]}))
    };
    create(&cluster, &with_port("first", json!({}))).await;
    until(&cluster, "first", |pod| phase(pod) == "Running").await;
    create(&cluster, &with_port("second", json!({"hostIP": "127.0.0.1"}))).await;
    let waiting = until(&cluster, "second", |pod| unscheduled(pod).is_some()).await;
    let conflict = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    let why =
        format!("{conflict} preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.");
    assert_eq!((unscheduled(&waiting), phase(&waiting)), (Some(why), "Pending"));
    create(&cluster, &with_port("other", json!({"protocol": "UDP"}))).await;
    until(&cluster, "other", |pod| phase(pod) == "Running").await;
    assert_eq!(phase(&until(&cluster, "second", |_| true).await), "Pending");

    crate::pods(&cluster).delete("first", &DeleteParams::default().grace_period(0)).await.expect("accepted");
    until(&cluster, "second", |pod| phase(pod) == "Running").await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn bound_pods_get_the_zone_of_their_node() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    node(&cluster, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}})).await;
    create(&cluster, &pod("web", "true", json!({}))).await;
    let bound = until(&cluster, "web", |pod| phase(pod) == "Running").await;
    let labels = bound.metadata.labels.unwrap_or_default();
    assert_eq!(labels.get("topology.kubernetes.io/zone").map(String::as_str), Some("a"));
    cluster.shutdown().await;
}

#[tokio::test]
async fn gated_pods_say_so_until_their_gates_are_removed() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    let created =
        create(&cluster, &pod("gated", "true", json!({"schedulingGates": [{"name": "example.com/ready"}]}))).await;
    let conditions = created.status.and_then(|status| status.conditions).unwrap_or_default();
    let found: Vec<_> = conditions.iter().map(|one| (&*one.type_, &*one.status, one.reason.as_deref())).collect();
    assert_eq!(found, [("PodScheduled", "False", Some("SchedulingGated"))]);
    let open = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    crate::pods(&cluster).patch("gated", &PatchParams::default(), &open).await.expect("patched");
    let bound = until(&cluster, "gated", |pod| phase(pod) == "Running").await;
    let conditions = bound.status.and_then(|status| status.conditions).unwrap_or_default();
    let scheduled: Vec<_> =
        conditions.iter().filter(|one| one.type_ == "PodScheduled").map(|one| &*one.status).collect();
    assert_eq!(scheduled, ["True"]);
    cluster.shutdown().await;
}
