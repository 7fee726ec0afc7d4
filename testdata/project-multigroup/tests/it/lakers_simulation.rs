//! A scenario for `Lakers`: what a user does. `cargo test` repeats it on virtual time, with a fault at each write,
//! event and request of the operator; `kubewright simulate lakers` goes on with several faults at once.

use kubewright::{
    condition,
    simulation::{Sim, World, scenario},
};
use serde_json::json;

use ::project_multigroup::api::v1::Lakers;

const SAMPLE: &str = include_str!("../../config/samples/v1_lakers.yaml");
const NAME: &str = "lakers-sample";

#[scenario(operator = ::project_multigroup::register)]
async fn lakers(sim: &Sim) {
    // State with `sim.always` what must hold after each change, such as a maximum number of children.
    sim.apply(SAMPLE).await;
    sim.until("the sample is reconciled", are_reconciled).await;
    let change = json!({"spec": {"foo": "baz"}});
    sim.edit::<Lakers>(NAME, change).await;
    sim.until("the change is reconciled", are_reconciled).await;
    sim.delete::<Lakers>(NAME).await;
    sim.finally("nothing is left", are_gone);
}

/// Returns whether there is an object, and the condition `Ready` of each is for its current generation.
fn are_reconciled(world: &World) -> bool {
    let is_reconciled = |object: &Lakers| {
        let ready = object
            .status
            .as_ref()
            .and_then(|status| condition::get(&status.conditions, "Ready"));
        ready.is_some_and(|ready| ready.observed_generation == object.metadata.generation)
    };
    let objects = world.list::<Lakers>();
    !objects.is_empty() && objects.iter().all(is_reconciled)
}

fn are_gone(world: &World) -> bool {
    world.list::<Lakers>().is_empty()
}
