//! A CronJob called `lunch`, and its Jobs.

use std::time::Duration;

use cronjob_operator::api::v1::{ConcurrencyPolicy, CronJob, CronJobSpec, CronJobStatus, JobTemplate};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::{ResourceExt, api::DeleteParams};
use kubewright::condition;
use kubewright::simulation::env::{TestEnv, eventually};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Once a day, first one minute after the start of every test.
pub(crate) const DAILY: &str = "1 10 * * *";
/// The first Job of that schedule.
pub(crate) const FIRST: &str = "lunch-1580378460";
/// Once a minute.
pub(crate) const MINUTELY: &str = "*/1 * * * *";

pub(crate) async fn env() -> TestEnv {
    TestEnv::new(cronjob_operator::register, cronjob_operator::crds()).await
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

pub(crate) async fn status(env: &TestEnv) -> CronJobStatus {
    env.get::<CronJob>("lunch").await.status.unwrap_or_default()
}

/// Returns the reason of a condition.
pub(crate) fn reason(status: &CronJobStatus, type_: &str) -> String {
    condition::get(&status.conditions, type_).map(|it| it.reason.clone()).unwrap_or_default()
}

/// Waits until a condition of `lunch` has a reason, and returns the status.
pub(crate) async fn reaches(env: &TestEnv, type_: &str, expect: &str) -> CronJobStatus {
    let mut last = CronJobStatus::default();
    eventually(&format!("{type_} is {expect}"), async || {
        last = status(env).await;
        reason(&last, type_) == expect
    })
    .await;
    last
}

/// Returns the names of all Jobs.
pub(crate) async fn jobs(env: &TestEnv) -> Vec<String> {
    env.list::<Job>().await.iter().map(ResourceExt::name_any).collect()
}

/// Waits for a recorded Job.
pub(crate) async fn job(env: &TestEnv, name: &str) -> Job {
    let mut found = None;
    eventually(&format!("job {name} exists"), async || {
        found = env.api::<Job>().get_opt(name).await.unwrap();
        found.as_ref().is_some_and(|job| job.finalizers().is_empty())
    })
    .await;
    found.unwrap()
}

/// Waits for the Job of a time, and returns its name.
pub(crate) async fn job_at(env: &TestEnv, time: &str) -> String {
    let name = format!("lunch-{}", time.parse::<Timestamp>().unwrap().as_second());
    job(env, &name).await.name_any()
}

/// Waits until the Job controller has started a Job.
async fn started(env: &TestEnv, name: &str) {
    // A spawned task can't use `eventually`, whose future isn't `Send`.
    for _ in 0..600 {
        if env.get::<Job>(name).await.status.is_some_and(|status| status.start_time.is_some()) {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("timed out after a minute waiting until job {name} starts");
}

/// Ends a Job that has started, as the Job controller would.
pub(crate) async fn end_job(env: &TestEnv, name: &str, succeeds: bool) {
    started(env, name).await;
    let now = env.now().strftime("%FT%TZ").to_string();
    let condition = |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": now});
    let conditions = if succeeds {
        json!([condition("SuccessCriteriaMet"), condition("Complete")])
    } else {
        json!([condition("FailureTarget"), condition("Failed")])
    };
    let completion = if succeeds { json!(now) } else { Value::Null };
    // A finished job has no running pods.
    let status = json!({
        "active": null, "ready": null, "terminating": null, "completionTime": completion, "conditions": conditions,
    });
    env.edit_status::<Job>(name, status).await;
}

/// Deletes a Job with its pods, as its TTL would.
pub(crate) async fn delete_job(env: &TestEnv, name: &str) {
    env.api::<Job>().delete(name, &DeleteParams::background()).await.unwrap();
}

pub(crate) async fn suspend(env: &TestEnv, suspend: bool) {
    env.edit::<CronJob>("lunch", json!({"spec": {"suspend": suspend}})).await;
}
