//! Validation of CRDs, in Kubernetes' wording
//! (<https://kubernetes.io/docs/reference/kubernetes-api/extend-resources/custom-resource-definition-v1/>).
//!
//! Kubernetes moves what all versions have in common, such as one schema, to the spec before it validates a CRD. Errors
//! name these places.

mod conversion;
mod format;
mod metadata;
mod root;
mod version;

use std::collections::BTreeSet;

use kubewright_apimachinery::{name, schema::structural, status::Cause};
use serde_json::Value;

pub(super) use self::format::format_warnings;
use self::{conversion::validate_conversion, version::Versions};
use super::{approval, status::holds};
use crate::registry::builtin::validation::{Errors, IMMUTABLE, Path, boolean, items, string, strings};

const SPEC: Path<'static> = Path::new("spec");

/// Returns the error of a new CRD's name. The group and the plural can't be changed later.
pub(super) fn name(definition: &Value, name: &str) -> Option<String> {
    let spec = &definition["spec"];
    let fits = name == format!("{}.{}", string(&spec["names"], "plural"), string(spec, "group"));
    (!fits).then(|| "must be spec.names.plural+\".\"+spec.group".to_owned())
}

/// Checks a CRD. `old` is the replaced CRD.
pub(super) fn definition(old: Option<&Value>, new: &Value) -> Vec<Cause> {
    Errors::collect(|errors| {
        let spec = &new["spec"];
        validate_spec(old, spec, errors);
        if let Some(old) = old {
            validate_update(old, spec, errors);
        }
        validate_stored_versions(new, errors);
        let mut causes = Vec::new();
        approval::check(old, new, &mut causes);
        errors.extend(causes);
        if boolean(spec, "preserveUnknownFields")
            && !old.is_some_and(|old| boolean(&old["spec"], "preserveUnknownFields"))
        {
            let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema \
                       instead";
            errors.invalid(&SPEC.child("preserveUnknownFields"), true, why);
        }
    })
}

/// Checks the status of a CRD: like Kubernetes, only the names.
pub(super) fn status(definition: &Value) -> Vec<Cause> {
    let path = Path::new("status.acceptedNames");
    Errors::collect(|errors| validate_names(&definition["status"]["acceptedNames"], &path, errors))
}

fn validate_spec(old: Option<&Value>, spec: &Value, errors: &mut Errors) {
    const SCOPES: &[&str] = &["Cluster", "Namespaced"];
    validate_group(string(spec, "group"), errors);
    match string(spec, "scope") {
        "" => errors.required(&SPEC.child("scope"), ""),
        scope if SCOPES.contains(&scope) => {}
        scope => errors.not_supported(&SPEC.child("scope"), scope, SCOPES),
    }
    let versions = Versions::new(spec).replacing(old);
    versions.require_schemas(errors);
    if boolean(spec, "preserveUnknownFields") && versions.documents().any(structural::has_defaults) {
        let why = "must be false in order to use defaults in the schema";
        errors.invalid(&SPEC.child("preserveUnknownFields"), true, why);
    }
    versions.validate_each(errors);
    validate_names_in_spec(&spec["names"], errors);
    versions.validate_common(errors);
    validate_conversion(old, &spec["conversion"], errors);
}

fn validate_group(group: &str, errors: &mut Errors) {
    let path = SPEC.child("group");
    let wrong = name::dns1123_subdomain(group);
    if group.is_empty() {
        errors.required(&path, "");
    } else if !wrong.is_empty() {
        errors.invalid(&path, group, &wrong.join(","));
    } else if !group.contains('.') {
        errors.invalid(&path, group, "should be a domain with at least one dot");
    }
}

fn validate_names_in_spec(names: &Value, errors: &mut Errors) {
    let path = SPEC.child("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        if string(names, field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
    validate_names(names, &path, errors);
}

/// Checks the names that are present.
fn validate_names(names: &Value, path: &Path<'_>, errors: &mut Errors) {
    let check = |text: &str, lowercase: String, lead: &str, path: &Path<'_>, errors: &mut Errors| {
        let wrong = name::dns1035_label(&lowercase);
        if !text.is_empty() && !wrong.is_empty() {
            errors.invalid(path, text, &format!("{lead}{}", wrong.join(",")));
        }
    };
    for field in ["plural", "singular"] {
        let text = string(names, field);
        check(text, text.to_owned(), "", &path.child(field), errors);
    }
    for field in ["kind", "listKind"] {
        let text = string(names, field);
        let lead = "may have mixed case, but should otherwise match: ";
        check(text, text.to_lowercase(), lead, &path.child(field), errors);
    }
    validate_labels(names, "shortNames", path, errors);
    let (kind, list_kind) = (string(names, "kind"), string(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        errors.invalid(&path.child("listKind"), list_kind, "kind and listKind may not be the same");
    }
    validate_labels(names, "categories", path, errors);
}

fn validate_labels(names: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child(field);
    for (index, label) in strings(names, field).enumerate() {
        let wrong = name::dns1035_label(label);
        if !wrong.is_empty() {
            errors.invalid(&path.index(index), label, &wrong.join(","));
        }
    }
}

fn validate_update(old: &Value, spec: &Value, errors: &mut Errors) {
    let before = &old["spec"];
    let names = SPEC.child("names");
    let mut fixed = |before: &Value, after: &Value, field: &str, path: &Path<'_>| {
        if string(before, field) != string(after, field) {
            errors.invalid(&path.child(field), string(after, field), IMMUTABLE);
        }
    };
    if holds(old, "Established") {
        fixed(before, spec, "scope", &SPEC);
        fixed(&before["names"], &spec["names"], "kind", &names);
    }
    fixed(before, spec, "group", &SPEC);
    fixed(&before["names"], &spec["names"], "plural", &names);
}

/// Checks that no stored version is removed from the spec, since objects may be stored in any of them.
fn validate_stored_versions(definition: &Value, errors: &mut Errors) {
    let path = Path::new("status.storedVersions");
    let versions = items(&definition["spec"], "versions");
    let stored = items(&definition["status"], "storedVersions");
    if stored.is_empty() {
        errors.invalid(&path, Value::Null, "must have at least one stored version");
        return;
    }
    let mut left: BTreeSet<_> = strings(&definition["status"], "storedVersions").collect();
    for version in versions {
        // As in Kubernetes, only the first version of a name is a stored one.
        let name = string(version, "name");
        if !left.remove(name) && boolean(version, "storage") {
            errors.invalid(&path, stored.to_vec(), &format!("must have the storage version {name}"));
        }
    }
    let names: BTreeSet<_> = versions.iter().map(|version| string(version, "name")).collect();
    for (index, name) in strings(&definition["status"], "storedVersions").enumerate() {
        if !names.contains(name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.invalid(&path.index(index), name, &why);
        }
    }
}
