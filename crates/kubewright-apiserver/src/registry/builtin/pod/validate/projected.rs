//! Volumes with files of several sources.

use std::collections::BTreeSet;

use kubewright_apimachinery::name;
use serde_json::Value;

use super::{
    environment::{validate_object_field_selector, validate_resource_field_selector},
    fields::{require, validate_key_to_path, validate_mode},
};
use crate::registry::builtin::validation::{
    Errors, Path, field, int, items, optional_int, optional_string, string, validate_label_selector,
    validate_local_non_reserved_path,
};

/// The fields of a pod that a file can have as its content.
const FILE_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

const CONFLICT: &str = "conflicting duplicate paths";

/// Checks a volume with fields of the pod.
pub(super) fn validate_downward_api(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_mode(source, "defaultMode", path, errors);
    // As in Kubernetes, the path of a file leaves out its index.
    for file in items(source, "items") {
        validate_downward_api_file(file, path, errors);
    }
}

fn validate_downward_api_file(file: &Value, path: &Path<'_>, errors: &mut Errors) {
    require(file, "path", path, errors);
    validate_local_non_reserved_path(string(file, "path"), &path.child("path"), errors);
    match (field(file, "fieldRef"), field(file, "resourceFieldRef")) {
        (Some(reference), resource) => {
            validate_object_field_selector(reference, FILE_FIELDS, &path.child("fieldRef"), errors);
            if resource.is_some() {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid(path, "resource", why);
            }
        }
        (None, Some(reference)) => {
            validate_resource_field_selector(reference, true, &path.child("resourceFieldRef"), errors);
        }
        (None, None) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
    }
    validate_mode(file, "mode", path, errors);
}

/// Checks a projected volume.
pub(super) fn validate_projected(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_mode(volume, "defaultMode", path, errors);
    let mut paths = BTreeSet::new();
    let sources = path.child("sources");
    for (index, source) in items(volume, "sources").iter().enumerate() {
        let at = sources.index(index);
        let kinds =
            ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];
        let mut number = 0;
        for kind in kinds {
            let Some(projection) = field(source, kind) else { continue };
            number += 1;
            let at = at.child(kind);
            match kind {
                "secret" | "configMap" => validate_file_projection(projection, &mut paths, path, &at, errors),
                "downwardAPI" => {
                    for file in items(projection, "items") {
                        validate_downward_api_file(file, &at, errors);
                        let place = string(file, "path");
                        if !place.is_empty() && !paths.insert(place) {
                            errors.invalid(path, place, CONFLICT);
                        }
                    }
                }
                "serviceAccountToken" => validate_token(projection, path, &at, errors),
                "clusterTrustBundle" => {
                    validate_trust_bundle(projection, &at, errors);
                    let place = string(projection, "path");
                    if !paths.insert(place) {
                        errors.invalid(path, place, CONFLICT);
                    }
                }
                _ => validate_certificate(projection, &mut paths, path, &at, errors),
            }
        }
        if number > 1 {
            errors.forbidden(&at, "may not specify more than 1 volume type per source");
        }
    }
}

/// Checks the files of a Secret or ConfigMap. `volume` is the path of the projected volume.
fn validate_file_projection<'a>(
    projection: &'a Value,
    paths: &mut BTreeSet<&'a str>,
    volume: &Path<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    require(projection, "name", path, errors);
    let at = path.child("items");
    for (index, item) in items(projection, "items").iter().enumerate() {
        validate_key_to_path(item, &at.index(index), errors);
        let place = string(item, "path");
        if !place.is_empty() && !paths.insert(place) {
            errors.invalid(volume, string(projection, "name"), CONFLICT);
        }
    }
}

fn validate_token(projection: &Value, volume: &Path<'_>, path: &Path<'_>, errors: &mut Errors) {
    let seconds = int(projection, "expirationSeconds");
    if seconds < 600 {
        let why = "may not specify a duration less than 10 minutes";
        errors.invalid(&path.child("expirationSeconds"), seconds, why);
    }
    if seconds > 1 << 32 {
        let why = "may not specify a duration larger than 2^32 seconds";
        errors.invalid(&path.child("expirationSeconds"), seconds, why);
    }
    match string(projection, "path") {
        "" => errors.required(&volume.child("path"), ""),
        place => validate_local_non_reserved_path(place, &volume.child("path"), errors),
    }
}

fn validate_trust_bundle(projection: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (optional_string(projection, "name"), optional_string(projection, "signerName")) {
        (Some(_), Some(_)) => {
            errors.invalid(path, projection.clone(), "only one of name and signerName may be used");
        }
        (Some(name), None) => {
            if name.is_empty() {
                errors.required(&path.child("name"), "must be a valid object name");
            }
            for why in name::dns1123_subdomain(name) {
                let why = format!("not a valid clustertrustbundlename: {why}");
                errors.invalid(&path.child("name"), name, &why);
            }
            if let Some(selector) = field(projection, "labelSelector") {
                let why = "labelSelector must be unset if name is specified";
                errors.invalid(&path.child("labelSelector"), selector.clone(), why);
            }
        }
        (None, Some(signer)) => {
            if signer.is_empty() {
                errors.required(&path.child("signerName"), "must be a valid signer name");
            }
            if let Some(selector) = field(projection, "labelSelector") {
                validate_label_selector(selector, &path.child("labelSelector"), errors);
            }
        }
        (None, None) => errors.required(path, "either name or signerName must be specified"),
    }
    require(projection, "path", path, errors);
    validate_local_non_reserved_path(string(projection, "path"), &path.child("path"), errors);
}

fn validate_certificate<'a>(
    projection: &'a Value,
    paths: &mut BTreeSet<&'a str>,
    volume: &Path<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    const KEY_TYPES: &[&str] = &["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    let signer = string(projection, "signerName");
    if signer.split_once('/').is_none() {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.invalid(&path.child("signerName"), signer, why);
    }
    let key_type = string(projection, "keyType");
    if !KEY_TYPES.contains(&key_type) {
        errors.not_supported(&path.child("keyType"), key_type, KEY_TYPES);
    }
    if let Some(seconds) = optional_int(projection, "maxExpirationSeconds") {
        let limit = if signer.starts_with("kubernetes.io/") { 86_400 } else { 7_862_400 };
        let at = path.child("maxExpirationSeconds");
        if seconds < 3600 {
            errors.invalid(&at, seconds, "if provided, maxExpirationSeconds must be >= 3600");
        }
        if seconds > limit {
            errors.invalid(&at, seconds, &format!("if provided, maxExpirationSeconds must be <= {limit}"));
        }
    }
    let mut number = 0;
    for name in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let place = string(projection, name);
        if place.is_empty() {
            continue;
        }
        number += 1;
        validate_local_non_reserved_path(place, &path.child(name), errors);
        if !paths.insert(place) {
            errors.invalid(volume, place, CONFLICT);
        }
    }
    if number == 0 {
        errors.required(path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath");
    }
}
