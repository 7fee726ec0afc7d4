//! Rows 31 to 40: what a schedule, a policy and a clock can do.

use std::time::Duration;

use cronjob_operator::api::v1::{ConcurrencyPolicy, CronJob};
use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use kube::{ResourceExt, api::PostParams};
use kubewright_cluster::faults::{Faults, Verb};
use operator_kit::{History, World, assert_quiet, eventually, minutes};
use serde_json::json;
use tokio::{task::JoinHandle, time::sleep};

use crate::scene::{
    DAILY, FIRST, MINUTELY, cronjob, delete_job, end_job, job, job_at, jobs, reaches, status, suspend, with_policy,
    world,
};

#[tokio::test(start_paused = true)]
async fn it_runs_each_minute() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Job>(&world);
    let operator = world.start(&faults);
    world.create(cronjob(MINUTELY)).await;
    for minute in 1..=3 {
        let time = format!("2020-01-30T10:0{minute}:00Z");
        let name = job_at(&world, &time).await;
        let job = world.get::<Job>(&name).await;
        assert_eq!(job.annotations()["batch.tutorial.kubebuilder.io/scheduled-at"], time);
        assert_eq!(job.labels()["app"], "lunch");
        let owner = &job.owner_references()[0];
        assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
        let late = world.now().duration_since(time.parse().unwrap());
        assert!(late < SignedDuration::from_secs(1), "{late}");
    }
    let names = history.names();
    assert_eq!(names.len(), 3);
    eventually("they are told", async || status(&world).await.active.len() == 3).await;
    let told = status(&world).await;
    assert_eq!(told.last_schedule_time.unwrap().0.to_string(), "2020-01-30T10:03:00Z");
    assert_eq!(told.next_schedule_time.unwrap().0.to_string(), "2020-01-30T10:04:00Z");
    end_job(&world, &names[0], true).await;
    eventually("the end is told", async || {
        let told = status(&world).await;
        told.active.len() == 2 && told.last_successful_time.is_some()
    })
    .await;
    assert!(world.events("lunch").await.iter().all(|event| event.starts_with("Normal Started created job")));
    operator.stop().await;
}

/// On a connection that is half open a watch is silent for minutes.
#[tokio::test(start_paused = true)]
async fn a_change_that_the_silent_watch_does_not_show_delays_a_job_by_seconds() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(cronjob("1 11 * * *")).await;
    reaches(&world, "Ready", "Scheduled").await;
    let _silent = faults.on(&[Verb::Watch], "cronjobs").always().hold();
    // The watch that has begun before ends after its time.
    sleep(minutes(6)).await;
    world.edit::<CronJob>("lunch", json!({"spec": {"startingDeadlineSeconds": 600}})).await;
    job_at(&world, "2020-01-30T11:01:00Z").await;
    let late = world.now().duration_since("2020-01-30T11:01:00Z".parse().unwrap());
    assert!(late < SignedDuration::from_secs(30), "{late}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_31_after_ten_years_of_downtime_the_latest_runs_only() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Job>(&world);
    world.create(cronjob("*/30 * * * *")).await;
    world.clock.jump(SignedDuration::from_hours(24 * 3653));
    let operator = world.start(&faults);
    job_at(&world, "2030-01-30T10:00:00Z").await;
    sleep(minutes(10)).await;
    assert_eq!(history.names().len(), 1);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_31_what_is_beyond_the_deadline_is_told_and_not_run() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Job>(&world);
    let mut late = cronjob(DAILY);
    late.spec.starting_deadline_seconds = Some(600);
    world.create(late).await;
    sleep(minutes(30)).await;
    let operator = world.start(&faults);
    reaches(&world, "Missed", "TooLate").await;
    assert_quiet(&faults).await;
    assert!(history.names().is_empty());
    let events = world.events("lunch").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].starts_with("Warning TooLate no job is started for 2020-01-30T10:01:00Z"), "{events:?}");
    // The next one is on time.
    world.clock.jump(SignedDuration::from_hours(22));
    job_at(&world, "2020-01-31T10:01:00Z").await;
    reaches(&world, "Missed", "Started").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_32_unsuspended_it_catches_up_once() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Job>(&world);
    let operator = world.start(&faults);
    let mut suspended = cronjob("*/10 * * * *");
    suspended.spec.suspend = Some(true);
    world.create(suspended).await;
    reaches(&world, "Ready", "Suspended").await;
    assert!(status(&world).await.next_schedule_time.is_none());
    assert_quiet(&faults).await;
    sleep(minutes(2)).await;
    assert!(history.names().is_empty());
    suspend(&world, false).await;
    reaches(&world, "Missed", "Started").await;
    assert_eq!(history.names().len(), 1);

    // Suspended again, with a deadline, there is nothing to catch up with.
    let deadline = json!({"spec": {"suspend": true, "startingDeadlineSeconds": 60}});
    world.edit::<CronJob>("lunch", deadline).await;
    sleep(minutes(15)).await;
    suspend(&world, false).await;
    reaches(&world, "Missed", "TooLate").await;
    assert_eq!(history.names().len(), 1);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_33_a_name_of_53_characters_is_told_and_one_of_52_runs() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    for (length, reason, count) in [(53, "NameTooLong", 0), (52, "Scheduled", 1)] {
        let (name, mut long) = ("x".repeat(length), cronjob(MINUTELY));
        long.metadata.name = Some(name.clone());
        world.create(long).await;
        sleep(minutes(1)).await;
        eventually("it is told", async || {
            let status = world.get::<CronJob>(&name).await.status.unwrap_or_default();
            crate::scene::reason(&status, "Ready") == reason
        })
        .await;
        assert_eq!(jobs(&world).await.len(), count);
    }
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_34_a_name_that_is_taken_is_told_until_it_is_free() {
    let (world, faults) = (world().await, Faults::new());
    let mut other = Job { spec: cronjob("").spec.job_template.read().unwrap().spec, ..Job::default() };
    other.metadata.name = Some(FIRST.into());
    let other = world.create(other).await;
    let operator = world.start(&faults);
    world.create(cronjob(DAILY)).await;
    let told = reaches(&world, "Ready", "NameConflict").await;
    assert!(told.active.is_empty() && told.last_schedule_time.is_none());
    assert_quiet(&faults).await;
    let events = world.events("lunch").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(world.get::<Job>(FIRST).await.metadata.uid, other.metadata.uid);
    let begun = world.now();
    delete_job(&world, FIRST).await;
    let told = reaches(&world, "Ready", "Scheduled").await;
    assert!(world.now().duration_since(begun) < SignedDuration::from_secs(5), "its end wakes");
    assert_eq!(told.active[0].uid, world.get::<Job>(FIRST).await.metadata.uid);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_34_a_name_that_is_taken_by_its_own_is_done() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Job>(&world);
    let lost = faults.on(&[Verb::Create], "jobs").lose_answer();
    // And what it created isn't seen for a while.
    faults.on(&[Verb::Watch], "jobs").times(5).delay(minutes(1));
    let operator = world.start(&faults);
    world.create(cronjob(DAILY)).await;
    job(&world, FIRST).await;
    reaches(&world, "Missed", "Started").await;
    assert_quiet(&faults).await;
    assert_eq!((lost.hits(), history.names().len()), (1, 1));
    let events = world.events("lunch").await;
    assert!(events.iter().all(|event| event.starts_with("Normal Started")), "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_35_with_a_history_of_0_no_time_runs_twice() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Job>(&world);
    let operator = world.start(&faults);
    let mut brief = cronjob(DAILY);
    (brief.spec.successful_jobs_history_limit, brief.spec.failed_jobs_history_limit) = (Some(0), Some(0));
    world.create(brief).await;
    job(&world, FIRST).await;
    end_job(&world, FIRST, true).await;
    eventually("it is trimmed", async || jobs(&world).await.is_empty()).await;
    // Not even when the status is gone, and the operator starts anew.
    operator.stop().await;
    world.edit_status::<CronJob>("lunch", json!(null)).await;
    let operator = world.start(&faults);
    let told = reaches(&world, "Missed", "Started").await;
    assert_eq!(told.last_schedule_time.unwrap().0.to_string(), "2020-01-30T10:01:00Z");
    assert_quiet(&faults).await;
    assert_eq!(history.names(), [FIRST]);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_35_a_job_that_is_deleted_is_not_run_again() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Job>(&world);
    let operator = world.start(&faults);
    world.create(cronjob(DAILY)).await;
    job(&world, FIRST).await;
    delete_job(&world, FIRST).await;
    eventually("its end is told", async || status(&world).await.active.is_empty()).await;
    assert_quiet(&faults).await;
    assert_eq!(history.names(), [FIRST]);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_35_history_is_kept_without_a_limit_and_trimmed_to_one() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(cronjob(MINUTELY)).await;
    for minute in 1..=6 {
        let name = job_at(&world, &format!("2020-01-30T10:0{minute}:00Z")).await;
        end_job(&world, &name, minute % 2 == 0).await;
    }
    assert_eq!(jobs(&world).await.len(), 6);
    let limits = json!({"suspend": true, "successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 1});
    world.edit::<CronJob>("lunch", json!({"spec": limits})).await;
    eventually("the oldest are deleted", async || jobs(&world).await.len() == 3).await;
    let minute = |minute: u8| 1_580_378_400 + 60 * i64::from(minute);
    assert_eq!(jobs(&world).await, [4, 5, 6].map(|it| format!("lunch-{}", minute(it))));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_35_a_job_that_cannot_be_deleted_is_tried_again_and_holds_up_nothing() {
    let (world, faults) = (world().await, Faults::new());
    let refused = faults.on(&[Verb::Delete], "jobs").times(3).refuse(500, "InternalError");
    let operator = world.start(&faults);
    let mut brief = cronjob(DAILY);
    brief.spec.successful_jobs_history_limit = Some(0);
    world.create(brief).await;
    job(&world, FIRST).await;
    end_job(&world, FIRST, true).await;
    eventually("it is trimmed", async || jobs(&world).await.is_empty()).await;
    assert_eq!(refused.hits(), 3);
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rows_35_and_39_negative_numbers_are_refused() {
    let world = world().await;
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit", "startingDeadlineSeconds"] {
        let mut object = serde_json::to_value(cronjob(DAILY)).unwrap();
        object["spec"][field] = json!(-1);
        let object: CronJob = serde_json::from_value(object).unwrap();
        let error = world.api().create(&PostParams::default(), &object).await.unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn row_36_each_local_time_runs_once_when_the_clock_goes_forward_or_back() {
    // Berlin: at 01:00 UTC on 29 March the clock goes forward, on 25 October back.
    for (day, due) in [("2020-03-29", "01:30"), ("2020-10-25", "00:30")] {
        let (world, faults) = (world().await, Faults::new());
        let midnight = format!("{day}T00:00:00Z").parse().unwrap();
        world.clock.jump(world.now().duration_until(midnight));
        let mut history = History::of::<Job>(&world);
        let operator = world.start(&faults);
        let mut nightly = cronjob("30 2 * * *");
        nightly.spec.time_zone = Some("Europe/Berlin".into());
        world.create(nightly).await;
        sleep(minutes(31)).await;
        job_at(&world, &format!("{day}T{due}:00Z")).await;
        sleep(minutes(60 * 20)).await;
        assert_eq!(history.names().len(), 1, "{day}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn row_36_an_unknown_time_zone_is_told_and_an_edit_wakes() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let mut lost = cronjob(MINUTELY);
    lost.spec.time_zone = Some("Nowhere".into());
    world.create(lost).await;
    let told = reaches(&world, "Ready", "UnknownTimeZone").await;
    assert_eq!((told.observed_generation, told.next_schedule_time), (Some(1), None));
    assert_quiet(&faults).await;
    world.edit::<CronJob>("lunch", json!({"spec": {"timeZone": "Asia/Seoul"}})).await;
    reaches(&world, "Ready", "Scheduled").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_37_forbid_skips_and_runs_when_the_earlier_one_has_ended() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Job>(&world);
    let operator = world.start(&faults);
    world.create(with_policy("*/10 * * * *", ConcurrencyPolicy::Forbid)).await;
    let first = job_at(&world, "2020-01-30T10:10:00Z").await;
    let told = reaches(&world, "Missed", "Skipped").await;
    assert_eq!((told.active.len(), history.names().len()), (1, 1));
    sleep(minutes(12)).await;
    assert_eq!(history.names().len(), 1);
    end_job(&world, &first, true).await;
    // The latest of those that were skipped, and no more.
    job_at(&world, "2020-01-30T10:30:00Z").await;
    reaches(&world, "Missed", "Started").await;
    assert_eq!(history.names().len(), 2);
    let events = world.events("lunch").await;
    assert_eq!(events.iter().filter(|event| event.starts_with("Warning Skipped")).count(), 2, "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_37_replace_deletes_and_waits_for_the_end() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Job>(&world);
    let operator = world.start(&faults);
    world.create(with_policy("*/10 * * * *", ConcurrencyPolicy::Replace)).await;
    let first = job_at(&world, "2020-01-30T10:10:00Z").await;
    // Something holds the first one.
    world.edit::<Job>(&first, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    reaches(&world, "Missed", "Replacing").await;
    sleep(minutes(5)).await;
    assert!(world.get::<Job>(&first).await.metadata.deletion_timestamp.is_some());
    assert_eq!(history.names().len(), 1);
    let foreground = world.get::<Job>(&first).await.finalizers().iter().any(|it| it == "foregroundDeletion");
    let left: &[&str] = if foreground { &["foregroundDeletion"] } else { &[] };
    world.edit::<Job>(&first, json!({"metadata": {"finalizers": left}})).await;
    job_at(&world, "2020-01-30T10:20:00Z").await;
    reaches(&world, "Missed", "Started").await;
    assert_eq!(jobs(&world).await.len(), 1);
    let events = world.events("lunch").await;
    assert_eq!(events.iter().filter(|event| event.starts_with("Normal Replaced")).count(), 1, "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_37_a_stale_cache_is_not_believed() {
    for policy in [ConcurrencyPolicy::Forbid, ConcurrencyPolicy::Replace] {
        let (world, faults) = (world().await, Faults::new());
        let mut history = History::of::<Job>(&world);
        world.create(with_policy("*/10 * * * *", policy)).await;
        let cronjob = world.get::<CronJob>("lunch").await;
        let operator = world.start(&faults);
        reaches(&world, "Ready", "Scheduled").await;
        // From now on it sees no Jobs. One of its own is created by another leader.
        let gate = faults.on(&[Verb::Watch], "jobs").always().hold();
        operator.stop().await;
        let operator = world.start(&faults);
        sleep(minutes(1)).await;
        let mut unseen = Job { spec: cronjob.spec.job_template.read().unwrap().spec, ..Job::default() };
        unseen.metadata.name = Some("lunch-1".into());
        unseen.metadata.owner_references =
            Some(kube::Resource::controller_owner_ref(&cronjob, &()).into_iter().collect());
        unseen.metadata.finalizers = Some(vec!["example.com/hold".into()]);
        world.create(unseen).await;
        let expect = if policy == ConcurrencyPolicy::Forbid { "Skipped" } else { "Replacing" };
        reaches(&world, "Missed", expect).await;
        assert_eq!(history.names(), ["lunch-1"]);
        let deleted = world.get::<Job>("lunch-1").await.metadata.deletion_timestamp.is_some();
        assert_eq!(deleted, policy == ConcurrencyPolicy::Replace);
        gate.open();
        end_job(&world, "lunch-1", true).await;
        job_at(&world, "2020-01-30T10:10:00Z").await;
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn row_38_a_schedule_that_never_matches_is_told_and_does_not_spin() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(cronjob("0 0 30 2 *")).await;
    let told = reaches(&world, "Ready", "NeverMatches").await;
    assert_eq!(told.next_schedule_time, None);
    assert_quiet(&faults).await;
    assert!(faults.seen().iter().all(|seen| seen.request.verb == Verb::Watch));
    let events = world.events("lunch").await;
    assert_eq!(events, ["Warning NeverMatches no date satisfies the schedule \"0 0 30 2 *\""]);
    world.edit::<CronJob>("lunch", json!({"spec": {"schedule": "0 0 29 2 *"}})).await;
    let told = reaches(&world, "Ready", "Scheduled").await;
    assert_eq!(told.next_schedule_time.unwrap().0.to_string(), "2020-02-29T00:00:00Z");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_39_a_short_deadline_is_warned_of_and_kept() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let mut hasty = cronjob(DAILY);
    hasty.spec.starting_deadline_seconds = Some(0);
    world.create(hasty).await;
    reaches(&world, "ShortDeadline", "MayBeMissed").await;
    job(&world, FIRST).await;
    let events = world.events("lunch").await;
    assert_eq!(events.iter().filter(|event| event.starts_with("Warning ShortDeadline")).count(), 1, "{events:?}");
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_40_with_the_clock_before_the_creation_it_sleeps() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Job>(&world);
    world.create(cronjob(MINUTELY)).await;
    world.clock.jump(SignedDuration::from_hours(-1));
    let operator = world.start(&faults);
    let told = reaches(&world, "Ready", "Scheduled").await;
    assert_eq!(told.next_schedule_time.unwrap().0.to_string(), "2020-01-30T10:01:00Z");
    sleep(minutes(50)).await;
    assert!(history.names().is_empty());
    job_at(&world, "2020-01-30T10:01:00Z").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn schedules_that_cannot_be_read_are_told() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(cronjob(MINUTELY)).await;
    for schedule in ["", "* * * * * *", "60 * * * *", "@every 0s", &"*".repeat(100_000)] {
        world.edit::<CronJob>("lunch", json!({"spec": {"schedule": schedule}})).await;
        reaches(&world, "Ready", "InvalidSchedule").await;
        world.edit::<CronJob>("lunch", json!({"spec": {"schedule": "@yearly"}})).await;
        reaches(&world, "Ready", "Scheduled").await;
    }
    world.edit::<CronJob>("lunch", json!({"spec": {"schedule": "TZ=Nowhere * * * * *"}})).await;
    reaches(&world, "Ready", "UnknownTimeZone").await;
    operator.stop().await;
}

/// Ends every Job soon after it was created, as the Job controller would.
fn end_jobs(world: &World) -> JoinHandle<()> {
    let world = world.clone();
    tokio::spawn(async move {
        loop {
            sleep(Duration::from_secs(1)).await;
            for job in world.list::<Job>().await {
                let is_active = job.status.as_ref().is_none_or(|status| status.completion_time.is_none());
                if is_active && job.metadata.deletion_timestamp.is_none() {
                    end_job(&world, &job.name_any(), true).await;
                }
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn status_and_history_keep_up_while_each_launch_takes_longer_than_the_period() {
    const SLOW: Duration = Duration::from_secs(3);
    let slow: [fn(&Faults); 3] = [
        |faults| drop(faults.on(&[Verb::Create], "jobs").always().delay(SLOW)),
        |faults| drop(faults.on(&[Verb::Patch], "cronjobs").always().delay(SLOW)),
        |faults| drop(faults.on(&[Verb::Watch], "jobs").always().delay(SLOW)),
    ];
    for slow in slow {
        let (world, faults) = (world().await, Faults::new());
        let mut history = History::of::<Job>(&world);
        slow(&faults);
        let operator = world.start(&faults);
        let ending = end_jobs(&world);
        let mut often = cronjob("@every 1s");
        often.spec.successful_jobs_history_limit = Some(1);
        world.create(often).await;
        sleep(minutes(1)).await;
        let first = status(&world).await;
        assert!(history.names().len() >= 8, "{:?}", history.names());
        assert!(first.last_successful_time.is_some() && first.last_schedule_time.is_some(), "{first:?}");
        assert_eq!(crate::scene::reason(&first, "Missed"), "Started");
        let limit = json!({"spec": {"successfulJobsHistoryLimit": 2}});
        world.edit::<CronJob>("lunch", limit).await;
        for _ in 0..2 {
            let before = status(&world).await;
            sleep(Duration::from_secs(20)).await;
            let after = status(&world).await;
            assert_eq!(after.observed_generation, Some(2));
            assert!(after.last_successful_time > before.last_successful_time, "{before:?} {after:?}");
            assert!(after.last_schedule_time > before.last_schedule_time, "{before:?} {after:?}");
            assert!(after.active.len() <= 4, "{after:?}");
            assert!(jobs(&world).await.len() <= 8, "{:?}", jobs(&world).await);
        }
        history.names();
        suspend(&world, true).await;
        eventually("all have ended and two are kept", async || {
            jobs(&world).await.len() == 2 && status(&world).await.active.is_empty()
        })
        .await;
        ending.abort();
        assert_quiet(&faults).await;
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn status_and_history_keep_up_while_jobs_cannot_be_created() {
    let (world, faults) = (world().await, Faults::new());
    // As by an admission webhook that is down.
    let refused = faults.on(&[Verb::Create], "jobs").skip(2).always().refuse(500, "InternalError");
    let operator = world.start(&faults);
    let mut minutely = cronjob(MINUTELY);
    minutely.spec.successful_jobs_history_limit = Some(1);
    world.create(minutely).await;
    let names = [job_at(&world, "2020-01-30T10:01:00Z").await, job_at(&world, "2020-01-30T10:02:00Z").await];
    eventually("a creation fails", async || refused.hits() > 0).await;
    for name in &names {
        end_job(&world, name, true).await;
    }
    sleep(minutes(10)).await;
    let after = status(&world).await;
    assert!(after.active.is_empty() && after.last_successful_time.is_some(), "{after:?}");
    assert_eq!(jobs(&world).await, names[1..]);
    faults.clear();
    sleep(minutes(10)).await;
    reaches(&world, "Missed", "Started").await;
    operator.stop().await;
}
