//! The world of these tests: a Guestbook called `book`, its texts, and the test as kubelet.

use guestbook_operator::api::v1::{Alias, Guestbook, GuestbookSpec, GuestbookStatus};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::ResourceExt;
use kubewright::condition;
use kubewright_cluster::Pods;
use operator_kit::{World, eventually};
use serde_json::{Value, json};

/// The label of a pod that holds its own name.
pub(crate) const POD: &str = "webapp.my.domain/pod";

/// A world with the texts `words`, and no node.
pub(crate) async fn world() -> World {
    world_with(Pods::None).await
}

pub(crate) async fn world_with(pods: Pods) -> World {
    let world = World::with(pods, guestbook_operator::register, guestbook_operator::crds()).await;
    world.create(words(json!({"title": "Ours"}))).await;
    world
}

/// The texts.
pub(crate) fn words(data: Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": "words"}, "data": data})).unwrap()
}

pub(crate) fn book(size: i32) -> Guestbook {
    Guestbook::new("book", GuestbookSpec { size, config_map_name: "words".into(), alias: Alias::Name, image: None })
}

pub(crate) async fn status(world: &World) -> GuestbookStatus {
    world.get::<Guestbook>("book").await.status.unwrap_or_default()
}

/// The reason of a condition of `book`.
pub(crate) async fn reason(world: &World, type_: &str) -> String {
    condition::get(&status(world).await.conditions, type_).map(|it| it.reason.clone()).unwrap_or_default()
}

/// Waits until a condition of `book` has this reason; gives its message.
pub(crate) async fn told(world: &World, type_: &str, expect: &str) -> String {
    eventually(&format!("{type_} is {expect}"), async || reason(world, type_).await == expect).await;
    condition::get(&status(world).await.conditions, type_).unwrap().message.clone()
}

/// The names of the pods that count: not ended, not being deleted, controlled by `book` as it is now. Sorted.
pub(crate) async fn alive(world: &World) -> Vec<String> {
    let uid = world.api::<Guestbook>().get_opt("book").await.unwrap().and_then(|book| book.uid());
    let mut pods = world.pods().await;
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

/// Waits until `book` has as many pods, all of whom the status names; gives their names.
pub(crate) async fn reaches(world: &World, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    eventually(&format!("there are {count} pods and the status names them"), async || {
        names = alive(world).await;
        let status = status(world).await;
        let mut told: Vec<_> = status.standby.into_iter().chain([status.active]).collect();
        told.retain(|name| !name.is_empty());
        told.sort();
        names.len() == count && told == names
    })
    .await;
    names
}

/// As the kubelet: all pods become ready but those that are deleted meanwhile.
pub(crate) async fn run_all(world: &World) {
    for name in alive(world).await {
        world.run_pod_if_there(&name).await;
    }
}

/// As the kubelet: the pod is no longer ready.
pub(crate) async fn ail(world: &World, name: &str) {
    let not_ready = json!([{"type": "Ready", "status": "False"}]);
    world.edit_status::<Pod>(name, json!({"phase": "Running", "conditions": not_ready})).await;
}

/// A Guestbook of three pods that are all ready.
pub(crate) async fn three(world: &World) -> Vec<String> {
    world.create(book(3)).await;
    let names = reaches(world, 3).await;
    run_all(world).await;
    told(world, "Ready", "PodsReady").await;
    names
}

/// The pod that the Service leads to.
pub(crate) async fn led(world: &World) -> Option<String> {
    let service = world.api::<Service>().get_opt("book").await.unwrap()?;
    service.spec?.selector?.remove(POD).filter(|name| !name.is_empty())
}

/// Waits until one of these serves, and the status tells so; gives its name.
pub(crate) async fn serves(world: &World, one_of: &[String]) -> String {
    let mut active = String::new();
    eventually(&format!("one of {one_of:?} serves"), async || {
        active = status(world).await.active;
        one_of.contains(&active) && led(world).await.as_ref() == Some(&active)
    })
    .await;
    active
}

/// All but one.
pub(crate) fn without(names: &[String], one: &str) -> Vec<String> {
    names.iter().filter(|name| *name != one).cloned().collect()
}

/// Waits until nothing is left of `book`.
pub(crate) async fn gone(world: &World) {
    eventually("all is gone", async || {
        world.pods().await.is_empty() && world.api::<Service>().get_opt("book").await.unwrap().is_none()
    })
    .await;
}
