//! The storage class `standard`, whose volumes are folders of the node.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{CLASS, PROVISIONED, Volumes, annotation, reference};
use crate::{
    controllers::{
        kind::Kind,
        reconcile::{Plan, Report, Step},
        value::{list, text},
    },
    node::NODE_NAME,
};

/// The provisioner of the class.
const PROVISIONER: &str = "kubewright.dev/folder";
/// The annotation of the class that claims without one get.
const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// Returns the class.
pub(crate) fn class() -> Value {
    json!({
        "apiVersion": format!("{}/v1", CLASS.group), "kind": CLASS.kind,
        "metadata": {"name": "standard", "annotations": {DEFAULT: "true"}},
        "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
    })
}

/// Returns the name of the default class. If there are several, it is the latest.
pub(super) fn default_class(all: &Volumes) -> Option<&str> {
    let defaults = all.classes.values().filter(|class| annotation(class, DEFAULT) == Some("true"));
    let latest =
        defaults.max_by_key(|class| (text(class, "/metadata/creationTimestamp"), text(class, "/metadata/name")));
    latest.map(|class| text(class, "/metadata/name"))
}

/// Creates a volume for a claim, if that is the task of this provisioner.
pub(super) fn provision(all: &Volumes, claim: &Value, name: &str, plan: &mut Plan) {
    let mut failed = |why: String| plan.event(true, "ProvisioningFailed", why);
    let Some(class) = all.classes.get(name) else {
        return failed(format!("storageclass.storage.k8s.io \"{name}\" not found"));
    };
    let provisioner = text(class, "/provisioner");
    let Some(root) = all.root.as_ref().filter(|_| provisioner == PROVISIONER) else {
        return match provisioner.starts_with("kubernetes.io/") {
            true => failed(format!("no volume plugin matched name: {provisioner}")),
            false => wait_for(claim, provisioner, plan),
        };
    };
    if !claim["spec"]["selector"].is_null() {
        return failed("claim.Spec.Selector is not supported for dynamic provisioning on this node".into());
    }
    if text(claim, "/spec/volumeMode") == "Block" {
        return failed("a folder is no block device".into());
    }
    let volume = new_volume(claim, class, root);
    let created = text(&volume, "/metadata/name");
    let report = Report {
        success: Some(("ProvisioningSucceeded", format!("Successfully provisioned volume {created}"))),
        failures: vec![("ProvisioningFailed", format!("failed to provision volume with StorageClass \"{name}\": "))],
    };
    plan.steps.push(Step::Create(Kind::VOLUME.address("", ""), volume).reported(report));
}

/// Leaves a claim to another provisioner.
fn wait_for(claim: &Value, provisioner: &str, plan: &mut Plan) {
    // Older provisioners read the second one.
    const ANNOTATIONS: [&str; 2] =
        ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
    if ANNOTATIONS.iter().any(|name| annotation(claim, name) != Some(provisioner)) {
        let annotations: Map<_, _> =
            ANNOTATIONS.map(|name| (name.to_owned(), provisioner.into())).into_iter().collect();
        plan.steps.push(Step::change(&Kind::CLAIM, claim, json!({"metadata": {"annotations": annotations}})));
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system \
         administrator. If volume creation is delayed, please verify that the provisioner is running and correctly \
         registered."
    );
    plan.event(false, "ExternalProvisioning", message);
}

fn new_volume(claim: &Value, class: &Value, root: &Path) -> Value {
    let name = format!("pvc-{}", text(claim, "/metadata/uid"));
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_NAME]});
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED: PROVISIONER}},
        "spec": {
            "accessModes": claim["spec"]["accessModes"],
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "claimRef": reference(claim),
            "hostPath": {"path": root.join(&name), "type": "DirectoryOrCreate"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            "persistentVolumeReclaimPolicy": class.get("reclaimPolicy").cloned().unwrap_or("Delete".into()),
            "storageClassName": class["metadata"]["name"],
            "volumeMode": "Filesystem",
        },
    });
    if !list(class, "/mountOptions").is_empty() {
        volume["spec"]["mountOptions"] = class["mountOptions"].clone();
    }
    volume
}

/// Returns the folder of a volume that this provisioner has created.
pub(super) fn folder(all: &Volumes, volume: &Value) -> Option<PathBuf> {
    let folder = all.root.as_ref()?.join(text(volume, "/metadata/name"));
    let is_ours = annotation(volume, PROVISIONED) == Some(PROVISIONER);
    (is_ours && Path::new(text(volume, "/spec/hostPath/path")) == folder).then_some(folder)
}
