//! Validation of kinds that run pods from a template.

use kubewright_apimachinery::{name, selector::LabelSelector};
use serde_json::{Map, Value, json};

use crate::registry::builtin::{
    pod::{validate_pod_template, validate_template_metadata},
    storage::validate_claim_spec,
    validation::{
        Errors, Path, Shown, entries, field, int, is_empty_selector, items, optional_int, string,
        validate_label_selector, validate_nonnegative, validate_text,
    },
};

const SPEC: Path<'static> = Path::new("spec");

/// Checks a deployment.
pub(super) fn validate_deployment(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let spec = &new["spec"];
    validate_nonnegative(int(spec, "replicas"), &SPEC.child("replicas"), errors);
    if validate_selector(spec, "deployment", "invalid label selector", errors) {
        validate_template(spec, "ReplicaSet", errors);
    }
    validate_deployment_strategy(&spec["strategy"], &SPEC.child("strategy"), errors);
    validate_nonnegative(int(spec, "minReadySeconds"), &SPEC.child("minReadySeconds"), errors);
    validate_nonnegative(int(spec, "revisionHistoryLimit"), &SPEC.child("revisionHistoryLimit"), errors);
    if let Some(seconds) = optional_int(spec, "progressDeadlineSeconds") {
        let path = SPEC.child("progressDeadlineSeconds");
        validate_nonnegative(seconds, &path, errors);
        if seconds <= int(spec, "minReadySeconds") {
            errors.invalid(&path, seconds, "must be greater than minReadySeconds");
        }
    }
    validate_immutable_selector(old, new, errors);
}

/// Checks a replica set.
pub(super) fn validate_replica_set(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let spec = &new["spec"];
    validate_nonnegative(int(spec, "replicas"), &SPEC.child("replicas"), errors);
    validate_nonnegative(int(spec, "minReadySeconds"), &SPEC.child("minReadySeconds"), errors);
    // The message of Kubernetes names the wrong kind.
    if validate_selector(spec, "deployment", "invalid label selector", errors) {
        validate_template(spec, "ReplicaSet", errors);
    }
    validate_immutable_selector(old, new, errors);
}

/// Checks a replication controller.
pub(super) fn validate_replication_controller(new: &Value, errors: &mut Errors) {
    let spec = &new["spec"];
    validate_nonnegative(int(spec, "minReadySeconds"), &SPEC.child("minReadySeconds"), errors);
    let selector = entries(spec, "selector").next().is_some();
    if !selector {
        errors.required(&SPEC.child("selector"), "");
    }
    match optional_int(spec, "replicas") {
        Some(replicas) => validate_nonnegative(replicas, &SPEC.child("replicas"), errors),
        None => errors.required(&SPEC.child("replicas"), ""),
    }
    let path = SPEC.child("template");
    if field(spec, "template").is_none() {
        errors.required(&path, "");
        return;
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if selector && entries(spec, "selector").any(|(key, value)| labels.get(key) != Some(value)) {
        not_selected(labels, &path, errors);
    }
    validate_pod_template(&spec["template"], &path, errors);
    validate_restarts(spec, "ReplicationController", errors);
}

/// Checks a daemon set.
pub(super) fn validate_daemon_set(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    if let Some(old) = old {
        validate_immutable_selector(Some(old), new, errors);
    }
    let spec = &new["spec"];
    let (selector, at) = (field(spec, "selector"), SPEC.child("selector"));
    if let Some(selector) = selector {
        validate_label_selector(selector, &at, errors);
    }
    let labels = &spec["template"]["metadata"]["labels"];
    // A missing selector matches nothing.
    let matches = match selector.map(LabelSelector::from_object) {
        None => Some(false),
        Some(parsed) => parsed.ok().map(|parsed| parsed.matches_labels(labels)),
    };
    let path = SPEC.child("template");
    if matches == Some(false) {
        not_selected(labels, &path, errors);
    }
    if let Some(selector) = selector.filter(|selector| is_empty_selector(selector)) {
        errors.invalid(&at, Shown::selector(selector), "empty selector is invalid for daemonset");
    }
    validate_pod_template(&spec["template"], &path, errors);
    validate_restarts(spec, "DaemonSet", errors);
    validate_nonnegative(int(spec, "minReadySeconds"), &SPEC.child("minReadySeconds"), errors);
    validate_daemon_set_strategy(&spec["updateStrategy"], &SPEC.child("updateStrategy"), errors);
    validate_nonnegative(int(spec, "revisionHistoryLimit"), &SPEC.child("revisionHistoryLimit"), errors);
}

/// Checks a stateful set.
pub(super) fn validate_stateful_set(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let spec = &new["spec"];
    match string(spec, "podManagementPolicy") {
        "" => errors.required(&SPEC.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(&SPEC.child("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'"),
    }
    validate_stateful_set_strategy(&spec["updateStrategy"], errors);
    if let Some(policy) = field(spec, "persistentVolumeClaimRetentionPolicy") {
        let path = SPEC.child("persistentVolumeClaimRetentionPolicy");
        for name in ["whenDeleted", "whenScaled"] {
            let value = string(policy, name);
            if !["Retain", "Delete"].contains(&value) {
                errors.not_supported(&path.child(name), value, &["Retain", "Delete"]);
            }
        }
    }
    if old.is_none() {
        let path = SPEC.child("volumeClaimTemplates");
        for (index, claim) in items(spec, "volumeClaimTemplates").iter().enumerate() {
            let path = path.index(index);
            validate_claim_spec(&claim["spec"], &path.child("spec"), errors);
        }
    }
    validate_nonnegative(int(spec, "replicas"), &SPEC.child("replicas"), errors);
    validate_nonnegative(int(spec, "minReadySeconds"), &SPEC.child("minReadySeconds"), errors);
    validate_nonnegative(int(&spec["ordinals"], "start"), &SPEC.child("ordinals.start"), errors);
    let service = string(spec, "serviceName");
    if old.is_none() && !service.is_empty() {
        validate_text(service, name::dns1123_label, &SPEC.child("serviceName"), errors);
    }
    if validate_selector(spec, "statefulset", "", errors) {
        let path = SPEC.child("template");
        validate_selected(spec, &path, errors);
        let template = effective_template(spec);
        validate_pod_template(&template, &path, errors);
        // Kubernetes checks the metadata twice.
        validate_template_metadata(&template, &path, errors);
    }
    validate_restarts(spec, "StatefulSet", errors);
    if old.is_some_and(|old| immutable_part(&old["spec"]) != immutable_part(spec)) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
        errors.forbidden(&SPEC, why);
    }
}

/// Returns the template of a stateful set with what the controller sets: the volumes of the claims, and host names.
fn effective_template(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let claims = items(spec, "volumeClaimTemplates");
    let name = |claim: &Value| string(&claim["metadata"], "name").to_owned();
    if let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) {
        pod.remove("subdomain");
        pod.remove("hostname");
        if !claims.is_empty() {
            let mut volumes: Map<_, _> = Map::new();
            for claim in claims {
                let name = name(claim);
                let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
                volumes.insert(name, volume);
            }
            let own = items(&spec["template"]["spec"], "volumes");
            let own: Vec<_> =
                own.iter().filter(|volume| !volumes.contains_key(string(volume, "name"))).cloned().collect();
            let all: Vec<_> = volumes.into_iter().map(|(_, volume)| volume).chain(own).collect();
            pod.insert("volumes".into(), all.into());
        }
    }
    template
}

fn immutable_part(spec: &Value) -> Map<String, Value> {
    const MUTABLE: &[&str] = &[
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ];
    let mut fields = spec.as_object().cloned().unwrap_or_default();
    fields.retain(|name, value| !MUTABLE.contains(&name.as_str()) && !value.is_null());
    fields
}

/// Checks that there is a selector with a requirement. Returns whether it can be evaluated.
fn validate_selector(spec: &Value, kind: &str, why: &str, errors: &mut Errors) -> bool {
    let path = SPEC.child("selector");
    let Some(selector) = field(spec, "selector") else {
        errors.required(&path, "");
        // A missing selector matches nothing.
        not_selected(&spec["template"]["metadata"]["labels"], &SPEC.child("template"), errors);
        return true;
    };
    validate_label_selector(selector, &path, errors);
    if is_empty_selector(selector) {
        errors.invalid(&path, Shown::selector(selector), &format!("empty selector is invalid for {kind}"));
    }
    if LabelSelector::from_object(selector).is_err() {
        errors.invalid(&path, Shown::selector(selector), why);
        return false;
    }
    true
}

/// Checks that the selector, if it has a requirement, matches the labels of the template at `path`.
fn validate_selected(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let labels = &spec["template"]["metadata"]["labels"];
    let Some(selector) = field(spec, "selector").filter(|selector| !is_empty_selector(selector)) else { return };
    if LabelSelector::from_object(selector).is_ok_and(|selector| !selector.matches_labels(labels)) {
        not_selected(labels, path, errors);
    }
}

fn not_selected(labels: &Value, template: &Path<'_>, errors: &mut Errors) {
    let path = template.child("metadata");
    errors.invalid(&path.child("labels"), labels.clone(), "`selector` does not match template `labels`");
}

/// Checks the template of a deployment or replica set.
fn validate_template(spec: &Value, kind: &str, errors: &mut Errors) {
    let path = SPEC.child("template");
    validate_selected(spec, &path, errors);
    validate_pod_template(&spec["template"], &path, errors);
    validate_restarts(spec, kind, errors);
}

/// Checks that the pods of the template always run.
fn validate_restarts(spec: &Value, kind: &str, errors: &mut Errors) {
    let template = SPEC.child("template");
    let path = template.child("spec");
    let policy = string(&spec["template"]["spec"], "restartPolicy");
    if policy != "Always" {
        errors.not_supported(&path.child("restartPolicy"), policy, &["Always"]);
    }
    if field(&spec["template"]["spec"], "activeDeadlineSeconds").is_some() {
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(&path.child("activeDeadlineSeconds"), &why);
    }
}

fn validate_immutable_selector(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    if let Some(old) = old
        && old["spec"]["selector"] != new["spec"]["selector"]
    {
        errors.invalid(&SPEC.child("selector"), Shown::selector(&new["spec"]["selector"]), "field is immutable");
    }
}

/// Returns the number of a percentage such as `25%`.
fn percentage(value: &Value) -> Option<u64> {
    let digits = value.as_str()?.strip_suffix('%')?;
    let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    valid.then(|| digits.parse().unwrap_or(u64::MAX))
}

fn is_zero(value: &Value) -> bool {
    percentage(value).map_or_else(|| value.as_i64().unwrap_or_default() == 0, |percent| percent == 0)
}

/// Checks a number that isn't negative, or a percentage.
pub(in crate::registry::builtin) fn validate_positive_int_or_percent(
    value: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if value.is_string() && percentage(value).is_none() {
        let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                   regex used for validation is '[0-9]+%')";
        errors.invalid(path, value.clone(), why);
    } else if let Some(number) = value.as_i64() {
        validate_nonnegative(number, path, errors);
    }
}

/// Checks that a percentage doesn't exceed the whole.
pub(in crate::registry::builtin) fn validate_not_more_than_whole(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if percentage(value).is_some_and(|percent| percent > 100) {
        errors.invalid(path, value.clone(), "must not be greater than 100%");
    }
}

/// Shows an update strategy in the form of Kubernetes' internal type. `names` are the parameters in their order.
fn shown_strategy(strategy: &Value, names: &[(&'static str, &str)]) -> Shown {
    Shown::object([("Type", string(strategy, "type").into()), ("RollingUpdate", shown_update(strategy, names))])
}

fn shown_update(strategy: &Value, names: &[(&'static str, &str)]) -> Shown {
    match field(strategy, "rollingUpdate") {
        None => Value::Null.into(),
        Some(update) => Shown::object(names.iter().map(|(shown, name)| (*shown, Shown::nullable(update.get(name))))),
    }
}

const SURGE: &[(&str, &str)] = &[("MaxUnavailable", "maxUnavailable"), ("MaxSurge", "maxSurge")];
const PARTITION: &[(&str, &str)] = &[("Partition", "partition"), ("MaxUnavailable", "maxUnavailable")];

fn validate_deployment_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("rollingUpdate");
    match (string(strategy, "type"), field(strategy, "rollingUpdate")) {
        ("Recreate", Some(_)) => {
            errors.forbidden(&at, "may not be specified when strategy `type` is 'Recreate'");
        }
        ("Recreate", None) => {}
        ("RollingUpdate", None) => errors.required(&at, "this should be defaulted and never be nil"),
        ("RollingUpdate", Some(update)) => {
            let (unavailable, surge) = (&update["maxUnavailable"], &update["maxSurge"]);
            validate_positive_int_or_percent(unavailable, &at.child("maxUnavailable"), errors);
            validate_positive_int_or_percent(surge, &at.child("maxSurge"), errors);
            if is_zero(unavailable) && is_zero(surge) {
                let why = "may not be 0 when `maxSurge` is 0";
                errors.invalid(&at.child("maxUnavailable"), unavailable.clone(), why);
            }
            validate_not_more_than_whole(unavailable, &at.child("maxUnavailable"), errors);
        }
        _ => errors.not_supported(path, shown_strategy(strategy, SURGE), &["Recreate", "RollingUpdate"]),
    }
}

fn validate_daemon_set_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("rollingUpdate");
    match (string(strategy, "type"), field(strategy, "rollingUpdate")) {
        ("OnDelete", _) => {}
        ("RollingUpdate", None) => errors.required(&at, ""),
        ("RollingUpdate", Some(update)) => {
            let (unavailable, surge) = (&update["maxUnavailable"], &update["maxSurge"]);
            validate_positive_int_or_percent(unavailable, &at.child("maxUnavailable"), errors);
            validate_positive_int_or_percent(surge, &at.child("maxSurge"), errors);
            validate_not_more_than_whole(unavailable, &at.child("maxUnavailable"), errors);
            validate_not_more_than_whole(surge, &at.child("maxSurge"), errors);
            match (is_zero(unavailable), is_zero(surge)) {
                (false, false) => {
                    let why = "may not be set when maxUnavailable is non-zero";
                    errors.invalid(&at.child("maxSurge"), surge.clone(), why);
                }
                (true, true) => errors.required(&at.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => errors.not_supported(path, shown_strategy(strategy, SURGE), &["RollingUpdate", "OnDelete"]),
    }
}

fn validate_stateful_set_strategy(strategy: &Value, errors: &mut Errors) {
    let path = SPEC.child("updateStrategy");
    let at = path.child("rollingUpdate");
    match (string(strategy, "type"), field(strategy, "rollingUpdate")) {
        ("", _) => errors.required(&path, ""),
        ("OnDelete", Some(_)) => {
            errors.invalid(&at, shown_update(strategy, PARTITION), "only allowed for updateStrategy 'RollingUpdate'");
        }
        ("RollingUpdate", Some(update)) => {
            validate_nonnegative(int(update, "partition"), &at.child("partition"), errors);
            if let Some(unavailable) = field(update, "maxUnavailable") {
                let at = at.child("maxUnavailable");
                validate_positive_int_or_percent(unavailable, &at, errors);
                if is_zero(unavailable) {
                    errors.invalid(&at, unavailable.clone(), "cannot be 0");
                }
                validate_not_more_than_whole(unavailable, &at, errors);
            }
        }
        ("OnDelete" | "RollingUpdate", None) => {}
        _ => errors.invalid(&path, shown_strategy(strategy, PARTITION), "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

/// Checks a controller revision.
pub(super) fn validate_controller_revision(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    validate_nonnegative(int(new, "revision"), &Path::new("revision"), errors);
    let data = Path::new("data");
    match (old, field(new, "data")) {
        (None, None) => errors.required(&data, "data is mandatory"),
        (None, Some(value)) if !value.is_object() => errors.required(&data, "data must be a valid JSON object"),
        (Some(old), _) if old["data"] != new["data"] => {
            errors.invalid(&data, new["data"].clone(), "field is immutable");
        }
        _ => {}
    }
}
