//! A scenario for `CronJob`: it runs, is suspended, and is deleted with its Jobs.

use cronjob_operator::api::v1::CronJob;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::ResourceExt;
use kubewright::simulation::{Sim, Span, World, scenario};

use serde_json::json;

const SAMPLE: &str = include_str!("../../config/samples/batch_v1_cronjob.yaml");
const NAME: &str = "cronjob-sample";

#[scenario(operator = cronjob_operator::register)]
async fn cronjob(sim: &Sim) {
    sim.always("the webhook has set the defaults", |world| {
        world.list::<CronJob>().iter().all(|cronjob| cronjob.spec.failed_jobs_history_limit.is_some())
    });
    sim.apply(SAMPLE).await;
    sim.until("a Job runs", |world| running(world).is_some()).await;
    sim.edit::<CronJob>(NAME, json!({"spec": {"suspend": true}})).await;
    let pod = sim.read(running);
    sim.finish_pod(&pod.unwrap_or_default()).await;
    sim.until("a Job has succeeded", |world| succeeded(world) > 0).await;
    sim.until("it is reported", |world| {
        let status = world.get::<CronJob>(NAME).and_then(|cronjob| cronjob.status).unwrap_or_default();
        status.last_successful_time.is_some() && status.active.len() == world.list::<Job>().len() - succeeded(world)
    })
    .await;
    sim.spoil_status::<CronJob>(NAME, json!({"lastScheduleTime": "2040-01-01T00:00:00Z"})).await;
    sim.advance(10.minutes()).await;
    sim.delete::<CronJob>(NAME).await;
    sim.finally("nothing is left", |world| world.list::<Job>().is_empty() && world.list::<Pod>().is_empty());
}

/// The name of a pod that runs.
fn running(world: &World) -> Option<String> {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    world.list::<Pod>().iter().find(|pod| phase(pod).as_deref() == Some("Running")).map(ResourceExt::name_any)
}

/// The number of Jobs that have succeeded.
fn succeeded(world: &World) -> usize {
    let has_succeeded = |job: &&Job| job.status.as_ref().is_some_and(|status| status.succeeded == Some(1));
    world.list::<Job>().iter().filter(has_succeeded).count()
}
