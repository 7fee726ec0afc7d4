//! The world of these tests: a CronJob called `lunch`, and its Jobs.

use cronjob_operator::api::v1::{ConcurrencyPolicy, CronJob, CronJobSpec, CronJobStatus, JobTemplate};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::{ResourceExt, api::DeleteParams};
use kubewright::condition;
use operator_kit::{World, eventually};
use serde_json::{Value, json};

/// Once a day, first one minute after the beginning of every test.
pub(crate) const DAILY: &str = "1 10 * * *";
/// The Job of that.
pub(crate) const FIRST: &str = "lunch-1580378460";
/// Each minute.
pub(crate) const MINUTELY: &str = "*/1 * * * *";

pub(crate) async fn world() -> World {
    World::new(cronjob_operator::register, cronjob_operator::crds()).await
}

/// A CronJob called `lunch`.
pub(crate) fn cronjob(schedule: &str) -> CronJob {
    let containers = json!([{"name": "hello", "image": "busybox", "args": ["true"]}]);
    let pod = json!({"spec": {"containers": containers, "restartPolicy": "OnFailure"}});
    let template = json!({"metadata": {"labels": {"app": "lunch"}}, "spec": {"template": pod}});
    CronJob::new(
        "lunch",
        CronJobSpec {
            schedule: schedule.into(),
            job_template: serde_json::from_value::<JobTemplate>(template).unwrap(),
            ..CronJobSpec::default()
        },
    )
}

pub(crate) fn with_policy(schedule: &str, policy: ConcurrencyPolicy) -> CronJob {
    let mut cronjob = cronjob(schedule);
    cronjob.spec.concurrency_policy = Some(policy);
    cronjob
}

pub(crate) async fn status(world: &World) -> CronJobStatus {
    world.get::<CronJob>("lunch").await.status.unwrap_or_default()
}

/// The reason of a condition.
pub(crate) fn reason(status: &CronJobStatus, type_: &str) -> String {
    condition::get(&status.conditions, type_).map(|it| it.reason.clone()).unwrap_or_default()
}

/// Waits until a condition of `lunch` has this reason, and gives the status.
pub(crate) async fn reaches(world: &World, type_: &str, expect: &str) -> CronJobStatus {
    let mut last = CronJobStatus::default();
    eventually(&format!("{type_} is {expect}"), async || {
        last = status(world).await;
        reason(&last, type_) == expect
    })
    .await;
    last
}

/// The names of the Jobs there are.
pub(crate) async fn jobs(world: &World) -> Vec<String> {
    world.list::<Job>().await.iter().map(ResourceExt::name_any).collect()
}

/// Waits for a Job of this name that was recorded.
pub(crate) async fn job(world: &World, name: &str) -> Job {
    let mut found = None;
    eventually(&format!("job {name} exists"), async || {
        found = world.api::<Job>().get_opt(name).await.unwrap();
        found.as_ref().is_some_and(|job| job.finalizers().is_empty())
    })
    .await;
    found.unwrap()
}

/// Waits for the Job of this time, and gives its name.
pub(crate) async fn job_at(world: &World, time: &str) -> String {
    let name = format!("lunch-{}", time.parse::<Timestamp>().unwrap().as_second());
    job(world, &name).await.name_any()
}

/// As the Job controller: the Job has ended.
pub(crate) async fn end_job(world: &World, name: &str, succeeds: bool) {
    let now = world.now().strftime("%FT%TZ").to_string();
    let condition = |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": now});
    let conditions = if succeeds {
        json!([condition("SuccessCriteriaMet"), condition("Complete")])
    } else {
        json!([condition("FailureTarget"), condition("Failed")])
    };
    let completion = if succeeds { json!(now) } else { Value::Null };
    let status = json!({"startTime": now, "completionTime": completion, "conditions": conditions});
    world.edit_status::<Job>(name, status).await;
}

/// Deletes a Job with its pods, as its time to live does.
pub(crate) async fn delete_job(world: &World, name: &str) {
    world.api::<Job>().delete(name, &DeleteParams::background()).await.unwrap();
}

pub(crate) async fn suspend(world: &World, suspend: bool) {
    world.edit::<CronJob>("lunch", json!({"spec": {"suspend": suspend}})).await;
}
