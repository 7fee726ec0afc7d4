use k8s_openapi::api::{apps::v1::DeploymentStatus, core::v1::Service};

use super::*;
use crate::api::v1alpha1::LolcowSpec;

fn now() -> Timestamp {
    Timestamp::from_second(1_580_378_520).unwrap()
}

fn cow() -> Lolcow {
    let mut cow = Lolcow::new("lolcow-pod", LolcowSpec { port: Some(30685), greeting: None });
    cow.metadata.generation = Some(3);
    cow
}

fn deployment(available: i32) -> Child<Deployment> {
    let status = DeploymentStatus {
        replicas: Some(1),
        updated_replicas: Some(1),
        ready_replicas: Some(available),
        available_replicas: Some(available),
        ..DeploymentStatus::default()
    };
    let object = Deployment { status: Some(status), ..children::deployment(&cow()) };
    Child { object: Some(Arc::new(object)), state: State::Applied }
}

fn service() -> Child<Service> {
    Child { object: Some(Arc::new(children::service(&cow()))), state: State::Applied }
}

fn reported(status: &LolcowStatus) -> Vec<String> {
    status.conditions.iter().map(|it| format!("{} {} {}: {}", it.type_, it.status, it.reason, it.message)).collect()
}

#[test]
fn a_page_that_serves_is_ready() {
    let status = status(&cow(), &deployment(1), &service(), "127.0.0.1", now());
    assert_eq!(status.url.as_deref(), Some("http://127.0.0.1:30685"));
    assert_eq!((status.ready_replicas, status.observed_generation), (1, Some(3)));
    let expected = [
        "Ready True Serving: the cow says it at http://127.0.0.1:30685",
        "DeploymentApplied True Applied: the deployment is as specified",
        "Progressing False RolledOut: all pods show the greeting of the spec",
        "ServiceApplied True Applied: the service is as specified",
    ];
    assert_eq!(reported(&status), expected);
    assert_eq!(
        events(&[], &status.conditions),
        [Event::normal("Serving", "the cow says it at http://127.0.0.1:30685")]
    );
    assert_eq!(events(&status.conditions, &status.conditions), []);
}

#[test]
fn an_address_of_ipv6_is_in_brackets() {
    assert_eq!(url("fd00::1", 30685), "http://[fd00::1]:30685");
    assert_eq!(url("barn.example.com", 30685), "http://barn.example.com:30685");
}

#[test]
fn a_failed_child_does_not_change_the_condition_of_the_other() {
    let refused = State::Failed(ChildError::Refused("provided port is already allocated".into()));
    let service = Child { object: None, state: refused };
    let status = status(&cow(), &deployment(1), &service, "127.0.0.1", now());
    assert_eq!((status.url.as_deref(), status.ready_replicas), (None, 1));
    let expected = [
        "Ready False ServiceRefused: provided port is already allocated",
        "DeploymentApplied True Applied: the deployment is as specified",
        "Progressing False RolledOut: all pods show the greeting of the spec",
        "ServiceApplied False Refused: provided port is already allocated",
    ];
    assert_eq!(reported(&status), expected);
    let expected = [Event::warning("ServiceRefused", "provided port is already allocated")];
    assert_eq!(events(&[], &status.conditions), expected);
    assert_eq!(events(&status.conditions, &status.conditions), []);
}

#[test]
fn unreachable_children_keep_their_reported_state() {
    let mut cow = cow();
    let before = status(&cow, &deployment(1), &service(), "127.0.0.1", now());
    cow.status = Some(before.clone());
    let unknown = Child { state: State::Unknown, ..service() };
    let after = status(&cow, &deployment(0), &unknown, "127.0.0.1", now());
    assert_eq!(condition::get(&after.conditions, "Ready"), condition::get(&before.conditions, "Ready"));
    assert!(condition::is_true(&after.conditions, "Progressing"));
    assert_eq!(events(&before.conditions, &after.conditions), []);
}

#[test]
fn a_rollout_is_not_ready_and_no_event() {
    let status = status(&cow(), &deployment(0), &service(), "127.0.0.1", now());
    assert_eq!(reported(&status)[0], "Ready False RollingOut: 0 of 1 pods show the greeting of the spec");
    assert!(condition::is_true(&status.conditions, "Progressing"));
    assert_eq!(events(&[], &status.conditions), []);
}

#[test]
fn a_child_that_is_being_deleted_is_no_event() {
    let leaving = Child { state: State::Failed(ChildError::Deleting("it goes".into())), ..deployment(1) };
    let status = status(&cow(), &leaving, &service(), "127.0.0.1", now());
    assert_eq!(reported(&status)[0], "Ready False DeploymentBeingDeleted: it goes");
    assert_eq!(events(&[], &status.conditions), []);
}
