//! Pods whose claims are bound for the node of their first consumer.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{PodAction, PodKey, Scheduler, pod, put, refused};
use crate::controllers::{
    kind::Kind,
    scheduler::volumes::{CAPACITY, DRIVER},
    volume_binder::{CLASS, COMPLETED, SELECTED_NODE},
};

/// A scheduler with the nodes `a` and `b`, and a class whose volumes are created by this provisioner.
fn scheduler(provisioner: &str) -> Scheduler {
    let mut scheduler = Scheduler::default();
    for name in ["a", "b"] {
        let labels = json!({"kubernetes.io/hostname": name});
        let node = json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"pods": "110"}}});
        scheduler.state.nodes.insert(name.to_owned(), node.into());
    }
    let class = json!({
        "metadata": {"name": "late"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
    });
    add(&mut scheduler, &CLASS, class);
    scheduler
}

fn add(scheduler: &mut Scheduler, kind: &Kind, object: Value) {
    scheduler.state.volumes.put(kind, &object.into(), false);
}

fn claim(name: &str, size: &str) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "uid": name},
        "spec": {
            "storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
        },
        "status": {"phase": "Pending"},
    })
}

/// A volume of a node.
fn volume(name: &str, node: &str, size: &str) -> Value {
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    json!({
        "metadata": {"name": name},
        "spec": {
            "storageClassName": "late", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
        "status": {"phase": "Available"},
    })
}

/// A pod that uses claims.
fn using(name: &str, claims: &[&str]) -> Value {
    let source = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    pod(name, json!({}), json!({"volumes": claims.iter().map(source).collect::<Vec<_>>()}))
}

/// Decides about a pod whose volumes are to be bound, and returns what is written.
#[track_caller]
fn written(scheduler: &mut Scheduler, pod: &PodKey) -> Vec<Arc<Value>> {
    match scheduler.decide(pod) {
        Some(action @ PodAction::Prepare { .. }) => {
            assert_eq!(scheduler.end(pod, &action, true), std::slice::from_ref(pod));
            let PodAction::Prepare { volumes: reservations, .. } = action else { unreachable!() };
            reservations.into_iter().map(|reservation| reservation.after).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// The same claim, bound to a volume.
fn bound_to(claim: &Value, volume: &str) -> Value {
    let mut claim = claim.clone();
    claim["spec"]["volumeName"] = volume.into();
    claim["metadata"]["annotations"][COMPLETED] = "yes".into();
    claim
}

#[test]
fn claims_get_the_volumes_of_one_node() {
    let mut scheduler = scheduler("kubernetes.io/no-provisioner");
    for claim in [claim("data", "2Gi"), claim("log", "1Gi")] {
        add(&mut scheduler, &Kind::CLAIM, claim);
    }
    add(&mut scheduler, &Kind::VOLUME, volume("a1", "a", "1Gi"));
    let web = put(&mut scheduler, &using("web", &["data", "log"]));
    let why = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.";
    assert!(refused(&mut scheduler, &web).starts_with(why));
    add(&mut scheduler, &Kind::VOLUME, volume("b1", "b", "2Gi"));
    add(&mut scheduler, &Kind::VOLUME, volume("b2", "b", "3Gi"));
    let volumes = written(&mut scheduler, &web);
    let bindings: Vec<_> =
        volumes.iter().map(|one| (&one["metadata"]["name"], &one["spec"]["claimRef"]["name"])).collect();
    assert_eq!(bindings, [(&json!("b1"), &json!("log")), (&json!("b2"), &json!("data"))]);
    assert_eq!(scheduler.decide(&web), None, "its claims aren't bound yet");
    // Another pod doesn't get the same volumes.
    add(&mut scheduler, &Kind::CLAIM, claim("other", "1Gi"));
    let other = put(&mut scheduler, &using("other", &["other"]));
    assert_eq!(written(&mut scheduler, &other)[0]["metadata"]["name"], "a1");
    add(&mut scheduler, &Kind::CLAIM, bound_to(&claim("data", "2Gi"), "b2"));
    assert_eq!(scheduler.decide(&web), None, "one of its claims isn't bound yet");
    add(&mut scheduler, &Kind::CLAIM, bound_to(&claim("log", "1Gi"), "b1"));
    assert_eq!(scheduler.decide(&web), Some(PodAction::Bind("b".into())));
}

#[test]
fn a_claim_that_a_pod_names_twice_gets_one_volume() {
    let mut scheduler = scheduler("kubernetes.io/no-provisioner");
    for claim in [claim("data", "1Gi"), claim("log", "1Gi")] {
        add(&mut scheduler, &Kind::CLAIM, claim);
    }
    for name in ["a1", "a2"] {
        add(&mut scheduler, &Kind::VOLUME, volume(name, "a", "1Gi"));
    }
    let web = put(&mut scheduler, &using("web", &["data", "log", "data"]));
    let volumes = written(&mut scheduler, &web);
    let claims: Vec<_> = volumes.iter().map(|one| &one["spec"]["claimRef"]["name"]).collect();
    assert_eq!(claims, ["data", "log"]);
}

#[test]
fn a_node_is_selected_for_a_new_volume_and_another_one_if_none_can_be_created() {
    let mut scheduler = scheduler("example.com/csi");
    add(&mut scheduler, &Kind::CLAIM, claim("data", "2Gi"));
    let mut object = using("web", &["data"]);
    object["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "b"});
    let web = put(&mut scheduler, &object);
    let claims = written(&mut scheduler, &web);
    assert_eq!(claims[0]["metadata"]["annotations"], json!({SELECTED_NODE: "b"}));
    assert_eq!(scheduler.decide(&web), None);
    // The provisioner reports a failure by the removal of the annotation.
    add(&mut scheduler, &Kind::CLAIM, claim("data", "2Gi"));
    let Some(fail @ PodAction::Fail(..)) = scheduler.decide(&web) else { panic!("the claim isn't marked any more") };
    let PodAction::Fail(why, _) = &fail else { unreachable!() };
    let expect = "running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC \"data\"";
    assert_eq!(why, expect);
    scheduler.end(&web, &fail, true);
    assert_eq!(scheduler.decide(&web), None, "it pauses");
    scheduler.wake(&web);
    assert_eq!(written(&mut scheduler, &web).len(), 1);
    scheduler.wake(&web);
    let Some(PodAction::Fail(why, _)) = scheduler.decide(&web) else { panic!("the time is over") };
    assert!(why.ends_with("binding volumes: context deadline exceeded"), "{why}");
}

#[test]
fn what_could_not_be_written_is_forgotten() {
    let mut scheduler = scheduler("kubernetes.io/no-provisioner");
    add(&mut scheduler, &Kind::CLAIM, claim("data", "1Gi"));
    add(&mut scheduler, &Kind::VOLUME, volume("a1", "a", "1Gi"));
    let web = put(&mut scheduler, &using("web", &["data"]));
    let first = scheduler.decide(&web).expect("an action");
    scheduler.end(&web, &first, false);
    assert_eq!(scheduler.decide(&web), Some(first));
}

#[test]
fn volumes_are_created_where_their_class_allows_it_and_their_driver_has_space() {
    let mut scheduler = scheduler("example.com/csi");
    add(&mut scheduler, &DRIVER, json!({"metadata": {"name": "example.com/csi"}, "spec": {"storageCapacity": true}}));
    add(&mut scheduler, &Kind::CLAIM, claim("data", "2Gi"));
    let web = put(&mut scheduler, &using("web", &["data"]));
    let full = "0/2 nodes are available: 2 node(s) did not have enough free storage.";
    assert!(refused(&mut scheduler, &web).starts_with(full));
    let capacity = |node: &str, size: &str| {
        json!({
            "metadata": {"namespace": "default", "name": node}, "storageClassName": "late", "maximumVolumeSize": size,
            "capacity": "1Ti", "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": node}},
        })
    };
    add(&mut scheduler, &CAPACITY, capacity("a", "1Gi"));
    assert!(refused(&mut scheduler, &web).starts_with(full));
    let mut class = json!({
        "metadata": {"name": "late"}, "provisioner": "example.com/csi", "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["b"]}]}],
    });
    add(&mut scheduler, &CLASS, class.clone());
    add(&mut scheduler, &CAPACITY, capacity("a", "2Gi"));
    let why = "0/2 nodes are available: 1 node(s) did not have enough free storage, \
               1 node(s) didn't find available persistent volumes to bind.";
    let refused = refused(&mut scheduler, &web);
    assert!(refused.starts_with(why), "{refused}");
    class["allowedTopologies"] = Value::Null;
    add(&mut scheduler, &CLASS, class);
    assert_eq!(written(&mut scheduler, &web)[0]["metadata"]["annotations"], json!({SELECTED_NODE: "a"}));
}

#[test]
fn a_volume_with_the_label_of_a_zone_is_used_in_that_zone() {
    let mut scheduler = scheduler("example.com/csi");
    add(&mut scheduler, &Kind::CLAIM, bound_to(&claim("data", "1Gi"), "v"));
    let zones = json!({"topology.kubernetes.io/zone": "x__y"});
    add(&mut scheduler, &Kind::VOLUME, json!({"metadata": {"name": "v", "labels": zones}}));
    let place = |scheduler: &mut Scheduler, zone: Value| {
        for name in ["a", "b"] {
            let labels = json!({"topology.kubernetes.io/zone": zone});
            let node =
                json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"pods": "110"}}});
            scheduler.state.nodes.insert(name.to_owned(), node.into());
        }
        let web = put(scheduler, &using("web", &["data"]));
        let action = scheduler.decide(&web).expect("an action");
        scheduler.end(&web, &action, false);
        action
    };
    let PodAction::Report(why, _) = place(&mut scheduler, "z".into()) else { panic!("another zone") };
    assert!(why.starts_with("0/2 nodes are available: 2 node(s) had no available volume zone."), "{why}");
    assert!(matches!(place(&mut scheduler, "y".into()), PodAction::Bind(_)));
    assert!(matches!(place(&mut scheduler, Value::Null), PodAction::Bind(_)), "nodes without zones");
}

#[test]
fn a_node_has_as_many_volumes_of_a_driver_as_it_can() {
    let mut scheduler = scheduler("d.io");
    scheduler.state.nodes.remove("b");
    let limit = |scheduler: &mut Scheduler, count: i64| {
        let drivers = json!([{"name": "d.io", "allocatable": {"count": count}}, {"name": "unlimited.io"}]);
        let node = json!({"metadata": {"name": "a"}, "spec": {"drivers": drivers}});
        scheduler.state.volume_limits.put("CSINode", &node.into(), false);
    };
    limit(&mut scheduler, 2);
    let csi = |name: &str, driver: &str| {
        let source = json!({"driver": driver, "volumeHandle": name});
        json!({"metadata": {"name": name}, "spec": {"csi": source}, "status": {"phase": "Bound"}})
    };
    for (name, driver) in [("one", "d.io"), ("two", "d.io"), ("three", "d.io"), ("other", "unlimited.io")] {
        add(&mut scheduler, &Kind::CLAIM, bound_to(&claim(name, "1Gi"), name));
        add(&mut scheduler, &Kind::VOLUME, csi(name, driver));
    }
    let mut placed = using("first", &["one", "two"]);
    placed["spec"]["nodeName"] = "a".into();
    put(&mut scheduler, &placed);
    let why = "0/1 nodes are available: 1 node(s) exceed max volume count.";
    let third = put(&mut scheduler, &using("third", &["three"]));
    assert!(refused(&mut scheduler, &third).starts_with(why));
    // A volume that is there counts once, and those of other drivers don't count.
    let again = put(&mut scheduler, &using("again", &["two", "other"]));
    assert_eq!(scheduler.decide(&again), Some(PodAction::Bind("a".into())));
    // One that is to be created counts, too.
    add(&mut scheduler, &Kind::CLAIM, claim("new", "1Gi"));
    let new = put(&mut scheduler, &using("new", &["new"]));
    assert!(refused(&mut scheduler, &new).starts_with(why));
    limit(&mut scheduler, 3);
    let attachment = json!({"metadata": {"name": "x"}, "spec": {
        "attacher": "d.io", "nodeName": "a", "source": {"persistentVolumeName": "three"},
    }});
    scheduler.state.volume_limits.put("VolumeAttachment", &attachment.clone().into(), false);
    assert!(refused(&mut scheduler, &new).starts_with(why), "another volume is still attached");
    scheduler.state.volume_limits.put("VolumeAttachment", &attachment.into(), true);
    assert_eq!(written(&mut scheduler, &new)[0]["metadata"]["name"], "new");
}
