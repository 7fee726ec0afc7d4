//! Rows 1, 7, 12, 13: any write goes wrong, with the operator's death or without, statuses are wiped, leaders overlap.

use std::time::Duration;

use cronjob_operator::api::v1::{ConcurrencyPolicy, CronJob};
use kube::ResourceExt;
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    kit::{World, assert_quiet, eventually, go_wrong_everywhere, minutes},
    scene::{
        DAILY, FIRST, JobHistory, cronjob, delete_job, end_job, job, job_at, jobs, reaches, status, with_policy, world,
    },
};

async fn wipe_status(world: &World) {
    world.edit_status::<CronJob>("lunch", Value::Null).await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_runs_it_once() {
    let mishaps = go_wrong_everywhere(world, async |world| {
        let mut history = JobHistory::of(world);
        world.create(cronjob(DAILY)).await;
        job(world, FIRST).await;
        end_job(world, FIRST, true).await;
        eventually("its end is told", async || status(world).await.last_successful_time.is_some()).await;
        let told = reaches(world, "Missed", "Started").await;
        assert_eq!(told.last_schedule_time.unwrap().0.to_string(), "2020-01-30T10:01:00Z");
        assert_eq!(history.created(), [FIRST]);
        let mut events = world.events("lunch").await;
        events.sort();
        assert!(events.windows(2).all(|two| two[0] != two[1]), "{events:?}");
    })
    .await;
    // Ready, Job, record, finalizer, started, ended; four mishaps each.
    assert!(mishaps >= 24, "{mishaps}");
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_while_the_job_is_deleted_runs_it_once() {
    go_wrong_everywhere(world, async |world| {
        let mut history = JobHistory::of(world);
        world.create(cronjob(DAILY)).await;
        // As soon as there is a Job, recorded or not, someone deletes it.
        eventually("there is a job", async || !jobs(world).await.is_empty()).await;
        delete_job(world, FIRST).await;
        eventually("it is gone", async || jobs(world).await.is_empty()).await;
        let told = reaches(world, "Missed", "Started").await;
        assert!(told.last_schedule_time.is_some());
        assert_eq!(history.created(), [FIRST]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_with_a_history_of_0_runs_it_once() {
    go_wrong_everywhere(world, async |world| {
        let mut history = JobHistory::of(world);
        let mut brief = cronjob(DAILY);
        brief.spec.successful_jobs_history_limit = Some(0);
        world.create(brief).await;
        job(world, FIRST).await;
        end_job(world, FIRST, true).await;
        eventually("it is trimmed", async || jobs(world).await.is_empty()).await;
        eventually("its end is told", async || status(world).await.last_successful_time.is_some()).await;
        assert_eq!(history.created(), [FIRST]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_while_it_is_deleted_leaves_nothing() {
    go_wrong_everywhere(world, async |world| {
        world.create(cronjob(DAILY)).await;
        eventually("there is a job", async || !jobs(world).await.is_empty()).await;
        world.delete::<CronJob>("lunch").await;
        eventually("the job is gone", async || jobs(world).await.is_empty()).await;
        assert!(world.list::<CronJob>().await.is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_while_jobs_are_replaced_runs_each_once() {
    go_wrong_everywhere(world, async |world| {
        let mut history = JobHistory::of(world);
        world.create(with_policy("1,2 10 * * *", ConcurrencyPolicy::Replace)).await;
        job(world, FIRST).await;
        let second = job_at(world, "2020-01-30T10:02:00Z").await;
        reaches(world, "Missed", "Started").await;
        assert_eq!(jobs(world).await, [second.as_str()]);
        assert_eq!(history.created(), [FIRST, &second]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn row_12_a_wiped_status_is_rebuilt_and_nothing_runs_again() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = JobHistory::of(&world);
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
    assert_eq!(history.created(), [FIRST]);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_12_a_status_written_by_hand_is_corrected() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(cronjob(DAILY)).await;
    job(&world, FIRST).await;
    let told = reaches(&world, "Missed", "Started").await;
    world.edit_status::<CronJob>("lunch", json!({"lastScheduleTime": "2040-01-01T00:00:00Z"})).await;
    eventually("it is corrected", async || status(&world).await == told).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_12_the_annotation_may_be_lost_as_well() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = JobHistory::of(&world);
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
    assert_eq!(history.created(), [FIRST]);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_13_two_leaders_run_it_once() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = JobHistory::of(&world);
    let (one, two) = (world.start(&faults), world.start(&faults));
    for number in 0..10 {
        let mut cronjob = cronjob(DAILY);
        cronjob.metadata.name = Some(format!("lunch-{number}"));
        world.create(cronjob).await;
    }
    sleep(minutes(2)).await;
    assert_eq!(history.created().len(), 10);
    for name in jobs(&world).await {
        end_job(&world, &name, true).await;
    }
    assert_quiet(&faults).await;
    assert_eq!(history.created().len(), 10);
    one.stop().await;
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_07_and_13_a_leader_with_a_stale_cache_does_not_run_it_again() {
    let world = world().await;
    let mut history = JobHistory::of(&world);
    let (stale, faults) = (Faults::new(), Faults::new());
    world.create(cronjob(DAILY)).await;
    let first = world.start(&faults);
    reaches(&world, "Ready", "Scheduled").await;
    first.stop().await;
    // The old leader lists what there is now, and then sees nothing more; what it asks is answered late.
    let gate = stale.on(&[Verb::Watch], "*").always().hold();
    let slow = stale.on(&[Verb::Get], "*").always().hold();
    let old = world.start(&stale);
    sleep(Duration::from_secs(5)).await;

    let new = world.start(&faults);
    job(&world, FIRST).await;
    delete_job(&world, FIRST).await;
    eventually("its end is told", async || status(&world).await.active.is_empty()).await;
    // It still believes that the time has just come, and now its question arrives.
    slow.open();
    sleep(minutes(10)).await;
    assert_eq!(history.created(), [FIRST]);
    gate.open();
    sleep(minutes(10)).await;
    assert_eq!(history.created(), [FIRST]);
    old.stop().await;
    new.stop().await;
}
