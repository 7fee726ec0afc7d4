//! Simulated pods on a paused clock.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kubewright_apimachinery::{
    clock::{Clock, VirtualClock},
    random::Random,
};
use kubewright_cluster::{Cluster, ClusterBuilder, Pods};
use serde_json::json;

use crate::{create, exit_code, gone, is_running, phase, pod, pods, until};

fn builder() -> ClusterBuilder {
    let clock = VirtualClock::starting_at(Timestamp::from_second(1_700_000_000).expect("a time"));
    Cluster::builder().pods(Pods::Simulate).clock(clock).random(Random::seeded(1))
}

#[tokio::test(start_paused = true)]
async fn pods_run_at_once_and_end_on_request() {
    let cluster = builder().start().await.expect("a cluster");
    create(&cluster, &pod("web", "sleep 3600", json!({"restartPolicy": "OnFailure"}))).await;
    let found = until(&cluster, "web", is_running).await;
    assert!(found.status.is_some_and(|status| status.pod_ip.is_some()));
    cluster.finish_pod("default", "web", 1).await.expect("it ends");
    let again = until(&cluster, "web", |pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone()).unwrap_or_default();
        statuses.iter().any(|one| one.restart_count == 1)
    })
    .await;
    assert!(is_running(&again), "on failure it is started again");
    cluster.finish_pod("default", "web", 0).await.expect("it ends");
    let ended = until(&cluster, "web", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(exit_code(&ended), Some(0));
    assert!(cluster.finish_pod("default", "web", 0).await.is_err(), "it has ended");
    assert!(cluster.finish_pod("default", "nobody", 0).await.is_err());
    pods(&cluster).delete("web", &DeleteParams::default()).await.expect("accepted");
    gone(&cluster, "web").await;
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_simulated_pod_is_deleted_at_once() {
    let cluster = builder().start().await.expect("a cluster");
    let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
    create(&cluster, &pod("web", "sleep 3600", json!({}))).await;
    until(&cluster, "web", is_running).await;
    pods(&cluster).delete("web", &DeleteParams::default()).await.expect("accepted");
    gone(&cluster, "web").await;
    assert!(clock.monotonic() < Duration::from_secs(1), "{:?}", clock.monotonic());
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_simulated_start_can_be_delayed() {
    let delay = Duration::from_secs(300);
    let cluster = builder().simulated_start(delay).start().await.expect("a cluster");
    let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
    create(&cluster, &pod("slow", "sleep 3600", json!({}))).await;
    let running = |pods: &[&Pod]| pods.iter().any(|pod| is_running(pod));
    cluster.expect_within::<Pod>(delay * 2, running).await.expect("it runs");
    assert!(clock.monotonic() >= delay);
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_when_nothing_happens() {
    let cluster = builder().start().await.expect("a cluster");
    create(&cluster, &pod("web", "sleep 3600", json!({}))).await;
    until(&cluster, "web", is_running).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut feed = cluster.api().feed();
    while !matches!(feed.try_next(), Ok(None)) {}
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert!(matches!(feed.try_next(), Ok(None)), "a day went by without a write");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_node_stay_pending() {
    let cluster = crate::bare().await;
    create(&cluster, &pod("web", "sleep 3600", json!({}))).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let found = pods(&cluster).get("web").await.expect("the pod");
    assert_eq!(phase(&found), "Pending");
    assert_eq!(found.spec.and_then(|spec| spec.node_name), None);
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn conditions_of_others_survive_the_start_of_a_pod() {
    let cluster = builder().simulated_start(Duration::from_secs(10)).start().await.expect("a cluster");
    create(&cluster, &pod("web", "sleep 3600", json!({"readinessGates": [{"conditionType": "example.com/ok"}]}))).await;
    let is_bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    until(&cluster, "web", is_bound).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let gate = json!({"status": {"conditions": [{"type": "example.com/ok", "status": "True"}]}});
    let patch = kube::api::Patch::Strategic(gate);
    pods(&cluster).patch_status("web", &kube::api::PatchParams::default(), &patch).await.expect("patched");
    let running = until(&cluster, "web", is_running).await;
    let conditions = running.status.and_then(|status| status.conditions).unwrap_or_default();
    assert!(conditions.iter().any(|one| one.type_ == "example.com/ok"), "{conditions:?}");
    cluster.shutdown().await;
}
