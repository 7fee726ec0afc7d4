//! The volumes that satisfy a claim.

use std::sync::Arc;

use serde_json::Value;

use super::{claim_of, class_of};
use crate::{
    controllers::{
        reconcile::Key,
        value::{is_deleting, list, selector, selects, text},
    },
    quantity::quantity,
};

fn size(object: &Value, pointer: &str) -> i128 {
    quantity(text(object, pointer)).unwrap_or_default()
}

/// The place of the class of a volume's attributes, also in claims.
const ATTRIBUTES: &str = "/spec/volumeAttributesClassName";

/// Returns why a volume can't satisfy a claim.
pub(super) fn mismatch(volume: &Value, claim: &Value) -> Option<&'static str> {
    let mode = |object: &Value| text(object, "/spec/volumeMode") == "Block";
    let modes = list(volume, "/spec/accessModes");
    if size(volume, "/spec/capacity/storage") < size(claim, "/spec/resources/requests/storage") {
        Some("requested PV is too small")
    } else if class_of(volume).unwrap_or_default() != class_of(claim).unwrap_or_default() {
        Some("storageClassName does not match")
    } else if text(volume, ATTRIBUTES) != text(claim, ATTRIBUTES) {
        Some("volumeAttributesClassName does not match")
    } else if mode(volume) != mode(claim) {
        Some("incompatible volumeMode")
    } else if !list(claim, "/spec/accessModes").iter().all(|mode| modes.contains(mode)) {
        Some("incompatible accessMode")
    } else {
        None
    }
}

/// Returns whether a volume refers to a claim.
pub(crate) fn is_for(volume: &Value, claim: &Value, key: &Key) -> bool {
    let uid = &volume["spec"]["claimRef"]["uid"];
    claim_of(volume).as_ref() == Some(key)
        && (uid.as_str().unwrap_or_default().is_empty() || *uid == claim["metadata"]["uid"])
}

/// Returns the volume for a claim: one that refers to it, or else the smallest unclaimed one that the claim may have.
pub(crate) fn best<'a>(
    volumes: impl Iterator<Item = &'a Arc<Value>>,
    claim: &Value,
    key: &Key,
    may_have: impl Fn(&Value) -> bool,
) -> Option<&'a Arc<Value>> {
    let labels = &claim["spec"]["selector"];
    let is_selected = |volume: &Value| labels.is_null() || selects(&selector(claim, "/spec/selector"), volume);
    let fits = |volume: &&Arc<Value>| !is_deleting(volume) && mismatch(volume, claim).is_none();
    let is_free = |volume: &Value| {
        volume["spec"]["claimRef"].is_null()
            && text(volume, "/status/phase") == "Available"
            && is_selected(volume)
            && may_have(volume)
    };
    let candidates = volumes.filter(fits).filter(|volume| is_for(volume, claim, key) || is_free(volume));
    candidates.min_by_key(|volume| {
        (!is_for(volume, claim, key), size(volume, "/spec/capacity/storage"), text(volume, "/metadata/name"))
    })
}
