//! The volumes of a pod, and their places in containers.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_apimachinery::name;
use serde_json::Value;

use super::{
    ContainerContext, PodContext,
    fields::{require, validate_key_to_path, validate_mode, validate_pull_policy},
    projected::{validate_downward_api, validate_projected},
    volume_source::{
        validate_csi, validate_host_path, validate_iscsi_name_length, validate_network_source, validate_storage_os,
    },
};
use crate::registry::builtin::{
    storage::validate_claim_template,
    validation::{
        Errors, Path, Quantity, boolean, field, items, optional_string, string, validate_local_descending_path,
        validate_required_name,
    },
};

/// The kinds of volumes in the order in which Kubernetes checks them, with the names in the message about a second one.
const SOURCES: &[(&str, &str)] = &[
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// Checks the volumes of a pod, and returns the valid ones by name.
pub(super) fn validate_volumes<'a>(
    spec: &'a Value,
    context: PodContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) -> BTreeMap<&'a str, &'a Value> {
    let mut valid = BTreeMap::new();
    let volumes = items(spec, "volumes");
    // The claims that are created for the pod, which another volume must not refer to.
    let created: BTreeSet<_> = volumes
        .iter()
        .filter(|volume| !context.name.is_empty() && field(volume, "ephemeral").is_some())
        .map(|volume| format!("{}-{}", context.name, string(volume, "name")))
        .collect();
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let name = string(volume, "name");
        let wrong = errors.any(|errors| {
            validate_volume_source(volume, context, &path, errors);
            validate_required_name(name, name::dns1123_label, &path.child("name"), errors);
            if valid.contains_key(name) {
                errors.duplicate(&path.child("name"), name);
            }
        });
        if !wrong {
            valid.insert(name, volume);
        }
        let claim = string(&volume["persistentVolumeClaim"], "claimName");
        if created.contains(claim) {
            let path = path.child("persistentVolumeClaim");
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            errors.invalid(&path.child("claimName"), claim, why);
        }
    }
    valid
}

fn validate_volume_source(volume: &Value, context: PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut sources = 0;
    for (kind, name_in_message) in SOURCES {
        let Some(source) = field(volume, kind) else { continue };
        sources += 1;
        if sources > 1 {
            errors.forbidden(&path.child(name_in_message), "may not specify more than 1 volume type");
        } else {
            validate_source(kind, source, volume, context, path, errors);
        }
        if *kind == "iscsi" {
            validate_iscsi_name_length(source, string(volume, "name"), path, errors);
        }
    }
    if sources == 0 {
        errors.required(path, "must specify a volume type");
    }
}

fn validate_source(
    kind: &str,
    source: &Value,
    volume: &Value,
    context: PodContext<'_>,
    parent: &Path<'_>,
    errors: &mut Errors,
) {
    let path = &parent.child(kind);
    match kind {
        "emptyDir" => {
            if Quantity::read(&source["sizeLimit"]).is_negative() {
                errors.forbidden(&path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
            }
        }
        "hostPath" => validate_host_path(source, path, errors),
        "gitRepo" => {
            require(source, "repository", path, errors);
            validate_local_descending_path(string(source, "directory"), &path.child("directory"), errors);
        }
        "secret" => validate_files(source, "secretName", path, errors),
        "configMap" => validate_files(source, "name", path, errors),
        "persistentVolumeClaim" => require(source, "claimName", path, errors),
        "downwardAPI" => validate_downward_api(source, path, errors),
        "storageos" => validate_storage_os(source, false, path, errors),
        "projected" => validate_projected(source, path, errors),
        "csi" => validate_csi(source, path, errors),
        "ephemeral" => validate_ephemeral(source, string(volume, "name"), context, parent, errors),
        "image" => {
            if context.is_pod {
                require(source, "reference", path, errors);
            }
            validate_pull_policy(source, "pullPolicy", path, errors);
        }
        _ => validate_network_source(kind, source, false, parent, errors),
    }
}

fn validate_ephemeral(source: &Value, volume: &str, context: PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("ephemeral");
    match field(source, "volumeClaimTemplate") {
        None => errors.required(&at.child("volumeClaimTemplate"), ""),
        Some(template) => validate_claim_template(template, &at.child("volumeClaimTemplate"), errors),
    }
    if !context.name.is_empty() && !volume.is_empty() {
        let claim = format!("{}-{volume}", context.name);
        for why in name::dns1123_subdomain(&claim) {
            errors.invalid(&path.child("name"), volume, &format!("PVC name {claim:?}: {why}"));
        }
    }
}

/// Checks a volume with files from the entries of an object.
fn validate_files(source: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    require(source, name, path, errors);
    validate_mode(source, "defaultMode", path, errors);
    validate_keys_to_paths(source, path, errors);
}

pub(super) fn validate_keys_to_paths(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("items");
    for (index, item) in items(source, "items").iter().enumerate() {
        validate_key_to_path(item, &path.index(index), errors);
    }
}

/// Checks the places at which volumes are mounted.
pub(super) fn validate_volume_mounts(
    container: &Value,
    context: &ContainerContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let devices = items(container, "volumeDevices");
    let mut used = BTreeSet::new();
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        let at = path.index(index);
        let (name, place) = (string(mount, "name"), string(mount, "mountPath"));
        require(mount, "name", &at, errors);
        if !context.volumes.contains_key(name) {
            errors.not_found(&at.child("name"), name, "");
        }
        require(mount, "mountPath", &at, errors);
        if !used.insert(place) {
            errors.invalid(&at.child("mountPath"), place, "must be unique");
        }
        if devices.iter().any(|device| string(device, "name") == name) {
            errors.invalid(&at.child("name"), name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|device| string(device, "devicePath") == place) {
            errors.invalid(&at.child("mountPath"), place, "must not already exist as a path in volumeDevices");
        }
        // As in Kubernetes, the paths of the following messages leave out the index.
        let (sub_path, expression) = (string(mount, "subPath"), string(mount, "subPathExpr"));
        if !sub_path.is_empty() {
            validate_local_descending_path(sub_path, &path.child("subPath"), errors);
        }
        if !expression.is_empty() {
            if !sub_path.is_empty() {
                let why = "subPathExpr and subPath are mutually exclusive";
                errors.invalid(&at.child("subPathExpr"), expression, why);
            }
            validate_local_descending_path(expression, &path.child("subPathExpr"), errors);
        }
        validate_mount_propagation(mount, container, &path.child("mountPropagation"), errors);
        validate_recursive_read_only(mount, &path.child("recursiveReadOnly"), errors);
    }
}

fn validate_mount_propagation(mount: &Value, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MODES: &[&str] = &["Bidirectional", "HostToContainer", "None"];
    let Some(mode) = optional_string(mount, "mountPropagation") else { return };
    if !MODES.contains(&mode) {
        errors.not_supported(path, mode, MODES);
    }
    if mode == "Bidirectional" && !boolean(&container["securityContext"], "privileged") {
        errors.forbidden(path, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn validate_recursive_read_only(mount: &Value, path: &Path<'_>, errors: &mut Errors) {
    match optional_string(mount, "recursiveReadOnly") {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !boolean(mount, "readOnly") {
                errors.forbidden(path, "may only be specified when readOnly is true");
            }
            if !matches!(optional_string(mount, "mountPropagation"), None | Some("None")) {
                errors.forbidden(path, "may only be specified when mountPropagation is None or not specified");
            }
        }
        Some(other) => errors.not_supported(path, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// Checks the places of block devices.
pub(super) fn validate_volume_devices(
    container: &Value,
    context: &ContainerContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mounts = items(container, "volumeMounts");
    let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in items(container, "volumeDevices").iter().enumerate() {
        let path = path.index(index);
        let (name, place) = (string(device, "name"), string(device, "devicePath"));
        require(device, "name", &path, errors);
        if names.contains(name) {
            errors.invalid(&path.child("name"), name, "must be unique");
        }
        let is_claim =
            |volume: &&Value| field(volume, "persistentVolumeClaim").is_some() || field(volume, "ephemeral").is_some();
        match context.volumes.get(name) {
            Some(volume) if !is_claim(volume) => {
                let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(&path.child("name"), name, why);
            }
            Some(_) => {}
            None => errors.not_found(&path.child("name"), name, ""),
        }
        require(device, "devicePath", &path, errors);
        if places.contains(place) {
            errors.invalid(&path.child("devicePath"), place, "must be unique");
        }
        if place.split('/').any(|step| step == "..") {
            errors.invalid(&path.child("devicePath"), place, "can not contain backsteps ('..')");
        } else {
            places.insert(place);
        }
        if mounts.iter().any(|mount| string(mount, "name") == name) {
            errors.invalid(&path.child("name"), name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|mount| string(mount, "mountPath") == place) {
            errors.invalid(&path.child("devicePath"), place, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}
