//! The claims of pods, made from `volumeClaimTemplates`, and the owners that `persistentVolumeClaimRetentionPolicy`
//! gives them.

use serde_json::{Value, json};

use super::{STATEFUL_SET, View, identity};
use crate::controllers::{
    kind::Kind,
    reconcile::{Report, Step},
    value::{controller_reference, is_deleting, list, text},
};

/// Returns the name of a pod's claim from a template.
pub(super) fn name(set: &Value, template: &Value, ordinal: i64) -> String {
    format!("{}-{}", text(template, "/metadata/name"), identity::pod_name(set, ordinal))
}

/// Returns the steps that create the missing claims of a pod; `None` if a claim is being deleted, so that the pod has
/// to wait.
pub(super) fn missing(view: &View<'_>, ordinal: i64) -> Option<Vec<Step>> {
    let set = view.set;
    let mut steps = Vec::new();
    for template in list(set, "/spec/volumeClaimTemplates") {
        let name = name(set, template, ordinal);
        match (view.claim)(&name) {
            Some(claim) if is_deleting(claim) => return None,
            Some(_) => continue,
            None => {}
        }
        let pod = identity::pod_name(set, ordinal);
        let of = view.name();
        let report = Report {
            success: Some(("SuccessfulCreate", format!("Create Claim {name} Pod {pod} in StatefulSet {of} success"))),
            failures: vec![
                ("FailedCreate", format!("Create Claim {name} for Pod {pod} in StatefulSet {of} failed error: ")),
                (
                    "FailedCreate",
                    format!("Create Pod {pod} in StatefulSet {of} failed error: failed to create PVC {name}: "),
                ),
            ],
        };
        let path = Kind::CLAIM.address(text(set, "/metadata/namespace"), "");
        steps.push(Step::Create(path, new_claim(set, template, &name)).reported(report));
    }
    Some(steps)
}

fn new_claim(set: &Value, template: &Value, name: &str) -> Value {
    let mut claim =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {}, "spec": template["spec"]});
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field).filter(|value| !value.is_null()) {
            claim["metadata"][field] = value.clone();
        }
    }
    claim["metadata"]["name"] = name.into();
    for (label, value) in set["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten() {
        claim["metadata"]["labels"][label] = value.clone();
    }
    claim
}

/// Returns whether a claim still belongs to an earlier pod of this name, with which it will be deleted.
pub(super) fn are_stale(view: &View<'_>, ordinal: i64) -> bool {
    let pod = identity::pod_name(view.set, ordinal);
    when(view.set, "whenScaled") == "Delete"
        && all(view, ordinal).any(|claim| owners(claim).any(|owner| refers(owner, "v1", "Pod", &pod)))
}

/// Returns the steps that give the claims of a pod the owners of the retention policy. With the policy `Delete`, a
/// claim belongs to the set, or to its pod once that is no longer among the replicas.
pub(super) fn own(view: &View<'_>, pod: &Value, ordinal: i64) -> Vec<Step> {
    all(view, ordinal).filter_map(|claim| own_claim(view, claim, pod, ordinal)).collect()
}

fn all<'a>(view: &View<'a>, ordinal: i64) -> impl Iterator<Item = &'a Value> {
    let (set, claim) = (view.set, view.claim);
    list(set, "/spec/volumeClaimTemplates").iter().filter_map(move |template| claim(&name(set, template, ordinal)))
}

fn own_claim(view: &View<'_>, claim: &Value, pod: &Value, ordinal: i64) -> Option<Step> {
    let set = view.set;
    let is_set = |owner: &Value| refers(owner, &STATEFUL_SET.api_version(), STATEFUL_SET.kind, view.name());
    let is_pod = |owner: &Value| refers(owner, "v1", "Pod", text(pod, "/metadata/name"));
    let is_stale = |owner: &Value| {
        is_set(owner) && owner["uid"] != set["metadata"]["uid"]
            || is_pod(owner) && owner["uid"] != pod["metadata"]["uid"]
    };
    if owners(claim).any(is_stale) {
        // The owner is an earlier set or pod of this name. The garbage collector deletes the claim.
        return None;
    }
    let (scaled, deleted) = (when(set, "whenScaled") == "Delete", when(set, "whenDeleted") == "Delete");
    let mut wanted: Vec<_> = owners(claim).filter(|owner| !is_set(owner) && !is_pod(owner)).cloned().collect();
    let is_foreign = (scaled || deleted) && wanted.iter().any(|owner| owner["controller"] == true);
    let is_condemned = !identity::ordinals(set).contains(&ordinal);
    if is_foreign {
        // Another controller decides about the claim.
    } else if scaled && is_condemned {
        wanted.push(controller_reference(pod, "v1", "Pod"));
    } else if deleted {
        wanted.push(controller_reference(set, &STATEFUL_SET.api_version(), STATEFUL_SET.kind));
    }
    let same = wanted.len() == owners(claim).count() && owners(claim).all(|owner| wanted.contains(owner));
    (!same).then(|| Step::change(&Kind::CLAIM, claim, json!({"metadata": {"ownerReferences": wanted}})))
}

fn owners(claim: &Value) -> impl Iterator<Item = &Value> {
    list(claim, "/metadata/ownerReferences").iter()
}

fn refers(owner: &Value, api_version: &str, kind: &str, name: &str) -> bool {
    owner["apiVersion"] == api_version && owner["kind"] == kind && owner["name"] == name
}

fn when<'a>(set: &'a Value, event: &str) -> &'a str {
    set["spec"]["persistentVolumeClaimRetentionPolicy"][event].as_str().unwrap_or("Retain")
}
