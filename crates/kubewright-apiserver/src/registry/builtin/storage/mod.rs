//! Persistent volumes and the claims for them, and the kinds of `storage.k8s.io`.

mod attachment;
mod claim;
mod class;
mod driver;
mod volume;

use std::sync::Arc;

use kubewright_apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

pub(super) use self::{
    attachment::{VolumeAttachmentStrategy, volume_attachment_columns},
    claim::{claim_warnings, validate_claim_spec, validate_claim_template},
    class::{
        StorageClassStrategy, VolumeAttributesClassStrategy, storage_class_columns, volume_attributes_class_columns,
    },
    driver::{CsiDriverStrategy, CsiNodeStrategy, CsiStorageCapacityStrategy, csi_driver_columns, csi_node_columns},
};
use super::{
    default_class::Classes,
    limit_ranges::LimitRanges,
    node_references::NodeReferences,
    validation::{Errors, Path, Quantity, strings},
};
use crate::{
    auth::Requester,
    fields::{fill, fill_zero, has, list, present, set, text, within},
    plugins::{AdmissionPlugin, Plugins},
    registry::Strategy,
};

/// The values of `volumeMode`.
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
/// The values of `volumeBindingMode`.
const VOLUME_BINDING_MODES: &[&str] = &["Immediate", "WaitForFirstConsumer"];

/// The strategy of persistent volumes.
#[derive(Debug)]
pub(super) struct VolumeStrategy {
    /// What volumes refer to, which this strategy keeps up to date.
    pub(super) references: Arc<NodeReferences>,
}

impl Strategy for VolumeStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            fill_zero(spec, "persistentVolumeReclaimPolicy", "Retain");
            fill(spec, "volumeMode", "Filesystem");
            default_source(spec);
        });
        within(object, "status", |status| fill_zero(status, "phase", "Pending"));
    }

    fn admit(&self, old: Option<&Value>, object: &mut Value) -> Result<(), String> {
        protect(old, object, "kubernetes.io/pv-protection");
        Ok(())
    }

    fn prepare_create(&self, object: &mut Value) {
        let now = text(object, "/metadata/creationTimestamp").to_owned();
        set(object, "status", json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
    }

    fn prepare_status(&self, _subresource: &str, old: &Value, new: &mut Value, now: &Value) {
        let before = old["status"].get("lastPhaseTransitionTime");
        let sent = new["status"].get("lastPhaseTransitionTime");
        if sent.is_none() || sent == before {
            let changes = old["status"]["phase"] != new["status"]["phase"];
            if let Some(time) = if changes { Some(now) } else { before } {
                within(new, "status", |status| set(status, "lastPhaseTransitionTime", time.clone()));
            }
        }
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| match old {
            None => volume::validate_volume(new, errors),
            Some(old) => volume::validate_volume_update(old, new, errors),
        })
    }

    fn warnings(&self, _old: Option<&Value>, new: &Value) -> Vec<String> {
        volume::warnings(new)
    }

    fn validate_status(&self, _old: &Value, _new: &Value) -> Vec<Cause> {
        Vec::new()
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        self.references.replace_volume(before, after);
    }
}

/// Sets the defaults of a volume's source, which is a field of a volume or of a pod's volume.
pub(super) fn default_source(volume: &mut Value) {
    present(volume, "hostPath", |path| fill(path, "type", ""));
    present(volume, "iscsi", |iscsi| fill_zero(iscsi, "iscsiInterface", "default"));
    present(volume, "rbd", |rbd| {
        fill_zero(rbd, "pool", "rbd");
        fill_zero(rbd, "user", "admin");
        fill_zero(rbd, "keyring", "/etc/ceph/keyring");
    });
    present(volume, "azureDisk", |disk| {
        fill(disk, "cachingMode", "ReadWrite");
        fill(disk, "fsType", "ext4");
        fill(disk, "readOnly", false);
        fill(disk, "kind", "Shared");
    });
    present(volume, "scaleIO", |scale| {
        fill_zero(scale, "storageMode", "ThinProvisioned");
        fill_zero(scale, "fsType", "xfs");
    });
}

/// The strategy of persistent volume claims.
#[derive(Debug)]
pub(super) struct ClaimStrategy {
    pub(super) limits: Arc<LimitRanges>,
    pub(super) classes: Arc<Classes>,
    pub(super) plugins: Arc<Plugins>,
}

impl ClaimStrategy {
    /// Returns why a claim can't request more than before, if it does.
    fn forbids_growth(&self, old: &Value, new: &Value) -> Option<&'static str> {
        let [before, after] =
            [old, new].map(|claim| Quantity::read(&claim["spec"]["resources"]["requests"]["storage"]));
        if after <= before {
            return None;
        }
        if text(old, "/status/phase") != "Bound" {
            return Some("Only bound persistent volume claims can be expanded");
        }
        let [old, new] = [old, new].map(class_of);
        let expands = !new.is_empty() && old == new && self.classes.expands(new);
        (!expands).then_some(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support \
             resize",
        )
    }
}

/// Returns the storage class of a claim, or an empty text.
fn class_of(claim: &Value) -> &str {
    let annotation = claim["metadata"]["annotations"].get(claim::CLASS).and_then(Value::as_str);
    annotation.unwrap_or_else(|| text(claim, "/spec/storageClassName"))
}

impl Strategy for ClaimStrategy {
    fn default(&self, object: &mut Value) {
        default_claim(object);
    }

    fn admit(&self, old: Option<&Value>, object: &mut Value) -> Result<(), String> {
        protect(old, object, "kubernetes.io/pvc-protection");
        let has_class =
            has(object, "/spec/storageClassName") || object["metadata"]["annotations"].get(claim::CLASS).is_some();
        if old.is_none()
            && !has_class
            && self.plugins.has(AdmissionPlugin::DefaultStorageClass)
            && let Some(class) = self.classes.default_class()
        {
            within(object, "spec", |spec| set(spec, "storageClassName", class));
        }
        Ok(())
    }

    fn prepare_create(&self, object: &mut Value) {
        within(object, "status", |status| fill(status, "phase", "Pending"));
        claim::drop_other_namespace(&Value::Null, object);
        claim::keep_known_source(&Value::Null, object);
        claim::align_sources(object);
    }

    fn prepare_update(&self, old: &Value, new: &mut Value) {
        claim::drop_other_namespace(old, new);
        claim::keep_known_source(old, new);
        claim::align_sources(new);
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| match old {
            None => claim::validate_claim(new, errors),
            Some(old) => claim::validate_claim_update(old, new, errors),
        })
    }

    fn check_access(&self, _requester: &Requester<'_>, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        let is_deleting = old.is_some_and(|old| has(old, "/metadata/deletionTimestamp"));
        let is_limited = !is_deleting && self.plugins.has(AdmissionPlugin::LimitRanger);
        let limits = || self.limits.forbids_claim(new).filter(|_| is_limited);
        let resized = old.filter(|_| self.plugins.has(AdmissionPlugin::PersistentVolumeClaimResize));
        let growth = || resized.and_then(|old| self.forbids_growth(old, new)).map(String::from);
        match limits().or_else(growth) {
            Some(why) => Err(Status::forbidden("", "persistentvolumeclaims", text(new, "/metadata/name"), &why)),
            None => Ok(()),
        }
    }

    fn warnings(&self, _old: Option<&Value>, new: &Value) -> Vec<String> {
        claim::warnings(new)
    }

    fn validate_status(&self, _old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| claim::validate_status(&new["status"], errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

/// Sets the defaults of a claim, including that in a template.
pub(super) fn default_claim(claim: &mut Value) {
    within(claim, "spec", |spec| fill(spec, "volumeMode", "Filesystem"));
    within(claim, "status", |status| fill_zero(status, "phase", "Pending"));
}

/// Adds the finalizer that keeps a new volume, claim or class of attributes while it is in use. A controller removes
/// it.
fn protect(old: Option<&Value>, object: &mut Value, finalizer: &str) {
    let mut finalizers = list(object, "/metadata/finalizers").to_vec();
    if old.is_none() && !finalizers.iter().any(|present| present == finalizer) {
        finalizers.push(finalizer.into());
        within(object, "metadata", |metadata| set(metadata, "finalizers", finalizers));
    }
}

/// Checks the values of `accessModes`.
fn validate_access_modes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let path = path.child("accessModes");
    let (mut exclusive, mut shared) = (false, false);
    for mode in strings(spec, "accessModes") {
        if !MODES.contains(&mode) {
            errors.not_supported(&path, mode, MODES);
        }
        exclusive |= mode == "ReadWriteOncePod";
        shared |= mode != "ReadWriteOncePod" && MODES.contains(&mode);
    }
    if exclusive && shared {
        errors.forbidden(&path, "may not use ReadWriteOncePod with other access modes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> ClaimStrategy {
        ClaimStrategy { limits: Arc::default(), classes: Arc::default(), plugins: Arc::default() }
    }

    fn volumes() -> VolumeStrategy {
        VolumeStrategy { references: Arc::default() }
    }

    #[test]
    fn volumes_get_their_published_defaults() {
        let mut volume = json!({"metadata": {"creationTimestamp": "T"}, "spec": {"hostPath": {"path": "/x"}}});
        Strategy::default(&volumes(), &mut volume);
        let spec = json!({
            "hostPath": {"path": "/x", "type": ""}, "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem",
        });
        assert_eq!((&volume["spec"], &volume["status"]), (&spec, &json!({"phase": "Pending"})));
        volumes().prepare_create(&mut volume);
        assert_eq!(volume["status"], json!({"phase": "Pending", "lastPhaseTransitionTime": "T"}));
    }

    #[test]
    fn the_time_of_a_new_phase_is_noted() {
        let check = |status: Value, expect: &str| {
            let old = json!({"status": {"phase": "Pending", "lastPhaseTransitionTime": "T"}});
            let mut new = json!({"status": status});
            volumes().prepare_status("status", &old, &mut new, &json!("now"));
            assert_eq!(new["status"]["lastPhaseTransitionTime"], expect, "{new}");
        };
        check(json!({"phase": "Bound"}), "now");
        check(json!({"phase": "Bound", "lastPhaseTransitionTime": "T"}), "now");
        check(json!({"phase": "Bound", "lastPhaseTransitionTime": "own"}), "own");
        check(json!({"phase": "Pending", "lastPhaseTransitionTime": "T"}), "T");
        check(json!({"phase": "Pending"}), "T");
    }

    #[test]
    fn only_new_objects_are_protected() {
        let mut claim = json!({"metadata": {"finalizers": ["a/b"]}});
        claims().admit(None, &mut claim).unwrap();
        assert_eq!(claim["metadata"]["finalizers"], json!(["a/b", "kubernetes.io/pvc-protection"]));
        let old = claim.clone();
        claim["metadata"]["finalizers"] = json!([]);
        claims().admit(Some(&old), &mut claim).unwrap();
        assert_eq!(claim["metadata"]["finalizers"], json!([]));
    }
}
