//! Sentences about the children of an object and their health.

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use kubewright_apimachinery::text::{ago, clean, quoted};
use serde_json::Value;

/// The maximum number of unhealthy children that are shown.
const MOST: usize = 4;

/// The conditions that mean a problem if they are `True`. Those in [`GOOD`] mean a problem if they are `False`.
const BAD: [&str; 4] = ["Failed", "ReplicaFailure", "Degraded", "Stalled"];
const GOOD: [&str; 4] = ["Ready", "Available", "Progressing", "Healthy"];

/// The waiting reasons of containers that are only temporary.
const PASSING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Formats the key of an object: `namespace/name`, or the name.
pub(super) fn key(object: &DynamicObject) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// Describes the children of one kind; empty without children.
pub(super) fn describe(kind: &str, children: &[DynamicObject], now: Timestamp) -> Vec<String> {
    let problems: Vec<_> = children.iter().filter_map(|child| Some((child, problem(kind, child, now)?))).collect();
    let mut lines = vec![match (children, problems.len()) {
        ([], _) => return Vec::new(),
        ([only], 0) => format!("It owns {kind} {}, which is healthy.", key(only)),
        ([_], _) => format!("It owns one {kind}, which is unhealthy:"),
        (_, 0) => format!("It owns {} objects of kind {kind}, all healthy.", children.len()),
        _ => format!("It owns {} objects of kind {kind}, {} unhealthy:", children.len(), problems.len()),
    }];
    lines.extend(problems.iter().take(MOST).map(|(child, problem)| format!("{kind} {} {problem}", key(child))));
    if problems.len() > MOST {
        lines.push(format!("{} more are not shown.", problems.len() - MOST));
    }
    lines
}

/// Returns the problem of an object as the end of a sentence; `None` if the object is healthy.
pub(super) fn problem(kind: &str, object: &DynamicObject, now: Timestamp) -> Option<String> {
    if let Some(time) = &object.metadata.deletion_timestamp {
        let finalizers: Vec<_> = object.finalizers().iter().map(|finalizer| clean(finalizer)).collect();
        let kept =
            if finalizers.is_empty() { String::new() } else { format!(", with finalizers {}", finalizers.join(", ")) };
        return Some(format!("was deleted {} and still exists{kept}.", ago(now, time.0)));
    }
    let status = &object.data["status"];
    if kind == "Pod" { of_pod(status) } else { of_conditions(status) }
}

fn of_pod(status: &Value) -> Option<String> {
    let phase = status["phase"].as_str().unwrap_or_default();
    match phase {
        "Succeeded" => return None,
        "Failed" => return Some(format!("has failed{}", reason(status))),
        _ => {}
    }
    let containers =
        ["initContainerStatuses", "containerStatuses"].into_iter().filter_map(|field| status[field].as_array());
    if let Some(found) = containers.flatten().find_map(of_container) {
        return Some(found);
    }
    let condition = |wanted: &str| {
        let mut all = status["conditions"].as_array().into_iter().flatten();
        all.find(|condition| condition["type"] == wanted && condition["status"] == "False")
    };
    match (phase, condition("PodScheduled"), condition("Ready")) {
        ("Running", _, None) => None,
        ("Running", _, Some(ready)) => Some(format!("is running but not ready{}", reason(ready))),
        (_, Some(scheduled), _) => Some(format!("is not scheduled yet{}", reason(scheduled))),
        _ => Some("has not started yet.".into()),
    }
}

fn of_container(container: &Value) -> Option<String> {
    let name = clean(container["name"].as_str().unwrap_or_default());
    let (waiting, ended) = (&container["state"]["waiting"], &container["lastState"]["terminated"]);
    let ended = ended["exitCode"].as_i64().map(|code| {
        let times = match container["restartCount"].as_i64().unwrap_or_default() {
            0 | 1 => "once".into(),
            times => format!("{times} times"),
        };
        format!(" It was restarted {times}; its last exit code was {code}.")
    });
    let ended = ended.unwrap_or_default();
    if let Some(why) = waiting["reason"].as_str().filter(|why| !PASSING.contains(why)) {
        let message =
            waiting["message"].as_str().map_or_else(|| ".".into(), |message| format!(": {}", quoted(message)));
        return Some(format!("has a container {name} that does not start, with reason {}{message}{ended}", clean(why)));
    }
    let now = &container["state"]["terminated"];
    let code = now["exitCode"].as_i64().filter(|code| *code != 0)?;
    Some(format!("has a container {name} that exited with code {code}{}", reason(now)))
}

fn of_conditions(status: &Value) -> Option<String> {
    let conditions = status["conditions"].as_array()?;
    let is_bad = |found: &&Value| {
        let kind = found["type"].as_str().unwrap_or_default();
        (BAD.contains(&kind) && found["status"] == "True") || (GOOD.contains(&kind) && found["status"] == "False")
    };
    let found = conditions.iter().find(is_bad)?;
    let text = |field: &str| clean(found[field].as_str().unwrap_or_default());
    Some(format!("has {} {}{}", text("type"), text("status"), reason(found)))
}

/// Formats `, with reason X: message.`
fn reason(found: &Value) -> String {
    let text = |field: &str| found[field].as_str().filter(|text| !text.is_empty());
    let why = text("reason").map(|why| format!(", with reason {}", clean(why))).unwrap_or_default();
    let message = text("message").map_or_else(|| ".".into(), |message| format!(": {}", quoted(message)));
    format!("{why}{message}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:10Z".parse().unwrap()
    }

    fn child(name: &str, status: Value) -> DynamicObject {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "demo"}, "status": status})).unwrap()
    }

    #[test]
    fn problems_of_pods_are_described() {
        let container = |state: Value| json!({"phase": "Running", "containerStatuses": [{"name": "a", "restartCount": 3, "state": state, "lastState": {"terminated": {"exitCode": 2}}}]});
        for (status, expected) in [
            (json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}), None),
            (json!({"phase": "Succeeded"}), None),
            (
                json!({"phase": "Failed", "reason": "Evicted", "message": "no room"}),
                Some("has failed, with reason Evicted: no room."),
            ),
            (json!({"phase": "Pending"}), Some("has not started yet.")),
            (
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0 nodes"}]}),
                Some("is not scheduled yet: 0 nodes."),
            ),
            (
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}),
                Some("is running but not ready."),
            ),
            (
                container(json!({"waiting": {"reason": "CrashLoopBackOff"}})),
                Some(
                    "has a container a that does not start, with reason CrashLoopBackOff. It was restarted 3 times; its last exit code was 2.",
                ),
            ),
            (
                container(json!({"terminated": {"exitCode": 7, "reason": "Error"}})),
                Some("has a container a that exited with code 7, with reason Error."),
            ),
            (
                json!({"phase": "Pending", "containerStatuses": [{"name": "a", "state": {"waiting": {"reason": "ContainerCreating"}}}]}),
                Some("has not started yet."),
            ),
        ] {
            assert_eq!(problem("Pod", &child("x", status), now()).as_deref(), expected);
        }
    }

    #[test]
    fn children_are_described_by_kind() {
        let fine = |name: &str| child(name, json!({"conditions": [{"type": "Available", "status": "True"}]}));
        let bad = |name: &str| {
            child(name, json!({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}))
        };
        assert_eq!(describe("Job", &[], now()), Vec::<String>::new());
        assert_eq!(describe("Job", &[fine("a")], now()), ["It owns Job demo/a, which is healthy."]);
        assert_eq!(describe("Job", &[fine("a"), fine("b")], now()), ["It owns 2 objects of kind Job, all healthy."]);
        assert_eq!(
            describe("Job", &[fine("a"), bad("b")], now()),
            [
                "It owns 2 objects of kind Job, 1 unhealthy:",
                "Job demo/b has Failed True, with reason BackoffLimitExceeded.",
            ]
        );
        let many: Vec<_> = ["a", "b", "c", "d", "e", "f"].into_iter().map(bad).collect();
        let found = describe("Job", &many, now());
        assert_eq!((found.len(), found[5].as_str()), (6, "2 more are not shown."));
        let mut going = fine("a");
        going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T12:00:05Z")).unwrap();
        assert_eq!(
            describe("Job", &[going], now()),
            ["It owns one Job, which is unhealthy:", "Job demo/a was deleted 5s ago and still exists."]
        );
    }
}
