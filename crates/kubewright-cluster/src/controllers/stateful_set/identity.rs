//! The ordinals of pods, and what follows from them: names, labels, host names and claims.

use serde_json::{Value, json};

use super::{REVISION, Revisions, STATEFUL_SET, claims};
use crate::controllers::{
    pod::from_template,
    value::{int, list, text},
};

/// The label with the name of a pod.
const NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label with the ordinal of a pod.
const INDEX: &str = "apps.kubernetes.io/pod-index";

/// Returns the ordinal of a pod of a set; `None` if its name isn't that of a pod of the set.
pub(super) fn ordinal(set: &str, pod: &Value) -> Option<i64> {
    let digits = text(pod, "/metadata/name").strip_prefix(set)?.strip_prefix('-')?;
    let ordinal: i32 = digits.parse().ok()?;
    (ordinal >= 0 && ordinal.to_string() == digits).then(|| ordinal.into())
}

/// Returns the ordinals of the pods that the set should have.
pub(super) fn ordinals(set: &Value) -> std::ops::Range<i64> {
    let first = int(set, "/spec/ordinals/start");
    first..first + int(set, "/spec/replicas")
}

/// Returns the name of the pod with an ordinal.
pub(super) fn pod_name(set: &Value, ordinal: i64) -> String {
    format!("{}-{ordinal}", text(set, "/metadata/name"))
}

/// Returns a new pod. Below the partition of a rolling update it has the current revision, otherwise that of the
/// present template.
pub(super) fn new_pod(set: &Value, revisions: &Revisions, ordinal: i64) -> Value {
    let update = &set["spec"]["updateStrategy"];
    let keeps = match update.get("rollingUpdate").filter(|parameters| !parameters.is_null()) {
        Some(parameters) => int(parameters, "/partition"),
        None if text(update, "/type") == "RollingUpdate" => int(set, "/status/currentReplicas"),
        None => 0,
    };
    let (template, revision) = if ordinal - ordinals(set).start < keeps {
        (&revisions.current_template, &revisions.current)
    } else {
        (&set["spec"]["template"], &revisions.update.name)
    };
    let name = pod_name(set, ordinal);
    let mut pod = from_template(template, set, &STATEFUL_SET.api_version(), STATEFUL_SET.kind);
    pod["metadata"]["name"] = name.as_str().into();
    pod["metadata"]["labels"][REVISION] = revision.as_str().into();
    for (label, value) in labels(set, ordinal) {
        pod["metadata"]["labels"][label] = value.into();
    }
    pod["spec"]["hostname"] = name.into();
    if !text(set, "/spec/serviceName").is_empty() {
        pod["spec"]["subdomain"] = set["spec"]["serviceName"].clone();
    }
    let templates = list(set, "/spec/volumeClaimTemplates");
    let mut volumes: Vec<Value> = Vec::new();
    for claim in templates {
        let name = claims::name(set, claim, ordinal);
        volumes.push(json!({"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": name}}));
    }
    let others = list(&pod, "/spec/volumes").iter();
    let is_claimed = |volume: &Value| templates.iter().any(|claim| claim["metadata"]["name"] == volume["name"]);
    volumes.extend(others.filter(|volume| !is_claimed(volume)).cloned());
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = volumes.into();
    }
    pod
}

fn labels(set: &Value, ordinal: i64) -> [(&'static str, String); 2] {
    [(NAME, pod_name(set, ordinal)), (INDEX, ordinal.to_string())]
}

/// Returns the patch that gives a pod the labels of its ordinal; `None` if it has them.
pub(super) fn relabel(set: &Value, pod: &Value, ordinal: i64) -> Option<Value> {
    // The index is set with the name only, as in Kubernetes.
    let is_named = pod["metadata"]["labels"][NAME] == pod["metadata"]["name"];
    (!is_named).then(|| {
        json!({"metadata": {"labels": serde_json::Map::from_iter(
            labels(set, ordinal).map(|(label, value)| (label.to_owned(), value.into())),
        )}})
    })
}
