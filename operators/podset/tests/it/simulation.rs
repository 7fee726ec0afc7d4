//! Scenarios for the simulator: `kubewright simulate` in this directory, or `cargo test simulation`.

use k8s_openapi::api::core::v1::Pod;
use kubewright::simulation::{Sim, World, scenario};
use podset_operator::api::app::v1alpha1::PodSet;
use serde_json::json;

/// The number of pods that run.
fn running(world: &World) -> usize {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    world.list::<Pod>().iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count()
}

#[scenario(operator = podset_operator::register)]
async fn scales(sim: &Sim) {
    sim.always("never more than four pods", |world| world.list::<Pod>().len() <= 4);
    sim.apply("{apiVersion: app.example.com/v1alpha1, kind: PodSet, metadata: {name: web}, spec: {replicas: 2}}").await;
    sim.until("two pods run", |world| running(world) == 2).await;
    sim.edit::<PodSet>("web", json!({"spec": {"replicas": 4}})).await;
    sim.until("four pods run", |world| running(world) == 4).await;
    sim.edit::<PodSet>("web", json!({"spec": {"replicas": 1}})).await;
    sim.until("one pod runs", |world| running(world) == 1).await;
    sim.delete::<PodSet>("web").await;
    sim.finally("no pod is left", |world| world.list::<Pod>().is_empty());
}
