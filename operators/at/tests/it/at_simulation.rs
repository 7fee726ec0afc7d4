//! A scenario for `At`: the command runs once, at its time.

use at_operator::api::v1alpha1::{At, Phase};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kubewright::simulation::{Sim, World, scenario};

use serde_json::json;

const SAMPLE: &str = include_str!("../../config/samples/cnat_v1alpha1_at.yaml");
const NAME: &str = "at-sample";

#[scenario(
    operator = at_operator::register,
    omit(doubled_events = "the phase is reported again when the status was wrong or wiped")
)]
async fn at(sim: &Sim) {
    sim.always("the command runs at most once", |world| world.list::<Pod>().len() <= 1);
    sim.apply(SAMPLE).await;
    sim.until("the command runs", |world| running(world).is_some()).await;
    sim.until("it is reported", |world| phase(world) == Some(Phase::Running)).await;
    sim.spoil_status::<At>(NAME, json!({"phase": "DONE"})).await;
    let pod = sim.read(running);
    sim.finish_pod(&pod.unwrap_or_default()).await;
    sim.until("it is done", |world| phase(world) == Some(Phase::Done)).await;
    sim.spoil_status::<At>(NAME, json!({"phase": "PENDING"})).await;
    sim.delete::<At>(NAME).await;
    sim.finally("nothing is left", |world| world.list::<At>().is_empty() && world.list::<Pod>().is_empty());
}

/// The name of the pod that runs.
fn running(world: &World) -> Option<String> {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    world.list::<Pod>().iter().find(|pod| phase(pod).as_deref() == Some("Running")).map(ResourceExt::name_any)
}

fn phase(world: &World) -> Option<Phase> {
    world.get::<At>(NAME)?.status?.phase
}
