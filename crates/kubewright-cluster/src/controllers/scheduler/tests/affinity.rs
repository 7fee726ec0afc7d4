//! Affinity and anti-affinity between pods.

use serde_json::{Value, json};

use super::obstacle;
use crate::controllers::scheduler::{
    candidate::{Occupant, PodKey},
    state::ClusterState,
};

const AFFINITY: &str = "node(s) didn't match pod affinity rules";
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

fn term(labels: Value, key: &str) -> Value {
    json!({"labelSelector": {"matchLabels": labels}, "topologyKey": key})
}

fn pod(name: &str, labels: Value, kind: &str, terms: &[Value]) -> Value {
    let affinity = json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    json!({
        "metadata": {"namespace": "default", "name": name, "uid": name, "labels": labels},
        "spec": {"affinity": affinity},
    })
}

/// Two nodes in one zone, and a third one in another; `peers` run on the nodes that they name.
#[track_caller]
fn check(peers: &[(&str, Value)], pod: &Value, expect: Option<&str>) {
    let mut state = ClusterState::default();
    for (name, zone) in [("n", "a"), ("same", "a"), ("far", "b")] {
        let labels = json!({"host": name, "zone": zone});
        let status = json!({"allocatable": {"pods": "110"}});
        state.nodes.insert(name.into(), json!({"metadata": {"name": name, "labels": labels}, "status": status}).into());
    }
    state.namespaces.insert("other".into(), json!({"team": "x"}));
    for (node, peer) in peers {
        let mut peer = peer.clone();
        peer["spec"]["nodeName"] = json!(node);
        state.add(PodKey::of(&peer), Occupant::by(&peer, peer.clone().into()));
    }
    assert_eq!(obstacle(&state, pod, "n").as_deref(), expect, "{peers:?} {pod}");
}

fn plain(name: &str, labels: Value) -> Value {
    pod(name, labels, "none", &[])
}

#[test]
fn anti_affinity_keeps_pods_apart_in_both_directions() {
    let web = || json!({"app": "web"});
    let alone = |key| pod("alone", web(), "podAntiAffinity", &[term(web(), key)]);
    check(&[], &alone("host"), None);
    check(&[("n", plain("p", json!({})))], &alone("host"), None);
    check(&[("n", plain("p", web()))], &alone("host"), Some(ANTI_AFFINITY));
    check(&[("same", plain("p", web()))], &alone("host"), None);
    check(&[("same", plain("p", web()))], &alone("zone"), Some(ANTI_AFFINITY));
    check(&[("far", plain("p", web()))], &alone("zone"), None);
    check(&[("n", plain("p", web()))], &alone("missing"), None);
    let incoming = plain("late", web());
    check(&[("n", alone("host"))], &incoming, Some(EXISTING));
    check(&[("same", alone("host"))], &incoming, None);
    check(&[("same", alone("zone"))], &incoming, Some(EXISTING));
    check(&[("n", alone("host"))], &plain("late", json!({})), None);
    check(&[("unknown", alone("host"))], &incoming, None);
}

#[test]
fn affinity_wants_pods_that_match_all_terms() {
    let (web, db) = (|| json!({"app": "web"}), || json!({"app": "db", "tier": "1"}));
    let beside = |terms: &[Value]| pod("beside", web(), "podAffinity", terms);
    let wanted = || beside(&[term(json!({"app": "db"}), "zone")]);
    check(&[], &wanted(), Some(AFFINITY));
    check(&[("same", plain("p", db()))], &wanted(), None);
    check(&[("far", plain("p", db()))], &wanted(), Some(AFFINITY));
    let both = || beside(&[term(json!({"app": "db"}), "zone"), term(json!({"tier": "1"}), "host")]);
    check(&[("n", plain("p", db()))], &both(), None);
    check(&[("same", plain("p", db()))], &both(), Some(AFFINITY));
    check(&[("n", plain("p", json!({"app": "db"})))], &both(), Some(AFFINITY));
    // The first pod of a group is bound, a further one only beside it.
    let group = |key| beside(&[term(web(), key)]);
    check(&[], &group("host"), None);
    check(&[], &group("missing"), Some(AFFINITY));
    check(&[("far", plain("p", web()))], &group("zone"), Some(AFFINITY));
}

#[test]
fn terms_select_namespaces() {
    let alone = |more: Value| {
        let mut term = term(json!({"app": "web"}), "host");
        term.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        pod("alone", json!({}), "podAntiAffinity", &[term])
    };
    let mut foreign = plain("p", json!({"app": "web"}));
    foreign["metadata"]["namespace"] = json!("other");
    let peers = [("n", foreign)];
    check(&peers, &alone(json!({})), None);
    check(&peers, &alone(json!({"namespaces": ["third"]})), None);
    check(&peers, &alone(json!({"namespaces": ["third", "other"]})), Some(ANTI_AFFINITY));
    check(&peers, &alone(json!({"namespaceSelector": {}})), Some(ANTI_AFFINITY));
    check(&peers, &alone(json!({"namespaceSelector": {"matchLabels": {"team": "x"}}})), Some(ANTI_AFFINITY));
    check(&peers, &alone(json!({"namespaceSelector": {"matchLabels": {"team": "y"}}})), None);
}
