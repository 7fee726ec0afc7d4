//! Schedules, policies, history limits and clocks.

use std::time::Duration;

use cronjob_operator::api::v1::{ConcurrencyPolicy, CronJob};
use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use kube::{ResourceExt, api::PostParams};
use kubewright::simulation::{
    Span,
    env::{History, TestEnv, assert_only_watches, assert_quiet, eventually},
};
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::json;
use tokio::{task::JoinHandle, time::sleep};

use crate::fixtures::{
    DAILY, FIRST, MINUTELY, cronjob, delete_job, end_job, env, job, job_at, jobs, reaches, status, suspend, with_policy,
};

#[tokio::test(start_paused = true)]
async fn it_runs_each_minute() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Job>(&env);
    let operator = env.start(&faults);
    env.create(cronjob(MINUTELY)).await;
    for minute in 1..=3 {
        let time = format!("2020-01-30T10:0{minute}:00Z");
        let name = job_at(&env, &time).await;
        let job = env.get::<Job>(&name).await;
        assert_eq!(job.annotations()["batch.tutorial.kubebuilder.io/scheduled-at"], time);
        assert_eq!(job.labels()["app"], "lunch");
        let owner = &job.owner_references()[0];
        assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
        let late = env.now().duration_since(time.parse().unwrap());
        assert!(late < SignedDuration::from_secs(1), "{late}");
    }
    let names = history.names();
    assert_eq!(names.len(), 3);
    eventually("they are reported", async || status(&env).await.active.len() == 3).await;
    let reported = status(&env).await;
    assert_eq!(reported.last_schedule_time.unwrap().0.to_string(), "2020-01-30T10:03:00Z");
    assert_eq!(reported.next_schedule_time.unwrap().0.to_string(), "2020-01-30T10:04:00Z");
    end_job(&env, &names[0], true).await;
    eventually("the end is reported", async || {
        let reported = status(&env).await;
        reported.active.len() == 2 && reported.last_successful_time.is_some()
    })
    .await;
    assert!(env.events("lunch").await.iter().all(|event| event.starts_with("Normal Started created job")));
    operator.stop().await;
}

/// On a half-open connection a watch is silent for minutes.
#[tokio::test(start_paused = true)]
async fn a_change_that_a_silent_watch_does_not_show_delays_a_job_by_seconds() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(cronjob("1 11 * * *")).await;
    reaches(&env, "Ready", "Scheduled").await;
    let _silent = faults.on(&[Verb::Watch], "cronjobs").always().hold();
    // The current watch ends after its timeout.
    sleep(6.minutes()).await;
    env.edit::<CronJob>("lunch", json!({"spec": {"startingDeadlineSeconds": 600}})).await;
    job_at(&env, "2020-01-30T11:01:00Z").await;
    let late = env.now().duration_since("2020-01-30T11:01:00Z".parse().unwrap());
    assert!(late < SignedDuration::from_secs(30), "{late}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_ten_years_of_downtime_only_the_latest_time_runs() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Job>(&env);
    env.create(cronjob("*/30 * * * *")).await;
    env.clock.jump(SignedDuration::from_hours(24 * 3653));
    let operator = env.start(&faults);
    job_at(&env, "2030-01-30T10:00:00Z").await;
    sleep(10.minutes()).await;
    assert_eq!(history.names().len(), 1);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_time_beyond_the_deadline_is_reported_and_not_run() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Job>(&env);
    let mut late = cronjob(DAILY);
    late.spec.starting_deadline_seconds = Some(600);
    env.create(late).await;
    sleep(30.minutes()).await;
    let operator = env.start(&faults);
    reaches(&env, "Missed", "TooLate").await;
    assert_quiet(&faults).await;
    assert!(history.names().is_empty());
    let events = env.events("lunch").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].starts_with("Warning TooLate no job is started for 2020-01-30T10:01:00Z"), "{events:?}");
    // The next time is on time.
    env.clock.jump(SignedDuration::from_hours(22));
    job_at(&env, "2020-01-31T10:01:00Z").await;
    reaches(&env, "Missed", "Started").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_resumed_cronjob_catches_up_once() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Job>(&env);
    let operator = env.start(&faults);
    let mut suspended = cronjob("*/10 * * * *");
    suspended.spec.suspend = Some(true);
    env.create(suspended).await;
    reaches(&env, "Ready", "Suspended").await;
    assert!(status(&env).await.next_schedule_time.is_none());
    assert_quiet(&faults).await;
    sleep(2.minutes()).await;
    assert!(history.names().is_empty());
    suspend(&env, false).await;
    reaches(&env, "Missed", "Started").await;
    assert_eq!(history.names().len(), 1);

    // After another suspension, with a deadline, there is nothing to catch up on.
    let deadline = json!({"spec": {"suspend": true, "startingDeadlineSeconds": 60}});
    env.edit::<CronJob>("lunch", deadline).await;
    sleep(15.minutes()).await;
    suspend(&env, false).await;
    reaches(&env, "Missed", "TooLate").await;
    assert_eq!(history.names().len(), 1);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_of_53_characters_is_reported_and_one_of_52_runs() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    for (length, reason, count) in [(53, "NameTooLong", 0), (52, "Scheduled", 1)] {
        let (name, mut long) = ("x".repeat(length), cronjob(MINUTELY));
        long.metadata.name = Some(name.clone());
        env.create(long).await;
        sleep(1.minutes()).await;
        eventually("it is reported", async || {
            let status = env.get::<CronJob>(&name).await.status.unwrap_or_default();
            crate::fixtures::reason(&status, "Ready") == reason
        })
        .await;
        assert_eq!(jobs(&env).await.len(), count);
    }
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_conflict_is_reported_until_the_name_is_free() {
    let (env, faults) = (env().await, Faults::new());
    let mut other = Job { spec: cronjob("").spec.job_template.read().unwrap().spec, ..Job::default() };
    other.metadata.name = Some(FIRST.into());
    let other = env.create(other).await;
    let operator = env.start(&faults);
    env.create(cronjob(DAILY)).await;
    let reported = reaches(&env, "Ready", "NameConflict").await;
    assert!(reported.active.is_empty() && reported.last_schedule_time.is_none());
    assert_quiet(&faults).await;
    let events = env.events("lunch").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(env.get::<Job>(FIRST).await.metadata.uid, other.metadata.uid);
    let begun = env.now();
    delete_job(&env, FIRST).await;
    let reported = reaches(&env, "Ready", "Scheduled").await;
    assert!(env.now().duration_since(begun) < SignedDuration::from_secs(5), "its end wakes");
    assert_eq!(reported.active[0].uid, env.get::<Job>(FIRST).await.metadata.uid);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_existing_job_of_its_own_counts_as_launched() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Job>(&env);
    let lost = faults.on(&[Verb::Create], "jobs").lose_response();
    // The created Job isn't seen for a while.
    faults.on(&[Verb::Watch], "jobs").times(5).delay(1.minutes());
    let operator = env.start(&faults);
    env.create(cronjob(DAILY)).await;
    job(&env, FIRST).await;
    reaches(&env, "Missed", "Started").await;
    assert_quiet(&faults).await;
    assert_eq!((lost.hits(), history.names().len()), (1, 1));
    let events = env.events("lunch").await;
    assert!(events.iter().all(|event| event.starts_with("Normal Started")), "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn with_a_history_limit_of_0_no_time_runs_twice() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Job>(&env);
    let operator = env.start(&faults);
    let mut brief = cronjob(DAILY);
    (brief.spec.successful_jobs_history_limit, brief.spec.failed_jobs_history_limit) = (Some(0), Some(0));
    env.create(brief).await;
    job(&env, FIRST).await;
    end_job(&env, FIRST, true).await;
    eventually("it is trimmed", async || jobs(&env).await.is_empty()).await;
    // This also holds when the status is wiped and the operator restarts.
    operator.stop().await;
    env.edit_status::<CronJob>("lunch", json!(null)).await;
    let operator = env.start(&faults);
    let reported = reaches(&env, "Missed", "Started").await;
    assert_eq!(reported.last_schedule_time.unwrap().0.to_string(), "2020-01-30T10:01:00Z");
    assert_quiet(&faults).await;
    assert_eq!(history.names(), [FIRST]);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_job_does_not_run_again() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Job>(&env);
    let operator = env.start(&faults);
    env.create(cronjob(DAILY)).await;
    job(&env, FIRST).await;
    delete_job(&env, FIRST).await;
    eventually("its end is reported", async || status(&env).await.active.is_empty()).await;
    assert_quiet(&faults).await;
    assert_eq!(history.names(), [FIRST]);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn history_is_kept_without_a_limit_and_trimmed_to_a_limit() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(cronjob(MINUTELY)).await;
    for minute in 1..=6 {
        let name = job_at(&env, &format!("2020-01-30T10:0{minute}:00Z")).await;
        end_job(&env, &name, minute % 2 == 0).await;
    }
    assert_eq!(jobs(&env).await.len(), 6);
    let limits = json!({"suspend": true, "successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 1});
    env.edit::<CronJob>("lunch", json!({"spec": limits})).await;
    eventually("the oldest are deleted", async || jobs(&env).await.len() == 3).await;
    let minute = |minute: u8| 1_580_378_400 + 60 * i64::from(minute);
    assert_eq!(jobs(&env).await, [4, 5, 6].map(|it| format!("lunch-{}", minute(it))));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_retried_and_blocks_nothing() {
    let (env, faults) = (env().await, Faults::new());
    let refused = faults.on(&[Verb::Delete], "jobs").times(3).refuse(500, "InternalError");
    let operator = env.start(&faults);
    let mut brief = cronjob(DAILY);
    brief.spec.successful_jobs_history_limit = Some(0);
    env.create(brief).await;
    job(&env, FIRST).await;
    end_job(&env, FIRST, true).await;
    eventually("it is trimmed", async || jobs(&env).await.is_empty()).await;
    assert_eq!(refused.hits(), 3);
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn negative_limits_and_deadlines_are_refused() {
    let env = env().await;
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit", "startingDeadlineSeconds"] {
        let mut object = serde_json::to_value(cronjob(DAILY)).unwrap();
        object["spec"][field] = json!(-1);
        let object: CronJob = serde_json::from_value(object).unwrap();
        let error = env.api().create(&PostParams::default(), &object).await.unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn daylight_saving_changes_run_each_local_time_once() {
    // Berlin: at 01:00 UTC on 29 March the clock goes forward, on 25 October back.
    for (day, due) in [("2020-03-29", "01:30"), ("2020-10-25", "00:30")] {
        let (env, faults) = (env().await, Faults::new());
        let midnight = format!("{day}T00:00:00Z").parse().unwrap();
        env.clock.jump(env.now().duration_until(midnight));
        let mut history = History::of::<Job>(&env);
        let operator = env.start(&faults);
        let mut nightly = cronjob("30 2 * * *");
        nightly.spec.time_zone = Some("Europe/Berlin".into());
        env.create(nightly).await;
        sleep(31.minutes()).await;
        job_at(&env, &format!("{day}T{due}:00Z")).await;
        sleep(20.hours()).await;
        assert_eq!(history.names().len(), 1, "{day}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_time_zone_is_reported_until_an_edit() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let mut lost = cronjob(MINUTELY);
    lost.spec.time_zone = Some("Nowhere".into());
    env.create(lost).await;
    let reported = reaches(&env, "Ready", "UnknownTimeZone").await;
    assert_eq!((reported.observed_generation, reported.next_schedule_time), (Some(1), None));
    assert_quiet(&faults).await;
    env.edit::<CronJob>("lunch", json!({"spec": {"timeZone": "Asia/Seoul"}})).await;
    reaches(&env, "Ready", "Scheduled").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn forbid_skips_and_runs_when_the_earlier_job_has_ended() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Job>(&env);
    let operator = env.start(&faults);
    env.create(with_policy("*/10 * * * *", ConcurrencyPolicy::Forbid)).await;
    let first = job_at(&env, "2020-01-30T10:10:00Z").await;
    let reported = reaches(&env, "Missed", "Skipped").await;
    assert_eq!((reported.active.len(), history.names().len()), (1, 1));
    sleep(12.minutes()).await;
    assert_eq!(history.names().len(), 1);
    end_job(&env, &first, true).await;
    // Only the latest of the skipped times.
    job_at(&env, "2020-01-30T10:30:00Z").await;
    reaches(&env, "Missed", "Started").await;
    assert_eq!(history.names().len(), 2);
    let events = env.events("lunch").await;
    assert_eq!(events.iter().filter(|event| event.starts_with("Warning Skipped")).count(), 2, "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replace_deletes_and_waits_for_the_end() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Job>(&env);
    let operator = env.start(&faults);
    env.create(with_policy("*/10 * * * *", ConcurrencyPolicy::Replace)).await;
    let first = job_at(&env, "2020-01-30T10:10:00Z").await;
    // A finalizer holds the first Job.
    env.edit::<Job>(&first, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    reaches(&env, "Missed", "Replacing").await;
    sleep(5.minutes()).await;
    assert!(env.get::<Job>(&first).await.metadata.deletion_timestamp.is_some());
    assert_eq!(history.names().len(), 1);
    let foreground = env.get::<Job>(&first).await.finalizers().iter().any(|it| it == "foregroundDeletion");
    let left: &[&str] = if foreground { &["foregroundDeletion"] } else { &[] };
    env.edit::<Job>(&first, json!({"metadata": {"finalizers": left}})).await;
    job_at(&env, "2020-01-30T10:20:00Z").await;
    reaches(&env, "Missed", "Started").await;
    assert_eq!(jobs(&env).await.len(), 1);
    let events = env.events("lunch").await;
    assert_eq!(events.iter().filter(|event| event.starts_with("Normal Replaced")).count(), 1, "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn active_jobs_are_read_past_a_stale_cache() {
    for policy in [ConcurrencyPolicy::Forbid, ConcurrencyPolicy::Replace] {
        let (env, faults) = (env().await, Faults::new());
        let mut history = History::of::<Job>(&env);
        env.create(with_policy("*/10 * * * *", policy)).await;
        let cronjob = env.get::<CronJob>("lunch").await;
        let operator = env.start(&faults);
        reaches(&env, "Ready", "Scheduled").await;
        // From now on the operator sees no Jobs. Another leader creates one.
        let gate = faults.on(&[Verb::Watch], "jobs").always().hold();
        operator.stop().await;
        let operator = env.start(&faults);
        sleep(1.minutes()).await;
        let mut unseen = Job { spec: cronjob.spec.job_template.read().unwrap().spec, ..Job::default() };
        unseen.metadata.name = Some("lunch-1".into());
        unseen.metadata.owner_references =
            Some(kube::Resource::controller_owner_ref(&cronjob, &()).into_iter().collect());
        unseen.metadata.finalizers = Some(vec!["example.com/hold".into()]);
        env.create(unseen).await;
        let expect = if policy == ConcurrencyPolicy::Forbid { "Skipped" } else { "Replacing" };
        reaches(&env, "Missed", expect).await;
        assert_eq!(history.names(), ["lunch-1"]);
        let deleted = env.get::<Job>("lunch-1").await.metadata.deletion_timestamp.is_some();
        assert_eq!(deleted, policy == ConcurrencyPolicy::Replace);
        gate.open();
        end_job(&env, "lunch-1", true).await;
        job_at(&env, "2020-01-30T10:10:00Z").await;
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_never_matches_is_reported_and_not_retried() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(cronjob("0 0 30 2 *")).await;
    let reported = reaches(&env, "Ready", "NeverMatches").await;
    assert_eq!(reported.next_schedule_time, None);
    assert_quiet(&faults).await;
    assert_only_watches(&faults);
    let events = env.events("lunch").await;
    assert_eq!(events, ["Warning NeverMatches no date satisfies the schedule \"0 0 30 2 *\""]);
    env.edit::<CronJob>("lunch", json!({"spec": {"schedule": "0 0 29 2 *"}})).await;
    let reported = reaches(&env, "Ready", "Scheduled").await;
    assert_eq!(reported.next_schedule_time.unwrap().0.to_string(), "2020-02-29T00:00:00Z");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_short_deadline_causes_a_warning_and_is_respected() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let mut hasty = cronjob(DAILY);
    hasty.spec.starting_deadline_seconds = Some(0);
    env.create(hasty).await;
    reaches(&env, "ShortDeadline", "MayBeMissed").await;
    job(&env, FIRST).await;
    let events = env.events("lunch").await;
    assert_eq!(events.iter().filter(|event| event.starts_with("Warning ShortDeadline")).count(), 1, "{events:?}");
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_before_the_creation_waits() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Job>(&env);
    env.create(cronjob(MINUTELY)).await;
    env.clock.jump(SignedDuration::from_hours(-1));
    let operator = env.start(&faults);
    let reported = reaches(&env, "Ready", "Scheduled").await;
    assert_eq!(reported.next_schedule_time.unwrap().0.to_string(), "2020-01-30T10:01:00Z");
    sleep(50.minutes()).await;
    assert!(history.names().is_empty());
    job_at(&env, "2020-01-30T10:01:00Z").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn invalid_schedules_are_reported() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(cronjob(MINUTELY)).await;
    for schedule in ["", "* * * * * *", "60 * * * *", "@every 0s", &"*".repeat(100_000)] {
        env.edit::<CronJob>("lunch", json!({"spec": {"schedule": schedule}})).await;
        reaches(&env, "Ready", "InvalidSchedule").await;
        env.edit::<CronJob>("lunch", json!({"spec": {"schedule": "@yearly"}})).await;
        reaches(&env, "Ready", "Scheduled").await;
    }
    env.edit::<CronJob>("lunch", json!({"spec": {"schedule": "TZ=Nowhere * * * * *"}})).await;
    reaches(&env, "Ready", "UnknownTimeZone").await;
    operator.stop().await;
}

/// Ends every Job soon after it was created, as the Job controller would.
fn end_jobs(env: &TestEnv) -> JoinHandle<()> {
    let env = env.clone();
    tokio::spawn(async move {
        loop {
            sleep(Duration::from_secs(1)).await;
            for job in env.list::<Job>().await {
                let is_active = job.status.as_ref().is_none_or(|status| status.completion_time.is_none());
                if is_active && job.metadata.deletion_timestamp.is_none() {
                    end_job(&env, &job.name_any(), true).await;
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
        let (env, faults) = (env().await, Faults::new());
        let mut history = History::of::<Job>(&env);
        slow(&faults);
        let operator = env.start(&faults);
        let ending = end_jobs(&env);
        let mut often = cronjob("@every 1s");
        often.spec.successful_jobs_history_limit = Some(1);
        env.create(often).await;
        sleep(1.minutes()).await;
        let first = status(&env).await;
        assert!(history.names().len() >= 8, "{:?}", history.names());
        assert!(first.last_successful_time.is_some() && first.last_schedule_time.is_some(), "{first:?}");
        assert_eq!(crate::fixtures::reason(&first, "Missed"), "Started");
        let limit = json!({"spec": {"successfulJobsHistoryLimit": 2}});
        env.edit::<CronJob>("lunch", limit).await;
        for _ in 0..2 {
            let before = status(&env).await;
            sleep(Duration::from_secs(20)).await;
            let after = status(&env).await;
            assert_eq!(after.observed_generation, Some(2));
            assert!(after.last_successful_time > before.last_successful_time, "{before:?} {after:?}");
            assert!(after.last_schedule_time > before.last_schedule_time, "{before:?} {after:?}");
            assert!(after.active.len() <= 4, "{after:?}");
            assert!(jobs(&env).await.len() <= 8, "{:?}", jobs(&env).await);
        }
        history.names();
        suspend(&env, true).await;
        eventually("all have ended and two are kept", async || {
            jobs(&env).await.len() == 2 && status(&env).await.active.is_empty()
        })
        .await;
        ending.abort();
        assert_quiet(&faults).await;
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn status_and_history_keep_up_while_jobs_cannot_be_created() {
    let (env, faults) = (env().await, Faults::new());
    // As if an admission webhook were down.
    let refused = faults.on(&[Verb::Create], "jobs").skip(2).always().refuse(500, "InternalError");
    let operator = env.start(&faults);
    let mut minutely = cronjob(MINUTELY);
    minutely.spec.successful_jobs_history_limit = Some(1);
    env.create(minutely).await;
    let names = [job_at(&env, "2020-01-30T10:01:00Z").await, job_at(&env, "2020-01-30T10:02:00Z").await];
    eventually("a creation fails", async || refused.hits() > 0).await;
    for name in &names {
        end_job(&env, name, true).await;
    }
    sleep(10.minutes()).await;
    let after = status(&env).await;
    assert!(after.active.is_empty() && after.last_successful_time.is_some(), "{after:?}");
    assert_eq!(jobs(&env).await, names[1..]);
    faults.clear();
    sleep(10.minutes()).await;
    reaches(&env, "Missed", "Started").await;
    operator.stop().await;
}
