//! Whether a node has what a pod requests after a resize. Rule and words are those of Kubernetes' admission plugin
//! PodResizeValidator, which looks at the whole node, whatever other pods have taken of it.

use kubewright_apimachinery::quantity::Quantity;
use serde_json::Value;

use crate::{
    amounts::{Amounts, add, amounts},
    registry::builtin::limit_ranges::of_pod,
};

/// Returns what a node lacks for a pod.
pub(super) fn lack(pod: &Value, node: &Value) -> Option<String> {
    let mut requests = of_pod(&pod["spec"], "requests");
    add(&mut requests, &amounts(&pod["spec"], "overhead"));
    let allocatable = amounts(&node["status"], "allocatable");
    let compare = |name: &str, whole: fn(Quantity) -> i128| {
        let of = |all: &Amounts| all.get(name).map(|found| found.amount).unwrap_or_default();
        let (requested, total) = (of(&requests), of(&allocatable));
        (requested > total).then(|| format!("{name}, requested: {}, allocatable: {}", whole(requested), whole(total)))
    };
    let lacking = [compare("cpu", Quantity::thousandths), compare("memory", |amount| amount.value().into())];
    let lacking: Vec<_> = lacking.into_iter().flatten().collect();
    (!lacking.is_empty()).then(|| format!("node didn't have enough allocatable resources: {}", lacking.join("; ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_whole_node_is_the_bound() {
        let node = json!({"status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}});
        let check = |spec: Value, expect: Option<&str>| {
            let found = lack(&json!({"spec": spec}), &node);
            let expect = expect.map(|what| format!("node didn't have enough allocatable resources: {what}"));
            assert_eq!(found, expect, "{spec}");
        };
        let container = |cpu: &str, memory: &str| json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}});
        check(json!({"containers": [container("2", "1Gi")]}), None);
        check(json!({"containers": [{}]}), None);
        check(
            json!({"containers": [container("1500m", "1"), container("501m", "1")]}),
            Some("cpu, requested: 2001, allocatable: 2000"),
        );
        check(
            json!({"containers": [container("3", "2Gi")]}),
            Some("cpu, requested: 3000, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824"),
        );
        check(
            json!({"containers": [container("2", "1")], "overhead": {"cpu": "1m"}}),
            Some("cpu, requested: 2001, allocatable: 2000"),
        );
        check(json!({"containers": [container("3", "1")], "resources": {"requests": {"cpu": "1"}}}), None);
        let bare = lack(&json!({"spec": {"containers": [container("1m", "0")]}}), &json!({}));
        assert!(bare.is_some_and(|why| why.ends_with("cpu, requested: 1, allocatable: 0")));
    }
}
