//! Evictions by taints, over simulated pods.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{Patch, PostParams},
};
use serde_json::{Value, json};

use crate::{pods, replicaset::simulated};

#[tokio::test(start_paused = true)]
async fn a_taint_evicts_pods_at_once_later_or_never() {
    let cluster = simulated().await;
    let toleration = |seconds: Value| json!([{"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    for (name, tolerations) in
        [("weak", json!([])), ("patient", toleration(json!(60))), ("tough", toleration(Value::Null))]
    {
        let pod = json!({"metadata": {"name": name}, "spec": {
            "tolerations": tolerations, "containers": [{"name": "main", "image": "busybox"}],
        }});
        let pod = serde_json::from_value(pod).expect("a pod");
        pods(&cluster).create(&PostParams::default(), &pod).await.expect("created");
    }
    let running = |pods: &[&Pod]| pods.iter().all(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
    cluster.expect::<Pod>(running).await.expect("bound");
    let nodes: Api<Node> = Api::all(cluster.client());
    let name = nodes.list(&Default::default()).await.expect("listed").items[0].name_any();
    let taint = Patch::Merge(json!({"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}}));
    nodes.patch(&name, &Default::default(), &taint).await.expect("tainted");
    let names = |pods: &[&Pod]| pods.iter().map(|pod| pod.name_any()).collect::<Vec<_>>();
    cluster.expect::<Pod>(|pods| names(pods) == ["patient", "tough"]).await.expect("evicted");
    let early = cluster.expect_within::<Pod>(Duration::from_secs(50), |pods| names(pods) == ["tough"]).await;
    assert!(early.is_err(), "too early");
    cluster.expect::<Pod>(|pods| names(pods) == ["tough"]).await.expect("evicted later");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_are_tainted_by_their_conditions() {
    let cluster = simulated().await;
    let nodes: Api<Node> = Api::all(cluster.client());
    let keys = |node: &Node| {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        taints.map(|taint| format!("{}:{}", taint.key, taint.effect)).collect::<Vec<_>>()
    };
    let own = nodes.list(&Default::default()).await.expect("listed").items.remove(0);
    assert_eq!(keys(&own), [""; 0], "the node is ready");

    let cordoned = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    nodes.patch(&own.name_any(), &Default::default(), &cordoned).await.expect("cordoned");
    let is = |name: &str, taints: &'static [&'static str]| {
        let name = name.to_owned();
        move |nodes: &[&Node]| nodes.iter().any(|node| node.name_any() == name && keys(node) == taints)
    };
    cluster.expect(is(&own.name_any(), &["node.kubernetes.io/unschedulable:NoSchedule"])).await.expect("tainted");

    // Nothing is known about another node, so the taint of its creation goes.
    let other: Node = serde_json::from_value(json!({"metadata": {"name": "other"}})).expect("a node");
    let created = nodes.create(&PostParams::default(), &other).await.expect("created");
    assert_eq!(keys(&created), ["node.kubernetes.io/not-ready:NoSchedule"]);
    cluster.expect(is("other", &[])).await.expect("not tainted");
    let failing = Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}));
    nodes.patch_status("other", &Default::default(), &failing).await.expect("a status");
    let not_ready = ["node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"];
    cluster.expect(|nodes: &[&Node]| nodes.iter().any(|node| keys(node) == not_ready)).await.expect("tainted");
    cluster.shutdown().await;
}
