//! The Secrets and ConfigMaps that pods refer to.

use kubewright_apimachinery::pointer;
use serde_json::Value;

use crate::fields::{list, text};

/// The places in volumes with the name of a Secret.
const SECRETS: [&str; 10] = [
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/secret/secretName",
    "/storageos/secretRef/name",
];

/// Returns the names of the Secrets that the spec of a pod refers to. A name may occur several times.
pub(super) fn secrets(spec: &Value) -> impl Iterator<Item = &str> {
    let pull = list(spec, "/imagePullSecrets").iter().map(|one| text(one, "/name"));
    let containers = containers(spec).flat_map(|one| of_container(one, "/secretRef", "/valueFrom/secretKeyRef"));
    let volumes = volumes(spec).flat_map(|volume| SECRETS.iter().map(|place| text(volume, place)));
    pull.chain(containers).chain(volumes).chain(projected(spec, "/secret/name")).filter(|name| !name.is_empty())
}

/// Returns the names of the ConfigMaps that the spec of a pod refers to. A name may occur several times.
pub(super) fn config_maps(spec: &Value) -> impl Iterator<Item = &str> {
    let containers = containers(spec).flat_map(|one| of_container(one, "/configMapRef", "/valueFrom/configMapKeyRef"));
    let volumes = volumes(spec).map(|volume| text(volume, "/configMap/name"));
    containers.chain(volumes).chain(projected(spec, "/configMap/name")).filter(|name| !name.is_empty())
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["/initContainers", "/containers", "/ephemeralContainers"].into_iter().flat_map(|place| list(spec, place))
}

fn volumes(spec: &Value) -> impl Iterator<Item = &Value> {
    list(spec, "/volumes").iter()
}

/// Returns the names at a place in the sources of projected volumes.
fn projected<'a>(spec: &'a Value, place: &'static str) -> impl Iterator<Item = &'a str> {
    volumes(spec).flat_map(|volume| list(volume, "/projected/sources")).map(move |source| text(source, place))
}

/// Returns the names in the environment of a container: those of whole objects, and those of variables.
fn of_container<'a>(container: &'a Value, whole: &'static str, key: &'static str) -> impl Iterator<Item = &'a str> {
    let named = |from: &'a Value, place| pointer::get(from, place).map(|reference| text(reference, "/name"));
    let whole = list(container, "/envFrom").iter().filter_map(move |from| named(from, whole));
    whole.chain(list(container, "/env").iter().filter_map(move |variable| named(variable, key)))
}
