//! The taints of nodes that aren't ready, lack a resource, or are cordoned
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-nodes-by-condition>).

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controllers::{
    scheduler::filter::UNSCHEDULABLE,
    value::{list, stamp, text},
};

/// The conditions of nodes, the value of each by which it is a problem, and the taint for it.
const CONDITIONS: [(&str, &str, &str); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// Returns the taints that a node should have instead of its own. `now` is the time of those that are new. Without
/// `evicts`, none of them evicts pods.
pub(super) fn taints(node: &Value, evicts: bool, now: Timestamp) -> Option<Vec<Value>> {
    let mut wanted = wanted(node);
    wanted.retain(|(_, effect)| evicts || *effect != "NoExecute");
    let is = |taint: &Value, (key, effect): (&str, &str)| taint["key"] == key && taint["effect"] == effect;
    let is_ours = |taint: &Value| {
        let (key, effect) = (text(taint, "/key"), text(taint, "/effect"));
        match effect {
            "NoSchedule" => key == UNSCHEDULABLE || CONDITIONS.iter().any(|(_, _, of)| *of == key),
            "NoExecute" => CONDITIONS.iter().any(|(condition, _, of)| *condition == "Ready" && *of == key),
            _ => false,
        }
    };
    let present = list(node, "/spec/taints");
    let kept = present.iter().filter(|taint| !is_ours(taint) || wanted.iter().any(|one| is(taint, *one)));
    let kept: Vec<_> = kept.cloned().collect();
    let missing = wanted.iter().filter(|one| !present.iter().any(|taint| is(taint, **one)));
    let missing: Vec<_> =
        missing.map(|(key, effect)| json!({"key": key, "effect": effect, "timeAdded": stamp(now)})).collect();
    (kept.len() < present.len() || !missing.is_empty()).then(|| [kept, missing].concat())
}

/// Returns the key and the effect of each taint that a node should have because of its state.
fn wanted(node: &Value) -> Vec<(&'static str, &'static str)> {
    let mut wanted = Vec::new();
    for condition in list(node, "/status/conditions") {
        let found =
            CONDITIONS.iter().find(|(of, status, _)| condition["type"] == *of && condition["status"] == *status);
        if let Some((of, _, key)) = found {
            wanted.push((*key, "NoSchedule"));
            if *of == "Ready" {
                wanted.push((*key, "NoExecute"));
            }
        }
    }
    if node["spec"]["unschedulable"] == true {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(taints_before: Value, unschedulable: bool, conditions: &[(&str, &str)], expect: Option<&[&str]>) {
        let conditions: Vec<_> = conditions.iter().map(|(of, status)| json!({"type": of, "status": status})).collect();
        let node = json!({"spec": {"taints": taints_before, "unschedulable": unschedulable},
            "status": {"conditions": conditions}});
        let found = taints(&node, true, Timestamp::UNIX_EPOCH);
        let shown = found.map(|taints| {
            taints.iter().map(|taint| format!("{}:{}", text(taint, "/key"), text(taint, "/effect"))).collect::<Vec<_>>()
        });
        assert_eq!(shown, expect.map(|taints| taints.iter().map(ToString::to_string).collect()), "{node}");
    }

    #[test]
    fn taints_follow_conditions_and_cordons() {
        let not_ready = || json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
        let own = json!({"key": "mine", "effect": "NoExecute"});
        check(json!(null), false, &[("Ready", "True"), ("DiskPressure", "False")], None);
        check(not_ready(), false, &[("Ready", "True")], Some(&[]));
        check(
            json!([own]),
            true,
            &[("Ready", "True")],
            Some(&["mine:NoExecute", "node.kubernetes.io/unschedulable:NoSchedule"]),
        );
        check(
            not_ready(),
            false,
            &[("Ready", "False"), ("PIDPressure", "True")],
            Some(&[
                "node.kubernetes.io/not-ready:NoSchedule",
                "node.kubernetes.io/not-ready:NoExecute",
                "node.kubernetes.io/pid-pressure:NoSchedule",
            ]),
        );
        check(
            json!([own, not_ready()[0]]),
            false,
            &[("Ready", "Unknown")],
            Some(&[
                "mine:NoExecute",
                "node.kubernetes.io/unreachable:NoSchedule",
                "node.kubernetes.io/unreachable:NoExecute",
            ]),
        );
        let cordoned = json!([{"key": UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]);
        check(cordoned, true, &[("Ready", "True")], None);
    }
}
