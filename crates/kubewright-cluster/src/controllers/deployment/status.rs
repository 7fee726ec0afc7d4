//! The status of a deployment: counts, and the conditions `Available`, `Progressing` and `ReplicaFailure`.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{ReplicaSetRoles, size};
use crate::controllers::{
    reconcile::Plan,
    value::{condition, flag, int, is_deleting, number, stamp, text, time},
};

/// The state of the new replica set.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// No action on it.
    None,
    /// It exists.
    Found,
    /// It is being created under this name.
    Created(String),
    /// Its name is taken.
    Collision,
    /// An earlier attempt to create it has failed, with a message.
    Failed(String),
}

/// The reason of a failure to create a replica set.
pub(super) const CREATION_FAILED: &str = "ReplicaSetCreateError";

/// Returns the message of a failure to create a replica set.
pub(super) fn creation_failed(name: &str, why: &str) -> String {
    format!("Failed to create new replica set {name:?}: {why}")
}

/// The numbers of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    replicas: i64,
    updated: i64,
    ready: i64,
    available: i64,
}

impl Counts {
    fn of(roles: &ReplicaSetRoles<'_>) -> Self {
        let sum = |field: &str| roles.all().map(|set| int(set, field)).sum();
        Self {
            replicas: sum("/status/replicas"),
            updated: roles.new.map_or(0, |set| int(set, "/status/replicas")),
            ready: sum("/status/readyReplicas"),
            available: sum("/status/availableReplicas"),
        }
    }

    fn reported(deployment: &Value) -> Self {
        Self {
            replicas: int(deployment, "/status/replicas"),
            updated: int(deployment, "/status/updatedReplicas"),
            ready: int(deployment, "/status/readyReplicas"),
            available: int(deployment, "/status/availableReplicas"),
        }
    }

    fn are_complete(&self, deployment: &Value) -> bool {
        let wanted = int(deployment, "/spec/replicas");
        self.updated == wanted && self.replicas == wanted && self.available == wanted
    }

    fn have_progressed_from(&self, before: &Self) -> bool {
        self.updated > before.updated
            || self.replicas - self.updated < before.replicas - before.updated
            || self.ready > before.ready
            || self.available > before.available
    }
}

/// Returns whether all pods have the present template, are available, and are as many as wanted.
pub(super) fn is_complete(deployment: &Value, roles: &ReplicaSetRoles<'_>) -> bool {
    Counts::of(roles).are_complete(deployment)
}

/// Returns the status of a deployment.
pub(super) fn status(
    deployment: &Value,
    roles: &ReplicaSetRoles<'_>,
    event: &Event,
    now: Timestamp,
    plan: &mut Plan,
) -> Value {
    let counts = Counts::of(roles);
    let total = roles.all().map(size::size).sum::<i64>();
    let mut status = Map::new();
    let collisions = number(deployment, "/status/collisionCount").unwrap_or_default();
    let numbers = [
        ("observedGeneration", int(deployment, "/metadata/generation")),
        ("replicas", counts.replicas),
        ("updatedReplicas", counts.updated),
        ("readyReplicas", counts.ready),
        ("availableReplicas", counts.available),
        ("unavailableReplicas", (total - counts.available).max(0)),
        ("collisionCount", collisions + i64::from(*event == Event::Collision)),
    ];
    // Zeros are omitted, as in the API types of Kubernetes.
    status.extend(
        numbers.into_iter().filter(|(_, count)| *count != 0).map(|(field, count)| (field.into(), count.into())),
    );
    // A replica set that was never synced has no pods.
    let synced = || roles.all().filter(|set| int(set, "/status/observedGeneration") > 0);
    let terminating: Option<Vec<_>> = synced().map(|set| number(set, "/status/terminatingReplicas")).collect();
    if let Some(terminating) = terminating {
        status.insert("terminatingReplicas".into(), terminating.into_iter().sum::<i64>().into());
    }
    let mut conditions = Conditions { deployment, now, list: present(deployment) };
    if let Event::Failed(message) = event {
        // Nothing else is found out then.
        conditions.set("Progressing", "False", CREATION_FAILED, message);
        let mut status = deployment["status"].clone();
        status["conditions"] = conditions.list.into();
        return status;
    }
    conditions.available(counts.available);
    if !is_deleting(deployment) {
        conditions.progressing(roles, &counts, event, plan);
        conditions.failing(roles);
    }
    status.insert("conditions".into(), conditions.list.into());
    status.into()
}

fn present(deployment: &Value) -> Vec<Value> {
    deployment["status"]["conditions"].as_array().cloned().unwrap_or_default()
}

struct Conditions<'a> {
    deployment: &'a Value,
    now: Timestamp,
    list: Vec<Value>,
}

impl Conditions<'_> {
    fn get(&self, kind: &str) -> Option<&Value> {
        self.list.iter().find(|one| one["type"] == kind)
    }

    fn remove(&mut self, kind: &str) {
        self.list.retain(|one| one["type"] != kind);
    }

    /// Sets a condition and its update time. The transition time is kept if the status is unchanged.
    fn renew(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let now = stamp(self.now);
        let before = self.get(kind).filter(|one| one["status"] == status);
        let since = before.map_or_else(|| now.clone(), |one| one["lastTransitionTime"].clone());
        let condition = json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastUpdateTime": now, "lastTransitionTime": since,
        });
        self.remove(kind);
        self.list.push(condition);
    }

    /// Sets a condition, unless it has this status and reason already.
    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        if !self.get(kind).is_some_and(|one| one["status"] == status && one["reason"] == reason) {
            self.renew(kind, status, reason, message);
        }
    }

    fn available(&mut self, available: i64) {
        if available >= int(self.deployment, "/spec/replicas") - size::leeway(self.deployment).1 {
            self.set("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.");
        } else {
            let message = "Deployment does not have minimum availability.";
            self.set("Available", "False", "MinimumReplicasUnavailable", message);
        }
    }

    /// Sets the condition `Progressing`, unless there is no deadline.
    fn progressing(&mut self, roles: &ReplicaSetRoles<'_>, counts: &Counts, event: &Event, plan: &mut Plan) {
        const KIND: &str = "Progressing";
        let deadline = number(self.deployment, "/spec/progressDeadlineSeconds");
        let Some(deadline) = deadline.filter(|seconds| *seconds != i64::from(i32::MAX)) else {
            return self.remove(KIND);
        };
        let reason = self.get(KIND).map(|one| text(one, "/reason").to_owned()).unwrap_or_default();
        let paused = flag(self.deployment, "/spec/paused");
        match (paused, reason.as_str()) {
            (true, "DeploymentPaused" | "ProgressDeadlineExceeded") => return,
            (true, _) => return self.set(KIND, "Unknown", "DeploymentPaused", "Deployment is paused"),
            (false, "DeploymentPaused") => self.set(KIND, "Unknown", "DeploymentResumed", "Deployment is resumed"),
            (false, _) => {}
        }
        match (event, roles.new) {
            (Event::Created(name), _) => {
                let message = format!("Created new replica set {name:?}");
                return self.set(KIND, "True", "NewReplicaSetCreated", &message);
            }
            (Event::Found, Some(new)) if self.get(KIND).is_none() => {
                let message = format!("Found new replica set {:?}", text(new, "/metadata/name"));
                self.set(KIND, "True", "FoundNewReplicaSet", &message);
            }
            _ => {}
        }
        if counts.replicas == counts.updated && reason == "NewReplicaSetAvailable" {
            return;
        }
        let subject = match roles.new {
            Some(new) => format!("ReplicaSet {:?}", text(new, "/metadata/name")),
            None => format!("Deployment {:?}", text(self.deployment, "/metadata/name")),
        };
        if counts.are_complete(self.deployment) {
            let message = format!("{subject} has successfully progressed.");
            self.set(KIND, "True", "NewReplicaSetAvailable", &message);
        } else if counts.have_progressed_from(&Counts::reported(self.deployment)) {
            self.renew(KIND, "True", "ReplicaSetUpdated", &format!("{subject} is progressing."));
        } else if let Some(left) = self.time_left(deadline) {
            if left.is_zero() {
                let message = format!("{subject} has timed out progressing.");
                self.set(KIND, "False", "ProgressDeadlineExceeded", &message);
            } else {
                plan.requeue_after(left);
            }
        }
    }

    /// Returns the time until the rollout exceeds its deadline.
    fn time_left(&self, deadline: i64) -> Option<Duration> {
        let condition = self.get("Progressing")?;
        if condition["reason"] == "NewReplicaSetAvailable" {
            return None;
        }
        if condition["reason"] == "ProgressDeadlineExceeded" {
            return Some(Duration::ZERO);
        }
        let elapsed = self.now.duration_since(time(condition, "/lastUpdateTime")?).as_secs();
        Some(Duration::from_secs(u64::try_from(deadline - elapsed).unwrap_or_default()))
    }

    /// Sets the condition `ReplicaFailure`.
    fn failing(&mut self, roles: &ReplicaSetRoles<'_>) {
        const KIND: &str = "ReplicaFailure";
        match roles.new.into_iter().chain(roles.old.iter().copied()).find_map(|set| condition(set, KIND)) {
            Some(failure) => {
                self.set(KIND, text(failure, "/status"), text(failure, "/reason"), text(failure, "/message"))
            }
            None => self.remove(KIND),
        }
    }
}
