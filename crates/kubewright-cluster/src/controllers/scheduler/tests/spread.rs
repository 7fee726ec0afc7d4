//! Topology spread constraints.

use serde_json::{Value, json};

use super::obstacle;
use crate::controllers::scheduler::{
    candidate::{Occupant, PodKey},
    state::ClusterState,
};

const SKEW: &str = "node(s) didn't match pod topology spread constraints";
const NO_LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

/// The nodes `n` in zone a, `far` in zone b, which is tainted, and `nowhere`.
#[track_caller]
fn check(on: &[&str], more: Value, expect: Option<&str>) {
    let mut state = ClusterState::default();
    for (name, zone, taints) in [
        ("n", json!("a"), json!([])),
        ("far", json!("b"), json!([{"key": "gone", "effect": "NoSchedule"}])),
        ("nowhere", Value::Null, json!([])),
    ] {
        let metadata = json!({"name": name, "labels": {"zone": zone, "name": name}});
        let (spec, status) = (json!({"taints": taints}), json!({"allocatable": {"pods": "110"}}));
        state.nodes.insert(name.into(), json!({"metadata": metadata, "spec": spec, "status": status}).into());
    }
    let metadata = |name: &str| json!({"namespace": "default", "name": name, "uid": name, "labels": {"app": "web"}});
    for (index, node) in on.iter().enumerate() {
        let peer = json!({"metadata": metadata(&index.to_string()), "spec": {"nodeName": node}});
        state.add(PodKey::of(&peer), Occupant::by(&peer, peer.clone().into()));
    }
    let mut constraint = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    constraint.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    let pod = json!({"metadata": metadata("new"), "spec": {"topologySpreadConstraints": [constraint]}});
    assert_eq!(obstacle(&state, &pod, "n").as_deref(), expect, "{on:?} {more}");
}

#[test]
fn the_skew_is_limited() {
    check(&[], json!({}), None);
    check(&["n"], json!({}), Some(SKEW));
    check(&["n"], json!({"maxSkew": 2}), None);
    check(&["n"], json!({"whenUnsatisfiable": "ScheduleAnyway"}), None);
    check(&["n", "far"], json!({}), None);
    check(&["n", "nowhere"], json!({}), Some(SKEW));
    check(&["n"], json!({"labelSelector": {"matchLabels": {"app": "other"}}}), None);
    check(&["n"], json!({"labelSelector": {}}), None);
}

#[test]
fn policies_and_domains() {
    check(&["n"], json!({"nodeTaintsPolicy": "Honor"}), None);
    check(&["n", "far"], json!({"minDomains": 2}), None);
    check(&["n", "far"], json!({"minDomains": 3}), Some(SKEW));
    check(&[], json!({"topologyKey": "rack"}), Some(NO_LABEL));
}
