//! Rows 2 to 16, which hold for every operator.

use cronjob_operator::api::v1::CronJob;
use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use kube::{ResourceExt, api::DeleteParams};
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    kit::{assert_quiet, eventually, minutes},
    scene::{DAILY, FIRST, JobHistory, cronjob, delete_job, end_job, job, jobs, reaches, status, world},
};

#[tokio::test(start_paused = true)]
async fn row_03_conflicts_are_retried() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = JobHistory::of(&world);
    let told = faults.on(&[Verb::Patch], "cronjobs/status").times(4).refuse(409, "Conflict");
    let recorded = faults.on(&[Verb::Patch], "cronjobs").times(4).refuse(409, "Conflict");
    let operator = world.start(&faults);
    world.create(cronjob(DAILY)).await;
    job(&world, FIRST).await;
    reaches(&world, "Missed", "Started").await;
    assert_eq!((told.hits(), recorded.hits()), (4, 4));
    assert_quiet(&faults).await;
    assert_eq!(history.created(), [FIRST]);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_04_a_server_in_trouble_is_waited_for() {
    for code in [429, 500, 503, 504] {
        let (world, faults) = (world().await, Faults::new());
        let mut history = JobHistory::of(&world);
        world.create(cronjob(DAILY)).await;
        sleep(minutes(2)).await;
        faults.on(Verb::WRITES, "*").times(10).retry_after(7).refuse(code, "Trouble");
        let operator = world.start(&faults);
        let begun = world.now();
        job(&world, FIRST).await;
        assert!(world.now().duration_since(begun) >= SignedDuration::from_secs(7), "{code}: Retry-After is honoured");
        assert_quiet(&faults).await;
        assert_eq!(history.created(), [FIRST]);
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn row_05_deletions_during_a_dropped_watch_are_noticed() {
    let (world, faults) = (world().await, Faults::new());
    // The watch breaks, doesn't begin again for a while, and is then told to list anew.
    let cut = faults.on(&[Verb::Watch], "jobs").cut_after(2);
    let refused = faults.on(&[Verb::Watch], "jobs").times(5).refuse(500, "InternalError");
    let expired = faults.on(&[Verb::Watch], "jobs").expire();
    let operator = world.start(&faults);
    world.create(cronjob(DAILY)).await;
    job(&world, FIRST).await;
    eventually("it is told", async || status(&world).await.active.len() == 1).await;
    delete_job(&world, FIRST).await;
    // It may be told before the watch is back, since what the operator wrote itself is read past the cache until then.
    eventually("its end is told", async || status(&world).await.active.is_empty()).await;
    sleep(minutes(5)).await;
    assert_eq!((cut.hits(), refused.hits(), expired.hits()), (1, 5, 1));
    assert!(status(&world).await.active.is_empty());
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_06_doubled_and_delayed_events_lead_to_the_same() {
    let faulty: [fn(&Faults); 2] = [
        |faults| drop(faults.on(&[Verb::Watch], "*").always().double()),
        |faults| drop(faults.on(&[Verb::Watch], "*").always().delay(minutes(1))),
    ];
    for fault in faulty {
        let (world, faults) = (world().await, Faults::new());
        let mut history = JobHistory::of(&world);
        fault(&faults);
        let operator = world.start(&faults);
        world.create(cronjob(DAILY)).await;
        job(&world, FIRST).await;
        end_job(&world, FIRST, true).await;
        eventually("its end is told", async || status(&world).await.last_successful_time.is_some()).await;
        sleep(minutes(5)).await;
        assert_quiet(&faults).await;
        assert_eq!(history.created(), [FIRST]);
        let events = world.events("lunch").await;
        assert_eq!(events.len(), 1, "{events:?}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn row_08_the_jobs_of_an_earlier_one_are_neither_counted_nor_deleted() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let mut brief = cronjob("* * * * *");
    brief.spec.successful_jobs_history_limit = Some(0);
    world.create(brief.clone()).await;
    job(&world, FIRST).await;
    // Something holds the old Job.
    world.edit::<Job>(FIRST, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    world.delete::<CronJob>("lunch").await;
    world.create(brief).await;
    end_job(&world, FIRST, true).await;
    let told = reaches(&world, "Missed", "Started").await;
    assert!(told.active.iter().all(|job| job.name.as_deref() != Some(FIRST)), "{told:?}");
    assert_eq!(told.last_successful_time, None);
    assert!(jobs(&world).await.contains(&FIRST.to_owned()));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_09_one_that_is_being_deleted_starts_nothing() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = JobHistory::of(&world);
    let mut held = cronjob(DAILY);
    held.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    world.create(held).await;
    let operator = world.start(&faults);
    reaches(&world, "Ready", "Scheduled").await;
    world.delete::<CronJob>("lunch").await;
    assert_quiet(&faults).await;
    assert!(history.created().is_empty());
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_09_foreground_deletion_takes_the_jobs_along() {
    let (world, faults) = (world().await, Faults::new());
    // The record is never written, so the Job keeps its finalizer.
    faults.on(&[Verb::Patch], "cronjobs").always().refuse(500, "InternalError");
    let operator = world.start(&faults);
    world.create(cronjob(DAILY)).await;
    eventually("there is a job", async || !jobs(&world).await.is_empty()).await;
    assert!(!world.get::<Job>(FIRST).await.finalizers().is_empty());
    world.api::<CronJob>().delete("lunch", &DeleteParams::foreground()).await.unwrap();
    eventually("all is gone", async || jobs(&world).await.is_empty() && world.list::<CronJob>().await.is_empty()).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_10_a_steady_state_writes_nothing() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(cronjob(DAILY)).await;
    job(&world, FIRST).await;
    reaches(&world, "Missed", "Started").await;
    assert_quiet(&faults).await;
    operator.stop().await;
    let operator = world.start(&faults);
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_11_an_invalid_template_is_not_retried() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let mut wrong = cronjob(DAILY);
    wrong.spec.job_template = serde_json::from_value(json!({"spec": 5})).unwrap();
    world.create(wrong).await;
    let told = reaches(&world, "Ready", "InvalidTemplate").await;
    assert_eq!(told.conditions[0].observed_generation, Some(1));
    assert_quiet(&faults).await;
    assert!(faults.seen().iter().all(|seen| seen.request.verb == Verb::Watch));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_14_a_refused_job_is_told_in_the_servers_words_and_tried_again_slowly() {
    for (code, reason) in [(403, "Forbidden"), (422, "Invalid")] {
        let (world, faults) = (world().await, Faults::new());
        let message = "jobs is forbidden: exceeded quota: small";
        let refused = faults.on(&[Verb::Create], "jobs").always().refuse_with(code, reason, message);
        let operator = world.start(&faults);
        world.create(cronjob(DAILY)).await;
        let told = reaches(&world, "Ready", "JobRefused").await;
        assert_eq!(told.conditions[0].message, message);
        sleep(minutes(60)).await;
        assert!((10..=200).contains(&refused.hits()), "{}", refused.hits());
        faults.clear();
        job(&world, FIRST).await;
        reaches(&world, "Ready", "Scheduled").await;
        let events = world.events("lunch").await;
        assert_eq!(events.iter().filter(|event| event.starts_with("Warning JobRefused")).count(), 1, "{events:?}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn row_16_when_faults_stop_it_converges_soon_and_for_good() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = JobHistory::of(&world);
    faults.on(Verb::WRITES, "*").skip(1).times(3).lose_answer();
    faults.on(Verb::WRITES, "*").times(20).refuse(503, "ServiceUnavailable");
    faults.on(Verb::READS, "*").skip(3).times(20).lose_request();
    let operator = world.start(&faults);
    world.create(cronjob(DAILY)).await;
    sleep(minutes(20)).await;
    faults.clear();
    let stopped = world.now();
    job(&world, FIRST).await;
    reaches(&world, "Missed", "Started").await;
    assert!(world.now().duration_since(stopped) < SignedDuration::from_mins(20));
    assert_quiet(&faults).await;
    assert_eq!(history.created(), [FIRST]);
    operator.stop().await;
}
