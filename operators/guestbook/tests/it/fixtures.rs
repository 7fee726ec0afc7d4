//! A Guestbook called `book`, its ConfigMap, and the test in the role of the kubelet.

use guestbook_operator::api::v1::{Alias, Guestbook, GuestbookSpec, GuestbookStatus};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::ResourceExt;
use kubewright::condition;
use kubewright::simulation::env::{TestEnv, eventually};
use kubewright_cluster::Pods;
use serde_json::{Value, json};

/// The label with the pod's own name.
pub(crate) const POD: &str = "webapp.my.domain/pod";

/// An environment with the ConfigMap `words`, without a node.
pub(crate) async fn env() -> TestEnv {
    world_with(Pods::None).await
}

pub(crate) async fn world_with(pods: Pods) -> TestEnv {
    let env = TestEnv::with(pods, guestbook_operator::register, guestbook_operator::crds()).await;
    env.create(words(json!({"title": "Ours"}))).await;
    env
}

/// The ConfigMap.
pub(crate) fn words(data: Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": "words"}, "data": data})).unwrap()
}

pub(crate) fn book(size: i32) -> Guestbook {
    Guestbook::new("book", GuestbookSpec { size, config_map_name: "words".into(), alias: Alias::Name, image: None })
}

pub(crate) async fn status(env: &TestEnv) -> GuestbookStatus {
    env.get::<Guestbook>("book").await.status.unwrap_or_default()
}

/// Returns the reason of a condition of `book`.
pub(crate) async fn reason(env: &TestEnv, type_: &str) -> String {
    condition::get(&status(env).await.conditions, type_).map(|it| it.reason.clone()).unwrap_or_default()
}

/// Waits until a condition of `book` has a reason; returns its message.
pub(crate) async fn reported(env: &TestEnv, type_: &str, expect: &str) -> String {
    eventually(&format!("{type_} is {expect}"), async || reason(env, type_).await == expect).await;
    condition::get(&status(env).await.conditions, type_).unwrap().message.clone()
}

/// Returns the sorted names of the active pods: not ended, not being deleted, and controlled by the present `book`.
pub(crate) async fn alive(env: &TestEnv) -> Vec<String> {
    let uid = env.api::<Guestbook>().get_opt("book").await.unwrap().and_then(|book| book.uid());
    let mut pods = env.pods().await;
    pods.retain(|pod| {
        let owns = |owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
            Some(&owner.uid) == uid.as_ref() && owner.controller == Some(true)
        };
        pod.owner_references().iter().any(owns)
            && !["Succeeded", "Failed"].contains(&phase(pod))
            && pod.metadata.deletion_timestamp.is_none()
    });
    let mut names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    names.sort();
    names
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Waits until `book` has this many pods, all named by its status; returns their names.
pub(crate) async fn reaches(env: &TestEnv, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    eventually(&format!("there are {count} pods and the status names them"), async || {
        names = alive(env).await;
        let status = status(env).await;
        let mut reported: Vec<_> = status.standby.into_iter().chain([status.active]).collect();
        reported.retain(|name| !name.is_empty());
        reported.sort();
        names.len() == count && reported == names
    })
    .await;
    names
}

/// Makes all pods ready, except those that are deleted meanwhile.
pub(crate) async fn run_all(env: &TestEnv) {
    for name in alive(env).await {
        env.run_pod_if_there(&name).await;
    }
}

/// Makes a pod unready.
pub(crate) async fn ail(env: &TestEnv, name: &str) {
    let not_ready = json!([{"type": "Ready", "status": "False"}]);
    env.edit_status::<Pod>(name, json!({"phase": "Running", "conditions": not_ready})).await;
}

/// Creates a Guestbook of three ready pods.
pub(crate) async fn three(env: &TestEnv) -> Vec<String> {
    env.create(book(3)).await;
    let names = reaches(env, 3).await;
    run_all(env).await;
    reported(env, "Ready", "PodsReady").await;
    names
}

/// Returns the pod that the Service selects.
pub(crate) async fn led(env: &TestEnv) -> Option<String> {
    let service = env.api::<Service>().get_opt("book").await.unwrap()?;
    service.spec?.selector?.remove(POD).filter(|name| !name.is_empty())
}

/// Waits until one of these pods serves and the status says so; returns its name.
pub(crate) async fn serves(env: &TestEnv, one_of: &[String]) -> String {
    let mut active = String::new();
    eventually(&format!("one of {one_of:?} serves"), async || {
        active = status(env).await.active;
        one_of.contains(&active) && led(env).await.as_ref() == Some(&active)
    })
    .await;
    active
}

/// Returns all names but one.
pub(crate) fn without(names: &[String], one: &str) -> Vec<String> {
    names.iter().filter(|name| *name != one).cloned().collect()
}

/// Waits until nothing is left of `book`.
pub(crate) async fn gone(env: &TestEnv) {
    eventually("all is gone", async || {
        env.pods().await.is_empty() && env.api::<Service>().get_opt("book").await.unwrap().is_none()
    })
    .await;
}
