//! The order in which the pods of a set are created, deleted and replaced.

use serde_json::Value;

use super::{Revisions, View, claims, identity, revision_of};
use crate::controllers::{
    kind::Kind,
    pod::{has_ended, is_ready, until_available},
    reconcile::{Report, Step},
    value::{amount, int, is_deleting, text},
};

/// The maximum number of pods that one plan creates.
const BURST: usize = 500;

/// Whether the set may continue with the next pod.
type Proceeds = bool;

/// Returns the steps towards the wanted pods.
pub(super) fn steps(view: &View<'_>, revisions: &Revisions) -> Vec<Step> {
    let ordered = text(view.set, "/spec/podManagementPolicy") != "Parallel";
    let mut rollout = Rollout { view, revisions, ordered, steps: Vec::new() };
    if rollout.fill() && rollout.shrink() {
        rollout.update();
    }
    rollout.steps
}

/// Returns whether a pod has been ready for `minReadySeconds`, and isn't being deleted.
fn is_available(view: &View<'_>, pod: &Value) -> bool {
    let least = int(view.set, "/spec/minReadySeconds");
    !is_deleting(pod) && until_available(pod, least, view.now).is_some_and(|delay| delay.is_zero())
}

struct Rollout<'a, 'v> {
    view: &'a View<'v>,
    revisions: &'a Revisions,
    /// Whether each pod waits until those before it are available.
    ordered: bool,
    steps: Vec<Step>,
}

impl Rollout<'_, '_> {
    /// Creates the missing pods, and replaces those that have ended.
    fn fill(&mut self) -> Proceeds {
        let mut created = 0;
        for ordinal in identity::ordinals(self.view.set) {
            let proceeds = match self.view.pods.get(&ordinal) {
                Some(pod) => self.keep(pod, ordinal),
                None if created == BURST => return false,
                None => {
                    created += 1;
                    self.create(ordinal);
                    false
                }
            };
            if self.ordered && !proceeds {
                return false;
            }
        }
        true
    }

    fn create(&mut self, ordinal: i64) {
        let view = self.view;
        if claims::are_stale(view, ordinal) {
            return;
        }
        let Some(claims) = claims::missing(view, ordinal) else { return };
        self.steps.extend(claims);
        let pod = identity::new_pod(view.set, self.revisions, ordinal);
        let path = Kind::POD.address(text(view.set, "/metadata/namespace"), "");
        let report = self.report("Create", &identity::pod_name(view.set, ordinal));
        self.steps.push(Step::Create(path, pod).reported(report));
    }

    /// Maintains an existing pod and its claims.
    fn keep(&mut self, pod: &Value, ordinal: i64) -> Proceeds {
        let view = self.view;
        if has_ended(pod) {
            if !is_deleting(pod) {
                self.delete(pod);
            }
            return false;
        }
        if text(pod, "/status/phase") == "Pending" {
            self.steps.extend(claims::missing(view, ordinal).unwrap_or_default());
            self.steps.extend(claims::own(view, pod, ordinal));
        }
        if self.ordered && !(text(pod, "/status/phase") == "Running" && is_ready(pod) && is_available(view, pod)) {
            return false;
        }
        if text(pod, "/status/phase") != "Pending" {
            let owned = claims::own(view, pod, ordinal);
            // Kubernetes reports a later change of the policy as one of the pod.
            let updated = (!owned.is_empty()).then(|| {
                let message =
                    format!("Update Pod {} in StatefulSet {} successful", text(pod, "/metadata/name"), view.name());
                Step::Event { warning: false, reason: "SuccessfulUpdate", message }
            });
            self.steps.extend(owned.into_iter().chain(updated));
        }
        let labels = identity::relabel(view.set, pod, ordinal);
        self.steps.extend(labels.map(|patch| Step::change(&Kind::POD, pod, patch)));
        true
    }

    /// Deletes the pods that aren't among the replicas, from the highest ordinal on.
    fn shrink(&mut self) -> Proceeds {
        let view = self.view;
        let replicas = identity::ordinals(view.set);
        let condemned: Vec<_> = view
            .pods
            .iter()
            .filter(|(ordinal, _)| !replicas.contains(ordinal))
            .map(|(ordinal, pod)| (*ordinal, *pod))
            .collect();
        for (ordinal, pod) in condemned.iter().rev() {
            self.steps.extend(claims::own(view, pod, *ordinal));
        }
        // In order, one that isn't available is deleted only if none below it is missing.
        let first_unavailable = condemned.iter().find(|(_, pod)| !is_available(view, pod)).map(|(ordinal, _)| *ordinal);
        for (ordinal, pod) in condemned.iter().rev() {
            let deleting = is_deleting(pod);
            let waits = !is_available(view, pod) && Some(*ordinal) != first_unavailable;
            if self.ordered && (deleting || waits) {
                return false;
            }
            if !deleting {
                self.delete(pod);
                if self.ordered {
                    return false;
                }
            }
        }
        true
    }

    /// Deletes pods of an old revision, from the highest ordinal down to the partition.
    fn update(&mut self) {
        let view = self.view;
        let strategy = &view.set["spec"]["updateStrategy"];
        if text(strategy, "/type") == "OnDelete" {
            return;
        }
        let (replicas, parameters) = (identity::ordinals(view.set), &strategy["rollingUpdate"]);
        let updated = replicas.start + int(parameters, "/partition")..replicas.end;
        let is_old = |pod: &Value| revision_of(pod) != self.revisions.update.name && !is_deleting(pod);
        let limit = &parameters["maxUnavailable"];
        if limit.is_null() {
            for ordinal in updated.rev() {
                match view.pods.get(&ordinal) {
                    Some(pod) if is_old(pod) => return self.delete(pod),
                    Some(pod) if is_available(view, pod) => {}
                    _ => return,
                }
            }
            return;
        }
        let wanted = replicas.end - replicas.start;
        let available = view.pods.range(replicas).filter(|(_, pod)| is_available(view, pod)).count();
        let missing = wanted - i64::try_from(available).unwrap_or(i64::MAX);
        let budget = usize::try_from(amount(limit, wanted, false).max(1) - missing).unwrap_or_default();
        if updated.is_empty() {
            return;
        }
        let old = view.pods.range(updated).rev().map(|(_, pod)| *pod).filter(|pod| is_old(pod));
        for pod in old.take(budget).collect::<Vec<_>>() {
            self.delete(pod);
        }
    }

    fn delete(&mut self, pod: &Value) {
        let report = self.report("Delete", text(pod, "/metadata/name"));
        self.steps.push(Step::delete(&Kind::POD, pod).reported(report));
    }

    /// Returns the event about a pod.
    fn report(&self, verb: &'static str, pod: &str) -> Report {
        let what = format!("{verb} Pod {pod} in StatefulSet {}", self.view.name());
        let (success, failure) = match verb {
            "Create" => ("SuccessfulCreate", "FailedCreate"),
            _ => ("SuccessfulDelete", "FailedDelete"),
        };
        Report {
            success: Some((success, format!("{what} successful"))),
            failures: vec![(failure, format!("{what} failed error: "))],
        }
    }
}
