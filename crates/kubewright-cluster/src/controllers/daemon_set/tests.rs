use serde_json::json;

use super::*;
use crate::controllers::{reconcile::status_of, scheduler::filter::UNSCHEDULABLE, value::list};

fn now() -> Timestamp {
    "2024-01-01T00:01:00Z".parse().expect("a time")
}

fn set(spec: Value) -> Value {
    let mut set = json!({
        "metadata": {"name": "log", "namespace": "default", "uid": "s", "generation": 2, "annotations": {
            "deprecated.daemonset.template.generation": "1",
        }},
        "spec": {
            "selector": {"matchLabels": {"app": "log"}}, "revisionHistoryLimit": 10,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "template": {"metadata": {"labels": {"app": "log"}}, "spec": {"image": "new"}},
        },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        set["spec"][field] = value.clone();
    }
    set
}

fn node(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"name": name}}, "spec": spec})
}

/// A bound pod, ready since the beginning or not at all.
fn pod(node: &str, hash: &str, ready: bool) -> Value {
    let name = format!("{node}-{hash}");
    let status = if ready { "True" } else { "False" };
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "log", HASH: hash},
            "creationTimestamp": if hash == "old" { "2024-01-01T00:00:00Z" } else { "2024-01-01T00:00:10Z" }},
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": status, "lastTransitionTime": "2024-01-01T00:00:30Z"},
        ]},
    })
}

fn plan(set: &Value, nodes: &[Value], pods: &[Value]) -> Plan {
    plan_after(&mut FailedPods::default(), set, nodes, pods)
}

/// Returns the plan after other pods have failed.
fn plan_after(failed: &mut FailedPods, set: &Value, nodes: &[Value], pods: &[Value]) -> Plan {
    let mut template = set["spec"]["template"].clone();
    template["$patch"] = "replace".into();
    let revision = json!({
        "metadata": {"name": "log-new", "labels": {HASH: "new"}}, "data": {"spec": {"template": template}}, "revision": 2,
    });
    let history = History { owner: set, kind: DAEMON_SET, label: HASH, revisions: vec![&revision], taken: &|_| false };
    let mut plan = Plan::of(&DAEMON_SET, set);
    decide(set, nodes.iter().collect(), pods.iter().collect(), &history, now(), failed, &mut plan);
    plan
}

/// The created and deleted pods: `+` with the node, `-` with the name.
fn actions(plan: &Plan) -> Vec<String> {
    let node = |pod: &Value| placement::by_node(vec![pod]).into_keys().next().expect("a node");
    let of = |step: &Step| match step {
        Step::CreatePods(pods) => pods.iter().map(|pod| format!("+{}", node(pod))).collect(),
        Step::DeletePods(pods) => pods.iter().map(|(name, _)| format!("-{name}")).collect(),
        _ => Vec::new(),
    };
    plan.steps.iter().flat_map(of).collect()
}

fn two() -> [Value; 2] {
    [node("a", json!({})), node("b", json!({}))]
}

#[test]
fn each_node_has_a_pod() {
    let first = plan(&set(json!({})), &two(), &[pod("b", "new", true)]);
    assert_eq!(actions(&first), ["+a"]);
    let expect = json!({
        "currentNumberScheduled": 1, "numberMisscheduled": 0, "desiredNumberScheduled": 2, "numberReady": 1,
        "observedGeneration": 2, "updatedNumberScheduled": 1, "numberAvailable": 1, "numberUnavailable": 1,
    });
    assert_eq!(status_of(&first), expect);
    let made = first.steps.iter().find_map(|step| match step {
        Step::CreatePods(pods) => pods.first(),
        _ => None,
    });
    let made = made.expect("a pod");
    assert_eq!(made["metadata"]["labels"], json!({"app": "log", HASH: "new", "pod-template-generation": "1"}));
    assert_eq!(list(made, "/spec/tolerations").len(), 6);
    assert!(actions(&plan(&set(json!({})), &two(), &[pod("a", "new", true), pod("b", "new", false)])).is_empty());
}

#[test]
fn nodes_are_chosen_by_selector_affinity_and_taints() {
    let taint = |effect: &str| json!({"taints": [{"key": "k", "effect": effect}]});
    let check = |spec: Value, node_spec: Value, present: bool, expect: &[&str]| {
        let mut set = set(json!({}));
        for (field, value) in spec.as_object().into_iter().flatten() {
            set["spec"]["template"]["spec"][field] = value.clone();
        }
        let pods = if present { vec![pod("a", "new", true)] } else { Vec::new() };
        assert_eq!(actions(&plan(&set, &[node("a", node_spec.clone())], &pods)), expect, "{spec} {node_spec}");
    };
    check(json!({"nodeSelector": {"name": "a"}}), json!({}), false, &["+a"]);
    check(json!({"nodeSelector": {"name": "b"}}), json!({}), false, &[]);
    check(json!({"nodeSelector": {"name": "b"}}), json!({}), true, &["-a-new"]);
    check(json!({"nodeName": "b"}), json!({}), false, &[]);
    check(json!({}), taint("NoSchedule"), false, &[]);
    check(json!({}), taint("NoSchedule"), true, &[]);
    check(json!({}), taint("NoExecute"), true, &["-a-new"]);
    check(json!({}), taint("PreferNoSchedule"), false, &["+a"]);
    check(json!({"tolerations": [{"operator": "Exists"}]}), taint("NoExecute"), false, &["+a"]);
    let cordoned = json!({"unschedulable": true, "taints": [{"key": UNSCHEDULABLE, "effect": "NoSchedule"}]});
    check(json!({}), cordoned, false, &["+a"]);
}

#[test]
fn pods_that_have_ended_or_are_too_many_go() {
    let mut failed = pod("a", "new", false);
    failed["status"]["phase"] = "Failed".into();
    let nodes = [node("a", json!({}))];
    let mut delays = FailedPods::default();
    let first = plan_after(&mut delays, &set(json!({})), &nodes, std::slice::from_ref(&failed));
    assert_eq!(actions(&first), ["-a-new"]);
    let message = "Found failed daemon pod default/a-new on node a, will try to kill it".to_owned();
    assert!(first.steps.contains(&Step::Event { warning: true, reason: "FailedDaemonPod", message }));
    let second = plan_after(&mut delays, &set(json!({})), &nodes, &[failed]);
    assert!(actions(&second).is_empty());
    assert_eq!(second.requeue_after, Some(std::time::Duration::from_secs(1)));
    let both = [pod("a", "new", true), pod("a", "old", true)];
    assert_eq!(actions(&plan(&set(json!({})), &nodes, &both)), ["-a-new"], "the oldest stays");
    let mut lost = pod("gone", "new", false);
    assert!(actions(&plan(&set(json!({})), &[], std::slice::from_ref(&lost))).is_empty());
    lost["spec"] = placement::new_pod(&set(json!({})), "new", &node("gone", json!({})))["spec"].clone();
    assert_eq!(actions(&plan(&set(json!({})), &[], &[lost])), ["-gone-new"]);
}

#[test]
fn updates_stay_within_their_bounds() {
    let strategy =
        |parameters: Value| set(json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": parameters}}));
    let plain = strategy(json!({"maxUnavailable": 1, "maxSurge": 0}));
    let old = [pod("a", "old", true), pod("b", "old", true)];
    assert_eq!(actions(&plan(&plain, &two(), &old)), ["-a-old"]);
    assert_eq!(
        actions(&plan(&strategy(json!({"maxUnavailable": "100%", "maxSurge": 0})), &two(), &old)),
        ["-a-old", "-b-old"]
    );
    assert!(actions(&plan(&plain, &two(), &[pod("a", "new", false), pod("b", "old", true)])).is_empty());
    assert_eq!(actions(&plan(&plain, &two(), &[pod("a", "new", true), pod("b", "old", true)])), ["-b-old"]);
    assert_eq!(actions(&plan(&plain, &two(), &[pod("a", "old", true), pod("b", "old", false)])), ["-b-old"]);
    let manual = set(json!({"updateStrategy": {"type": "OnDelete"}}));
    assert!(actions(&plan(&manual, &two(), &old)).is_empty());
    let surge = strategy(json!({"maxUnavailable": 0, "maxSurge": 1}));
    assert_eq!(actions(&plan(&surge, &two(), &old)), ["+a"]);
    let beside = |ready: bool| [pod("a", "old", true), pod("a", "new", ready), pod("b", "old", true)];
    assert!(actions(&plan(&surge, &two(), &beside(false))).is_empty());
    assert_eq!(actions(&plan(&surge, &two(), &beside(true))), ["-a-old"]);
}

#[test]
fn a_set_that_is_deleted_does_nothing() {
    let mut set = set(json!({}));
    set["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
    assert!(actions(&plan(&set, &two(), &[])).is_empty());
}

#[test]
fn a_surging_pod_is_decided_about_when_it_becomes_available() {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    let object = set(json!({"updateStrategy": strategy, "minReadySeconds": 40}));
    let mut old = pod("a", "old", true);
    old["status"]["conditions"][0]["lastTransitionTime"] = "2024-01-01T00:00:00Z".into();
    let plan = plan(&object, &[node("a", json!({}))], &[old, pod("a", "new", true)]);
    assert_eq!((actions(&plan), plan.requeue_after), (Vec::new(), Some(std::time::Duration::from_secs(10))));
}
