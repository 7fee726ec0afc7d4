//! The status of claims: who uses a claim, which devices it has, and what their drivers say about them.

use std::collections::BTreeSet;

use kubewright_apimachinery::{cidr::Cidr, name};
use serde_json::Value;

use super::{
    attributes,
    validate::{
        MAX_ITEMS, bounded, request_names, validate_configurations, validate_parameters, validate_pool_name,
        validate_reference,
    },
};
use crate::{
    fields,
    registry::builtin::{
        pod::{validate_csi_driver_name, validate_node_selector},
        validation::{
            Errors, IMMUTABLE, Path, Shown, field, items, optional_string, string, strings, validate_conditions,
            validate_text,
        },
    },
};

/// The greatest number of users of a claim.
const MAX_USERS: usize = 256;
const MAX_CONDITIONS: usize = 8;
const MAX_ADDRESSES: usize = 16;
const MAX_INTERFACE: usize = 256;
const MAX_HARDWARE_ADDRESS: usize = 128;
/// The sources of the configuration of an allocated device.
const SOURCES: [&str; 2] = ["FromClaim", "FromClass"];

/// What identifies a device: driver, pool, name and share.
type DeviceId<'a> = [&'a str; 4];

fn id(device: &Value) -> DeviceId<'_> {
    ["driver", "pool", "device", "shareID"].map(|name| string(device, name))
}

fn allocated(status: &Value) -> BTreeSet<DeviceId<'_>> {
    items(&status["allocation"]["devices"], "results").iter().map(id).collect()
}

/// Removes what drivers say about devices that the claim no longer has.
pub(super) fn drop_deallocated(old: &Value, new: &mut Value) {
    let gone: BTreeSet<_> =
        allocated(&old["status"]).difference(&allocated(&new["status"])).map(|id| id.map(str::to_owned)).collect();
    if gone.is_empty() {
        return;
    }
    fields::present(new, "status", |status| {
        fields::present(status, "devices", |devices| {
            if let Value::Array(devices) = devices {
                devices.retain(|device| !gone.contains(&id(device).map(str::to_owned)));
            }
        });
        if items(status, "devices").is_empty() {
            fields::remove(status, "devices");
        }
    });
}

/// Checks the status of a claim. An allocation doesn't change.
pub(super) fn validate_claim_status(old: &Value, new: &Value, errors: &mut Errors) {
    let (before, after, path) = (&old["status"], &new["status"], Path::new("status"));
    let (users, at) = (items(after, "reservedFor"), path.child("reservedFor"));
    validate_users(users, &at, errors);
    let (known, mut seen, devices) = (allocated(after), BTreeSet::new(), path.child("devices"));
    for (index, device) in items(after, "devices").iter().enumerate() {
        validate_device_status(device, &known, &devices.index(index), errors);
        if !seen.insert(id(device)) {
            errors.duplicate(&devices.index(index), shown(device));
        }
    }
    let allocation = field(after, "allocation");
    if allocation.is_none() && !users.is_empty() {
        errors.forbidden(&at, "may not be specified when `allocated` is not set");
    }
    let is_deleted = field(&new["metadata"], "deletionTimestamp").is_some();
    if allocation.is_some() && is_deleted && users.iter().any(|user| !items(before, "reservedFor").contains(user)) {
        let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        errors.forbidden(&at, why);
    }
    let path = path.child("allocation");
    match (field(before, "allocation"), allocation) {
        (Some(before), Some(after)) if before != after => errors.invalid(&path, after.clone(), IMMUTABLE),
        (None, Some(allocation)) => {
            validate_allocation(allocation, &request_names(&new["spec"]["devices"]), &path, errors);
        }
        _ => {}
    }
}

fn validate_users(users: &[Value], path: &Path<'_>, errors: &mut Errors) {
    if users.len() > MAX_USERS {
        errors.too_many(path, users.len(), MAX_USERS);
    }
    let mut seen = BTreeSet::new();
    for (index, user) in users.iter().enumerate() {
        let path = path.index(index);
        for name in ["resource", "name", "uid"] {
            if string(user, name).is_empty() {
                errors.required(&path.child(name), "");
            }
        }
        if !seen.insert(string(user, "uid")) {
            errors.duplicate(&path, string(user, "uid"));
        }
    }
}

/// Shows what identifies a device.
fn shown(device: &Value) -> Shown {
    Shown::object(["Driver", "Pool", "Device", "ShareID"].into_iter().zip(id(device).map(Shown::from)))
}

fn validate_device_names(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_csi_driver_name(string(device, "driver"), &path.child("driver"), errors);
    validate_pool_name(string(device, "pool"), &path.child("pool"), errors);
    validate_text(string(device, "device"), name::dns1123_label, &path.child("device"), errors);
}

fn validate_device_status(device: &Value, known: &BTreeSet<DeviceId<'_>>, path: &Path<'_>, errors: &mut Errors) {
    validate_device_names(device, path, errors);
    attributes::validate_share(device, path, errors);
    if !known.contains(&id(device)) {
        errors.invalid(path, shown(device), "must be an allocated device in the claim");
    }
    let (conditions, at) = (items(device, "conditions"), path.child("conditions"));
    if conditions.len() > MAX_CONDITIONS {
        errors.too_many(&at, conditions.len(), MAX_CONDITIONS);
    }
    validate_conditions(conditions, &at, errors);
    if field(device, "data").is_some() {
        validate_parameters(device, "data", path, errors);
    }
    let (network, path) = (&device["networkData"], path.child("networkData"));
    for (name, limit) in [("interfaceName", MAX_INTERFACE), ("hardwareAddress", MAX_HARDWARE_ADDRESS)] {
        if string(network, name).len() > limit {
            errors.too_long(&path.child(name), limit);
        }
    }
    let (at, mut seen) = (path.child("ips"), BTreeSet::new());
    let addresses = items(network, "ips").len();
    if addresses > MAX_ADDRESSES {
        errors.too_many(&at, addresses, MAX_ADDRESSES);
        return;
    }
    for (index, address) in strings(network, "ips").enumerate() {
        validate_interface_address(address, &at.index(index), errors);
        if !seen.insert(address) {
            errors.duplicate(&at.index(index), address);
        }
    }
}

fn validate_interface_address(address: &str, path: &Path<'_>, errors: &mut Errors) {
    match Cidr::parse(address) {
        None => {
            let why = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
            errors.invalid(path, address, why);
        }
        Some(range) if range.to_string() != address => {
            errors.invalid(path, address, &format!("must be in canonical form (\"{range}\")"));
        }
        Some(_) => {}
    }
}

/// Checks an allocation. `names` are those of the requests of the claim.
fn validate_allocation(allocation: &Value, names: &BTreeSet<String>, path: &Path<'_>, errors: &mut Errors) {
    let (devices, at) = (&allocation["devices"], path.child("devices"));
    let results = at.child("results");
    for (index, result) in bounded(devices, "results", MAX_ITEMS, &results, errors).iter().enumerate() {
        let path = results.index(index);
        validate_reference(string(result, "request"), names, &path.child("request"), errors);
        validate_device_names(result, &path, errors);
        attributes::validate_binding(result, &path, errors);
        attributes::validate_share(result, &path, errors);
    }
    let config = at.child("config");
    for (index, one) in items(devices, "config").iter().enumerate() {
        let path = config.index(index);
        match optional_string(one, "source").unwrap_or_default() {
            "" => errors.required(&path.child("source"), ""),
            source if SOURCES.contains(&source) => {}
            source => errors.not_supported(&path.child("source"), source, &SOURCES),
        }
    }
    // Configurations come from the class and from the claim.
    validate_configurations(devices, 2 * MAX_ITEMS, Some(names), &config, errors);
    if let Some(selector) = field(allocation, "nodeSelector") {
        validate_node_selector(selector, &path.child("nodeSelector"), errors);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(status: Value) -> Value {
        json!({"spec": {"devices": {"requests": [{"name": "a"}]}}, "status": status})
    }

    fn texts(old: Value, new: Value) -> Vec<String> {
        let causes = Errors::collect(|errors| validate_claim_status(&claim(old), &claim(new), errors));
        causes.iter().map(ToString::to_string).collect()
    }

    fn result(request: &str, device: &str) -> Value {
        json!({"request": request, "driver": "d.x", "pool": "p", "device": device})
    }

    #[test]
    fn drivers_describe_the_devices_of_a_claim() {
        let device = |name: &str| json!({"driver": "d.x", "pool": "p", "device": name});
        let mut described = device("a");
        described["networkData"] = json!({"ips": ["1.2.3.4", "10.9.8.7/24", "FE80::1/64"]});
        described["data"] = json!(1);
        let allocation = json!({"devices": {"results": [result("a", "a")]}});
        let status = json!({"allocation": allocation, "devices": [device("b"), described]});
        let at = "status.devices[1].networkData.ips";
        assert_eq!(
            texts(json!({}), status),
            [
                "status.devices[0]: Invalid value: {\"Driver\":\"d.x\",\"Pool\":\"p\",\"Device\":\"b\",\"ShareID\":\"\"}: \
                 must be an allocated device in the claim",
                "status.devices[1].data: Invalid value: \"<value omitted>\": must be a valid JSON object",
                &format!(
                    "{at}[0]: Invalid value: \"1.2.3.4\": must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or \
                     2001:db8::1/64)"
                ),
                &format!("{at}[2]: Invalid value: \"FE80::1/64\": must be in canonical form (\"fe80::1/64\")"),
            ]
        );
    }

    #[test]
    fn an_allocation_is_checked_once_and_stays() {
        let allocation = |result: Value, config: Value| {
            json!({"allocation": {
                "devices": {"results": [result], "config": [config]}, "nodeSelector": {"nodeSelectorTerms": []},
            }})
        };
        let opaque = json!({"driver": "d.x", "parameters": {}});
        let bad = allocation(result("b", ""), json!({"source": "X", "requests": ["z"], "opaque": opaque}));
        let found = texts(json!({}), bad.clone());
        let fields: Vec<_> = found.iter().map(|text| text.split(": ").next().unwrap()).collect();
        let at = "status.allocation.devices";
        assert_eq!(
            fields,
            [
                &format!("{at}.results[0].request"),
                &format!("{at}.results[0].device"),
                &format!("{at}.config[0].source"),
                &format!("{at}.config[0].requests[0]"),
                "status.allocation.nodeSelector.nodeSelectorTerms",
            ]
        );
        assert_eq!(texts(bad.clone(), bad.clone()), [""; 0]);
        assert_eq!(texts(bad, allocation(result("a", "a"), json!({}))).len(), 1);
    }

    #[test]
    fn what_is_known_of_a_device_goes_with_it() {
        let device = json!({"driver": "d.x", "pool": "p", "device": "a"});
        let old = claim(json!({"allocation": {"devices": {"results": [result("a", "a")]}}, "devices": [device]}));
        let mut new = claim(json!({"devices": [device]}));
        drop_deallocated(&old, &mut new);
        assert_eq!(new["status"], json!({}));
        let mut same = old.clone();
        drop_deallocated(&old, &mut same);
        assert_eq!(same, old);
    }

    /// The answers are those of Kubernetes 1.36.3.
    #[test]
    fn shares_and_binding_conditions_are_checked() {
        let allocation = |fields: Value| {
            let mut result = result("a", "a");
            result.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let found = texts(json!({}), json!({"allocation": {"devices": {"results": [result]}}}));
            let begin = "status.allocation.devices.results[0].";
            found.iter().map(|text| text.replace(begin, "").replace("Invalid value: ", "")).collect::<Vec<_>>()
        };
        let conditions = |success: Value, failure: Value| {
            allocation(json!({"bindingConditions": success, "bindingFailureConditions": failure}))
        };
        let overlap = "bindingFailureConditions must not overlap with bindingConditions";
        assert_eq!(conditions(json!(["a"]), json!(["b"])), [""; 0]);
        assert_eq!(
            conditions(json!(["a", "b", "a"]), json!(["c", "a", "c", "a"])),
            [
                "bindingConditions[2]: Duplicate value: \"a\"".to_owned(),
                format!("bindingFailureConditions[1]: \"a\": {overlap}"),
                "bindingFailureConditions[2]: Duplicate value: \"c\"".to_owned(),
                "bindingFailureConditions[3]: Duplicate value: \"a\"".to_owned(),
                format!("bindingFailureConditions[3]: \"a\": {overlap}"),
            ]
        );
        let share = |id: &str| allocation(json!({"shareID": id}));
        assert_eq!(share("a671734a-e8e5-11e4-8fde-42010af09327"), [""; 0]);
        assert_eq!(share("x"), ["shareID: \"x\": error validating uid: invalid UUID length: 1"]);
        assert!(share(&"a".repeat(32))[0].contains("must be in RFC 4122 normalized form"));
    }
}
