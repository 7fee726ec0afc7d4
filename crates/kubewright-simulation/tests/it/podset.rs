//! The PodSet operator.

use k8s_openapi::api::core::v1::Pod;
use kubewright_simulation::{Budget, Scenario, Search, Sim, story};
use podset_operator::api::k8stest::v1alpha1::PodSet;
use serde_json::json;

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
    let search = search(&scenario(), &budget);
    assert!(search.is_complete == is_exhaustive && search.writes >= 6, "{} writes", search.writes);
}

/// Two replicas elect a leader, and two members of a group share the keys. With settings in the environment, as many runs as these say.
#[test]
fn podset_withstands_faults_with_an_election_and_with_shards() {
    for scenario in [scenario().replicas(2), scenario().shards(2)] {
        if std::env::var_os("KUBEWRIGHT_SIMULATION").is_some() {
            scenario.test();
        } else {
            search(&scenario, &Budget::default().runs(8));
        }
    }
}

/// Searches a scenario, which has to find nothing.
fn search(scenario: &Scenario, budget: &Budget) -> Search {
    let search = scenario.search(budget).unwrap();
    let story = search.failures.first().map(|failure| story::text("scales", failure));
    assert!(story.is_none(), "{}", story.unwrap_or_default());
    search
}

pub(crate) fn scenario() -> Scenario {
    Scenario::new("scales", podset_operator::register, scales)
}
