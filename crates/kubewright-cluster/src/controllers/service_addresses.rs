//! The addresses of services as objects: the ServiceCIDR `kubernetes`, which is the range that addresses are allocated
//! from, and an IPAddress for each cluster IP
//! (<https://kubernetes.io/docs/reference/networking/virtual-ips/#ip-address-objects>).
//!
//! kube-apiserver creates the IPAddress before it stores the service. Here it follows the service, in the next moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind, ServiceRange};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    kubernetes_service::{Operation, SERVICE, Write},
    reconcile::Key,
    service_cidr::{conditions, ready},
    value::{is_deleting, list, text},
};

/// The name of the range that every cluster has.
const DEFAULT: &str = "kubernetes";
const DEFAULT_READY: &str = "Kubernetes default Service CIDR is ready";
/// The field manager of its condition.
const MANAGER: &str = "kubernetes-service-cidr-controller";
/// The label that says who maintains an IPAddress, and its value for those of services.
pub(super) const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");

/// The ServiceCIDR, the IPAddresses and the services that they belong to. Pure.
#[derive(Debug, Default)]
pub(super) struct ServiceAddresses {
    /// The range `kubernetes`, if it exists: whether it needs no write.
    range: Option<bool>,
    /// The cluster IPs of each service.
    services: BTreeMap<Key, Vec<IpAddr>>,
    /// The service that has each cluster IP.
    wanted: BTreeMap<IpAddr, Key>,
    present: BTreeMap<IpAddr, Address>,
    /// The addresses whose IPAddress isn't known to be right.
    unsettled: BTreeSet<IpAddr>,
}

/// An IPAddress.
#[derive(Debug)]
struct Address {
    uid: String,
    /// The service that it refers to; `None` for one that is being deleted or that others maintain.
    service: Option<Key>,
}

impl ServiceAddresses {
    pub(super) fn take(&mut self, change: &Change) {
        let gone = change.kind == ChangeKind::Deleted;
        if SERVICE.is_of(change) {
            self.take_service(change.object(), gone);
        } else if Kind::IP_ADDRESS.is_of(change) {
            self.take_address(change.object(), gone);
        } else if Kind::SERVICE_CIDR.is_of(change) && text(change.object(), "/metadata/name") == DEFAULT {
            let object = change.object();
            let is_settled = is_deleting(object) || !list(object, "/status/conditions").is_empty();
            self.range = (!gone).then_some(is_settled);
        }
    }

    fn take_service(&mut self, service: &Value, gone: bool) {
        let Some(key) = Key::of(service) else { return };
        let addresses = list(service, "/spec/clusterIPs").iter().filter(|_| !gone);
        let addresses = addresses.filter_map(|address| address.as_str()?.parse().ok()).collect::<Vec<IpAddr>>();
        let before = match addresses.is_empty() {
            true => self.services.remove(&key),
            false => self.services.insert(key.clone(), addresses.clone()),
        };
        let before = before.unwrap_or_default();
        for address in before.iter().filter(|address| !addresses.contains(address)) {
            // Another service may have it by now.
            if self.wanted.get(address) == Some(&key) {
                self.wanted.remove(address);
            }
            self.unsettled.insert(*address);
        }
        for address in addresses.iter().filter(|address| !before.contains(address)) {
            self.wanted.insert(*address, key.clone());
            self.unsettled.insert(*address);
        }
    }

    fn take_address(&mut self, object: &Value, gone: bool) {
        let Ok(address) = text(object, "/metadata/name").parse() else { return };
        if gone {
            self.present.remove(&address);
        } else {
            let is_ours = object["metadata"]["labels"][MANAGED_BY.0] == MANAGED_BY.1 && !is_deleting(object);
            let parent = &object["spec"]["parentRef"];
            let service = Key { namespace: text(parent, "/namespace").into(), name: text(parent, "/name").into() };
            let uid = text(object, "/metadata/uid").into();
            self.present.insert(address, Address { uid, service: is_ours.then_some(service) });
        }
        self.unsettled.insert(address);
    }

    /// Returns the required writes.
    pub(super) fn decide(&mut self, range: ServiceRange, now: Timestamp) -> Vec<Write> {
        let path = |name: &str| Kind::SERVICE_CIDR.address("", name);
        let mut writes = Vec::new();
        match self.range {
            None => {
                let body = object(&Kind::SERVICE_CIDR, json!({"name": DEFAULT}), json!({"cidrs": [range.to_string()]}));
                writes.push(Write { path: path(""), operation: Operation::Create(body) });
            }
            Some(true) => {}
            Some(false) => {
                let config = conditions(DEFAULT, ready(DEFAULT_READY, now));
                writes.push(Write { path: path(DEFAULT), operation: Operation::Apply("/status", MANAGER, config) });
            }
        }
        let Self { wanted, present, unsettled, .. } = self;
        unsettled.retain(|address| match (wanted.get(address), present.get(address)) {
            (Some(service), None) => {
                writes.push(create(*address, service));
                true
            }
            (service, Some(Address { uid, service: Some(parent) })) if service != Some(parent) => {
                let path = Kind::IP_ADDRESS.address("", &address.to_string());
                writes.push(Write { path, operation: Operation::Delete(uid.clone()) });
                true
            }
            _ => false,
        });
        writes
    }
}

fn create(address: IpAddr, service: &Key) -> Write {
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let metadata = json!({
        "name": address.to_string(),
        "labels": {"ipaddress.kubernetes.io/ip-family": family, (MANAGED_BY.0): MANAGED_BY.1},
    });
    let parent = json!({"group": "", "resource": SERVICE.plural, "namespace": service.namespace, "name": service.name});
    let body = object(&Kind::IP_ADDRESS, metadata, json!({"parentRef": parent}));
    Write { path: Kind::IP_ADDRESS.address("", ""), operation: Operation::Create(body) }
}

fn object(kind: &Kind, metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata, "spec": spec})
}
