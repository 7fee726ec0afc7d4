//! A scenario for `Busybox`: what a user does. `cargo test` repeats it on virtual time, with a fault at each write,
//! event and request of the operator; `kubewright simulate busybox` goes on with several faults at once.

use kubewright::{
    condition,
    simulation::{Sim, World, scenario},
};
use serde_json::json;

use ::project_with_plugins::api::v1::Busybox;

const SAMPLE: &str = include_str!("../../config/samples/cache_v1_busybox.yaml");
const NAME: &str = "busybox-sample";

#[scenario(operator = ::project_with_plugins::register)]
async fn busybox(sim: &Sim) {
    // State with `sim.always` what must hold after each change, such as a maximum number of children.
    sim.apply(SAMPLE).await;
    sim.until("the sample is reconciled", are_reconciled).await;
    let change = json!({"spec": {"size": 2}});
    sim.edit::<Busybox>(NAME, change).await;
    sim.until("the change is reconciled", are_reconciled).await;
    sim.delete::<Busybox>(NAME).await;
    sim.finally("nothing is left", are_gone);
}

/// Returns whether there is an object, and the condition `Ready` of each is true for its current generation.
fn are_reconciled(world: &World) -> bool {
    let is_reconciled = |object: &Busybox| {
        let ready = object
            .status
            .as_ref()
            .and_then(|status| condition::get(&status.conditions, "Ready"));
        ready.is_some_and(|ready| {
            ready.status == "True" && ready.observed_generation == object.metadata.generation
        })
    };
    let objects = world.list::<Busybox>();
    !objects.is_empty() && objects.iter().all(is_reconciled)
}

fn are_gone(world: &World) -> bool {
    world.list::<Busybox>().is_empty()
}
