use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::controllers::reconcile::status_of;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// A cron job that was created at noon, of which `spec` replaces fields.
fn cron(spec: Value) -> Value {
    let mut cron = json!({
        "metadata": {"name": "tick", "namespace": "default", "uid": "c", "creationTimestamp": "2024-01-01T12:00:00Z"},
        "spec": {
            "schedule": "*/10 * * * *", "concurrencyPolicy": "Allow", "suspend": false,
            "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}},
        },
        "status": {},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        cron["spec"][field] = value.clone();
    }
    cron
}

/// The job of a minute after noon, with a condition if it is finished.
fn job(minute: i64, condition: Option<&str>) -> Value {
    let scheduled = at("2024-01-01T12:00:00Z") + SignedDuration::from_mins(minute);
    let name = format!("tick-{}", scheduled.as_second() / 60);
    let mut job = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name}, "status": {"startTime": scheduled.to_string()},
    });
    if let Some(condition) = condition {
        job["status"]["conditions"] = json!([{"type": condition, "status": "True"}]);
        job["status"]["completionTime"] = scheduled.to_string().into();
    }
    job
}

fn plan(cron: &Value, jobs: &[Value], now: &str) -> Plan {
    let taken = |name: &str| jobs.iter().any(|job| job["metadata"]["name"] == name);
    let mut plan = Plan::of(&CRON_JOB, cron);
    decide(cron, &jobs.iter().collect::<Vec<_>>(), &taken, at(now), &mut plan);
    plan
}

/// The steps but the status: `+` and `-` with the minute of the job, and the reasons of events.
fn steps(plan: &Plan) -> Vec<String> {
    let minute = |name: &str| {
        let minutes: i64 = name.trim_start_matches("tick-").parse().expect("minutes");
        minutes - at("2024-01-01T12:00:00Z").as_second() / 60
    };
    let show = |step: &Step| match step.parts().0 {
        Step::Create(_, job) => Some(format!("+{}", minute(text(job, "/metadata/name")))),
        Step::Delete(path, ..) => Some(format!("-{}", minute(&path.name))),
        Step::Event { reason, .. } => Some((*reason).into()),
        Step::Merge(_, "/status", _) => None,
        other => panic!("{other:?}"),
    };
    plan.steps.iter().filter_map(show).collect()
}

#[test]
fn a_job_is_created_when_it_is_due() {
    let waiting = plan(&cron(json!({})), &[], "2024-01-01T12:08:30Z");
    assert!(steps(&waiting).is_empty());
    assert_eq!(waiting.requeue_after, Some(std::time::Duration::from_secs(90)));
    let due = plan(&cron(json!({})), &[], "2024-01-01T12:10:01Z");
    assert_eq!(steps(&due), ["+10"]);
    assert_eq!(status_of(&due), json!({"lastScheduleTime": "2024-01-01T12:10:00Z"}));
    let Some((Step::Create(path, made), Some(_))) = due.steps.first().map(Step::parts) else { panic!("{due:?}") };
    assert_eq!(path.to_string(), "/apis/batch/v1/namespaces/default/jobs");
    assert_eq!(made["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(made["metadata"]["annotations"][SCHEDULED], "2024-01-01T12:10:00Z");
    let mut done = cron(json!({}));
    done["status"] = json!({"lastScheduleTime": "2024-01-01T12:10:00Z"});
    let next = plan(&done, &[], "2024-01-01T12:10:01Z");
    assert!(steps(&next).is_empty());
    assert_eq!(next.requeue_after, Some(std::time::Duration::from_secs(599)));
}

#[test]
fn zones_are_respected() {
    let zoned = cron(json!({"schedule": "0 14 * * *", "timeZone": "Europe/Berlin"}));
    let due = plan(&zoned, &[], "2024-01-01T13:00:00Z");
    let Some((Step::Create(_, made), Some(_))) = due.steps.first().map(Step::parts) else { panic!("{due:?}") };
    assert_eq!(made["metadata"]["annotations"][SCHEDULED], "2024-01-01T14:00:00+01:00");
    assert_eq!(steps(&plan(&cron(json!({"timeZone": "Moon/Base"})), &[], "2024-01-01T13:00:00Z")), ["UnknownTimeZone"]);
}

#[test]
fn missed_times_are_made_up_for_once() {
    assert_eq!(steps(&plan(&cron(json!({})), &[], "2024-01-01T12:45:00Z")), ["+40"]);
    let late = plan(&cron(json!({"schedule": "* * * * *"})), &[], "2024-01-02T12:00:30Z");
    assert_eq!(steps(&late), ["TooManyMissedTimes", "+1440"]);
    let deadline = cron(json!({"startingDeadlineSeconds": 60}));
    assert_eq!(steps(&plan(&deadline, &[], "2024-01-01T12:40:30Z")), ["+40"]);
    assert!(steps(&plan(&deadline, &[], "2024-01-01T12:45:00Z")).is_empty());
    let every = cron(json!({"schedule": "@every 7m"}));
    assert_eq!(steps(&plan(&every, &[], "2024-01-01T12:30:00Z")), ["+28"]);
    assert_eq!(plan(&every, &[], "2024-01-01T12:30:00Z").requeue_after, Some(std::time::Duration::from_secs(300)));
    assert!(steps(&plan(&cron(json!({"suspend": true})), &[], "2024-01-01T12:45:00Z")).is_empty());
    assert_eq!(
        steps(&plan(&cron(json!({"schedule": "0 0 31 2 *"})), &[], "2024-01-01T12:45:00Z")),
        ["InvalidSchedule"]
    );
}

#[test]
fn policies_decide_about_concurrent_jobs() {
    let running = [job(10, None)];
    let check = |policy: &str, expect: &[&str]| {
        let mut cron = cron(json!({"concurrencyPolicy": policy}));
        cron["status"] = json!({"lastScheduleTime": "2024-01-01T12:10:00Z"});
        assert_eq!(steps(&plan(&cron, &running, "2024-01-01T12:20:00Z")), expect, "{policy}");
    };
    let unexpected = "UnexpectedJob";
    check("Allow", &["+20", unexpected]);
    check("Forbid", &["JobAlreadyActive"]);
    check("Replace", &["-10", "+20", unexpected]);
}

#[test]
fn the_status_lists_active_jobs() {
    let mut cron = cron(json!({}));
    cron["status"] = json!({"lastScheduleTime": "2024-01-01T12:10:00Z"});
    let jobs = [job(10, None)];
    let status = status_of(&plan(&cron, &jobs, "2024-01-01T12:11:00Z"));
    assert_eq!(status["active"][0]["name"], jobs[0]["metadata"]["name"]);
    cron["status"] = status;
    assert_eq!(status_of(&plan(&cron, &jobs, "2024-01-01T12:12:00Z")), Value::Null, "nothing new");
    let finished = plan(&cron, &[job(10, Some("Complete"))], "2024-01-01T12:13:00Z");
    assert_eq!(steps(&finished), ["SawCompletedJob"]);
    let expect = json!({"active": null, "lastScheduleTime": "2024-01-01T12:10:00Z", "lastSuccessfulTime": "2024-01-01T12:10:00Z"});
    assert_eq!(status_of(&finished), expect);
    assert_eq!(steps(&plan(&cron, &[], "2024-01-01T12:13:00Z")), ["MissingJob"]);
}

#[test]
fn finished_jobs_have_a_limit() {
    let mut cron = cron(json!({}));
    cron["status"] = json!({"lastScheduleTime": "2024-01-01T13:00:00Z"});
    let mut jobs: Vec<_> = (1..=5).map(|number| job(number * 10, Some("Complete"))).collect();
    jobs.extend([job(1, Some("Failed")), job(2, Some("Failed"))]);
    assert_eq!(steps(&plan(&cron, &jobs, "2024-01-01T13:01:00Z")), ["-10", "-20", "-1"]);
}
