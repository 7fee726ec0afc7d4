//! The conditions of nodes whose kubelets have stopped
//! (<https://kubernetes.io/docs/concepts/architecture/nodes/#node-heartbeats>).

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    controllers::{
        kind::Kind,
        reconcile::{Step, regarding},
        value::{condition, list, stamp, text},
    },
    events::ObjectEvent,
};

/// The time without a heartbeat after which a node's state is unknown, and that for nodes that never had one.
const GRACE: SignedDuration = SignedDuration::from_secs(50);
const STARTUP_GRACE: SignedDuration = SignedDuration::from_secs(60);
/// The conditions that kubelets report.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The last heartbeat of a node: a report of its status, or a renewal of its lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heartbeat {
    /// The time in the condition `Ready`, as it is written.
    pub(super) reported: String,
    /// The time in the lease, as it is written.
    pub(super) renewed: String,
    /// The time at which either was seen first.
    pub(super) seen: Timestamp,
}

/// Returns the time of the last report in the status of a node.
pub(super) fn reported(node: &Value) -> &str {
    condition(node, "Ready").map(|ready| text(ready, "/lastHeartbeatTime")).unwrap_or_default()
}

/// Returns the time at which the state of a node becomes unknown; `None` if it is known to be unknown.
pub(super) fn deadline(node: &Value, heartbeat: &Heartbeat) -> Option<Timestamp> {
    match condition(node, "Ready") {
        // The other conditions are written with this one only.
        Some(ready) if ready["status"] == "Unknown" => None,
        Some(_) => heartbeat.seen.checked_add(GRACE).ok(),
        None => created(node).unwrap_or(heartbeat.seen).checked_add(STARTUP_GRACE).ok(),
    }
}

fn created(node: &Value) -> Option<Timestamp> {
    text(node, "/metadata/creationTimestamp").parse().ok()
}

/// Returns the steps that mark a pod as not ready, because the kubelet of its node has stopped.
pub(super) fn not_ready(pod: &Value, now: Timestamp) -> Vec<Step> {
    let mut status = pod["status"].clone();
    let conditions = status["conditions"].as_array_mut();
    let ready = conditions.into_iter().flatten().find(|one| one["type"] == "Ready" && one["status"] != "False");
    let Some(ready) = ready else { return Vec::new() };
    ready["status"] = "False".into();
    ready["lastTransitionTime"] = stamp(now);
    ready["observedGeneration"] = pod["metadata"]["generation"].clone();
    let (regarding, message) = (regarding(&Kind::POD, pod), "Node is not ready".into());
    let event = Step::EventAbout(ObjectEvent::new(regarding, true, "NodeNotReady", message));
    Step::shared_status(&Kind::POD, pod, status).into_iter().chain([event]).collect()
}

/// Returns the conditions of a node whose state is unknown.
pub(super) fn unknown(node: &Value, now: Timestamp) -> Vec<Value> {
    let mut conditions = list(node, "/status/conditions").to_vec();
    for name in CONDITIONS {
        match conditions.iter_mut().find(|condition| condition["type"] == name) {
            None => conditions.push(json!({
                "type": name, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": node["metadata"]["creationTimestamp"], "lastTransitionTime": stamp(now),
            })),
            Some(condition) if condition["status"] != "Unknown" => {
                condition["status"] = "Unknown".into();
                condition["reason"] = "NodeStatusUnknown".into();
                condition["message"] = "Kubelet stopped posting node status.".into();
                condition["lastTransitionTime"] = stamp(now);
            }
            Some(_) => {}
        }
    }
    conditions
}
