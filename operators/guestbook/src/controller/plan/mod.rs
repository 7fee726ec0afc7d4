//! What to do about the children of a Guestbook: values in, values out.

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use kubewright::owner::is_controlled_by;

use super::{children, config::Config};
use crate::api::v1::Guestbook;

/// What is to be done, and how things are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The pods that count, oldest first: Pending or Running, and not being deleted.
    pub(crate) alive: Vec<Arc<Pod>>,
    /// The name of the pod that is to serve. While none is ready that is whichever served last.
    pub(crate) chosen: Option<String>,
    /// The name of the pod that the Service leads to at present.
    pub(crate) present: Option<String>,
    /// The address of the Service.
    pub(crate) address: Option<String>,
    /// What pods are to be made from; unknown without the texts.
    pub(crate) revision: Option<String>,
    /// The names of those that are made from something else.
    pub(crate) outdated: BTreeSet<String>,
    /// What is to become of the Service. It goes before the pods.
    pub(crate) service: Step,
    /// The pods that lost a label.
    pub(crate) relabel: Vec<Arc<Pod>>,
    /// How many pods are missing.
    pub(crate) create: usize,
    /// The pods that have ended, are too many, or are out of date and next to go.
    pub(crate) delete: Vec<Arc<Pod>>,
}

/// What is to become of the Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is as it should be.
    Keep,
    /// There is none: it is to be created.
    Create,
    /// It doesn't lead to the pod that is to serve, or was edited.
    Apply,
    /// There is one that isn't the Guestbook's. It is left alone.
    Foreign,
}

impl Plan {
    /// Whether the Service is to be written.
    pub(crate) fn leads(&self) -> bool {
        matches!(self.service, Step::Create | Step::Apply)
    }

    /// Whether there is anything to do about the pods that there are.
    pub(crate) fn mends(&self) -> bool {
        !(self.relabel.is_empty() && self.delete.is_empty())
    }

    /// Whether this pod is made from what pods are to be made from.
    fn is_updated(&self, pod: &Pod) -> bool {
        !self.outdated.contains(&pod.name_any())
    }

    /// The pod that serves: the chosen one, while it is ready.
    pub(crate) fn active(&self) -> Option<&Arc<Pod>> {
        self.alive.iter().find(|pod| pod.metadata.name == self.chosen && is_ready(pod))
    }
}

/// What to do, given the texts, whatever Service has the Guestbook's name, and all pods that the Guestbook controls, by
/// uid.
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

/// Which pod is to serve, given the one that does.
///
/// One that is ready stays, so that nothing is moved without need. If it isn't, the oldest that is ready takes over. One
/// that is out of date hands over when it is the last of its kind, so that it is replaced without a gap.
fn choose(plan: &Plan) -> Option<String> {
    let mut ready = plan.alive.iter().filter(|pod| is_ready(pod));
    let Some(active) = plan.alive.iter().find(|pod| pod.metadata.name == plan.present && is_ready(pod)) else {
        return ready.next().and_then(|pod| pod.metadata.name.clone()).or_else(|| plan.present.clone());
    };
    let is_last = plan.alive.iter().all(|pod| plan.is_updated(pod) != (pod.metadata.name == active.metadata.name));
    let successor = ready.find(|pod| plan.is_updated(pod)).filter(|_| !plan.is_updated(active) && is_last);
    successor.unwrap_or(active).metadata.name.clone()
}

/// Decides how many pods are missing and which go: those beyond the number, or else one of those that are out of date.
fn count(guestbook: &Guestbook, plan: &mut Plan) {
    let size = usize::try_from(guestbook.spec.size).unwrap_or(0);
    // A single pod has nobody to hand over to, so that its successor comes before it goes.
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
    // The least worth is the last; the active one is never next, for it hands over before.
    let outdated = by_worth.iter().rev().find(|pod| !plan.is_updated(pod) && !is_active(pod));
    plan.delete.extend(outdated.cloned());
}

/// Whether the Guestbook controls the Service.
pub(crate) fn is_own(guestbook: &Guestbook, service: &Service) -> bool {
    guestbook.metadata.uid.as_deref().is_some_and(|uid| is_controlled_by(service, uid))
}

fn has_labels(guestbook: &Guestbook, pod: &Pod) -> bool {
    let wanted = children::pod_labels(guestbook, &pod.name_any());
    wanted.iter().all(|(key, value)| pod.labels().get(key) == Some(value))
}

/// Older ones are less; those of one second are ordered by name.
fn age(pod: &Arc<Pod>) -> (Option<jiff::Timestamp>, String) {
    (pod.creation_timestamp().map(|time| time.0), pod.name_any())
}

fn has_ended(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// Whether the pod says that it is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests;
