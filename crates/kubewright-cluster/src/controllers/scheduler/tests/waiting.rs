//! Pods that wait.

use kubewright_apiserver::StoredObject;
use serde_json::{Value, json};

use super::{NODE_NAME, PodAction, PodKey, Scheduler, bound, pod, put, refused, scheduler};
use crate::controllers::{kind::Kind, volume_binder::COMPLETED};

/// A pod with a host port.
fn with_port(name: &str) -> Value {
    let containers = json!([{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]);
    pod(name, json!({}), json!({"containers": containers}))
}

#[test]
fn a_pod_that_is_not_bound_leaves_its_port_to_others() {
    let mut scheduler = scheduler(json!({}));
    let (first, second) = (put(&mut scheduler, &with_port("first")), put(&mut scheduler, &with_port("second")));
    assert_eq!(scheduler.decide(&first), Some(PodAction::Bind(NODE_NAME.into())));
    assert_eq!(scheduler.decide(&first), None, "it is being bound");
    assert!(refused(&mut scheduler, &second).contains("node(s) didn't have free ports for the requested pod ports"));
    assert_eq!(scheduler.end(&first, &PodAction::Bind(NODE_NAME.into()), false), std::slice::from_ref(&second));
    assert_eq!(scheduler.decide(&second), Some(PodAction::Bind(NODE_NAME.into())));
    assert!(
        scheduler.end(&first, &PodAction::Bind(NODE_NAME.into()), false).is_empty(),
        "nothing was set aside for it"
    );
}

#[test]
fn a_pod_that_never_preempts_says_so() {
    let mut scheduler = scheduler(json!({"spec": {"unschedulable": true}}));
    let mut modest = with_port("modest");
    let key = put(&mut scheduler, &modest);
    let reason = "0/1 nodes are available: 1 node(s) were unschedulable.";
    let unhelpful =
        "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(refused(&mut scheduler, &key), format!("{reason} {unhelpful}"));
    modest["spec"]["preemptionPolicy"] = json!("Never");
    put(&mut scheduler, &modest);
    let never =
        format!("{reason} no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.");
    assert_eq!(refused(&mut scheduler, &key), never);
}

#[test]
fn reports_about_a_pod_are_sent_one_after_another() {
    let mut scheduler = scheduler(json!({}));
    let taken = bound(with_port("taken"));
    put(&mut scheduler, &taken);
    let key = put(&mut scheduler, &with_port("waits"));
    let Some(report @ PodAction::Report(..)) = scheduler.decide(&key) else { panic!("the port is taken") };
    assert_eq!(scheduler.end(&key, &report, true), [], "nothing has changed meanwhile");
    let Some(report @ PodAction::Report(..)) = scheduler.decide(&key) else { panic!("the port is taken") };
    assert_eq!(change(&mut scheduler, &taken, true), std::slice::from_ref(&key));
    assert_eq!(scheduler.decide(&key), None, "the report is being sent");
    assert_eq!(scheduler.end(&key, &report, false), std::slice::from_ref(&key));
    assert_eq!(scheduler.decide(&key), Some(PodAction::Bind(NODE_NAME.into())));
}

/// Processes a change of a pod that isn't the first version, and returns the affected pods.
fn change(scheduler: &mut Scheduler, pod: &Value, gone: bool) -> Vec<PodKey> {
    scheduler.take_pod(&pod.clone().into(), &StoredObject::from(pod.clone()), gone)
}

#[test]
fn pods_are_decided_about_again_when_a_pod_that_matters_changes() {
    let labels = json!({"labels": {"host": "here"}});
    let mut scheduler = scheduler(json!({"metadata": labels}));
    let term = json!({"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "host"});
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let beside = put(&mut scheduler, &pod("beside", json!({}), json!({"affinity": affinity})));
    let missing = "0/1 nodes are available: 1 node(s) didn't match pod affinity rules.";
    let unhelpful =
        "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(refused(&mut scheduler, &beside), format!("{missing} {unhelpful}"));
    let mut db = bound(pod("db", json!({}), json!({})));
    assert_eq!(change(&mut scheduler, &db, false), std::slice::from_ref(&beside), "a new pod");
    assert!(change(&mut scheduler, &db, false).is_empty(), "nothing changed");
    db["metadata"]["labels"] = json!({"app": "db"});
    assert_eq!(change(&mut scheduler, &db, false), std::slice::from_ref(&beside), "its labels");
    assert_eq!(scheduler.decide(&beside), Some(PodAction::Bind(NODE_NAME.into())));
}

#[test]
fn the_most_important_pods_are_first() {
    let mut scheduler = scheduler(json!({}));
    let taken = bound(with_port("taken"));
    put(&mut scheduler, &taken);
    let prioritized = |name: &str, priority: i64| {
        let mut pod = with_port(name);
        pod["spec"]["priority"] = json!(priority);
        pod
    };
    for (name, priority) in [("z", 1), ("a", 1), ("m", 5), ("low", -1)] {
        put(&mut scheduler, &prioritized(name, priority));
    }
    let names: Vec<_> = change(&mut scheduler, &taken, true).into_iter().map(|pod| pod.name).collect();
    assert_eq!(names, ["m", "z", "a", "low"]);
}

#[test]
fn a_pod_waits_for_a_volume_that_the_node_reaches() {
    let mut scheduler = scheduler(json!({"metadata": {"labels": {"zone": "a"}}}));
    let claim = json!({
        "metadata": {"namespace": "default", "name": "data", "annotations": {COMPLETED: "yes"}},
        "spec": {"volumeName": "v"}, "status": {"phase": "Bound"},
    });
    scheduler.state.volumes.put(&Kind::CLAIM, &claim.into(), false);
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let key = put(&mut scheduler, &pod("web", json!({}), json!({"volumes": volumes})));
    let unbound = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
    assert!(refused(&mut scheduler, &key).contains(unbound));
    let zone = |value: &str| {
        let expression = json!({"key": "zone", "operator": "In", "values": [value]});
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
        json!({"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": required}}}).into()
    };
    scheduler.state.volumes.put(&Kind::VOLUME, &zone("b"), false);
    assert!(refused(&mut scheduler, &key).contains("1 node(s) didn't match PersistentVolume's node affinity"));
    scheduler.state.volumes.put(&Kind::VOLUME, &zone("a"), false);
    assert_eq!(scheduler.decide(&key), Some(PodAction::Bind(NODE_NAME.into())));
}

#[test]
fn a_claim_of_one_pod_is_used_by_one_pod() {
    let mut scheduler = scheduler(json!({}));
    for (name, mode) in [("one", "ReadWriteOncePod"), ("many", "ReadWriteOnce")] {
        let claim = json!({
            "metadata": {"namespace": "default", "name": name, "annotations": {COMPLETED: "yes"}},
            "spec": {"accessModes": [mode], "volumeName": "v"}, "status": {"phase": "Bound"},
        });
        scheduler.state.volumes.put(&Kind::CLAIM, &claim.into(), false);
    }
    scheduler.state.volumes.put(&Kind::VOLUME, &json!({"metadata": {"name": "v"}}).into(), false);
    let using = |name: &str, claim: &str, priority: i64| {
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
        pod(name, json!({}), json!({"volumes": volumes, "priority": priority}))
    };
    put(&mut scheduler, &bound(using("first", "one", 1)));
    put(&mut scheduler, &bound(using("shared", "many", 1)));
    let second = put(&mut scheduler, &using("second", "one", 1));
    let why = "1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
    assert!(refused(&mut scheduler, &second).contains(why));
    let other = put(&mut scheduler, &using("other", "many", 1));
    assert_eq!(scheduler.decide(&other), Some(PodAction::Bind(NODE_NAME.into())));
    let important = put(&mut scheduler, &using("important", "one", 2));
    match scheduler.decide(&important) {
        Some(PodAction::Preempt { victims, .. }) => {
            assert_eq!(victims.iter().map(|victim| &*victim.name).collect::<Vec<_>>(), ["first"]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pod_that_an_action_does_not_find_waits_no_longer() {
    let mut scheduler = scheduler(json!({"status": {"allocatable": {"pods": "1"}}}));
    let [first, second] = ["first", "second"].map(|name| put(&mut scheduler, &pod(name, json!({}), json!({}))));
    assert!(scheduler.decide(&first).is_some());
    assert_eq!(scheduler.remove_gone(&first), std::slice::from_ref(&second), "what it took is free");
    assert!(scheduler.decide(&first).is_none());
    assert_eq!(scheduler.all(), [second]);
}
