//! Validation of pods and pod templates, by the functions that Kubernetes' own validation consists of.

mod container;
mod container_status;
mod environment;
mod fields;
mod network;
mod overlaps;
mod part;
mod probe;
mod projected;
mod resources;
mod scheduling;
mod security;
mod spec;
mod status;
mod update;
mod volume;
mod volume_source;
mod warnings;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub(super) use self::{
    part::{validate_ephemeral_update, validate_resize},
    security::validate_app_armor_profile,
    spec::validate_create,
    status::validate_status,
    update::validate_update,
};
pub(in crate::registry::builtin) use self::{
    resources::{
        is_native_resource, is_overcommit_allowed, is_standard_resource, validate_container_resource_name,
        validate_limits, validate_quantity, validate_resource_name,
    },
    scheduling::{validate_node_selector, validate_taint_effect, validate_tolerations},
    spec::{validate_pod_template, validate_template_metadata},
    volume_source::{validate_csi_driver_name, validate_host_path, validate_network_source, validate_storage_os},
    warnings::{
        deprecated_label, label_selector_warnings, name_warning, node_selector_warnings, template_warnings, warnings,
    },
};
use crate::registry::builtin::validation::{Path, boolean, items};

/// What the validation of a pod spec depends on beyond the spec.
#[derive(Clone, Copy, Debug)]
pub(in crate::registry::builtin) struct PodContext<'a> {
    /// True if the spec is that of a pod, false if it is that of a template.
    pub(in crate::registry::builtin) is_pod: bool,
    /// The name of the pod; empty in templates.
    pub(in crate::registry::builtin) name: &'a str,
}

impl PodContext<'_> {
    /// The context of a template.
    pub(in crate::registry::builtin) const TEMPLATE: Self = Self { is_pod: false, name: "" };
}

/// What the validation of a container depends on beyond the container.
#[derive(Clone, Copy, Debug)]
struct ContainerContext<'a> {
    /// The valid volumes of the pod by name.
    volumes: &'a BTreeMap<&'a str, &'a Value>,
    /// The names of the pod's resource claims.
    claims: &'a BTreeSet<&'a str>,
    /// The termination grace period of the pod.
    grace_period: Option<i64>,
    /// The restart policy of the pod.
    restart_policy: &'a str,
    /// True if users in containers are those of the node.
    host_users: bool,
    /// The operating system of the pod, if it is given.
    os: Option<&'a str>,
}

/// Calls a function for each container: init containers, containers, ephemeral containers.
fn visit_containers(spec: &Value, path: &Path<'_>, mut visit: impl FnMut(&Value, &Path<'_>)) {
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        let path = path.child(field);
        for (index, container) in items(spec, field).iter().enumerate() {
            visit(container, &path.index(index));
        }
    }
}

/// Returns whether the pod uses the network of its node.
fn has_host_network(spec: &Value) -> bool {
    boolean(spec, "hostNetwork")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::registry::{Strategy, builtin::pod::PodStrategy};

    /// Returns the causes for a pod that differs from a valid one.
    fn causes(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {
                "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
        });
        change(&mut pod);
        let strategy = PodStrategy {
            priorities: Arc::default(),
            runtimes: Arc::default(),
            limits: Arc::default(),
            accounts: Arc::default(),
            topology: Arc::default(),
            references: Arc::default(),
            plugins: Arc::default(),
        };
        strategy.default(&mut pod);
        strategy.prepare_create(&mut pod);
        strategy.validate(None, &pod).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_valid_pod_has_no_causes() {
        assert_eq!(causes(|_| {}), [""; 0]);
    }

    #[test]
    fn causes_stand_in_the_order_of_kubernetes() {
        let causes = causes(|pod| {
            pod["spec"]["containers"][0]["image"] = json!("");
            pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}});
            pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}, "secret": {"secretName": "s"}}]);
            pod["spec"]["restartPolicy"] = json!("Sometimes");
        });
        let expected = [
            "spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type",
            "spec.containers[0].image: Required value",
            "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \
             \"Never\"",
        ];
        assert_eq!(causes, expected);
    }
}
