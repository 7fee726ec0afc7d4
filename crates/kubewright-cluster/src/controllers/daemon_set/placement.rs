//! The nodes of a daemon set's pods.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{DAEMON_SET, HASH};
use crate::controllers::{
    pod::from_template,
    scheduler::filter::{UNSCHEDULABLE, is_selected, is_tolerated},
    value::{flag, list, text},
};

/// The field of a node that the affinity of a daemon pod selects.
const NAME: &str = "metadata.name";

/// Whether a node should have a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    /// Whether a pod is created on the node.
    pub(super) starts: bool,
    /// Whether a pod that is there stays.
    pub(super) continues: bool,
}

/// Returns whether a node should have a pod of a set.
pub(super) fn fit(set: &Value, node: &Value) -> Fit {
    let mut pod = json!({"spec": set["spec"]["template"]["spec"]});
    tolerate(&mut pod["spec"]);
    let wanted = text(&pod, "/spec/nodeName");
    let is_there = (wanted.is_empty() || node["metadata"]["name"] == wanted) && is_selected(&pod, node);
    let taints = list(node, "/spec/taints").iter().filter(|taint| !is_tolerated(&pod, taint));
    let has = |effect: &str| taints.clone().any(|taint| text(taint, "/effect") == effect);
    let (evicted, repelled) = (has("NoExecute"), has("NoSchedule"));
    Fit { starts: is_there && !evicted && !repelled, continues: is_there && !evicted }
}

/// Adds the tolerations of daemon pods, which stay on a node with problems.
fn tolerate(spec: &mut Value) {
    let mut wanted = vec![
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        (UNSCHEDULABLE, "NoSchedule"),
    ];
    if flag(spec, "/hostNetwork") {
        wanted.push(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    }
    let mut all = list(spec, "/tolerations").to_vec();
    for (key, effect) in wanted {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    spec["tolerations"] = all.into();
}

/// Returns a new pod for a node. Its affinity names the node, so that the scheduler binds it there.
pub(super) fn new_pod(set: &Value, hash: &str, node: &Value) -> Value {
    let mut pod = from_template(&set["spec"]["template"], set, &DAEMON_SET.api_version(), DAEMON_SET.kind);
    let generation = &set["metadata"]["annotations"]["deprecated.daemonset.template.generation"];
    if let Some(generation) = generation.as_str() {
        pod["metadata"]["labels"]["pod-template-generation"] = generation.into();
    }
    pod["metadata"]["labels"][HASH] = hash.into();
    tolerate(&mut pod["spec"]);
    let field = json!({"key": NAME, "operator": "In", "values": [node["metadata"]["name"]]});
    // The terms of the template hold for the node already.
    let required = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = required;
    pod
}

/// Groups pods by their nodes, oldest first. An unbound pod belongs to the node that its affinity names.
pub(super) fn by_node(mut pods: Vec<&Value>) -> BTreeMap<String, Vec<&Value>> {
    pods.sort_by_key(|pod| (text(pod, "/metadata/creationTimestamp"), text(pod, "/metadata/name")));
    let mut nodes: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for pod in pods {
        if let Some(node) = node_of(pod) {
            nodes.entry(node.into()).or_default().push(pod);
        }
    }
    nodes
}

fn node_of(pod: &Value) -> Option<&str> {
    let bound = text(pod, "/spec/nodeName");
    if !bound.is_empty() {
        return Some(bound);
    }
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let fields = list(pod, required).iter().flat_map(|term| list(term, "/matchFields"));
    fields.into_iter().find(|field| field["key"] == NAME)?["values"][0].as_str()
}
