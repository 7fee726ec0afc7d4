use serde_json::json;

use super::*;
use crate::api::v1alpha1::LolcowSpec;

fn cow(port: Option<i32>, greeting: Option<&str>) -> Lolcow {
    let mut cow = Lolcow::new("lolcow-pod", LolcowSpec { port, greeting: greeting.map(Into::into) });
    cow.metadata.namespace = Some("default".into());
    cow.metadata.uid = Some("1".into());
    cow
}

/// A child as the API server has it after an apply, with an owner reference, defaults, and `change` merged in.
fn stored<T: Object>(wanted: &T, change: Value) -> T {
    let mut value = serde_json::to_value(wanted).unwrap();
    let owner = json!({"apiVersion": "my.domain/v1alpha1", "kind": "Lolcow", "name": "lolcow-pod", "uid": "1",
        "controller": true, "blockOwnerDeletion": true});
    merge(&mut value, json!({"metadata": {"ownerReferences": [owner], "uid": "9", "resourceVersion": "7"}}));
    merge(&mut value, change);
    serde_json::from_value(value).unwrap()
}

fn merge(value: &mut Value, patch: Value) {
    match (value, patch) {
        (Value::Object(value), Value::Object(patch)) => {
            for (field, patch) in patch {
                merge(value.entry(field).or_insert(Value::Null), patch);
            }
        }
        (Value::Array(value), Value::Array(patch)) if value.len() == patch.len() => {
            value.iter_mut().zip(patch).for_each(|(value, patch)| merge(value, patch));
        }
        (value, patch) => *value = patch,
    }
}

fn deployment_step(wanted: &Lolcow, found: &Lolcow, change: Value) -> Step {
    step(wanted, &children::deployment(wanted), Some(&stored(&children::deployment(found), change)))
}

fn service_step(wanted: &Lolcow, found: &Lolcow, change: Value) -> Step {
    step(wanted, &children::service(wanted), Some(&stored(&children::service(found), change)))
}

fn in_container(container: Value) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [container]}}}})
}

fn in_port(port: Value) -> Value {
    json!({"spec": {"ports": [port]}})
}

#[test]
fn missing_children_are_applied() {
    let cow = cow(Some(30685), Some("Moo"));
    assert_eq!(step(&cow, &children::deployment(&cow), None), Step::Apply);
    assert_eq!(step(&cow, &children::service(&cow), None), Step::Apply);
}

#[test]
fn fields_of_the_server_and_other_managers_are_no_difference() {
    let cow = cow(Some(30685), Some("Moo"));
    for change in [
        json!({}),
        json!({"spec": {"replicas": 7, "revisionHistoryLimit": 10, "strategy": {"type": "RollingUpdate"}}}),
        json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "1"}, "labels": {"team": "barn"}}}),
        in_container(json!({"imagePullPolicy": "Always", "readinessProbe": {"timeoutSeconds": 1}})),
        json!({"spec": {"template": {"spec": {"schedulerName": "default-scheduler", "dnsPolicy": "ClusterFirst"}}}}),
    ] {
        assert_eq!(deployment_step(&cow, &cow, change.clone()), Step::Keep, "{change}");
    }
    let addresses = json!({"clusterIP": "10.96.1.0", "clusterIPs": ["10.96.1.0"], "ipFamilies": ["IPv4"]});
    assert_eq!(service_step(&cow, &cow, json!({"spec": addresses})), Step::Keep);
    let mut more = stored(&children::service(&cow), json!({}));
    let mut ports = more.spec.as_ref().unwrap().ports.clone().unwrap();
    ports.insert(0, k8s_openapi::api::core::v1::ServicePort { port: 9090, ..Default::default() });
    more.spec.as_mut().unwrap().ports = Some(ports);
    assert_eq!(step(&cow, &children::service(&cow), Some(&more)), Step::Keep);
}

#[test]
fn an_assigned_node_port_is_kept() {
    let (asked, left) = (cow(Some(30685), None), cow(None, None));
    assert_eq!(service_step(&left, &left, in_port(json!({"nodePort": 31234}))), Step::Keep);
    assert_eq!(service_step(&left, &asked, json!({})), Step::Keep);
    assert_eq!(service_step(&asked, &left, in_port(json!({"nodePort": 31234}))), Step::Apply);
    assert_eq!(service_step(&cow(Some(0), None), &left, in_port(json!({"nodePort": 31234}))), Step::Keep);
}

#[test]
fn edited_children_are_applied_again() {
    let cow = cow(Some(30685), Some("Moo"));
    for change in [
        in_container(json!({"args": ["Mee"]})),
        in_container(json!({"args": ["Moo", "Mee"]})),
        in_container(json!({"args": null})),
        in_container(json!({"image": "busybox"})),
        in_container(json!({"readinessProbe": null})),
        json!({"metadata": {"labels": null}}),
    ] {
        assert_eq!(deployment_step(&cow, &cow, change.clone()), Step::Apply, "{change}");
    }
    for change in [
        in_port(json!({"nodePort": 30686})),
        in_port(json!({"targetPort": 80})),
        json!({"spec": {"type": "ClusterIP"}}),
        json!({"spec": {"selector": {"more": "than that"}}}),
    ] {
        assert_eq!(service_step(&cow, &cow, change.clone()), Step::Apply, "{change}");
    }
}

#[test]
fn a_greeting_comes_changes_and_goes() {
    let (silent, first, second) = (cow(None, None), cow(None, Some("Moo")), cow(None, Some("Mee")));
    for (wanted, found) in [(&first, &silent), (&second, &first), (&silent, &first)] {
        assert_eq!(deployment_step(wanted, found, json!({})), Step::Apply);
    }
    assert_eq!(deployment_step(&silent, &cow(None, Some("")), json!({})), Step::Keep);
    // The API server may drop an empty list.
    assert_eq!(deployment_step(&silent, &silent, in_container(json!({"args": null}))), Step::Keep);
}

#[test]
fn objects_of_other_owners_are_left_alone() {
    let cow = cow(None, None);
    let found = |owner: Value| stored(&children::service(&cow), json!({"metadata": {"ownerReferences": owner}}));
    let step = |owner: Value| step(&cow, &children::service(&cow), Some(&found(owner)));
    let owner = |kind: &str, uid: &str, controller: bool| json!({"apiVersion": "v1", "kind": kind, "name": "lolcow-pod", "uid": uid, "controller": controller});
    let taken = |whose: &str| Step::Taken(format!("service \"lolcow-pod\" exists and {whose}; it is not taken over"));
    assert_eq!(step(Value::Null), taken("has no controller"));
    assert_eq!(step(json!([owner("Lolcow", "1", false)])), taken("has no controller"));
    assert_eq!(step(json!([owner("Gateway", "2", true)])), taken("is controlled by Gateway lolcow-pod"));
    let leaving = "service \"lolcow-pod\" of a former lolcow of this name still exists";
    assert_eq!(step(json!([owner("Lolcow", "2", true)])), Step::Deleting(leaving.into()));
}

#[test]
fn an_object_that_is_being_deleted_is_waited_for() {
    let cow = cow(None, None);
    let change = json!({"metadata": {"deletionTimestamp": "2020-01-30T10:00:00Z"}});
    let leaving = "deployment \"lolcow-pod\" is being deleted and will be created again";
    assert_eq!(deployment_step(&cow, &cow, change), Step::Deleting(leaving.into()));
}

#[test]
fn changes_are_reported_with_both_values() {
    let cow = cow(Some(30686), Some("costs $5, $(HOME) and $$"));
    let deployment = children::deployment(&cow);
    let change = greeting(&cow, Some(&deployment));
    assert!(!change.is_new(), "{change:?}");
    let change = greeting(&cow, None);
    assert_eq!((change.is_new(), change.found), (true, None));
    let mut before = cow.clone();
    before.spec.port = Some(30685);
    let change = port(&cow, Some(&children::service(&before)));
    assert_eq!((change.is_new(), change.wanted, change.found), (true, Some(30686), Some(30685)));
    before.spec.port = None;
    assert!(!port(&before, Some(&children::service(&cow))).is_new());
}

#[test]
fn a_greeting_is_one_argument_to_the_letter() {
    let argument = |greeting: &str| {
        let pod = children::deployment(&cow(None, Some(greeting))).spec.unwrap().template.spec.unwrap();
        pod.containers[0].args.clone().unwrap()
    };
    assert_eq!(argument("Hello, world"), ["Hello, world"]);
    assert_eq!(argument("--listen"), ["--listen"]);
    assert_eq!(argument("$(PATH) is $5"), ["$$(PATH) is $$5"]);
    assert!(argument("").is_empty());
}

#[test]
fn long_names_make_labels_that_fit() {
    let mut cow = cow(None, None);
    cow.metadata.name = Some("c".repeat(253));
    let labels = children::deployment(&cow).metadata.labels.unwrap();
    assert!(labels.values().all(|value| value.len() <= 63), "{labels:?}");
}

#[test]
fn a_rollout_is_complete_when_all_pods_are_new_and_available() {
    let rollout = |spec: Value, status: Value| {
        let change = json!({"metadata": {"generation": 2}, "spec": spec, "status": status});
        rollout(&stored(&children::deployment(&cow(None, None)), change))
    };
    let counts = |all: i32, updated: i32, available: i32| json!({"observedGeneration": 2, "replicas": all, "updatedReplicas": updated, "availableReplicas": available});
    assert_eq!(rollout(json!({}), counts(1, 1, 1)), Rollout::Complete);
    assert_eq!(rollout(json!({"replicas": 3}), counts(3, 3, 3)), Rollout::Complete);
    assert_eq!(rollout(json!({"replicas": 0}), counts(0, 0, 0)), Rollout::ScaledToZero);
    assert_eq!(rollout(json!({}), counts(2, 1, 1)), Rollout::Underway { desired: 1, updated: 1 });
    assert_eq!(rollout(json!({}), counts(1, 1, 0)), Rollout::Underway { desired: 1, updated: 0 });
    assert_eq!(rollout(json!({}), Value::Null), Rollout::Underway { desired: 1, updated: 0 });
    let mut stale = counts(1, 1, 1);
    stale["observedGeneration"] = 1.into();
    assert_eq!(rollout(json!({}), stale), Rollout::Underway { desired: 1, updated: 0 });
    let mut stalled = counts(1, 1, 0);
    stalled["conditions"] = json!([{"type": "Progressing", "status": "False", "message": "too slow"}]);
    assert_eq!(rollout(json!({}), stalled), Rollout::Stalled("too slow".into()));
}
