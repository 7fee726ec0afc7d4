//! Rules about single fields that several parts of a pod have.

use serde_json::Value;

use crate::registry::builtin::validation::{Errors, Path, optional_int, string, validate_local_non_reserved_path};

/// Checks that a text is not empty.
pub(super) fn require(object: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    if string(object, name).is_empty() {
        errors.required(&path.child(name), "");
    }
}

/// Checks a field that has one of several values.
pub(super) fn validate_choice(object: &Value, name: &str, allowed: &[&str], path: &Path<'_>, errors: &mut Errors) {
    match string(object, name) {
        "" => errors.required(&path.child(name), ""),
        value if allowed.contains(&value) => {}
        value => errors.not_supported(&path.child(name), value, allowed),
    }
}

/// Checks a field with a policy for pulling an image.
pub(super) fn validate_pull_policy(object: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_choice(object, name, &["Always", "IfNotPresent", "Never"], path, errors);
}

/// Checks a field with the permissions of a file.
pub(super) fn validate_mode(source: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = optional_int(source, name).filter(|mode| !(0..=0o777).contains(mode)) {
        let why = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(&path.child(name), mode, why);
    }
}

/// Checks the file of one entry.
pub(super) fn validate_key_to_path(item: &Value, path: &Path<'_>, errors: &mut Errors) {
    require(item, "key", path, errors);
    require(item, "path", path, errors);
    validate_local_non_reserved_path(string(item, "path"), &path.child("path"), errors);
    validate_mode(item, "mode", path, errors);
}
