//! Decides the next step for a child. Pure.
//!
//! A child is applied if it differs. No request is needed for that decision: every field to apply must be present with
//! its value, whatever fields the API server or others have added.

#[cfg(test)]
mod tests;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::{Resource, ResourceExt};
use kubewright::{
    owner::{controller_of, is_controlled_by},
    prelude::*,
};
use serde_json::Value;

use super::children;
use crate::api::v1alpha1::Lolcow;

/// The action for a child.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// It is correct.
    Keep,
    /// It is missing or differs.
    Apply,
    /// It is being deleted, with a message. The operator waits until it is gone.
    Deleting(String),
    /// An object of the same name belongs to another owner, with a message.
    Taken(String),
}

/// Returns the step, given the object with the child's name.
pub(crate) fn step<T: Object>(cow: &Lolcow, wanted: &T, found: Option<&T>) -> Step {
    let Some(found) = found else { return Step::Apply };
    if let Some(blocker) = blocker(cow, found) {
        return blocker;
    }
    let value = |object: &T| serde_json::to_value(object).unwrap_or_default();
    if says(&value(found), &value(wanted)) { Step::Keep } else { Step::Apply }
}

/// Returns the reason why the object with the child's name can't be applied: it belongs to another owner, or is being
/// deleted.
pub(crate) fn blocker<T: Object>(cow: &Lolcow, found: &T) -> Option<Step> {
    let object = format!("{} {:?}", T::kind(&()).to_lowercase(), found.name_any());
    if is_own(cow, found) {
        let leaves = found.meta().deletion_timestamp.is_some();
        return leaves.then(|| Step::Deleting(format!("{object} is being deleted and will be created again")));
    }
    let whose = match controller_of(found) {
        Some(owner) if owner.kind == Lolcow::kind(&()) && owner.name == cow.name_any() => {
            return Some(Step::Deleting(format!("{object} of a former lolcow of this name still exists")));
        }
        Some(owner) => format!("is controlled by {} {}", owner.kind, owner.name),
        None => "has no controller".into(),
    };
    Some(Step::Taken(format!("{object} exists and {whose}; it is not taken over")))
}

/// Returns whether an object belongs to this Lolcow.
pub(crate) fn is_own<T: Object>(cow: &Lolcow, found: &T) -> bool {
    is_controlled_by(found, cow.meta().uid.as_deref().unwrap_or_default())
}

/// Returns whether `found` contains everything in `wanted`.
fn says(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted.iter().all(|(field, wanted)| {
            let found = found.get(field).unwrap_or(&Value::Null);
            // An additional label in a selector makes it another selector.
            if field == "selector" { found == wanted } else { says(found, wanted) }
        }),
        // Others may add containers, ports or owners, so each wanted item is found by its content.
        (Value::Array(found), Value::Array(wanted)) if wanted.iter().any(Value::is_object) => {
            wanted.iter().all(|wanted| found.iter().any(|found| says(found, wanted)))
        }
        _ => found == wanted || (is_empty(found) && is_empty(wanted)),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// A value of the spec, and the value in the child.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change<T> {
    /// The value in the spec.
    pub(crate) wanted: Option<T>,
    /// The value in the child.
    pub(crate) found: Option<T>,
}

impl<T: PartialEq> Change<T> {
    /// Returns whether the child has to change.
    pub(crate) fn is_new(&self) -> bool {
        self.wanted != self.found
    }
}

/// Returns the wanted greeting, and the present one in the Deployment.
pub(crate) fn greeting(cow: &Lolcow, deployment: Option<&Deployment>) -> Change<String> {
    Change { wanted: children::greeting(cow).map(str::to_owned), found: deployment.and_then(children::greeting_of) }
}

/// Returns the wanted port, and the present one in the Service. If the spec has none, that of the Service is right.
pub(crate) fn port(cow: &Lolcow, service: Option<&Service>) -> Change<i32> {
    let found = service.and_then(children::port_of);
    Change { wanted: children::port(cow).or(found), found }
}

/// The progress of a Deployment's rollout.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rollout {
    /// All pods show the greeting of the spec.
    Complete,
    /// The Deployment is scaled to zero.
    ScaledToZero,
    /// The rollout is in progress.
    Underway {
        /// The desired number of pods with the present greeting.
        desired: i32,
        /// The number of such pods that are available.
        updated: i32,
    },
    /// The rollout has exceeded its deadline, with the Deployment's message.
    Stalled(String),
}

/// Returns the progress of the rollout, by the Deployment's status.
pub(crate) fn rollout(deployment: &Deployment) -> Rollout {
    let desired = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let observed = status.observed_generation >= deployment.metadata.generation;
    let (all, updated) = (status.replicas.unwrap_or(0), status.updated_replicas.unwrap_or(0));
    let available = status.available_replicas.unwrap_or(0);
    if observed && all == 0 && desired == 0 {
        return Rollout::ScaledToZero;
    }
    if observed && [all, updated, available] == [desired; 3] {
        return Rollout::Complete;
    }
    let conditions = status.conditions.unwrap_or_default();
    let stalled = conditions.iter().find(|it| it.type_ == "Progressing" && it.status == "False" && observed);
    match stalled {
        Some(condition) => Rollout::Stalled(condition.message.clone().unwrap_or_default()),
        // Unavailable pods may be old or new, so the number of new available pods may be overestimated.
        None => Rollout::Underway { desired, updated: if observed { updated.min(available) } else { 0 } },
    }
}
