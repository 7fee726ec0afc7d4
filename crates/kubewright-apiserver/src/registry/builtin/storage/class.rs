//! Storage classes and volume attributes classes.

use std::sync::Arc;

use kubewright_apimachinery::{name, status::Cause};
use serde_json::Value;

use super::VOLUME_BINDING_MODES;
use crate::{
    fields::{fill, flag, text},
    registry::{
        Column, Strategy,
        builtin::{
            columns::{age, marked_name, name as name_column, string},
            default_class::{Classes, OF_STORAGE},
            pod::deprecated_label,
            validation::{
                Errors, IMMUTABLE, Path, entries, field, items, optional_string, string as text_field, strings,
                validate_label_name, validate_text,
            },
        },
    },
};

/// The greatest number of parameters, and the greatest sum of the lengths of their keys and values.
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETERS_SIZE: usize = 256 << 10;

/// The strategy of storage classes.
#[derive(Debug)]
pub(in crate::registry::builtin) struct StorageClassStrategy {
    /// The classes of claims, which this strategy keeps up to date.
    pub(in crate::registry::builtin) classes: Arc<Classes>,
}

impl Strategy for StorageClassStrategy {
    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        self.classes.replace(OF_STORAGE, before, after);
    }

    fn default(&self, object: &mut Value) {
        fill(object, "reclaimPolicy", "Delete");
        fill(object, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            validate_storage_class(new, errors);
            let Some(old) = old else { return };
            for name in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
                let value = |object: &Value| field(object, name).cloned().unwrap_or_default();
                if value(old) != value(new) {
                    errors.invalid(&Path::new(name), value(new), IMMUTABLE);
                }
            }
        })
    }

    fn warnings(&self, _old: Option<&Value>, new: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        let path = Path::new("allowedTopologies");
        for (index, term) in items(new, "allowedTopologies").iter().enumerate() {
            let path = path.index(index);
            let path = path.child("matchLabelExpressions");
            for (index, expression) in items(term, "matchLabelExpressions").iter().enumerate() {
                if let Some(why) = deprecated_label(text_field(expression, "key")) {
                    warnings.push(format!("{}: {why}", path.index(index).child("key")));
                }
            }
        }
        warnings
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

fn validate_storage_class(class: &Value, errors: &mut Errors) {
    validate_provisioner(text_field(class, "provisioner"), &Path::new("provisioner"), errors);
    validate_parameters(class, true, errors);
    const POLICIES: &[&str] = &["Delete", "Retain"];
    if let Some(policy) = optional_string(class, "reclaimPolicy").filter(|policy| !policy.is_empty())
        && !POLICIES.contains(&policy)
    {
        errors.not_supported(&Path::new("reclaimPolicy"), policy, POLICIES);
    }
    let mode = text_field(class, "volumeBindingMode");
    if !VOLUME_BINDING_MODES.contains(&mode) {
        errors.not_supported(&Path::new("volumeBindingMode"), mode, VOLUME_BINDING_MODES);
    }
    let path = Path::new("allowedTopologies");
    let mut seen = Vec::new();
    for (index, term) in items(class, "allowedTopologies").iter().enumerate() {
        let path = path.index(index);
        let path = path.child("matchLabelExpressions");
        let values = validate_topology_term(term, &path, errors);
        // As in Kubernetes, a term without expressions counts as one that is already there.
        if values.is_empty() || seen.contains(&values) {
            errors.duplicate(&path, "");
        }
        seen.push(values);
    }
}

/// Checks a topology term. Returns its values by key, in a comparable order.
fn validate_topology_term<'a>(term: &'a Value, path: &Path<'_>, errors: &mut Errors) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for (index, requirement) in items(term, "matchLabelExpressions").iter().enumerate() {
        let path = path.index(index);
        let at = path.child("values");
        let mut values: Vec<&str> = Vec::new();
        if items(requirement, "values").is_empty() {
            errors.required(&at, "");
        }
        for (index, value) in strings(requirement, "values").enumerate() {
            if values.contains(&value) {
                errors.duplicate(&at.index(index), value);
            }
            values.push(value);
        }
        let key = text_field(requirement, "key");
        validate_label_name(key, &path.child("key"), errors);
        if all.iter().any(|(known, _)| *known == key) {
            errors.duplicate(&path.child("key"), key);
        }
        values.sort_unstable();
        values.dedup();
        all.push((key, values));
    }
    all.sort_unstable();
    all
}

/// Checks the name of a driver, whose case doesn't matter.
fn validate_provisioner(driver: &str, path: &Path<'_>, errors: &mut Errors) {
    if driver.is_empty() {
        errors.required(path, "");
    } else {
        validate_text(&driver.to_lowercase(), name::label_key, path, errors);
    }
}

fn validate_parameters(object: &Value, may_be_empty: bool, errors: &mut Errors) {
    let path = Path::new("parameters");
    let number = entries(object, "parameters").count();
    if number > MAX_PARAMETERS {
        return errors.too_long(&path, MAX_PARAMETERS);
    }
    let mut size = 0;
    for (key, value) in entries(object, "parameters") {
        if key.is_empty() {
            errors.invalid(&path, key, "field can not be empty.");
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_PARAMETERS_SIZE {
        errors.too_long(&path, MAX_PARAMETERS_SIZE);
    }
    if !may_be_empty && number == 0 {
        errors.required(&path, "must contain at least one key/value pair");
    }
}

pub(in crate::registry::builtin) fn storage_class_columns() -> Vec<Column> {
    vec![
        name_column(|object, _| marked_name(object, OF_STORAGE)),
        string("Provisioner", |object, _| text(object, "/provisioner").into()),
        string("ReclaimPolicy", |object, _| text(object, "/reclaimPolicy").into()),
        string("VolumeBindingMode", |object, _| text(object, "/volumeBindingMode").into()),
        string("AllowVolumeExpansion", |object, _| flag(object, "/allowVolumeExpansion").into()),
        age(),
    ]
}

/// The strategy of volume attributes classes.
#[derive(Debug)]
pub(in crate::registry::builtin) struct VolumeAttributesClassStrategy;

impl Strategy for VolumeAttributesClassStrategy {
    fn admit(&self, old: Option<&Value>, object: &mut Value) -> Result<(), String> {
        super::protect(old, object, "kubernetes.io/vac-protection");
        Ok(())
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            if let Some(old) = old {
                for name in ["driverName", "parameters"] {
                    if field(old, name) != field(new, name) {
                        errors.forbidden(&Path::new(name), &format!("updates to {name} are forbidden."));
                    }
                }
            }
            validate_provisioner(text_field(new, "driverName"), &Path::new("driverName"), errors);
            validate_parameters(new, false, errors);
        })
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

pub(in crate::registry::builtin) fn volume_attributes_class_columns() -> Vec<Column> {
    vec![string("DriverName", |object, _| text(object, "/driverName").into()), age()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn strategy() -> StorageClassStrategy {
        StorageClassStrategy { classes: Arc::default() }
    }

    #[test]
    fn classes_are_immutable_but_for_their_topologies() {
        let mut class = json!({"provisioner": "Example.com/disk"});
        strategy().default(&mut class);
        assert_eq!(strategy().validate(None, &class), []);
        let mut changed = class.clone();
        changed["reclaimPolicy"] = "Retain".into();
        changed["allowVolumeExpansion"] = true.into();
        let found: Vec<_> = strategy().validate(Some(&class), &changed).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["reclaimPolicy: Invalid value: \"Retain\": field is immutable"]);
    }

    #[test]
    fn topologies_must_differ() {
        let term = |values: [&str; 2]| json!({"matchLabelExpressions": [{"key": "zone", "values": values}]});
        let class = json!({
            "provisioner": "p", "volumeBindingMode": "Immediate",
            "allowedTopologies": [term(["a", "b"]), term(["b", "a"]), term(["a", "a"])],
        });
        let found: Vec<_> = strategy().validate(None, &class).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\"",
                "allowedTopologies[2].matchLabelExpressions[0].values[1]: Duplicate value: \"a\"",
            ]
        );
    }

    #[test]
    fn attributes_need_parameters() {
        let class = json!({"driverName": "d"});
        let found = VolumeAttributesClassStrategy.validate(None, &class);
        assert_eq!(found[0].to_string(), "parameters: Required value: must contain at least one key/value pair");
    }
}
