//! The kubelet's metrics about itself, `/metrics`. Pure.

use std::{collections::BTreeMap, sync::Arc};

use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::metrics::{add_sample, family, write};
use crate::{
    controllers::value::{list, text},
    node::pods::{ContainerCounts, STATUSES},
};

/// Returns the text of `/metrics` for a node with these pods and these numbers of containers.
///
/// # Errors
/// If a metric has no name, which a test excludes.
pub(super) fn text_of(node: &str, pods: &[Arc<Value>], counts: &ContainerCounts) -> Result<String, Status> {
    let mut name = family("kubelet_node_name", "[ALPHA] The node's name. The count is always 1.");
    add_sample(&mut name, &[("node", node)], 1.0, 0);
    let mut containers = family("kubelet_running_containers", "[ALPHA] Number of containers currently running");
    let mut states = BTreeMap::<&str, u32>::new();
    for status in pods.iter().flat_map(|pod| STATUSES.iter().flat_map(|(at, _)| list(pod, at))) {
        *states.entry(state(status)).or_default() += 1;
    }
    for (state, count) in states {
        add_sample(&mut containers, &[("container_state", state)], count.into(), 0);
    }
    let mut running = family("kubelet_running_pods", "[ALPHA] Number of pods that have a running pod sandbox");
    let count = pods.iter().filter(|pod| text(pod, "/status/phase") == "Running").count();
    add_sample(&mut running, &[], u32::try_from(count).unwrap_or(u32::MAX).into(), 0);
    let mut started = family("kubelet_started_containers_total", "[ALPHA] Cumulative number of containers started");
    for (kind, count) in &counts.started {
        add_sample(&mut started, &[("container_type", kind)], (*count).into(), 0);
    }
    let mut ended =
        family("kubelet_terminated_containers_total", "[ALPHA] Cumulative number of container terminations.");
    for ((kind, code, reason), count) in &counts.terminated {
        let labels = [("container_type", *kind), ("exit_code", &*code.to_string()), ("reason", reason)];
        add_sample(&mut ended, &labels, (*count).into(), 0);
    }
    write(vec![name, containers, running, started, ended])
}

/// Returns the state of a container as the kubelet's metric names it.
fn state(status: &Value) -> &'static str {
    if status["state"]["running"].is_object() {
        "running"
    } else if status["state"]["terminated"].is_object() {
        "exited"
    } else {
        "created"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_and_containers_are_counted() {
        let status = |state: &str| json!({"state": {state: {}}});
        let web = json!({"status": {"phase": "Running", "containerStatuses": [status("running"), status("running")],
            "initContainerStatuses": [status("terminated")]}});
        let new = json!({"status": {"phase": "Pending", "containerStatuses": [status("waiting")]}});
        let counts = ContainerCounts {
            started: BTreeMap::from([("container", 5)]),
            terminated: BTreeMap::from([(("init_container", 139, "Error".to_owned()), 2)]),
        };
        let text = text_of("n", &[Arc::new(web), Arc::new(new)], &counts).expect("text");
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let containers =
            |state: &str, count| format!("kubelet_running_containers{{container_state={state:?}}} {count}");
        let expect = [
            r#"kubelet_node_name{node="n"} 1"#.to_owned(),
            containers("created", 1),
            containers("exited", 1),
            containers("running", 2),
            "kubelet_running_pods 1".to_owned(),
            r#"kubelet_started_containers_total{container_type="container"} 5"#.to_owned(),
            r#"kubelet_terminated_containers_total{container_type="init_container",exit_code="139",reason="Error"} 2"#
                .to_owned(),
        ];
        assert_eq!(samples, expect);
        assert!(!text_of("n", &[], &counts).expect("text").contains("kubelet_running_containers"));
    }
}
