//! The environment variables of a container.

use kubewright_apimachinery::name;
use serde_json::Value;

use crate::registry::builtin::validation::{
    Errors, Path, Quantity, environment_variable, field, items, string, validate_path_no_backsteps,
    validate_required_name, validate_text,
};

/// The fields of a pod that a variable can have as its value.
const VARIABLE_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The resources of a container that a variable or file can have as its value.
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// The fields of a pod with a name in the downward API, including those that only other places accept.
const LABELS_OF_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Checks the variables of a container.
pub(super) fn validate_env(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (index, variable) in items(container, "env").iter().enumerate() {
        let path = path.index(index);
        validate_required_name(string(variable, "name"), environment_variable, &path.child("name"), errors);
        if let Some(source) = field(variable, "valueFrom") {
            validate_value_from(source, string(variable, "value"), &path.child("valueFrom"), errors);
        }
    }
}

fn validate_value_from(source: &Value, value: &str, path: &Path<'_>, errors: &mut Errors) {
    let mut sources = 0;
    if let Some(reference) = field(source, "fieldRef") {
        sources += 1;
        validate_object_field_selector(reference, VARIABLE_FIELDS, &path.child("fieldRef"), errors);
    }
    if let Some(reference) = field(source, "resourceFieldRef") {
        sources += 1;
        validate_resource_field_selector(reference, false, &path.child("resourceFieldRef"), errors);
    }
    for name in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = field(source, name) {
            sources += 1;
            validate_key_selector(reference, &path.child(name), errors);
        }
    }
    if let Some(reference) = field(source, "fileKeyRef") {
        sources += 1;
        validate_file_key_selector(reference, &path.child("fileKeyRef"), errors);
    }
    if sources == 0 {
        let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
                   `fileKeyRef`";
        errors.invalid(path, "", why);
    } else if !value.is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

/// Splits `metadata.labels['key']` into the path and the key.
fn split_subscript(text: &str) -> Option<(&str, &str)> {
    let (path, key) = text.strip_suffix("']")?.split_once("['")?;
    (!path.is_empty()).then_some((path, key))
}

/// Checks a reference to a field of the pod.
pub(super) fn validate_object_field_selector(
    reference: &Value,
    allowed: &[&str],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (version, text) = (string(reference, "apiVersion"), string(reference, "fieldPath"));
    if version.is_empty() {
        errors.required(&path.child("apiVersion"), "");
        return;
    }
    let at = path.child("fieldPath");
    if text.is_empty() {
        errors.required(&at, "");
        return;
    }
    let failed = |why: String| format!("error converting fieldPath: {why}");
    if version != "v1" {
        errors.invalid(&at, text, &failed(format!("unsupported pod version: {version}")));
        return;
    }
    if let Some((field, key)) = split_subscript(text) {
        match field {
            "metadata.annotations" => validate_text(&key.to_lowercase(), name::label_key, path, errors),
            "metadata.labels" => validate_text(key, name::label_key, path, errors),
            _ => errors.invalid(&at, text, &failed(format!("field label does not support subscript: {text}"))),
        }
        return;
    }
    // The name of the field in the first versions of the API.
    let text = if text == "spec.host" { "spec.nodeName" } else { text };
    if !LABELS_OF_FIELDS.contains(&text) {
        errors.invalid(&at, text, &failed(format!("field label not supported: {text}")));
    } else if !allowed.contains(&text) {
        errors.not_supported(&at, text, allowed);
    }
}

/// Checks a reference to a resource of a container. In a volume, it names the container.
pub(super) fn validate_resource_field_selector(
    reference: &Value,
    in_volume: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let resource = string(reference, "resource");
    let is_huge_pages = ["requests.hugepages-", "limits.hugepages-"].iter().any(|prefix| resource.starts_with(prefix));
    if in_volume && string(reference, "containerName").is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !RESOURCES.contains(&resource) && !is_huge_pages {
        errors.not_supported(&path.child("resource"), resource, RESOURCES);
    }
    validate_divisor(reference, resource, is_huge_pages, path, errors);
}

fn validate_divisor(reference: &Value, resource: &str, is_huge_pages: bool, path: &Path<'_>, errors: &mut Errors) {
    const SIZES: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let divisor = &reference["divisor"];
    if Quantity::read(divisor).is_zero() {
        return;
    }
    let name = match resource {
        "limits.cpu" | "requests.cpu" => "cpu",
        "limits.memory" | "requests.memory" => "memory",
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => "local ephemeral storage",
        _ if is_huge_pages => "hugepages",
        _ => return,
    };
    let text = divisor.as_str().map_or_else(|| divisor.to_string(), String::from);
    if name == "cpu" && !["1m", "1"].contains(&&*text) {
        let why = "only divisor's values 1m and 1 are supported with the cpu resource";
        errors.invalid(&path.child("divisor"), resource, why);
    } else if name != "cpu" && !SIZES.contains(&&*text) {
        let why = format!("only divisor's values {} are supported with the {name} resource", SIZES.join(", "));
        errors.invalid(&path.child("divisor"), resource, &why);
    }
}

/// Checks a reference to a key of a ConfigMap or Secret.
fn validate_key_selector(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_text(string(reference, "name"), name::dns1123_subdomain, &path.child("name"), errors);
    validate_required_name(string(reference, "key"), name::config_key, &path.child("key"), errors);
}

fn validate_file_key_selector(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_required_name(string(reference, "key"), environment_variable, &path.child("key"), errors);
    validate_required_name(string(reference, "volumeName"), name::dns1123_label, &path.child("volumeName"), errors);
    match string(reference, "path") {
        "" => errors.required(&path.child("path"), ""),
        text => validate_path_no_backsteps(text, &path.child("path"), errors),
    }
}

/// Checks the objects whose keys become variables.
pub(super) fn validate_env_from(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    // The name may be extended, so that it can end with a hyphen.
    let rule = |name: &str| name::generate_name(name, name::dns1123_subdomain);
    for (index, source) in items(container, "envFrom").iter().enumerate() {
        let at = path.index(index);
        let prefix = string(source, "prefix");
        if !prefix.is_empty() {
            validate_text(prefix, environment_variable, &at.child("prefix"), errors);
        }
        let mut sources = 0;
        for name in ["configMapRef", "secretRef"] {
            if let Some(reference) = field(source, name) {
                sources += 1;
                let at = at.child(name);
                validate_required_name(string(reference, "name"), rule, &at.child("name"), errors);
            }
        }
        match sources {
            0 => errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
        }
    }
}
