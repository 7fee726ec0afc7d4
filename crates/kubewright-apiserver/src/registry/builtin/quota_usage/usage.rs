//! What services, claims of volumes and claims of devices use.

use serde_json::Value;

use super::evaluator::{DEVICES_OF_CLASS, OF_CLAIMS, OF_CLASS};
use crate::{
    amounts::{Amount, Amounts, add, raise},
    fields::{flag, has, int, list, text},
};

/// What a request for all devices of a class counts as: an allocation has no more devices.
const MOST_DEVICES: usize = 32;

/// Returns what a service uses, apart from the number of objects.
pub(super) fn of_service(service: &Value) -> Amounts {
    let ports = list(service, "/spec/ports");
    let (balancers, node_ports) = match text(service, "/spec/type") {
        "NodePort" => (0, ports.len()),
        "LoadBalancer" => {
            let allocates = !has(service, "/spec/allocateLoadBalancerNodePorts")
                || flag(service, "/spec/allocateLoadBalancerNodePorts");
            (1, ports.iter().filter(|port| allocates || int(port, "/nodePort") != 0).count())
        }
        _ => (0, 0),
    };
    let used = [("services", 1), ("services.loadbalancers", balancers), ("services.nodeports", node_ports)];
    used.into_iter().map(|(name, number)| (name.to_owned(), Amount::whole(number))).collect()
}

/// Returns what a claim uses in total and of its storage class, apart from the number of objects.
pub(super) fn of_claim(claim: &Value) -> Amounts {
    let [number, storage] = OF_CLAIMS;
    let mut used = Amounts::from([(number.to_owned(), Amount::whole(1))]);
    if let Some(requested) = storage_of(claim) {
        used.insert(storage.to_owned(), requested);
    }
    let class = storage_class(claim);
    if !class.is_empty() {
        let of_class: Vec<_> =
            used.iter().map(|(name, used)| (format!("{class}{OF_CLASS}{name}"), used.clone())).collect();
        used.extend(of_class);
    }
    used
}

fn storage_class(claim: &Value) -> &str {
    let annotation = claim["metadata"]["annotations"].get("volume.beta.kubernetes.io/storage-class");
    annotation.and_then(Value::as_str).unwrap_or_else(|| text(claim, "/spec/storageClassName"))
}

/// Returns the requested storage, or the allocated one if that is greater, in whole bytes.
fn storage_of(claim: &Value) -> Option<Amount> {
    let mut most = Amount::of(claim.pointer("/spec/resources/requests/storage")?);
    if let Some(allocated) = claim.pointer("/status/allocatedResources/storage").map(Amount::of)
        && allocated.amount > most.amount
    {
        most = allocated;
    }
    most.round_up();
    Some(most)
}

/// Returns the most devices of each class that a claim of devices can get, apart from the number of objects.
pub(super) fn of_device_claim(claim: &Value) -> Amounts {
    let mut used = Amounts::new();
    for request in list(claim, "/spec/devices/requests") {
        let mut most = Amounts::new();
        for choice in list(request, "/firstAvailable").iter().chain(request.get("exactly")) {
            let devices = match text(choice, "/allocationMode") {
                "ExactCount" => Amount::of(&choice["count"]),
                "All" => Amount::whole(MOST_DEVICES),
                _ => continue,
            };
            let name = format!("{}{DEVICES_OF_CLASS}", text(choice, "/deviceClassName"));
            raise(&mut most, &Amounts::from([(name, devices)]));
        }
        add(&mut used, &most);
    }
    used
}
