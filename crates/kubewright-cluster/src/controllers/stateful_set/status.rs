//! The status of a stateful set.

use serde_json::{Map, Value};

use super::{Revisions, View, revision_of};
use crate::controllers::{
    pod::{is_ready, until_available},
    reconcile::Plan,
    value::{int, is_deleting, text},
};

/// Returns the status, and plans the next decision for the time when the next pod becomes available.
pub(super) fn status(view: &View<'_>, revisions: &Revisions, plan: &mut Plan) -> Value {
    let (set, update) = (view.set, &revisions.update);
    let least = int(set, "/spec/minReadySeconds");
    let (mut ready, mut available, mut current, mut updated) = (0_i64, 0_i64, 0_i64, 0_i64);
    for pod in view.pods.values() {
        if text(pod, "/status/phase") == "Running" && is_ready(pod) {
            ready += 1;
            match until_available(pod, least, view.now) {
                Some(delay) if delay.is_zero() => available += 1,
                Some(delay) => plan.requeue_after(delay),
                None => {}
            }
        }
        if !is_deleting(pod) {
            current += i64::from(revision_of(pod) == revisions.current);
            updated += i64::from(revision_of(pod) == update.name);
        }
    }
    let replicas = i64::try_from(view.pods.len()).unwrap_or(i64::MAX);
    let mut current_name = &revisions.current;
    let is_rolling = text(set, "/spec/updateStrategy/type") == "RollingUpdate";
    if is_rolling && [updated, ready, replicas].iter().all(|count| *count == int(set, "/spec/replicas")) {
        (current, current_name) = (updated, &update.name);
    }
    let mut status = Map::new();
    status.insert("observedGeneration".into(), int(set, "/metadata/generation").into());
    for (field, count) in
        [("replicas", replicas), ("availableReplicas", available), ("collisionCount", update.collisions)]
    {
        status.insert(field.into(), count.into());
    }
    // Zeros of these are omitted, as in the API types of Kubernetes.
    let counts = [("readyReplicas", ready), ("currentReplicas", current), ("updatedReplicas", updated)];
    status
        .extend(counts.into_iter().filter(|(_, count)| *count != 0).map(|(field, count)| (field.into(), count.into())));
    status.insert("currentRevision".into(), current_name.as_str().into());
    status.insert("updateRevision".into(), update.name.as_str().into());
    if let Some(conditions) = set["status"].get("conditions").filter(|conditions| !conditions.is_null()) {
        status.insert("conditions".into(), conditions.clone());
    }
    status.into()
}
