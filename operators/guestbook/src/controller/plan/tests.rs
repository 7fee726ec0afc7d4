use serde_json::json;

use super::*;
use crate::{
    api::v1::{Alias, GuestbookSpec},
    controller::config::Texts,
};

fn guestbook(size: i32) -> Guestbook {
    let spec = GuestbookSpec { size, config_map_name: "words".into(), alias: Alias::Phone, image: None };
    let mut guestbook = Guestbook::new("book", spec);
    guestbook.metadata.namespace = Some("default".into());
    guestbook.metadata.uid = Some("u-1".into());
    guestbook
}

fn found(title: &str) -> Config {
    Config::Found(Texts { title: Some(title.into()), greeting: None })
}

/// A pod of the guestbook with an age in seconds, created with a title.
fn pod(name: &str, age: i64, title: &str, state: &str) -> Arc<Pod> {
    let guestbook = guestbook(3);
    let Config::Found(texts) = found(title) else { unreachable!() };
    let random = kubewright::random::Random::seeded(1);
    let mut pod = children::pod(&guestbook, &children::revision(&guestbook, &texts), None, &random);
    pod.metadata.name = Some(name.into());
    pod.metadata.labels = Some(children::pod_labels(&guestbook, name));
    let created = jiff::Timestamp::from_second(1_580_378_520 - age).unwrap();
    pod.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
    let status = match state {
        "ready" => json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
        "starting" => json!({"phase": "Pending"}),
        "failed" => json!({"phase": "Failed", "conditions": [{"type": "Ready", "status": "True"}]}),
        "leaving" => {
            pod.metadata.deletion_timestamp = pod.metadata.creation_timestamp.clone();
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
        }
        other => panic!("{other}"),
    };
    pod.status = serde_json::from_value(status).unwrap();
    Arc::new(pod)
}

/// The Service of the guestbook, selecting a pod.
fn selecting(pod: Option<&str>) -> Service {
    let guestbook = guestbook(3);
    let mut service = children::service(&guestbook, pod);
    kubewright::owner::set_controller_reference(&guestbook, &mut service).unwrap();
    service
}

/// The actions: the Service's step and pod, the number of created pods, and the deleted pods.
type Done<'a> = (Step, Option<&'a str>, usize, &'a [&'a str]);

/// Checks the actions for the title `new`, and pods with a name, age, title and state.
fn check(size: i32, service: Option<Service>, pods: &[(&str, i64, &str, &str)], expect: Done<'_>) {
    let pods = pods.iter().map(|(name, age, title, state)| pod(name, *age, title, state)).collect();
    let plan = plan(&guestbook(size), &found("new"), service.as_ref(), pods);
    let deleted: Vec<_> = plan.delete.iter().map(|pod| pod.name_any()).collect();
    let deleted: Vec<_> = deleted.iter().map(String::as_str).collect();
    assert_eq!((plan.service, plan.chosen.as_deref(), plan.create, deleted.as_slice()), expect);
    assert_eq!(plan.relabel, Vec::<Arc<Pod>>::new());
}

use Step::{Apply, Create, Keep};

#[test]
fn at_first_all_are_missing() {
    check(3, None, &[], (Create, None, 3, &[]));
    check(3, Some(selecting(None)), &[], (Keep, None, 3, &[]));
}

#[test]
fn the_oldest_that_is_ready_becomes_active_and_stays() {
    let pods = [("a", 3, "new", "starting"), ("b", 2, "new", "ready"), ("c", 2, "new", "ready")];
    check(3, Some(selecting(None)), &pods, (Apply, Some("b"), 0, &[]));
    check(3, Some(selecting(Some("c"))), &pods, (Keep, Some("c"), 0, &[]));
}

#[test]
fn the_oldest_ready_standby_takes_over() {
    let standby = [("b", 3, "new", "starting"), ("c", 2, "new", "ready"), ("d", 1, "new", "ready")];
    let with = |active: &'static str| [&[("a", 9, "new", active)][..], &standby].concat();
    check(4, Some(selecting(Some("a"))), &with("starting"), (Apply, Some("c"), 0, &[]));
    check(4, Some(selecting(Some("a"))), &with("leaving"), (Apply, Some("c"), 1, &[]));
    check(4, Some(selecting(Some("a"))), &with("failed"), (Apply, Some("c"), 1, &["a"]));
    check(4, Some(selecting(Some("gone"))), &standby, (Apply, Some("c"), 1, &[]));
}

#[test]
fn with_none_ready_nothing_is_moved() {
    let pods = [("a", 3, "new", "starting"), ("b", 2, "new", "starting")];
    check(2, Some(selecting(Some("b"))), &pods, (Keep, Some("b"), 0, &[]));
    check(2, Some(selecting(Some("gone"))), &pods, (Keep, Some("gone"), 0, &[]));
}

#[test]
fn a_service_that_was_edited_is_brought_back_and_anothers_is_not() {
    let pods = [("a", 3, "new", "ready")];
    let mut edited = selecting(Some("a"));
    edited.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].target_port = None;
    check(1, Some(edited), &pods, (Apply, Some("a"), 0, &[]));
    let mut edited = selecting(Some("a"));
    edited.spec.as_mut().unwrap().selector = Some([("app".to_owned(), "other".to_owned())].into());
    check(1, Some(edited), &pods, (Apply, Some("a"), 0, &[]));
    let mut added = selecting(Some("a"));
    added.spec.as_mut().unwrap().type_ = Some("NodePort".into());
    added.metadata.labels.as_mut().unwrap().insert("team".into(), "web".into());
    check(1, Some(added), &pods, (Keep, Some("a"), 0, &[]));
    let mut foreign = selecting(Some("a"));
    foreign.metadata.owner_references = None;
    check(1, Some(foreign), &pods, (Step::Foreign, Some("a"), 0, &[]));
}

#[test]
fn excess_pods_are_deleted_newest_first_and_never_the_active_one() {
    let pods =
        [("a", 4, "new", "ready"), ("b", 3, "new", "starting"), ("c", 2, "new", "ready"), ("d", 1, "new", "ready")];
    check(3, Some(selecting(Some("d"))), &pods, (Keep, Some("d"), 0, &["b"]));
    check(2, Some(selecting(Some("d"))), &pods, (Keep, Some("d"), 0, &["b", "c"]));
    check(1, Some(selecting(Some("d"))), &pods, (Keep, Some("d"), 0, &["b", "c", "a"]));
}

#[test]
fn a_change_replaces_the_standbys_one_by_one_and_the_active_one_last() {
    let writes_service = |pod| Some(selecting(Some(pod)));
    let (a, b, c) = (("a", 5, "old", "ready"), ("b", 4, "old", "ready"), ("c", 3, "old", "ready"));
    let (d, e, f) = (("d", 2, "new", "ready"), ("e", 1, "new", "ready"), ("f", 0, "new", "ready"));
    check(3, writes_service("a"), &[a, b, c], (Keep, Some("a"), 0, &["c"]));
    check(3, writes_service("a"), &[a, b], (Keep, Some("a"), 1, &[]));
    check(3, writes_service("a"), &[a, b, ("d", 2, "new", "starting")], (Keep, Some("a"), 0, &[]));
    check(3, writes_service("a"), &[a, b, d], (Keep, Some("a"), 0, &["b"]));
    check(3, writes_service("a"), &[a, d, ("e", 1, "new", "starting")], (Apply, Some("d"), 0, &[]));
    check(3, writes_service("d"), &[a, d, ("e", 1, "new", "starting")], (Keep, Some("d"), 0, &[]));
    check(3, writes_service("d"), &[a, d, e], (Keep, Some("d"), 0, &["a"]));
    check(3, writes_service("d"), &[d, e, f], (Keep, Some("d"), 0, &[]));
}

#[test]
fn a_pod_that_is_out_of_date_and_not_ready_goes_first() {
    let pods = [("a", 3, "old", "ready"), ("b", 2, "older", "starting"), ("c", 1, "old", "ready")];
    check(3, Some(selecting(Some("a"))), &pods, (Keep, Some("a"), 0, &["b"]));
    // As long as no pod is ready, outdated pods are replaced one by one.
    let pods = [("a", 3, "old", "starting"), ("b", 2, "old", "starting")];
    check(2, Some(selecting(Some("a"))), &pods, (Keep, Some("a"), 0, &["b"]));
}

#[test]
fn a_single_pod_is_replaced_without_a_gap() {
    let writes_service = |pod| Some(selecting(Some(pod)));
    let old = ("a", 2, "old", "ready");
    check(1, writes_service("a"), &[old], (Keep, Some("a"), 1, &[]));
    check(1, writes_service("a"), &[old, ("b", 1, "new", "starting")], (Keep, Some("a"), 0, &[]));
    check(1, writes_service("a"), &[old, ("b", 1, "new", "ready")], (Apply, Some("b"), 0, &["a"]));
    check(1, writes_service("b"), &[old, ("b", 1, "new", "ready")], (Keep, Some("b"), 0, &["a"]));
    check(1, writes_service("a"), &[("a", 2, "old", "starting")], (Keep, Some("a"), 0, &["a"]));
}

#[test]
fn without_the_texts_a_takeover_goes_on_and_nothing_is_created_or_replaced() {
    let pods = vec![pod("a", 3, "old", "failed"), pod("b", 2, "old", "ready")];
    for config in [Config::Missing, Config::Invalid("title")] {
        let plan = plan(&guestbook(3), &config, Some(&selecting(Some("a"))), pods.clone());
        assert_eq!((plan.service, plan.chosen.as_deref(), plan.create), (Apply, Some("b"), 0));
        assert_eq!(plan.delete, pods[..1]);
    }
}

#[test]
fn pods_learn_the_services_address_once_it_has_one_and_forget_none() {
    let mut service = selecting(Some("a"));
    service.spec.as_mut().unwrap().cluster_ip = Some("10.96.1.0".into());
    check(
        2,
        Some(service.clone()),
        &[("a", 3, "new", "ready"), ("b", 2, "new", "ready")],
        (Keep, Some("a"), 0, &["b"]),
    );
    let mut knows = pod("a", 3, "new", "ready");
    let container = &mut Arc::make_mut(&mut knows).spec.as_mut().unwrap().containers[0];
    let address = json!({"name": "SERVICE", "value": "10.96.1.0:80"});
    container.env.as_mut().unwrap().push(serde_json::from_value(address).unwrap());
    for service in [Some(service), None] {
        let plan = plan(&guestbook(1), &found("new"), service.as_ref(), vec![knows.clone()]);
        assert_eq!((plan.outdated.len(), plan.delete.len()), (0, 0));
    }
}

#[test]
fn a_pod_that_was_edited_is_brought_back() {
    let (mut bare, mut other) = (pod("a", 3, "new", "ready"), pod("b", 2, "new", "ready"));
    Arc::make_mut(&mut bare).metadata.labels = None;
    Arc::make_mut(&mut other).spec.as_mut().unwrap().containers[0].image = Some("nginx".into());
    let plan = plan(&guestbook(2), &found("new"), Some(&selecting(Some("a"))), vec![bare.clone(), other.clone()]);
    assert_eq!((plan.relabel, plan.delete), (vec![bare], vec![other]));
}
