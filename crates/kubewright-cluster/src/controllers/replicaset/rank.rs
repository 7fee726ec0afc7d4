//! The order in which superfluous pods are deleted
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#scaling-a-replicaset>).

use std::cmp::Reverse;

use jiff::Timestamp;
use serde_json::Value;

use crate::controllers::{
    pod::{is_ready, ready_since},
    value::{int, list, text, time},
};

/// Returns `count` pods to delete: unscheduled before scheduled, pending before running, unready before ready, lower
/// deletion cost first, most recently ready first, more restarts first, and younger first. Kubernetes compares the
/// times only by order of magnitude; this implementation always deletes the younger pod first.
pub(super) fn first_to_go<'a>(pods: &[&'a Value], count: usize) -> Vec<&'a Value> {
    let mut pods = pods.to_vec();
    pods.sort_by_cached_key(|pod| rank(pod));
    pods.truncate(count);
    pods
}

type Rank = (bool, u8, bool, i64, Reverse<Option<Timestamp>>, Reverse<i64>, Reverse<Option<Timestamp>>, String);

/// Returns the sort key of a pod. The smallest one is deleted first.
fn rank(pod: &Value) -> Rank {
    let phase = match text(pod, "/status/phase") {
        "Pending" | "" => 0,
        "Running" => 2,
        _ => 1,
    };
    let cost = &pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"];
    let cost = cost.as_str().and_then(|cost| cost.parse().ok()).unwrap_or_default();
    let restarts = list(pod, "/status/containerStatuses").iter().map(|one| int(one, "/restartCount")).max();
    (
        !text(pod, "/spec/nodeName").is_empty(),
        phase,
        is_ready(pod),
        cost,
        Reverse(ready_since(pod)),
        Reverse(restarts.unwrap_or_default()),
        Reverse(time(pod, "/metadata/creationTimestamp")),
        text(pod, "/metadata/name").into(),
    )
}
