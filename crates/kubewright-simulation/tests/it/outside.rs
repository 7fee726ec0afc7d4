//! Faults of the world and the user, restarts with an older state, replicas and upgrades: each does what its name says.

use k8s_openapi::api::core::v1::Pod;
use kubewright_simulation::{
    Fault, Outcome, Point, Scenario, Schedule,
    fault::{EventFault, ProcessFault, RestartFault, UserFault, WorldFault},
    history::Entry,
};

use crate::{
    determinism::greets,
    machine::{Behavior, notes_its_instance, register},
    podset,
};

fn fixed() -> Scenario {
    Scenario::new("fixed", |manager| register(manager, Behavior::Fixed), notes_its_instance)
}

/// Runs a scenario with one fault, which must happen.
fn run(scenario: &Scenario, point: Point, fault: Fault) -> Outcome {
    let outcome = scenario.run(&Schedule::calm(0).with(point, fault)).unwrap();
    assert_eq!(count(&outcome, &format!("fault       at {point}, {fault}")), 1, "{fault}");
    assert_eq!(outcome.findings, [], "{fault}");
    outcome
}

/// Returns the number of records whose text contains a part.
fn count(outcome: &Outcome, part: &str) -> usize {
    outcome.history.records().iter().filter(|record| record.to_string().contains(part)).count()
}

#[test]
fn the_operator_is_down_during_a_step() {
    let outcome = run(&fixed(), Point::Step(0), Fault::User(UserFault::OperatorDown));
    let position = |part: &str| outcome.history.records().iter().position(|it| it.to_string().contains(part)).unwrap();
    assert!(position("process 0 is stopped") < position("Machine default/build: Added"));
    assert!(position("Machine default/build: Added") < position("process 1 starts"));
}

#[test]
fn the_user_edits_and_recreates_the_object_of_a_step() {
    let outcome = run(&fixed(), Point::Step(0), Fault::User(UserFault::Recreated));
    assert_eq!(count(&outcome, "API server  Machine default/build: Added"), 2);
    let outcome = run(&fixed(), Point::Write(1), Fault::User(UserFault::Edited));
    let is_edited = outcome.history.records().iter().any(|record| match &record.entry {
        Entry::Change { kind, object, .. } => kind == "Machine" && object.to_string().contains("edited-by"),
        _ => false,
    });
    assert!(is_edited);
}

#[test]
fn a_restarted_operator_sees_an_older_state() {
    for fault in RestartFault::ALL {
        let outcome = run(&fixed(), Point::Step(0), Fault::Restart(fault));
        assert_eq!(count(&outcome, "process 0 is restarted"), 1);
        // The events that its first lists lack arrive a minute later.
        let restart =
            outcome.history.records().iter().position(|it| it.to_string().contains("process 1 starts")).unwrap();
        let behind = &outcome.history.records()[restart..];
        assert!(behind.iter().any(|it| matches!(it.entry, Entry::Event { .. })), "{fault}");
    }
}

#[test]
fn the_clock_jumps() {
    for (fault, hours) in [(WorldFault::ClockAhead, 1), (WorldFault::ClockBack, -1)] {
        let scenario = Scenario::new(
            "time",
            |manager| register(manager, Behavior::Fixed),
            async move |sim: &kubewright_simulation::Sim| {
                notes_its_instance(sim).await;
                let before = sim.now();
                sim.advance(std::time::Duration::from_secs(3600)).await;
                let passed = sim.now().duration_since(before).as_hours();
                assert_eq!(passed, 1 + hours);
            },
        );
        run(&scenario, Point::Step(0), Fault::World(fault));
    }
}

#[test]
fn pods_fail_are_evicted_and_are_not_ready() {
    let scenario = podset::scenario();
    let outcome = run(&scenario, Point::Step(1), Fault::World(WorldFault::PodEvicted));
    let after = outcome.history.records().iter().skip_while(|record| !matches!(record.entry, Entry::Fault(_)));
    let until_next_request = after.take_while(|record| !matches!(record.entry, Entry::Request(_)));
    let is_deleted = |text: String| text.contains("API server  Pod default/") && text.ends_with(": Deleted");
    assert!(until_next_request.map(ToString::to_string).any(is_deleted));
    let calm = scenario.run(&Schedule::calm(0)).unwrap();
    let outcome = run(&scenario, Point::Step(1), Fault::World(WorldFault::PodsUnready));
    let status = |outcome: &Outcome, text: &str| {
        let pods = outcome.history.records().iter().filter_map(|record| match &record.entry {
            Entry::Change { kind, object, .. } if kind == "Pod" => {
                serde_json::from_value::<Pod>((**object).clone()).ok()
            }
            _ => None,
        });
        let conditions = pods.flat_map(|pod| pod.status.unwrap_or_default().conditions.unwrap_or_default());
        conditions.filter(|condition| condition.type_ == "Ready" && condition.status == text).count()
    };
    assert!(status(&outcome, "False") > status(&calm, "False"));
    // The pods of the other scenario are gone within a second.
    let stays = Scenario::new("stays", podset_operator::register, async |sim: &kubewright_simulation::Sim| {
        let set =
            "{apiVersion: k8stest.justin0u0.com/v1alpha1, kind: PodSet, metadata: {name: web}, spec: {replicas: 1}}";
        sim.apply(set).await;
        sim.advance(std::time::Duration::from_secs(60)).await;
    });
    let outcome = run(&stays, Point::Step(0), Fault::World(WorldFault::PodsFail));
    let restarted = outcome.history.records().iter().any(|record| match &record.entry {
        Entry::Change { kind, object, .. } if kind == "Pod" => object.to_string().contains(r#""exitCode":1"#),
        _ => false,
    });
    assert!(restarted);
}

#[test]
fn a_replica_takes_over_with_an_older_cache() {
    let outcome = run(&fixed().replicas(2), Point::Request(8), Fault::Process(ProcessFault::TakenOver));
    assert_eq!(count(&outcome, "starts"), 3);
}

#[test]
fn an_operator_is_upgraded_after_the_first_wait_or_at_a_request() {
    let scenario = fixed().upgrade(|manager| register(manager, Behavior::Fixed));
    let calm = scenario.run(&Schedule::calm(0)).unwrap();
    assert_eq!((count(&calm, "process 0 is restarted"), count(&calm, "process 1 starts")), (1, 1));
    let outcome = run(&scenario, Point::Request(4), Fault::Process(ProcessFault::Upgraded));
    assert_eq!((count(&outcome, "process 0 dies"), count(&outcome, "is restarted")), (1, 0));
}

#[test]
fn an_event_of_another_watch_overtakes() {
    run(&fixed(), Point::Event(1), Fault::Event(EventFault::Overtaken));
}

/// Returns the virtual time of the first record that contains a text, in seconds since the fault.
fn seconds_until(outcome: &Outcome, text: &str) -> Option<u64> {
    let records = outcome.history.records();
    let fault = records.iter().find(|record| matches!(record.entry, Entry::Fault(_)))?.at;
    let found = records.iter().find(|record| record.at >= fault && record.to_string().contains(text))?;
    Some((found.at - fault) / 1000)
}

#[test]
fn a_quota_is_full_and_a_webhook_unavailable_for_ten_minutes() {
    for (fault, code) in [(WorldFault::QuotaFull, 403), (WorldFault::WebhookUnavailable, 500)] {
        let outcome = run(&fixed(), Point::Step(0), Fault::World(fault));
        assert!(count(&outcome, &format!("receives {code}")) > 1, "{fault}");
        let created = seconds_until(&outcome, "ConfigMap default/build: Added").unwrap();
        assert!((600..1600).contains(&created), "{fault}: {created} s");
    }
    // The other writes of the user and the cluster aren't affected: the status is written after the object is there.
    let outcome = run(&fixed(), Point::Write(1), Fault::World(WorldFault::QuotaFull));
    assert_eq!(count(&outcome, "receives 403"), 0);
}

/// The controller of replica sets has a reason to try again at once if each attempt changes the replica set.
#[test]
fn a_full_quota_for_the_pods_of_a_deployment_makes_no_loop() {
    let scenario = Scenario::new("greets", lolcow_operator::register, greets);
    for nth in 0..4 {
        let outcome = run(&scenario, Point::Write(nth), Fault::World(WorldFault::QuotaFull));
        let changes = count(&outcome, "API server  ");
        assert!((10..500).contains(&changes), "write {nth}: {changes} changes");
    }
}

#[test]
fn a_namespace_is_deleted_with_all_that_is_in_it() {
    let outcome = run(&fixed(), Point::Step(0), Fault::World(WorldFault::NamespaceDeleted));
    assert_eq!(count(&outcome, "Machine default/build: Deleted"), 1);
    let [added, deleted] =
        ["Added", "Deleted"].map(|change| count(&outcome, &format!("ConfigMap default/build: {change}")));
    assert_eq!(added, deleted);
    // What the cluster itself makes in each namespace stays, and the user doesn't go on.
    assert_eq!(count(&outcome, "Service default/kubernetes"), 0);
    assert_eq!(count(&outcome, "Machine default/build: Added"), 1);
}

#[test]
fn a_node_vanishes_with_its_pods() {
    let stays = Scenario::new("stays", podset_operator::register, async |sim: &kubewright_simulation::Sim| {
        let set =
            "{apiVersion: k8stest.justin0u0.com/v1alpha1, kind: PodSet, metadata: {name: web}, spec: {replicas: 1}}";
        sim.apply(set).await;
        sim.advance(std::time::Duration::from_secs(60)).await;
        sim.edit::<podset_operator::api::k8stest::v1alpha1::PodSet>(
            "web",
            serde_json::json!({"metadata": {"labels": {"a": "b"}}}),
        )
        .await;
    });
    let outcome = run(&stays, Point::Step(1), Fault::World(WorldFault::NodeLost));
    let records = outcome.history.records();
    let fault = records.iter().find(|record| matches!(record.entry, Entry::Fault(_))).unwrap().at;
    assert_eq!(seconds_until(&outcome, ": Deleted"), Some(0));
    let runs = records.iter().filter(|record| record.at > fault).find(|record| match &record.entry {
        Entry::Change { kind, object, .. } => kind == "Pod" && object["status"]["phase"] == "Running",
        _ => false,
    });
    let later = (runs.unwrap().at - fault) / 1000;
    assert!((300..400).contains(&later), "{later} s");
}
