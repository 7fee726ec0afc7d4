//! Kinds with few specific rules.

use kubewright_apimachinery::status::Cause;
use serde_json::Value;

use super::{
    columns::{NONE, age, integer, selector, string, value_or},
    validation::{self, Errors, Path, optional_int, validate_nonnegative},
};
use crate::{
    fields::{entries, has, int, list, text},
    registry::{Column, Strategy},
};

/// The strategy of leases.
#[derive(Debug)]
pub(super) struct LeaseStrategy;

impl Strategy for LeaseStrategy {
    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        // An empty holder is valid: a leader releases its lease by setting it.
        Errors::collect(|errors| {
            let (spec, path) = (&new["spec"], Path::new("spec"));
            if let Some(seconds) = optional_int(spec, "leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
                errors.invalid(&path.child("leaseDurationSeconds"), seconds, "must be greater than 0");
            }
            validate_nonnegative(validation::int(spec, "leaseTransitions"), &path.child("leaseTransitions"), errors);
        })
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

pub(super) fn lease_columns() -> Vec<Column> {
    vec![string("Holder", |object, _| text(object, "/spec/holderIdentity").into()), age()]
}

pub(super) fn endpoints_columns() -> Vec<Column> {
    vec![string("Endpoints", |object, _| endpoints(object).into()), age()]
}

/// The maximum number of addresses in a cell. Further ones are only counted.
const SHOWN: usize = 3;

fn endpoints(object: &Value) -> String {
    let mut places = Vec::new();
    for subset in list(object, "/subsets") {
        let hosts = list(subset, "/addresses").iter().map(|address| text(address, "/ip"));
        let ports = list(subset, "/ports");
        if ports.is_empty() {
            places.extend(hosts.clone().map(str::to_owned));
        }
        for port in ports {
            places.extend(hosts.clone().map(|host| host_and_port(host, int(port, "/port"))));
        }
    }
    shorten(&places)
}

fn host_and_port(host: &str, port: i64) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn shorten(items: &[String]) -> String {
    match items.len() {
        0 => NONE.into(),
        all if all > SHOWN => format!("{} + {} more...", items[..SHOWN].join(","), all - SHOWN),
        _ => items.join(","),
    }
}

pub(super) fn endpoint_slice_columns() -> Vec<Column> {
    vec![
        string("AddressType", |object, _| text(object, "/addressType").into()),
        string("Ports", |object, _| {
            let ports: Vec<_> = list(object, "/ports").iter().map(|port| int(port, "/port").to_string()).collect();
            if ports.is_empty() { "<unset>".into() } else { shorten(&ports).into() }
        }),
        string("Endpoints", |object, _| {
            let addresses = list(object, "/endpoints").iter().flat_map(|endpoint| list(endpoint, "/addresses"));
            let addresses: Vec<_> = addresses.filter_map(Value::as_str).map(String::from).collect();
            if addresses.is_empty() { "<unset>".into() } else { shorten(&addresses).into() }
        }),
        age(),
    ]
}

fn joined(object: &Value, pointer: &str) -> Value {
    let items: Vec<_> = list(object, pointer).iter().filter_map(Value::as_str).map(access_mode).collect();
    items.join(",").into()
}

fn access_mode(mode: &str) -> &str {
    match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        other => other,
    }
}

/// Returns whether a claim has a volume, whose size and access modes its status has.
fn is_bound(claim: &Value) -> bool {
    !text(claim, "/spec/volumeName").is_empty()
}

pub(super) fn claim_columns() -> Vec<Column> {
    vec![
        string("Status", |object, _| {
            let deleting = has(object, "/metadata/deletionTimestamp");
            if deleting { "Terminating".into() } else { text(object, "/status/phase").into() }
        }),
        string("Volume", |object, _| text(object, "/spec/volumeName").into()),
        string(
            "Capacity",
            |claim, _| if is_bound(claim) { value_or(claim, "/status/capacity/storage", "") } else { "".into() },
        ),
        string(
            "Access Modes",
            |claim, _| if is_bound(claim) { joined(claim, "/status/accessModes") } else { "".into() },
        ),
        string("StorageClass", |object, _| text(object, "/spec/storageClassName").into()),
        string("VolumeAttributesClass", |object, _| value_or(object, "/spec/volumeAttributesClassName", "<unset>")),
        age(),
        string("VolumeMode", |object, _| value_or(object, "/spec/volumeMode", "<unset>")).wide(),
    ]
}

pub(super) fn volume_columns() -> Vec<Column> {
    vec![
        string("Capacity", |object, _| value_or(object, "/spec/capacity/storage", "")),
        string("Access Modes", |object, _| joined(object, "/spec/accessModes")),
        string("Reclaim Policy", |object, _| text(object, "/spec/persistentVolumeReclaimPolicy").into()),
        string("Status", |object, _| text(object, "/status/phase").into()),
        string("Claim", |object, _| match text(object, "/spec/claimRef/name") {
            "" => "".into(),
            name => format!("{}/{name}", text(object, "/spec/claimRef/namespace")).into(),
        }),
        string("StorageClass", |object, _| text(object, "/spec/storageClassName").into()),
        string("VolumeAttributesClass", |object, _| value_or(object, "/spec/volumeAttributesClassName", "<unset>")),
        string("Reason", |object, _| text(object, "/status/reason").into()),
        age(),
        string("VolumeMode", |object, _| value_or(object, "/spec/volumeMode", "<unset>")).wide(),
    ]
}

pub(super) fn quota_columns() -> Vec<Column> {
    vec![
        string("Request", |object, _| quota(object, |name| !name.starts_with("limits."))),
        string("Limit", |object, _| quota(object, |name| name.starts_with("limits."))),
        age(),
    ]
}

fn quota(object: &Value, wanted: fn(&str) -> bool) -> Value {
    let amount = |value: Option<&Value>| value.map_or("0".into(), |value| value.as_str().unwrap_or("0").to_owned());
    let parts: Vec<_> = entries(object, "/status/hard")
        .filter(|(name, _)| wanted(name))
        .map(|(name, hard)| format!("{name}: {}/{}", amount(object["status"]["used"].get(name)), amount(Some(hard))))
        .collect();
    parts.join(", ").into()
}

pub(super) fn disruption_budget_columns() -> Vec<Column> {
    vec![
        string("Min Available", |object, _| int_or_percent(object, "/spec/minAvailable")),
        string("Max Unavailable", |object, _| int_or_percent(object, "/spec/maxUnavailable")),
        integer("Allowed Disruptions", |object, _| int(object, "/status/disruptionsAllowed").into()),
        age(),
    ]
}

fn int_or_percent(object: &Value, pointer: &str) -> Value {
    match object.pointer(pointer) {
        None | Some(Value::Null) => "N/A".into(),
        Some(Value::String(text)) => text.as_str().into(),
        Some(number) => number.to_string().into(),
    }
}

pub(super) fn network_policy_columns() -> Vec<Column> {
    vec![string("Pod-Selector", |object, _| selector(object.pointer("/spec/podSelector")).into()), age()]
}

pub(super) fn ingress_columns() -> Vec<Column> {
    vec![
        string("Class", |object, _| value_or(object, "/spec/ingressClassName", NONE)),
        string("Hosts", |object, _| {
            let hosts: Vec<_> = list(object, "/spec/rules")
                .iter()
                .map(|rule| text(rule, "/host"))
                .filter(|it| !it.is_empty())
                .collect();
            if hosts.is_empty() { "*".into() } else { hosts.join(",").into() }
        }),
        string("Address", |object, _| {
            let ingress = list(object, "/status/loadBalancer/ingress").iter();
            let places: Vec<_> =
                ingress.map(|one| if has(one, "/ip") { text(one, "/ip") } else { text(one, "/hostname") }).collect();
            places.join(",").into()
        }),
        string("Ports", |object, _| if list(object, "/spec/tls").is_empty() { "80".into() } else { "80, 443".into() }),
        age(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Cell;

    #[test]
    fn long_lists_of_addresses_are_cut() {
        let addresses: Vec<_> = (1..=5).map(|last| json!({"ip": format!("10.0.0.{last}")})).collect();
        let object = json!({"subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]});
        assert_eq!(endpoints(&object), "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 2 more...");
        assert_eq!(endpoints(&json!({})), "<none>");
        let addresses = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::2"}]);
        let object = json!({"subsets": [{"addresses": addresses, "ports": [{"port": 80}, {"port": 81}]}]});
        assert_eq!(endpoints(&object), "10.0.0.1:80,[fd00::2]:80,10.0.0.1:81 + 1 more...", "port by port");
    }

    #[test]
    fn only_bound_claims_show_a_size() {
        let cells = |volume: &str| {
            let status = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
            let claim = json!({"spec": {"volumeName": volume}, "status": status});
            let named = |column: &Column| ["Capacity", "Access Modes"].contains(&&*column.name);
            let cell = |column: Column| match column.cell {
                Cell::Computed(cell) => cell(&claim, jiff::Timestamp::UNIX_EPOCH),
                Cell::Path(path) => path.as_str().into(),
            };
            claim_columns().into_iter().filter(named).map(cell).collect::<Vec<_>>()
        };
        assert_eq!(cells("v"), ["1Gi", "RWO"]);
        assert_eq!(cells(""), ["", ""]);
    }

    #[test]
    fn leases_are_validated() {
        let lease = json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1, "holderIdentity": ""}});
        assert_eq!(LeaseStrategy.validate(None, &lease).len(), 2);
    }
}
