//! Tests of defaulting and validation.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubewright::{
    clock::SystemClock,
    object::KindName,
    prelude::*,
    webhook::{Operation, Request, ValidationErrors},
};

use super::cronjob::{Defaults, Validation, look};
use crate::api::v1::{ConcurrencyPolicy, CronJob, CronJobSpec, JobTemplate};

fn cronjob(name: &str, schedule: &str) -> CronJob {
    CronJob::new(name, CronJobSpec { schedule: schedule.into(), ..CronJobSpec::default() })
}

fn request() -> Request {
    let kind = KindName::of::<CronJob>();
    Request::of_test(Operation::Create, kind, Some("default"), "c", SystemClock::shared())
}

/// The causes, each as `field: message`.
fn causes(errors: &ValidationErrors) -> Vec<String> {
    errors.causes().iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check(cronjob: &CronJob, expected: &[&str]) {
    assert_eq!(causes(&look(cronjob)), expected);
}

#[tokio::test]
async fn missing_fields_are_defaulted_and_others_kept() {
    let mut left_out = cronjob("c", "@daily");
    Defaults.set_defaults(&mut left_out, &request()).await.unwrap();
    let spec = &left_out.spec;
    assert_eq!((spec.concurrency_policy, spec.suspend), (Some(ConcurrencyPolicy::Allow), Some(false)));
    assert_eq!((spec.successful_jobs_history_limit, spec.failed_jobs_history_limit), (Some(3), Some(1)));

    let mut said = cronjob("c", "@daily");
    said.spec.concurrency_policy = Some(ConcurrencyPolicy::Forbid);
    said.spec.suspend = Some(true);
    said.spec.successful_jobs_history_limit = Some(0);
    said.spec.failed_jobs_history_limit = Some(9);
    let before = said.clone();
    Defaults.set_defaults(&mut said, &request()).await.unwrap();
    assert_eq!(said.spec, before.spec);
}

#[test]
fn a_good_one_has_no_findings() {
    for schedule in ["*/1 * * * *", "@every 1h30m", "TZ=Asia/Seoul 0 9 * * mon-fri", "@hourly"] {
        assert_eq!(look(&cronjob(&"x".repeat(52), schedule)), ValidationErrors::default(), "{schedule}");
    }
}

#[test]
fn invalid_schedules_are_reported_at_their_field() {
    for (schedule, says) in [
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 32 * *", "day of month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day of week"),
        ("* * * * * *", "expected 5 fields (minute, hour, day of month, month, day of week), found 6"),
        ("@every 0s", "@every requires a duration of at least one second"),
        ("TZ=Nowhere * * * * *", "unknown time zone \"Nowhere\""),
        ("@sometimes", "unknown word \"sometimes\""),
        ("", "the schedule is empty"),
    ] {
        let errors = look(&cronjob("c", schedule));
        let [cause] = errors.causes() else { panic!("{schedule}: {errors:?}") };
        assert_eq!((cause.field.as_str(), cause.reason.as_str()), ("spec.schedule", "FieldValueInvalid"));
        assert!(cause.message.starts_with(&format!("Invalid value: {schedule:?}: ")), "{}", cause.message);
        assert!(cause.message.contains(says), "{}", cause.message);
    }
}

#[test]
fn a_hundred_kilobytes_of_stars_are_reported_briefly() {
    for stars in ["*".repeat(100_000), "* ".repeat(50_000), "*,".repeat(50_000)] {
        let causes = causes(&look(&cronjob("c", &stars)));
        assert_eq!(causes.len(), 1);
        assert!(causes[0].ends_with("the schedule has 100000 bytes; at most 1024 are allowed"), "{}", causes[0]);
        assert!(causes[0].len() < 1000, "{}", causes[0].len());
    }
}

#[test]
fn all_causes_are_reported_at_once() {
    let mut bad = cronjob(&"x".repeat(53), "tomorrow");
    bad.spec.time_zone = Some("Nowhere/Land".into());
    bad.spec.job_template = serde_json::from_value::<JobTemplate>(serde_json::json!({"spec": 7})).unwrap();
    let found = causes(&look(&bad));
    assert_eq!(found.len(), 4, "{found:?}");
    let schedule = "spec.schedule: Invalid value: \"tomorrow\": expected 5 fields (minute, hour, day of month, month, \
        day of week), found 1";
    assert_eq!(found[0], schedule);
    assert_eq!(found[1], "spec.timeZone: Invalid value: \"Nowhere/Land\": unknown time zone \"Nowhere/Land\"");
    assert!(found[2].starts_with("spec.jobTemplate: Invalid value: {\"spec\":7}: "), "{}", found[2]);
    let name = format!("metadata.name: Invalid value: \"{}\": must be no more than 52 characters", "x".repeat(53));
    assert_eq!(found[3], name);
}

#[test]
fn two_time_zones_are_one_too_many() {
    let mut bad = cronjob("c", "TZ=Asia/Seoul @daily");
    bad.spec.time_zone = Some("Europe/Berlin".into());
    let says = "spec.timeZone: Invalid value: \"Europe/Berlin\": the schedule and spec.timeZone both set a \
        time zone: remove one";
    check(&bad, &[says]);
}

#[test]
fn questionable_values_cause_a_warning() {
    let mut odd = cronjob("c", "0 0 30 2 *");
    odd.spec.starting_deadline_seconds = Some(9);
    let errors = look(&odd);
    assert_eq!(causes(&errors), Vec::<String>::new());
    let [deadline, schedule] = [&errors.warnings()[1], &errors.warnings()[0]];
    assert!(deadline.starts_with("spec.startingDeadlineSeconds: "), "{deadline}");
    assert_eq!(schedule, "spec.schedule: no date satisfies \"0 0 30 2 *\", so no Job will ever be created");
    odd.spec.starting_deadline_seconds = Some(10);
    assert_eq!(look(&odd).warnings().len(), 1);
}

#[tokio::test]
async fn an_update_is_looked_at_unless_it_leaves_the_spec_alone_or_the_object_goes() {
    let old = cronjob(&"x".repeat(53), "tomorrow");
    let mut new = old.clone();
    new.metadata.labels = Some([("a".into(), "b".into())].into());
    Defaults.set_defaults(&mut new, &request()).await.unwrap();
    assert_eq!(Validation.validate_update(&old, &new, &request()).await.unwrap(), ValidationErrors::default());
    new.spec.schedule = "yesterday".into();
    assert_eq!(Validation.validate_update(&old, &new, &request()).await.unwrap().causes().len(), 2);
    new.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(Validation.validate_update(&old, &new, &request()).await.unwrap(), ValidationErrors::default());
}
