//! Whether the node takes a pod that is bound to it. The scheduler has checked that already, but not for pods that name
//! their node themselves. The rules and messages are those of the kubelet's admission
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename>). Pure.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::sysctl;
use crate::{
    controllers::{
        pod::has_ended,
        scheduler::{
            filter,
            fit::{self, Amounts, Requested, Shortage},
            ports::{self, HostPort, UsedPorts},
        },
        value::{list, stamp, text},
    },
    quantity::PARTS,
};

/// The resources that every node has, in the order in which the kubelet checks them. Others are checked by name after
/// these.
const NATIVE: [&str; 4] = ["pods", "cpu", "memory", "ephemeral-storage"];

/// Why a pod is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Rejection {
    fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into() }
    }

    fn predicate(name: &str, why: &str) -> Self {
        Self::new(name, format!("Predicate {name} failed: {why}"))
    }

    /// Returns the patch of the status of a rejected pod.
    pub(crate) fn patch(&self, pod: &Value, now: Timestamp) -> Value {
        let status = json!({
            "phase": "Failed", "reason": self.reason, "message": format!("Pod was rejected: {}", self.message),
            "startTime": stamp(now), "observedGeneration": pod["metadata"]["generation"],
        });
        json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": status})
    }
}

/// What a pod takes.
#[derive(Debug, PartialEq)]
struct Taken {
    requests: Amounts,
    ports: Vec<HostPort>,
}

/// The pods that the node has admitted, and what they take.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    node: Option<Arc<Value>>,
    /// By UID. Most take nothing but their place.
    pods: BTreeMap<String, Option<Box<Taken>>>,
    requested: Requested,
    ports: UsedPorts,
}

impl Admission {
    /// Takes the node's object.
    pub(crate) fn take_node(&mut self, node: &Arc<Value>) {
        self.node = Some(node.clone());
    }

    /// Forgets all pods.
    pub(crate) fn clear(&mut self) {
        *self = Self { node: self.node.take(), ..Self::default() };
    }

    /// Returns whether a pod has been admitted.
    pub(crate) fn has(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// Admits a pod.
    ///
    /// # Errors
    /// Returns why the node doesn't take it.
    pub(crate) fn admit(&mut self, uid: &str, pod: &Value) -> Result<(), Rejection> {
        if let Some(rejection) = self.rejection(pod) {
            return Err(rejection);
        }
        self.keep(uid, pod);
        Ok(())
    }

    /// Records what an admitted pod takes, unchecked. One that has ended takes nothing.
    pub(crate) fn keep(&mut self, uid: &str, pod: &Value) {
        self.release(uid);
        if has_ended(pod) {
            return;
        }
        let taken = Taken { requests: fit::requests(pod), ports: ports::host_ports(pod) };
        self.requested.add(&taken.requests);
        self.ports.add(&taken.ports);
        let takes_something = !taken.requests.is_empty() || !taken.ports.is_empty();
        self.pods.insert(uid.to_owned(), takes_something.then(|| Box::new(taken)));
    }

    /// Gives back what a pod took.
    pub(crate) fn release(&mut self, uid: &str) {
        let Some(taken) = self.pods.remove(uid) else { return };
        let none = Amounts::new();
        self.requested.subtract(taken.as_ref().map_or(&none, |taken| &taken.requests));
        self.ports.subtract(taken.as_ref().map(|taken| &*taken.ports).unwrap_or_default());
    }

    fn rejection(&self, pod: &Value) -> Option<Rejection> {
        let node = self.node.as_ref()?;
        if let Some(why) = sysctl::forbidden(pod) {
            return Some(Rejection::new("SysctlForbidden", why));
        }
        if text(pod, "/spec/os/name") == "windows" {
            let why = "Failed to admit pod as the OS field doesn't match node OS";
            return Some(Rejection::new("PodOSNotSupported", why));
        }
        let mut requests = fit::requests(pod);
        // Resources that the node doesn't know may be those of the cluster.
        let allocatable = &node["status"]["allocatable"];
        requests.retain(|name, _| !name.contains('/') || !allocatable[name].is_null());
        if let Some(lack) = self.requested.lack(&requests, node) {
            let rank = |shortage: &&Shortage| {
                NATIVE.iter().position(|name| *name == shortage.resource).unwrap_or(NATIVE.len())
            };
            return lack.shortages.iter().min_by_key(rank).map(insufficient);
        }
        if !filter::is_selected(pod, node) {
            return Some(Rejection::predicate("NodeAffinity", filter::NOT_SELECTED));
        }
        if self.ports.conflict_with(&ports::host_ports(pod)) {
            return Some(Rejection::predicate("NodePorts", ports::CONFLICT));
        }
        let mut evicting = list(node, "/spec/taints").iter().filter(|taint| taint["effect"] == "NoExecute");
        let is_repelled = evicting.any(|taint| !filter::is_tolerated(pod, taint));
        let why = "node(s) had taints that the pod didn't tolerate";
        is_repelled.then(|| Rejection::predicate("TaintToleration", why))
    }
}

/// Returns the rejection for a resource that is short. CPU is counted in thousandths.
fn insufficient(shortage: &Shortage) -> Rejection {
    let Shortage { resource, wanted, used, total } = shortage;
    let unit = if resource == "cpu" { PARTS / 1000 } else { PARTS };
    let count = |amount: &i128| (amount + unit - 1).div_euclid(unit);
    let (wanted, used, total) = (count(wanted), count(used), count(total));
    let message =
        format!("Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: {total}");
    Rejection::new(&format!("OutOf{resource}"), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(node: Value) -> Admission {
        let mut admission = Admission::default();
        admission.take_node(&node.into());
        admission
    }

    fn pod(requests: Value, more: Value) -> Value {
        let ports = json!([{"containerPort": 80, "hostPort": 8080}]);
        let ports = if more["port"] == true { ports } else { json!([]) };
        let containers = json!([{"name": "main", "resources": {"requests": requests}, "ports": ports}]);
        let mut pod = json!({"metadata": {"uid": "u", "generation": 1}, "spec": {"containers": containers}});
        pod["spec"].as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        pod
    }

    #[track_caller]
    fn check(admission: &mut Admission, pod: &Value, expect: Option<(&str, &str)>) {
        let found = admission.admit("new", pod).err();
        let found = found.as_ref().map(|rejection| (&*rejection.reason, &*rejection.message));
        assert_eq!(found, expect, "{pod}");
        admission.release("new");
    }

    #[test]
    fn a_node_takes_what_it_has_room_for() {
        let allocatable = json!({"cpu": "2", "memory": "1Gi", "pods": "3", "example.com/gpu": "1"});
        let mut node = admission(json!({"status": {"allocatable": allocatable}}));
        node.admit("one", &pod(json!({"cpu": "1500m", "memory": "1Mi"}), json!({}))).expect("room");
        check(&mut node, &pod(json!({"cpu": "500m"}), json!({})), None);
        let cpu = "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000";
        check(&mut node, &pod(json!({"cpu": "501m", "memory": "2Gi"}), json!({})), Some(("OutOfcpu", cpu)));
        let memory =
            "Node didn't have enough resource: memory, requested: 1073741824, used: 1048576, capacity: 1073741824";
        check(&mut node, &pod(json!({"memory": "1Gi"}), json!({})), Some(("OutOfmemory", memory)));
        let gpu = "Node didn't have enough resource: example.com/gpu, requested: 2, used: 0, capacity: 1";
        check(&mut node, &pod(json!({"example.com/gpu": "2"}), json!({})), Some(("OutOfexample.com/gpu", gpu)));
        check(&mut node, &pod(json!({"example.com/other": "2"}), json!({})), None);
        node.admit("two", &pod(json!({}), json!({}))).expect("room");
        node.admit("three", &pod(json!({}), json!({}))).expect("room");
        let pods = "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3";
        check(&mut node, &pod(json!({"cpu": "9"}), json!({})), Some(("OutOfpods", pods)));
        let mut ended = pod(json!({"cpu": "1500m"}), json!({}));
        ended["status"] = json!({"phase": "Succeeded"});
        node.keep("one", &ended);
        check(&mut node, &pod(json!({"cpu": "2"}), json!({})), None);
    }

    #[test]
    fn labels_ports_and_taints() {
        let taints = json!([{"key": "soft", "effect": "NoSchedule"}, {"key": "hard", "effect": "NoExecute"}]);
        let tolerations = || json!([{"key": "hard", "operator": "Exists"}]);
        let (labels, status) = (json!({"disk": "ssd"}), json!({"allocatable": {"pods": "3"}}));
        let mut node = admission(json!({"metadata": {"labels": labels}, "spec": {"taints": taints}, "status": status}));
        let tolerating = |mut more: Value| {
            more["tolerations"] = tolerations();
            pod(json!({}), more)
        };
        check(&mut node, &tolerating(json!({"nodeSelector": {"disk": "ssd"}})), None);
        let affinity = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        let selector = json!({"nodeSelector": {"disk": "hdd"}});
        check(&mut node, &tolerating(selector), Some(("NodeAffinity", affinity)));
        node.admit("one", &tolerating(json!({"port": true}))).expect("free");
        let ports = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        check(&mut node, &tolerating(json!({"port": true})), Some(("NodePorts", ports)));
        let taint = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
        check(&mut node, &pod(json!({}), json!({})), Some(("TaintToleration", taint)));
        let os = "Failed to admit pod as the OS field doesn't match node OS";
        check(&mut node, &tolerating(json!({"os": {"name": "windows"}})), Some(("PodOSNotSupported", os)));
        node.release("one");
        check(&mut node, &tolerating(json!({"port": true})), None);
    }

    #[test]
    fn nothing_is_rejected_before_the_node_is_known() {
        assert_eq!(Admission::default().admit("new", &pod(json!({"cpu": "9"}), json!({}))), Ok(()));
    }
}
