//! A scenario for `Kraken`: what a user does. `cargo test` repeats it on virtual time, with a fault at each write,
//! event and request of the operator; `kubewright simulate sea_creatures_kraken` goes on with several faults at once.

use kubewright::{
    condition,
    simulation::{Sim, World, scenario},
};
use serde_json::json;

use ::project_multigroup::api::sea_creatures::v1beta1::Kraken;

const SAMPLE: &str = include_str!("../../config/samples/sea-creatures_v1beta1_kraken.yaml");
const NAME: &str = "kraken-sample";

#[scenario(operator = ::project_multigroup::register)]
async fn sea_creatures_kraken(sim: &Sim) {
    // State with `sim.always` what must hold after each change, such as a maximum number of children.
    sim.apply(SAMPLE).await;
    sim.until("the sample is reconciled", are_reconciled).await;
    let change = json!({"spec": {"foo": "baz"}});
    sim.edit::<Kraken>(NAME, change).await;
    sim.until("the change is reconciled", are_reconciled).await;
    sim.delete::<Kraken>(NAME).await;
    sim.finally("nothing is left", are_gone);
}

/// Returns whether there is an object, and the condition `Ready` of each is for its current generation.
fn are_reconciled(world: &World) -> bool {
    let is_reconciled = |object: &Kraken| {
        let ready = object
            .status
            .as_ref()
            .and_then(|status| condition::get(&status.conditions, "Ready"));
        ready.is_some_and(|ready| ready.observed_generation == object.metadata.generation)
    };
    let objects = world.list::<Kraken>();
    !objects.is_empty() && objects.iter().all(is_reconciled)
}

fn are_gone(world: &World) -> bool {
    world.list::<Kraken>().is_empty()
}
