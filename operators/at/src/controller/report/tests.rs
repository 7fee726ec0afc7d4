use k8s_openapi::{
    api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

use serde_json::{Value, json};

use super::*;
use crate::controller::plan::{
    progress, situation,
    tests::{DUE, at, now, pod_of, time},
};

fn ended(at: &At, phase: &str, exit_code: i32) -> Pod {
    let terminated = ContainerStateTerminated {
        exit_code,
        finished_at: Some(Time(time("2020-01-30T10:02:05Z"))),
        ..ContainerStateTerminated::default()
    };
    let container = ContainerStatus {
        name: "busybox".into(),
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

/// Returns the At with the status of the situation.
fn reported(mut at: At, situation: &Situation) -> At {
    at.status = Some(status(&at, situation, now()));
    at
}

fn ready(status: &AtStatus) -> (&str, &str) {
    let ready = condition::get(&status.conditions, "Ready").unwrap();
    (&ready.status, &ready.reason)
}

#[test]
fn an_invalid_spec_is_reported_and_not_run() {
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
fn a_run_is_read_from_its_pod() {
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
fn a_reported_result_outlives_the_pod() {
    let at = at(DUE, "echo");
    let before = reported(at.clone(), &ran(&at, Some(&ended(&at, "Failed", 3))));
    let later = time("2021-01-01T00:00:00Z");
    assert_eq!(status(&before, &ran(&before, None), later), before.status.clone().unwrap());

    // The result of another pod, or a phase written by a user, is discarded.
    let mut forged = before.clone();
    forged.status.as_mut().unwrap().pod_uid = Some("pod-0".into());
    assert_eq!(ready(&status(&forged, &ran(&forged, None), later)), ("False", "PodLost"));
}

#[test]
fn a_status_is_the_same_the_second_time() {
    let at = at(DUE, "echo");
    let situations = [
        Situation::Waiting { due: now() },
        Situation::TooLate { due: now(), deadline: 3 },
        Situation::Invalid(SpecError::EmptyCommand),
        Situation::Taken { pod: "lunch-pod".into(), former: false },
        Situation::Refused { message: "pods \"lunch-pod\" is forbidden: exceeded quota".into() },
        ran(&at, Some(&pod_of(&at))),
        ran(&at, None),
    ];
    for situation in situations {
        let before = reported(at.clone(), &situation);
        let again = status(&before, &situation, time("2021-01-01T00:00:00Z"));
        assert_eq!(before.status.as_ref(), Some(&again), "{situation:?}");
        assert_eq!(events(before.status.as_ref(), &again), [], "{situation:?}");
    }
}

#[test]
fn an_edit_after_the_start_is_reported() {
    let mut at = at(DUE, "echo");
    let run = Run::of(&at, &pod_of(&at));
    at.metadata.generation = Some(2);
    let at = reported(at, &Situation::Ran(run, Progress::Gone));
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
    // The pod had ended when it was observed.
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
fn a_status_counts_only_if_it_names_a_pod() {
    let mut at = at(DUE, "echo");
    at.status = Some(AtStatus { phase: Some(Phase::Done), ..AtStatus::default() });
    assert_eq!(Run::witnessed(&at), None);
    let at = reported(at.clone(), &ran(&at, None));
    assert_eq!(Run::witnessed(&at).map(|run| run.pod_uid), Some("pod-1".into()));
}

#[test]
fn a_stuck_command_is_reported_once() {
    let check = |state: Value, last: Value, expect: Option<(&str, &str)>| {
        let at = at(DUE, "echo");
        let mut pod = pod_of(&at);
        let pod_status = json!({
            "phase": "Pending",
            "containerStatuses": [{
                "name": "busybox", "image": "nope", "imageID": "", "ready": false, "restartCount": 0, "state": state,
                "lastState": last,
            }],
        });
        pod.status = Some(serde_json::from_value(pod_status).unwrap());
        let status = status(&at, &ran(&at, Some(&pod)), now());
        assert_eq!(status.phase, Some(Phase::Running), "{state}");
        let condition = condition::get(&status.conditions, "Ready").unwrap();
        match expect {
            None => assert_eq!(condition.status, "True", "{state}"),
            Some((reason, says)) => {
                assert_eq!((&*condition.status, &*condition.reason), ("False", reason), "{state}");
                assert!(condition.message.contains(says), "{}", condition.message);
            }
        }
    };
    let waiting = |reason: &str| json!({"waiting": {"reason": reason, "message": "why"}});
    let failed = json!({"terminated": {"exitCode": 5}});
    check(waiting("ContainerCreating"), json!({}), None);
    check(json!({"running": {}}), json!({}), None);
    for reason in ["ErrImagePull", "ImagePullBackOff"] {
        check(waiting(reason), json!({}), Some(("ImageUnavailable", "image \"nope\" can't be pulled")));
    }
    check(waiting("CreateContainerConfigError"), json!({}), Some(("NotStarted", "why")));
    for state in [waiting("CrashLoopBackOff"), json!({"running": {}})] {
        check(state, failed.clone(), Some(("Retrying", "fails with exit code 5 and is started again")));
    }
}
