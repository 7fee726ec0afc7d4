//! Horizontal pod autoscalers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::Event};
use kube::{Api, Client, api::PostParams};
use kubewright_apimachinery::{clock::VirtualClock, random::Random};
use kubewright_cluster::{Cluster, Pods, ResourceUsage};
use serde_json::{Value, json};

use crate::{eventually, running};

fn api<K>(client: Client) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    Api::namespaced(client, "default")
}

async fn create<K>(cluster: &Cluster, object: Value)
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope> + serde::Serialize,
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    K::DynamicType: Default,
{
    let object = serde_json::from_value(object).expect("an object");
    api::<K>(cluster.client()).create(&PostParams::default(), &object).await.expect("created");
}

fn deployment(command: &str) -> Value {
    let container = json!({
        "name": "main", "image": "busybox", "command": ["sh", "-c", command], "resources": {"requests": {"cpu": "100m"}},
    });
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    json!({"metadata": {"name": "web"}, "spec": spec})
}

fn autoscaler(most: i64) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    json!({"metadata": {"name": "web"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": most,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }})
}

async fn replicas(cluster: &Cluster) -> i32 {
    let found = api::<Deployment>(cluster.client()).get("web").await.expect("the deployment");
    found.spec.and_then(|spec| spec.replicas).unwrap_or_default()
}

async fn status(cluster: &Cluster) -> Value {
    let found = api::<HorizontalPodAutoscaler>(cluster.client()).get("web").await.expect("the autoscaler");
    serde_json::to_value(found.status).expect("a status")
}

fn reasons(status: &Value) -> Vec<(&str, &str, &str)> {
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions
        .iter()
        .map(|one| {
            let text = |field: &str| one[field].as_str().unwrap_or_default();
            (text("type"), text("status"), text("reason"))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_follows_its_load() {
    let clock = VirtualClock::starting_at(Timestamp::from_second(1_700_000_000).expect("a time"));
    let builder = Cluster::builder().pods(Pods::Simulate).clock(clock).random(Random::seeded(1));
    let cluster = builder.start().await.expect("a cluster");
    let load = Arc::new(AtomicU64::new(100_000_000));
    let used = load.clone();
    cluster.set_usage(move |_, _| ResourceUsage { cpu_nanocores: used.load(Ordering::Relaxed), memory_bytes: 1 << 20 });
    create::<Deployment>(&cluster, deployment("sleep 3600")).await;
    create::<HorizontalPodAutoscaler>(&cluster, autoscaler(5)).await;

    // Each pod uses all that it requests, twice the target. It has to be ready during a whole measurement first.
    eventually("it is scaled up", async || {
        tokio::time::sleep(Duration::from_secs(5)).await;
        (replicas(&cluster).await == 5).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let found = status(&cluster).await;
    assert_eq!((&found["currentReplicas"], &found["desiredReplicas"]), (&json!(5), &json!(5)));
    let current = json!({"averageUtilization": 100, "averageValue": "100m"});
    assert_eq!(found["currentMetrics"], json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}]));
    let expected = [
        ("AbleToScale", "True", "ReadyForNewScale"),
        ("ScalingActive", "True", "ValidMetricFound"),
        ("ScalingLimited", "True", "TooManyReplicas"),
    ];
    assert_eq!(reasons(&found), expected);
    assert!(found["lastScaleTime"].is_string());

    load.store(0, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(replicas(&cluster).await, 5, "recommendations of the last five minutes keep it");
    assert_eq!(reasons(&status(&cluster).await)[0], ("AbleToScale", "True", "ScaleDownStabilized"));
    tokio::time::sleep(Duration::from_secs(130)).await;
    assert_eq!(replicas(&cluster).await, 1);

    let events = api::<Event>(cluster.client()).list(&Default::default()).await.expect("events");
    let own = events.items.iter().filter(|event| event.involved_object.name.as_deref() == Some("web"));
    let own = own.filter(|event| event.reason.as_deref() == Some("SuccessfulRescale"));
    let messages: Vec<_> = own.filter_map(|event| event.message.as_deref()).collect();
    let up = "New size: 2; reason: cpu resource utilization (percentage of request) above target";
    assert!(messages.contains(&up), "{messages:?}");
    assert!(messages.contains(&"New size: 1; reason: All metrics below target"), "{messages:?}");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn bounds_and_targets() {
    let clock = VirtualClock::starting_at(Timestamp::from_second(1_700_000_000).expect("a time"));
    let builder = Cluster::builder().pods(Pods::Simulate).clock(clock).random(Random::seeded(1));
    let cluster = builder.start().await.expect("a cluster");
    let mut autoscaler = autoscaler(5);
    autoscaler["spec"]["minReplicas"] = 3.into();
    create::<HorizontalPodAutoscaler>(&cluster, autoscaler).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let found = status(&cluster).await;
    assert_eq!(reasons(&found), [("AbleToScale", "False", "FailedGetScale")]);
    let why = "the HPA controller was unable to get the target's current scale: deployments.apps \"web\" not found";
    assert_eq!(found["conditions"][0]["message"], why);

    create::<Deployment>(&cluster, deployment("sleep 3600")).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(replicas(&cluster).await, 3, "the minimum");
    let patch = kube::api::Patch::Merge(json!({"spec": {"replicas": 0}}));
    let deployments = api::<Deployment>(cluster.client());
    deployments.patch("web", &Default::default(), &patch).await.expect("patched");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(replicas(&cluster).await, 0);
    assert!(reasons(&status(&cluster).await).contains(&("ScalingActive", "False", "ScalingDisabled")));
    let patch = kube::api::Patch::Merge(json!({"spec": {"replicas": 9}}));
    deployments.patch("web", &Default::default(), &patch).await.expect("patched");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(replicas(&cluster).await, 5, "the maximum");
    cluster.shutdown().await;
}

#[tokio::test]
async fn metrics_of_processes_are_read() {
    let cluster = running().await;
    create::<Deployment>(&cluster, deployment("while :; do :; done")).await;
    create::<HorizontalPodAutoscaler>(&cluster, autoscaler(1)).await;
    // In the first minutes only a pod that was ready during a whole measurement counts.
    eventually("the autoscaler sees the CPU", async || {
        let found = status(&cluster).await;
        let seen = reasons(&found).contains(&("ScalingActive", "True", "ValidMetricFound"));
        (seen && found["currentMetrics"][0]["resource"]["current"]["averageUtilization"].as_i64()? > 50).then_some(())
    })
    .await;
    cluster.shutdown().await;
}
