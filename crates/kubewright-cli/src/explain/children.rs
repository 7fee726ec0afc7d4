//! Sentences about what an object owns: whether its children are well. Pure.

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::Value;

use super::format::{ago, clean, key, quoted};

/// So many children that are not well are told of.
const MOST: usize = 4;

/// Conditions that are bad when they are `True`; of all others `False` is bad, if it is one of [`GOOD`].
const BAD: [&str; 4] = ["Failed", "ReplicaFailure", "Degraded", "Stalled"];
const GOOD: [&str; 4] = ["Ready", "Available", "Progressing", "Healthy"];

/// States of containers that are none of their fault, and pass.
const PASSING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// What is to be said of the children of one kind; nothing of none.
pub(super) fn tell(kind: &str, children: &[DynamicObject], now: Timestamp) -> Vec<String> {
    let troubles: Vec<_> = children.iter().filter_map(|child| Some((child, trouble(kind, child, now)?))).collect();
    let of_which = if troubles.len() == 1 { "1 is".to_owned() } else { format!("{} are", troubles.len()) };
    let mut lines = vec![match (children, troubles.len()) {
        ([], _) => return Vec::new(),
        ([only], 0) => format!("It owns the {kind} {}, which is well.", key(only)),
        ([_], _) => format!("It owns one {kind}, which is not well:"),
        (_, 0) => format!("It owns {} objects of the kind {kind}, which are all well.", children.len()),
        _ => format!("It owns {} objects of the kind {kind}, of which {of_which} not well:", children.len()),
    }];
    lines.extend(troubles.iter().take(MOST).map(|(child, trouble)| format!("{kind} {} {trouble}", key(child))));
    if troubles.len() > MOST {
        lines.push(format!("{} more are not told of.", troubles.len() - MOST));
    }
    lines
}

/// What is wrong with an object, as the end of a sentence that begins with it; nothing if all is well.
pub(super) fn trouble(kind: &str, object: &DynamicObject, now: Timestamp) -> Option<String> {
    if let Some(time) = &object.metadata.deletion_timestamp {
        let finalizers: Vec<_> = object.finalizers().iter().map(|finalizer| clean(finalizer)).collect();
        let kept = if finalizers.is_empty() { String::new() } else { format!(", with {}", finalizers.join(", ")) };
        return Some(format!("was deleted {}, and is not gone yet{kept}.", ago(now, time.0)));
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
    if let Some(told) = containers.flatten().find_map(of_container) {
        return Some(told);
    }
    let condition = |wanted: &str| {
        let mut all = status["conditions"].as_array().into_iter().flatten();
        all.find(|condition| condition["type"] == wanted && condition["status"] == "False")
    };
    match (phase, condition("PodScheduled"), condition("Ready")) {
        ("Running", _, None) => None,
        ("Running", _, Some(ready)) => Some(format!("runs, and is not ready{}", reason(ready))),
        (_, Some(scheduled), _) => Some(format!("has no node yet{}", reason(scheduled))),
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
        format!(" It was started again {times}, and ended with exit code {code} before.")
    });
    let ended = ended.unwrap_or_default();
    if let Some(why) = waiting["reason"].as_str().filter(|why| !PASSING.contains(why)) {
        let message =
            waiting["message"].as_str().map_or_else(|| ".".into(), |message| format!(": {}", quoted(message)));
        return Some(format!(
            "has a container {name} that doesn't start, for the reason {}{message}{ended}",
            clean(why)
        ));
    }
    let now = &container["state"]["terminated"];
    let code = now["exitCode"].as_i64().filter(|code| *code != 0)?;
    Some(format!("has a container {name} that ended with exit code {code}{}", reason(now)))
}

fn of_conditions(status: &Value) -> Option<String> {
    let conditions = status["conditions"].as_array()?;
    let is_bad = |told: &&Value| {
        let kind = told["type"].as_str().unwrap_or_default();
        (BAD.contains(&kind) && told["status"] == "True") || (GOOD.contains(&kind) && told["status"] == "False")
    };
    let told = conditions.iter().find(is_bad)?;
    let text = |field: &str| clean(told[field].as_str().unwrap_or_default());
    Some(format!("has {} {}{}", text("type"), text("status"), reason(told)))
}

/// `, for the reason X: and so on.`
fn reason(told: &Value) -> String {
    let text = |field: &str| told[field].as_str().filter(|text| !text.is_empty());
    let why = text("reason").map(|why| format!(", for the reason {}", clean(why))).unwrap_or_default();
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
    fn what_is_wrong_with_a_pod_is_told() {
        let container = |state: Value| json!({"phase": "Running", "containerStatuses": [{"name": "a", "restartCount": 3, "state": state, "lastState": {"terminated": {"exitCode": 2}}}]});
        for (status, expected) in [
            (json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}), None),
            (json!({"phase": "Succeeded"}), None),
            (
                json!({"phase": "Failed", "reason": "Evicted", "message": "no room"}),
                Some("has failed, for the reason Evicted: no room."),
            ),
            (json!({"phase": "Pending"}), Some("has not started yet.")),
            (
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0 nodes"}]}),
                Some("has no node yet: 0 nodes."),
            ),
            (
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}),
                Some("runs, and is not ready."),
            ),
            (
                container(json!({"waiting": {"reason": "CrashLoopBackOff"}})),
                Some(
                    "has a container a that doesn't start, for the reason CrashLoopBackOff. It was started again 3 times, and ended with exit code 2 before.",
                ),
            ),
            (
                container(json!({"terminated": {"exitCode": 7, "reason": "Error"}})),
                Some("has a container a that ended with exit code 7, for the reason Error."),
            ),
            (
                json!({"phase": "Pending", "containerStatuses": [{"name": "a", "state": {"waiting": {"reason": "ContainerCreating"}}}]}),
                Some("has not started yet."),
            ),
        ] {
            assert_eq!(trouble("Pod", &child("x", status), now()).as_deref(), expected);
        }
    }

    #[test]
    fn children_are_told_of_by_kind() {
        let fine = |name: &str| child(name, json!({"conditions": [{"type": "Available", "status": "True"}]}));
        let bad = |name: &str| {
            child(name, json!({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}))
        };
        assert_eq!(tell("Job", &[], now()), Vec::<String>::new());
        assert_eq!(tell("Job", &[fine("a")], now()), ["It owns the Job demo/a, which is well."]);
        assert_eq!(
            tell("Job", &[fine("a"), fine("b")], now()),
            ["It owns 2 objects of the kind Job, which are all well."]
        );
        assert_eq!(
            tell("Job", &[fine("a"), bad("b")], now()),
            [
                "It owns 2 objects of the kind Job, of which 1 is not well:",
                "Job demo/b has Failed True, for the reason BackoffLimitExceeded.",
            ]
        );
        let many: Vec<_> = ["a", "b", "c", "d", "e", "f"].into_iter().map(bad).collect();
        let told = tell("Job", &many, now());
        assert_eq!((told.len(), told[5].as_str()), (6, "2 more are not told of."));
        let mut going = fine("a");
        going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T12:00:05Z")).unwrap();
        assert_eq!(
            tell("Job", &[going], now()),
            ["It owns one Job, which is not well:", "Job demo/a was deleted 5 s ago, and is not gone yet."]
        );
    }
}
