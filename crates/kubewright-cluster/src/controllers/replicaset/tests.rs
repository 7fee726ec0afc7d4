use std::time::Duration;

use super::*;
use crate::controllers::reconcile::status_of;

const NOW: &str = "2024-01-01T00:01:00Z";

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

fn set(replicas: i64) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "s", "generation": 2},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
        },
        "status": {"replicas": 0},
    })
}

fn pod(name: &str, phase: &str, ready_at: Option<&str>) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "uid": name, "labels": {"app": "web"}, "creationTimestamp": "2024-01-01T00:00:00Z"},
        "spec": {"nodeName": "n"},
        "status": {"phase": phase},
    });
    if let Some(at) = ready_at {
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "lastTransitionTime": at}]);
    }
    pod
}

fn plan(set: &Value, pods: &[Value], failure: Option<(StepKind, &str)>) -> Plan {
    let pods: Vec<_> = pods.iter().cloned().map(Arc::new).collect();
    let mut plan = Plan::of(&REPLICA_SET, set);
    decide(&REPLICA_SET, set, &pods, failure, now(), &mut plan);
    plan
}

#[test]
fn missing_slices_are_created_with_an_owner() {
    let plan = plan(&set(3), &[pod("a", "Running", None), pod("b", "Failed", None)], None);
    let Some(Step::CreatePods(pods)) = plan.steps.last() else { panic!("{plan:?}") };
    assert_eq!(pods.len(), 2, "one that has failed doesn't count");
    assert_eq!(pods[0]["metadata"]["generateName"], "web-");
    assert_eq!(pods[0]["metadata"]["ownerReferences"][0]["uid"], "s");
    let counted = json!({"replicas": 1, "fullyLabeledReplicas": 1, "observedGeneration": 2, "terminatingReplicas": 0});
    assert_eq!(status_of(&plan), counted);
}

#[test]
fn the_least_useful_go_first() {
    let early = Some("2024-01-01T00:00:10Z");
    let late = Some("2024-01-01T00:00:50Z");
    let mut unbound = pod("unbound", "Pending", None);
    unbound["spec"] = json!({});
    let mut cheap = pod("cheap", "Running", early);
    cheap["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": "-5"});
    let mut restarted = pod("restarted", "Running", early);
    restarted["status"]["containerStatuses"] = json!([{"restartCount": 2}]);
    let pods = [
        pod("old", "Running", early),
        restarted,
        pod("young", "Running", late),
        cheap,
        pod("unready", "Running", None),
        pod("pending", "Pending", None),
        unbound,
    ];
    let order = ["unbound", "pending", "unready", "cheap", "young", "restarted", "old"];
    for wanted in 0..=order.len() {
        let plan = plan(&set(i64::try_from(wanted).expect("small")), &pods, None);
        let gone: Vec<_> = match plan.steps.last() {
            Some(Step::DeletePods(pods)) => pods.iter().map(|(name, _)| name.as_str()).collect(),
            _ => Vec::new(),
        };
        assert_eq!(gone, order[..order.len() - wanted], "{wanted} stay");
    }
}

#[test]
fn pods_are_available_when_they_have_been_ready_for_a_while() {
    let mut set = set(2);
    set["spec"]["minReadySeconds"] = 30.into();
    let pods = [pod("a", "Running", Some("2024-01-01T00:00:30Z")), pod("b", "Running", Some("2024-01-01T00:00:40Z"))];
    let plan = plan(&set, &pods, None);
    let status = status_of(&plan);
    assert_eq!((&status["readyReplicas"], &status["availableReplicas"]), (&json!(2), &json!(1)));
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(10)));
}

#[test]
fn failures_are_reported_until_they_are_over() {
    let mut object = set(1);
    let failed = plan(&object, &[], Some((StepKind::Create, "pods \"web-x\" is forbidden")));
    let status = status_of(&failed);
    assert_eq!(status["conditions"][0]["reason"], "FailedCreate");
    assert!(matches!(failed.steps.last(), Some(Step::CreatePods(_))), "it is tried again");
    object["status"] = status;
    // Each attempt has another name.
    assert_eq!(status_of(&plan(&object, &[], Some((StepKind::Create, "pods \"web-y\" is forbidden")))), Value::Null);
    let well = status_of(&plan(&object, &[pod("a", "Running", None)], Some((StepKind::Create, "as before"))));
    assert_eq!(well["conditions"], Value::Null);
}

#[test]
fn a_set_that_is_deleted_makes_and_deletes_nothing() {
    let mut object = set(3);
    object["metadata"]["deletionTimestamp"] = NOW.into();
    assert!(plan(&object, &[], None).steps.iter().all(|step| matches!(step, Step::Merge(_, "/status", _))));
}

#[test]
fn the_older_kind_counts_no_terminating_pods() {
    let mut plan = Plan::default();
    let mut set = set(1);
    set["spec"]["selector"] = json!({"app": "web"});
    decide(&REPLICATION_CONTROLLER, &set, &[], None, now(), &mut plan);
    assert_eq!(status_of(&plan), json!({"replicas": 0, "observedGeneration": 2}));
    let Some(Step::CreatePods(pods)) = plan.steps.last() else { panic!("{plan:?}") };
    let owner = &pods[0]["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["apiVersion"], &owner["kind"]), (&json!("v1"), &json!("ReplicationController")));
}
