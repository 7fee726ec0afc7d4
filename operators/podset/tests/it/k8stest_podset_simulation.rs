//! A scenario for `PodSet`, version `k8stest.justin0u0.com/v1alpha1`: it is scaled down and deleted.

use k8s_openapi::api::core::v1::Pod;
use kubewright::{
    condition,
    simulation::{Sim, World, scenario},
};

use podset_operator::api::k8stest::v1alpha1::PodSet;
use serde_json::json;

use crate::app_podset_simulation::running;

const SAMPLE: &str = include_str!("../../config/samples/k8stest_v1alpha1_podset.yaml");
const NAME: &str = "podset-sample";

#[scenario(operator = podset_operator::register)]
async fn k8stest_podset(sim: &Sim) {
    sim.always("never more than two pods", |world| world.list::<Pod>().len() <= 2);
    sim.apply(SAMPLE).await;
    sim.until("two pods run", |world| running(world) == 2).await;
    sim.until("it is ready", is_ready).await;
    sim.spoil_status::<PodSet>(NAME, json!({"replicas": 1, "pod_names": ["web-none"]})).await;
    sim.edit::<PodSet>(NAME, json!({"spec": {"replicas": 1}})).await;
    sim.until("one pod runs", |world| running(world) == 1).await;
    sim.delete::<PodSet>(NAME).await;
    sim.finally("no pod is left", |world| world.list::<Pod>().is_empty());
}

/// Returns whether two pods are reported to be ready.
fn is_ready(world: &World) -> bool {
    let status = world.get::<PodSet>(NAME).and_then(|set| set.status).unwrap_or_default();
    status.pod_names.len() == 2 && condition::get(&status.conditions, "Ready").is_some_and(|it| it.status == "True")
}
