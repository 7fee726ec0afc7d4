//! The containers of a pod.

use std::collections::BTreeSet;

use kubewright_apimachinery::name;
use serde_json::Value;

use super::{
    ContainerContext,
    environment::{validate_env, validate_env_from},
    fields::{validate_choice, validate_pull_policy},
    probe::{validate_lifecycle, validate_liveness_probe, validate_readiness_probe},
    resources::validate_container_resources,
    security::validate_security_context,
    volume::{validate_volume_devices, validate_volume_mounts},
};
use crate::registry::builtin::validation::{
    Errors, Path, field, int, items, optional_string, string, validate_port_number, validate_required_name,
};

/// Checks the regular containers.
pub(super) fn validate_containers(spec: &Value, context: &ContainerContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let containers = items(spec, "containers");
    if containers.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut names = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        validate_container_common(container, context, &path, errors);
        let name = string(container, "name");
        if !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        validate_lifecycle_and_probes(container, context, &path, errors);
        validate_container_restart_policy(container, &path, errors);
    }
    validate_host_port_conflicts(containers, path, errors);
}

fn validate_lifecycle_and_probes(
    container: &Value,
    context: &ContainerContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(lifecycle) = field(container, "lifecycle") {
        validate_lifecycle(lifecycle, context, &path.child("lifecycle"), errors);
    }
    if let Some(probe) = field(container, "livenessProbe") {
        validate_liveness_probe(probe, &path.child("livenessProbe"), errors);
    }
    if let Some(probe) = field(container, "readinessProbe") {
        validate_readiness_probe(probe, &path.child("readinessProbe"), errors);
    }
    // The rules of startup probes are those of liveness probes.
    if let Some(probe) = field(container, "startupProbe") {
        validate_liveness_probe(probe, &path.child("startupProbe"), errors);
    }
}

/// Checks the init containers.
pub(super) fn validate_init_containers(
    spec: &Value,
    context: &ContainerContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut names: BTreeSet<_> = items(spec, "containers").iter().map(|container| string(container, "name")).collect();
    for (index, container) in items(spec, "initContainers").iter().enumerate() {
        let at = path.index(index);
        validate_container_common(container, context, &at, errors);
        validate_init_container_restart_policy(container, &at, errors);
        let name = string(container, "name");
        if names.contains(name) {
            errors.duplicate(&at.child("name"), name);
        } else if !name.is_empty() {
            names.insert(name);
        }
        // Init containers run one after another, so that their ports don't conflict. Kubernetes reports those of one
        // container with the index 0.
        validate_host_port_conflicts(std::slice::from_ref(container), path, errors);
        let is_sidecar = string(container, "restartPolicy") == "Always";
        if is_sidecar {
            validate_lifecycle_and_probes(container, context, &at, errors);
            continue;
        }
        for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if field(container, name).is_some() {
                let why = "may not be set for init containers without restartPolicy=Always";
                errors.forbidden(&at.child(name), why);
            }
        }
        let policies = at.child("resizePolicy");
        for (index, policy) in items(container, "resizePolicy").iter().enumerate() {
            if string(policy, "restartPolicy") == "RestartContainer" {
                let path = policies.index(index);
                let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                errors.invalid(&path.child("restartPolicy"), "RestartContainer", why);
            }
        }
    }
}

fn validate_init_container_restart_policy(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    if field(container, "restartPolicy").is_some() {
        validate_container_restart_policy(container, path, errors);
    } else if !items(container, "restartPolicyRules").is_empty() {
        errors.required(&path.child("restartPolicy"), "must specify restartPolicy when restart rules are used");
    }
}

fn validate_container_restart_policy(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    const POLICIES: &[&str] = &["Always", "Never", "OnFailure"];
    const ACTIONS: &[&str] = &["Restart", "RestartAllContainers"];
    const OPERATORS: &[&str] = &["In", "NotIn"];
    let rules = items(container, "restartPolicyRules");
    match optional_string(container, "restartPolicy") {
        None if rules.is_empty() => return,
        None => errors.required(&path.child("restartPolicy"), "must specify restartPolicy when restart rules are used"),
        Some(policy) if !POLICIES.contains(&policy) => {
            errors.not_supported(&path.child("restartPolicy"), policy, POLICIES);
        }
        Some(_) => {}
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > 20 {
        errors.too_many(&path, rules.len(), 20);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let action = string(rule, "action");
        if !ACTIONS.contains(&action) {
            errors.not_supported(&path.child("action"), action, ACTIONS);
        }
        let path = path.child("exitCodes");
        let Some(codes) = field(rule, "exitCodes") else {
            errors.required(&path, "must be specified");
            continue;
        };
        let operator = string(codes, "operator");
        if !OPERATORS.contains(&operator) {
            errors.not_supported(&path.child("operator"), operator, OPERATORS);
        }
        let number = items(codes, "values").len();
        if number > 255 {
            errors.too_many(&path.child("values"), number, 255);
        }
    }
}

/// The fields of a container that an ephemeral container must not have, in the order of their declaration.
const NOT_EPHEMERAL: &[&str] = &[
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// Checks the ephemeral containers.
pub(super) fn validate_ephemeral_containers(
    spec: &Value,
    context: &ContainerContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let others: BTreeSet<_> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|field| items(spec, field))
        .map(|container| string(container, "name"))
        .collect();
    let mut names = others.clone();
    for (index, container) in items(spec, "ephemeralContainers").iter().enumerate() {
        let path = path.index(index);
        validate_container_common(container, context, &path, errors);
        validate_container_only_for_pod(container, &path, errors);
        let name = string(container, "name");
        if !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        let target = string(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&path.child("targetContainerName"), target, "");
        }
        let is_set = |name: &str, value: &Value| match value {
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty() || name != "resources",
            _ => true,
        };
        for name in NOT_EPHEMERAL {
            if field(container, name).is_some_and(|value| is_set(name, value)) {
                errors.forbidden(&path.child(name), "cannot be set for an Ephemeral Container");
            }
        }
        let mounts = path.child("volumeMounts");
        for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
            for name in ["subPath", "subPathExpr"] {
                if !string(mount, name).is_empty() {
                    let path = mounts.index(index);
                    errors.forbidden(&path.child(name), "cannot be set for an Ephemeral Container");
                }
            }
        }
    }
}

/// Checks what all containers have in common.
fn validate_container_common(container: &Value, context: &ContainerContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    validate_required_name(string(container, "name"), name::dns1123_label, &path.child("name"), errors);
    if string(container, "image").is_empty() {
        errors.required(&path.child("image"), "");
    }
    validate_choice(container, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], path, errors);
    validate_container_ports(container, &path.child("ports"), errors);
    validate_env(container, &path.child("env"), errors);
    validate_env_from(container, &path.child("envFrom"), errors);
    validate_volume_mounts(container, context, &path.child("volumeMounts"), errors);
    validate_volume_devices(container, context, &path.child("volumeDevices"), errors);
    validate_pull_policy(container, "imagePullPolicy", path, errors);
    validate_container_resources(container, context.claims, &path.child("resources"), errors);
    validate_resize_policy(container, context.restart_policy, &path.child("resizePolicy"), errors);
    if let Some(security) = field(container, "securityContext") {
        validate_security_context(security, context.host_users, &path.child("securityContext"), errors);
    }
}

fn validate_container_ports(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
    let mut names = BTreeSet::new();
    for (index, port) in items(container, "ports").iter().enumerate() {
        let path = path.index(index);
        let name = string(port, "name");
        let wrong = if name.is_empty() { Vec::new() } else { name::port_name(name) };
        errors.invalid_text(&path.child("name"), name, &wrong);
        if !name.is_empty() && wrong.is_empty() && !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        match int(port, "containerPort") {
            0 => errors.required(&path.child("containerPort"), ""),
            number => validate_port_number(number, &path.child("containerPort"), errors),
        }
        let host_port = int(port, "hostPort");
        if host_port != 0 {
            validate_port_number(host_port, &path.child("hostPort"), errors);
        }
        validate_choice(port, "protocol", PROTOCOLS, &path, errors);
    }
}

fn validate_host_port_conflicts(containers: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut used = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("ports");
        for (index, port) in items(container, "ports").iter().enumerate() {
            let number = int(port, "hostPort");
            if number == 0 {
                continue;
            }
            let (protocol, address) = (string(port, "protocol"), string(port, "hostIP"));
            if !used.insert((protocol, address, number)) {
                let path = path.index(index);
                errors.duplicate(&path.child("hostPort"), format!("{protocol}/{address}/{number}"));
            }
        }
    }
}

fn validate_resize_policy(container: &Value, pod_restart_policy: &str, path: &Path<'_>, errors: &mut Errors) {
    const POLICIES: &[&str] = &["NotRequired", "RestartContainer"];
    let mut names = BTreeSet::new();
    for (index, policy) in items(container, "resizePolicy").iter().enumerate() {
        let (name, restart) = (string(policy, "resourceName"), string(policy, "restartPolicy"));
        if !names.insert(name) {
            errors.duplicate(&path.index(index), name);
        }
        match name {
            "cpu" | "memory" => {}
            "" => errors.required(path, ""),
            _ => errors.not_supported(path, name, &["cpu", "memory"]),
        }
        match restart {
            "" => errors.required(path, ""),
            restart if POLICIES.contains(&restart) => {}
            _ => errors.not_supported(path, restart, POLICIES),
        }
        if pod_restart_policy == "Never" && restart != "NotRequired" {
            errors.invalid(path, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

/// Checks the image of a container of a pod. In templates, whitespace around it is accepted.
pub(super) fn validate_container_only_for_pod(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let image = string(container, "image");
    if image.trim() != image {
        errors.invalid(&path.child("image"), image, "must not have leading or trailing whitespace");
    }
}
