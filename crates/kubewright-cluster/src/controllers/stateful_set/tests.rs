use serde_json::json;

use super::*;
use crate::controllers::{
    reconcile::status_of,
    value::{controller_reference, list},
};

fn now() -> Timestamp {
    "2024-01-01T00:01:00Z".parse().expect("a time")
}

/// A set of which `spec` replaces fields. Its revision is `db-old` in the image, unless that is `new`.
fn set(spec: Value) -> Value {
    let mut set = json!({
        "metadata": {"name": "db", "namespace": "default", "uid": "s", "generation": 1},
        "spec": {
            "replicas": 3, "serviceName": "peers", "selector": {"matchLabels": {"app": "db"}},
            "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"image": "old"}},
        },
        "status": {"replicas": 0, "currentRevision": "db-old"},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        set["spec"][field] = value.clone();
    }
    set
}

fn image(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "db"}}, "spec": {"image": image}})
}

fn revision(name: &str, number: i64) -> Value {
    let mut template = image(name);
    template["$patch"] = "replace".into();
    json!({"metadata": {"name": format!("db-{name}"), "uid": name}, "data": {"spec": {"template": template}}, "revision": number})
}

/// A pod that is ready since a second of the first minute.
fn pod(ordinal: i64, revision: &str, ready_at: Option<u8>) -> Value {
    let name = format!("db-{ordinal}");
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {
            "app": "db", REVISION: revision, "statefulset.kubernetes.io/pod-name": name,
        }},
        "status": {"phase": "Running"},
    });
    match ready_at {
        Some(second) => {
            let at = format!("2024-01-01T00:00:{second:02}Z");
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "lastTransitionTime": at}]);
        }
        None => pod["status"]["phase"] = "Pending".into(),
    }
    pod
}

fn ready(ordinals: std::ops::Range<i64>, revision: &str) -> Vec<Value> {
    ordinals.map(|ordinal| pod(ordinal, revision, Some(0))).collect()
}

fn plan_with_claims(set: &Value, pods: &[Value], claims: &[Value]) -> Plan {
    let revisions = [revision("old", 1), revision("new", 2)];
    let known = if set["spec"]["template"]["spec"]["image"] == "new" { 2 } else { 1 };
    let history = History {
        owner: set,
        kind: STATEFUL_SET,
        label: HASH,
        revisions: revisions[..known].iter().collect(),
        taken: &|_| false,
    };
    let pods = pods.iter().map(|pod| (identity::ordinal("db", pod).expect("an ordinal"), pod)).collect();
    let claim = |name: &str| claims.iter().find(|claim| claim["metadata"]["name"] == name);
    let mut plan = Plan::of(&STATEFUL_SET, set);
    decide(&View { set, pods, claim: &claim, now: now() }, &history, &mut plan);
    plan
}

fn plan(set: &Value, pods: &[Value]) -> Plan {
    plan_with_claims(set, pods, &[])
}

/// The steps but the status, in short.
fn actions(plan: &Plan) -> Vec<String> {
    let action = |step: &Step| match step.parts().0 {
        Step::Create(_, object) => Some(format!("+{}", text(object, "/metadata/name"))),
        Step::Delete(path, ..) => Some(format!("-{}", path.name)),
        Step::Merge(_, "/status", _) => None,
        Step::Merge(path, _, patch) => Some(format!("{}: {}", path.name, patch["metadata"])),
        other => panic!("{other:?}"),
    };
    plan.steps.iter().filter_map(action).collect()
}

#[test]
fn ordinals_are_read_from_names() {
    let check = |name: &str, expect| assert_eq!(identity::ordinal("db", &json!({"metadata": {"name": name}})), expect);
    check("db-0", Some(0));
    check("db-12", Some(12));
    check("db-01", None);
    check("db--1", None);
    check("db-x", None);
    check("db", None);
    check("db-a-1", None);
    check("other-1", None);
}

#[test]
fn pods_are_created_in_order() {
    let ordered = set(json!({}));
    assert_eq!(actions(&plan(&ordered, &[])), ["+db-0"]);
    assert!(actions(&plan(&ordered, &[pod(0, "db-old", None)])).is_empty(), "it waits for db-0");
    assert_eq!(actions(&plan(&ordered, &ready(0..1, "db-old"))), ["+db-1"]);
    let parallel = set(json!({"podManagementPolicy": "Parallel"}));
    assert_eq!(actions(&plan(&parallel, &[pod(1, "db-old", None)])), ["+db-0", "+db-2"]);
    let later = set(json!({"podManagementPolicy": "Parallel", "ordinals": {"start": 4}}));
    assert_eq!(actions(&plan(&later, &[])), ["+db-4", "+db-5", "+db-6"]);
    let many = set(json!({"podManagementPolicy": "Parallel", "replicas": i32::MAX}));
    assert_eq!(actions(&plan(&many, &[])).len(), 500);
}

#[test]
fn a_pod_has_a_stable_identity() {
    let set = set(json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"x": 1}}]}));
    let plan = plan(&set, &[]);
    let made: Vec<_> = plan
        .steps
        .iter()
        .filter_map(|step| match step.parts() {
            (Step::Create(path, object), Some(report)) => Some((path.to_string(), object, report)),
            _ => None,
        })
        .collect();
    let [(claims, claim, claimed), (pods, pod, created)] = &made[..] else { panic!("{plan:?}") };
    assert_eq!(claims, "/api/v1/namespaces/default/persistentvolumeclaims");
    assert_eq!(claim["metadata"], json!({"name": "data-db-0", "labels": {"app": "db"}}));
    assert_eq!(
        claimed.success.as_ref().expect("an event").1,
        "Create Claim data-db-0 Pod db-0 in StatefulSet db success"
    );
    assert_eq!(pods, "/api/v1/namespaces/default/pods");
    assert_eq!(created.success.as_ref().expect("an event").1, "Create Pod db-0 in StatefulSet db successful");
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("db-0"), &json!("peers")));
    let labels = json!({"app": "db", REVISION: "db-old", "statefulset.kubernetes.io/pod-name": "db-0", "apps.kubernetes.io/pod-index": "0"});
    assert_eq!(pod["metadata"]["labels"], labels);
    assert_eq!(pod["spec"]["volumes"], json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]));
}

#[test]
fn pods_that_have_ended_are_replaced() {
    let mut pods = ready(0..3, "db-old");
    pods[1]["status"]["phase"] = "Failed".into();
    assert_eq!(actions(&plan(&set(json!({})), &pods)), ["-db-1"]);
    pods[1]["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
    assert!(actions(&plan(&set(json!({})), &pods)).is_empty());
}

#[test]
fn the_highest_pods_go_first() {
    let (ordered, parallel) =
        (set(json!({"replicas": 1})), set(json!({"replicas": 1, "podManagementPolicy": "Parallel"})));
    let mut pods = ready(0..4, "db-old");
    assert_eq!(actions(&plan(&ordered, &pods)), ["-db-3"]);
    assert_eq!(actions(&plan(&parallel, &pods)), ["-db-3", "-db-2", "-db-1"]);
    pods[3] = pod(3, "db-old", None);
    assert_eq!(actions(&plan(&ordered, &pods)), ["-db-3"], "the first that isn't available may go");
    pods[1] = pod(1, "db-old", None);
    assert!(actions(&plan(&ordered, &pods)).is_empty(), "db-1 comes first");
    pods[0] = pod(0, "db-old", None);
    assert!(actions(&plan(&ordered, &pods)).is_empty());
    let moved = set(json!({"replicas": 2, "ordinals": {"start": 2}}));
    assert_eq!(actions(&plan(&moved, &ready(0..4, "db-old"))), ["-db-1"]);
}

#[test]
fn updates_go_from_the_highest_pod_to_the_partition() {
    let update = |parameters: Value| {
        set(json!({"template": image("new"), "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": parameters}}))
    };
    let mut pods = ready(0..3, "db-old");
    assert_eq!(actions(&plan(&update(json!({"partition": 0})), &pods)), ["-db-2"]);
    assert_eq!(actions(&plan(&update(json!({"partition": 2})), &pods)), ["-db-2"]);
    assert!(actions(&plan(&update(json!({"partition": 3})), &pods)).is_empty());
    assert_eq!(actions(&plan(&update(json!({"partition": 0, "maxUnavailable": 2})), &pods)), ["-db-2", "-db-1"]);
    assert_eq!(actions(&plan(&update(json!({"partition": 2, "maxUnavailable": "100%"})), &pods)), ["-db-2"]);
    assert_eq!(actions(&plan(&update(json!({"partition": 0, "maxUnavailable": "1%"})), &pods)), ["-db-2"]);
    pods[2] = pod(2, "db-new", Some(0));
    assert_eq!(actions(&plan(&update(json!({"partition": 0})), &pods)), ["-db-1"]);
    assert!(actions(&plan(&update(json!({"partition": 2})), &pods)).is_empty());
    let manual = set(json!({"template": image("new"), "updateStrategy": {"type": "OnDelete"}}));
    assert!(actions(&plan(&manual, &pods)).is_empty());
}

#[test]
fn pods_below_the_partition_are_recreated_with_the_current_revision() {
    let image_of = |set: &Value, pods: &[Value]| {
        let plan = plan(set, pods);
        let made = plan.steps.iter().find_map(|step| match step.parts().0 {
            Step::Create(_, pod) => Some(pod["spec"]["image"].clone()),
            _ => None,
        });
        made.expect("a pod")
    };
    let partition = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
    let set = set(json!({"template": image("new"), "updateStrategy": partition}));
    assert_eq!(image_of(&set, &ready(0..1, "db-old")), "old");
    assert_eq!(image_of(&set, &ready(0..2, "db-old")), "new");
}

#[test]
fn the_status_counts_revisions_until_the_update_is_complete() {
    let mut set = set(json!({"template": image("new"), "minReadySeconds": 30}));
    let pods = [pod(0, "db-old", Some(0)), pod(1, "db-new", Some(40)), pod(2, "db-new", None)];
    let first = plan(&set, &pods);
    let expect = json!({
        "observedGeneration": 1, "replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "currentReplicas": 1,
        "updatedReplicas": 2, "currentRevision": "db-old", "updateRevision": "db-new", "collisionCount": 0,
    });
    assert_eq!(status_of(&first), expect);
    assert_eq!(first.requeue_after, Some(std::time::Duration::from_secs(10)));
    set["spec"]["minReadySeconds"] = 0.into();
    let status = status_of(&plan(&set, &ready(0..3, "db-new")));
    assert_eq!((&status["currentRevision"], &status["currentReplicas"]), (&json!("db-new"), &json!(3)));
}

#[test]
fn a_set_that_is_deleted_does_nothing() {
    let mut set = set(json!({"template": image("newer")}));
    set["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
    assert!(actions(&plan(&set, &[])).is_empty());
}

#[test]
fn claims_belong_to_the_set_or_to_the_pod_that_goes() {
    let claim = |ordinal: i64, owners: Value| json!({"metadata": {"name": format!("data-db-{ordinal}"), "namespace": "default", "ownerReferences": owners}});
    let owners = |deleted: &str, scaled: &str, replicas: i64, before: Value| {
        let set = set(json!({
            "replicas": replicas, "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": deleted, "whenScaled": scaled},
        }));
        let claims = [claim(0, json!([])), claim(1, before)];
        let plan = plan_with_claims(&set, &ready(0..2, "db-old"), &claims[..]);
        let patch = plan.steps.iter().find_map(|step| match step {
            Step::Merge(path, "", patch) if path.name == "data-db-1" => {
                Some(patch["metadata"]["ownerReferences"].clone())
            }
            _ => None,
        });
        let kinds = |owners: &Value| {
            list(owners, "").iter().map(|owner| text(owner, "/kind").to_owned()).collect::<Vec<_>>().join(",")
        };
        patch.map(|owners| kinds(&owners))
    };
    let of_set = || json!([controller_reference(&set(json!({})), "apps/v1", "StatefulSet")]);
    assert_eq!(owners("Retain", "Retain", 2, json!([])), None);
    assert_eq!(owners("Delete", "Retain", 2, json!([])).as_deref(), Some("StatefulSet"));
    assert_eq!(owners("Delete", "Retain", 2, of_set()), None);
    assert_eq!(owners("Retain", "Retain", 2, of_set()).as_deref(), Some(""));
    assert_eq!(owners("Retain", "Delete", 2, json!([])), None);
    assert_eq!(owners("Retain", "Delete", 1, json!([])).as_deref(), Some("Pod"));
    assert_eq!(owners("Delete", "Delete", 1, of_set()).as_deref(), Some("Pod"));
    let foreign = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x", "controller": true}]);
    assert_eq!(owners("Delete", "Delete", 1, foreign), None);
    let stale = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "earlier"}]);
    assert_eq!(owners("Delete", "Delete", 1, stale), None);
}

#[test]
fn a_pod_waits_for_the_claims_of_its_predecessor_to_go() {
    let set = set(json!({
        "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Delete"},
    }));
    let mut claim = json!({"metadata": {"name": "data-db-0", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "db-0", "uid": "earlier"},
    ]}});
    assert!(actions(&plan_with_claims(&set, &[], std::slice::from_ref(&claim))).is_empty());
    claim["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(actions(&plan_with_claims(&set, &[], std::slice::from_ref(&claim))), ["+db-0"]);
    claim["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
    assert!(actions(&plan_with_claims(&set, &[], &[claim])).is_empty());
}
