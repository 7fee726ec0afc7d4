//! Validation of device classes, resource claims and resource slices.

use std::collections::BTreeSet;

use kubewright_apimachinery::{
    cel::{Refusal, SelectorRefusal, check_device_selector},
    name,
};
use serde_json::Value;

use super::{attributes, counters};
use crate::registry::builtin::{
    pod::{validate_csi_driver_name, validate_node_selector},
    validation::{
        Errors, IMMUTABLE, Path, field, int, items, optional_string, string, strings, validate_label_name,
        validate_required_name, validate_template_object_meta, validate_text,
    },
};

/// The greatest number of requests, constraints, configurations and selectors of a claim.
pub(super) const MAX_ITEMS: usize = 32;
/// The greatest number of alternatives of a request.
const MAX_ALTERNATIVES: usize = 8;
/// The greatest number of devices of a slice, and of a slice with taints or shared counters.
const MAX_DEVICES: usize = 128;
const MAX_COMPLEX_DEVICES: usize = 64;
/// The greatest number of sets of counters of a slice.
const MAX_COUNTER_SETS: usize = 8;
/// The greatest length of a selector's expression.
const MAX_EXPRESSION: usize = 10 << 10;
/// The greatest length of the name of a pool.
const MAX_POOL_NAME: usize = 253;

/// Checks a device class.
pub(super) fn validate_class(class: &Value, errors: &mut Errors) {
    let (spec, path) = (&class["spec"], Path::new("spec"));
    validate_selectors(spec, &path.child("selectors"), errors);
    validate_configurations(spec, MAX_ITEMS, None, &path.child("config"), errors);
    if let Some(resource) = optional_string(spec, "extendedResourceName") {
        let native = !resource.contains('/') || resource.contains("kubernetes.io/");
        let is_extended = !native
            && !resource.starts_with("requests.")
            && name::label_key(&format!("requests.{resource}")).is_empty();
        if !is_extended {
            errors.invalid(&path.child("extendedResourceName"), resource, "must be a valid extended resource name");
        }
    }
}

/// Checks a claim, whose spec never changes.
pub(super) fn validate_claim(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    match old {
        None => validate_devices(&new["spec"]["devices"], &path.child("devices"), errors),
        Some(old) if old["spec"] != new["spec"] => errors.invalid(&path, new["spec"].clone(), IMMUTABLE),
        Some(_) => {}
    }
}

/// Checks a template for claims, which never changes.
pub(super) fn validate_template(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let (spec, path) = (&new["spec"], Path::new("spec"));
    validate_template_object_meta(&spec["metadata"], &path.child("metadata"), errors);
    validate_devices(&spec["spec"]["devices"], &path.child("spec").child("devices"), errors);
    if old.is_some_and(|old| old["spec"] != *spec) {
        errors.invalid(&path, spec.clone(), IMMUTABLE);
    }
}

/// Checks the size of a list. Returns its elements if there aren't too many.
pub(super) fn bounded<'a>(
    object: &'a Value,
    name: &str,
    limit: usize,
    path: &Path<'_>,
    errors: &mut Errors,
) -> &'a [Value] {
    let list = items(object, name);
    if list.len() > limit {
        errors.too_many(path, list.len(), limit);
        return &[];
    }
    list
}

/// Checks that the names of a list differ.
fn validate_unique(list: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, item) in list.iter().enumerate() {
        if !seen.insert(string(item, "name")) {
            errors.duplicate(&path.index(index), string(item, "name"));
        }
    }
}

fn validate_devices(devices: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("requests");
    let requests = bounded(devices, "requests", MAX_ITEMS, &at, errors);
    for (index, request) in requests.iter().enumerate() {
        validate_request(request, &at.index(index), errors);
    }
    let names = request_names(devices);
    validate_unique(requests, &at, errors);
    let at = path.child("constraints");
    for (index, constraint) in bounded(devices, "constraints", MAX_ITEMS, &at, errors).iter().enumerate() {
        let path = at.index(index);
        validate_references(constraint, &names, &path.child("requests"), errors);
        const WAYS: [&str; 2] = ["matchAttribute", "distinctAttribute"];
        match WAYS.into_iter().find_map(|way| Some((way, optional_string(constraint, way)?))) {
            Some((way, attribute)) => attributes::validate_fully_qualified_name(attribute, &path.child(way), errors),
            None => {
                let why = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields \
                           are set";
                errors.required(&path, why);
            }
        }
    }
    validate_configurations(devices, MAX_ITEMS, Some(&names), &path.child("config"), errors);
}

/// Returns the names of the requests of a claim, and of their alternatives.
pub(super) fn request_names(devices: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for request in items(devices, "requests").iter().take(MAX_ITEMS) {
        let name = string(request, "name");
        names.insert(name.to_owned());
        names.extend(items(request, "firstAvailable").iter().map(|one| format!("{name}/{}", string(one, "name"))));
    }
    names
}

/// Checks the names of requests that a constraint or configuration is about.
fn validate_references(object: &Value, names: &BTreeSet<String>, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, name) in strings(object, "requests").enumerate() {
        validate_reference(name, names, &path.index(index), errors);
        if !seen.insert(name) {
            errors.duplicate(&path.index(index), name);
        }
    }
}

/// Checks the name of a request.
pub(super) fn validate_reference(name: &str, names: &BTreeSet<String>, path: &Path<'_>, errors: &mut Errors) {
    if name.matches('/').count() < 2 {
        name.split('/').for_each(|part| validate_text(part, name::dns1123_label, path, errors));
    }
    if !names.contains(name) {
        let why = "must be the name of a request in the claim or the name of a request and a subrequest separated by \
                   '/'";
        errors.invalid(path, name, why);
    }
}

fn validate_request(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_text(string(request, "name"), name::dns1123_label, &path.child("name"), errors);
    let at = path.child("firstAvailable");
    match (field(request, "exactly"), items(request, "firstAvailable").is_empty()) {
        (None, true) => errors.required(path, "exactly one of `exactly` or `firstAvailable` is required"),
        (Some(_), false) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid(path, Value::Null, why);
        }
        (Some(exactly), true) => validate_exact(exactly, &path.child("exactly"), errors),
        (None, false) => {
            let alternatives = bounded(request, "firstAvailable", MAX_ALTERNATIVES, &at, errors);
            for (index, request) in alternatives.iter().enumerate() {
                let path = at.index(index);
                validate_text(string(request, "name"), name::dns1123_label, &path.child("name"), errors);
                validate_exact(request, &path, errors);
            }
            validate_unique(alternatives, &at, errors);
        }
    }
}

fn validate_exact(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    let class = string(request, "deviceClassName");
    validate_required_name(class, name::dns1123_subdomain, &path.child("deviceClassName"), errors);
    validate_selectors(request, &path.child("selectors"), errors);
    let (count, at) = (int(request, "count"), path.child("count"));
    match string(request, "allocationMode") {
        "All" if count != 0 => errors.invalid(&at, count, "must not be specified when allocationMode is 'All'"),
        "ExactCount" if count <= 0 => errors.invalid(&at, count, "must be greater than zero"),
        "All" | "ExactCount" => {}
        other => errors.not_supported(&path.child("allocationMode"), other, &["All", "ExactCount"]),
    }
    let at = path.child("tolerations");
    for (index, toleration) in items(request, "tolerations").iter().enumerate() {
        validate_toleration(toleration, &at.index(index), errors);
    }
}

/// Checks a toleration of taints of devices.
fn validate_toleration(toleration: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (key, value) = (string(toleration, "key"), string(toleration, "value"));
    if !key.is_empty() {
        validate_label_name(key, &path.child("key"), errors);
    }
    let at = path.child("operator");
    match string(toleration, "operator") {
        "Exists" if !value.is_empty() => {
            errors.invalid(&path.child("value"), value, "must be empty for operator `Exists`");
        }
        "Exists" => {}
        "Equal" => validate_text(value, name::label_value, &path.child("value"), errors),
        "" => errors.required(&at, ""),
        other => errors.not_supported(&at, other, &["Equal", "Exists"]),
    }
    let effect = string(toleration, "effect");
    if !effect.is_empty() && !attributes::EFFECTS.contains(&effect) {
        errors.not_supported(&path.child("effect"), effect, attributes::EFFECTS);
    }
}

fn validate_selectors(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (index, selector) in bounded(object, "selectors", MAX_ITEMS, path, errors).iter().enumerate() {
        let path = path.index(index);
        let path = path.child("cel");
        let Some(cel) = field(selector, "cel") else {
            errors.required(&path, "");
            continue;
        };
        let (expression, path) = (string(cel, "expression"), path.child("expression"));
        if expression.len() > MAX_EXPRESSION {
            errors.too_long(&path, MAX_EXPRESSION);
            continue;
        }
        match check_device_selector(expression) {
            Ok(()) => {}
            Err(SelectorRefusal::Invalid(why)) => errors.invalid(&path, expression, &why),
            Err(SelectorRefusal::Program(why)) => {
                errors.refused(&path, expression, Refusal::Program(why));
            }
            Err(SelectorRefusal::TooComplex) => errors.forbidden(&path, "too complex, exceeds cost limit"),
        }
    }
}

/// Checks configurations. `names` are those of the requests that those of a claim can be about.
pub(super) fn validate_configurations(
    object: &Value,
    limit: usize,
    names: Option<&BTreeSet<String>>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for (index, configuration) in bounded(object, "config", limit, path, errors).iter().enumerate() {
        let path = path.index(index);
        if let Some(names) = names {
            validate_references(configuration, names, &path.child("requests"), errors);
        }
        let path = path.child("opaque");
        let Some(opaque) = field(configuration, "opaque") else {
            errors.required(&path, "");
            continue;
        };
        validate_csi_driver_name(string(opaque, "driver"), &path.child("driver"), errors);
        validate_parameters(opaque, "parameters", &path, errors);
    }
}

/// Checks a field whose content only a driver knows.
pub(super) fn validate_parameters(object: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child(name);
    match field(object, name) {
        None if object.get(name).is_none_or(Value::is_null) => errors.required(&at, ""),
        Some(Value::Object(_)) => {}
        _ => errors.invalid(&at, "<value omitted>", "must be a valid JSON object"),
    }
}

/// Checks a slice. Its driver, pool and node never change.
pub(super) fn validate_slice(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let (spec, path) = (&new["spec"], Path::new("spec"));
    let (driver, pool) = (string(spec, "driver"), &spec["pool"]);
    validate_csi_driver_name(driver, &path.child("driver"), errors);
    let at = path.child("pool");
    validate_pool(pool, &at, errors);
    if let Some(old) = old {
        let old = &old["spec"];
        let (before, after) = (string(&old["pool"], "name"), string(pool, "name"));
        if before != after {
            errors.invalid(&at.child("name"), after, IMMUTABLE);
        }
        if string(old, "driver") != driver {
            errors.invalid(&path.child("driver"), driver, IMMUTABLE);
        }
        if field(old, "nodeName") != field(spec, "nodeName") {
            errors.invalid(&path.child("nodeName"), spec["nodeName"].clone(), IMMUTABLE);
        }
    }
    validate_place(spec, &path, errors);
    if ["sharedCounters", "devices"].iter().all(|name| !items(spec, name).is_empty()) {
        errors.invalid(&path, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let at = path.child("devices");
    let is_complex = |device: &Value| ["taints", "consumesCounters"].iter().any(|name| !items(device, name).is_empty());
    let devices = items(spec, "devices");
    let limit = if devices.iter().any(is_complex) { MAX_COMPLEX_DEVICES } else { MAX_DEVICES };
    let devices = bounded(spec, "devices", limit, &at, errors);
    for (index, device) in devices.iter().enumerate() {
        let path = at.index(index);
        validate_text(string(device, "name"), name::dns1123_label, &path.child("name"), errors);
        attributes::validate_device(device, &path, errors);
        counters::validate_consumptions(device, &path, errors);
        validate_device_place(spec["perDeviceNodeSelection"] == true, device, &path, errors);
        attributes::validate_binding(device, &path, errors);
    }
    validate_unique(devices, &at, errors);
    let at = path.child("sharedCounters");
    let sets = bounded(spec, "sharedCounters", MAX_COUNTER_SETS, &at, errors);
    for (index, set) in sets.iter().enumerate() {
        counters::validate_set(set, &at.index(index), errors);
    }
    validate_unique(sets, &at, errors);
}

fn validate_pool(pool: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_pool_name(string(pool, "name"), &path.child("name"), errors);
    let (count, generation) = (int(pool, "resourceSliceCount"), int(pool, "generation"));
    if count <= 0 {
        errors.invalid(&path.child("resourceSliceCount"), count, "must be greater than zero");
    }
    if generation < 0 {
        errors.invalid(&path.child("generation"), generation, "must be greater than or equal to zero");
    }
}

/// Checks the name of a pool.
pub(super) fn validate_pool_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > MAX_POOL_NAME {
        errors.too_long(path, MAX_POOL_NAME);
    }
    name.split('/').for_each(|part| validate_text(part, name::dns1123_subdomain, path, errors));
}

/// Checks the fields by which a slice or a device says on which nodes devices are, and returns the names of those that
/// are set. `empty` is the error of an empty node name, `flags` are the fields that can only be true.
fn validate_node_fields(
    object: &Value,
    empty: &str,
    single_term: bool,
    flags: &[&str],
    path: &Path<'_>,
    errors: &mut Errors,
) -> Vec<String> {
    let mut fields = Vec::new();
    match optional_string(object, "nodeName") {
        Some("") => errors.invalid(&path.child("nodeName"), "", empty),
        Some(node) => {
            fields.push("`nodeName`".to_owned());
            validate_text(node, name::dns1123_subdomain, &path.child("nodeName"), errors);
        }
        None => {}
    }
    if let Some(selector) = field(object, "nodeSelector") {
        fields.push("`nodeSelector`".to_owned());
        let path = path.child("nodeSelector");
        validate_node_selector(selector, &path, errors);
        let terms = items(selector, "nodeSelectorTerms");
        if single_term && terms.len() != 1 {
            let why = "must have exactly one node selector term";
            errors.invalid(&path.child("nodeSelectorTerms"), terms.to_vec(), why);
        }
    }
    for name in flags {
        match field(object, name) {
            Some(Value::Bool(true)) => fields.push(format!("`{name}`")),
            Some(_) => errors.invalid(&path.child(name), false, "must be either unset or set to true"),
            None => {}
        }
    }
    fields
}

/// Checks that exactly one of several fields is set.
fn validate_one_set(fields: &[String], none: &str, several: &str, path: &Path<'_>, errors: &mut Errors) {
    match fields.len() {
        0 => errors.required(path, none),
        1 => {}
        _ => errors.invalid(path, format!("{{{}}}", fields.join(", ")), several),
    }
}

/// Checks that a slice says in one way on which nodes its devices are.
fn validate_place(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let empty = "must be either unset or set to a non-empty string";
    let flags = ["allNodes", "perDeviceNodeSelection"];
    let fields = validate_node_fields(spec, empty, true, &flags, path, errors);
    let why = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    validate_one_set(&fields, why, &format!("{why}, but multiple fields are set"), path, errors);
}

/// Checks that a device says in one way on which nodes it is, if the slice leaves that to its devices.
fn validate_device_place(by_device: bool, device: &Value, path: &Path<'_>, errors: &mut Errors) {
    if by_device {
        let fields = validate_node_fields(device, "must not be empty", false, &["allNodes"], path, errors);
        let why = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is \
                   set to true in the ResourceSlice spec";
        return validate_one_set(&fields, why, why, path, errors);
    }
    if ["nodeName", "nodeSelector", "allNodes"].iter().any(|name| field(device, name).is_some()) {
        let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to \
                   true in the ResourceSlice spec";
        errors.invalid(path, Value::Null, why);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(validate: impl FnOnce(&mut Errors)) -> Vec<String> {
        Errors::collect(validate).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn claims_are_checked() {
        let claim = |devices: Value| json!({"spec": {"devices": devices}});
        let exactly = json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 0});
        let new = claim(json!({
            "requests": [{"name": "a", "exactly": exactly}, {"name": "a"}],
            "constraints": [{"requests": ["b"], "matchAttribute": "x/y"}],
        }));
        let found = texts(|errors| validate_claim(None, &new, errors));
        assert_eq!(
            found,
            [
                "spec.devices.requests[0].exactly.count: Invalid value: 0: must be greater than zero",
                "spec.devices.requests[1]: Required value: exactly one of `exactly` or `firstAvailable` is required",
                "spec.devices.requests[1]: Duplicate value: \"a\"",
                "spec.devices.constraints[0].requests[0]: Invalid value: \"b\": must be the name of a request in the claim \
                 or the name of a request and a subrequest separated by '/'",
            ]
        );
        assert_eq!(texts(|errors| validate_claim(Some(&claim(json!({}))), &new, errors)).len(), 1);
    }

    #[test]
    fn references_tolerations_and_constraints_of_claims_are_checked() {
        let toleration = json!([{"operator": "Exists", "value": "v", "effect": "X"}, {"key": "k"}]);
        let exactly = json!({
            "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1, "tolerations": toleration,
        });
        let new = json!({"spec": {"devices": {
            "requests": [{"name": "", "exactly": exactly}],
            "constraints": [{}, {"requests": ["a b"], "matchAttribute": "x"}],
        }}});
        let found = texts(|errors| validate_claim(None, &new, errors));
        let at = |text: &str| text.split(": ").take(2).collect::<Vec<_>>().join(": ");
        assert_eq!(
            found.iter().map(|text| at(text)).collect::<Vec<_>>(),
            [
                "spec.devices.requests[0].name: Invalid value",
                "spec.devices.requests[0].exactly.tolerations[0].value: Invalid value",
                "spec.devices.requests[0].exactly.tolerations[0].effect: Unsupported value",
                "spec.devices.requests[0].exactly.tolerations[1].operator: Required value",
                "spec.devices.constraints[0]: Required value",
                "spec.devices.constraints[1].requests[0]: Invalid value",
                "spec.devices.constraints[1].requests[0]: Invalid value",
                "spec.devices.constraints[1].matchAttribute: Invalid value",
            ]
        );
    }

    #[test]
    fn an_update_of_a_template_is_checked_completely() {
        let template = |name: &str| {
            let exactly = json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1});
            json!({"spec": {"spec": {"devices": {"requests": [{"name": name, "exactly": exactly}]}}}})
        };
        let found = texts(|errors| validate_template(Some(&template("a")), &template("A"), errors));
        assert_eq!(found.len(), 2, "{found:?}");
    }

    /// The answers are those of Kubernetes 1.36.3.
    #[test]
    fn counters_and_conditions_of_slices_are_checked() {
        let slice = |fields: Value| {
            let mut spec = json!({"driver": "d", "pool": {"name": "p", "resourceSliceCount": 1}, "allNodes": true});
            spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            texts(|errors| validate_slice(None, &json!({"spec": spec}), errors))
        };
        let set = json!({"name": "s", "counters": {"c": {"value": "1"}}});
        assert_eq!(slice(json!({"sharedCounters": [set]})), [""; 0]);
        let device = json!({"name": "d", "bindingConditions": ["a"]});
        assert_eq!(
            slice(json!({"sharedCounters": [set, {}], "devices": [device]})),
            [
                "spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed",
                "spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required \
                 to use bindingConditions",
                "spec.sharedCounters[1].name: Required value",
                "spec.sharedCounters[1].counters: Required value",
            ]
        );
    }

    #[test]
    fn a_slice_is_in_one_place() {
        let slice = |place: Value| {
            let mut spec = json!({"driver": "d", "pool": {"name": "p", "resourceSliceCount": 1}});
            spec.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
            json!({"spec": spec})
        };
        assert_eq!(texts(|errors| validate_slice(None, &slice(json!({"nodeName": "n"})), errors)), [""; 0]);
        let both = slice(json!({"nodeName": "n", "allNodes": true}));
        let found = texts(|errors| validate_slice(None, &both, errors));
        assert!(found[0].starts_with("spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one"), "{found:?}");
        assert_eq!(texts(|errors| validate_slice(None, &slice(json!({})), errors)).len(), 1);
    }

    #[test]
    fn devices_say_where_they_are_only_if_their_slice_leaves_it_to_them() {
        let slice = |by_device: bool, devices: Value| {
            let pool = json!({"name": "p", "resourceSliceCount": 1});
            let mut spec = json!({"driver": "d.example.com", "pool": pool, "devices": devices});
            spec[if by_device { "perDeviceNodeSelection" } else { "allNodes" }] = true.into();
            texts(|errors| validate_slice(None, &json!({"spec": spec}), errors))
        };
        let devices = json!([
            {"name": "a", "nodeName": "n", "allNodes": true}, {"name": "b", "allNodes": false}, {"name": "c"},
            {"name": "d", "nodeName": ""}, {"name": "e", "nodeName": "n"},
        ]);
        let one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is \
                   set to true in the ResourceSlice spec";
        assert_eq!(
            slice(true, devices),
            [
                format!("spec.devices[0]: Invalid value: \"{{`nodeName`, `allNodes`}}\": {one}"),
                "spec.devices[1].allNodes: Invalid value: false: must be either unset or set to true".into(),
                format!("spec.devices[1]: Required value: {one}"),
                format!("spec.devices[2]: Required value: {one}"),
                "spec.devices[3].nodeName: Invalid value: \"\": must not be empty".into(),
                format!("spec.devices[3]: Required value: {one}"),
            ]
        );
        let found = slice(false, json!([{"name": "a", "allNodes": true}, {"name": "b"}]));
        assert!(
            found.len() == 1 && found[0].starts_with("spec.devices[0]: Invalid value: null: `nodeName`"),
            "{found:?}"
        );
    }
}
