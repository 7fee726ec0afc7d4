//! Validation of the counters that devices share.

use std::collections::BTreeSet;

use kubewright_apimachinery::name;
use serde_json::Value;

use crate::registry::builtin::validation::{Errors, Path, entries, items, string, validate_text};

/// The greatest number of counters of a set, and of those that a device consumes of one.
const MAX_COUNTERS: usize = 32;
/// The greatest number of sets of which a device consumes counters.
const MAX_CONSUMPTIONS: usize = 2;

/// Checks a set of counters.
pub(super) fn validate_set(set: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_named(set, "name", path, errors);
}

/// Checks the counters that a device consumes.
pub(super) fn validate_consumptions(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (consumptions, at) = (items(device, "consumesCounters"), path.child("consumesCounters"));
    if consumptions.len() > MAX_CONSUMPTIONS {
        errors.too_many(&at, consumptions.len(), MAX_CONSUMPTIONS);
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, consumption) in consumptions.iter().enumerate() {
        validate_named(consumption, "counterSet", &at.index(index), errors);
    }
    for (index, consumption) in consumptions.iter().enumerate() {
        let name = string(consumption, "counterSet");
        if !seen.insert(name) {
            errors.duplicate(&at.index(index), name);
        }
    }
}

/// Checks counters and the name of their set, which `field` contains.
fn validate_named(of: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let (name, at) = (string(of, field), path.child(field));
    if name.is_empty() {
        errors.required(&at, "");
    } else {
        validate_text(name, name::dns1123_label, &at, errors);
    }
    let at = path.child("counters");
    match entries(of, "counters").count() {
        0 => errors.required(&at, ""),
        count if count > MAX_COUNTERS => errors.too_many(&at, count, MAX_COUNTERS),
        _ => entries(of, "counters").for_each(|(name, _)| validate_text(name, name::dns1123_label, &at, errors)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counters_are_checked() {
        let path = Path::new("d");
        let texts = |device: Value| {
            let causes = Errors::collect(|errors| validate_consumptions(&device, &path, errors));
            causes.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let one = |name: &str, counter: &str| json!({"counterSet": name, "counters": {counter: {"value": "1"}}});
        assert_eq!(texts(json!({"consumesCounters": [one("a", "b")]})), [""; 0]);
        let found = texts(json!({"consumesCounters": [one("a", "B"), {"counterSet": "a"}]}));
        assert!(
            found[0].starts_with("d.consumesCounters[0].counters: Invalid value: \"B\": a lowercase RFC 1123 label")
        );
        assert_eq!(
            found[1..],
            ["d.consumesCounters[1].counters: Required value", "d.consumesCounters[1]: Duplicate value: \"a\"",]
        );
        let found = texts(json!({"consumesCounters": [one("a", "b"), one("b", "b"), one("c", "b")]}));
        assert_eq!(found, ["d.consumesCounters: Too many: 3: must have at most 2 items"]);
    }
}
