//! Schedules, deadlines, commands, and changes of the pod.

use std::time::Duration;

use at_operator::api::v1alpha1::{At, Phase};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Error, ResourceExt,
    api::{DeleteParams, PostParams},
};
use kubewright::simulation::{
    Span,
    env::{History, assert_quiet, eventually},
};
use kubewright_cluster::faults::Faults;
use serde_json::json;
use tokio::time::sleep;

use crate::fixtures::{PAST, SOON, at, env, is_true, pod, reaches, ready, status};

#[tokio::test(start_paused = true)]
async fn an_at_goes_from_pending_through_running_to_done() {
    let env = env().await;
    let operator = env.start(&Faults::new());
    env.create(at(SOON, "echo YAY")).await;
    reaches(&env, Phase::Pending, "Waiting").await;
    assert_eq!(env.events("lunch").await, ["Normal PhaseChange PENDING"]);

    let status = reaches(&env, Phase::Running, "Running").await;
    assert!(env.now() >= SOON.parse().unwrap());
    let pod = pod(&env).await;
    assert_eq!(status.pod_uid, pod.metadata.uid);
    assert!(pod.finalizers().is_empty());
    let owner = &pod.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));

    env.run_pod("lunch-pod").await;
    sleep(1.minutes()).await;
    env.end_pod("lunch-pod", 0).await;
    let status = reaches(&env, Phase::Done, "Succeeded").await;
    assert_eq!((status.exit_code, status.observed_generation), (Some(0), Some(1)));
    assert!(status.completion_time.is_some() && status.start_time.is_some() && is_true(&status, "Complete"));
    sleep(1.minutes()).await;
    let events = ["Normal PhaseChange PENDING", "Normal PhaseChange RUNNING", "Normal PhaseChange DONE"];
    assert_eq!(env.events("lunch").await, events);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_come_from_the_at_controller() {
    let env = env().await;
    let operator = env.start(&Faults::new());
    env.create(at(SOON, "echo YAY")).await;
    let mut events = Vec::new();
    eventually("there is an event", async || {
        events = env.list::<k8s_openapi::api::events::v1::Event>().await;
        !events.is_empty()
    })
    .await;
    assert_eq!(events[0].reporting_controller.as_deref(), Some("at-controller"));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_schedule_waits_for_an_edit() {
    for schedule in ["", "tomorrow", "2020-02-30T10:00:00Z"] {
        let (env, faults) = (env().await, Faults::new());
        let operator = env.start(&faults);
        env.create(at(schedule, "echo YAY")).await;
        let status = reaches(&env, Phase::Pending, "InvalidSchedule").await;
        assert_eq!(ready(&status).0, "False");
        assert_quiet(&faults).await;
        let events = env.events("lunch").await;
        assert!(events.iter().filter(|event| event.starts_with("Warning InvalidSchedule")).count() == 1, "{events:?}");

        env.edit::<At>("lunch", json!({"spec": {"schedule": PAST}})).await;
        reaches(&env, Phase::Running, "Running").await;
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn times_in_the_past_with_offsets_and_leap_seconds_run_once() {
    for schedule in
        [PAST, "1999-12-31T23:59:59Z", "2020-01-30T10:00:00Z", "2020-01-30T12:01:00+02:00", "2016-12-31T23:59:60Z"]
    {
        let (env, faults) = (env().await, Faults::new());
        let mut history = History::of::<Pod>(&env);
        let operator = env.start(&faults);
        env.create(at(schedule, "echo YAY")).await;
        reaches(&env, Phase::Running, "Running").await;
        env.end_pod("lunch-pod", 0).await;
        reaches(&env, Phase::Done, "Succeeded").await;
        assert_quiet(&faults).await;
        assert_eq!(history.created(), 1, "{schedule}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_year_9999_is_waited_for() {
    for schedule in ["9999-12-31T23:59:59Z", "9999-01-01T00:00:00Z"] {
        let (env, faults) = (env().await, Faults::new());
        let operator = env.start(&faults);
        env.create(at(schedule, "echo YAY")).await;
        reaches(&env, Phase::Pending, "Waiting").await;
        assert_quiet(&faults).await;
        assert!(env.pods().await.is_empty());
        operator.stop().await;
    }
}

// ANCHOR: clock
#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_causes_no_second_run() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Pod>(&env);
    let operator = env.start(&faults);
    env.create(at("2020-02-01T00:00:00Z", "echo YAY")).await;
    reaches(&env, Phase::Pending, "Waiting").await;

    env.clock.jump(SignedDuration::from_hours(72));
    sleep(2.minutes()).await;
    reaches(&env, Phase::Running, "Running").await;
    env.clock.jump(SignedDuration::from_hours(-96));
    sleep(2.minutes()).await;
    env.end_pod("lunch-pod", 0).await;
    reaches(&env, Phase::Done, "Succeeded").await;
    env.clock.jump(SignedDuration::from_hours(96));
    assert_quiet(&faults).await;
    assert_eq!(history.created(), 1);
    operator.stop().await;
}
// ANCHOR_END: clock

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_back_postpones_the_run() {
    let env = env().await;
    let operator = env.start(&Faults::new());
    env.create(at(SOON, "echo YAY")).await;
    reaches(&env, Phase::Pending, "Waiting").await;
    env.clock.jump(SignedDuration::from_hours(-1));
    sleep(59.minutes()).await;
    assert!(env.pods().await.is_empty());
    reaches(&env, Phase::Running, "Running").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_late_run_respects_the_deadline() {
    let env = env().await;
    let mut history = History::of::<Pod>(&env);
    let mut late = at(PAST, "echo YAY");
    late.spec.starting_deadline_seconds = Some(30);
    env.create(late).await;
    let operator = env.start(&Faults::new());
    let status = reaches(&env, Phase::Done, "DeadlineExceeded").await;
    assert!(is_true(&status, "Complete") && status.pod_name.is_none());
    sleep(5.minutes()).await;
    assert_eq!(history.created(), 0);

    // It never ran, so it can still be given another time.
    env.edit::<At>("lunch", json!({"spec": {"schedule": env.now().to_string()}})).await;
    reaches(&env, Phase::Running, "Running").await;
    assert_eq!(history.created(), 1);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_while_running_is_reported_and_not_run_again() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Pod>(&env);
    let operator = env.start(&faults);
    env.create(at(PAST, "sleep 60")).await;
    reaches(&env, Phase::Running, "Running").await;
    env.run_pod("lunch-pod").await;
    env.delete::<Pod>("lunch-pod").await;
    let status = reaches(&env, Phase::Done, "PodLost").await;
    assert_eq!((ready(&status).0.as_str(), status.exit_code), ("False", None));
    assert_quiet(&faults).await;
    let events = env.events("lunch").await;
    assert!(events.iter().any(|event| event.starts_with("Warning PodLost")), "{events:?}");
    operator.stop().await;
    let operator = env.start(&faults);
    assert_quiet(&faults).await;
    assert_eq!(history.created(), 1);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_exit_code_outlives_the_pod() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(at(PAST, "false")).await;
    reaches(&env, Phase::Running, "Running").await;
    env.end_pod("lunch-pod", 3).await;
    let before = reaches(&env, Phase::Done, "Failed").await;
    assert_eq!(before.exit_code, Some(3));
    env.delete::<Pod>("lunch-pod").await;
    assert_quiet(&faults).await;
    assert_eq!(status(&env, "lunch").await, before);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_pod_is_a_conflict_and_never_adopted() {
    let (env, faults) = (env().await, Faults::new());
    let foreign = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lunch-pod"},
        "spec": {"containers": [{"name": "other", "image": "busybox"}]},
    });
    let foreign: Pod = env.create(serde_json::from_value(foreign).unwrap()).await;
    let mut history = History::of::<Pod>(&env);
    let operator = env.start(&faults);
    env.create(at(PAST, "echo YAY")).await;
    let status = reaches(&env, Phase::Pending, "NameConflict").await;
    assert_eq!((status.pod_name, history.created()), (None, 1));
    assert_quiet(&faults).await;
    assert_eq!(pod(&env).await.metadata, foreign.metadata);
    // Its end doesn't count as that of the command.
    env.end_pod("lunch-pod", 0).await;
    sleep(2.minutes()).await;
    reaches(&env, Phase::Pending, "NameConflict").await;

    let gone = env.now();
    env.delete::<Pod>("lunch-pod").await;
    reaches(&env, Phase::Running, "Running").await;
    assert!(env.now().duration_since(gone) < SignedDuration::from_secs(5), "the deletion wakes the At");
    assert_eq!(history.created(), 2);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_while_pending_takes_effect() {
    let env = env().await;
    let operator = env.start(&Faults::new());
    env.create(at("2020-06-01T00:00:00Z", "echo old")).await;
    reaches(&env, Phase::Pending, "Waiting").await;
    env.edit::<At>("lunch", json!({"spec": {"schedule": SOON, "command": "echo new"}})).await;
    reaches(&env, Phase::Running, "Running").await;
    let command = pod(&env).await.spec.unwrap().containers[0].command.clone().unwrap();
    assert_eq!(command, ["echo", "new"]);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_postpones_the_run_takes_effect() {
    let env = env().await;
    let mut history = History::of::<Pod>(&env);
    let operator = env.start(&Faults::new());
    env.create(at(SOON, "echo YAY")).await;
    reaches(&env, Phase::Pending, "Waiting").await;
    env.edit::<At>("lunch", json!({"spec": {"schedule": "2020-01-30T11:00:00Z"}})).await;
    sleep(30.minutes()).await;
    assert_eq!(history.created(), 0);
    reaches(&env, Phase::Running, "Running").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_after_the_start_is_ignored_and_reported() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Pod>(&env);
    let operator = env.start(&faults);
    env.create(at(PAST, "echo YAY")).await;
    reaches(&env, Phase::Running, "Running").await;
    env.edit::<At>("lunch", json!({"spec": {"schedule": "2020-01-30T10:30:00Z"}})).await;
    eventually("the edit is reported", async || is_true(&status(&env, "lunch").await, "EditIgnored")).await;
    assert_eq!(status(&env, "lunch").await.observed_generation, Some(2));
    env.end_pod("lunch-pod", 0).await;
    reaches(&env, Phase::Done, "Succeeded").await;
    sleep(60.minutes()).await;
    assert_eq!(history.created(), 1);
    let events = env.events("lunch").await;
    assert_eq!(events.iter().filter(|event| event.starts_with("Warning EditIgnored")).count(), 1, "{events:?}");
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn commands_are_split_like_in_a_shell() {
    let env = env().await;
    let operator = env.start(&Faults::new());
    let long = "x".repeat(100_000);
    let cases: [(&str, &[&str]); 4] = [
        (r#"sh -c 'echo "a  b" | wc'"#, &["sh", "-c", r#"echo "a  b" | wc"#]),
        ("echo $HOME", &["echo", "$HOME"]),
        ("echo größe 🎉", &["echo", "größe", "🎉"]),
        (&format!("echo {long}"), &["echo", &long]),
    ];
    for (number, (command, expect)) in cases.into_iter().enumerate() {
        let mut at = at(PAST, command);
        let name = format!("at-{number}");
        at.metadata.name = Some(name.clone());
        env.create(at).await;
        let mut found = None;
        eventually("the pod exists", async || {
            found = env.api::<Pod>().get_opt(&format!("{name}-pod")).await.unwrap();
            found.is_some()
        })
        .await;
        assert_eq!(found.unwrap().spec.unwrap().containers[0].command.as_deref().unwrap(), expect);
    }
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_command_waits_for_an_edit() {
    for command in ["", "   ", "echo 'open"] {
        let (env, faults) = (env().await, Faults::new());
        let operator = env.start(&faults);
        env.create(at(PAST, command)).await;
        reaches(&env, Phase::Pending, "InvalidCommand").await;
        assert_quiet(&faults).await;
        env.edit::<At>("lunch", json!({"spec": {"command": "echo YAY"}})).await;
        reaches(&env, Phase::Running, "Running").await;
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_schema_refuses_what_makes_no_sense() {
    let env = env().await;
    let refused = async |spec: serde_json::Value, field: &str| {
        let at = json!({"apiVersion": "cnat.d2iq.com/v1alpha1", "kind": "At", "metadata": {"name": "x"}, "spec": spec});
        let ats = kube::Api::<kube::api::DynamicObject>::namespaced_with(
            env.client(),
            "default",
            &kube::api::ApiResource::erase::<At>(&()),
        );
        match ats.create(&PostParams::default(), &serde_json::from_value(at).unwrap()).await {
            Err(Error::Api(status)) => {
                assert_eq!(status.code, 422);
                assert!(status.message.contains(field), "{}", status.message);
            }
            other => panic!("accepted: {other:?}"),
        }
    };
    refused(json!({"schedule": SOON}), "spec.command").await;
    refused(json!({"command": "echo"}), "spec.schedule").await;
    refused(json!({"schedule": 5, "command": "echo"}), "spec.schedule").await;
    let negative = json!({"schedule": SOON, "command": "echo", "startingDeadlineSeconds": -1});
    refused(negative, "spec.startingDeadlineSeconds").await;
    refused(json!({"schedule": SOON, "command": "echo", "image": ""}), "spec.image").await;
}

#[tokio::test(start_paused = true)]
async fn names_of_any_length_work() {
    let env = env().await;
    let operator = env.start(&Faults::new());
    for length in [64, 249, 250, 253] {
        let name = "a".repeat(length);
        let mut at = at(PAST, "echo YAY");
        at.metadata.name = Some(name.clone());
        env.create(at).await;
        eventually("it runs", async || status(&env, &name).await.phase == Some(Phase::Running)).await;
        env.api::<At>().delete(&name, &DeleteParams::default()).await.unwrap();
        eventually("the pod is gone", async || env.pods().await.is_empty()).await;
    }
    sleep(Duration::from_secs(1)).await;
    operator.stop().await;
}
