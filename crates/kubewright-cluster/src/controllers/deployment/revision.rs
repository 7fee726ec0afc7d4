//! Replica sets as revisions of a deployment's template.

use serde_json::{Map, Value, json};

use super::{DEPLOYMENT, ReplicaSetRoles, size};
use crate::controllers::{
    hash::short_hash,
    reconcile::Step,
    value::{controller_reference, int, is_deleting, number, text},
};

/// The label that distinguishes the replica sets of a deployment.
const HASH: &str = "pod-template-hash";
/// The annotation with the revision of a replica set or a deployment.
const REVISION: &str = "deployment.kubernetes.io/revision";
/// The annotation with the earlier revisions of a replica set that a rollback has reused.
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The maximum length of that annotation in bytes.
const HISTORY_LIMIT: usize = 2000;
/// Annotations that a replica set doesn't inherit from its deployment.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    size::DESIRED,
    size::MAXIMUM,
    "deprecated.deployment.rollback.to",
];

/// Returns the new and the old replica sets. If several have the present template, the oldest one is new.
pub(super) fn roles<'a>(deployment: &Value, sets: &[&'a Value]) -> ReplicaSetRoles<'a> {
    let wanted = without_hash(&deployment["spec"]["template"]);
    let new = sets.iter().copied().find(|set| without_hash(&set["spec"]["template"]) == wanted);
    let is_new = |set: &Value| new.is_some_and(|new| std::ptr::eq(new, set));
    ReplicaSetRoles { new, old: sets.iter().copied().filter(|set| !is_new(set)).collect() }
}

fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(metadata) = template["metadata"].as_object_mut() {
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove(HASH);
        }
        metadata.retain(|_, value| !value.is_null());
    }
    template
}

/// Returns the revision of an object, or 0.
pub(super) fn of(set: &Value) -> i64 {
    set["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Returns the latest revision of some replica sets.
pub(super) fn latest(sets: &[&Value]) -> i64 {
    sets.iter().map(|set| of(set)).max().unwrap_or_default()
}

/// Returns a replica set for the present template.
pub(super) fn new_set(deployment: &Value, revision: i64, replicas: i64) -> Value {
    let spec = &deployment["spec"];
    let hash = hash(&spec["template"], number(deployment, "/status/collisionCount"));
    let mut template = spec["template"].clone();
    template["metadata"]["labels"][HASH] = hash.as_str().into();
    let mut selector = spec["selector"].clone();
    selector["matchLabels"][HASH] = hash.as_str().into();
    let mut annotations = inherited(deployment);
    annotations.insert(REVISION.into(), revision.to_string().into());
    if let Value::Object(notes) = size::notes(deployment) {
        annotations.extend(notes);
    }
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", text(deployment, "/metadata/name")),
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": [controller_reference(deployment, &DEPLOYMENT.api_version(), DEPLOYMENT.kind)],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    });
    if int(deployment, "/spec/minReadySeconds") > 0 {
        set["spec"]["minReadySeconds"] = spec["minReadySeconds"].clone();
    }
    set
}

fn inherited(deployment: &Value) -> Map<String, Value> {
    let annotations = deployment["metadata"]["annotations"].as_object().into_iter().flatten();
    annotations
        .filter(|(key, _)| !OWN.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Returns the hash of a template.
fn hash(template: &Value, collisions: Option<i64>) -> String {
    short_hash(&format!("{}{}", without_hash(template), collisions.map(|count| count.to_string()).unwrap_or_default()))
}

/// Returns the patch that makes a replica set the latest revision and updates what it inherits.
pub(super) fn renew(deployment: &Value, set: &Value, revision: i64) -> Option<Value> {
    let present = &set["metadata"]["annotations"];
    let mut annotations = inherited(deployment);
    annotations.retain(|key, value| present.get(key) != Some(value));
    let before = of(set);
    if before < revision {
        annotations.insert(REVISION.into(), revision.to_string().into());
        if before > 0 {
            annotations.insert(HISTORY.into(), history(text(present, &pointer(HISTORY)), before).into());
        }
    }
    let mut patch = json!({});
    if !annotations.is_empty() {
        patch["metadata"]["annotations"] = annotations.into();
    }
    let least = int(deployment, "/spec/minReadySeconds");
    if int(set, "/spec/minReadySeconds") != least {
        patch["spec"]["minReadySeconds"] = least.into();
    }
    (patch != json!({})).then_some(patch)
}

/// Returns the JSON pointer of a key, which may contain slashes.
fn pointer(key: &str) -> String {
    format!("/{}", key.replace('/', "~1"))
}

fn history(before: &str, revision: i64) -> String {
    let mut all: Vec<_> = before.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
    all.push(revision.to_string());
    while all.len() > 1 && all.join(",").len() > HISTORY_LIMIT {
        all.remove(0);
    }
    all.join(",")
}

/// Returns the step that records the latest revision at the deployment. Kubernetes writes the annotation together with
/// the status, and so it has the same owner.
pub(super) fn note(deployment: &Value, revision: i64) -> Option<Step> {
    let patch = json!({"metadata": {"annotations": {REVISION: revision.to_string()}}});
    (of(deployment) != revision).then(|| Step::change_through(&DEPLOYMENT, deployment, "/status", patch))
}

/// Returns the old replica sets beyond the history limit that are empty and stay empty.
pub(super) fn forgotten<'a>(deployment: &Value, old: &[&'a Value]) -> Vec<&'a Value> {
    let Some(limit) = number(deployment, "/spec/revisionHistoryLimit") else { return Vec::new() };
    let mut sets: Vec<_> = old.iter().copied().filter(|set| !is_deleting(set)).collect();
    sets.sort_by_key(|set| of(set));
    let surplus = sets.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    let is_empty = |set: &Value| {
        int(set, "/spec/replicas") == 0
            && int(set, "/status/replicas") == 0
            && int(set, "/status/observedGeneration") >= int(set, "/metadata/generation")
    };
    sets.into_iter().take(surplus).filter(|set| is_empty(set)).collect()
}
