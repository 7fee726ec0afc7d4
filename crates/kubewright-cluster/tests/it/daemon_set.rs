//! Daemon sets and replication controllers over simulated pods.

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet},
    core::v1::{Event, Node, Pod, ReplicationController},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PostParams},
};
use kubewright_cluster::Cluster;
use serde_json::json;

use crate::{background, pods, replicaset::simulated};

const LOG: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: log}
spec:
  selector: {matchLabels: {app: log}}
  template:
    metadata: {labels: {app: log}}
    spec: {containers: [{name: main, image: 'busybox:1'}]}
";

/// The condition of `kubectl rollout status`.
async fn rolled_out(cluster: &Cluster, desired: i32) {
    let done = |sets: &[&DaemonSet]| {
        sets.iter().all(|set| {
            let status = set.status.clone().unwrap_or_default();
            status.observed_generation == set.metadata.generation
                && status.desired_number_scheduled == desired
                && status.updated_number_scheduled.unwrap_or_default() == desired
                && status.number_available.unwrap_or_default() == desired
        })
    };
    cluster.expect::<DaemonSet>(done).await.expect("rolled out");
}

#[tokio::test(start_paused = true)]
async fn the_node_has_one_pod_which_follows_template_and_taints() {
    let cluster = simulated().await;
    cluster.apply_yaml(LOG).await.expect("applied");
    rolled_out(&cluster, 1).await;
    let sets: Api<DaemonSet> = Api::namespaced(cluster.client(), "default");
    let containers = json!([{"name": "main", "image": "busybox:2"}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    sets.patch("log", &Default::default(), &Patch::Strategic(patch)).await.expect("patched");
    rolled_out(&cluster, 1).await;
    let pods = cluster.expect::<Pod>(|pods| pods.len() == 1).await.expect("one pod");
    assert_eq!(pods[0].spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref()), Some("busybox:2"));
    cluster.expect::<ControllerRevision>(|all| all.len() == 2).await.expect("revisions");

    let nodes: Api<Node> = Api::all(cluster.client());
    let name = nodes.list(&Default::default()).await.expect("listed").items[0].name_any();
    let taints = |taints: serde_json::Value| Patch::Merge(json!({"spec": {"taints": taints}}));
    let evicting = taints(json!([{"key": "broken", "effect": "NoExecute"}]));
    nodes.patch(&name, &Default::default(), &evicting).await.expect("tainted");
    cluster.expect::<Pod>(|pods| pods.is_empty()).await.expect("gone");
    rolled_out(&cluster, 0).await;
    nodes.patch(&name, &Default::default(), &taints(json!(null))).await.expect("healed");
    rolled_out(&cluster, 1).await;
    sets.delete("log", &background()).await.expect("deleted");
    cluster.expect::<Pod>(|pods| pods.is_empty()).await.expect("gone");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn failed_pods_are_replaced_after_growing_delays() {
    let cluster = simulated().await;
    cluster.apply_yaml(LOG).await.expect("applied");
    let (mut names, mut times) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let is_new = |pod: &&Pod| crate::is_running(pod) && !names.contains(&pod.name_any());
        let found = cluster.expect::<Pod>(|all| all.iter().any(&is_new)).await.expect("a pod");
        let pod = found.iter().find(|pod| is_new(pod)).expect("a pod");
        times.push(pod.creation_timestamp().expect("a time").0.as_second());
        names.push(pod.name_any());
        let evicted = Patch::Merge(json!({"status": {"phase": "Failed", "reason": "Evicted"}}));
        pods(&cluster).patch_status(&pod.name_any(), &Default::default(), &evicted).await.expect("failed");
    }
    let delays: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(delays, [0, 1, 2, 4]);
    let why = format!("Found failed daemon pod default/{} on node kubewright, will try to kill it", names[3]);
    let told = |events: &[&Event]| {
        events.iter().any(|event| {
            event.reason.as_deref() == Some("FailedDaemonPod")
                && event.type_.as_deref() == Some("Warning")
                && event.message.as_deref() == Some(&why)
        })
    };
    cluster.expect(told).await.expect("a warning");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_replication_controller_keeps_its_pods() {
    let cluster = simulated().await;
    let controllers: Api<ReplicationController> = Api::namespaced(cluster.client(), "default");
    let controller = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 3, "selector": {"app": "web"},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}},
    }});
    let controller = serde_json::from_value(controller).expect("a controller");
    controllers.create(&PostParams::default(), &controller).await.expect("created");
    let available = |wanted: i32| {
        move |all: &[&ReplicationController]| {
            all.iter().all(|one| {
                let status = one.status.clone().unwrap_or_default();
                (status.replicas, status.available_replicas) == (wanted, Some(wanted))
            })
        }
    };
    cluster.expect::<ReplicationController>(available(3)).await.expect("available");
    let scale = Patch::Merge(json!({"spec": {"replicas": 2}}));
    controllers.patch_scale("web", &Default::default(), &scale).await.expect("scaled");
    cluster.expect::<ReplicationController>(available(2)).await.expect("scaled");
    let lost = pods(&cluster).list(&Default::default()).await.expect("listed").items[0].name_any();
    pods(&cluster).delete(&lost, &background()).await.expect("deleted");
    let replaced = |pods: &[&Pod]| pods.len() == 2 && pods.iter().all(|pod| pod.name_any() != lost);
    cluster.expect::<Pod>(replaced).await.expect("replaced");
    cluster.shutdown().await;
}
