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
