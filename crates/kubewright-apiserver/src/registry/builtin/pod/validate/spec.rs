//! The spec of a pod as a whole.

use std::collections::BTreeSet;

use kubewright_apimachinery::name;
use serde_json::Value;

use super::{
    ContainerContext, PodContext,
    container::{
        validate_container_only_for_pod, validate_containers, validate_ephemeral_containers, validate_init_containers,
    },
    fields::validate_choice,
    network::{
        validate_host_aliases, validate_host_network_ports, validate_hostname_override, validate_pod_dns_config,
    },
    resources::validate_pod_resources,
    scheduling::{
        validate_affinity, validate_scheduling_gates, validate_tolerations, validate_topology_spread_constraints,
    },
    security::{validate_host_users, validate_pod_security_context, validate_seccomp_and_app_armor_annotations},
    visit_containers,
    volume::validate_volumes,
    windows::{validate_host_process_pod, validate_os},
};
use crate::registry::builtin::validation::{
    Errors, Path, Shown, entry, field, inclusive_range, items, optional_int, optional_string, string,
    validate_annotations, validate_labels, validate_required_name, validate_text,
};

/// Checks a new pod.
pub(in crate::registry::builtin::pod) fn validate_create(pod: &Value, errors: &mut Errors) {
    validate_pod(pod, errors);
    let (spec, path) = (&pod["spec"], Path::new("spec"));
    if !items(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(&path.child("ephemeralContainers"), "cannot be set on create");
    }
    if !string(spec, "nodeName").is_empty() && !items(spec, "schedulingGates").is_empty() {
        errors.forbidden(&path.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
}

/// Checks a pod, new or updated.
pub(super) fn validate_pod(pod: &Value, errors: &mut Errors) {
    let (spec, path) = (&pod["spec"], Path::new("spec"));
    validate_pod_annotations(pod, errors);
    let context = PodContext { is_pod: true, name: string(&pod["metadata"], "name") };
    validate_pod_spec(spec, context, &path, errors);
    if string(spec, "serviceAccountName").is_empty() {
        validate_no_tokens(spec, &path, errors);
    }
    for field in ["containers", "initContainers"] {
        let path = path.child(field);
        for (index, container) in items(spec, field).iter().enumerate() {
            validate_container_only_for_pod(container, &path.index(index), errors);
        }
    }
}

fn validate_no_tokens(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("volumes");
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let path = path.index(index);
        for (source, projection) in items(&volume["projected"], "sources").iter().enumerate() {
            if field(projection, "serviceAccountToken").is_some() {
                let path = path.child("projected");
                let path = path.child("sources");
                let path = path.index(source);
                let why = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&path.child("serviceAccountToken"), why);
            }
        }
    }
}

/// Checks the annotations with a meaning for pods.
pub(super) fn validate_pod_annotations(pod: &Value, errors: &mut Errors) {
    const MIRROR: &str = "kubernetes.io/config.mirror";
    const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    let (metadata, path) = (&pod["metadata"], Path::new("metadata.annotations"));
    if let Some(value) = entry(metadata, "annotations", MIRROR)
        && string(&pod["spec"], "nodeName").is_empty()
    {
        errors.invalid(&path.key(MIRROR), value, "must set spec.nodeName if mirror pod annotation is set");
    }
    if let Some(cost) = entry(metadata, "annotations", DELETION_COST)
        && (cost.starts_with('+') || (cost.starts_with('0') && cost.len() > 1) || cost.parse::<i32>().is_err())
    {
        errors.invalid(&path.key(DELETION_COST), cost, "must be a 32bit integer");
    }
    validate_seccomp_and_app_armor_annotations(pod, &path, errors);
}

/// Checks a pod template.
pub(in crate::registry::builtin) fn validate_pod_template(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_template_metadata(template, path, errors);
    validate_pod_spec(&template["spec"], PodContext::TEMPLATE, &path.child("spec"), errors);
    if !items(&template["spec"], "ephemeralContainers").is_empty() {
        let spec = path.child("spec");
        errors.forbidden(&spec.child("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}

/// Checks the labels and annotations of a pod template.
pub(in crate::registry::builtin) fn validate_template_metadata(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    let metadata = &template["metadata"];
    // As in Kubernetes, these paths leave out `metadata`.
    let annotations = path.child("annotations");
    validate_labels(metadata, "labels", &path.child("labels"), errors);
    validate_annotations(metadata, &annotations, errors);
    validate_seccomp_and_app_armor_annotations(template, &annotations, errors);
}

/// Checks the spec of a pod or template.
pub(in crate::registry::builtin) fn validate_pod_spec(
    spec: &Value,
    context: PodContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let grace_period = optional_int(spec, "terminationGracePeriodSeconds");
    if grace_period.is_none() {
        errors.required(&path.child("terminationGracePeriodSeconds"), "");
    }
    let volumes = validate_volumes(spec, context, &path.child("volumes"), errors);
    let claims: BTreeSet<_> = items(spec, "resourceClaims").iter().map(|claim| string(claim, "name")).collect();
    validate_resource_claims(spec, &path.child("resourceClaims"), errors);
    let containers = ContainerContext {
        volumes: &volumes,
        claims: &claims,
        grace_period,
        restart_policy: string(spec, "restartPolicy"),
        host_users: spec["hostUsers"] != false,
        os: field(spec, "os").map(|os| string(os, "name")),
    };
    validate_containers(spec, &containers, &path.child("containers"), errors);
    validate_init_containers(spec, &containers, &path.child("initContainers"), errors);
    validate_ephemeral_containers(spec, &containers, &path.child("ephemeralContainers"), errors);
    validate_pod_resources(spec, &claims, path, errors);
    validate_host_network_ports(spec, context, path, errors);
    validate_choice(spec, "restartPolicy", &["Always", "OnFailure", "Never"], path, errors);
    validate_choice(spec, "dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], path, errors);
    validate_labels(spec, "nodeSelector", &path.child("nodeSelector"), errors);
    validate_pod_security_context(spec, path, errors);
    validate_affinity(spec, &path.child("affinity"), errors);
    validate_pod_dns_config(spec, &path.child("dnsConfig"), errors);
    validate_readiness_gates(spec, &path.child("readinessGates"), errors);
    validate_scheduling_gates(spec, &path.child("schedulingGates"), errors);
    validate_topology_spread_constraints(spec, &path.child("topologySpreadConstraints"), errors);
    validate_host_process_pod(spec, path, errors);
    validate_host_users(spec, path, errors);
    validate_hostname_override(spec, path, errors);
    validate_names(spec, path, errors);
    validate_tolerations(items(spec, "tolerations"), &path.child("tolerations"), errors);
    validate_host_aliases(spec, &path.child("hostAliases"), errors);
    validate_class_names(spec, path, errors);
    validate_os(spec, path, errors);
    validate_file_key_volumes(spec, path, errors);
}

fn validate_names(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["serviceAccountName", "nodeName"] {
        validate_if_set(spec, name, name::dns1123_subdomain, path, errors);
    }
    if let Some(seconds) = optional_int(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let why = inclusive_range(1, i32::MAX.into());
        errors.invalid(&path.child("activeDeadlineSeconds"), seconds, &why);
    }
    for name in ["hostname", "subdomain"] {
        validate_if_set(spec, name, name::dns1123_label, path, errors);
    }
}

fn validate_if_set(spec: &Value, name: &str, rule: fn(&str) -> Vec<String>, path: &Path<'_>, errors: &mut Errors) {
    let value = string(spec, name);
    if !value.is_empty() {
        validate_text(value, rule, &path.child(name), errors);
    }
}

fn validate_class_names(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_if_set(spec, "priorityClassName", name::dns1123_subdomain, path, errors);
    if let Some(class) = optional_string(spec, "runtimeClassName") {
        validate_text(class, name::dns1123_subdomain, &path.child("runtimeClassName"), errors);
    }
    if field(spec, "preemptionPolicy").is_some() {
        validate_choice(spec, "preemptionPolicy", &["PreemptLowerPriority", "Never"], path, errors);
    }
    if field(spec, "overhead").is_some() {
        super::resources::validate_overhead(spec, &path.child("overhead"), errors);
    }
}

fn validate_readiness_gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (index, gate) in items(spec, "readinessGates").iter().enumerate() {
        let path = path.index(index);
        validate_text(string(gate, "conditionType"), name::label_key, &path.child("conditionType"), errors);
    }
}

fn validate_resource_claims(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (index, claim) in items(spec, "resourceClaims").iter().enumerate() {
        let path = path.index(index);
        let name = string(claim, "name");
        if !name.is_empty() && !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        } else {
            validate_required_name(name, name::dns1123_label, &path.child("name"), errors);
        }
        let references = ["resourceClaimName", "resourceClaimTemplateName"];
        let shown = || {
            let text = |field| Shown::nullable(claim.get(field));
            Shown::object([
                ("Name", name.into()),
                ("ResourceClaimName", text(references[0])),
                ("ResourceClaimTemplateName", text(references[1])),
            ])
        };
        match references.map(|name| field(claim, name).is_some()) {
            [true, true] => {
                let why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errors.invalid(&path, shown(), why);
            }
            [false, false] => {
                let why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                errors.invalid(&path, shown(), why);
            }
            _ => {}
        }
        for name in references {
            if let Some(value) = optional_string(claim, name) {
                validate_text(value, name::dns1123_subdomain, &path.child(name), errors);
            }
        }
    }
}

/// Checks that environment variables read files of volumes that are empty at first.
fn validate_file_key_volumes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    visit_containers(spec, path, |container, path| {
        let path = path.child("env");
        for (index, variable) in items(container, "env").iter().enumerate() {
            let Some(reference) = field(&variable["valueFrom"], "fileKeyRef") else { continue };
            let name = string(reference, "volumeName");
            let volume = items(spec, "volumes").iter().rfind(|volume| string(volume, "name") == name);
            let path = path.index(index);
            let path = path.child("valueFrom");
            let path = path.child("fileKeyRef");
            match volume {
                None => errors.not_found(&path.child("volumeName"), name, ""),
                Some(volume) if field(volume, "emptyDir").is_none() => {
                    errors.invalid(&path.child("volumeName"), name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    });
}
