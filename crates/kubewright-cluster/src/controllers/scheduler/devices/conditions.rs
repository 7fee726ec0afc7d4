//! The conditions that the devices of a claim have to meet before a pod is bound. Their drivers report them. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::controllers::value::{list, text, time};

/// How long the conditions may take, as in kube-scheduler.
const TIMEOUT: SignedDuration = SignedDuration::from_secs(600);

/// Whether the devices of a claim meet their conditions.
#[derive(Debug, PartialEq)]
pub(super) enum Readiness {
    Ready,
    /// They don't yet.
    Waiting,
    /// They don't, and have been given time.
    Late,
    /// They won't, for Kubernetes' reason.
    Failed(String),
}

/// Returns whether the devices of an allocation have conditions.
pub(super) fn has_conditions(allocation: &Value) -> bool {
    list(allocation, "/devices/results").iter().any(|result| !list(result, "/bindingConditions").is_empty())
}

/// Returns whether the devices of a claim with an allocation meet their conditions.
pub(super) fn readiness(claim: &Value, now: Timestamp) -> Readiness {
    let allocation = &claim["status"]["allocation"];
    let since = time(allocation, "/allocationTimestamp");
    let is_late = || since.is_some_and(|since| now.duration_since(since) > TIMEOUT);
    let waiting = || if is_late() { Readiness::Late } else { Readiness::Waiting };
    for result in list(allocation, "/devices/results") {
        let conditions = list(result, "/bindingConditions");
        if conditions.is_empty() {
            continue;
        }
        let is_same =
            |status: &&Value| ["driver", "pool", "device"].iter().all(|field| status[*field] == result[*field]);
        let Some(status) = list(claim, "/status/devices").iter().find(is_same) else { return waiting() };
        let holds = |kind: &&Value| {
            let mut of_kind = list(status, "/conditions").iter().filter(|condition| condition["type"] == **kind);
            of_kind.next().filter(|condition| condition["status"] == "True")
        };
        if let Some(failed) = list(result, "/bindingFailureConditions").iter().find_map(|kind| holds(&kind)) {
            let (name, reason) = (text(claim, "/metadata/name"), text(failed, "/reason"));
            let message = text(failed, "/message");
            return Readiness::Failed(format!(
                "device binding failed: claim={name}, reason={reason}, message={message:?}"
            ));
        }
        if !conditions.iter().all(|kind| holds(&kind).is_some()) {
            return waiting();
        }
    }
    Readiness::Ready
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_are_ready_when_each_device_meets_its_conditions() {
        let device = |name: &str| json!({"driver": "d.io", "pool": "p", "device": name});
        let check = |devices: Value, seconds: i64, expect: Readiness| {
            let mut results = [device("x"), device("y")];
            results[1]["bindingConditions"] = json!(["attached", "ready"]);
            results[1]["bindingFailureConditions"] = json!(["broken"]);
            let allocation = json!({"devices": {"results": results}, "allocationTimestamp": "1970-01-01T00:00:00Z"});
            assert!(has_conditions(&allocation));
            let status = json!({"allocation": allocation, "devices": devices});
            let claim = json!({"metadata": {"name": "c"}, "status": status});
            let now = Timestamp::from_second(seconds).expect("a time");
            assert_eq!(readiness(&claim, now), expect, "{devices}");
        };
        let with = |name: &str, conditions: &[(&str, &str)]| {
            let condition = |(kind, status): &(&str, &str)| json!({"type": kind, "status": status, "reason": "Why", "message": "not \"it\""});
            let mut device = device(name);
            device["conditions"] = conditions.iter().map(condition).collect();
            json!([device])
        };
        check(Value::Null, 600, Readiness::Waiting);
        check(Value::Null, 601, Readiness::Late);
        check(with("x", &[("attached", "True"), ("ready", "True")]), 0, Readiness::Waiting);
        check(with("y", &[("attached", "True"), ("ready", "False")]), 0, Readiness::Waiting);
        check(with("y", &[("attached", "True"), ("ready", "True"), ("broken", "False")]), 601, Readiness::Ready);
        let why = r#"device binding failed: claim=c, reason=Why, message="not \"it\"""#;
        check(with("y", &[("attached", "True"), ("broken", "True")]), 0, Readiness::Failed(why.into()));
    }
}
