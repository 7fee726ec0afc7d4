//! Validation of the status of kinds that run pods from a template.

use serde_json::Value;

use crate::registry::builtin::validation::{Errors, Path, int, optional_int, validate_nonnegative};

/// The numbers in the status of a kind.
pub(super) struct Numbers {
    /// Those that must not be negative.
    pub(super) all: &'static [&'static str],
    /// Those that must not be greater than `replicas`.
    pub(super) of_replicas: &'static [&'static str],
    /// The name of `readyReplicas` in the message about more available replicas than ready ones, if there is a message.
    pub(super) ready: Option<&'static str>,
}

pub(super) const DEPLOYMENT: Numbers = Numbers {
    all: &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ],
    of_replicas: &["updatedReplicas", "readyReplicas", "availableReplicas"],
    ready: Some("readyReplicas"),
};

/// The numbers of replica sets and replication controllers.
pub(super) const REPLICA_SET: Numbers = Numbers {
    all: &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ],
    of_replicas: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    ready: Some("readyReplicas"),
};

pub(super) const STATEFUL_SET: Numbers = Numbers {
    all: &[
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ],
    of_replicas: &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
    ready: Some("status.readyReplicas"),
};

pub(super) const DAEMON_SET: Numbers = Numbers {
    all: &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ],
    of_replicas: &[],
    ready: None,
};

/// Checks the status of an object.
pub(super) fn validate_status(old: &Value, new: &Value, numbers: &Numbers, errors: &mut Errors) {
    let (old, status, path) = (&old["status"], &new["status"], Path::new("status"));
    for name in numbers.all {
        validate_nonnegative(int(status, name), &path.child(name), errors);
    }
    for name in numbers.of_replicas.iter().filter(|name| int(status, name) > int(status, "replicas")) {
        errors.invalid(&path.child(name), int(status, name), "cannot be greater than status.replicas");
    }
    let available = int(status, "availableReplicas");
    if let Some(ready) = numbers.ready.filter(|_| available > int(status, "readyReplicas")) {
        errors.invalid(&path.child("availableReplicas"), available, &format!("cannot be greater than {ready}"));
    }
    let collisions = int(status, "collisionCount");
    if optional_int(old, "collisionCount").is_some_and(|before| collisions < before) {
        errors.invalid(&path.child("collisionCount"), collisions, "cannot be decremented");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replicas_are_counted_consistently() {
        let check = |status: Value, expected: &[&str]| {
            let (old, new) = (json!({"status": {"collisionCount": 1}}), json!({"status": status}));
            let causes = Errors::collect(|errors| validate_status(&old, &new, &DEPLOYMENT, errors));
            assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        };
        check(json!({"replicas": 2, "readyReplicas": 2, "availableReplicas": 1, "collisionCount": 1}), &[]);
        check(
            json!({"replicas": 1, "readyReplicas": 2, "collisionCount": 2}),
            &["status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"],
        );
        check(
            json!({"replicas": 1, "availableReplicas": 1, "updatedReplicas": -1}),
            &[
                "status.updatedReplicas: Invalid value: -1: must be greater than or equal to 0",
                "status.availableReplicas: Invalid value: 1: cannot be greater than readyReplicas",
                "status.collisionCount: Invalid value: 0: cannot be decremented",
            ],
        );
    }
}
