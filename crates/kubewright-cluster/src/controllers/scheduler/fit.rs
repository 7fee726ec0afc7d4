//! The resources that pods request, and whether a node has them left. The rules and messages are those of
//! kube-scheduler's plugin `NodeResourcesFit`. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    controllers::value::{list, text},
    quantity::{PARTS, quantity},
};

/// Amounts by resource, in billionths.
pub(crate) type Amounts = BTreeMap<String, i128>;

/// The resource of which each pod takes one.
const PODS: &str = "pods";
/// The resources by which nodes are compared, with what a pod that requests nothing counts as: 100m and 200Mi.
const COMPARED: [(&str, i128); 2] = [("cpu", PARTS / 10), ("memory", (200 << 20) * PARTS)];

/// Returns what a pod requests, with its overhead.
pub(crate) fn requests(pod: &Value) -> Amounts {
    let mut sum = amounts_of(pod, "requests");
    add(&mut sum, &amounts(&pod["spec"]["overhead"]));
    sum.retain(|_, amount| *amount > 0);
    sum
}

/// Returns the limits of a pod, with its overhead where there is a limit.
pub(crate) fn limits(pod: &Value) -> Amounts {
    let mut sum = amounts_of(pod, "limits");
    let mut overhead = amounts(&pod["spec"]["overhead"]);
    overhead.retain(|name, _| sum.get(name).is_some_and(|limit| *limit > 0));
    add(&mut sum, &overhead);
    sum
}

/// Returns the requests or limits of a pod: the sum of its containers, or more if an init container has more. Those of
/// the whole pod replace those of its containers.
fn amounts_of(pod: &Value, side: &str) -> Amounts {
    let mut sum = Amounts::new();
    // Sidecars run beside the init containers after them.
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in list(pod, "/spec/initContainers") {
        let own = amounts(&container["resources"][side]);
        if text(container, "/restartPolicy") == "Always" {
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            raise(&mut peak, &sidecars);
        } else {
            let mut together = sidecars.clone();
            add(&mut together, &own);
            raise(&mut peak, &together);
        }
    }
    for container in list(pod, "/spec/containers") {
        add(&mut sum, &amounts(&container["resources"][side]));
    }
    raise(&mut sum, &peak);
    sum.extend(amounts(&pod["spec"]["resources"][side]));
    sum
}

/// Parses the quantities of a map.
fn amounts(quantities: &Value) -> Amounts {
    let parse = |(name, amount): (&String, &Value)| Some((name.clone(), quantity(amount.as_str()?)?));
    quantities.as_object().into_iter().flatten().filter_map(parse).collect()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let known = sum.entry(name.clone()).or_default();
        *known = known.saturating_add(*amount);
    }
}

/// Raises each amount to at least that of the other map.
fn raise(sum: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        let known = sum.entry(name.clone()).or_default();
        *known = (*known).max(*amount);
    }
}

/// What the pods of a node have requested.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requested {
    pods: i128,
    sum: Amounts,
    /// The sums of the compared resources.
    compared: [i128; COMPARED.len()],
}

/// Returns the amounts of the compared resources that a pod counts as.
fn compared(pod: &Amounts) -> [i128; COMPARED.len()] {
    COMPARED.map(|(name, least)| pod.get(name).copied().unwrap_or(least))
}

/// The resources that a node lacks for a pod.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    /// Kubernetes' reasons, in alphabetical order.
    pub(crate) reasons: Vec<String>,
    pub(crate) shortages: Vec<Shortage>,
    /// True if even an empty node would lack them.
    pub(crate) is_final: bool,
}

/// A resource that a node lacks for a pod, with amounts in billionths.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) resource: String,
    pub(crate) wanted: i128,
    pub(crate) used: i128,
    pub(crate) total: i128,
}

impl Requested {
    /// Adds what a pod requests.
    pub(crate) fn add(&mut self, pod: &Amounts) {
        self.pods += 1;
        add(&mut self.sum, pod);
        for (sum, amount) in self.compared.iter_mut().zip(compared(pod)) {
            *sum = sum.saturating_add(amount);
        }
    }

    /// Takes off what a pod requested.
    pub(crate) fn subtract(&mut self, pod: &Amounts) {
        self.pods -= 1;
        for (name, amount) in pod {
            if let Some(known) = self.sum.get_mut(name) {
                *known = known.saturating_sub(*amount);
            }
        }
        for (sum, amount) in self.compared.iter_mut().zip(compared(pod)) {
            *sum = sum.saturating_sub(amount);
        }
    }

    /// Returns whether there are no pods.
    pub(crate) fn is_empty(&self) -> bool {
        self.pods == 0
    }

    /// Returns how much of a node would be free beside a pod that requests `wanted`, in percent.
    pub(crate) fn free_share(&self, wanted: &Amounts, node: &Value) -> i64 {
        let shares = COMPARED.iter().zip(self.compared).zip(compared(wanted)).map(|(((name, _), used), wanted)| {
            let total = node["status"]["allocatable"][name].as_str().and_then(quantity).unwrap_or_default();
            let free = total.saturating_sub(used).saturating_sub(wanted).max(0);
            free.saturating_mul(100).checked_div(total).unwrap_or_default()
        });
        i64::try_from(shares.sum::<i128>()).unwrap_or_default() / 2
    }

    /// Returns how much more evenly the compared resources of a node would be requested with a pod that requests
    /// `wanted`, in percent: 75 for no difference, more for an improvement; zero for a pod that requests none of them.
    pub(crate) fn balance(&self, wanted: &Amounts, node: &Value) -> i64 {
        let amount = |amounts: &Amounts, name: &str| amounts.get(name).copied().unwrap_or_default();
        if COMPARED.iter().all(|(name, _)| amount(wanted, name) == 0) {
            return 0;
        }
        let evenness = |added: &dyn Fn(&str) -> i128| {
            let [cpu, memory] = COMPARED.map(|(name, _)| {
                let total =
                    node["status"]["allocatable"][name].as_str().and_then(quantity).filter(|total| *total > 0)?;
                Some((amount(&self.sum, name).saturating_add(added(name)) as f64 / total as f64).min(1.0))
            });
            // Half of the difference is the standard deviation of two numbers.
            let deviation = cpu.zip(memory).map_or(0.0, |(cpu, memory)| (cpu - memory).abs() / 2.0);
            ((1.0 - deviation) * 100.0) as i64
        };
        50 + (50 + evenness(&|name| amount(wanted, name)) - evenness(&|_| 0)) / 2
    }

    /// Returns what a node lacks for a pod that requests `wanted`.
    pub(crate) fn lack(&self, wanted: &Amounts, node: &Value) -> Option<Lack> {
        let allocatable = &node["status"]["allocatable"];
        let of = |name: &str| allocatable[name].as_str().and_then(quantity);
        let mut shortages = Vec::new();
        let limit = of(PODS).unwrap_or_default();
        let used = self.pods.saturating_mul(PARTS);
        if PARTS > limit.saturating_sub(used) {
            shortages.push(Shortage { resource: PODS.to_owned(), wanted: PARTS, used, total: limit });
        }
        for (name, wanted) in wanted {
            let total = of(name).unwrap_or_default();
            let used = self.sum.get(name).copied().unwrap_or_default();
            if *wanted > total.saturating_sub(used) {
                shortages.push(Shortage { resource: name.clone(), wanted: *wanted, used, total });
            }
        }
        if shortages.is_empty() {
            return None;
        }
        let reason = |one: &Shortage| match &*one.resource {
            PODS => "Too many pods".to_owned(),
            name => format!("Insufficient {name}"),
        };
        let mut reasons: Vec<_> = shortages.iter().map(reason).collect();
        reasons.sort();
        // A node without pods always has a place for one.
        let is_final = shortages.iter().any(|one| one.resource != PODS && one.wanted > one.total);
        Some(Lack { reasons, shortages, is_final })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu}}})
    }

    #[track_caller]
    fn check(spec: Value, cpu: &str) {
        assert_eq!(requests(&json!({"spec": spec})), amounts(&json!({"cpu": cpu})), "{spec}");
    }

    #[test]
    fn a_pod_requests_what_its_containers_do() {
        check(json!({"containers": [container("100m"), container("0.4")]}), "500m");
        check(json!({"containers": [container("100m")], "initContainers": [container("1"), container("2")]}), "2");
        let mut sidecar = container("300m");
        sidecar["restartPolicy"] = json!("Always");
        check(json!({"containers": [container("1")], "initContainers": [sidecar]}), "1300m");
        check(json!({"containers": [container("1")], "initContainers": [sidecar, container("2")]}), "2300m");
        check(json!({"containers": [container("1")], "initContainers": [container("2"), sidecar]}), "2");
        check(json!({"containers": [container("1")], "overhead": {"cpu": "10m"}}), "1010m");
        let whole = json!({"requests": {"cpu": "3"}});
        check(json!({"containers": [container("1")], "resources": whole}), "3");
        assert_eq!(requests(&json!({"spec": {"containers": [{}]}})), Amounts::new());
    }

    #[test]
    fn a_node_lacks_what_other_pods_took() {
        let node = json!({"status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"}}});
        let pod = |requests: Value| amounts(&requests);
        let mut requested = Requested::default();
        let half = pod(json!({"cpu": "1500m", "memory": "600Mi"}));
        assert_eq!(requested.lack(&half, &node), None);
        requested.add(&half);
        let lack = requested.lack(&half, &node).expect("too little");
        assert_eq!(lack.reasons, ["Insufficient cpu", "Insufficient memory"]);
        assert!(!lack.is_final);
        assert_eq!(requested.lack(&pod(json!({"cpu": "500m"})), &node), None);
        let huge = requested.lack(&pod(json!({"cpu": "3", "example.com/gpu": "1"})), &node).expect("too little");
        assert_eq!(huge.reasons, ["Insufficient cpu", "Insufficient example.com/gpu"]);
        assert!(huge.is_final);
        requested.add(&pod(json!({})));
        requested.add(&pod(json!({})));
        assert_eq!(requested.lack(&pod(json!({})), &node).expect("full").reasons, ["Too many pods"]);
        requested.subtract(&half);
        assert_eq!(requested.lack(&half, &node), None);
    }
}
