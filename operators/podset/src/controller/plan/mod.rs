//! What to do about the pods of a PodSet: values in, values out.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::view::PodView;

/// How many pods that have ended are kept for a look at their logs; older ones are deleted.
pub(crate) const KEPT: usize = 3;

/// The labels that a pod of a PodSet must have.
pub(crate) type Labels = BTreeMap<String, String>;

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The pods that count: Pending or Running, not being deleted, with all labels. Sorted by name.
    pub(crate) active: Vec<Arc<PodView>>,
    /// How many pods are missing.
    pub(crate) create: usize,
    /// The active pods that are too many, in the order in which they go.
    pub(crate) delete: Vec<Arc<PodView>>,
    /// The pods that have ended and aren't kept, oldest first.
    pub(crate) discard: Vec<Arc<PodView>>,
    /// The pods that lost a label, and so are no longer the PodSet's.
    pub(crate) release: Vec<Arc<PodView>>,
}

impl Plan {
    /// Whether there is anything to do.
    pub(crate) fn acts(&self) -> bool {
        self.create > 0 || !(self.delete.is_empty() && self.discard.is_empty() && self.release.is_empty())
    }

    /// Whether it is wrong if the pods, or the PodSet, have changed meanwhile: active pods go, or some are created in the
    /// place of others that were told of.
    ///
    /// A pod that goes doesn't come back, should another have gone already that the cache still shows. And where pods
    /// vanish, it may be because their PodSet does. What is created without need, because fewer are desired by now, is only
    /// deleted again.
    pub(crate) fn is_grave(&self, told: &[String]) -> bool {
        let is_active = |name: &String| self.active.iter().any(|pod| pod.name_any() == *name);
        !self.delete.is_empty() || (self.create > 0 && !told.iter().all(is_active))
    }
}

// ANCHOR: plan
/// What to do so that `desired` pods are active, given all pods that the PodSet controls, by uid.
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

/// How many of the missing pods to create at a time: 1, 2, 4 and so on, so that what refuses them is hit by few.
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

/// Whether the pod says that it is ready.
pub(crate) fn is_ready(pod: &PodView) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests;
