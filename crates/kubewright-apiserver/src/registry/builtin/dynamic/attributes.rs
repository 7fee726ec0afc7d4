//! Validation of the attributes, capacities and taints of devices.

use std::collections::BTreeSet;

use kubewright_apimachinery::name;
use serde_json::Value;

use super::{request_policy, uuid};
use crate::registry::builtin::{
    pod::validate_csi_driver_name,
    validation::{
        Errors, Path, entries, field, items, optional_string, string, strings, validate_label_name, validate_text,
    },
};

/// The effects of taints of devices.
pub(super) const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];
/// The greatest length of the name of an attribute, without its domain.
const MAX_NAME: usize = 32;
/// The greatest length of a text or version.
const MAX_VALUE: usize = 64;
/// The greatest number of attributes and capacities of a device, and of its taints.
const MAX_ATTRIBUTES: usize = 32;
const MAX_TAINTS: usize = 16;
/// The greatest number of conditions of either kind.
const MAX_CONDITIONS: usize = 4;

/// Checks what a device says about itself.
pub(super) fn validate_device(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    let count = ["attributes", "capacity"].map(|name| entries(device, name).count()).iter().sum::<usize>();
    if count > MAX_ATTRIBUTES {
        let why = format!("the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}");
        errors.invalid(path, Value::from(count), &why);
        return;
    }
    let at = path.child("attributes");
    for (name, attribute) in entries(device, "attributes") {
        validate_qualified_name(name, &at, errors);
        validate_attribute(attribute, &at.key(name), errors);
    }
    let at = path.child("capacity");
    let is_shared = device["allowMultipleAllocations"] == true;
    for (name, capacity) in entries(device, "capacity") {
        validate_qualified_name(name, &at, errors);
        request_policy::validate_capacity(capacity, is_shared, &at.key(name), errors);
    }
    let (taints, at) = (items(device, "taints"), path.child("taints"));
    if taints.len() > MAX_TAINTS {
        errors.too_many(&at, taints.len(), MAX_TAINTS);
        return;
    }
    for (index, taint) in taints.iter().enumerate() {
        validate_taint(taint, &at.index(index), errors);
    }
}

/// Checks the conditions for which a pod waits before it is bound. Those of success and of failure need each other.
pub(super) fn validate_binding(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    const LISTS: [&str; 2] = ["bindingConditions", "bindingFailureConditions"];
    for list in LISTS {
        let (conditions, at) = (items(device, list), path.child(list));
        if conditions.len() > MAX_CONDITIONS {
            errors.too_many(&at, conditions.len(), MAX_CONDITIONS);
            continue;
        }
        for (index, condition) in conditions.iter().enumerate() {
            validate_text(condition.as_str().unwrap_or_default(), name::label_key, &at.index(index), errors);
        }
    }
    let [success, failure] = LISTS;
    let expected: BTreeSet<_> = strings(device, success).collect();
    for list in LISTS {
        let (mut seen, at) = (BTreeSet::new(), path.child(list));
        for (index, condition) in strings(device, list).enumerate() {
            if !seen.insert(condition) {
                errors.duplicate(&at.index(index), condition);
            }
            if list == failure && expected.contains(condition) {
                errors.invalid(&at.index(index), condition, &format!("{failure} must not overlap with {success}"));
            }
        }
    }
    for (missing, given) in [(success, failure), (failure, success)] {
        if items(device, missing).is_empty() && !items(device, given).is_empty() {
            errors.invalid(&path.child(missing), Value::Null, &format!("{missing} are required to use {given}"));
        }
    }
}

/// Checks what identifies the share of a device, if there is one.
pub(super) fn validate_share(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(id) = optional_string(device, "shareID") else { return };
    let why = match uuid::digits(id) {
        Ok(digits) if uuid::with_dashes(&digits) == id => return,
        Ok(_) => "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal \
                  characters"
            .to_owned(),
        Err(why) => format!("error validating uid: {why}"),
    };
    errors.invalid(&path.child("shareID"), id, &why);
}

/// Checks that an attribute has one value, which its type allows.
fn validate_attribute(attribute: &Value, path: &Path<'_>, errors: &mut Errors) {
    const FIELDS: [&str; 8] = ["bool", "int", "string", "version", "bools", "ints", "strings", "versions"];
    for (name, validate) in
        [("string", validate_string as fn(&str, &Path<'_>, &mut Errors)), ("version", validate_version)]
    {
        if let Some(text) = optional_string(attribute, name) {
            validate(text, &path.child(name), errors);
        }
    }
    for (name, validate) in
        [("strings", validate_string as fn(&str, &Path<'_>, &mut Errors)), ("versions", validate_version)]
    {
        let at = path.child(name);
        strings(attribute, name).enumerate().for_each(|(index, text)| validate(text, &at.index(index), errors));
    }
    let why = "exactly one value must be specified";
    match FIELDS.iter().filter(|name| field(attribute, name).is_some()).count() {
        0 => errors.invalid(path, "", why),
        1 => {}
        _ => errors.invalid(path, attribute.clone(), why),
    }
}

fn validate_string(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.len() > MAX_VALUE {
        errors.too_long(path, MAX_VALUE);
    }
}

fn validate_version(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if !is_semantic_version(text) {
        errors.invalid(path, text, "must be a string compatible with semver.org spec 2.0.0");
    }
    validate_string(text, path, errors);
}

/// Returns whether a text is a version of <https://semver.org>.
fn is_semantic_version(text: &str) -> bool {
    let is_number = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'))
    };
    let is_word =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let has_other = |text: &str| text.bytes().any(|byte| !byte.is_ascii_digit());
    let (version, build) = text.split_once('+').map_or((text, None), |(version, build)| (version, Some(build)));
    let (core, release) = version.split_once('-').map_or((version, None), |(core, release)| (core, Some(release)));
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && release
            .is_none_or(|parts| parts.split('.').all(|part| is_word(part) && (has_other(part) || is_number(part))))
        && build.is_none_or(|parts| parts.split('.').all(is_word))
}

fn validate_taint(taint: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_label_name(string(taint, "key"), &path.child("key"), errors);
    validate_text(string(taint, "value"), name::label_value, &path.child("value"), errors);
    let at = path.child("effect");
    match string(taint, "effect") {
        "" => errors.required(&at, ""),
        effect if !EFFECTS.contains(&effect) => errors.not_supported(&at, effect, EFFECTS),
        _ => {}
    }
}

/// Checks the name of an attribute or a capacity: an identifier, which may follow a domain and a slash.
fn validate_qualified_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [id] => validate_identifier(id, path, errors),
        [domain, id] => {
            if domain.is_empty() {
                errors.invalid(path, "", "the domain must not be empty");
            } else {
                validate_csi_driver_name(domain, path, errors);
            }
            if id.is_empty() {
                errors.invalid(path, "", "the name must not be empty");
            } else {
                validate_identifier(id, path, errors);
            }
        }
        // As in Kubernetes, names of more parts aren't checked.
        _ => {}
    }
}

/// Checks the name of an attribute that must have a domain.
pub(super) fn validate_fully_qualified_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_qualified_name(name, path, errors);
    if !name.contains('/') {
        errors.invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

fn validate_identifier(id: &str, path: &Path<'_>, errors: &mut Errors) {
    if id.len() > MAX_NAME {
        errors.too_long(path, MAX_NAME);
    }
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !id.bytes().all(is_part) || id.is_empty() || id.starts_with(|first: char| first.is_ascii_digit()) {
        let why = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
                   alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation \
                   is '[A-Za-z_][A-Za-z0-9_]*')";
        errors.invalid(path, id, why);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attributes_have_one_value_of_a_known_form_and_an_identifier() {
        let check = |device: Value, expect: &[&str]| {
            let found = Errors::collect(|errors| validate_device(&device, &Path::new("device"), errors));
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found.len(), expect.len(), "{found:?}");
            found.iter().zip(expect).for_each(|(text, expect)| assert!(text.starts_with(expect), "{text}"));
        };
        let version =
            "device.attributes[v].version: Invalid value: \"01.0.0\": must be a string compatible with semver";
        check(json!({"attributes": {"v": {"version": "01.0.0"}}}), &[version]);
        check(json!({"attributes": {"v": {"version": "1.0.0-a.1+b"}, "a.b/c": {"int": 1}}}), &[]);
        check(
            json!({"attributes": {"a": {}}}),
            &["device.attributes[a]: Invalid value: \"\": exactly one value must be"],
        );
        let both = "device.attributes[a]: Invalid value: {\"bool\":true,\"int\":1}: exactly one value";
        check(json!({"attributes": {"a": {"bool": true, "int": 1}}}), &[both]);
        check(
            json!({"attributes": {"a b": {"int": 1}, "/": {"int": 1}}, "capacity": {"9": {"value": "1"}}}),
            &[
                "device.attributes: Invalid value: \"\": the domain",
                "device.attributes: Invalid value: \"\": the name",
                "device.attributes: Invalid value: \"a b\": a valid C identifier",
                "device.capacity: Invalid value: \"9\": a valid C identifier",
            ],
        );
        check(json!({"taints": [{"key": "k"}]}), &["device.taints[0].effect: Required value"]);
    }
}
