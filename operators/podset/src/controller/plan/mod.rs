//! Decides the next steps for the pods of a PodSet. Pure.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::view::PodView;

/// The number of ended pods that are kept for their logs; older ones are deleted.
pub(crate) const KEPT: usize = 3;

/// The labels that the pods of a PodSet must have.
pub(crate) type Labels = BTreeMap<String, String>;

/// The required writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The active pods, sorted by name: Pending or Running, not being deleted, and with all labels.
    pub(crate) active: Vec<Arc<PodView>>,
    /// The number of missing pods.
    pub(crate) create: usize,
    /// The superfluous active pods, in the order of their deletion.
    pub(crate) delete: Vec<Arc<PodView>>,
    /// The ended pods that are not kept, oldest first.
    pub(crate) discard: Vec<Arc<PodView>>,
    /// The pods that lost a label, and therefore no longer belong to the PodSet.
    pub(crate) release: Vec<Arc<PodView>>,
}

impl Plan {
    /// Returns whether any write is needed.
    pub(crate) fn acts(&self) -> bool {
        self.create > 0 || !(self.delete.is_empty() && self.discard.is_empty() && self.release.is_empty())
    }

    /// Returns whether the plan needs live pods and a live PodSet: it deletes active pods, or creates pods in place of
    /// pods in the status.
    ///
    /// A deleted pod doesn't come back if it turns out that another pod in the cache was already gone. And where pods
    /// disappear, their PodSet may be disappearing too. In contrast, a superfluous pod, created although fewer are
    /// desired by now, is simply deleted again.
    pub(crate) fn needs_live_state(&self, reported: &[String]) -> bool {
        let is_active = |name: &String| self.active.iter().any(|pod| pod.name_any() == *name);
        !self.delete.is_empty() || (self.create > 0 && !reported.iter().all(is_active))
    }
}

// ANCHOR: plan
/// Returns the plan for `desired` active pods, given all pods that the PodSet controls by UID.
pub(crate) fn plan(desired: usize, labels: &Labels, pods: Vec<Arc<PodView>>) -> Plan {
    let (pods, strays): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| has_labels(pod, labels));
    let (mut active, mut ended) = (Vec::new(), Vec::new());
    for pod in pods.into_iter().filter(|pod| !is_leaving(pod)) {
        match phase(&pod) {
            Phase::Active => active.push(pod),
            Phase::Ended => ended.push(pod),
            Phase::Unknown => {}
        }
    }
    active.sort_by_key(|pod| pod.name_any());
    ended.sort_by_key(|pod| (Reverse(created(pod)), pod.name_any()));
    let mut delete = active.clone();
    delete.sort_by_key(|pod| (is_ready(pod), Reverse(created(pod)), pod.name_any()));
    delete.truncate(active.len().saturating_sub(desired));
    Plan {
        create: desired.saturating_sub(active.len()),
        delete,
        discard: ended.split_off(KEPT.min(ended.len())).into_iter().rev().collect(),
        release: strays.into_iter().filter(|pod| !is_leaving(pod)).collect(),
        active,
    }
}
// ANCHOR_END: plan

/// Returns the sizes of the batches in which to create missing pods: 1, 2, 4 and so on, so that a refusal affects few
/// requests.
pub(crate) fn batches(missing: usize) -> impl Iterator<Item = usize> {
    let mut left = missing;
    let sizes = std::iter::successors(Some(1usize), |size| size.checked_mul(2));
    sizes.map_while(move |size| {
        let size = size.min(left);
        left -= size;
        (size > 0).then_some(size)
    })
}

enum Phase {
    Active,
    Ended,
    Unknown,
}

fn phase(pod: &PodView) -> Phase {
    match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        None | Some("" | "Pending" | "Running") => Phase::Active,
        Some("Succeeded" | "Failed") => Phase::Ended,
        Some(_) => Phase::Unknown,
    }
}

fn has_labels(pod: &PodView, labels: &Labels) -> bool {
    labels.iter().all(|(key, value)| pod.labels().get(key) == Some(value))
}

fn is_leaving(pod: &PodView) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn created(pod: &PodView) -> Option<Time> {
    pod.creation_timestamp()
}

/// Returns whether a pod is ready.
pub(crate) fn is_ready(pod: &PodView) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests;
