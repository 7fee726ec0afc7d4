//! Several nodes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{PodAction, PodKey, Scheduler, on, place, pod, put, refused};

/// A scheduler with nodes of four processors and these specs.
fn scheduler(nodes: &[(&str, Value)]) -> Scheduler {
    let mut scheduler = Scheduler::default();
    for (name, spec) in nodes {
        let allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        let metadata = json!({"name": name, "labels": {"name": name}});
        let node = json!({"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable}});
        scheduler.state.nodes.insert((*name).to_owned(), node.into());
    }
    scheduler
}

/// A pod with a priority and a request, and more in its spec.
fn sized(name: &str, priority: i64, cpu: &str, more: Value) -> Value {
    let containers = json!([{"name": "main", "resources": {"requests": {"cpu": cpu}}}]);
    let mut pod = pod(name, json!({}), json!({"containers": containers, "priority": priority}));
    pod["spec"].as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    pod
}

fn tainted(effect: &str) -> Value {
    json!({"taints": [{"key": "for", "value": "cows", "effect": effect}]})
}

#[test]
fn pods_are_bound_to_nodes_that_take_them() {
    let mut scheduler = scheduler(&[("a", tainted("NoSchedule")), ("b", json!({})), ("c", json!({}))]);
    put(&mut scheduler, &on("b", sized("taken", 0, "3", json!({}))));
    assert_eq!(place(&mut scheduler, &sized("large", 0, "2", json!({}))), "c");
    let tolerant = json!({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"name": "a"}});
    assert_eq!(place(&mut scheduler, &sized("tolerant", 0, "2", tolerant)), "a");
    let key = put(&mut scheduler, &sized("huge", 0, "3", json!({})));
    let why = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. no new claims to deallocate, preemption: 0/3 \
               nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod.";
    assert_eq!(refused(&mut scheduler, &key), why);
}

#[test]
fn a_node_that_nothing_has_described_takes_no_pods() {
    let mut scheduler = Scheduler::default();
    scheduler.state.nodes.insert("new".to_owned(), json!({"metadata": {"name": "new"}}).into());
    let key = put(&mut scheduler, &pod("web", json!({}), json!({})));
    assert!(refused(&mut scheduler, &key).starts_with("0/1 nodes are available: 1 Too many pods."));
}

#[test]
fn pods_are_spread_over_nodes_and_prefer_some() {
    let mut scheduler = scheduler(&[("a", json!({})), ("b", json!({})), ("c", tainted("PreferNoSchedule"))]);
    let mut counts = BTreeMap::new();
    for number in 0..6 {
        // So little that the nodes remain equal.
        let node = place(&mut scheduler, &sized(&format!("p{number}"), 0, "1m", json!({})));
        *counts.entry(node).or_insert(0) += 1;
    }
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["a", "b"], "the taint of c is avoided");
    let expression = json!({"key": "name", "operator": "In", "values": ["b"]});
    let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [expression]}}]);
    let affinity =
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}});
    for number in 0..3 {
        assert_eq!(place(&mut scheduler, &sized(&format!("q{number}"), 0, "100m", affinity.clone())), "b");
    }
}

#[test]
fn pods_are_evicted_where_it_costs_least_and_that_node_is_kept_free() {
    let mut scheduler = scheduler(&[("a", json!({})), ("b", json!({}))]);
    put(&mut scheduler, &on("a", sized("five", 5, "4", json!({}))));
    let low = on("b", sized("one", 1, "4", json!({})));
    put(&mut scheduler, &low);
    let new = put(&mut scheduler, &sized("new", 9, "3", json!({})));
    let Some(preemption) = scheduler.decide(&new) else { panic!("it preempts") };
    match &preemption {
        PodAction::Preempt { node, victims, .. } => assert_eq!((&**node, &*victims[0].name), ("b", "one")),
        other => panic!("{other:?}"),
    }
    scheduler.end(&new, &preemption, true);
    put(&mut scheduler, &sized("late", 2, "2", json!({})));
    scheduler.take_pod(&low.clone().into(), &low.into(), true);
    let late = PodKey { namespace: "default".into(), name: "late".into(), uid: "late".into() };
    assert!(refused(&mut scheduler, &late).starts_with("0/2 nodes are available: 2 Insufficient cpu."));
    assert_eq!(scheduler.decide(&new), Some(PodAction::Bind("b".into())));
}

#[test]
fn all_nodes_of_many_have_their_turn() {
    let names: Vec<_> = (0..300).map(|number| format!("n{number:03}")).collect();
    let nodes: Vec<_> = names.iter().map(|name| (&**name, json!({}))).collect();
    let mut scheduler = scheduler(&nodes);
    let mut used = BTreeMap::new();
    for number in 0..300 {
        let node = place(&mut scheduler, &sized(&format!("p{number}"), 0, "1", json!({})));
        *used.entry(node).or_insert(0) += 1;
    }
    assert_eq!(used.len(), 300, "{used:?}");
}
