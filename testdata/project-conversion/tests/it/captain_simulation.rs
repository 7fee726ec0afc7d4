//! A scenario for `Captain`: what a user does. `cargo test` repeats it on virtual time, with a fault at each write,
//! event and request of the operator; `kubewright simulate captain` goes on with several faults at once.

use kubewright::{
    condition,
    simulation::{Sim, World, scenario},
};
use serde_json::json;

use ::project_conversion::api::v1beta1::Captain;

const SAMPLE: &str = include_str!("../../config/samples/crew_v1beta1_captain.yaml");
const NAME: &str = "captain-sample";

#[scenario(operator = ::project_conversion::register)]
async fn captain(sim: &Sim) {
    // State with `sim.always` what must hold after each change, such as a maximum number of children.
    sim.apply(SAMPLE).await;
    sim.until("the sample is reconciled", are_reconciled).await;
    let change = json!({"spec": {"foo": "baz"}});
    sim.edit::<Captain>(NAME, change).await;
    sim.until("the change is reconciled", are_reconciled).await;
    sim.delete::<Captain>(NAME).await;
    sim.finally("nothing is left", are_gone);
}

/// Returns whether there is an object, and the condition `Ready` of each is for its current generation.
fn are_reconciled(world: &World) -> bool {
    let is_reconciled = |object: &Captain| {
        let ready = object
            .status
            .as_ref()
            .and_then(|status| condition::get(&status.conditions, "Ready"));
        ready.is_some_and(|ready| ready.observed_generation == object.metadata.generation)
    };
    let objects = world.list::<Captain>();
    !objects.is_empty() && objects.iter().all(is_reconciled)
}

fn are_gone(world: &World) -> bool {
    world.list::<Captain>().is_empty()
}
