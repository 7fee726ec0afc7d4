//! A scenario for `PodSet`, version `app.example.com/v1alpha1`: `kubewright simulate` in this directory, or
//! `cargo test simulation`.

use k8s_openapi::api::core::v1::Pod;
use kubewright::{
    condition,
    simulation::{Sim, World, scenario},
};

use podset_operator::api::app::v1alpha1::PodSet;
use serde_json::json;

const SAMPLE: &str = include_str!("../../config/samples/app_v1alpha1_podset.yaml");
const NAME: &str = "podset-sample";

/// The number of pods that run.
pub(crate) fn running(world: &World) -> usize {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    world.list::<Pod>().iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count()
}

#[scenario(operator = podset_operator::register)]
async fn app_podset(sim: &Sim) {
    sim.always("never more than four pods", |world| world.list::<Pod>().len() <= 4);
    sim.apply(SAMPLE).await;
    sim.until("three pods run", |world| running(world) == 3).await;
    sim.edit::<PodSet>(NAME, json!({"spec": {"replicas": 4}})).await;
    sim.until("four pods run", |world| running(world) == 4).await;
    sim.until("it is ready", is_ready).await;
    sim.spoil_status::<PodSet>(NAME, json!({"availableReplicas": 1, "podNames": ["web-none"]})).await;
    sim.edit::<PodSet>(NAME, json!({"spec": {"replicas": 1}})).await;
    sim.until("one pod runs", |world| running(world) == 1).await;
    sim.delete::<PodSet>(NAME).await;
    sim.finally("no pod is left", |world| world.list::<Pod>().is_empty());
}

/// Returns whether four pods are reported to be ready.
fn is_ready(world: &World) -> bool {
    let status = world.get::<PodSet>(NAME).and_then(|set| set.status).unwrap_or_default();
    status.pod_names.len() == 4 && condition::get(&status.conditions, "Ready").is_some_and(|it| it.status == "True")
}
