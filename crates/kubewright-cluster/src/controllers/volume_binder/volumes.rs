//! The decisions about volumes.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{CHOSEN, PROVISIONED, Volumes, annotation, claim_of, provision};
use crate::controllers::{
    kind::Kind,
    reconcile::{Plan, Step},
    value::{is_deleting, stamp, text},
};

/// Decides the next steps for a volume.
pub(super) fn decide(all: &Volumes, volume: &Value, now: Timestamp, plan: &mut Plan) {
    let uid = &volume["spec"]["claimRef"]["uid"];
    let Some(key) = claim_of(volume).filter(|_| !uid.as_str().unwrap_or_default().is_empty()) else {
        return plan.steps.extend(phase(volume, "Available", None, now));
    };
    let claim = all.claims.get(&key).filter(|claim| claim["metadata"]["uid"] == *uid);
    let Some(claim) = claim else { return release(all, volume, now, plan) };
    let bound = text(claim, "/spec/volumeName");
    if bound.is_empty() {
        // The decision about the claim completes the binding.
        return;
    }
    if *bound == volume["metadata"]["name"] {
        return plan.steps.extend(phase(volume, "Bound", None, now));
    }
    let provisioned = annotation(volume, PROVISIONED).is_some();
    if provisioned && text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete" {
        // The claim has found another volume meanwhile.
        return release(all, volume, now, plan);
    }
    let patch = match annotation(volume, CHOSEN) {
        Some(_) => json!({"metadata": {"annotations": {CHOSEN: null}}, "spec": {"claimRef": null}}),
        None => json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}}),
    };
    plan.steps.push(Step::change(&Kind::VOLUME, volume, patch));
    plan.steps.extend(phase(volume, "Available", None, now));
}

/// Applies the reclaim policy to a volume whose claim is gone.
fn release(all: &Volumes, volume: &Value, now: Timestamp, plan: &mut Plan) {
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
            plan.steps.extend(phase(volume, "Failed", Some(&message), now));
            plan.event(true, reason, message);
        }
        return;
    }
    if before != "Released" && before != "Failed" {
        plan.steps.extend(phase(volume, "Released", None, now));
    }
    let deletes = text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete" && !is_deleting(volume);
    if let Some(folder) = provision::folder(all, volume).filter(|_| deletes) {
        plan.steps.push(Step::RemoveFolder(folder));
        plan.steps.push(Step::delete(&Kind::VOLUME, volume));
    }
}

/// Returns the step that sets the phase of a volume; `None` if it has the phase.
pub(super) fn phase(volume: &Value, phase: &str, message: Option<&str>, now: Timestamp) -> Option<Step> {
    if text(volume, "/status/phase") == phase {
        return None;
    }
    let mut status = json!({"phase": phase, "lastPhaseTransitionTime": stamp(now)});
    if let Some(message) = message {
        status["message"] = message.into();
    }
    Step::status(&Kind::VOLUME, volume, status)
}
