use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde_json::json;

use super::*;
use crate::{api::v1alpha1::AtSpec, controller::run::RUN};

pub(crate) const DUE: &str = "2020-01-30T10:02:00Z";

pub(crate) fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) fn now() -> Timestamp {
    time(DUE)
}

pub(crate) fn at(schedule: &str, command: &str) -> At {
    let mut at = At::new("lunch", AtSpec { schedule: schedule.into(), command: command.into(), ..AtSpec::default() });
    at.metadata.namespace = Some("default".into());
    at.metadata.uid = Some("uid-1".into());
    at.metadata.generation = Some(1);
    at
}

/// The At's pod as in the cluster.
pub(crate) fn pod_of(at: &At) -> Pod {
    let mut pod = pod(at, vec!["echo".into()]);
    pod.metadata.uid = Some("pod-1".into());
    pod.metadata.creation_timestamp = Some(Time(now()));
    owner::set_controller_reference(at, &mut pod).unwrap();
    pod
}

#[test]
fn a_time_is_waited_for_and_one_in_the_past_is_due() {
    let check = |schedule: &str, expect: Situation| assert_eq!(situation(&at(schedule, "echo YAY"), now()), expect);
    let due = || Situation::Due { command: vec!["echo".into(), "YAY".into()] };
    check("2020-01-30T10:02:01Z", Situation::Waiting { due: time("2020-01-30T10:02:01Z") });
    check("2020-01-30T10:02:01+02:00", due());
    check("9999-12-31T23:59:59Z", Situation::Waiting { due: Timestamp::MAX });
    check(DUE, due());
    check("1999-01-01T00:00:00Z", due());
}

#[test]
fn the_deadline_counts_from_the_schedule() {
    let check = |deadline: i64, now: &str, late: bool| {
        let mut at = at(DUE, "echo");
        at.spec.starting_deadline_seconds = Some(deadline);
        let situation = situation(&at, time(now));
        assert_eq!(matches!(situation, Situation::TooLate { .. }), late, "{deadline} {now}: {situation:?}");
    };
    check(0, DUE, false);
    check(0, "2020-01-30T10:02:01Z", true);
    check(60, "2020-01-30T10:03:00Z", false);
    check(60, "2020-01-30T10:03:00.001Z", true);
    check(i64::MAX, "9999-01-01T00:00:00Z", false);
}

#[test]
fn a_command_is_split_as_a_shell_would() {
    let check = |command: &str, expect: &[&str]| match situation(&at(DUE, command), now()) {
        Situation::Due { command } => assert_eq!(command, expect),
        other => panic!("{command}: {other:?}"),
    };
    check("echo YAY", &["echo", "YAY"]);
    check("  echo\tYAY\n", &["echo", "YAY"]);
    check(r#"sh -c 'echo "a  b"'"#, &["sh", "-c", r#"echo "a  b""#]);
    check(r#"echo "it's" a\ b "#, &["echo", "it's", "a b"]);
    check("echo $HOME '$HOME'", &["echo", "$HOME", "$HOME"]);
    check("echo größe 🎉", &["echo", "größe", "🎉"]);
    check("echo ''", &["echo", ""]);
    let long = "x".repeat(100_000);
    check(&format!("echo {long}"), &["echo", &long]);
}

#[test]
fn the_pod_has_the_documented_fields() {
    let at = at(DUE, "echo YAY");
    let pod = serde_json::to_value(pod(&at, vec!["echo".into(), "YAY".into()])).unwrap();
    let expect = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "lunch-pod",
            "namespace": "default",
            "labels": {"app": "lunch"},
            "annotations": {"cnat.d2iq.com/generation": "1"},
            "finalizers": ["cnat.d2iq.com/unrecorded"],
        },
        "spec": {
            "containers": [{"name": "busybox", "image": "busybox", "command": ["echo", "YAY"]}],
            "restartPolicy": "OnFailure",
        },
    });
    assert_eq!(pod, expect);
}

#[test]
fn the_pod_of_an_at_with_a_long_name_is_valid() {
    let name = format!("{}.{}", "a".repeat(180), "b".repeat(72));
    let mut at = at(DUE, "echo");
    at.metadata.name = Some(name.clone());
    let pod = pod(&at, vec!["echo".into()]);
    assert!(pod.name_any().len() <= 253 && pod.name_any().ends_with("-pod"));
    assert!(pod.labels()["app"].len() <= 63);
    assert_eq!(at_name("lunch-pod"), Some("lunch"));
    assert_eq!(at_name("-pod"), None);
    assert_eq!(at_name("lunch"), None);
}

#[test]
fn ownership_of_a_pod_is_decided_by_uid() {
    let at = at(DUE, "echo");
    let mut pod = pod_of(&at);
    assert_eq!(owner_of(&at, &pod), PodOwner::Ours);
    pod.metadata.owner_references.as_mut().unwrap()[0].uid = "uid-0".into();
    assert_eq!(owner_of(&at, &pod), PodOwner::Former);
    pod.metadata.owner_references.as_mut().unwrap()[0].name = "dinner".into();
    assert_eq!(owner_of(&at, &pod), PodOwner::Foreign);
    pod.metadata.owner_references = None;
    assert_eq!(owner_of(&at, &pod), PodOwner::Foreign);
    let other =
        OwnerReference { uid: "uid-1".into(), kind: "Job".into(), controller: Some(true), ..Default::default() };
    pod.metadata.owner_references = Some(vec![other]);
    assert_eq!(owner_of(&at, &pod), PodOwner::Foreign);
}

#[test]
fn a_run_is_recorded_for_one_at_only() {
    let mut at = at(DUE, "echo");
    let run = Run::of(&at, &pod_of(&at));
    assert_eq!(run.generation, Some(1));
    assert_eq!(Run::recorded(&at), None);
    let patch = run.patch();
    assert_eq!(patch["metadata"]["uid"], "uid-1");
    let annotation = patch["metadata"]["annotations"][RUN].as_str().unwrap();
    at.annotations_mut().insert(RUN.into(), annotation.into());
    assert_eq!(Run::recorded(&at), Some(run));

    at.metadata.uid = Some("uid-2".into());
    assert_eq!(Run::recorded(&at), None, "a manifest exported from another At");
    at.annotations_mut().insert(RUN.into(), "nonsense".into());
    assert_eq!(Run::recorded(&at), None);
}
