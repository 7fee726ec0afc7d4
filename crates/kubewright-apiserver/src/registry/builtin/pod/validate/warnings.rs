//! Warnings about pods and pod templates that are valid but hardly intended.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_apimachinery::name;
use serde_json::Value;

use super::{overlaps, visit_containers};
use crate::registry::builtin::{
    pod::{annotations, app_armor},
    validation::{
        Path, Quantity, entries, entry, field, int, ip_warning, items, optional_int, optional_string, string, strings,
    },
};

/// The maximum number of warnings. Further ones would not reach the client anyway.
pub(super) const LIMIT: usize = 100;

/// Returns the warnings about a new pod.
pub(in crate::registry::builtin) fn warnings(pod: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    of_name(pod, "the Pod's hostname", &mut warnings);
    of_template(pod, &Path::new(""), &mut warnings);
    warnings.truncate(LIMIT);
    warnings
}

/// Returns the warning about the name of a new object, from which those of its pods are derived.
pub(in crate::registry::builtin) fn name_warning(old: Option<&Value>, new: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() {
        of_name(new, "Pod names and hostnames", &mut warnings);
    }
    warnings
}

fn of_name(object: &Value, used_in: &str, warnings: &mut Vec<String>) {
    let wrong = name::dns1123_label(string(&object["metadata"], "name"));
    if !wrong.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is \
             recommended: [{}]",
            wrong.join(" ")
        ));
    }
}

/// Returns the warnings about a pod template.
pub(in crate::registry::builtin) fn template_warnings(template: &Value, path: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    of_template(template, path, &mut warnings);
    warnings.truncate(LIMIT);
    warnings
}

/// Returns what to use instead of a label of nodes that is deprecated.
pub(in crate::registry::builtin) fn deprecated_label(key: &str) -> Option<&'static str> {
    match key {
        "beta.kubernetes.io/arch" => Some("deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
        "beta.kubernetes.io/os" => Some("deprecated since v1.14; use \"kubernetes.io/os\" instead"),
        "failure-domain.beta.kubernetes.io/region" => {
            Some("deprecated since v1.17; use \"topology.kubernetes.io/region\" instead")
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            Some("deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead")
        }
        "beta.kubernetes.io/instance-type" => {
            Some("deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead")
        }
        "app.kubernetes.io/created-by" => Some("deprecated since v1.9"),
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => {
            Some("deprecated since v1.22; use Taints and Tolerations instead")
        }
        "node-role.kubernetes.io/master" => Some("use \"node-role.kubernetes.io/control-plane\" instead"),
        _ => None,
    }
}

fn of_template(template: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let (metadata, spec) = (&template["metadata"], &template["spec"]);
    let is_pod = path.to_string().is_empty();
    let (meta_path, path) = (path.child("metadata"), path.child("spec"));
    let selector = path.child("nodeSelector");
    for (key, _) in entries(spec, "nodeSelector") {
        warnings.extend(deprecated_label(key).map(|why| format!("{}: {why}", selector.key(key))));
    }
    of_node_affinity(&spec["affinity"]["nodeAffinity"], &path, warnings);
    let constraints = path.child("topologySpreadConstraints");
    for (index, constraint) in items(spec, "topologySpreadConstraints").iter().enumerate() {
        let path = constraints.index(index);
        let key = string(constraint, "topologyKey");
        if let Some(why) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {why}", path.child("topologyKey")));
        }
        null_selector(constraint, &path, warnings);
    }
    of_annotations(metadata, &meta_path.child("annotations"), warnings);
    of_volumes(spec, &path.child("volumes"), warnings);
    of_repeated_values(spec, &path, warnings);
    let overhead = path.child("overhead");
    for name in ["memory", "ephemeral-storage"] {
        fractional(&spec["overhead"], name, &overhead, warnings);
    }
    // Those of a pod are copied to its fields, with warnings of their own.
    let app_armor = if is_pod { Vec::new() } else { app_armor::annotated(template) };
    of_containers(template, &app_armor, &path, &meta_path.child("annotations"), warnings);
    of_ports(spec, &path, warnings);
    if optional_int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        let why = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.push(format!("{}: {why}", path.child("terminationGracePeriodSeconds")));
    }
    of_pod_affinity(spec, &path.child("affinity"), warnings);
    let config = path.child("dnsConfig");
    let servers = config.child("nameservers");
    for (index, server) in strings(&spec["dnsConfig"], "nameservers").enumerate() {
        warnings.extend(ip_warning(server, &servers.index(index)));
    }
    let aliases = path.child("hostAliases");
    for (index, alias) in items(spec, "hostAliases").iter().enumerate() {
        let path = aliases.index(index);
        warnings.extend(ip_warning(string(alias, "ip"), &path.child("ip")));
    }
}

fn of_node_affinity(affinity: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let path = path.child("affinity");
    let path = path.child("nodeAffinity");
    node_selector_warnings(&affinity[REQUIRED], &path.child(REQUIRED), warnings);
    let preferred = path.child(PREFERRED);
    for (index, term) in items(affinity, PREFERRED).iter().enumerate() {
        let path = preferred.index(index);
        of_requirements(&term["preference"], true, &path.child("preference"), warnings);
    }
}

/// Adds the warnings about a node selector.
pub(in crate::registry::builtin) fn node_selector_warnings(
    selector: &Value,
    path: &Path<'_>,
    warnings: &mut Vec<String>,
) {
    let path = path.child("nodeSelectorTerms");
    for (index, term) in items(selector, "nodeSelectorTerms").iter().enumerate() {
        of_requirements(term, false, &path.index(index), warnings);
    }
}

fn of_requirements(term: &Value, is_preference: bool, path: &Path<'_>, warnings: &mut Vec<String>) {
    let path = path.child("matchExpressions");
    for (index, requirement) in items(term, "matchExpressions").iter().enumerate() {
        let path = path.index(index);
        let key = string(requirement, "key");
        if let Some(why) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {why}", path.child("key")));
        }
        let values = path.child("values");
        for (index, value) in strings(requirement, "values").enumerate().filter(|_| is_preference) {
            for why in name::label_value(value) {
                warnings.push(format!("{}: {value} is invalid, {why}", values.index(index)));
            }
        }
    }
}

/// Returns the warnings about a label selector of nodes.
pub(in crate::registry::builtin) fn label_selector_warnings(selector: &Value, path: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    of_requirements(selector, false, path, &mut warnings);
    let path = path.child("matchLabels");
    for (label, _) in entries(selector, "matchLabels") {
        warnings.extend(deprecated_label(label).map(|why| format!("{}: {why}", path.child(label))));
    }
    warnings
}

fn null_selector(object: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    if field(object, "labelSelector").is_none() {
        let path = path.child("labelSelector");
        warnings.push(format!("{path}: a null labelSelector results in matching no pod"));
    }
}

fn of_pod_affinity(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (affinity, path) = (&spec["affinity"][kind], path.child(kind));
        let required = path.child("requiredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in items(affinity, "requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            null_selector(term, &required.index(index), warnings);
        }
        let preferred = path.child("preferredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in items(affinity, "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            let path = preferred.index(index);
            null_selector(&term["podAffinityTerm"], &path.child("podAffinityTerm"), warnings);
        }
    }
}

fn of_annotations(metadata: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    for (key, instead, version) in [
        ("scheduler.alpha.kubernetes.io/critical-pod", "priorityClassName", "1.16"),
        ("security.alpha.kubernetes.io/sysctls", "sysctls", "1.11"),
        ("security.alpha.kubernetes.io/unsafe-sysctls", "sysctls", "1.11"),
    ] {
        if entry(metadata, "annotations", key).is_some() {
            let path = path.key(key);
            warnings.push(format!("{path}: non-functional in v{version}+; use the \"{instead}\" field instead"));
        }
    }
}

/// Warns of the annotation for the seccomp profile of a pod or container without the field.
fn of_seccomp(metadata: &Value, of: &Value, key: &str, path: &Path<'_>, warnings: &mut Vec<String>) {
    if of["securityContext"]["seccompProfile"].is_null() && entry(metadata, "annotations", key).is_some() {
        let path = path.key(key);
        warnings.push(format!("{path}: non-functional in v1.27+; use the \"seccompProfile\" field instead"));
    }
}

fn of_volumes(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    const DEPRECATED: &[(&str, &str, &str)] = &[
        ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
        ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
        ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ];
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let path = path.index(index);
        for (kind, shown, why) in DEPRECATED {
            if field(volume, kind).is_some() {
                warnings.push(format!("{}: {why}", path.child(shown)));
            }
        }
    }
    warnings.extend(overlaps::warnings(items(spec, "volumes")));
}

/// Warns of elements of lists that patches confuse with each other.
fn of_repeated_values(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    for (list, key, what) in [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")] {
        let path = path.child(list);
        let mut seen = BTreeSet::new();
        for (index, item) in items(spec, list).iter().enumerate() {
            let value = string(item, key);
            if !seen.insert(value) {
                let path = path.index(index);
                warnings.push(format!("{}: duplicate {what} {value:?}", path.child(key)));
            }
        }
    }
    let path = path.child("imagePullSecrets");
    for (index, secret) in items(spec, "imagePullSecrets").iter().enumerate() {
        if string(secret, "name").is_empty() {
            let path = path.index(index);
            warnings.push(format!("{}: invalid empty name \"\"", path.child("name")));
        }
    }
}

/// Warns of an amount of bytes that is no whole number.
fn fractional(amounts: &Value, name: &str, path: &Path<'_>, warnings: &mut Vec<String>) {
    let Some(amount) = field(amounts, name) else { return };
    if !Quantity::read(amount).is_whole() {
        let shown = amount.as_str().map_or_else(|| amount.to_string(), String::from);
        let path = path.key(name);
        warnings.push(format!("{path}: fractional byte value {shown:?} is invalid, must be an integer"));
    }
}

/// `app_armor` has the annotations of containers whose profiles aren't those of the pod.
fn of_containers(template: &Value, app_armor: &[String], path: &Path<'_>, at: &Path<'_>, warnings: &mut Vec<String>) {
    let (metadata, spec) = (&template["metadata"], &template["spec"]);
    of_seccomp(metadata, spec, annotations::SECCOMP, at, warnings);
    visit_containers(spec, path, |container, path| {
        let name = string(container, "name");
        of_seccomp(metadata, container, &[annotations::CONTAINER_SECCOMP, name].concat(), at, warnings);
        let deprecated = app_armor.iter().filter(|key| key.strip_prefix(annotations::APP_ARMOR) == Some(name));
        let why = app_armor::DEPRECATION;
        warnings.extend(deprecated.map(|key| format!("{}: {why}", at.key(key))));
        let resources = path.child("resources");
        for name in ["memory", "ephemeral-storage"] {
            for side in ["limits", "requests"] {
                fractional(&container["resources"][side], name, &resources.child(side), warnings);
            }
        }
        of_variables(container, &path.child("env"), warnings);
        of_host_addresses(container, &path.child("ports"), warnings);
    });
}

/// Warns of environment variables that are defined twice.
fn of_variables(container: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let mut names = BTreeSet::new();
    for (index, variable) in items(container, "env").iter().enumerate() {
        let name = string(variable, "name");
        if names.insert(name) {
            continue;
        }
        let (value, reference) = (string(variable, "value"), format!("$({name})"));
        let hides = field(variable, "valueFrom").is_some() || !value.contains(&reference) || value == reference;
        if hides {
            let path = path.index(index);
            let why = "which may be dropped when using apply";
            warnings.push(format!("{path}: hides previous definition of {name:?}, {why}"));
        }
    }
}

/// Warns of addresses of the host for ports that aren't on the host.
fn of_host_addresses(container: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    for (index, port) in items(container, "ports").iter().enumerate() {
        let address = string(port, "hostIP");
        if address.is_empty() || int(port, "hostPort") != 0 {
            continue;
        }
        let (name, number, protocol) = (string(port, "name"), int(port, "containerPort"), string(port, "protocol"));
        warnings.push(format!(
            "{}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} \
             HostIP:{address}}}",
            path.index(index)
        ));
    }
}

/// Warns of ports that are defined twice.
fn of_ports(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    /// The path, host address and host port of a definition.
    type Definition = (String, String, i64);
    let mut count = 0;
    visit_containers(spec, path, |container, _| count += items(container, "ports").len());
    if count < 2 {
        return;
    }
    let mut ports: BTreeMap<(i64, String), Vec<Definition>> = BTreeMap::new();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut about_names = Vec::new();
    visit_containers(spec, path, |container, path| {
        let path = path.child("ports");
        for (index, port) in items(container, "ports").iter().enumerate() {
            let at = path.index(index).to_string();
            let (address, host_port) = (string(port, "hostIP").to_owned(), int(port, "hostPort"));
            let others = ports.entry((int(port, "containerPort"), string(port, "protocol").into())).or_default();
            // The first definitions suffice to explain the conflict.
            for (other, other_address, other_port) in others.iter().take(LIMIT) {
                if (&address, host_port) == (other_address, *other_port) {
                    warnings.push(format!("{at}: duplicate port definition with {other}"));
                } else if host_port == 0 || *other_port == 0 {
                    warnings.push(format!("{at}: overlapping port definition with {other}"));
                } else if host_port == *other_port && address.is_empty() != other_address.is_empty() {
                    warnings.push(format!("{at}: dangerously ambiguous port definition with {other}"));
                }
            }
            others.push((at.clone(), address, host_port));
            let Some(name) = optional_string(port, "name").filter(|name| !name.is_empty()) else { continue };
            match names.get(name) {
                Some(other) => about_names.push(format!(
                    "{at}: duplicate port name {name:?} with {other}, services and probes that select ports by name will \
                     use {other}"
                )),
                None => {
                    names.insert(name.into(), at);
                }
            }
            warnings.truncate(LIMIT);
        }
    });
    warnings.extend(about_names);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn warns_of_host_addresses_without_ports_of_the_host() {
        let with = json!({"containerPort": 81, "protocol": "TCP", "hostIP": "10.0.0.1", "hostPort": 81});
        let without = json!({"name": "x", "containerPort": 80, "protocol": "UDP", "hostIP": "10.0.0.1"});
        let env = json!([{"name": "a", "value": "1"}, {"name": "a", "value": "1"}]);
        let template = json!({"spec": {"containers": [{"name": "a", "ports": [with, without], "env": env}]}});
        let expected = [
            "spec.template.spec.containers[0].env[1]: hides previous definition of \"a\", which may be dropped when \
             using apply",
            "spec.template.spec.containers[0].ports[1]: hostIP set without hostPort: {Name:x HostPort:0 \
             ContainerPort:80 Protocol:UDP HostIP:10.0.0.1}",
        ];
        assert_eq!(template_warnings(&template, &Path::new("spec.template")), expected);
    }
}
