use super::{index::Indexes, *};
use crate::controllers::reconcile::status_of;

fn now() -> Timestamp {
    "2024-01-01T00:01:00Z".parse().expect("a time")
}

fn job(spec: Value) -> Value {
    let mut job = json!({
        "metadata": {"name": "sum", "namespace": "default", "uid": "j"},
        "spec": {
            "parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
            "podReplacementPolicy": "TerminatingOrFailed",
            "template": {"metadata": {"labels": {"job-name": "sum"}}, "spec": {
                "restartPolicy": "Never", "containers": [{"name": "main"}],
            }},
        },
        "status": {"startTime": "2024-01-01T00:00:00Z"},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        job["spec"][field] = value.clone();
    }
    job
}

/// A pod, optionally ended at a second of the first minute.
fn pod(name: &str, phase: &str, ended: Option<u8>) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "finalizers": [FINALIZER]},
        "status": {"phase": phase},
    });
    if let Some(second) = ended {
        let at = format!("2024-01-01T00:00:{second:02}Z");
        pod["status"]["containerStatuses"] = json!([{"state": {"terminated": {"finishedAt": at}}}]);
    }
    pod
}

fn plan(job: &Value, pods: &[Value]) -> Plan {
    let pods: Vec<_> = pods.iter().cloned().map(Arc::new).collect();
    let mut plan = Plan::of(&JOB, job);
    decide(job, &pods, &mut EndedPods::default(), now(), &mut plan);
    plan
}

fn made(plan: &Plan) -> &[Value] {
    let pods = plan.steps.iter().find_map(|step| match step {
        Step::CreatePods(pods) => Some(pods.as_slice()),
        _ => None,
    });
    pods.unwrap_or_default()
}

fn conditions(status: &Value) -> Vec<&str> {
    status["conditions"].as_array().into_iter().flatten().filter_map(|one| one["type"].as_str()).collect()
}

#[test]
fn an_ended_pod_is_noted_then_released_then_counted() {
    let mut object = job(json!({}));
    let mut done = pod("a", "Succeeded", Some(50));
    let first = plan(&object, std::slice::from_ref(&done));
    let status = status_of(&first);
    assert_eq!(status["uncountedTerminatedPods"], json!({"succeeded": ["a"]}));
    assert_eq!(status.get("succeeded"), None);
    assert_eq!(conditions(&status), ["SuccessCriteriaMet"]);
    assert!(matches!(first.steps.last(), Some(Step::Merge(..))), "it is let go after the note");
    object["status"] = status;
    done["metadata"]["finalizers"] = json!([]);
    let second = plan(&object, &[done]);
    let status = status_of(&second);
    assert_eq!((&status["succeeded"], conditions(&status)), (&json!(1), vec!["SuccessCriteriaMet", "Complete"]));
    assert_eq!(status["uncountedTerminatedPods"]["succeeded"], Value::Null);
    assert!(status["completionTime"].is_string());
    // A pod that disappears after its UID was recorded is counted as well.
    assert_eq!(status_of(&plan(&object, &[]))["succeeded"], 1);
}

#[test]
fn failures_delay_what_follows() {
    let check = |ends: &[(bool, u8)], expect: Option<u64>| {
        let pods: Vec<_> = ends
            .iter()
            .enumerate()
            .map(|(index, (failed, at))| {
                pod(&index.to_string(), if *failed { "Failed" } else { "Succeeded" }, Some(*at))
            })
            .collect();
        let plan = plan(&job(json!({"completions": 5})), &pods);
        assert_eq!(plan.requeue_after.map(|delay| delay.as_secs()), expect, "{ends:?}");
        assert_eq!(made(&plan).is_empty(), expect.is_some(), "{ends:?}");
    };
    check(&[], None);
    check(&[(true, 55)], Some(5));
    check(&[(true, 45)], None);
    check(&[(true, 30), (true, 45)], Some(5));
    check(&[(true, 20), (true, 30), (true, 45)], Some(25));
    check(&[(true, 30), (true, 45), (false, 50)], None);
    check(&[(false, 50), (true, 55)], Some(5));
}

#[test]
fn active_pods_are_created_and_deleted() {
    let check = |spec: Value, running: usize, expect: i64| {
        let pods: Vec<_> = (0..running).map(|index| pod(&index.to_string(), "Running", None)).collect();
        let plan = plan(&job(spec.clone()), &pods);
        let deleted = plan.steps.iter().find_map(|step| match step {
            Step::DeletePods(pods) => Some(i64::try_from(pods.len()).expect("few")),
            _ => None,
        });
        let change = i64::try_from(made(&plan).len()).expect("few") - deleted.unwrap_or_default();
        assert_eq!(change, expect, "{spec} {running}");
    };
    check(json!({"completions": 5, "parallelism": 2}), 0, 2);
    check(json!({"completions": 5, "parallelism": 2}), 2, 0);
    check(json!({"completions": 5, "parallelism": 2}), 3, -1);
    check(json!({"completions": 1, "parallelism": 9}), 0, 1);
    check(json!({"completions": null, "parallelism": 3}), 1, 2);
    check(json!({"completions": 5, "parallelism": 0}), 2, -2);
    check(json!({"suspend": true}), 1, -1);
    check(json!({"suspend": true}), 0, 0);
}

#[test]
fn limits_end_a_job() {
    let check = |spec: Value, pods: &[Value], expect: &str| {
        let plan = plan(&job(spec.clone()), pods);
        let status = status_of(&plan);
        assert_eq!(status["conditions"][0]["type"], "FailureTarget", "{spec}");
        assert_eq!(status["conditions"][0]["reason"], expect, "{spec}");
        assert_eq!(conditions(&status).len(), 1, "pods that run or aren't counted come first");
        assert!(made(&plan).is_empty());
    };
    check(json!({"backoffLimit": 0}), &[pod("a", "Failed", Some(1))], "BackoffLimitExceeded");
    check(json!({"activeDeadlineSeconds": 60}), &[pod("a", "Running", None)], "DeadlineExceeded");
    let mut restarted = pod("a", "Running", None);
    restarted["status"]["containerStatuses"] = json!([{"restartCount": 2}]);
    let template = json!({"spec": {"restartPolicy": "OnFailure", "containers": []}});
    check(json!({"backoffLimit": 2, "template": template}), &[restarted], "BackoffLimitExceeded");
    let early = plan(&job(json!({"activeDeadlineSeconds": 100})), &[pod("a", "Running", None)]);
    assert_eq!(early.requeue_after, Some(Duration::from_secs(40)));
}

#[test]
fn indexes_are_given_once_each() {
    let object = job(json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4}));
    let indexed = |name: &str, phase: &str, index: u8| {
        let mut pod = pod(name, phase, (phase != "Running").then_some(1));
        pod["metadata"]["annotations"][uncounted_pods::INDEX] = index.to_string().into();
        pod
    };
    let plan = plan(&object, &[indexed("a", "Succeeded", 0), indexed("b", "Running", 2), indexed("c", "Failed", 1)]);
    let status = status_of(&plan);
    assert_eq!((&status["completedIndexes"], &status["succeeded"]), (&json!("0"), &json!(1)));
    assert_eq!(status["uncountedTerminatedPods"], json!({"failed": ["c"]}));
    let indexes: Vec<_> = made(&plan).iter().filter_map(uncounted_pods::index_of).collect();
    assert_eq!(indexes, [1, 3]);
    let pod = &made(&plan)[0];
    assert_eq!((&pod["metadata"]["generateName"], &pod["spec"]["hostname"]), (&json!("sum-1-"), &json!("sum-1")));
    assert_eq!(pod["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
    assert_eq!(Indexes::parse("0-3", 4).0.len(), 4);
}

#[test]
fn a_suspended_job_has_a_condition_and_restarts_its_clock() {
    let mut object = job(json!({"suspend": true}));
    object["status"] = json!({});
    let status = status_of(&plan(&object, &[]));
    assert_eq!((status.get("startTime"), status["conditions"][0]["reason"].as_str()), (None, Some("JobSuspended")));
    object["status"] = status;
    object["spec"]["suspend"] = false.into();
    let status = status_of(&plan(&object, &[]));
    assert_eq!(status["conditions"][0]["status"], "False");
    assert_eq!(status["startTime"], "2024-01-01T00:01:00Z");
}

/// A pod of an index, with the number of earlier failures.
fn indexed(index: i64, phase: &str, failures: i64) -> Value {
    let mut pod = pod(&format!("{index}-{failures}"), phase, (phase != "Running").then_some(1));
    pod["metadata"]["annotations"] =
        json!({uncounted_pods::INDEX: index.to_string(), policy::FAILURES: failures.to_string()});
    pod
}

fn per_index(spec: Value) -> Value {
    let mut all = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1});
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    job(all)
}

#[test]
fn failures_are_counted_per_index() {
    let pods = [indexed(0, "Failed", 0), indexed(1, "Failed", 1), indexed(2, "Running", 0)];
    let first = plan(&per_index(json!({})), &pods);
    assert_eq!(status_of(&first)["failedIndexes"], "1");
    let annotations = |pod: &Value| pod["metadata"]["annotations"].clone();
    let expect = json!({uncounted_pods::INDEX: "0", policy::FAILURES: "1"});
    assert_eq!(made(&first).iter().map(annotations).collect::<Vec<_>>(), [expect]);
    let exceeded = plan(&per_index(json!({"maxFailedIndexes": 0})), &pods);
    assert_eq!(status_of(&exceeded)["conditions"][0]["reason"], "MaxFailedIndexesExceeded");
    let ended = [indexed(0, "Succeeded", 0), indexed(1, "Failed", 1), indexed(2, "Succeeded", 0)];
    let ended = status_of(&plan(&per_index(json!({})), &ended));
    assert_eq!(
        (&ended["conditions"][0]["type"], &ended["conditions"][0]["reason"]),
        (&json!("FailureTarget"), &json!("FailedIndexes"))
    );
    assert_eq!(ended["completedIndexes"], "0,2");
}

#[test]
fn a_success_policy_ends_a_job_early() {
    let rules = json!({"rules": [{"succeededIndexes": "0"}]});
    let object = per_index(json!({"successPolicy": rules, "backoffLimitPerIndex": null}));
    let met = plan(&object, &[indexed(0, "Succeeded", 0), indexed(1, "Running", 0)]);
    let status = status_of(&met);
    assert_eq!(
        (&status["conditions"][0]["type"], &status["conditions"][0]["reason"]),
        (&json!("SuccessCriteriaMet"), &json!("SuccessPolicy"))
    );
    assert!(met.steps.iter().any(|step| matches!(step, Step::DeletePods(pods) if pods[0].0 == "1-0")), "{met:?}");
}

#[test]
fn a_failure_policy_ignores_failures_or_fails_the_job() {
    let rules = json!({"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]});
    let object = job(json!({"podFailurePolicy": rules, "podReplacementPolicy": "Failed", "backoffLimit": 0}));
    let mut ended = pod("a", "Failed", Some(1));
    ended["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"}]);
    let ignored = plan(&object, std::slice::from_ref(&ended));
    assert_eq!(status_of(&ignored)["uncountedTerminatedPods"], json!({}));
    let releases = |step: &Step| matches!(step, Step::Merge(path, "", _) if path.name == "a");
    assert!(ignored.steps.iter().any(releases));
    ended["status"] =
        json!({"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 42}}}]});
    let failed = status_of(&plan(&object, &[ended]));
    let message = "Container main for pod default/a failed with exit code 42 matching FailJob rule at index 1";
    assert_eq!(failed["conditions"][0]["message"], message);
}

#[test]
fn orphaned_pods_lose_the_finalizer_unless_a_job_adopts_them() {
    let pods = Objects::default();
    let mut jobs = Jobs::new(pods.clone());
    let orphan = pod("left", "Running", None);
    pods.insert(&orphan, orphan.clone().into());
    assert!(jobs.take_pod(&orphan, false));
    let released = |jobs: &Jobs| jobs.decide(&Key::first_of("default"), now()).steps;
    let [Step::Merge(path, "", patch)] = &released(&jobs)[..] else { panic!("no write") };
    assert_eq!((path.name.as_str(), &patch["metadata"]["finalizers"]), ("left", &json!([])));
    assert_eq!(released(&jobs).len(), 1, "until the change has arrived");

    let mut owned = orphan.clone();
    owned["metadata"]["ownerReferences"] = json!([{"controller": true, "uid": "o"}]);
    assert!(!jobs.take_pod(&owned, false));
    assert_eq!(released(&jobs), []);
    assert!(jobs.take_pod(&orphan, false) && !jobs.take_pod(&orphan, true));
    assert_eq!(released(&jobs), []);
}

fn deleting(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:01:00Z".into();
    pod["metadata"]["deletionGracePeriodSeconds"] = 5.into();
    pod
}

#[test]
fn the_pods_of_a_failed_job_count_as_failed_at_once() {
    let rules = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]});
    let object =
        job(json!({"parallelism": 2, "completions": 2, "podFailurePolicy": rules, "podReplacementPolicy": "Failed"}));
    let mut failed = pod("a", "Failed", Some(50));
    failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] = 42.into();
    let plan = plan(&object, &[failed, pod("b", "Running", None)]);
    assert_eq!(status_of(&plan)["uncountedTerminatedPods"], json!({"failed": ["a", "b"]}));
    assert!(matches!(plan.steps.last(), Some(Step::DeletePods(pods)) if pods.len() == 1), "{plan:?}");
    let released = plan.steps.iter().filter(|step| matches!(step, Step::Merge(_, "", _))).count();
    assert_eq!(released, 2);
}

#[test]
fn the_pods_that_a_success_policy_ends_have_not_failed() {
    let object = job(json!({
        "parallelism": 2, "completions": 2, "completionMode": "Indexed",
        "successPolicy": {"rules": [{"succeededCount": 1}]},
    }));
    let index = |mut pod: Value, index: &str| {
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = index.into();
        pod
    };
    let pods = [index(pod("a", "Succeeded", Some(50)), "0"), index(pod("b", "Running", None), "1")];
    let plan = plan(&object, &pods);
    let status = status_of(&plan);
    assert_eq!((&status["completedIndexes"], &status["uncountedTerminatedPods"]), (&json!("0"), &json!({})));
    let released = plan.steps.iter().filter(|step| matches!(step, Step::Merge(_, "", _))).count();
    assert_eq!(released, 2);
}

#[test]
fn a_suspended_job_has_no_start_time() {
    let status = status_of(&plan(&job(json!({"suspend": true})), &[]));
    assert_eq!(status["startTime"], Value::Null);
}

#[test]
fn failures_are_remembered_when_the_pods_are_gone() {
    let object = job(json!({}));
    let mut ended = EndedPods::default();
    let mut decided = |pods: &[Value]| {
        let pods: Vec<_> = pods.iter().cloned().map(Arc::new).collect();
        let mut plan = Plan::of(&JOB, &object);
        decide(&object, &pods, &mut ended, now(), &mut plan);
        plan
    };
    let failed = deleting(pod("a", "Running", None));
    assert!(made(&decided(std::slice::from_ref(&failed))).is_empty());
    let gone = decided(&[]);
    assert!(made(&gone).is_empty());
    assert_eq!(gone.requeue_after, Some(Duration::from_secs(5)));
}

#[test]
fn the_youngest_pod_is_superfluous_whatever_its_index() {
    let object = job(json!({"parallelism": 1, "completions": 3, "completionMode": "Indexed"}));
    let made = |name: &str, index: &str, second: u8| {
        let mut pod = pod(name, "Pending", None);
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = index.into();
        pod["metadata"]["creationTimestamp"] = format!("2024-01-01T00:00:{second:02}Z").into();
        pod
    };
    let check = |pods: &[Value], expect: &str| {
        let plan = plan(&object, pods);
        let Some(Step::DeletePods(deleted)) = plan.steps.last() else { panic!("{plan:?}") };
        assert_eq!(deleted.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), [expect]);
    };
    check(&[made("old", "2", 10), made("young", "1", 20)], "young");
    check(&[made("first", "1", 10), made("second", "1", 5)], "second");
    check(&[made("a", "0", 20), made("b", "7", 10)], "b");
}

#[test]
fn a_pod_whose_index_is_gone_is_deleted_though_there_are_not_too_many() {
    let object = job(json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed"}));
    let mut left = pod("left", "Pending", None);
    left["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = "2".into();
    let plan = plan(&object, &[left]);
    assert!(matches!(plan.steps.last(), Some(Step::DeletePods(pods)) if pods.len() == 1), "{plan:?}");
}

#[test]
fn a_failed_pod_of_an_index_stays_until_it_is_replaced() {
    let object = job(json!({"completionMode": "Indexed", "backoffLimitPerIndex": 1}));
    let indexed = |mut pod: Value, failures: &str| {
        pod["metadata"]["annotations"] = json!({
            "batch.kubernetes.io/job-completion-index": "0", "batch.kubernetes.io/job-index-failure-count": failures,
        });
        pod
    };
    let failed = indexed(pod("a", "Failed", Some(55)), "0");
    let waiting = plan(&object, std::slice::from_ref(&failed));
    assert_eq!(status_of(&waiting)["uncountedTerminatedPods"], json!({}));
    assert_eq!((made(&waiting).len(), waiting.requeue_after), (0, Some(Duration::from_secs(5))));
    let replaced = plan(&object, &[failed, indexed(pod("b", "Pending", None), "1")]);
    assert_eq!(status_of(&replaced)["uncountedTerminatedPods"], json!({"failed": ["a"]}));
    let last = plan(&object, &[indexed(pod("b", "Failed", Some(55)), "1")]);
    assert_eq!(status_of(&last)["failedIndexes"], "0");
}
