//! The decisions about claims.

use serde_json::{Value, json};

use super::{
    CHOSEN, COMPLETED, SELECTED_NODE, Volumes, annotation, claim_of, class_of, is_completed, is_delayed, matching,
    provision, reference, volumes,
};
use crate::controllers::{
    kind::Kind,
    reconcile::{Key, Plan, Step},
    value::{is_deleting, text},
};

/// The field of a claim's status with the class of its volume's attributes.
const ATTRIBUTES: &str = "currentVolumeAttributesClassName";
/// The fields of a claim's status that describe its volume.
const OF_VOLUME: [&str; 3] = ["accessModes", "capacity", ATTRIBUTES];

/// Decides the next steps for a claim.
pub(super) fn decide(all: &Volumes, key: &Key, claim: &Value, plan: &mut Plan) {
    let wanted = text(claim, "/spec/volumeName");
    if is_completed(claim) {
        return check(all, claim, plan);
    }
    if is_deleting(claim) {
        return;
    }
    if wanted.is_empty() {
        return choose(all, key, claim, plan);
    }
    let Some(volume) = all.volumes.get(wanted) else { return };
    if volume["spec"]["claimRef"].is_null() {
        match matching::mismatch(volume, claim) {
            None => bind(volume, claim, plan),
            Some(why) => {
                plan.event(true, "VolumeMismatch", format!("Cannot bind to requested volume \"{wanted}\": {why}"));
            }
        }
    } else if matching::is_for(volume, claim, key) {
        bind(volume, claim, plan);
    } else {
        plan.event(true, "FailedBinding", format!("volume \"{wanted}\" already bound to a different claim."));
    }
}

/// Binds a claim that accepts any volume.
fn choose(all: &Volumes, key: &Key, claim: &Value, plan: &mut Plan) {
    let Some(class) = class_of(claim) else {
        match provision::default_class(all) {
            Some(class) => {
                let patch = json!({"spec": {"storageClassName": class}});
                plan.steps.push(Step::change(&Kind::CLAIM, claim, patch));
            }
            None => choose_of_class(all, key, claim, "", plan),
        }
        return;
    };
    choose_of_class(all, key, claim, class, plan);
}

fn choose_of_class(all: &Volumes, key: &Key, claim: &Value, class: &str, plan: &mut Plan) {
    // The scheduler chooses a volume for the claim, or a node for a new one.
    let is_delayed = is_delayed(all.classes.get(class).map(|class| &**class));
    if let Some(volume) = matching::best(all.volumes.values(), claim, key, |_| !is_delayed) {
        bind(volume, claim, plan);
    } else if is_delayed && annotation(claim, SELECTED_NODE).is_none() {
        let (reason, message) = match &all.waiting_pods(key)[..] {
            [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".into()),
            [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
            pods => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", pods.join(","))),
        };
        plan.event(false, reason, message);
    } else if class.is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        plan.event(false, "FailedBinding", message.into());
    } else {
        provision::provision(all, claim, class, plan);
    }
}

/// Sets a field, or removes it if the value is null.
fn set(status: &mut Value, field: &str, value: &Value) {
    if !value.is_null() {
        status[field] = value.clone();
    } else if let Some(status) = status.as_object_mut() {
        status.remove(field);
    }
}

/// Checks a claim that was bound.
fn check(all: &Volumes, claim: &Value, plan: &mut Plan) {
    let name = text(claim, "/spec/volumeName");
    let uid = &claim["metadata"]["uid"];
    let (reason, message) = match all.volumes.get(name) {
        _ if name.is_empty() => {
            ("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
        }
        None => ("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"),
        Some(volume) if volume["spec"]["claimRef"].is_null() || volume["spec"]["claimRef"]["uid"] == *uid => {
            return bind(volume, claim, plan);
        }
        Some(_) => ("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly"),
    };
    if text(claim, "/status/phase") != "Lost" {
        let mut status = claim["status"].clone();
        status["phase"] = "Lost".into();
        if let Some(status) = status.as_object_mut() {
            status.retain(|field, _| !OF_VOLUME.contains(&field.as_str()));
        }
        plan.steps.extend(Step::status(&Kind::CLAIM, claim, status));
        plan.event(true, reason, message.into());
    }
}

/// Binds a volume and a claim to each other, the volume first. What is done already is left out.
fn bind(volume: &Value, claim: &Value, plan: &mut Plan) {
    let metadata = &claim["metadata"];
    if volume["spec"]["claimRef"]["uid"] != metadata["uid"] {
        let mut patch = json!({"spec": {"claimRef": reference(claim)}});
        if claim_of(volume).is_none() {
            patch["metadata"]["annotations"][CHOSEN] = "yes".into();
        }
        plan.steps.push(Step::change(&Kind::VOLUME, volume, patch));
    }
    plan.steps.extend(volumes::phase(volume, "Bound", None));
    let mut patch = json!({});
    if claim["spec"]["volumeName"] != volume["metadata"]["name"] {
        patch["spec"]["volumeName"] = volume["metadata"]["name"].clone();
        patch["metadata"]["annotations"][CHOSEN] = "yes".into();
    }
    if annotation(claim, COMPLETED).is_none() {
        patch["metadata"]["annotations"][COMPLETED] = "yes".into();
    }
    if patch != json!({}) {
        plan.steps.push(Step::change(&Kind::CLAIM, claim, patch));
    }
    let mut status = claim["status"].clone();
    // Later, whoever changes the attributes of the volume reports their class.
    if status["phase"] == "Pending" {
        set(&mut status, ATTRIBUTES, &volume["spec"]["volumeAttributesClassName"]);
    }
    status["phase"] = "Bound".into();
    status["accessModes"] = volume["spec"]["accessModes"].clone();
    // The size of a volume that has grown is reported by the one who resized it.
    if status["capacity"].is_null() {
        status["capacity"] = volume["spec"]["capacity"].clone();
    }
    plan.steps.extend(Step::status(&Kind::CLAIM, claim, status));
}
