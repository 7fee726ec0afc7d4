//! Tests of quotas.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn usage(name: &str, object: &Value) -> Value {
    let usage = Evaluator::of_name(name).unwrap().usage(object, NOW);
    usage.into_iter().map(|(name, amount)| (name, Value::from(amount.shown))).collect()
}

#[test]
fn names_belong_to_kinds() {
    let check = |name: &str, expect: Option<(&str, &str)>| {
        assert_eq!(Evaluator::of_name(name).map(|found| (found.group(), found.plural())), expect, "{name}");
    };
    let pods = Some(("", "pods"));
    for name in ["pods", "count/pods", "cpu", "requests.memory", "limits.ephemeral-storage", "hugepages-2Mi"] {
        check(name, pods);
    }
    check("requests.hugepages-1Gi", pods);
    check("requests.example.com/gpu", pods);
    check("requests.deviceclass.resource.kubernetes.io/gpu", pods);
    check("requests.kubernetes.io/x", None);
    check("example.com/gpu", None);
    check("limits.hugepages-1Gi", None);
    check("services.nodeports", Some(("", "services")));
    check("requests.storage", Some(("", "persistentvolumeclaims")));
    check("gold.storageclass.storage.k8s.io/requests.storage", Some(("", "persistentvolumeclaims")));
    check("gold.storageclass.storage.k8s.io/pods", None);
    check("gold.deviceclass.resource.k8s.io/devices", Some(("resource.k8s.io", "resourceclaims")));
    check("count/resourceclaims.resource.k8s.io", Some(("resource.k8s.io", "resourceclaims")));
    check("secrets", Some(("", "secrets")));
    check("count/jobs.batch", Some(("batch", "jobs")));
    check("count/things.sub.example.com", Some(("sub.example.com", "things")));
    check("count/events", None);
    check("count/events.events.k8s.io", None);
}

#[test]
fn ended_pods_use_only_their_place() {
    let place = json!({"count/pods": "1"});
    let check = |pod: &Value, expect: &Value| assert_eq!(usage("pods", pod), *expect, "{pod}");
    check(&json!({"status": {"phase": "Running"}}), &json!({"count/pods": "1", "pods": "1"}));
    check(&json!({"status": {"phase": "Failed"}}), &place);
    let deleted = |grace: i64| {
        let time = "1969-12-31T23:59:50Z";
        json!({"metadata": {"deletionTimestamp": time, "deletionGracePeriodSeconds": grace}})
    };
    check(&deleted(30), &json!({"count/pods": "1", "pods": "1"}));
    check(&deleted(5), &place);
}

#[test]
fn pods_use_what_is_allocated_with_their_overhead() {
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
    let mut pod = json!({
        "spec": {"containers": [{"name": "c", "resources": resources("1")}], "overhead": {"cpu": "250m", "memory": "1Mi"}},
        "status": {"containerStatuses": [{"name": "c", "resources": resources("2"), "allocatedResources": {"cpu": "3"}}]},
    });
    let used = usage("pods", &pod);
    let used = |name: &str| used[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(["cpu", "requests.cpu", "limits.cpu", "memory"].map(used), ["3250m", "3250m", "2250m", "1Mi"]);
    pod["spec"]["containers"][0]["resources"] = resources("4");
    assert_eq!(usage("pods", &pod)["cpu"], "4250m");
    pod["status"]["conditions"] = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
    assert_eq!(usage("pods", &pod)["cpu"], "3250m");
}

#[test]
fn claims_use_whole_bytes_of_their_class() {
    let claim = json!({
        "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "gold"}},
        "spec": {"resources": {"requests": {"storage": "1500m"}}, "storageClassName": "silver"},
    });
    let expect = json!({
        "count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "2",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "gold.storageclass.storage.k8s.io/requests.storage": "2",
    });
    assert_eq!(usage("requests.storage", &claim), expect);
}

#[test]
fn claims_of_devices_use_the_most_devices_of_each_class() {
    let exact =
        |class: &str, count: u32| json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": count});
    let all = json!({"deviceClassName": "silver", "allocationMode": "All"});
    let claim = json!({"spec": {"devices": {"requests": [
        {"name": "a", "exactly": exact("gold", 2)},
        {"name": "b", "firstAvailable": [exact("gold", 1), exact("silver", 4), exact("gold", 3)]},
        {"name": "c", "exactly": all},
    ]}}});
    let expect = json!({
        "count/resourceclaims.resource.k8s.io": "1",
        "gold.deviceclass.resource.k8s.io/devices": "5", "silver.deviceclass.resource.k8s.io/devices": "36",
    });
    assert_eq!(usage("gold.deviceclass.resource.k8s.io/devices", &claim), expect);
    let claims = Evaluator::of("resource.k8s.io", "resourceclaims").unwrap();
    assert!(
        claims.reads_objects()
            && claims.handles("", Some(&claim), &claim)
            && !claims.handles("status", Some(&claim), &claim)
    );
}

#[test]
fn scopes_select_objects() {
    let pods = Evaluator::of("", "pods").unwrap();
    let claims = Evaluator::of("", "persistentvolumeclaims").unwrap();
    let check = |evaluator, requirement: Value, object: &Value, expect: bool| {
        let quota = json!({"spec": {"scopeSelector": {"matchExpressions": [requirement]}}});
        assert_eq!(matches_scopes(&quota, evaluator, object), expect, "{requirement} {object}");
    };
    let class = |operator: &str| json!({"scopeName": "PriorityClass", "operator": operator, "values": ["high"]});
    let (high, low, none) =
        (json!({"spec": {"priorityClassName": "high"}}), json!({"spec": {"priorityClassName": "low"}}), json!({}));
    for (operator, expect) in [
        ("In", [true, false, false]),
        ("NotIn", [false, true, true]),
        ("Exists", [true, true, false]),
        ("DoesNotExist", [false, false, true]),
    ] {
        for (pod, expect) in [&high, &low, &none].into_iter().zip(expect) {
            check(pods, class(operator), pod, expect);
        }
    }
    let attributes =
        |operator: &str| json!({"scopeName": "VolumeAttributesClass", "operator": operator, "values": ["a"]});
    let claim =
        json!({"spec": {"volumeAttributesClassName": "a"}, "status": {"currentVolumeAttributesClassName": "b"}});
    check(claims, attributes("In"), &claim, true);
    check(claims, attributes("NotIn"), &claim, true);
    check(claims, attributes("NotIn"), &none, true);
    check(claims, attributes("Exists"), &none, false);
    check(pods, attributes("Exists"), &claim, false);
    check(claims, class("DoesNotExist"), &none, false);
}

#[test]
fn updates_are_charged_with_the_difference() {
    let evaluator = Evaluator::of("", "services").unwrap();
    let service = |kind: &str, ports: usize| json!({"spec": {"type": kind, "ports": vec![json!({}); ports]}});
    let hard = json!({"services": "1", "services.nodeports": "2"});
    let quota = json!({
        "metadata": {"name": "q"}, "spec": {"hard": hard},
        "status": {"hard": hard, "used": {"services": "1", "services.nodeports": "1"}},
    });
    let charge = |old: &Value, new: &Value| {
        let write = Write { evaluator, subresource: "", old: Some(old), new, now: NOW };
        charge(&write, [&quota].into_iter())
    };
    let after = json!({"services": "1", "services.nodeports": "2"});
    assert_eq!(charge(&service("NodePort", 1), &service("NodePort", 2)), Ok(vec![(0, after)]));
    assert_eq!(charge(&service("NodePort", 1), &service("ClusterIP", 1)), Ok(Vec::new()));
    let why =
        "exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=1, limited: services.nodeports=2";
    assert_eq!(charge(&service("ClusterIP", 2), &service("NodePort", 2)), Err(why.into()));
}
