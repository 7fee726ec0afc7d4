//! The decisions about volumes.

use serde_json::{Value, json};

use super::{CHOSEN, PROVISIONED, Volumes, annotation, claim_of, provision};
use crate::controllers::{
    kind::Kind,
    reconcile::{Plan, Step},
    value::{is_deleting, text},
};

/// Decides the next steps for a volume.
pub(super) fn decide(all: &Volumes, volume: &Value, plan: &mut Plan) {
    let uid = &volume["spec"]["claimRef"]["uid"];
    let Some(key) = claim_of(volume).filter(|_| !uid.as_str().unwrap_or_default().is_empty()) else {
        return plan.steps.extend(phase(volume, "Available", None));
    };
    let claim = all.claims.get(&key).filter(|claim| claim["metadata"]["uid"] == *uid);
    let Some(claim) = claim else { return release(all, volume, plan) };
    let bound = text(claim, "/spec/volumeName");
    if bound.is_empty() {
        // The decision about the claim completes the binding.
        return;
    }
    if *bound == volume["metadata"]["name"] {
        return plan.steps.extend(phase(volume, "Bound", None));
    }
    let provisioned = annotation(volume, PROVISIONED).is_some();
    if provisioned && text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete" {
        // The claim has found another volume meanwhile.
        return release(all, volume, plan);
    }
    let patch = match annotation(volume, CHOSEN) {
        Some(_) => json!({"metadata": {"annotations": {CHOSEN: null}}, "spec": {"claimRef": null}}),
        None => json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}}),
    };
    plan.steps.push(Step::change(&Kind::VOLUME, volume, patch));
    plan.steps.extend(phase(volume, "Available", None));
}

/// Applies the reclaim policy to a volume whose claim is gone.
fn release(all: &Volumes, volume: &Value, plan: &mut Plan) {
    let before = text(volume, "/status/phase");
    let name = text(volume, "/metadata/name");
    let failure = match text(volume, "/spec/persistentVolumeReclaimPolicy") {
        "Delete" if provision::folder(all, volume).is_some() || annotation(volume, PROVISIONED).is_some() => None,
        "Delete" => Some((
            "VolumeFailedDelete",
            format!("error getting deleter volume plugin for volume \"{name}\": no deletable volume plugin matched"),
        )),
        "Recycle" => Some(("VolumeFailedRecycle", "No recycler plugin found for the volume!".into())),
        _ => None,
    };
    if let Some((reason, message)) = failure {
        if before != "Failed" {
            plan.steps.extend(phase(volume, "Failed", Some(&message)));
            plan.event(true, reason, message);
        }
        return;
    }
    if before != "Released" && before != "Failed" {
        plan.steps.extend(phase(volume, "Released", None));
    }
    let deletes = text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete" && !is_deleting(volume);
    if let Some(folder) = provision::folder(all, volume).filter(|_| deletes) {
        plan.steps.push(Step::RemoveFolder(folder));
        plan.steps.push(Step::delete(&Kind::VOLUME, volume));
    }
}

/// Returns the step that sets the phase of a volume; `None` if it has the phase.
pub(super) fn phase(volume: &Value, phase: &str, message: Option<&str>) -> Option<Step> {
    if text(volume, "/status/phase") == phase {
        return None;
    }
    // The server adds the time.
    let metadata = json!({"uid": volume["metadata"]["uid"]});
    let patch = json!({"metadata": metadata, "status": {"phase": phase, "message": message}});
    let name = text(volume, "/metadata/name");
    Some(Step::Merge(Kind::VOLUME.address("", name), "/status", patch))
}
