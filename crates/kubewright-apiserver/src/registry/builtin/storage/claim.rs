//! Validation of persistent volume claims.

use kubewright_apimachinery::name;
use serde_json::Value;

use super::{
    super::{
        pod::{is_native_resource, validate_quantity},
        validation::{
            Errors, Path, Quantity, entries, entry, field, items, optional_string, string, validate_label_selector,
            validate_template_object_meta, validate_text,
        },
    },
    VOLUME_MODES, validate_access_modes,
};
use crate::fields::{remove, set, within};

/// Checks a new claim.
pub(super) fn validate_claim(claim: &Value, errors: &mut Errors) {
    validate_claim_spec(&claim["spec"], &Path::new("spec"), errors);
}

/// Checks the template of a claim in a pod.
pub(in crate::registry::builtin) fn validate_claim_template(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_template_object_meta(&template["metadata"], &path.child("metadata"), errors);
    validate_claim_spec(&template["spec"], &path.child("spec"), errors);
}

/// Checks the spec of a claim.
pub(in crate::registry::builtin) fn validate_claim_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if items(spec, "accessModes").is_empty() {
        errors.required(&path.child("accessModes"), "at least 1 access mode is required");
    }
    if let Some(selector) = field(spec, "selector") {
        validate_label_selector(selector, &path.child("selector"), errors);
    }
    validate_access_modes(spec, path, errors);
    validate_storage(spec, &path.child("resources"), errors);
    validate_class(spec, "storageClassName", path, errors);
    if let Some(mode) = optional_string(spec, "volumeMode").filter(|mode| !VOLUME_MODES.contains(mode)) {
        errors.not_supported(&path.child("volumeMode"), mode, VOLUME_MODES);
    }
    validate_data_sources(spec, path, errors);
    validate_class(spec, "volumeAttributesClassName", path, errors);
}

fn validate_class(spec: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let class = string(spec, name);
    if !class.is_empty() {
        validate_text(class, name::dns1123_subdomain, &path.child(name), errors);
    }
}

fn validate_storage(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.key("storage");
    let Some(amount) = field(&spec["resources"]["requests"], "storage") else {
        errors.required(&path, "");
        return;
    };
    if Quantity::read(amount) <= Quantity::default() {
        errors.invalid(&path, amount.clone(), "must be greater than zero");
    } else {
        validate_quantity("storage", amount, &path, errors);
    }
}

/// Checks the status of a claim.
pub(super) fn validate_status(status: &Value, errors: &mut Errors) {
    const RESIZES: &[&str] = &[
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let path = Path::new("status");
    for (name, amount) in entries(status, "capacity") {
        validate_basic(amount, &path.child("capacity").key(name), errors);
    }
    let resizes = path.child("allocatedResourceStatuses");
    for (name, state) in entries(status, "allocatedResourceStatuses") {
        validate_resource_key(name, &resizes, errors);
        if !state.as_str().is_some_and(|state| RESIZES.contains(&state)) {
            errors.not_supported(&resizes, name, RESIZES);
        }
    }
    let allocated = path.child("allocatedResources");
    for (name, amount) in entries(status, "allocatedResources") {
        if !errors.any(|errors| validate_resource_key(name, &allocated, errors))
            && !errors.any(|errors| validate_basic(amount, &allocated.key(name), errors))
        {
            validate_quantity("storage", amount, &allocated.key(name), errors);
        }
    }
}

fn validate_basic(amount: &Value, path: &Path<'_>, errors: &mut Errors) {
    let value = Quantity::read(amount).value();
    if value < 0 {
        errors.invalid(path, value, "must be a valid resource quantity");
    }
}

/// Checks the name of a resource of a claim: storage, or one of another domain.
fn validate_resource_key(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if !errors.any(|errors| validate_text(name, name::label_key, path, errors))
        && is_native_resource(name)
        && name != "storage"
    {
        errors.not_supported(path, name, &["storage"]);
    }
}

fn validate_data_sources(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (source, reference) = (field(spec, "dataSource"), field(spec, "dataSourceRef"));
    for (name, source) in [("dataSource", source), ("dataSourceRef", reference)] {
        if let Some(source) = source {
            validate_data_source(source, &path.child(name), errors);
        }
    }
    let (Some(source), Some(reference)) = (source, reference) else { return };
    // As in Kubernetes, the value in the message is a path, which has no text form.
    if !string(reference, "namespace").is_empty() {
        errors.invalid(path, serde_json::json!({}), "may not be specified when dataSourceRef.namespace is specified");
    } else if ["apiGroup", "kind", "name"].iter().any(|name| field(source, name) != field(reference, name)) {
        errors.invalid(path, serde_json::json!({}), "must match dataSourceRef");
    }
}

fn validate_data_source(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["name", "kind"] {
        if string(source, name).is_empty() {
            errors.required(&path.child(name), "");
        }
    }
    let (group, kind) = (string(source, "apiGroup"), string(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errors.invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    }
    if !group.is_empty() {
        validate_text(group, name::dns1123_subdomain, &path.child("apiGroup"), errors);
    }
    let namespace = string(source, "namespace");
    if !namespace.is_empty() {
        validate_text(namespace, name::dns1123_label, &path.child("namespace"), errors);
    }
}

/// Removes a `dataSource` of a kind that only `dataSourceRef` may refer to, as long as the claim had no source before.
pub(super) fn keep_known_source(old: &Value, new: &mut Value) {
    let in_use = ["dataSource", "dataSourceRef"].iter().any(|name| field(&old["spec"], name).is_some());
    let spec = &new["spec"];
    let Some(source) = field(spec, "dataSource").filter(|_| !in_use && field(spec, "dataSourceRef").is_none()) else {
        return;
    };
    let known = [("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")];
    if !known.contains(&(string(source, "apiGroup"), string(source, "kind"))) {
        within(new, "spec", |spec| drop(remove(spec, "dataSource")));
    }
}

/// Removes a `dataSourceRef` in another namespace, a feature that is off by default (`CrossNamespaceVolumeDataSource`).
pub(super) fn drop_other_namespace(old: &Value, new: &mut Value) {
    let is_in_use = field(&old["spec"], "dataSourceRef").is_some();
    if !is_in_use && !string(&new["spec"]["dataSourceRef"], "namespace").is_empty() {
        within(new, "spec", |spec| drop(remove(spec, "dataSourceRef")));
    }
}

/// Copies `dataSource` and `dataSourceRef` from each other, unless both are set or the source is in another namespace.
pub(super) fn align_sources(claim: &mut Value) {
    let spec = &claim["spec"];
    let (name, source) = match (field(spec, "dataSource"), field(spec, "dataSourceRef")) {
        (Some(source), None) => ("dataSourceRef", source.clone()),
        (None, Some(reference)) if string(reference, "namespace").is_empty() => ("dataSource", reference.clone()),
        _ => return,
    };
    within(claim, "spec", |spec| set(spec, name, source));
}

/// Returns the warnings about a claim.
pub(super) fn warnings(claim: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if entry(&claim["metadata"], "annotations", CLASS).is_some() {
        let why = "deprecated since v1.8; use \"storageClassName\" attribute instead";
        warnings.push(format!("metadata.annotations[{CLASS}]: {why}"));
    }
    claim_warnings(&claim["spec"], &Path::new("spec"), &mut warnings);
    warnings
}

/// Adds the warnings about the spec of a claim.
pub(in crate::registry::builtin) fn claim_warnings(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let path = path.child("resources");
    for side in ["requests", "limits"] {
        let Some(amount) = field(&spec["resources"][side], "storage") else { continue };
        if !Quantity::read(amount).is_whole() {
            let path = path.child(side);
            let text = amount.as_str().unwrap_or_default();
            let why = format!("fractional byte value {text:?} is invalid, must be an integer");
            warnings.push(format!("{}: {why}", path.key("storage")));
        }
    }
}

/// The annotation that preceded `storageClassName`.
pub(super) const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Checks an updated claim. Its spec can't change, except for the name of the volume, once, and the size and attributes
/// of a bound claim.
pub(super) fn validate_claim_update(old: &Value, new: &Value, errors: &mut Errors) {
    validate_claim(new, errors);
    let path = Path::new("spec");
    let (before, mut after) = (old["spec"].clone(), new["spec"].clone());
    let (annotation, new_annotation) =
        (entry(&old["metadata"], "annotations", CLASS), entry(&new["metadata"], "annotations", CLASS));
    let (class, new_class) =
        (optional_string(&before, "storageClassName"), optional_string(&new["spec"], "storageClassName"));
    let moved = class.is_none()
        && annotation.is_some()
        && new_class == annotation
        && (new_annotation.is_none() || new_annotation == annotation);
    if !moved && annotation != new_annotation {
        let path = Path::new("metadata.annotations");
        errors.invalid(&path.child(CLASS), new_annotation.unwrap_or_default(), "field is immutable");
    }
    let mut keep = |name: &str| {
        if let Some(fields) = after.as_object_mut() {
            match before.get(name) {
                Some(value) => fields.insert(name.into(), value.clone()),
                None => fields.remove(name),
            };
        }
    };
    if string(&before, "volumeName").is_empty() {
        keep("volumeName");
    }
    if moved || (class.is_none() && new_class.is_some() && (annotation.is_none() || annotation == new_class)) {
        keep("storageClassName");
    }
    let bound = string(&new["status"], "phase") == "Bound";
    if bound {
        keep("volumeAttributesClassName");
        if let Some(size) = before.pointer("/resources/requests/storage") {
            let keep = |resources: &mut Value| within(resources, "requests", |of| set(of, "storage", size.clone()));
            within(&mut after, "resources", keep);
        }
    }
    if before != after {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
                   claims\n";
        errors.forbidden(&path, why);
    }
    validate_size(old, new, errors);
    if field(&before, "volumeMode") != field(&new["spec"], "volumeMode") {
        errors.invalid(&Path::new("volumeMode"), new["spec"]["volumeMode"].clone(), "field is immutable");
    }
}

/// Checks that a claim doesn't become smaller than its volume.
fn validate_size(old: &Value, new: &Value, errors: &mut Errors) {
    let size = |claim: &Value| Quantity::read(&claim["spec"]["resources"]["requests"]["storage"]);
    if size(new) < size(old) && size(new) <= Quantity::read(&old["status"]["capacity"]["storage"]) {
        let path = Path::new("spec.resources.requests.storage");
        errors.forbidden(&path, "field can not be less than status.capacity");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim() -> Value {
        json!({"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem",
        }})
    }

    #[track_caller]
    fn check(causes: &[kubewright_apimachinery::status::Cause], expected: &[&str]) {
        assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn claims_need_a_size_and_a_mode() {
        let validate = |change: &dyn Fn(&mut Value)| {
            let mut claim = claim();
            change(&mut claim);
            Errors::collect(|errors| validate_claim(&claim, errors))
        };
        check(&validate(&|_| {}), &[]);
        check(&validate(&|claim| claim["spec"]["resources"] = json!({})), &["spec.resources[storage]: Required value"]);
        check(
            &validate(&|claim| claim["spec"]["resources"]["requests"]["storage"] = json!("-1")),
            &["spec.resources[storage]: Invalid value: \"-1\": must be greater than zero"],
        );
        check(
            &validate(&|claim| claim["spec"]["accessModes"] = json!([])),
            &["spec.accessModes: Required value: at least 1 access mode is required"],
        );
        check(
            &validate(&|claim| claim["spec"]["accessModes"] = json!(["ReadWriteOncePod", "ReadWriteOnce"])),
            &["spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"],
        );
    }

    #[test]
    fn only_the_size_of_bound_claims_changes() {
        let update = |phase: &str, size: &str| {
            let old = claim();
            let mut new = old.clone();
            new["spec"]["resources"]["requests"]["storage"] = json!(size);
            new["status"] = json!({"phase": phase});
            Errors::collect(|errors| validate_claim_update(&old, &new, errors)).len()
        };
        assert_eq!((update("Bound", "2Gi"), update("Pending", "2Gi"), update("Pending", "1Gi")), (0, 1, 0));
    }
}
