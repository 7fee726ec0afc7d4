//! The status of a daemon set.

use serde_json::{Map, Value};

use super::View;
use crate::controllers::{
    pod::{is_ready, until_available},
    reconcile::Plan,
    value::int,
};

/// Returns the status, and plans the next decision for the time when the next pod becomes available.
pub(super) fn status(view: &View<'_>, collisions: i64, plan: &mut Plan) -> Value {
    let least = int(view.set, "/spec/minReadySeconds");
    let (mut current, mut misscheduled, mut ready, mut updated, mut available) = (0_i64, 0_i64, 0_i64, 0_i64, 0_i64);
    for (node, fit) in &view.nodes {
        let pods = view.on(node);
        let Some(oldest) = pods.first() else { continue };
        // Another pod of the node may have to be available before this one is deleted.
        let delays = pods.iter().filter_map(|pod| until_available(pod, least, view.now));
        delays.filter(|delay| !delay.is_zero()).for_each(|delay| plan.requeue_after(delay));
        if !fit.starts {
            misscheduled += 1;
            continue;
        }
        current += 1;
        updated += i64::from(view.is_updated(oldest));
        ready += i64::from(is_ready(oldest));
        available += i64::from(view.is_available(oldest));
    }
    let desired = view.desired();
    let mut status = Map::new();
    let counts = [
        ("currentNumberScheduled", current),
        ("numberMisscheduled", misscheduled),
        ("desiredNumberScheduled", desired),
        ("numberReady", ready),
    ];
    status.extend(counts.map(|(field, count)| (field.into(), count.into())));
    // Zeros of these are omitted, as in the API types of Kubernetes.
    let counts = [
        ("observedGeneration", int(view.set, "/metadata/generation")),
        ("updatedNumberScheduled", updated),
        ("numberAvailable", available),
        ("numberUnavailable", desired - available),
        ("collisionCount", collisions),
    ];
    status
        .extend(counts.into_iter().filter(|(_, count)| *count != 0).map(|(field, count)| (field.into(), count.into())));
    if let Some(conditions) = view.set["status"].get("conditions").filter(|conditions| !conditions.is_null()) {
        status.insert("conditions".into(), conditions.clone());
    }
    status.into()
}
