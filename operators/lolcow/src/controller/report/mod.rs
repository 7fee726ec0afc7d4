//! The status and events of a Lolcow. Pure.

#[cfg(test)]
mod tests;

use std::{net::Ipv6Addr, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kubewright::{
    condition::{self, ConditionStatus, Conditions},
    event::Event,
};

use super::{
    children,
    plan::{self, Rollout},
};
use crate::api::v1alpha1::{Lolcow, LolcowStatus};

/// A child after a reconcile.
#[derive(Clone, Debug)]
pub(crate) struct Child<T> {
    /// The present object, if the Lolcow controls it.
    pub(crate) object: Option<Arc<T>>,
    /// The state.
    pub(crate) state: State,
}

/// The state of a child.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    /// It is in the desired state.
    Applied,
    /// The API server could not be reached. The previously reported state of the child is kept.
    Unknown,
    /// It can't be brought into the desired state.
    Failed(ChildError),
}

/// The reason why a child can't be brought into the desired state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ChildError {
    /// An object of that name belongs to another owner.
    Taken(String),
    /// The API server refuses the child, with its message.
    Refused(String),
    /// Another manager claims fields, with the API server's message, which names both.
    Contested(String),
    /// It is being deleted.
    Deleting(String),
}

impl ChildError {
    fn reason(&self) -> &'static str {
        match self {
            Self::Taken(_) => "NameConflict",
            Self::Refused(_) => "Refused",
            Self::Contested(_) => "FieldConflict",
            Self::Deleting(_) => "BeingDeleted",
        }
    }

    fn message(&self) -> &str {
        match self {
            Self::Taken(message) | Self::Refused(message) | Self::Contested(message) | Self::Deleting(message) => {
                message
            }
        }
    }
}

/// Returns the status.
pub(crate) fn status(
    cow: &Lolcow,
    deployment: &Child<Deployment>,
    service: &Child<Service>,
    node_address: &str,
    now: Timestamp,
) -> LolcowStatus {
    let before = cow.status.clone().unwrap_or_default();
    let generation = cow.metadata.generation;
    let found = deployment.object.as_deref();
    let port = service.object.as_deref().and_then(children::port_of);
    let url = port.map(|port| url(node_address, port));

    let mut after = before.conditions;
    let mut conditions = Conditions::new(&mut after, generation, now);
    child(&mut conditions, "DeploymentApplied", "the deployment is as specified", &deployment.state);
    child(&mut conditions, "ServiceApplied", "the service is as specified", &service.state);
    let rollout = found.map(plan::rollout);
    match &rollout {
        Some(rollout) => progressing(&mut conditions, rollout),
        None => _ = conditions.remove("Progressing"),
    }
    if let Some((ready, reason, message)) = ready(deployment, service, rollout, url.as_deref()) {
        conditions.set("Ready", ready, &reason, &message);
    }
    let ready_replicas = found.and_then(|found| found.status.as_ref()?.ready_replicas).unwrap_or(0);
    LolcowStatus { url, ready_replicas, observed_generation: generation, conditions: after }
}

/// Returns the URL of a node port.
fn url(node_address: &str, port: i32) -> String {
    match node_address.parse::<Ipv6Addr>() {
        Ok(address) => format!("http://[{address}]:{port}"),
        Err(_) => format!("http://{node_address}:{port}"),
    }
}

fn child(conditions: &mut Conditions<'_>, type_: &str, well: &str, state: &State) {
    match state {
        State::Applied => _ = conditions.set(type_, true, "Applied", well),
        State::Unknown => {}
        State::Failed(error_state) => _ = conditions.set(type_, false, error_state.reason(), error_state.message()),
    }
}

fn progressing(conditions: &mut Conditions<'_>, rollout: &Rollout) {
    let (progresses, reason, message) = match rollout {
        Rollout::Complete => (false, "RolledOut", "all pods show the greeting of the spec".into()),
        Rollout::ScaledToZero => (false, "ScaledToZero", "the deployment is scaled to 0".into()),
        Rollout::Underway { .. } => (true, "RollingOut", "pods are being replaced".into()),
        Rollout::Stalled(message) => (false, "ProgressDeadlineExceeded", message.clone()),
    };
    conditions.set("Progressing", progresses, reason, &message);
}

/// Returns status, reason and message of the condition `Ready`; `None` if it is unknown.
fn ready(
    deployment: &Child<Deployment>,
    service: &Child<Service>,
    rollout: Option<Rollout>,
    url: Option<&str>,
) -> Option<(ConditionStatus, String, String)> {
    let no = |reason: &str, message: String| Some((ConditionStatus::False, reason.to_owned(), message));
    for (kind, state) in [("Deployment", &deployment.state), ("Service", &service.state)] {
        if let State::Failed(error_state) = state {
            return no(&format!("{kind}{}", error_state.reason()), error_state.message().into());
        }
    }
    if [&deployment.state, &service.state].contains(&&State::Unknown) {
        return None;
    }
    match (rollout?, url) {
        (Rollout::Complete, Some(url)) => {
            Some((ConditionStatus::True, "Serving".into(), format!("the cow says it at {url}")))
        }
        (Rollout::Complete, None) => no("NoNodePort", "the service has no node port yet".into()),
        (Rollout::ScaledToZero, _) => no("ScaledToZero", "the deployment is scaled to 0".into()),
        (Rollout::Underway { desired, updated }, _) => {
            no("RollingOut", format!("{updated} of {desired} pods show the greeting of the spec"))
        }
        (Rollout::Stalled(message), _) => no("ProgressDeadlineExceeded", message),
    }
}

/// Returns the events for changes of the conditions.
pub(crate) fn events(before: &[Condition], after: &[Condition]) -> Vec<Event> {
    let new = |type_: &str| {
        let (before, after) = (condition::get(before, type_), condition::get(after, type_)?);
        let reported = |before: &Condition| {
            (&before.status, &before.reason, &before.message) == (&after.status, &after.reason, &after.message)
        };
        (!before.is_some_and(reported)).then_some((before, after))
    };
    let mut events = Vec::new();
    for (type_, kind) in [("DeploymentApplied", "Deployment"), ("ServiceApplied", "Service")] {
        if let Some((_, after)) = new(type_).filter(|(_, after)| after.status == "False") {
            // The deletion of a child doesn't need an event from this operator.
            if after.reason != "BeingDeleted" {
                events.push(Event::warning(format!("{kind}{}", after.reason), &after.message));
            }
        }
    }
    if let Some((_, after)) = new("Progressing").filter(|(_, after)| after.reason == "ProgressDeadlineExceeded") {
        events.push(Event::warning(&after.reason, &after.message));
    }
    if let Some((_, after)) = new("Ready").filter(|(_, after)| after.status == "True") {
        events.push(Event::normal(&after.reason, &after.message));
    }
    events
}
