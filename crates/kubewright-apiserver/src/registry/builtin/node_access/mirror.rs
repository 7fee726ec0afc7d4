//! What a mirror pod, which a node creates, must not refer to.

use serde_json::Value;

use super::super::pod_references::{config_maps, secrets};
use crate::fields::{has, list, text};

/// The sources of volumes that are objects, with what they refer to.
const VOLUMES: [(&str, &str); 7] = [
    ("/configMap", "configmaps (via configmap volumes)"),
    ("/secret", "secrets (via secret volumes)"),
    ("/csi", "csidrivers (via CSI volumes)"),
    ("/glusterfs", "endpoints (via glusterFS volumes)"),
    ("/persistentVolumeClaim", "persistentvolumeclaims"),
    ("/ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("/azureFile", "secrets (via azureFile volumes)"),
];

/// The same for the sources of projected volumes.
const SOURCES: [(&str, &str); 5] = [
    ("/configMap", "configmaps (via projected volumes)"),
    ("/secret", "secrets (via projected volumes)"),
    ("/serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("/clusterTrustBundle", "clustertrustbundles"),
    ("/podCertificate", "podcertificates"),
];

/// Returns the objects that the spec of a pod refers to, in words, if there are any.
pub(super) fn referenced(spec: &Value) -> Option<&'static str> {
    if !text(spec, "/serviceAccountName").is_empty() {
        return Some("serviceaccounts");
    }
    if secrets(spec).next().is_some() {
        return Some("secrets");
    }
    if config_maps(spec).next().is_some() {
        return Some("configmaps");
    }
    if !list(spec, "/resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
    let of = |value: &Value, sources: &[(&str, &'static str)]| {
        sources.iter().find(|(place, _)| has(value, place)).map(|(_, what)| *what)
    };
    list(spec, "/volumes").iter().find_map(|volume| {
        let projected = list(volume, "/projected/sources");
        of(volume, &VOLUMES).or_else(|| projected.iter().find_map(|source| of(source, &SOURCES)))
    })
}
