use super::{
    super::plan::tests::{child, cronjob, time},
    *,
};

const NOW: &str = "2020-01-30T10:02:30Z";

fn reported(cronjob: &CronJob, last: Option<&str>, now: &str) -> CronJobStatus {
    let children = Children::default();
    let plan = plan::plan(cronjob, &children, last.map(time), time(now));
    status(cronjob, &children, last.map(time), &plan, time(now))
}

/// `type status reason` of each condition.
fn conditions(status: &CronJobStatus) -> Vec<String> {
    status.conditions.iter().map(|it| format!("{} {} {}", it.type_, it.status, it.reason)).collect()
}

fn reasons(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.reason.as_str()).collect()
}

#[test]
fn each_situation_has_its_conditions() {
    let check = |edit: &dyn Fn(&mut CronJob), last: Option<&str>, expect: &[&str]| {
        let mut cronjob = cronjob("* * * * *");
        edit(&mut cronjob);
        let status = reported(&cronjob, last, NOW);
        assert_eq!(conditions(&status), expect);
        assert_eq!(status.observed_generation, Some(1));
        // The status is stable.
        cronjob.status = Some(status.clone());
        assert_eq!(reported(&cronjob, last, "2020-01-30T10:02:45Z"), status);
        assert_eq!(warnings(Some(&status), &status), []);
    };
    let ran = Some("2020-01-30T10:02:00Z");
    check(&|_| {}, ran, &["Ready True Scheduled", "Missed False Started"]);
    check(&|it| it.spec.schedule = "0 * * * *".into(), None, &["Ready True Scheduled"]);
    check(&|it| it.spec.suspend = Some(true), ran, &["Ready True Suspended"]);
    check(&|it| it.spec.schedule = "x".into(), ran, &["Ready False InvalidSchedule"]);
    check(&|it| it.spec.schedule = "0 0 30 2 *".into(), None, &["Ready False NeverMatches"]);
    check(&|it| it.spec.time_zone = Some("Nowhere".into()), None, &["Ready False UnknownTimeZone"]);
    check(&|it| it.metadata.name = Some("x".repeat(53)), None, &["Ready False NameTooLong"]);
    check(
        &|it| it.spec.starting_deadline_seconds = Some(9),
        None,
        &["Ready True Scheduled", "Missed True TooLate", "ShortDeadline True MayBeMissed"],
    );
    check(&|it| it.spec.starting_deadline_seconds = Some(10), None, &["Ready True Scheduled", "Missed True TooLate"]);
}

#[test]
fn a_new_problem_causes_one_warning() {
    let mut cronjob = cronjob("* * * * *");
    cronjob.spec.starting_deadline_seconds = Some(5);
    let late = reported(&cronjob, None, NOW);
    assert_eq!(reasons(&warnings(None, &late)), ["TooLate", "ShortDeadline"]);
    cronjob.status = Some(late.clone());
    let later = reported(&cronjob, None, "2020-01-30T10:03:30Z");
    assert_eq!(reasons(&warnings(Some(&late), &later)), ["TooLate"], "each time of the schedule is one");
    cronjob.spec.starting_deadline_seconds = None;
    let well = reported(&cronjob, Some("2020-01-30T10:03:00Z"), "2020-01-30T10:03:30Z");
    assert_eq!(warnings(Some(&later), &well), []);
    assert_eq!(conditions(&well), ["Ready True Scheduled", "Missed False Started"]);
}

#[test]
fn a_success_is_remembered_when_its_job_is_gone() {
    let mut cronjob = cronjob("* * * * *");
    let jobs = ["2020-01-30T10:01:00Z", "2020-01-30T10:02:00Z"].map(|at| child(&cronjob, at, Some("Complete")));
    let children: Children = jobs.into_iter().collect();
    let last = Some(time("2020-01-30T10:02:00Z"));
    let plan = plan::plan(&cronjob, &children, last, time(NOW));
    let before = status(&cronjob, &children, last, &plan, time(NOW));
    assert_eq!(before.last_successful_time, last.map(Time));
    assert_eq!(before.next_schedule_time, Some(Time(time("2020-01-30T10:03:00Z"))));
    cronjob.status = Some(before.clone());
    assert_eq!(status(&cronjob, &Children::default(), last, &plan, time(NOW)), before);
}

#[test]
fn the_jobs_that_run_are_referred_to() {
    let cronjob = cronjob("* * * * *");
    let children: Children = [child(&cronjob, "2020-01-30T10:02:00Z", None)].into_iter().collect();
    let references = serde_json::to_value(children.references()).unwrap();
    let expect = serde_json::json!([{
        "apiVersion": "batch/v1", "kind": "Job", "namespace": "default", "name": "lunch-1580378520",
    }]);
    assert_eq!(references, expect);
}

#[test]
fn long_lists_of_names_are_shortened() {
    let names: Vec<_> = (0..1000).map(|number| format!("lunch-{number}")).collect();
    assert_eq!(some(&names), "job \"lunch-0\", job \"lunch-1\", job \"lunch-2\" and 997 more");
}
