//! The volume types that pods and persistent volumes have in common.

use kubewright_apimachinery::name;
use serde_json::Value;

use super::fields::require;
use crate::registry::builtin::validation::{
    Errors, Path, boolean, entries, field, inclusive_range, int, items, optional_int, optional_string, string,
    validate_path_no_backsteps, validate_required_name, validate_text,
};

/// Checks a directory or file of the node.
pub(in crate::registry::builtin) fn validate_host_path(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    const TYPES: &[&str] =
        &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    let place = string(source, "path");
    if place.is_empty() {
        errors.required(&path.child("path"), "");
        return;
    }
    validate_path_no_backsteps(place, &path.child("path"), errors);
    if let Some(kind) = optional_string(source, "type").filter(|kind| !TYPES.contains(kind)) {
        errors.not_supported(&path.child("type"), kind, TYPES);
    }
}

/// Checks a volume that a driver of a CSI provides for the life of the pod.
pub(super) fn validate_csi(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_csi_driver_name(string(source, "driver"), &path.child("driver"), errors);
    if let Some(reference) = field(source, "nodePublishSecretRef") {
        match string(reference, "name") {
            "" => {
                let path = path.child("nodePublishSecretRef");
                errors.required(&path.child("name"), "");
            }
            name => validate_text(name, name::dns1123_subdomain, &path.child("name"), errors),
        }
    }
}

/// Checks the name of a CSI driver.
pub(in crate::registry::builtin) fn validate_csi_driver_name(driver: &str, path: &Path<'_>, errors: &mut Errors) {
    if driver.is_empty() {
        errors.required(path, "");
        return;
    }
    if driver.len() > 63 {
        errors.too_long(path, 63);
    }
    errors.invalid_text(path, driver, &name::dns1123_subdomain(&driver.to_lowercase()));
}

/// Checks a StorageOS volume. A persistent volume names the namespace of the secret.
pub(in crate::registry::builtin) fn validate_storage_os(
    source: &Value,
    persistent: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    validate_required_name(string(source, "volumeName"), name::dns1123_label, &path.child("volumeName"), errors);
    let namespace = string(source, "volumeNamespace");
    if !namespace.is_empty() {
        validate_text(namespace, name::dns1123_label, &path.child("volumeNamespace"), errors);
    }
    validate_secret_reference(source, persistent, path, errors);
}

/// Checks `secretRef`, if there is one.
fn validate_secret_reference(source: &Value, persistent: bool, path: &Path<'_>, errors: &mut Errors) {
    let Some(reference) = field(source, "secretRef") else { return };
    let path = path.child("secretRef");
    require(reference, "name", &path, errors);
    if persistent {
        require(reference, "namespace", &path, errors);
    }
}

/// Checks a disk or share in a network. `parent` is the path of the volume.
pub(in crate::registry::builtin) fn validate_network_source(
    kind: &str,
    source: &Value,
    persistent: bool,
    parent: &Path<'_>,
    errors: &mut Errors,
) {
    // As in Kubernetes, the path of a disk of Google's cloud has another name.
    let path = &parent.child(if kind == "gcePersistentDisk" { "persistentDisk" } else { kind });
    let mut need = |names: &[&str]| names.iter().for_each(|name| require(source, name, path, errors));
    match kind {
        "glusterfs" => need(&["endpoints", "path"]),
        "vsphereVolume" => need(&["volumePath"]),
        "photonPersistentDisk" => need(&["pdID"]),
        "portworxVolume" => need(&["volumeID"]),
        "scaleIO" => need(&["gateway", "system", "volumeName"]),
        "azureFile" => need(&["secretName", "shareName"]),
        "azureDisk" => {
            need(&["diskName", "diskURI"]);
            validate_azure_disk(source, path, errors);
        }
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            need(&[if kind == "gcePersistentDisk" { "pdName" } else { "volumeID" }]);
            let partition = int(source, "partition");
            if !(0..=255).contains(&partition) {
                errors.invalid(&path.child("partition"), partition, &inclusive_range(1, 255));
            }
        }
        "nfs" => {
            need(&["server", "path"]);
            let place = string(source, "path");
            if !place.starts_with('/') {
                errors.invalid(&path.child("path"), place, "must be an absolute path");
            }
        }
        "cinder" => {
            need(&["volumeID"]);
            validate_secret_reference(source, persistent, path, errors);
        }
        "cephfs" | "rbd" => {
            if items(source, "monitors").is_empty() {
                errors.required(&path.child("monitors"), "");
            }
            if kind == "rbd" {
                require(source, "image", path, errors);
            }
        }
        "flocker" => validate_flocker(source, path, errors),
        "quobyte" => validate_quobyte(source, path, errors),
        "flexVolume" => validate_flex(source, path, errors),
        "fc" => validate_fibre_channel(source, path, errors),
        "iscsi" => validate_iscsi(source, persistent, path, errors),
        _ => {}
    }
}

fn validate_azure_disk(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    for (name, allowed) in
        [("cachingMode", ["None", "ReadOnly", "ReadWrite"]), ("kind", ["Dedicated", "Managed", "Shared"])]
    {
        if let Some(value) = optional_string(source, name).filter(|value| !allowed.contains(value)) {
            errors.not_supported(&path.child(name), value, &allowed);
        }
    }
    let uri = string(source, "diskURI");
    match optional_string(source, "kind") {
        Some("Managed") if !uri.starts_with("/subscriptions/") => {
            errors.not_supported(&path.child("diskURI"), uri, &[MANAGED]);
        }
        Some(kind) if kind != "Managed" && !uri.starts_with("https://") => {
            errors.not_supported(&path.child("diskURI"), uri, &[BLOB]);
        }
        _ => {}
    }
}

fn validate_flocker(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, uuid) = (string(source, "datasetName"), string(source, "datasetUUID"));
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => errors.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            errors.invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously");
        }
        _ => {}
    }
    if name.contains('/') {
        errors.invalid(&path.child("datasetName"), name, "must not contain '/'");
    }
}

fn validate_quobyte(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = string(source, "registry");
    if registry.is_empty() {
        errors.required(&path.child("registry"), PAIRS);
    } else if string(source, "tenant").len() >= 65 {
        errors.required(&path.child("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in registry.split(',').filter(|pair| pair.rsplit_once(':').is_none()) {
            errors.invalid(&path.child("registry"), registry, PAIRS);
        }
    }
    require(source, "volume", path, errors);
}

fn validate_flex(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    require(source, "driver", path, errors);
    let options = path.child("options");
    for (key, _) in entries(source, "options") {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let namespace = format!(".{}", namespace.to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            errors.invalid(&options.key(key), key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn validate_fibre_channel(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (names, ids) = (items(source, "targetWWNs"), items(source, "wwids"));
    if names.is_empty() && ids.is_empty() {
        let why = "must specify either targetWWNs or wwids, but not both";
        errors.required(&path.child("targetWWNs"), why);
    }
    if !names.is_empty() && !ids.is_empty() {
        let why = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(&path.child("targetWWNs"), names.to_vec(), why);
    }
    match optional_int(source, "lun") {
        None if !names.is_empty() => errors.required(&path.child("lun"), "lun is required if targetWWNs is specified"),
        Some(lun) if !names.is_empty() && !(0..=255).contains(&lun) => {
            errors.invalid(&path.child("lun"), lun, &inclusive_range(0, 255));
        }
        _ => {}
    }
}

/// Checks the length of the name of an iSCSI volume of a pod with an initiator.
pub(super) fn validate_iscsi_name_length(source: &Value, volume: &str, path: &Path<'_>, errors: &mut Errors) {
    if field(source, "initiatorName").is_some() && volume.len() + 1 + string(source, "targetPortal").len() > 64 {
        let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                   iscsi.initiatorName is specified.";
        errors.invalid(&path.child("name"), volume, why);
    }
}

fn validate_iscsi(source: &Value, persistent: bool, path: &Path<'_>, errors: &mut Errors) {
    require(source, "targetPortal", path, errors);
    match string(source, "iqn") {
        "" => errors.required(&path.child("iqn"), ""),
        name => validate_iscsi_name(name, persistent, &path.child("iqn"), errors),
    }
    let lun = int(source, "lun");
    if !(0..=255).contains(&lun) {
        errors.invalid(&path.child("lun"), lun, &inclusive_range(0, 255));
    }
    let needs_secret = boolean(source, "chapAuthDiscovery") || boolean(source, "chapAuthSession");
    if needs_secret && field(source, "secretRef").is_none() {
        errors.required(&path.child("secretRef"), "");
    }
    if persistent && let Some(reference) = field(source, "secretRef") {
        let path = path.child("secretRef");
        require(reference, "name", &path, errors);
    }
    if let Some(initiator) = optional_string(source, "initiatorName") {
        validate_iscsi_name(initiator, persistent, &path.child("initiatorname"), errors);
    }
}

/// Checks a name in one of the formats of RFC 3720.
fn validate_iscsi_name(name: &str, persistent: bool, path: &Path<'_>, errors: &mut Errors) {
    let is_hex = |text: &str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let valid = match name.get(..3) {
        Some("iqn") => is_qualified_name(name),
        Some("eui") => name.strip_prefix("eui.").is_some_and(is_hex),
        Some("naa") => name
            .strip_prefix("naa.")
            .is_some_and(|text| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())),
        _ => {
            let why =
                if persistent { "must be valid format" } else { "must be valid format starting with iqn, eui, or naa" };
            errors.invalid(path, name, why);
            return;
        }
    };
    if !valid {
        errors.invalid(path, name, "must be valid format");
    }
}

/// Returns whether a name has the form `iqn.2001-04.com.example:disk`.
fn is_qualified_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("iqn.") else { return false };
    let Some((date, rest)) = rest.split_at_checked(7) else { return false };
    let date_fits = date.bytes().enumerate().all(|(index, byte)| match index {
        4 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    let domain = rest.strip_prefix('.').and_then(|rest| rest.split(':').next()).unwrap_or_default();
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    date_fits && domain.split('.').all(label)
}
