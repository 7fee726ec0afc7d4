//! The filters that decide whether a pod may be bound to a node. Order and messages are those of kube-scheduler. Pure.

use serde_json::Value;

use crate::controllers::value::{flag, list, text};

/// The taint that `kubectl cordon` results in.
pub(crate) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Why a node can't take a pod that doesn't select it.
pub(crate) const NOT_SELECTED: &str = "node(s) didn't match Pod's node affinity/selector";

/// What is in the way of a pod on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// Kubernetes' reason.
    pub(crate) reason: &'static str,
    /// True if it would remain if other pods went away.
    pub(crate) is_final: bool,
}

/// Returns why a pod can't be bound to a node.
pub(crate) fn reason_not_to_bind(pod: &Value, node: &Value) -> Option<String> {
    let cordon = serde_json::json!({"key": UNSCHEDULABLE, "effect": "NoSchedule"});
    if flag(node, "/spec/unschedulable") && !is_tolerated(pod, &cordon) {
        return Some("node(s) were unschedulable".into());
    }
    if untolerated_taint(pod, node).is_some() {
        return Some("node(s) had untolerated taint(s)".into());
    }
    if !is_selected(pod, node) {
        return Some(NOT_SELECTED.into());
    }
    None
}

/// Returns the first taint of a node that keeps a pod away.
pub(crate) fn untolerated_taint<'a>(pod: &Value, node: &'a Value) -> Option<&'a Value> {
    let repels = |taint: &&Value| matches!(text(taint, "/effect"), "NoSchedule" | "NoExecute");
    list(node, "/spec/taints").iter().filter(repels).find(|taint| !is_tolerated(pod, taint))
}

/// Returns whether a pod tolerates a taint.
pub(crate) fn is_tolerated(pod: &Value, taint: &Value) -> bool {
    list(pod, "/spec/tolerations").iter().any(|toleration| tolerates(toleration, taint))
}

/// Returns whether a toleration matches a taint.
pub(crate) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
    let value = match text(toleration, "/operator") {
        "Exists" => true,
        _ => text(toleration, "/value") == text(taint, "/value"),
    };
    let any_key = key.is_empty() && text(toleration, "/operator") == "Exists";
    (effect.is_empty() || effect == text(taint, "/effect")) && (any_key || key == text(taint, "/key")) && value
}

/// Returns whether a pod's node selector and required node affinity match a node.
pub(crate) fn is_selected(pod: &Value, node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let mut selector = pod["spec"]["nodeSelector"].as_object().into_iter().flatten();
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    selector.all(|(key, value)| labels.get(key) == Some(value)) && satisfies(node, required)
}

/// Returns whether a node satisfies a `NodeSelector`; null requires nothing.
pub(crate) fn satisfies(node: &Value, required: &Value) -> bool {
    // An empty term selects nothing.
    let matches = |term: &Value| !is_empty(term) && meets(node, term);
    required.is_null() || list(required, "/nodeSelectorTerms").iter().any(matches)
}

fn is_empty(term: &Value) -> bool {
    list(term, "/matchExpressions").is_empty() && list(term, "/matchFields").is_empty()
}

/// Returns whether a node meets all requirements of a `NodeSelectorTerm`, which may have none.
pub(crate) fn meets(node: &Value, term: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let label = |key: &str| labels[key].as_str();
    let field = |key: &str| if key == "metadata.name" { node["metadata"]["name"].as_str() } else { None };
    list(term, "/matchExpressions").iter().all(|one| holds(one, label(text(one, "/key"))))
        && list(term, "/matchFields").iter().all(|one| holds(one, field(text(one, "/key"))))
}

/// Returns whether a requirement holds for a value, or for its absence.
fn holds(requirement: &Value, value: Option<&str>) -> bool {
    let values = list(requirement, "/values");
    let is_in = value.is_some_and(|value| values.iter().any(|one| one == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let compared = number(value).zip(number(values.first().and_then(Value::as_str)));
    match text(requirement, "/operator") {
        "In" => is_in,
        "NotIn" => !is_in,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared.is_some_and(|(value, bound)| value > bound),
        "Lt" => compared.is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(pod: Value, node: Value, expect: Option<&str>) {
        let mut node = json!({"metadata": {"name": "n", "labels": {"disk": "ssd", "size": "4"}}, "spec": node});
        node["spec"]["x"] = Value::Null;
        assert_eq!(reason_not_to_bind(&json!({"spec": pod}), &node).as_deref(), expect, "{pod}");
    }

    #[test]
    fn cordon_and_taints() {
        let cordoned = || json!({"unschedulable": true});
        check(json!({}), json!({}), None);
        check(json!({}), cordoned(), Some("node(s) were unschedulable"));
        check(json!({"tolerations": [{"operator": "Exists"}]}), cordoned(), None);
        let tainted = || {
            json!({"taints": [{"key": "soft", "effect": "PreferNoSchedule"},
            {"key": "for", "value": "cows", "effect": "NoSchedule"}]})
        };
        let repelled = Some("node(s) had untolerated taint(s)");
        check(json!({}), tainted(), repelled);
        let tolerate = |toleration: Value, expect| check(json!({"tolerations": [toleration]}), tainted(), expect);
        tolerate(json!({"key": "for", "value": "cows"}), None);
        tolerate(json!({"key": "for", "operator": "Equal", "value": "cows", "effect": "NoSchedule"}), None);
        tolerate(json!({"key": "for", "operator": "Exists"}), None);
        tolerate(json!({"key": "for", "value": "pigs"}), repelled);
        tolerate(json!({"key": "for", "operator": "Exists", "effect": "NoExecute"}), repelled);
        tolerate(json!({"key": "other", "operator": "Exists"}), repelled);
    }

    #[test]
    fn selectors_and_affinity() {
        let unmatched = Some("node(s) didn't match Pod's node affinity/selector");
        check(json!({"nodeSelector": {"disk": "ssd"}}), json!({}), None);
        check(json!({"nodeSelector": {"disk": "hdd"}}), json!({}), unmatched);
        let affinity = |terms: Value, expect| {
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            check(json!({"affinity": {"nodeAffinity": required}}), json!({}), expect);
        };
        let label = |operator: &str, key: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        affinity(json!([label("In", "disk", &["hdd", "ssd"])]), None);
        affinity(json!([label("NotIn", "disk", &["ssd"])]), unmatched);
        affinity(json!([label("NotIn", "color", &["red"])]), None);
        affinity(json!([label("DoesNotExist", "color", &[]), label("Exists", "nothing", &[])]), None);
        affinity(json!([label("Gt", "size", &["3"])]), None);
        affinity(json!([label("Lt", "size", &["4"])]), unmatched);
        affinity(json!([{}]), unmatched);
        let name = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
        affinity(json!([name]), None);
    }
}
