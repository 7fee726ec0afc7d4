//! Rows 1, 7, 12, 13: any write goes wrong, with the operator's death or without, statuses are wiped, leaders overlap.

use cronjob_operator::api::v1::{ConcurrencyPolicy, CronJob};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kubewright_cluster::faults::Faults;
use operator_kit::{History, World, assert_quiet, eventually, go_wrong_everywhere};
use serde_json::{Value, json};

use crate::scene::{
    DAILY, FIRST, cronjob, delete_job, end_job, job, job_at, jobs, reaches, status, with_policy, world,
};

async fn wipe_status(world: &World) {
    world.edit_status::<CronJob>("lunch", Value::Null).await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_while_the_job_is_deleted_runs_it_once() {
    go_wrong_everywhere(world, async |world| {
        let mut history = History::of::<Job>(world);
        world.create(cronjob(DAILY)).await;
        // As soon as there is a Job, recorded or not, someone deletes it.
        eventually("there is a job", async || !jobs(world).await.is_empty()).await;
        delete_job(world, FIRST).await;
        eventually("it is gone", async || jobs(world).await.is_empty()).await;
        let told = reaches(world, "Missed", "Started").await;
        assert!(told.last_schedule_time.is_some());
        assert_eq!(history.names(), [FIRST]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_with_a_history_of_0_runs_it_once() {
    go_wrong_everywhere(world, async |world| {
        let mut history = History::of::<Job>(world);
        let mut brief = cronjob(DAILY);
        brief.spec.successful_jobs_history_limit = Some(0);
        world.create(brief).await;
        job(world, FIRST).await;
        end_job(world, FIRST, true).await;
        eventually("it is trimmed", async || jobs(world).await.is_empty()).await;
        eventually("its end is told", async || status(world).await.last_successful_time.is_some()).await;
        assert_eq!(history.names(), [FIRST]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_while_jobs_are_replaced_runs_each_once() {
    go_wrong_everywhere(world, async |world| {
        let mut history = History::of::<Job>(world);
        world.create(with_policy("1,2 10 * * *", ConcurrencyPolicy::Replace)).await;
        job(world, FIRST).await;
        let second = job_at(world, "2020-01-30T10:02:00Z").await;
        reaches(world, "Missed", "Started").await;
        assert_eq!(jobs(world).await, [second.as_str()]);
        assert_eq!(history.names(), [FIRST, &second]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn row_12_a_wiped_status_is_rebuilt_and_nothing_runs_again() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Job>(&world);
    let operator = world.start(&faults);
    world.create(cronjob(DAILY)).await;
    job(&world, FIRST).await;
    let told = reaches(&world, "Missed", "Started").await;
    wipe_status(&world).await;
    let rebuilt = reaches(&world, "Missed", "Started").await;
    assert_eq!((rebuilt.active, rebuilt.last_schedule_time.clone()), (told.active, told.last_schedule_time));

    delete_job(&world, FIRST).await;
    wipe_status(&world).await;
    operator.stop().await;
    wipe_status(&world).await;
    let operator = world.start(&faults);
    let again = reaches(&world, "Missed", "Started").await;
    assert_eq!(again.last_schedule_time, rebuilt.last_schedule_time);
    assert_quiet(&faults).await;
    assert_eq!(history.names(), [FIRST]);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_12_the_annotation_may_be_lost_as_well() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Job>(&world);
    let operator = world.start(&faults);
    world.create(cronjob(DAILY)).await;
    job(&world, FIRST).await;
    reaches(&world, "Missed", "Started").await;
    // The Job is a witness, and so is the status: what `kubectl replace` takes is written again.
    for delete in [false, true] {
        if delete {
            delete_job(&world, FIRST).await;
        }
        world.edit::<CronJob>("lunch", json!({"metadata": {"annotations": null}})).await;
        eventually("it is recorded again", async || {
            let cronjob = world.get::<CronJob>("lunch").await;
            cronjob.annotations().contains_key("batch.tutorial.kubebuilder.io/last-schedule")
        })
        .await;
    }
    assert_quiet(&faults).await;
    assert_eq!(history.names(), [FIRST]);
    operator.stop().await;
}
