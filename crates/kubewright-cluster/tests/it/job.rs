//! Jobs over simulated pods.

use std::time::Duration;

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Event, Pod, ResourceQuota},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy},
};
use kubewright_cluster::Cluster;
use serde_json::{Value, json};

use crate::{background, is_running, pods, replicaset::simulated};

fn jobs(cluster: &Cluster) -> Api<Job> {
    Api::namespaced(cluster.client(), "default")
}

async fn create(cluster: &Cluster, spec: Value) {
    let mut job = json!({
        "metadata": {"name": "sum"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        job["spec"][field] = value.clone();
    }
    let job = serde_json::from_value(job).expect("a job");
    jobs(cluster).create(&PostParams::default(), &job).await.expect("created");
}

fn holds(job: &Job, kind: &str) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == kind && one.status == "True")
}

fn reason(job: &Job) -> String {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|one| one.type_ == "Failed").find_map(|one| one.reason.clone()).unwrap_or_default()
}

async fn until(cluster: &Cluster, met: impl Fn(&Job) -> bool) -> Job {
    let long = Duration::from_secs(3600);
    let mut found = cluster.expect_within::<Job>(long, |jobs| jobs.iter().any(|job| met(job))).await.expect("a job");
    found.remove(0)
}

/// Ends the running pods, once there are as many as expected.
async fn finish(cluster: &Cluster, count: usize, code: i32) {
    let long = Duration::from_secs(3600);
    let are_there = |pods: &[&Pod]| pods.iter().filter(|pod| is_running(pod)).count() == count;
    let found = cluster.expect_within::<Pod>(long, are_there).await.expect("running pods");
    for pod in found.iter().filter(|pod| is_running(pod)) {
        cluster.finish_pod("default", &pod.name_any(), code).await.expect("it ends");
    }
}

#[tokio::test(start_paused = true)]
async fn completes_when_enough_have_succeeded() {
    let cluster = simulated().await;
    create(&cluster, json!({"completions": 3, "parallelism": 2})).await;
    finish(&cluster, 2, 0).await;
    finish(&cluster, 1, 0).await;
    let done = until(&cluster, |job| holds(job, "Complete")).await;
    let status = done.status.expect("a status");
    assert_eq!((status.succeeded, status.failed, status.active), (Some(3), None, None));
    assert!(status.start_time.is_some() && status.completion_time.is_some());
    let left = cluster.expect::<Pod>(|pods| pods.len() == 3).await.expect("the pods stay");
    assert!(left.iter().all(|pod| pod.finalizers().is_empty()));
    jobs(&cluster).delete("sum", &background()).await.expect("deleted");
    cluster.expect::<Pod>(|pods| pods.is_empty()).await.expect("gone with it");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn fails_after_its_retries_with_back_off() {
    let cluster = simulated().await;
    create(&cluster, json!({"backoffLimit": 2})).await;
    for _ in 0..3 {
        finish(&cluster, 1, 1).await;
    }
    let failed = until(&cluster, |job| holds(job, "Failed")).await;
    assert_eq!(reason(&failed), "BackoffLimitExceeded");
    assert_eq!(failed.status.as_ref().and_then(|status| status.failed), Some(3));
    let made = cluster.expect::<Pod>(|pods| pods.len() == 3).await.expect("three pods");
    let mut times: Vec<_> = made.iter().filter_map(|pod| Some(pod.creation_timestamp()?.0.as_second())).collect();
    times.sort_unstable();
    assert_eq!((times[1] - times[0], times[2] - times[1]), (10, 20));
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_is_replaced_and_counted() {
    let cluster = simulated().await;
    create(&cluster, json!({})).await;
    let first = cluster.expect::<Pod>(|pods| pods.iter().any(|pod| is_running(pod))).await.expect("a pod").remove(0);
    pods(&cluster).delete(&first.name_any(), &DeleteParams::default()).await.expect("deleted");
    until(&cluster, |job| job.status.as_ref().is_some_and(|status| status.failed == Some(1))).await;
    finish(&cluster, 1, 0).await;
    let done = until(&cluster, |job| holds(job, "Complete")).await;
    assert_eq!(done.status.and_then(|status| status.succeeded), Some(1));
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_job_and_its_ttl_removes_it() {
    let cluster = simulated().await;
    create(
        &cluster,
        json!({"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 100, "parallelism": 2, "completions": 2}),
    )
    .await;
    let failed = until(&cluster, |job| holds(job, "Failed")).await;
    assert_eq!(reason(&failed), "DeadlineExceeded");
    cluster.expect::<Pod>(|pods| pods.is_empty()).await.expect("no pod runs on");
    let gone = |jobs: &[&Job]| jobs.is_empty();
    assert!(cluster.expect_within::<Job>(Duration::from_secs(90), gone).await.is_err(), "too early");
    cluster.expect_within::<Job>(Duration::from_secs(20), gone).await.expect("gone in time");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn every_index_succeeds_once() {
    let cluster = simulated().await;
    create(&cluster, json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3})).await;
    finish(&cluster, 3, 0).await;
    let done = until(&cluster, |job| holds(job, "Complete")).await;
    assert_eq!(done.status.and_then(|status| status.completed_indexes).as_deref(), Some("0-2"));
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_has_no_pods() {
    let cluster = simulated().await;
    create(&cluster, json!({})).await;
    cluster.expect::<Pod>(|pods| pods.iter().any(|pod| is_running(pod))).await.expect("a pod");
    let suspend = |wanted: bool| Patch::Merge(json!({"spec": {"suspend": wanted}}));
    jobs(&cluster).patch("sum", &Default::default(), &suspend(true)).await.expect("suspended");
    let suspended = until(&cluster, |job| holds(job, "Suspended")).await;
    cluster.expect::<Pod>(|pods| pods.is_empty()).await.expect("no pods");
    assert_eq!(suspended.status.and_then(|status| status.failed), None);
    jobs(&cluster).patch("sum", &Default::default(), &suspend(false)).await.expect("resumed");
    finish(&cluster, 1, 0).await;
    until(&cluster, |job| holds(job, "Complete")).await;
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_index_fails_alone_and_the_job_with_it_at_the_end() {
    let cluster = simulated().await;
    let spec = json!({
        "completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}},
    });
    create(&cluster, spec).await;
    let failed = |job: &Job| job.status.as_ref().and_then(|status| status.failed_indexes.clone());
    until(&cluster, |job| failed(job).as_deref() == Some("")).await;
    let running = |pods: &[&Pod]| pods.iter().filter(|pod| is_running(pod)).count() == 2;
    let found = cluster.expect::<Pod>(running).await.expect("running");
    cluster.finish_pod("default", &found[0].name_any(), 1).await.expect("it ends");
    until(&cluster, |job| failed(job).as_deref() == Some("0")).await;
    cluster.finish_pod("default", &found[1].name_any(), 0).await.expect("it ends");
    let done = until(&cluster, |job| holds(job, "Failed")).await;
    assert_eq!(reason(&done), "FailedIndexes");
    assert_eq!(done.status.and_then(|status| status.completed_indexes).as_deref(), Some("1"));
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_released_pod_can_be_deleted() {
    let cluster = simulated().await;
    create(&cluster, json!({"completions": 2, "parallelism": 1})).await;
    let found = cluster.expect::<Pod>(|pods| pods.iter().any(|pod| is_running(pod))).await.expect("a pod");
    let name = found[0].name_any();
    let labels = json!({"metadata": {"labels": null}});
    pods(&cluster).patch(&name, &PatchParams::default(), &Patch::Merge(&labels)).await.expect("released");
    let is_released =
        |pod: &&Pod| pod.name_any() == name && pod.owner_references().is_empty() && pod.finalizers().is_empty();
    let both = |pods: &[&Pod]| pods.len() == 2 && pods.iter().any(is_released);
    cluster.expect::<Pod>(both).await.expect("another pod, and the finalizer is gone");
    pods(&cluster).delete(&name, &background()).await.expect("deleted");
    cluster.expect::<Pod>(|pods| pods.iter().all(|pod| pod.name_any() != name)).await.expect("it is gone");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_job_that_is_deleted_without_them_lose_the_finalizer() {
    let cluster = simulated().await;
    create(&cluster, json!({})).await;
    cluster.expect::<Pod>(|pods| pods.iter().any(|pod| is_running(pod))).await.expect("a pod");
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    jobs(&cluster).delete("sum", &orphan).await.expect("deleted");
    let is_free = |pod: &&Pod| pod.owner_references().is_empty() && pod.finalizers().is_empty();
    cluster.expect::<Pod>(|pods| pods.len() == 1 && pods.iter().all(is_free)).await.expect("it stays without");
}

#[tokio::test(start_paused = true)]
async fn adopted_pods_are_counted() {
    let cluster = simulated().await;
    for (name, code) in [("first", Some(0)), ("second", None)] {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "sum"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
        });
        let pod = serde_json::from_value(pod).expect("a pod");
        pods(&cluster).create(&PostParams::default(), &pod).await.expect("created");
        let runs = |pods: &[&Pod]| pods.iter().any(|pod| pod.name_any() == name && is_running(pod));
        cluster.expect::<Pod>(runs).await.expect("a running pod");
        if let Some(code) = code {
            cluster.finish_pod("default", name, code).await.expect("it ends");
        }
    }
    let labels = json!({"app": "sum"});
    let template = json!({
        "metadata": {"labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
    });
    let selector = json!({"matchLabels": labels});
    let spec = json!({"manualSelector": true, "selector": selector, "completions": 2, "template": template});
    create(&cluster, spec).await;
    until(&cluster, |job| job.status.as_ref().and_then(|status| status.succeeded) == Some(1)).await;
    cluster.finish_pod("default", "second", 0).await.expect("it ends");
    let done = until(&cluster, |job| holds(job, "Complete")).await;
    assert_eq!(done.status.and_then(|status| status.succeeded), Some(2));
    let is_owned = |pod: &&Pod| pod.owner_references().len() == 1 && pod.finalizers().is_empty();
    cluster.expect::<Pod>(|pods| pods.len() == 2 && pods.iter().all(is_owned)).await.expect("no other pods");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn refused_pods_are_tried_again_after_seconds() {
    let cluster = simulated().await;
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    let quotas = Api::<ResourceQuota>::namespaced(cluster.client(), "default");
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).expect("a quota")).await.expect("created");
    cluster.expect::<ResourceQuota>(|all| all.iter().any(|one| one.status.is_some())).await.expect("a status");
    create(&cluster, json!({})).await;
    let refusals = |count| {
        move |all: &[&Event]| all.iter().filter(|one| one.reason.as_deref() == Some("FailedCreate")).count() == count
    };
    let found = cluster.expect_within::<Event>(Duration::from_secs(60), refusals(4)).await.expect("four refusals");
    let times = found.iter().filter(|one| one.reason.as_deref() == Some("FailedCreate"));
    let mut times: Vec<_> = times.filter_map(|one| Some(one.first_timestamp.as_ref()?.0.as_second())).collect();
    times.sort_unstable();
    // The second attempt follows the status, which the first one has written.
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses[1..], [2, 4]);
    cluster.shutdown().await;
}
