//! Pods that have others evicted.

use serde_json::{Value, json};

use super::{NODE_NAME, PodAction, PodKey, Scheduler, bound, pod, put, refused, scheduler};
use crate::controllers::reconcile::Key;

/// A pod with a priority and a request.
fn sized(name: &str, priority: i64, cpu: &str) -> Value {
    let containers = json!([{"name": "main", "resources": {"requests": {"cpu": cpu}}}]);
    pod(name, json!({"labels": {"app": name}}), json!({"containers": containers, "priority": priority}))
}

/// A scheduler whose node has four processors, with these pods on it.
fn with(pods: &[Value]) -> Scheduler {
    let mut scheduler = scheduler(json!({"status": {"allocatable": {"cpu": "4"}}}));
    for pod in pods {
        put(&mut scheduler, &bound(pod.clone()));
    }
    scheduler
}

/// Decides about a new pod, and returns the names of the victims.
#[track_caller]
fn victims(scheduler: &mut Scheduler, pod: &Value) -> Vec<String> {
    let key = put(scheduler, pod);
    match scheduler.decide(&key) {
        Some(PodAction::Preempt { victims, .. }) => victims.into_iter().map(|victim| victim.name).collect(),
        other => panic!("{other:?}"),
    }
}

const NO_CPU: &str = "0/1 nodes are available: 1 Insufficient cpu.";

#[test]
fn as_few_and_as_unimportant_pods_as_possible_go() {
    let started = |mut pod: Value, at: &str| {
        pod["status"]["startTime"] = json!(at);
        pod
    };
    let old = started(sized("old", 1, "1"), "2026-01-01T00:00:00Z");
    let young = started(sized("young", 1, "1"), "2026-01-02T00:00:00Z");
    let pods = [old, young, sized("two", 2, "1"), sized("five", 5, "1")];
    assert_eq!(victims(&mut with(&pods), &sized("new", 5, "1")), ["young"]);
    assert_eq!(victims(&mut with(&pods), &sized("new", 5, "2")), ["old", "young"]);
    assert_eq!(victims(&mut with(&pods), &sized("new", 6, "4")), ["five", "two", "old", "young"]);
    // A large pod of low priority instead of two small ones would do, but the important ones stay first.
    let pods = [sized("large", 1, "3"), sized("small", 2, "1")];
    assert_eq!(victims(&mut with(&pods), &sized("new", 5, "1")), ["large"]);
}

#[test]
fn a_pod_says_why_it_evicts_nothing() {
    let pods = [sized("one", 1, "2"), sized("five", 5, "2")];
    let mut scheduler = with(&pods);
    let mut why = |pod: &Value| {
        let key = put(&mut scheduler, pod);
        refused(&mut scheduler, &key)
    };
    let none = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    assert_eq!(why(&sized("equal", 1, "1")), format!("{NO_CPU} {none}"));
    let too_few = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(why(&sized("large", 5, "3")), format!("{NO_CPU} {too_few}"));
    let unhelpful =
        "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(why(&sized("huge", 9, "5")), format!("{NO_CPU} {unhelpful}"));
}

#[test]
fn protected_pods_go_last() {
    let budget = |name: &str, allowed: i64, disrupted: Value| {
        let metadata = json!({"namespace": "default", "name": name});
        let status = json!({"disruptionsAllowed": allowed, "disruptedPods": disrupted});
        let selector = json!({"matchLabels": {"app": name}});
        json!({"metadata": metadata, "spec": {"selector": selector}, "status": status})
    };
    let check = |budgets: &[Value], expect: &[&str]| {
        let mut scheduler = with(&[sized("low", 1, "2"), sized("high", 2, "2")]);
        for budget in budgets {
            let key = Key::of(budget).expect("a key");
            scheduler.state.budgets.insert(key, budget.clone().into());
        }
        assert_eq!(victims(&mut scheduler, &sized("new", 5, "2")), expect, "{budgets:?}");
    };
    check(&[], &["low"]);
    check(&[budget("low", 0, json!({}))], &["high"]);
    check(&[budget("low", 1, json!({}))], &["low"]);
    check(&[budget("low", 0, json!({"low": "2026-01-01T00:00:00Z"}))], &["low"]);
    check(&[budget("low", 0, json!({})), budget("high", 0, json!({}))], &["low"]);
}

#[test]
fn ports_and_anti_affinity_have_victims() {
    let with_port = |name: &str, priority: i64| {
        let containers = json!([{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]);
        pod(name, json!({}), json!({"containers": containers, "priority": priority}))
    };
    let mut scheduler = with(&[with_port("old", 1), sized("other", 1, "1")]);
    assert_eq!(victims(&mut scheduler, &with_port("new", 2)), ["old"]);

    let alone = |name: &str, priority: i64| {
        let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "host"});
        let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        pod(name, json!({"labels": {"app": "web"}}), json!({"affinity": affinity, "priority": priority}))
    };
    let mut scheduler = scheduler_with_host();
    put(&mut scheduler, &bound(alone("old", 1)));
    put(&mut scheduler, &bound(sized("other", 1, "1")));
    assert_eq!(victims(&mut scheduler, &alone("new", 2)), ["old"]);
}

fn scheduler_with_host() -> Scheduler {
    scheduler(json!({"metadata": {"labels": {"host": "here"}}, "status": {"allocatable": {"cpu": "4"}}}))
}

/// Marks a pod as evicted in favour of another one.
fn going(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let target = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"});
    pod["status"]["conditions"] = json!([target]);
    pod
}

#[test]
fn the_node_is_kept_free_until_the_victims_are_gone() {
    let old = bound(sized("old", 1, "4"));
    let mut scheduler = with(std::slice::from_ref(&old));
    let new = put(&mut scheduler, &sized("new", 5, "3"));
    let Some(preemption @ PodAction::Preempt { .. }) = scheduler.decide(&new) else { panic!("it preempts") };
    assert_eq!(scheduler.decide(&new), None, "it is preempting");
    put(&mut scheduler, &going(old.clone()));
    assert_eq!(scheduler.end(&new, &preemption, true), std::slice::from_ref(&new));
    assert_eq!(scheduler.decide(&new), None, "the victim is terminating");
    let late = put(&mut scheduler, &sized("late", 1, "2"));
    let small = put(&mut scheduler, &sized("small", 1, "1"));
    let affected = scheduler.take_pod(&old.clone().into(), &old.into(), true);
    assert_eq!(affected, [new.clone(), late.clone(), small.clone()]);
    // Even if others are looked at first.
    assert!(refused(&mut scheduler, &late).starts_with(NO_CPU));
    assert_eq!(scheduler.decide(&small), Some(PodAction::Bind(NODE_NAME.into())), "there is room beside it");
    assert_eq!(scheduler.decide(&new), Some(PodAction::Bind(NODE_NAME.into())));
}

#[test]
fn a_nomination_gives_way_to_a_more_important_pod_and_ends_with_the_pod() {
    let old = bound(sized("old", 1, "4"));
    let mut scheduler = with(std::slice::from_ref(&old));
    let mut nominated = sized("nominated", 2, "3");
    nominated["status"] = json!({"nominatedNodeName": "kubewright"});
    let first = put(&mut scheduler, &nominated);
    let important = put(&mut scheduler, &sized("important", 3, "3"));
    match scheduler.decide(&important) {
        Some(PodAction::Preempt { superseded, .. }) => assert_eq!(superseded, std::slice::from_ref(&first)),
        other => panic!("{other:?}"),
    }
    let late = put(&mut scheduler, &sized("late", 1, "2"));
    scheduler.take_pod(&old.clone().into(), &old.into(), true);
    assert!(refused(&mut scheduler, &late).starts_with(NO_CPU));
    let gone = sized("important", 3, "3");
    let affected = scheduler.take_pod(&gone.clone().into(), &gone.into(), true);
    assert!(affected.contains(&late));
    assert_eq!(scheduler.decide(&late), Some(PodAction::Bind(NODE_NAME.into())));
    let _: PodKey = first;
}
