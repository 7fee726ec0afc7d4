//! A scenario for `Lolcow`: the greeting changes.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kubewright::{
    condition,
    simulation::{Sim, World, scenario},
};
use lolcow_operator::api::v1alpha1::Lolcow;

use serde_json::json;

const SAMPLE: &str = include_str!("../../config/samples/v1alpha1_lolcow.yaml");
const NAME: &str = "lolcow-pod";

#[scenario(operator = lolcow_operator::register)]
async fn lolcow(sim: &Sim) {
    sim.apply(SAMPLE).await;
    sim.until("the page is ready", |world| is_ready(world, NAME)).await;
    sim.spoil_status::<Lolcow>(NAME, json!({"url": "http://nowhere", "readyReplicas": 7})).await;
    sim.edit::<Lolcow>(NAME, json!({"spec": {"greeting": "Moo"}})).await;
    sim.until("the page has the new greeting", |world| is_ready(world, NAME)).await;
    sim.delete::<Lolcow>(NAME).await;
    sim.finally("nothing is left", |world| world.list::<Deployment>().is_empty() && world.list::<Pod>().is_empty());
}

/// Returns whether the page shows the greeting of the current generation.
pub(crate) fn is_ready(world: &World, name: &str) -> bool {
    world.get::<Lolcow>(name).is_some_and(|cow| {
        let status = cow.status.unwrap_or_default();
        let ready = condition::get(&status.conditions, "Ready");
        ready.is_some_and(|ready| ready.status == "True" && ready.observed_generation == cow.metadata.generation)
    })
}
