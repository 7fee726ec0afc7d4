//! Updates of pods by subresources: `ephemeralcontainers` and `resize`.

use serde_json::Value;

use super::{
    spec::{validate_pod, validate_pod_annotations},
    update::{differences, keep, same, validate_annotations},
};
use crate::{
    fields::{each, remove, within},
    registry::builtin::{
        pod::quality_of_service,
        validation::{Errors, Path, entries, field, items, string},
    },
};

const RESIZABLE: [&str; 2] = ["cpu", "memory"];
const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

/// Checks an update of the ephemeral containers, of which none may be changed or removed.
pub(in crate::registry::builtin::pod) fn validate_ephemeral_update(old: &Value, new: &Value, errors: &mut Errors) {
    if old.pointer(MIRROR).is_some() {
        return errors.forbidden(&Path::new(""), "static pods do not support ephemeral containers");
    }
    validate_pod(new, errors);
    validate_annotations(&old["metadata"], &new["metadata"], errors);
    validate_pod_annotations(new, errors);
    let path = Path::new("spec.ephemeralContainers");
    let (old, new) = (items(&old["spec"], "ephemeralContainers"), items(&new["spec"], "ephemeralContainers"));
    for before in old {
        let name = string(before, "name");
        match new.iter().rfind(|after| string(after, "name") == name) {
            None => errors.forbidden(&path, &format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(after) if !same(before, after) => {
                let changes = differences(before, after);
                let why = format!("existing ephemeral containers {name:?} may not be changed\n{changes}");
                errors.forbidden(&path, &why);
            }
            Some(_) => {}
        }
    }
}

/// Checks an update of the resources, of which only CPU and memory may be changed, and none may be removed.
pub(in crate::registry::builtin::pod) fn validate_resize(old: &Value, new: &Value, errors: &mut Errors) {
    if old.pointer(MIRROR).is_some() {
        return errors.forbidden(&Path::new(""), "static pods cannot be resized");
    }
    if old["spec"]["os"]["name"] == "windows" {
        return errors.forbidden(&Path::new(""), "windows pods cannot be resized");
    }
    let failed = errors.any(|errors| validate_resized_pod(old, new, errors));
    if failed {
        return;
    }
    let (old, new) = (&old["spec"], &new["spec"]);
    let mut changed = new.clone();
    for name in ["containers", "initContainers"] {
        for (container, before) in each(&mut changed, name).zip(items(old, name)) {
            restore_resizable(before, container);
        }
    }
    restore_pod_resources(old, &mut changed);
    if !same(old, &changed) {
        errors.forbidden(&Path::new("spec"), "only cpu and memory resources are mutable");
    }
}

fn validate_resized_pod(old: &Value, new: &Value, errors: &mut Errors) {
    validate_pod(new, errors);
    let path = Path::new("spec");
    let class = old["status"]["qosClass"].as_str().unwrap_or_else(|| quality_of_service(old));
    if class != quality_of_service(new) {
        let shown = string(&new["status"], "qosClass");
        errors.invalid(&path, shown, "Pod QOS Class may not change as a result of resizing");
    }
    let running =
        items(&old["status"], "containerStatuses").iter().find(|status| status["state"]["running"].is_object());
    if running.is_some_and(|status| field(status, "resources").is_none()) {
        errors.forbidden(&path, "Pod running on node without support for resize");
    }
    let (old, new) = (&old["spec"], &new["spec"]);
    if has_pod_resources(old) || has_pod_resources(new) {
        validate_pod_resources_resize(old, new, &path, errors);
    }
    if errors.any(|errors| validate_container_order(old, new, &path, errors)) {
        return;
    }
    for name in ["initContainers", "containers"] {
        let path = path.child(name);
        for (index, (before, after)) in items(old, name).iter().zip(items(new, name)).enumerate() {
            let path = path.index(index);
            validate_kept_resources(
                before,
                after,
                ["resource requests", "resource limits"],
                &path.child("resources"),
                errors,
            );
        }
    }
    for (before, after) in items(old, "containers").iter().zip(items(new, "containers")) {
        let mut after = after.clone();
        restore_resizable(before, &mut after);
        if !same(before, &after) {
            errors.forbidden(&path, "only cpu and memory resources are mutable");
        }
    }
    let path = path.child("initContainers");
    for (index, (before, after)) in items(old, "initContainers").iter().zip(items(new, "initContainers")).enumerate() {
        validate_resized_init_container(before, after, &path.index(index), errors);
    }
}

fn validate_resized_init_container(before: &Value, after: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut restored = after.clone();
    restore_resizable(before, &mut restored);
    if !same(before, &restored) {
        errors.forbidden(path, "only cpu and memory resources for init or sidecar containers are mutable");
    }
    if same(before, after) || string(after, "restartPolicy") == "Always" {
        return;
    }
    for _ in items(after, "resizePolicy").iter().filter(|policy| policy["restartPolicy"] == "RestartContainer") {
        let why = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
        errors.forbidden(path, why);
    }
}

/// Checks that the containers have the same names in the same order.
fn validate_container_order(old: &Value, new: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["containers", "initContainers"] {
        let (old, new, path) = (items(old, name), items(new, name), path.child(name));
        if old.len() != new.len() {
            errors.forbidden(&path, &format!("{name} may not be added or removed on resize"));
            continue;
        }
        for (index, _) in old.iter().zip(new).enumerate().filter(|(_, (old, new))| old["name"] != new["name"]) {
            let path = path.index(index);
            errors.forbidden(&path.child("name"), &format!("{name} may not be renamed or reordered on resize"));
        }
    }
}

fn validate_kept_resources(before: &Value, after: &Value, what: [&str; 2], path: &Path<'_>, errors: &mut Errors) {
    for (side, what) in ["requests", "limits"].into_iter().zip(what) {
        let after = &after["resources"][side];
        if entries(&before["resources"], side).any(|(name, _)| after.get(name).is_none()) {
            errors.forbidden(&path.child(side), &format!("{what} cannot be removed"));
        }
    }
}

fn has_pod_resources(spec: &Value) -> bool {
    ["requests", "limits"].iter().any(|side| entries(&spec["resources"], side).next().is_some())
}

fn validate_pod_resources_resize(old: &Value, new: &Value, path: &Path<'_>, errors: &mut Errors) {
    let resources = path.child("resources");
    if field(old, "resources").is_some() && field(new, "resources").is_none() {
        return errors.forbidden(&resources, "pod-level resources cannot be removed");
    }
    let what = ["pod-level resource requests", "pod-level resource limits"];
    validate_kept_resources(old, new, what, &resources, errors);
    let mut restored = new.clone();
    restore_pod_resources(old, &mut restored);
    if !same(&old["resources"], &restored["resources"]) {
        errors.forbidden(path, "only cpu and memory resources are mutable at pod-level");
    }
}

/// Sets the CPU and memory of a container to the old ones. As in Kubernetes, it then has no resource claims.
fn restore_resizable(old: &Value, container: &mut Value) {
    restore_amounts(old, container);
    within(container, "resources", |resources| drop(remove(resources, "claims")));
}

/// Sets the CPU and memory of a whole pod to the old ones.
fn restore_pod_resources(old: &Value, spec: &mut Value) {
    if field(spec, "resources").is_some() {
        restore_amounts(old, spec);
        if field(old, "resources").is_none() && spec["resources"].as_object().is_some_and(serde_json::Map::is_empty) {
            remove(spec, "resources");
        }
    }
}

fn restore_amounts(old: &Value, new: &mut Value) {
    within(new, "resources", |resources| {
        for side in ["requests", "limits"] {
            let before = &old["resources"][side];
            within(resources, side, |amounts| RESIZABLE.iter().for_each(|name| keep(before, amounts, name)));
            if entries(resources, side).next().is_none() {
                remove(resources, side);
            }
        }
    });
}
