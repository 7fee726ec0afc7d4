use k8s_openapi::{
    api::batch::v1::{JobCondition, JobStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kubewright::owner;
use serde_json::json;

use super::*;
use crate::{
    api::v1::{CronJobSpec, JobTemplate},
    controller::{
        job::{SCHEDULED_AT, cronjob_name, is_own},
        record::{self, LAST},
    },
};

/// The creation time of the CronJobs in these tests.
pub(crate) const CREATED: &str = "2020-01-30T10:00:30Z";

pub(crate) fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) fn template(template: serde_json::Value) -> JobTemplate {
    serde_json::from_value(template).unwrap()
}

pub(crate) fn cronjob(schedule: &str) -> CronJob {
    let pod = json!({"containers": [{"name": "hello", "image": "busybox"}], "restartPolicy": "OnFailure"});
    let spec = CronJobSpec {
        schedule: schedule.into(),
        job_template: template(json!({"spec": {"template": {"spec": pod}}})),
        ..CronJobSpec::default()
    };
    let mut cronjob = CronJob::new("lunch", spec);
    cronjob.metadata.namespace = Some("default".into());
    cronjob.metadata.uid = Some("uid-1".into());
    cronjob.metadata.generation = Some(1);
    cronjob.metadata.creation_timestamp = Some(Time(time(CREATED)));
    cronjob
}

/// A Job of the CronJob, as in the cluster. `ended` is the type of a condition.
pub(crate) fn child(cronjob: &CronJob, at: &str, ended: Option<&str>) -> Arc<Job> {
    let mut job = job(cronjob, cronjob.spec.job_template.read().unwrap(), time(at));
    job.metadata.finalizers = None;
    owner::set_controller_reference(cronjob, &mut job).unwrap();
    let condition =
        ended.map(|ended| JobCondition { type_: ended.into(), status: "True".into(), ..Default::default() });
    job.status = Some(JobStatus {
        start_time: Some(Time(time(at))),
        completion_time: (ended == Some("Complete")).then(|| Time(time(at))),
        conditions: Some(condition.into_iter().collect()),
        ..JobStatus::default()
    });
    Arc::new(job)
}

fn planned(cronjob: &CronJob, last: Option<&str>, now: &str) -> Plan {
    plan(cronjob, &Children::default(), last.map(time), time(now))
}

/// Returns the scheduled time that is due.
fn due(plan: &Plan) -> Option<String> {
    match &plan.situation {
        Situation::Due { time, .. } => Some(time.to_string()),
        _ => None,
    }
}

#[test]
fn the_latest_time_after_the_last_run_or_the_creation_is_due() {
    let check = |schedule: &str, last: Option<&str>, now: &str, expect: Option<&str>, next: &str| {
        let plan = planned(&cronjob(schedule), last, now);
        assert_eq!(due(&plan).as_deref(), expect, "{schedule} {last:?} {now}: {plan:?}");
        assert_eq!(plan.next, Some(time(next)), "{schedule} {last:?} {now}");
    };
    let minutely = "*/1 * * * *";
    check(minutely, None, CREATED, None, "2020-01-30T10:01:00Z");
    check(minutely, None, "2020-01-30T10:00:59.999Z", None, "2020-01-30T10:01:00Z");
    check(minutely, None, "2020-01-30T10:01:00Z", Some("2020-01-30T10:01:00Z"), "2020-01-30T10:02:00Z");
    check(minutely, Some("2020-01-30T10:01:00Z"), "2020-01-30T10:01:30Z", None, "2020-01-30T10:02:00Z");
    // Only the latest time is due.
    check(minutely, None, "2030-01-30T10:05:30Z", Some("2030-01-30T10:05:00Z"), "2030-01-30T10:06:00Z");
    check("@every 90s", None, "2020-01-30T10:03:40Z", Some("2020-01-30T10:03:30Z"), "2020-01-30T10:05:00Z");
    // If the clock is before the creation or the last run, nothing is due.
    check(minutely, None, "2019-01-30T10:00:00Z", None, "2020-01-30T10:01:00Z");
    check(minutely, Some("2021-01-30T10:00:00Z"), "2020-01-30T10:00:00Z", None, "2021-01-30T10:01:00Z");
}

#[test]
fn the_deadline_counts_from_the_time_of_the_schedule() {
    let check = |deadline: i64, now: &str, late: bool| {
        let mut cronjob = cronjob("0 * * * *");
        cronjob.spec.starting_deadline_seconds = Some(deadline);
        let situation = planned(&cronjob, None, now).situation;
        assert_eq!(matches!(situation, Situation::TooLate { .. }), late, "{deadline} {now}: {situation:?}");
        assert_eq!(matches!(situation, Situation::Due { .. }), !late, "{deadline} {now}: {situation:?}");
    };
    // The deadline includes the whole second.
    check(0, "2020-01-30T11:00:00.9Z", false);
    check(0, "2020-01-30T11:00:01Z", true);
    check(60, "2020-01-30T11:01:00Z", false);
    check(60, "2020-01-30T11:01:01Z", true);
    check(i64::MAX, "2020-01-30T11:59:00Z", false);
    // After years of downtime, only the latest time can be on time.
    check(3600, "2030-01-30T11:30:00Z", false);
}

#[test]
fn spec_errors_are_reported() {
    let check = |edit: &dyn Fn(&mut CronJob), expect: &str| {
        let mut cronjob = cronjob("* * * * *");
        edit(&mut cronjob);
        match planned(&cronjob, None, "2020-01-30T11:00:00Z") {
            Plan { situation: Situation::Invalid(error), next: None } => {
                assert!(error.to_string().contains(expect), "{error}");
            }
            other => panic!("{expect}: {other:?}"),
        }
    };
    check(&|it| it.spec.schedule = "* * * * * *".into(), "found 6");
    check(&|it| it.spec.schedule = "0 0 30 2 *".into(), "no date satisfies");
    check(&|it| it.spec.time_zone = Some("Nowhere".into()), "unknown time zone");
    check(&|it| it.spec.job_template = template(json!({"spec": 5})), "spec.jobTemplate: invalid type");
    // A name of 53 characters is too long.
    check(&|it| it.metadata.name = Some("x".repeat(53)), "must be no more than 52 characters");
    let mut longest = cronjob("* * * * *");
    longest.metadata.name = Some("x".repeat(52));
    let plan = planned(&longest, None, "2020-01-30T11:00:00Z");
    assert!(matches!(&plan.situation, Situation::Due { job, .. } if job.name_any().len() == 63));
}

#[test]
fn suspended_nothing_is_due() {
    let mut cronjob = cronjob("* * * * *");
    cronjob.spec.suspend = Some(true);
    let plan = planned(&cronjob, None, "2020-01-30T11:00:00Z");
    assert_eq!(plan, Plan { situation: Situation::Suspended, next: None });
}

#[test]
fn the_policy_decides_about_those_that_run() {
    let check = |policy: Option<ConcurrencyPolicy>, ended: Option<&str>, expect: &str| {
        let mut cronjob = cronjob("* * * * *");
        cronjob.spec.concurrency_policy = policy;
        let children = [child(&cronjob, "2020-01-30T10:01:00Z", ended)].into_iter().collect();
        let plan = plan(&cronjob, &children, Some(time("2020-01-30T10:01:00Z")), time("2020-01-30T10:02:00Z"));
        assert!(format!("{:?}", plan.situation).starts_with(expect), "{policy:?} {ended:?}: {plan:?}");
        assert_eq!(plan.next, Some(time("2020-01-30T10:03:00Z")));
    };
    check(None, None, "Due");
    check(Some(ConcurrencyPolicy::Allow), None, "Due");
    check(Some(ConcurrencyPolicy::Forbid), None, "Forbidden");
    check(Some(ConcurrencyPolicy::Replace), None, "Replacing");
    for ended in ["Complete", "Failed"] {
        check(Some(ConcurrencyPolicy::Forbid), Some(ended), "Due");
        check(Some(ConcurrencyPolicy::Replace), Some(ended), "Due");
    }
    check(Some(ConcurrencyPolicy::Forbid), Some("FailureTarget"), "Forbidden");
}

#[test]
fn the_job_has_the_documented_fields() {
    let mut cronjob = cronjob("* * * * *");
    cronjob.spec.job_template = template(json!({
        "metadata": {"name": "ignored", "labels": {"a": "1"}, "annotations": {"b": "2"}},
        "spec": {"backoffLimit": 3, "template": {}},
    }));
    let Situation::Due { time: at, job } = planned(&cronjob, None, "2020-01-30T10:01:00Z").situation else { panic!() };
    let expect = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "lunch-1580378460",
            "namespace": "default",
            "labels": {"a": "1"},
            "annotations": {"b": "2", "batch.tutorial.kubebuilder.io/scheduled-at": "2020-01-30T10:01:00Z"},
            "finalizers": ["batch.tutorial.kubebuilder.io/unrecorded"],
        },
        "spec": {"backoffLimit": 3, "template": {}},
    });
    assert_eq!(serde_json::to_value(&*job).unwrap(), expect);
    assert_eq!(at, time("2020-01-30T10:01:00Z"));
    assert_eq!(cronjob_name("lunch-1580378460"), Some("lunch"));
    assert_eq!(cronjob_name("two-words-1580378460"), Some("two-words"));
    for other in ["lunch", "lunch-", "lunch-1x", "-", ""] {
        assert_eq!(cronjob_name(other), None, "{other}");
    }
}

#[test]
fn history_is_trimmed_oldest_first() {
    let check = |failed: Option<i32>, succeeded: Option<i32>, expect: &[&str]| {
        let mut cronjob = cronjob("* * * * *");
        cronjob.spec.failed_jobs_history_limit = failed;
        cronjob.spec.successful_jobs_history_limit = succeeded;
        let jobs = [
            child(&cronjob, "2020-01-30T10:03:00Z", Some("Complete")),
            child(&cronjob, "2020-01-30T10:01:00Z", Some("Complete")),
            child(&cronjob, "2020-01-30T10:02:00Z", Some("Failed")),
            child(&cronjob, "2020-01-30T10:04:00Z", None),
        ];
        let children: Children = jobs.into_iter().collect();
        let minutes: Vec<_> =
            children.excess(&cronjob).iter().map(|job| job.annotations()[SCHEDULED_AT][14..16].to_owned()).collect();
        assert_eq!(minutes, expect, "{failed:?} {succeeded:?}");
    };
    check(None, None, &[]);
    check(Some(1), Some(3), &[]);
    check(None, Some(1), &["01"]);
    check(Some(0), Some(1), &["02", "01"]);
    check(Some(0), Some(0), &["02", "01", "03"]);
    check(Some(i32::MAX), Some(0), &["01", "03"]);
}

#[test]
fn the_last_run_is_known_from_the_record_the_jobs_or_at_worst_the_status() {
    let mut cronjob = cronjob("* * * * *");
    let last = |cronjob: &CronJob, jobs: &[Arc<Job>]| record::last(cronjob, &jobs.iter().cloned().collect());
    assert_eq!(last(&cronjob, &[]), None);
    let job = child(&cronjob, "2020-01-30T10:01:00Z", None);
    assert_eq!(last(&cronjob, std::slice::from_ref(&job)), Some(time("2020-01-30T10:01:00Z")));

    cronjob.status = Some(crate::api::v1::CronJobStatus {
        last_schedule_time: Some(Time(time("2020-01-30T10:05:00Z"))),
        ..Default::default()
    });
    assert_eq!(last(&cronjob, &[]), Some(time("2020-01-30T10:05:00Z")));
    let patch = record::patch(&cronjob, time("2020-01-30T10:02:00Z"));
    assert_eq!(patch["metadata"]["uid"], "uid-1");
    let annotation = patch["metadata"]["annotations"][LAST].as_str().unwrap();
    cronjob.annotations_mut().insert(LAST.into(), annotation.into());
    assert_eq!(last(&cronjob, &[job]), Some(time("2020-01-30T10:02:00Z")), "the status is not heard");

    // A Job with an edited annotation is ignored.
    let mut edited = child(&cronjob, "2020-01-30T10:03:00Z", None).as_ref().clone();
    edited.annotations_mut().insert(SCHEDULED_AT.into(), "2020-01-30T10:04:00Z".into());
    assert_eq!(last(&cronjob, &[Arc::new(edited)]), Some(time("2020-01-30T10:02:00Z")));

    cronjob.metadata.uid = Some("uid-2".into());
    assert_eq!(record::recorded(&cronjob), None, "a manifest exported from another CronJob");
    cronjob.annotations_mut().insert(LAST.into(), "nonsense".into());
    assert_eq!(record::recorded(&cronjob), None);
}

#[test]
fn ownership_of_a_job_is_decided_by_uid() {
    let cronjob = cronjob("* * * * *");
    let mut job = child(&cronjob, "2020-01-30T10:01:00Z", None).as_ref().clone();
    assert!(is_own(&cronjob, &job));
    job.metadata.owner_references.as_mut().unwrap()[0].uid = "uid-0".into();
    assert!(!is_own(&cronjob, &job));
    job.metadata.owner_references = None;
    assert!(!is_own(&cronjob, &job));
}
