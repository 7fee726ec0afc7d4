//! Drivers of storage: `CSIDriver`, `CSINode` and `CSIStorageCapacity`.

use std::collections::BTreeSet;

use kubewright_apimachinery::{name, status::Cause};
use serde_json::{Value, json};

use crate::{
    fields::{fill, flag, list, remove, set, within},
    registry::{
        Column, Strategy,
        builtin::{
            columns::{age, integer, string, truth},
            pod::{label_selector_warnings, validate_csi_driver_name},
            validation::{
                Errors, IMMUTABLE, Path, Quantity, Shown, field, items, optional_int, optional_string,
                string as text_field, strings, validate_label_selector, validate_nonnegative, validate_text,
            },
        },
    },
};

/// The greatest length of a node's ID.
const MAX_NODE_ID: usize = 256;

/// The strategy of drivers.
#[derive(Debug)]
pub(in crate::registry::builtin) struct CsiDriverStrategy;

impl Strategy for CsiDriverStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            fill(spec, "attachRequired", true);
            fill(spec, "podInfoOnMount", false);
            fill(spec, "storageCapacity", false);
            fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
            if list(spec, "/volumeLifecycleModes").is_empty() {
                set(spec, "volumeLifecycleModes", json!(["Persistent"]));
            }
            fill(spec, "requiresRepublish", false);
            fill(spec, "seLinuxMount", false);
        });
    }

    /// Unlike for other kinds, the first change of a driver is generation 1.
    fn prepare_create(&self, object: &mut Value) {
        within(object, "metadata", |metadata| drop(remove(metadata, "generation")));
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            validate_driver(&new["spec"], errors);
            let Some(old) = old else { return };
            // As in Kubernetes, the path of the first field is misspelled.
            for (name, shown) in
                [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")]
            {
                if old["spec"][name] != new["spec"][name] {
                    errors.invalid(&Path::new("spec").child(shown), new["spec"][name].clone(), IMMUTABLE);
                }
            }
        })
    }

    fn warnings(&self, old: Option<&Value>, new: &Value) -> Vec<String> {
        let spec = &new["spec"];
        let changed = old.is_none_or(|old| old["spec"]["tokenRequests"] != spec["tokenRequests"]);
        let is_unset = field(spec, "serviceAccountTokenInSecrets").is_none();
        if !changed || !is_unset || items(spec, "tokenRequests").is_empty() {
            return Vec::new();
        }
        vec![
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
             possible logging of tokens in volume attributes"
                .into(),
        ]
    }

    fn has_own_validation(&self) -> bool {
        true
    }
}

fn validate_driver(spec: &Value, errors: &mut Errors) {
    const POLICIES: &[&str] = &["File", "None", "ReadWriteOnceWithFSType"];
    const MODES: &[&str] = &["Persistent", "Ephemeral"];
    let path = Path::new("spec");
    if let Some(policy) = optional_string(spec, "fsGroupPolicy").filter(|policy| !POLICIES.contains(policy)) {
        errors.not_supported(&path.child("fsGroupPolicy"), policy, POLICIES);
    }
    validate_token_requests(spec, &path.child("tokenRequests"), errors);
    for mode in strings(spec, "volumeLifecycleModes").filter(|mode| !MODES.contains(mode)) {
        errors.not_supported(&path.child("volumeLifecycleModes"), mode, MODES);
    }
    if let Some(period) = optional_int(spec, "nodeAllocatableUpdatePeriodSeconds").filter(|period| *period < 10) {
        let path = path.child("nodeAllocatableUpdatePeriodSeconds");
        errors.invalid(&path, period, "must be greater than or equal to 10 seconds");
    }
    if let Some(in_secrets) = field(spec, "serviceAccountTokenInSecrets")
        && items(spec, "tokenRequests").is_empty()
    {
        let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.invalid(&path.child("serviceAccountTokenInSecrets"), in_secrets.clone(), why);
    }
}

fn validate_token_requests(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut audiences = BTreeSet::new();
    for (index, request) in items(spec, "tokenRequests").iter().enumerate() {
        let path = path.index(index);
        let audience = text_field(request, "audience");
        if !audiences.insert(audience) {
            errors.duplicate(&path.child("audience"), audience);
            continue;
        }
        let Some(seconds) = optional_int(request, "expirationSeconds") else { continue };
        let path = path.child("expirationSeconds");
        if seconds < 600 {
            errors.invalid(&path, seconds, "may not specify a duration less than 10 minutes");
        }
        if seconds > 1 << 32 {
            errors.invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds");
        }
    }
}

pub(in crate::registry::builtin) fn csi_driver_columns() -> Vec<Column> {
    vec![
        truth("AttachRequired", |object, _| flag(object, "/spec/attachRequired").into()),
        truth("PodInfoOnMount", |object, _| flag(object, "/spec/podInfoOnMount").into()),
        truth("StorageCapacity", |object, _| flag(object, "/spec/storageCapacity").into()),
        string("TokenRequests", |object, _| match field(&object["spec"], "tokenRequests") {
            None => "<unset>".into(),
            Some(_) => {
                let requests = items(&object["spec"], "tokenRequests").iter();
                requests.map(|request| text_field(request, "audience")).collect::<Vec<_>>().join(",").into()
            }
        }),
        truth("RequiresRepublish", |object, _| flag(object, "/spec/requiresRepublish").into()),
        string("Modes", |object, _| {
            let modes: Vec<_> = strings(&object["spec"], "volumeLifecycleModes").collect();
            if modes.is_empty() { "<none>".into() } else { modes.join(",").into() }
        }),
        age(),
    ]
}

/// The strategy of the drivers of a node.
#[derive(Debug)]
pub(in crate::registry::builtin) struct CsiNodeStrategy;

impl Strategy for CsiNodeStrategy {
    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            validate_node_drivers(new, errors);
            let Some(old) = old else { return };
            for old in items(&old["spec"], "drivers") {
                let same = |driver: &&Value| text_field(driver, "name") == text_field(old, "name");
                for new in items(&new["spec"], "drivers").iter().filter(same) {
                    let fields = ["name", "nodeID", "topologyKeys"];
                    if fields.iter().any(|name| field(old, name) != field(new, name)) {
                        errors.invalid(&Path::new("spec.drivers"), shown_driver(new), IMMUTABLE);
                    }
                }
            }
        })
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

/// Shows a driver as Kubernetes' internal type, without the number of volumes, which may change.
fn shown_driver(driver: &Value) -> Shown {
    Shown::object([
        ("Name", text_field(driver, "name").into()),
        ("NodeID", text_field(driver, "nodeID").into()),
        ("TopologyKeys", Shown::nullable(driver.get("topologyKeys"))),
        ("Allocatable", Value::Null.into()),
    ])
}

fn validate_node_drivers(node: &Value, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    let path = Path::new("spec.drivers");
    for (index, driver) in items(&node["spec"], "drivers").iter().enumerate() {
        let path = path.index(index);
        let name = text_field(driver, "name");
        validate_csi_driver_name(name, &path.child("name"), errors);
        let id = text_field(driver, "nodeID");
        if id.is_empty() {
            errors.required(&path.child("nodeID"), "");
        }
        if id.len() > MAX_NODE_ID {
            errors.invalid(&path.child("nodeID"), id, &format!("must be {MAX_NODE_ID} characters or less"));
        }
        if let Some(count) = optional_int(&driver["allocatable"], "count") {
            validate_nonnegative(count, &path.child("allocatable").child("count"), errors);
        }
        if !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        let mut keys = BTreeSet::new();
        for key in strings(driver, "topologyKeys") {
            if key.is_empty() {
                errors.required(&path, "");
            }
            if !keys.insert(key) {
                errors.duplicate(&path, key);
            }
            validate_text(key, name::label_key, &path, errors);
        }
    }
}

pub(in crate::registry::builtin) fn csi_node_columns() -> Vec<Column> {
    vec![integer("Drivers", |object, _| list(object, "/spec/drivers").len().into()), age()]
}

/// The strategy of storage capacities.
#[derive(Debug)]
pub(in crate::registry::builtin) struct CsiStorageCapacityStrategy;

impl Strategy for CsiStorageCapacityStrategy {
    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            if let Some(selector) = field(new, "nodeTopology") {
                validate_label_selector(selector, &Path::new("nodeTopology"), errors);
            }
            let class = text_field(new, "storageClassName");
            validate_text(class, name::dns1123_subdomain, &Path::new("storageClassName"), errors);
            if let Some(capacity) = field(new, "capacity")
                && Quantity::read(capacity).is_negative()
            {
                errors.invalid(&Path::new("capacity"), capacity.clone(), "must be greater than or equal to 0");
            }
            let Some(old) = old else { return };
            if field(old, "nodeTopology") != field(new, "nodeTopology") {
                errors.invalid(&Path::new("nodeTopology"), Shown::selector(&new["nodeTopology"]), IMMUTABLE);
            }
            if text_field(old, "storageClassName") != class {
                errors.invalid(&Path::new("storageClassName"), class, IMMUTABLE);
            }
        })
    }

    fn warnings(&self, _old: Option<&Value>, new: &Value) -> Vec<String> {
        label_selector_warnings(&new["nodeTopology"], &Path::new("nodeTopology"))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_get_their_published_defaults() {
        let mut driver = json!({});
        CsiDriverStrategy.default(&mut driver);
        let expected = json!({
            "attachRequired": true, "podInfoOnMount": false, "storageCapacity": false, "requiresRepublish": false,
            "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"], "seLinuxMount": false,
        });
        assert_eq!(driver["spec"], expected);
        assert_eq!(CsiDriverStrategy.validate(None, &driver), []);
        let mut changed = driver.clone();
        changed["spec"]["attachRequired"] = false.into();
        let found = CsiDriverStrategy.validate(Some(&driver), &changed);
        assert_eq!(found[0].to_string(), "spec.attachedRequired: Invalid value: false: field is immutable");
    }

    #[test]
    fn a_driver_is_once_on_a_node() {
        let driver = json!({"name": "d", "nodeID": "n", "allocatable": {"count": 1}});
        let node = json!({"spec": {"drivers": [driver, driver]}});
        let found: Vec<_> = CsiNodeStrategy.validate(None, &node).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["spec.drivers[1].name: Duplicate value: \"d\""]);
        let old = json!({"spec": {"drivers": [driver]}});
        let mut new = old.clone();
        new["spec"]["drivers"][0]["allocatable"]["count"] = 2.into();
        assert_eq!(CsiNodeStrategy.validate(Some(&old), &new), []);
        new["spec"]["drivers"][0]["nodeID"] = "m".into();
        assert_eq!(CsiNodeStrategy.validate(Some(&old), &new).len(), 1);
    }
}
