//! A scenario for `Migration`: what a user does. `cargo test` repeats it on virtual time, with a fault at each write,
//! event and request of the operator; `kubewright simulate migration` goes on with several faults at once.

use std::collections::BTreeSet;

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::ResourceExt;
use kubewright::{
    condition,
    simulation::{Sim, World, scenario},
};
use serde_json::json;

use migrations::api::v1::Migration;

// ANCHOR: scenario
const SAMPLE: &str = include_str!("../../config/samples/data_v1_migration.yaml");
const NAME: &str = "orders";

#[scenario(operator = migrations::register)]
pub(crate) async fn migration(sim: &Sim) {
    sim.always("each version is migrated to once", |world| {
        let jobs = world.list::<Job>();
        let versions: BTreeSet<_> = jobs.iter().map(version).collect();
        versions.len() == jobs.len()
    });
    sim.apply(SAMPLE).await;
    finish_job(sim).await;
    sim.until("version 7 is ready", is_ready).await;
    sim.edit::<Migration>(NAME, json!({"spec": {"version": 8}})).await;
    finish_job(sim).await;
    sim.until("version 8 is ready", is_ready).await;
    sim.delete::<Migration>(NAME).await;
    sim.finally("nothing is left", |world| world.list::<Migration>().is_empty());
}

/// Lets the pod of the running Job end, as the program in it does when it is done.
async fn finish_job(sim: &Sim) {
    sim.until("a Job runs", |world| running(world).is_some()).await;
    if let Some(pod) = sim.read(running) {
        sim.finish_pod(&pod).await;
    }
}

fn version(job: &Job) -> Option<&String> {
    job.labels().get("data.example.com/version")
}

/// Returns the name of a pod that runs.
fn running(world: &World) -> Option<String> {
    let is_running = |pod: &Pod| {
        pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
    };
    world.list::<Pod>().into_iter().find(is_running).map(|pod| pod.name_any())
}
// ANCHOR_END: scenario

/// Returns whether the object is ready, and says so of its current generation.
fn is_ready(world: &World) -> bool {
    let is_ready = |object: &Migration| {
        let conditions = object.status.as_ref().map(|status| &status.conditions);
        let ready = conditions.and_then(|conditions| condition::get(conditions, "Ready"));
        ready.is_some_and(|ready| {
            ready.status == "True" && ready.observed_generation == object.metadata.generation
        })
    };
    world.get::<Migration>(NAME).is_some_and(|object| is_ready(&object))
}
