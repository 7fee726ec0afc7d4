//! Evictions, and the disruption budgets that refuse them.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::Pod,
    policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{EvictParams, PostParams},
};
use kubewright_cluster::{Cluster, Pods};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{create, gone, is_running, pod, pods, until};

async fn simulated() -> Cluster {
    Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster")
}

async fn put<K>(client: Client, object: Value)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let object = serde_json::from_value(object).expect("an object");
    Api::<K>::namespaced(client, "default").create(&PostParams::default(), &object).await.expect("created");
}

async fn guard(cluster: &Cluster, name: &str, mut spec: Value) {
    spec["selector"] = json!({"matchLabels": {"app": "x"}});
    put::<PodDisruptionBudget>(cluster.client(), json!({"metadata": {"name": name}, "spec": spec})).await;
}

/// Waits until the status of a budget meets a condition.
async fn status(
    cluster: &Cluster,
    name: &str,
    mut condition: impl FnMut(&PodDisruptionBudgetStatus) -> bool,
) -> PodDisruptionBudgetStatus {
    let mut met = |budgets: &[&PodDisruptionBudget]| {
        budgets.iter().any(|one| one.name_any() == name && one.status.as_ref().is_some_and(&mut condition))
    };
    let found = cluster.expect::<PodDisruptionBudget>(&mut met).await.expect("the status");
    found.into_iter().find(|one| one.name_any() == name).and_then(|one| one.status).expect("a status")
}

async fn run(cluster: &Cluster, name: &str) -> Pod {
    let mut pod = pod(name, "sleep 3600", json!({}));
    pod.metadata.labels = Some([("app".to_owned(), "x".to_owned())].into());
    create(cluster, &pod).await;
    until(cluster, name, is_running).await
}

async fn evict(cluster: &Cluster, name: &str) -> Result<(), Box<kube::core::Status>> {
    evict_with(cluster, name, &EvictParams::default()).await
}

async fn evict_with(cluster: &Cluster, name: &str, params: &EvictParams) -> Result<(), Box<kube::core::Status>> {
    match pods(cluster).evict(name, params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status),
        Err(other) => panic!("{other}"),
    }
}

fn cause(status: &kube::core::Status) -> (&str, &str) {
    let cause = status.details.as_ref().and_then(|details| details.causes.first()).expect("a cause");
    (&cause.reason, &cause.message)
}

#[tokio::test]
async fn a_budget_refuses_evictions() {
    let cluster = simulated().await;
    run(&cluster, "a").await;
    guard(&cluster, "b", json!({"minAvailable": 1})).await;
    let found = status(&cluster, "b", |status| status.current_healthy == Some(1)).await;
    assert_eq!((found.expected_pods, found.desired_healthy, found.disruptions_allowed), (Some(1), Some(1), Some(0)));
    assert_eq!(found.conditions.unwrap_or_default()[0].reason, "InsufficientPods");
    let refused = evict(&cluster, "a").await.expect_err("refused");
    assert_eq!((refused.code, &*refused.reason), (429, "TooManyRequests"));
    assert_eq!(refused.message, "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(
        cause(&refused),
        ("DisruptionBudget", "The disruption budget b needs 1 healthy pods and has 1 currently")
    );
    run(&cluster, "c").await;
    status(&cluster, "b", |status| status.disruptions_allowed == Some(1)).await;
    evict(&cluster, "a").await.expect("allowed");
    gone(&cluster, "a").await;
    status(&cluster, "b", |status| status.expected_pods == Some(1) && status.disruptions_allowed == Some(0)).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_dry_run_checks_and_changes_nothing() {
    let cluster = simulated().await;
    run(&cluster, "a").await;
    guard(&cluster, "b", json!({"minAvailable": 0})).await;
    status(&cluster, "b", |status| status.disruptions_allowed == Some(1)).await;
    let dry = EvictParams { post_options: PostParams { dry_run: true, field_manager: None }, delete_options: None };
    evict_with(&cluster, "a", &dry).await.expect("allowed");
    let pod = pods(&cluster).get("a").await.expect("the pod");
    assert!(pod.metadata.deletion_timestamp.is_none());
    let found = status(&cluster, "b", |_| true).await;
    assert_eq!((found.disruptions_allowed, found.disrupted_pods), (Some(1), None));
    cluster.shutdown().await;
}

#[tokio::test]
async fn an_evicted_pod_is_recorded_and_says_why_it_ends() {
    let cluster = crate::running().await;
    run(&cluster, "a").await;
    guard(&cluster, "b", json!({"minAvailable": 0})).await;
    status(&cluster, "b", |status| status.disruptions_allowed == Some(1)).await;
    let mut feed = cluster.api().feed();
    while !matches!(feed.try_next(), Ok(None)) {}
    evict(&cluster, "a").await.expect("allowed");
    let (mut recorded, mut marked) = (false, false);
    while !(recorded && marked) {
        let object = feed.next().await.expect("a change").object().clone();
        recorded |= object["status"]["disruptedPods"]["a"].is_string() && object["status"]["disruptionsAllowed"] == 0;
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        marked |= conditions.any(|one| one["reason"] == "EvictionByEvictionAPI" && one["status"] == "True");
    }
    gone(&cluster, "a").await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn two_budgets_for_one_pod_are_an_error() {
    let cluster = simulated().await;
    run(&cluster, "a").await;
    for name in ["b", "c"] {
        guard(&cluster, name, json!({"minAvailable": 0})).await;
        status(&cluster, name, |status| status.disruptions_allowed == Some(1)).await;
    }
    let refused = evict(&cluster, "a").await.expect_err("refused");
    let expect = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!((refused.code, &*refused.message), (500, expect));
    cluster.shutdown().await;
}

#[tokio::test]
async fn pods_that_do_not_run_pass() {
    let cluster = crate::bare().await;
    let mut waiting = pod("a", "true", json!({}));
    waiting.metadata.labels = Some([("app".to_owned(), "x".to_owned())].into());
    create(&cluster, &waiting).await;
    guard(&cluster, "b", json!({"minAvailable": 1})).await;
    status(&cluster, "b", |status| status.expected_pods == Some(1)).await;
    evict(&cluster, "a").await.expect("allowed");
    gone(&cluster, "a").await;
    let missing = evict(&cluster, "a").await.expect_err("refused");
    assert_eq!((missing.code, &*missing.message), (404, "pods \"a\" not found"));
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_pods_of_a_deployment_are_counted_by_its_scale() {
    let cluster = simulated().await;
    let template = json!({
        "metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    });
    let selector = json!({"matchLabels": {"app": "x"}});
    let deployment =
        json!({"metadata": {"name": "d"}, "spec": {"replicas": 3, "selector": selector, "template": template}});
    put::<Deployment>(cluster.client(), deployment).await;
    guard(&cluster, "b", json!({"maxUnavailable": "30%"})).await;
    let found = status(&cluster, "b", |status| status.current_healthy == Some(3)).await;
    assert_eq!((found.expected_pods, found.desired_healthy, found.disruptions_allowed), (Some(3), Some(2), Some(1)));
    let all = pods(&cluster).list(&Default::default()).await.expect("a list").items;
    evict(&cluster, &all[0].name_any()).await.expect("allowed");
    gone(&cluster, &all[0].name_any()).await;
    status(&cluster, "b", |status| status.current_healthy == Some(3) && status.disruptions_allowed == Some(1)).await;
    cluster.shutdown().await;
}
