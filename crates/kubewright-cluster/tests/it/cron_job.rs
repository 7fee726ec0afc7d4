//! Cron jobs over simulated pods.

use std::time::Duration;

use k8s_openapi::api::{
    batch::v1::{CronJob, Job},
    core::v1::Pod,
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PostParams},
};
use kubewright_cluster::Cluster;
use serde_json::{Value, json};

use crate::{background, replicaset::simulated};

fn crons(cluster: &Cluster) -> Api<CronJob> {
    Api::namespaced(cluster.client(), "default")
}

async fn create(cluster: &Cluster, spec: Value) {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]});
    let mut cron = json!({"metadata": {"name": "tick"}, "spec": {
        "schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}},
    }});
    for (field, value) in spec.as_object().into_iter().flatten() {
        cron["spec"][field] = value.clone();
    }
    let cron = serde_json::from_value(cron).expect("a cron job");
    crons(cluster).create(&PostParams::default(), &cron).await.expect("created");
}

/// Waits for a number of jobs. Two minutes are enough for the next one.
async fn jobs(cluster: &Cluster, count: usize) -> Vec<String> {
    let jobs = cluster.expect_within::<Job>(Duration::from_secs(120), |jobs| jobs.len() == count).await;
    jobs.expect("jobs").iter().map(ResourceExt::name_any).collect()
}

async fn finish_all(cluster: &Cluster) {
    let running = |pods: &[&Pod]| {
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        pods.iter().all(|pod| phase(pod).as_deref() != Some("Pending")) && !pods.is_empty()
    };
    for pod in cluster.expect::<Pod>(running).await.expect("running") {
        // Those that have ended already aren't running.
        let _ended = cluster.finish_pod("default", &pod.name_any(), 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_run_each_minute_and_are_forgotten() {
    let cluster = simulated().await;
    create(&cluster, json!({"successfulJobsHistoryLimit": 1})).await;
    let first = jobs(&cluster, 1).await;
    finish_all(&cluster).await;
    let seen = |crons: &[&CronJob]| {
        let status = crons[0].status.clone().unwrap_or_default();
        status.active.is_none() && status.last_successful_time.is_some() && status.last_schedule_time.is_some()
    };
    cluster.expect::<CronJob>(seen).await.expect("seen");
    jobs(&cluster, 2).await;
    finish_all(&cluster).await;
    let last = jobs(&cluster, 1).await;
    assert_ne!(last, first, "the older one is deleted");
    let pause = Patch::Merge(json!({"spec": {"suspend": true}}));
    crons(&cluster).patch("tick", &Default::default(), &pause).await.expect("suspended");
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(jobs(&cluster, 1).await, last, "nothing while it is suspended");
    crons(&cluster).delete("tick", &background()).await.expect("deleted");
    jobs(&cluster, 0).await;
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_running_job_is_waited_for_or_replaced() {
    let cluster = simulated().await;
    create(&cluster, json!({"concurrencyPolicy": "Forbid"})).await;
    let first = jobs(&cluster, 1).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(jobs(&cluster, 1).await, first);
    let replace = Patch::Merge(json!({"spec": {"concurrencyPolicy": "Replace"}}));
    crons(&cluster).patch("tick", &Default::default(), &replace).await.expect("changed");
    let other = |jobs: &[&Job]| jobs.len() == 1 && jobs[0].name_any() != first[0];
    cluster.expect_within::<Job>(Duration::from_secs(120), other).await.expect("replaced");
    cluster.shutdown().await;
}
