//! Decides the next steps for the children of a Guestbook. Pure.

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use kubewright::owner::is_controlled_by;

use super::{children, config::Config};
use crate::api::v1::Guestbook;

/// The required writes, and the observed state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The active pods, oldest first: Pending or Running, and not being deleted.
    pub(crate) alive: Vec<Arc<Pod>>,
    /// The name of the pod that should serve. While no pod is ready, it is the last one that served.
    pub(crate) chosen: Option<String>,
    /// The name of the pod that the Service currently selects.
    pub(crate) present: Option<String>,
    /// The address of the Service.
    pub(crate) address: Option<String>,
    /// The revision of new pods; `None` if the texts aren't available.
    pub(crate) revision: Option<String>,
    /// The names of the pods with another revision.
    pub(crate) outdated: BTreeSet<String>,
    /// The write of the Service, which precedes those of the pods.
    pub(crate) service: Step,
    /// The pods that lost a label.
    pub(crate) relabel: Vec<Arc<Pod>>,
    /// The number of missing pods.
    pub(crate) create: usize,
    /// The pods to delete: those that have ended, superfluous ones, and the next outdated one.
    pub(crate) delete: Vec<Arc<Pod>>,
}

/// The required write of the Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is correct.
    Keep,
    /// It doesn't exist.
    Create,
    /// It selects another pod, or was edited.
    Apply,
    /// It belongs to another owner, and is not changed.
    Foreign,
}

impl Plan {
    /// Returns whether the Service has to be written.
    pub(crate) fn writes_service(&self) -> bool {
        matches!(self.service, Step::Create | Step::Apply)
    }

    /// Returns whether existing pods have to be written.
    pub(crate) fn changes_pods(&self) -> bool {
        !(self.relabel.is_empty() && self.delete.is_empty())
    }

    /// Returns whether a pod has the present revision.
    fn is_updated(&self, pod: &Pod) -> bool {
        !self.outdated.contains(&pod.name_any())
    }

    /// Returns the active pod, that is, the chosen one if it is ready.
    pub(crate) fn active(&self) -> Option<&Arc<Pod>> {
        self.alive.iter().find(|pod| pod.metadata.name == self.chosen && is_ready(pod))
    }
}

/// Returns the plan, given the texts, the Service with the Guestbook's name, and all pods that the Guestbook controls
/// by UID.
pub(crate) fn plan(guestbook: &Guestbook, config: &Config, service: Option<&Service>, pods: Vec<Arc<Pod>>) -> Plan {
    let (mut alive, mut delete) = (Vec::new(), Vec::new());
    for pod in pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        if has_ended(&pod) { delete.push(pod) } else { alive.push(pod) }
    }
    alive.sort_by_key(age);
    let own = service.filter(|service| is_own(guestbook, service));
    let address = own.and_then(children::address);
    let revision = match config {
        Config::Found(texts) => Some(children::revision(guestbook, texts)),
        Config::Missing | Config::Invalid(_) => None,
    };
    let is_outdated = |pod: &Pod| {
        let revision = revision.as_deref();
        revision.is_some_and(|revision| !children::is_made_from(guestbook, pod, revision, address.as_deref()))
    };
    let mut plan = Plan {
        outdated: alive.iter().filter(|pod| is_outdated(pod)).map(|pod| pod.name_any()).collect(),
        relabel: alive.iter().filter(|pod| !has_labels(guestbook, pod)).cloned().collect(),
        alive,
        chosen: None,
        present: own.and_then(children::selected).map(str::to_owned),
        address,
        revision,
        service: Step::Keep,
        create: 0,
        delete,
    };
    plan.chosen = choose(&plan);
    plan.service = match service {
        None => Step::Create,
        Some(_) if own.is_none() => Step::Foreign,
        Some(service) if children::says(service, &children::service(guestbook, plan.chosen.as_deref())) => Step::Keep,
        Some(_) => Step::Apply,
    };
    count(guestbook, &mut plan);
    plan
}

/// Chooses the pod that should serve.
///
/// A ready pod keeps serving, so that nothing moves without need. Otherwise the oldest ready pod takes over. An
/// outdated pod hands over when it is the last outdated one, so that it is replaced without a gap.
fn choose(plan: &Plan) -> Option<String> {
    let mut ready = plan.alive.iter().filter(|pod| is_ready(pod));
    let Some(active) = plan.alive.iter().find(|pod| pod.metadata.name == plan.present && is_ready(pod)) else {
        return ready.next().and_then(|pod| pod.metadata.name.clone()).or_else(|| plan.present.clone());
    };
    let is_last = plan.alive.iter().all(|pod| plan.is_updated(pod) != (pod.metadata.name == active.metadata.name));
    let successor = ready.find(|pod| plan.is_updated(pod)).filter(|_| !plan.is_updated(active) && is_last);
    successor.unwrap_or(active).metadata.name.clone()
}

/// Decides how many pods are missing, and which pods to delete: superfluous ones, or else one of the outdated ones.
fn count(guestbook: &Guestbook, plan: &mut Plan) {
    let size = usize::try_from(guestbook.spec.size).unwrap_or(0);
    // A single pod can't hand over, so its successor is created before it is deleted.
    let is_replaced_alone = size == 1 && plan.active().is_some_and(|active| !plan.is_updated(active));
    let desired = size + usize::from(is_replaced_alone);
    let mut by_worth = plan.alive.clone();
    let active = plan.active().and_then(|pod| pod.metadata.name.clone());
    let is_active = |pod: &Pod| active.is_some() && pod.metadata.name == active;
    by_worth.sort_by_key(|pod| (Reverse((is_active(pod), plan.is_updated(pod), is_ready(pod))), age(pod)));
    plan.delete.extend(by_worth.iter().skip(desired).rev().cloned());
    if plan.revision.is_some() {
        plan.create = desired.saturating_sub(plan.alive.len());
    }
    let waits = plan.alive.iter().any(|pod| plan.is_updated(pod) && !is_ready(pod));
    if plan.alive.len() != desired || waits {
        return;
    }
    // The last one is the least useful. The active pod is never next, since it hands over first.
    let outdated = by_worth.iter().rev().find(|pod| !plan.is_updated(pod) && !is_active(pod));
    plan.delete.extend(outdated.cloned());
}

/// Returns whether the Guestbook controls the Service.
pub(crate) fn is_own(guestbook: &Guestbook, service: &Service) -> bool {
    guestbook.metadata.uid.as_deref().is_some_and(|uid| is_controlled_by(service, uid))
}

fn has_labels(guestbook: &Guestbook, pod: &Pod) -> bool {
    let wanted = children::pod_labels(guestbook, &pod.name_any());
    wanted.iter().all(|(key, value)| pod.labels().get(key) == Some(value))
}

/// Returns the sort key of a pod, oldest first, then by name.
fn age(pod: &Arc<Pod>) -> (Option<jiff::Timestamp>, String) {
    (pod.creation_timestamp().map(|time| time.0), pod.name_any())
}

fn has_ended(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// Returns whether a pod is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests;
