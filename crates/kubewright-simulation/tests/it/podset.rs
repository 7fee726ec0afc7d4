//! The PodSet operator.

use k8s_openapi::api::core::v1::Pod;
use kubewright_simulation::{Budget, Scenario, Sim};
use podset_operator::api::k8stest::v1alpha1::PodSet;
use serde_json::json;

use crate::search;

async fn scales(sim: &Sim) {
    sim.always("never more than three pods", |world| world.list::<Pod>().len() <= 3);
    sim.apply("{apiVersion: k8stest.justin0u0.com/v1alpha1, kind: PodSet, metadata: {name: web}, spec: {replicas: 3}}")
        .await;
    sim.until("three pods run", |world| running(&world.list()) == 3).await;
    sim.edit::<PodSet>("web", json!({"spec": {"replicas": 1}})).await;
    sim.until("one pod runs", |world| running(&world.list()) == 1).await;
    sim.delete::<PodSet>("web").await;
    sim.finally("no pod is left", |world| world.list::<Pod>().is_empty());
}

fn running(pods: &[Pod]) -> usize {
    pods.iter().filter(|pod| pod.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Running")).count()
}

/// The attribute makes the test `deletes::simulation`.
#[kubewright::simulation::scenario(operator = podset_operator::register, omit(quiet = "the attribute is tested"))]
async fn deletes(sim: &Sim) {
    sim.apply("{apiVersion: k8stest.justin0u0.com/v1alpha1, kind: PodSet, metadata: {name: web}, spec: {replicas: 1}}")
        .await;
    sim.until("a pod runs", |world| running(&world.list()) == 1).await;
    sim.delete::<PodSet>("web").await;
    sim.finally("no pod is left", |world| world.list::<Pod>().is_empty());
}

#[test]
fn podset_withstands_each_fault_at_each_write() {
    // `cargo xtask test --all` sets the variable.
    let is_exhaustive = std::env::var_os("KUBEWRIGHT_EXHAUSTIVE").is_some_and(|value| !value.is_empty());
    let budget = if is_exhaustive { Budget::default() } else { Budget::default().runs(40) };
    let Some(search) = search(&scenario(), &budget) else { return };
    assert!(search.is_complete == is_exhaustive && search.writes >= 6, "{} writes", search.writes);
}

/// Two replicas elect a leader.
#[test]
fn podset_withstands_faults_with_an_election() {
    search(&scenario().replicas(2), &Budget::default().runs(8));
}

/// Two members of a group share the keys.
#[test]
fn podset_withstands_faults_with_shards() {
    search(&scenario().shards(2), &Budget::default().runs(8));
}

pub(crate) fn scenario() -> Scenario {
    Scenario::new("scales", podset_operator::register, scales)
}
