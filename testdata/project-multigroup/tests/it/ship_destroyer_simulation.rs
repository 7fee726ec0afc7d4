//! A scenario for `Destroyer`: what a user does. `cargo test` repeats it on virtual time, with a fault at each write,
//! event and request of the operator; `kubewright simulate ship_destroyer` goes on with several faults at once.

use kubewright::{
    condition,
    simulation::{Sim, World, scenario},
};
use serde_json::json;

use ::project_multigroup::api::ship::v1::Destroyer;

const SAMPLE: &str = include_str!("../../config/samples/ship_v1_destroyer.yaml");
const NAME: &str = "destroyer-sample";

#[scenario(operator = ::project_multigroup::register)]
async fn ship_destroyer(sim: &Sim) {
    // State with `sim.always` what must hold after each change, such as a maximum number of children.
    sim.apply(SAMPLE).await;
    sim.until("the sample is reconciled", are_reconciled).await;
    let change = json!({"spec": {"foo": "baz"}});
    sim.edit::<Destroyer>(NAME, change).await;
    sim.until("the change is reconciled", are_reconciled).await;
    sim.delete::<Destroyer>(NAME).await;
    sim.finally("nothing is left", are_gone);
}

/// Returns whether there is an object, and the condition `Ready` of each is for its current generation.
fn are_reconciled(world: &World) -> bool {
    let is_reconciled = |object: &Destroyer| {
        let ready = object
            .status
            .as_ref()
            .and_then(|status| condition::get(&status.conditions, "Ready"));
        ready.is_some_and(|ready| ready.observed_generation == object.metadata.generation)
    };
    let objects = world.list::<Destroyer>();
    !objects.is_empty() && objects.iter().all(is_reconciled)
}

fn are_gone(world: &World) -> bool {
    world.list::<Destroyer>().is_empty()
}
