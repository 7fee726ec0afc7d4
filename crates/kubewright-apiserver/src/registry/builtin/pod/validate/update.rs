//! Updates of pods, of which few fields can change.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    scheduling::validate_tolerations,
    spec::{validate_pod, validate_pod_annotations},
};
use crate::{
    fields::{each, set},
    registry::builtin::{
        pod::annotations,
        validation::{Errors, Path, entries, field, inclusive_range, items, optional_int, string},
    },
};

/// Checks an updated pod.
pub(in crate::registry::builtin::pod) fn validate_update(old: &Value, new: &Value, errors: &mut Errors) {
    validate_pod(new, errors);
    validate_annotations(&old["metadata"], &new["metadata"], errors);
    // Kubernetes checks these annotations twice.
    validate_pod_annotations(new, errors);
    let (old, new, path) = (&old["spec"], &new["spec"], Path::new("spec"));
    for name in ["containers", "initContainers"] {
        if !validate_container_updates(items(old, name), items(new, name), &path.child(name), errors) {
            return;
        }
    }
    if !validate_active_deadline(old, new, &path.child("activeDeadlineSeconds"), errors) {
        return;
    }
    validate_only_added_tolerations(old, new, &path.child("tolerations"), errors);
    validate_only_deleted_gates(old, new, &path.child("schedulingGates"), errors);
    if old == new {
        return;
    }
    let mut changed = without_updatable_fields(old, new);
    if !items(old, "schedulingGates").is_empty() {
        validate_gated(old, &mut changed, &path, errors);
    }
    if !same(old, &changed) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,\
                   `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                   existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                   previously negative)";
        errors.forbidden(&path, &format!("{why}\n{}", differences(old, &changed)));
    }
}

pub(super) fn validate_annotations(old: &Value, new: &Value, errors: &mut Errors) {
    const MIRROR: &str = "kubernetes.io/config.mirror";
    let path = Path::new("metadata.annotations");
    let value = |metadata: &Value, key: &str| metadata["annotations"].get(key).cloned();
    for (key, before) in entries(old, "annotations") {
        if value(new, key).as_ref() == Some(before) {
            continue;
        }
        if key.starts_with(annotations::APP_ARMOR) {
            errors.forbidden(&path.key(key), "may not remove or update AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(&path.key(key), "may not remove or update mirror pod annotation");
        }
    }
    for (key, _) in entries(new, "annotations").filter(|(key, _)| value(old, key).is_none()) {
        if key.starts_with(annotations::APP_ARMOR) {
            errors.forbidden(&path.key(key), "may not add AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(&path.key(key), "may not add mirror pod annotation");
        }
    }
}

/// Checks that no container is added or removed. Returns whether that is so.
fn validate_container_updates(old: &[Value], new: &[Value], path: &Path<'_>, errors: &mut Errors) -> bool {
    if old.len() != new.len() {
        errors.forbidden(path, "pod updates may not add or remove containers");
        return false;
    }
    for (index, container) in new.iter().enumerate() {
        let (image, path) = (string(container, "image"), path.index(index));
        if image.is_empty() {
            errors.required(&path.child("image"), "");
        }
        if image.trim() != image {
            errors.invalid(&path.child("image"), image, "must not have leading or trailing whitespace");
        }
    }
    true
}

/// Checks that the deadline is only set or shortened. Returns whether the validation continues.
fn validate_active_deadline(old: &Value, new: &Value, path: &Path<'_>, errors: &mut Errors) -> bool {
    let deadline = |spec| optional_int(spec, "activeDeadlineSeconds");
    match (deadline(old), deadline(new)) {
        (_, Some(after)) if !(0..=i64::from(i32::MAX)).contains(&after) => {
            errors.invalid(path, after, &inclusive_range(0, i32::MAX.into()));
            false
        }
        (Some(before), Some(after)) if before < after => {
            errors.invalid(path, after, "must be less than or equal to previous value");
            false
        }
        (Some(_), None) => {
            errors.invalid(path, Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn validate_only_added_tolerations(old: &Value, new: &Value, path: &Path<'_>, errors: &mut Errors) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(fields) = toleration.as_object_mut() {
            fields.remove("tolerationSeconds");
        }
        toleration.to_string()
    };
    let kept: BTreeSet<_> = items(new, "tolerations").iter().map(without_seconds).collect();
    if items(old, "tolerations").iter().any(|toleration| !kept.contains(&without_seconds(toleration))) {
        errors.forbidden(path, "existing toleration can not be modified except its tolerationSeconds");
        return;
    }
    validate_tolerations(items(new, "tolerations"), path, errors);
}

fn validate_only_deleted_gates(old: &Value, new: &Value, path: &Path<'_>, errors: &mut Errors) {
    let before: BTreeSet<_> = items(old, "schedulingGates").iter().map(|gate| string(gate, "name")).collect();
    for (index, gate) in items(new, "schedulingGates").iter().enumerate() {
        let name = string(gate, "name");
        if !before.contains(name) {
            let path = path.index(index);
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&path.child("name"), &why);
        }
    }
}

/// Returns the new spec with the old values of the fields that can change.
fn without_updatable_fields(old: &Value, new: &Value) -> Value {
    let mut changed = new.clone();
    for name in ["containers", "initContainers"] {
        let images = items(old, name).iter().map(|container| container["image"].clone());
        for (container, image) in each(&mut changed, name).zip(images) {
            set(container, "image", image);
        }
    }
    let negative = optional_int(old, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0);
    let mut kept = vec!["activeDeadlineSeconds", "schedulingGates", "tolerations"];
    if negative && new["terminationGracePeriodSeconds"] == 1 {
        kept.push("terminationGracePeriodSeconds");
    }
    for name in kept {
        keep(old, &mut changed, name);
    }
    changed
}

/// Sets a field to its old value.
pub(super) fn keep(old: &Value, new: &mut Value, name: &str) {
    if let Some(fields) = new.as_object_mut() {
        match old.get(name) {
            Some(value) => fields.insert(name.into(), value.clone()),
            None => fields.remove(name),
        };
    }
}

/// Checks the choice of nodes of a pod that isn't scheduled yet, which may become narrower, and sets it to the old one.
fn validate_gated(old: &Value, new: &mut Value, path: &Path<'_>, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    if entries(old, "nodeSelector").any(|(key, value)| new["nodeSelector"].get(key) != Some(value)) {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid(&path.child("nodeSelector"), new["nodeSelector"].clone(), why);
    }
    keep(old, new, "nodeSelector");
    let affinity = |spec: &Value| spec["affinity"]["nodeAffinity"].clone();
    let (before, after) = (affinity(old), affinity(new));
    if before == after {
        return;
    }
    let path = path.child("affinity");
    let path = path.child("nodeAffinity");
    let path = path.child(REQUIRED);
    let path = path.child("nodeSelectorTerms");
    let (old_terms, new_terms) =
        (items(&before[REQUIRED], "nodeSelectorTerms"), items(&after[REQUIRED], "nodeSelectorTerms"));
    if !old_terms.is_empty() && old_terms.len() != new_terms.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.invalid(&path, new_terms.to_vec(), why);
    } else {
        for (index, (before, after)) in old_terms.iter().zip(new_terms).enumerate() {
            let grows = |name| items(after, name).starts_with(items(before, name));
            let matched_nothing =
                items(before, "matchExpressions").is_empty() && items(before, "matchFields").is_empty();
            let matches_nothing = items(after, "matchExpressions").is_empty() && items(after, "matchFields").is_empty();
            if !grows("matchExpressions") || !grows("matchFields") || (matched_nothing && !matches_nothing) {
                let why = "only additions are allowed (no mutations or deletions)";
                errors.invalid(&path.index(index), after.clone(), why);
            }
        }
    }
    let mut restored = new["affinity"].clone();
    if restored.is_null() {
        restored = json!({});
    }
    keep(&json!({"nodeAffinity": before}), &mut restored, "nodeAffinity");
    if let Some(fields) = restored.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let empty = restored.as_object().is_some_and(serde_json::Map::is_empty) && field(old, "affinity").is_none();
    if let Some(fields) = new.as_object_mut() {
        if empty {
            fields.remove("affinity");
        } else {
            fields.insert("affinity".into(), restored);
        }
    }
}

/// Returns whether two specs are equal, apart from fields that are absent in one and null or empty in the other. An
/// empty text and `false` are left only where they differ from an absent field.
pub(super) fn same(old: &Value, new: &Value) -> bool {
    let is_zero = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let in_both = old.iter().all(|(key, value)| match new.get(key) {
                Some(other) => same(value, other),
                None => is_zero(value),
            });
            in_both && new.iter().all(|(key, value)| old.contains_key(key) || is_zero(value))
        }
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new))
        }
        _ => old == new,
    }
}

/// Returns the fields that differ, one a line.
pub(super) fn differences(old: &Value, new: &Value) -> String {
    let names: BTreeSet<_> = [old, new].into_iter().filter_map(Value::as_object).flat_map(|map| map.keys()).collect();
    let differing = names.into_iter().filter(|name| old.get(*name) != new.get(*name));
    let lines = differing.map(|name| {
        let text = |spec: &Value| spec.get(name).map_or_else(|| "(absent)".into(), Value::to_string);
        format!("- {name}: {}\n+ {name}: {}\n", text(old), text(new))
    });
    lines.collect()
}
