use k8s_openapi::{
    api::core::v1::{ContainerState, ContainerStatus, PodStatus},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use serde_json::json;

use super::*;
use crate::{api::v1alpha1::AtSpec, controller::run::RUN};

const DUE: &str = "2020-01-30T10:02:00Z";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    time(DUE)
}

fn at(schedule: &str, command: &str) -> At {
    let mut at = At::new("lunch", AtSpec { schedule: schedule.into(), command: command.into(), ..AtSpec::default() });
    at.metadata.namespace = Some("default".into());
    at.metadata.uid = Some("uid-1".into());
    at.metadata.generation = Some(1);
    at
}

/// The At's pod as the cluster has it.
fn pod_of(at: &At) -> Pod {
    let mut pod = pod(at, vec!["echo".into()]);
    pod.metadata.uid = Some("pod-1".into());
    pod.metadata.creation_timestamp = Some(Time(now()));
    owner::set_controller_reference(at, &mut pod).unwrap();
    pod
}

fn ended(at: &At, phase: &str, exit_code: i32) -> Pod {
    let terminated = ContainerStateTerminated {
        exit_code,
        finished_at: Some(Time(time("2020-01-30T10:02:05Z"))),
        ..ContainerStateTerminated::default()
    };
    let container = ContainerStatus {
        name: BUSYBOX.into(),
        state: Some(ContainerState { terminated: Some(terminated), ..ContainerState::default() }),
        ..ContainerStatus::default()
    };
    let status =
        PodStatus { phase: Some(phase.into()), container_statuses: Some(vec![container]), ..PodStatus::default() };
    Pod { status: Some(status), ..pod_of(at) }
}

fn ran(at: &At, pod: Option<&Pod>) -> Situation {
    Situation::Ran(Run::of(at, &pod_of(at)), progress(pod))
}

/// The At with the status that tells the situation.
fn told(mut at: At, situation: &Situation) -> At {
    at.status = Some(status(&at, situation, now()));
    at
}

fn ready(status: &AtStatus) -> (&str, &str) {
    let ready = condition::get(&status.conditions, "Ready").unwrap();
    (&ready.status, &ready.reason)
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
fn a_spec_that_cannot_be_run_is_told_and_not_run() {
    let check = |schedule: &str, command: &str, reason: &str| {
        let at = at(schedule, command);
        let situation = situation(&at, now());
        let status = status(&at, &situation, now());
        assert_eq!((status.phase, ready(&status)), (Some(Phase::Pending), ("False", reason)), "{schedule} {command}");
    };
    check("", "echo", "InvalidSchedule");
    check("tomorrow", "echo", "InvalidSchedule");
    check(DUE, "", "InvalidCommand");
    check(DUE, "   ", "InvalidCommand");
    check(DUE, "''", "InvalidCommand");
    check(DUE, "echo 'open", "InvalidCommand");
    check("tomorrow", "", "InvalidSchedule");
}

#[test]
fn the_pod_is_as_the_contract_says() {
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
fn the_uid_tells_whose_a_pod_is() {
    let at = at(DUE, "echo");
    let mut pod = pod_of(&at);
    assert_eq!(whose(&at, &pod), Whose::Ours);
    pod.metadata.owner_references.as_mut().unwrap()[0].uid = "uid-0".into();
    assert_eq!(whose(&at, &pod), Whose::Earlier);
    pod.metadata.owner_references.as_mut().unwrap()[0].name = "dinner".into();
    assert_eq!(whose(&at, &pod), Whose::Foreign);
    pod.metadata.owner_references = None;
    assert_eq!(whose(&at, &pod), Whose::Foreign);
    let other =
        OwnerReference { uid: "uid-1".into(), kind: "Job".into(), controller: Some(true), ..Default::default() };
    pod.metadata.owner_references = Some(vec![other]);
    assert_eq!(whose(&at, &pod), Whose::Foreign);
}

#[test]
fn a_run_is_told_from_its_pod() {
    let at = at(DUE, "echo");
    let check = |pod: Option<&Pod>, phase: Phase, expect: (&str, &str), exit_code: Option<i32>| {
        let status = status(&at, &ran(&at, pod), now());
        assert_eq!((status.phase, ready(&status), status.exit_code), (Some(phase), expect, exit_code));
        assert_eq!(status.pod_name.as_deref(), Some("lunch-pod"));
        assert_eq!(status.start_time, Some(Time(now())));
        assert_eq!(condition::is_true(&status.conditions, "Complete"), phase == Phase::Done);
        status
    };
    check(Some(&pod_of(&at)), Phase::Running, ("True", "Running"), None);
    let status = check(Some(&ended(&at, "Succeeded", 0)), Phase::Done, ("True", "Succeeded"), Some(0));
    assert_eq!(status.completion_time, Some(Time(time("2020-01-30T10:02:05Z"))));
    check(Some(&ended(&at, "Failed", 137)), Phase::Done, ("False", "Failed"), Some(137));
    check(None, Phase::Done, ("False", "PodLost"), None);
}

#[test]
fn an_outcome_once_told_outlives_the_pod() {
    let at = at(DUE, "echo");
    let before = told(at.clone(), &ran(&at, Some(&ended(&at, "Failed", 3))));
    let later = time("2021-01-01T00:00:00Z");
    assert_eq!(status(&before, &ran(&before, None), later), before.status.clone().unwrap());

    // But not the outcome of another pod, nor a phase that someone wrote there.
    let mut forged = before.clone();
    forged.status.as_mut().unwrap().pod_uid = Some("pod-0".into());
    assert_eq!(ready(&status(&forged, &ran(&forged, None), later)), ("False", "PodLost"));
}

#[test]
fn a_status_told_twice_is_the_same() {
    let at = at(DUE, "echo");
    let situations = [
        Situation::Waiting { due: now() },
        Situation::TooLate { due: now(), deadline: 3 },
        Situation::Invalid(SpecError::EmptyCommand),
        Situation::Taken { pod: "lunch-pod".into(), earlier: false },
        Situation::Refused { message: "pods \"lunch-pod\" is forbidden: exceeded quota".into() },
        ran(&at, Some(&pod_of(&at))),
        ran(&at, None),
    ];
    for situation in situations {
        let before = told(at.clone(), &situation);
        let again = status(&before, &situation, time("2021-01-01T00:00:00Z"));
        assert_eq!(before.status.as_ref(), Some(&again), "{situation:?}");
        assert_eq!(events(before.status.as_ref(), &again), [], "{situation:?}");
    }
}

#[test]
fn an_edit_after_the_start_is_told() {
    let mut at = at(DUE, "echo");
    let run = Run::of(&at, &pod_of(&at));
    at.metadata.generation = Some(2);
    let at = told(at, &Situation::Ran(run, Progress::Gone));
    let status = at.status.as_ref().unwrap();
    assert!(condition::is_true(&status.conditions, "EditIgnored"));
    let warned = |events: Vec<Event>| events.iter().any(|event| event.reason == "EditIgnored");
    assert!(warned(events(Some(&AtStatus::default()), status)));
    assert!(!warned(events(Some(status), status)));
}

#[test]
fn one_event_for_each_transition() {
    use Phase::{Done, Pending, Running};
    let check = |before: Option<Phase>, after: Phase, ran: bool, expect: &[Phase]| {
        assert_eq!(transitions(before, Some(after), ran), expect, "{before:?} {after:?}");
    };
    check(None, Pending, false, &[Pending]);
    check(Some(Pending), Pending, false, &[]);
    check(Some(Pending), Running, true, &[Running]);
    check(Some(Running), Done, true, &[Done]);
    check(Some(Done), Done, true, &[]);
    // The pod had ended when we looked.
    check(Some(Pending), Done, true, &[Running, Done]);
    // Too late to start, then edited.
    check(None, Done, false, &[Done]);
    check(Some(Pending), Done, false, &[Done]);
    check(Some(Done), Pending, false, &[Pending]);
    // A wiped status.
    check(None, Running, true, &[]);
    check(None, Done, true, &[]);
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

#[test]
fn a_status_is_heard_only_if_it_names_a_pod() {
    let mut at = at(DUE, "echo");
    at.status = Some(AtStatus { phase: Some(Phase::Done), ..AtStatus::default() });
    assert_eq!(Run::witnessed(&at), None);
    let at = told(at.clone(), &ran(&at, None));
    assert_eq!(Run::witnessed(&at).map(|run| run.pod_uid), Some("pod-1".into()));
}
