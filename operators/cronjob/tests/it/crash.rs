//! Faults and crashes at any write, and wiped statuses.

use cronjob_operator::api::v1::{ConcurrencyPolicy, CronJob};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kubewright::simulation::env::{History, TestEnv, assert_quiet, eventually, with_a_fault_at_each_write};
use kubewright_cluster::faults::Faults;
use serde_json::{Value, json};

use crate::fixtures::{
    DAILY, FIRST, cronjob, delete_job, end_job, env, job, job_at, jobs, reaches, status, with_policy,
};

async fn wipe_status(env: &TestEnv) {
    env.edit_status::<CronJob>("lunch", Value::Null).await;
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_any_write_while_the_job_is_deleted_runs_it_once() {
    with_a_fault_at_each_write(env, async |env| {
        let mut history = History::of::<Job>(env);
        env.create(cronjob(DAILY)).await;
        // As soon as there is a Job, recorded or not, a user deletes it.
        eventually("there is a job", async || !jobs(env).await.is_empty()).await;
        delete_job(env, FIRST).await;
        eventually("it is gone", async || jobs(env).await.is_empty()).await;
        let reported = reaches(env, "Missed", "Started").await;
        assert!(reported.last_schedule_time.is_some());
        assert_eq!(history.names(), [FIRST]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_any_write_with_a_history_limit_of_0_runs_it_once() {
    with_a_fault_at_each_write(env, async |env| {
        let mut history = History::of::<Job>(env);
        let mut brief = cronjob(DAILY);
        brief.spec.successful_jobs_history_limit = Some(0);
        env.create(brief).await;
        job(env, FIRST).await;
        end_job(env, FIRST, true).await;
        eventually("it is trimmed", async || jobs(env).await.is_empty()).await;
        eventually("its end is reported", async || status(env).await.last_successful_time.is_some()).await;
        assert_eq!(history.names(), [FIRST]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_any_write_while_jobs_are_replaced_runs_each_once() {
    with_a_fault_at_each_write(env, async |env| {
        let mut history = History::of::<Job>(env);
        env.create(with_policy("1,2 10 * * *", ConcurrencyPolicy::Replace)).await;
        job(env, FIRST).await;
        let second = job_at(env, "2020-01-30T10:02:00Z").await;
        reaches(env, "Missed", "Started").await;
        assert_eq!(jobs(env).await, [second.as_str()]);
        assert_eq!(history.names(), [FIRST, &second]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_wiped_status_is_rebuilt_and_nothing_runs_again() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Job>(&env);
    let operator = env.start(&faults);
    env.create(cronjob(DAILY)).await;
    job(&env, FIRST).await;
    let reported = reaches(&env, "Missed", "Started").await;
    wipe_status(&env).await;
    let rebuilt = reaches(&env, "Missed", "Started").await;
    assert_eq!((rebuilt.active, rebuilt.last_schedule_time.clone()), (reported.active, reported.last_schedule_time));

    delete_job(&env, FIRST).await;
    wipe_status(&env).await;
    operator.stop().await;
    wipe_status(&env).await;
    let operator = env.start(&faults);
    let again = reaches(&env, "Missed", "Started").await;
    assert_eq!(again.last_schedule_time, rebuilt.last_schedule_time);
    assert_quiet(&faults).await;
    assert_eq!(history.names(), [FIRST]);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_annotation_is_restored_from_jobs_or_status() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Job>(&env);
    let operator = env.start(&faults);
    env.create(cronjob(DAILY)).await;
    job(&env, FIRST).await;
    reaches(&env, "Missed", "Started").await;
    // Both the Job and the status show the time, so the annotation that `kubectl replace` removes is written again.
    for delete in [false, true] {
        if delete {
            delete_job(&env, FIRST).await;
        }
        env.edit::<CronJob>("lunch", json!({"metadata": {"annotations": null}})).await;
        eventually("it is recorded again", async || {
            let cronjob = env.get::<CronJob>("lunch").await;
            cronjob.annotations().contains_key("batch.tutorial.kubebuilder.io/last-schedule")
        })
        .await;
    }
    assert_quiet(&faults).await;
    assert_eq!(history.names(), [FIRST]);
    operator.stop().await;
}
