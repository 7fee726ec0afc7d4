//! The audiences of the tokens that nodes request for their pods.

use std::sync::Arc;

use kubewright_apimachinery::go_format::quoted;
use serde_json::Value;

use super::super::node_references::volume_claim;
use crate::{
    auth::{Attributes, UserInfo},
    authorizer::Authorizer,
    fields::{has, list, text},
    storage::{Key, Store},
};

/// The drivers that have replaced kinds of volumes.
const DRIVERS: [(&str, &str); 7] = [
    ("/awsElasticBlockStore", "ebs.csi.aws.com"),
    ("/gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("/cinder", "cinder.csi.openstack.org"),
    ("/azureDisk", "disk.csi.azure.com"),
    ("/azureFile", "file.csi.azure.com"),
    ("/vsphereVolume", "csi.vsphere.vmware.com"),
    ("/portworxVolume", "pxd.portworx.com"),
];

/// Checks that a pod needs a token for the audience of a request, or that a role allows the node to request it.
///
/// # Errors
/// Returns why it doesn't.
pub(super) fn check_audience(
    store: &Store,
    (user, authorizer): (&UserInfo, &Authorizer),
    (namespace, account): (&str, &str),
    pod: &Value,
    request: &Value,
) -> Result<(), String> {
    let audience = match list(request, "/spec/audiences") {
        [] => "",
        [audience] => audience.as_str().unwrap_or_default(),
        _ => return Err("node may only request 0 or 1 audiences".into()),
    };
    let wrong = |why: String| format!("error validating audience {}: {why}", quoted(audience));
    if has_audience(store, namespace, pod, audience).map_err(wrong)? {
        return Ok(());
    }
    let attributes = Attributes {
        verb: "request-serviceaccounts-token-audience".into(),
        resource: audience.into(),
        namespace: namespace.into(),
        name: account.into(),
        ..Attributes::default()
    };
    if authorizer.authorize(user, &attributes).allowed {
        return Ok(());
    }
    Err(format!(
        "audience {} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        quoted(audience),
        user.name
    ))
}

/// Returns whether a volume of a pod has a token for an audience, or a driver that asks for one.
fn has_audience(store: &Store, namespace: &str, pod: &Value, audience: &str) -> Result<bool, String> {
    let mut errors: Vec<String> = Vec::new();
    for volume in list(pod, "/spec/volumes") {
        let sources = list(volume, "/projected/sources").iter();
        let mut tokens = sources.filter(|source| has(source, "/serviceAccountToken"));
        if tokens.any(|source| text(source, "/serviceAccountToken/audience") == audience) {
            return Ok(true);
        }
        match driver_has_audience(store, namespace, pod, volume, audience) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(why) if errors.contains(&why) => {}
            Err(why) => errors.push(why),
        }
    }
    match errors.as_slice() {
        [] => Ok(false),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

fn driver_has_audience(
    store: &Store,
    namespace: &str,
    pod: &Value,
    volume: &Value,
    audience: &str,
) -> Result<bool, String> {
    let find = |storage: &str, kind: &str, namespace: &str, name: &str| -> Result<Arc<Value>, String> {
        let found = store.get(storage, &Key::new(namespace, name));
        found.map(|stored| stored.value()).ok_or_else(|| format!("{kind} {} not found", quoted(name)))
    };
    let driver = match volume_claim(pod, volume) {
        Some(claim) => {
            let claim = find("/persistentvolumeclaims", "persistentvolumeclaim", namespace, &claim)?;
            let name = text(&claim, "/spec/volumeName");
            let volume = find("/persistentvolumes", "persistentvolume", "", name)?;
            driver_of(&volume["spec"])
        }
        None => driver_of(volume),
    };
    if driver.is_empty() {
        return Ok(false);
    }
    let driver = find("storage.k8s.io/csidrivers", "csidriver.storage.k8s.io", "", &driver)?;
    Ok(list(&driver, "/spec/tokenRequests").iter().any(|request| text(request, "/audience") == audience))
}

/// Returns the driver of a volume; empty if it has none.
fn driver_of(volume: &Value) -> String {
    let replaced = || DRIVERS.into_iter().find(|(place, _)| has(volume, place)).map_or("", |(_, driver)| driver);
    match text(volume, "/csi/driver") {
        "" => replaced().to_owned(),
        driver => driver.to_owned(),
    }
}
