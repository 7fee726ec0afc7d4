//! Changes of the resources of a pod's containers
//! (<https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/>).
//!
//! No resource but memory limits processes (`control_group`), so a change takes effect at once, unless the container's
//! policy is to be restarted.

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use serde_json::{Value, json};

use super::{
    container::{Moment, Role},
    machine::Machine,
};

impl Machine {
    /// Accepts new resources, and restarts the running containers whose policy requires it.
    pub(super) fn observe_resources(&mut self, now: Moment) {
        let resized: Vec<_> = (0..self.containers.len()).filter(|index| self.is_resized(*index)).collect();
        if self.stop.is_some() || resized.is_empty() {
            return;
        }
        let message = self.resize_message("Pod resize started");
        self.event(false, "ResizeStarted", message);
        for index in resized {
            let Some(container) = self.spec(index).map(|container| container.into_owned()) else { continue };
            let record = &self.containers[index];
            if record.is_running() && needs_restart(&container, &record.resources) {
                self.replace(index, format!("Container {} resize requires restart", container.name), now);
            } else {
                self.containers[index].resources = container.resources.unwrap_or_default();
            }
        }
        self.report_resize();
    }

    /// Takes over the resources of the spec, for the next run of a container.
    pub(super) fn adopt_resources(&mut self, index: usize) {
        if !self.is_resized(index) {
            return;
        }
        let container = self.spec(index).map(|container| container.into_owned());
        self.containers[index].resources = container.and_then(|container| container.resources).unwrap_or_default();
        self.report_resize();
    }

    /// Returns whether a container still runs with other resources than those of the spec.
    pub(super) fn is_resizing(&self) -> bool {
        (0..self.containers.len()).any(|index| self.is_resized(index))
    }

    fn is_resized(&self, index: usize) -> bool {
        let resources = self.spec(index).map(|container| container.resources.clone().unwrap_or_default());
        resources.is_some_and(|resources| resources != self.containers[index].resources)
    }

    /// Records an event if no container has other resources than those of the spec any more.
    fn report_resize(&mut self) {
        if !self.is_resizing() {
            let message = self.resize_message("Pod resize completed");
            self.event(false, "ResizeCompleted", message);
        }
    }

    /// Returns a message with the resources of the spec, as the kubelet writes it.
    fn resize_message(&self, what: &str) -> String {
        let of = |roles: &[Role]| -> Vec<Value> {
            let indexes = (0..self.containers.len()).filter(|index| roles.contains(&self.containers[*index].role));
            let containers = indexes.filter_map(|index| self.spec(index));
            containers
                .map(|container| json!({"name": container.name, "resources": container.resources.clone().unwrap_or_default()}))
                .collect()
        };
        let mut parts = Vec::new();
        for (name, list) in [("initContainers", of(&[Role::Init, Role::Sidecar])), ("containers", of(&[Role::Main]))] {
            if !list.is_empty() {
                parts.push(format!("{name:?}:{}", Value::from(list)));
            }
        }
        parts.push(format!("\"generation\":{}", self.pod.metadata.generation.unwrap_or_default()));
        format!("{what}: {{{}}}", parts.join(","))
    }
}

/// Returns whether the policy of a running container with other resources is to be restarted.
fn needs_restart(container: &Container, present: &ResourceRequirements) -> bool {
    let wanted = container.resources.clone().unwrap_or_default();
    container.resize_policy.iter().flatten().filter(|policy| policy.restart_policy == "RestartContainer").any(
        |policy| {
            let amounts = |resources: &ResourceRequirements| {
                [&resources.requests, &resources.limits].map(|side| side.as_ref()?.get(&policy.resource_name).cloned())
            };
            amounts(&wanted) != amounts(present)
        },
    )
}
