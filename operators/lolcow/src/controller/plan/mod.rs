//! What to do about a child: values in, values out.
//!
//! A child is applied when it doesn't say what it should. Whether it does is seen without asking the API server: every
//! field that is to be applied is there with its value, whatever else the API server, or others, have added.

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

/// What to do about a child.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// It is as it should be.
    Keep,
    /// It is missing, or differs.
    Apply,
    /// It is to go, and its end is waited for. It says why.
    Leaving(String),
    /// An object of its name isn't ours. It says whose it is.
    Taken(String),
}

/// What to do, given what there is under the child's name.
pub(crate) fn step<T: Object>(cow: &Lolcow, wanted: &T, found: Option<&T>) -> Step {
    let Some(found) = found else { return Step::Apply };
    if let Some(obstacle) = obstacle(cow, found) {
        return obstacle;
    }
    let value = |object: &T| serde_json::to_value(object).unwrap_or_default();
    if says(&value(found), &value(wanted)) { Step::Keep } else { Step::Apply }
}

/// Why an object under the child's name must not be applied to: it isn't ours, or is about to go.
pub(crate) fn obstacle<T: Object>(cow: &Lolcow, found: &T) -> Option<Step> {
    let object = format!("{} {:?}", T::kind(&()).to_lowercase(), found.name_any());
    if is_own(cow, found) {
        let leaves = found.meta().deletion_timestamp.is_some();
        return leaves.then(|| Step::Leaving(format!("{object} is being deleted; then it is made anew")));
    }
    let whose = match controller_of(found) {
        Some(owner) if owner.kind == Lolcow::kind(&()) && owner.name == cow.name_any() => {
            return Some(Step::Leaving(format!("{object} of an earlier lolcow of this name is still there")));
        }
        Some(owner) => format!("is controlled by {} {}", owner.kind, owner.name),
        None => "has no controller".into(),
    };
    Some(Step::Taken(format!("{object} exists and {whose}: it is left alone")))
}

/// Whether an object is this Lolcow's.
pub(crate) fn is_own<T: Object>(cow: &Lolcow, found: &T) -> bool {
    is_controlled_by(found, cow.meta().uid.as_deref().unwrap_or_default())
}

/// Whether `found` says all that `wanted` says.
fn says(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted.iter().all(|(field, wanted)| {
            let found = found.get(field).unwrap_or(&Value::Null);
            // What a selector has besides is no addition, but another selector.
            if field == "selector" { found == wanted } else { says(found, wanted) }
        }),
        // Others may add containers, ports or owners. Each of ours is found by what it says.
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

/// A value of the spec, and what the children had before.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change<T> {
    /// What the spec says.
    pub(crate) wanted: Option<T>,
    /// What the child says.
    pub(crate) found: Option<T>,
}

impl<T: PartialEq> Change<T> {
    /// Whether the child has yet to change.
    pub(crate) fn is_new(&self) -> bool {
        self.wanted != self.found
    }
}

/// The greeting, and the one that the Deployment passes.
pub(crate) fn greeting(cow: &Lolcow, deployment: Option<&Deployment>) -> Change<String> {
    Change { wanted: children::greeting(cow).map(str::to_owned), found: deployment.and_then(children::greeting_of) }
}

/// The port, and the one that the Service has. Without one in the spec, that of the Service is right.
pub(crate) fn port(cow: &Lolcow, service: Option<&Service>) -> Change<i32> {
    let found = service.and_then(children::port_of);
    Change { wanted: children::port(cow).or(found), found }
}

/// How far the rollout of a Deployment is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rollout {
    /// All pods show what the spec says.
    Complete,
    /// Somebody has scaled it to nothing.
    ScaledToZero,
    /// It goes on.
    Underway {
        /// How many pods are to show the present greeting.
        desired: i32,
        /// How many do, and are available.
        updated: i32,
    },
    /// It takes longer than its deadline, in the words of the Deployment.
    Stalled(String),
}

/// How far the rollout is, as the Deployment tells itself.
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
        // What isn't available may be an old pod or a new one; no more new ones are than there are available ones.
        None => Rollout::Underway { desired, updated: if observed { updated.min(available) } else { 0 } },
    }
}
