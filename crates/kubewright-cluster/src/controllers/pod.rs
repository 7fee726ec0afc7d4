//! Predicates on pods for the workload controllers, and the creation of pods from templates.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::value::{condition, controller_reference, is_deleting, list, text, time};

/// Returns whether the pod has succeeded or failed.
pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Returns whether the pod has not ended and is not being deleted.
pub(crate) fn is_active(pod: &Value) -> bool {
    !has_ended(pod) && !is_deleting(pod)
}

/// Returns the conditions of a pod, with this one in place of that of its type.
pub(crate) fn with_condition(pod: &Value, new: Value) -> Vec<Value> {
    let others = list(pod, "/status/conditions").iter().filter(|one| one["type"] != new["type"]);
    let mut conditions: Vec<_> = others.cloned().collect();
    conditions.push(new);
    conditions
}

/// Returns whether the pod is ready.
pub(crate) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
}

/// Returns the time at which the pod became ready.
pub(crate) fn ready_since(pod: &Value) -> Option<Timestamp> {
    condition(pod, "Ready")
        .filter(|ready| ready["status"] == "True")
        .and_then(|ready| time(ready, "/lastTransitionTime"))
}

/// Returns the time until the pod has been ready for `least` seconds; zero if it has been already, `None` if it isn't
/// ready.
pub(crate) fn until_available(pod: &Value, least: i64, now: Timestamp) -> Option<Duration> {
    if !is_ready(pod) {
        return None;
    }
    if least <= 0 {
        return Some(Duration::ZERO);
    }
    let ready_for = now.duration_since(ready_since(pod)?).as_secs();
    Some(Duration::from_secs(u64::try_from(least - ready_for).unwrap_or_default()))
}

/// Returns the names of the claims that a pod uses.
pub(crate) fn claims_of(pod: &Value) -> impl Iterator<Item = String> {
    list(pod, "/spec/volumes").iter().filter_map(|volume| {
        let named = text(volume, "/persistentVolumeClaim/claimName");
        // The claim of an ephemeral volume is named after the pod and the volume.
        let ephemeral = volume.get("ephemeral").is_some_and(|source| !source.is_null());
        let own = || format!("{}-{}", text(pod, "/metadata/name"), text(volume, "/name"));
        if named.is_empty() { ephemeral.then(own) } else { Some(named.to_owned()) }
    })
}

/// Creates a pod from a template, with a controller reference to its owner.
pub(crate) fn from_template(template: &Value, owner: &Value, api_version: &str, kind: &str) -> Value {
    let meta = &template["metadata"];
    let mut metadata = json!({
        "generateName": format!("{}-", text(owner, "/metadata/name")),
        "ownerReferences": [controller_reference(owner, api_version, kind)],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = meta.get(field).filter(|value| !value.is_null()) {
            metadata[field] = value.clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}
