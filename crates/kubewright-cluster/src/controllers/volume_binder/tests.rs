use serde_json::json;

use super::*;
use crate::controllers::reconcile::Step;

fn now() -> Timestamp {
    "2024-01-01T00:01:00Z".parse().expect("a time")
}

fn claim(name: &str, spec: Value) -> Value {
    let mut claim = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Pending"},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        claim["spec"][field] = value.clone();
    }
    claim
}

fn volume(name: &str, spec: Value) -> Value {
    let mut volume = json!({
        "metadata": {"name": name, "uid": name, "labels": {"name": name}},
        "spec": {
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
        "status": {"phase": "Available"},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        volume["spec"][field] = value.clone();
    }
    volume
}

fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    json!({"metadata": {"name": name}, "provisioner": provisioner, "reclaimPolicy": "Delete", "volumeBindingMode": mode})
}

fn state(claims: &[Value], volumes: &[Value], classes: &[Value]) -> Volumes {
    let named = |objects: &[Value]| {
        objects.iter().map(|object| (text(object, "/metadata/name").to_owned(), Arc::new(object.clone()))).collect()
    };
    Volumes {
        root: Some("/node".into()),
        claims: claims.iter().filter_map(|claim| Some((Key::of(claim)?, Arc::new(claim.clone())))).collect(),
        volumes: named(volumes),
        classes: named(classes),
        used: BTreeMap::new(),
    }
}

fn key(namespace: &str, name: &str) -> Key {
    Key { namespace: namespace.into(), name: name.into() }
}

/// The steps in short: patches by the object and the patched field, events by their reasons.
fn steps(state: &Volumes, key: &Key) -> Vec<String> {
    let show = |step: &Step| match step.parts().0 {
        Step::Create(_, object) => format!("+{}", text(object, "/metadata/name")),
        Step::Delete(path, ..) => format!("-{}", path.name),
        Step::RemoveFolder(folder) => format!("rm {}", folder.display()),
        Step::Merge(path, "/status", patch) => format!("{} {}", path.name, text(patch, "/status/phase")),
        Step::Merge(path, _, patch) => format!("{} {}", path.name, patch["spec"]),
        Step::Event { reason, .. } => (*reason).into(),
        other => panic!("{other:?}"),
    };
    state.decide(key, now()).steps.iter().map(show).collect()
}

fn reference(name: &str, uid: &str) -> Value {
    json!({"namespace": "default", "name": name, "uid": uid})
}

#[test]
fn the_smallest_volume_that_satisfies_a_claim_is_chosen() {
    let chosen = |spec: Value, volumes: &[Value]| {
        let wanted = claim("c", spec);
        let volumes: Vec<_> = volumes.iter().cloned().map(Arc::new).collect();
        let found = matching::best(volumes.iter(), &wanted, &key("default", "c"), |_| true);
        found.map(|volume| text(volume, "/metadata/name").to_owned())
    };
    let sized = |name: &str, size: &str| volume(name, json!({"capacity": {"storage": size}}));
    let sizes = [sized("large", "1Ti"), sized("fitting", "1.5Gi"), sized("small", "1000Mi")];
    assert_eq!(chosen(json!({}), &sizes).as_deref(), Some("fitting"));
    assert_eq!(chosen(json!({"selector": {"matchLabels": {"name": "large"}}}), &sizes).as_deref(), Some("large"));
    assert_eq!(chosen(json!({"accessModes": ["ReadWriteMany"]}), &sizes), None);
    assert_eq!(chosen(json!({"volumeMode": "Block"}), &sizes), None);
    assert_eq!(chosen(json!({"storageClassName": "fast"}), &sizes), None);
    let fast = volume("fast", json!({"storageClassName": "fast"}));
    assert_eq!(chosen(json!({"storageClassName": "fast"}), &[fast]).as_deref(), Some("fast"));
    let other = volume("other", json!({"claimRef": reference("d", "d")}));
    let reserved =
        volume("reserved", json!({"claimRef": {"namespace": "default", "name": "c"}, "capacity": {"storage": "9Gi"}}));
    assert_eq!(chosen(json!({}), std::slice::from_ref(&other)), None);
    assert_eq!(chosen(json!({}), &[other, sized("plain", "1Gi"), reserved]).as_deref(), Some("reserved"));
}

#[test]
fn a_claim_and_its_volume_are_bound_to_each_other() {
    let state = state(&[claim("c", json!({}))], &[volume("v", json!({}))], &[]);
    let plan = state.decide(&key("default", "c"), now());
    let [
        Step::Merge(_, "", first),
        Step::Merge(_, "/status", second),
        Step::Merge(_, "", third),
        Step::Merge(_, "/status", fourth),
    ] = &plan.steps[..]
    else {
        panic!("{plan:?}")
    };
    assert_eq!(
        (&first["spec"]["claimRef"]["uid"], &first["metadata"]["annotations"]),
        (&json!("c"), &json!({CHOSEN: "yes"}))
    );
    assert_eq!(second["status"]["phase"], "Bound");
    assert_eq!(third["spec"], json!({"volumeName": "v"}));
    assert_eq!(third["metadata"]["annotations"], json!({CHOSEN: "yes", COMPLETED: "yes"}));
    let modes = json!(["ReadWriteOnce", "ReadOnlyMany"]);
    assert_eq!(fourth["status"], json!({"phase": "Bound", "accessModes": modes, "capacity": {"storage": "1Gi"}}));
}

#[test]
fn a_claim_that_becomes_bound_has_the_attributes_class_of_its_volume() {
    let status = |claim: &Value, volume: &Value| {
        let state = state(std::slice::from_ref(claim), std::slice::from_ref(volume), &[]);
        match state.decide(&key("default", "c"), now()).steps.pop() {
            Some(Step::Merge(_, "/status", patch)) => patch["status"]["currentVolumeAttributesClassName"].clone(),
            other => panic!("{other:?}"),
        }
    };
    let gold = json!({"volumeAttributesClassName": "gold"});
    assert_eq!(status(&claim("c", gold.clone()), &volume("v", gold)), "gold");
    assert_eq!(status(&claim("c", json!({})), &volume("v", json!({}))), Value::Null);
}

#[test]
fn claims_that_cannot_be_bound_say_why() {
    let wanting = |spec: Value, volumes: &[Value], classes: &[Value]| {
        steps(&state(&[claim("c", spec)], volumes, classes), &key("default", "c"))
    };
    assert_eq!(wanting(json!({}), &[], &[]), ["FailedBinding"]);
    assert_eq!(wanting(json!({"storageClassName": "x"}), &[], &[]), ["ProvisioningFailed"]);
    assert_eq!(wanting(json!({"volumeName": "v"}), &[], &[]), [""; 0]);
    let small = volume("v", json!({"capacity": {"storage": "1Mi"}}));
    assert_eq!(wanting(json!({"volumeName": "v"}), &[small], &[]), ["VolumeMismatch"]);
    let taken = volume("v", json!({"claimRef": reference("d", "d")}));
    assert_eq!(wanting(json!({"volumeName": "v"}), &[taken], &[]), ["FailedBinding"]);
    let classes = [class("x", "example.com/x", "Immediate"), class("old", "kubernetes.io/no-provisioner", "Immediate")];
    assert_eq!(wanting(json!({"storageClassName": "x"}), &[], &classes), ["c null", "ExternalProvisioning"]);
    assert_eq!(wanting(json!({"storageClassName": "old"}), &[], &classes), ["ProvisioningFailed"]);
}

#[test]
fn the_class_provisions_at_once_or_for_the_first_pod() {
    let standard = provision::class();
    let without_class = state(&[claim("c", json!({}))], &[], std::slice::from_ref(&standard));
    assert_eq!(steps(&without_class, &key("default", "c")), [r#"c {"storageClassName":"standard"}"#]);
    let claims = [claim("c", json!({"storageClassName": "standard"}))];
    let plan = state(&claims, &[], &[standard]).decide(&key("default", "c"), now());
    let [(Step::Create(path, made), Some(_))] = plan.steps.iter().map(Step::parts).collect::<Vec<_>>()[..] else {
        panic!("{plan:?}")
    };
    assert_eq!(path.to_string(), "/api/v1/persistentvolumes");
    assert_eq!(made["spec"]["hostPath"], json!({"path": "/node/pvc-c", "type": "DirectoryOrCreate"}));
    assert_eq!(made["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    let waiting = [class("late", "kubewright.dev/folder", "WaitForFirstConsumer")];
    let mut late = state(&[claim("c", json!({"storageClassName": "late"}))], &[], &waiting);
    assert_eq!(steps(&late, &key("default", "c")), ["WaitForFirstConsumer"]);
    let pod = json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}});
    assert_eq!(late.take_pod(key("default", "p"), &pod, false), [key("default", "c")]);
    assert_eq!(steps(&late, &key("default", "c")), ["WaitForPodScheduled"]);
    assert!(late.take_pod(key("default", "p"), &pod, false).is_empty(), "nothing new");
    let mut placed = claim("c", json!({"storageClassName": "late"}));
    placed["metadata"]["annotations"][SELECTED_NODE] = "n1".into();
    late.take_claim(key("default", "c"), &placed.into(), false);
    assert_eq!(steps(&late, &key("default", "c")), ["+pvc-c"]);
    let free = volume("v", json!({"storageClassName": "late"}));
    late.take_volume(&free.into(), false);
    assert_eq!(steps(&late, &key("default", "c")), ["+pvc-c"], "the scheduler would have reserved the volume");
    let reserved = volume("v", json!({"storageClassName": "late", "claimRef": reference("c", "c")}));
    late.take_volume(&reserved.into(), false);
    assert!(!steps(&late, &key("default", "c")).contains(&"+pvc-c".into()));
}

#[test]
fn a_volume_without_its_claim_is_kept_or_deleted() {
    let released = |policy: &str, provisioned: bool, path: &str| {
        let mut volume = volume(
            "pvc-c",
            json!({
                "claimRef": reference("c", "earlier"), "persistentVolumeReclaimPolicy": policy, "hostPath": {"path": path},
            }),
        );
        volume["status"]["phase"] = "Bound".into();
        if provisioned {
            volume["metadata"]["annotations"][PROVISIONED] = "kubewright.dev/folder".into();
        }
        steps(&state(&[claim("c", json!({}))], &[volume], &[]), &key("", "pvc-c"))
    };
    assert_eq!(released("Retain", true, "/node/pvc-c"), ["pvc-c Released"]);
    assert_eq!(released("Delete", true, "/node/pvc-c"), ["pvc-c Released", "rm /node/pvc-c", "-pvc-c"]);
    assert_eq!(released("Delete", true, "/etc"), ["pvc-c Released"], "not its folder");
    assert_eq!(released("Delete", false, "/node/pvc-c"), ["pvc-c Failed", "VolumeFailedDelete"]);
    assert_eq!(released("Recycle", false, "/srv"), ["pvc-c Failed", "VolumeFailedRecycle"]);
}

#[test]
fn bindings_that_are_broken_are_reported() {
    let mut bound = claim("c", json!({"volumeName": "v"}));
    bound["metadata"]["annotations"][COMPLETED] = "yes".into();
    bound["status"]["phase"] = "Bound".into();
    let check = |volumes: &[Value]| steps(&state(std::slice::from_ref(&bound), volumes, &[]), &key("default", "c"));
    assert_eq!(check(&[]), ["c Lost", "ClaimLost"]);
    assert_eq!(check(&[volume("v", json!({"claimRef": reference("d", "d")}))]), ["c Lost", "ClaimMisbound"]);
    let elsewhere = volume("w", json!({"claimRef": reference("c", "c")}));
    let state = state(&[bound], &[elsewhere], &[]);
    assert_eq!(steps(&state, &key("", "w")), [r#"w {"claimRef":{"resourceVersion":null,"uid":null}}"#]);
}

#[test]
fn a_claim_whose_node_is_selected_is_left_to_its_provisioner() {
    let classes = [class("far", "example.com/csi", "WaitForFirstConsumer")];
    let mut wanted = claim("c", json!({"storageClassName": "far"}));
    assert_eq!(steps(&state(&[wanted.clone()], &[], &classes), &key("default", "c")), ["WaitForFirstConsumer"]);
    wanted["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = "n1".into();
    let plan = state(&[wanted], &[], &classes).decide(&key("default", "c"), now());
    let [Step::Merge(_, "", patch), Step::Event { reason: "ExternalProvisioning", .. }] = &plan.steps[..] else {
        panic!("{plan:?}")
    };
    let expect = json!({
        "volume.kubernetes.io/storage-provisioner": "example.com/csi",
        "volume.beta.kubernetes.io/storage-provisioner": "example.com/csi",
    });
    assert_eq!(patch["metadata"]["annotations"], expect);
}
