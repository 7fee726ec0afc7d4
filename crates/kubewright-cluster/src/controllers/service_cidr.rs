//! The ranges of addresses of services: their finalizers, their readiness, and their deletion, which waits until no
//! address would be left without a range (KEP-1880).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kubewright_apimachinery::cidr::Cidr;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    reconcile::{Controller, Key, Plan, Step},
    service_addresses::MANAGED_BY,
    value::{is_deleting, list, text, time},
};
use crate::events::written;

/// The field manager of the conditions.
const MANAGER: &str = "service-cidr-controller";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// The time from the deletion of a range to the removal of its finalizer, in which servers stop allocating from it.
const GRACE: Duration = Duration::from_secs(10);
const READY: &str = "Kubernetes Service CIDR is ready";
const IN_USE: &str =
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";

/// The controller of the ranges. Its keys are their names, without a namespace.
#[derive(Debug, Default)]
pub(crate) struct ServiceCidrs {
    ranges: BTreeMap<String, Arc<Value>>,
    /// The addresses of services.
    addresses: BTreeSet<IpAddr>,
}

/// Returns the condition of a range that addresses can be allocated from.
pub(super) fn ready(message: &str, now: Timestamp) -> Value {
    json!({"type": "Ready", "status": "True", "reason": "", "message": message, "lastTransitionTime": written(now)})
}

fn blocked(now: Timestamp) -> Value {
    json!({"type": "Ready", "status": "False", "reason": "Terminating", "message": IN_USE, "lastTransitionTime": written(now)})
}

fn cidrs(range: &Value) -> impl Iterator<Item = Cidr> {
    list(range, "/spec/cidrs").iter().filter_map(|cidr| Cidr::parse(cidr.as_str()?))
}

fn key(name: &str) -> Key {
    Key { namespace: String::new(), name: name.into() }
}

impl ServiceCidrs {
    /// Returns the ranges that are being deleted, for which another object may decide whether they can go.
    fn deleting(&self) -> Vec<Key> {
        self.ranges.iter().filter(|(_, range)| is_deleting(range)).map(|(name, _)| key(name)).collect()
    }

    /// Returns whether all addresses of a range are in other ranges too.
    fn can_go(&self, name: &str, range: &Value) -> bool {
        let others = || self.ranges.iter().filter(|(other, _)| *other != name).flat_map(|(_, other)| cidrs(other));
        let in_range = |address: &&IpAddr| cidrs(range).any(|cidr| cidr.contains(**address));
        self.addresses.iter().filter(in_range).all(|address| others().any(|other| other.contains(*address)))
    }
}

impl Controller for ServiceCidrs {
    fn reset(&mut self) {
        *self = Self::default();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        let gone = change.kind == ChangeKind::Deleted;
        if Kind::IP_ADDRESS.is_of(change) {
            let object = change.object();
            let Ok(address) = text(object, "/metadata/name").parse() else { return Vec::new() };
            if gone || object["metadata"]["labels"][MANAGED_BY.0] != MANAGED_BY.1 {
                self.addresses.remove(&address);
            } else {
                self.addresses.insert(address);
            }
            return self.deleting();
        }
        if !Kind::SERVICE_CIDR.is_of(change) {
            return Vec::new();
        }
        let object = change.object();
        let name = text(object, "/metadata/name");
        match gone {
            true => self.ranges.remove(name),
            false => self.ranges.insert(name.into(), object.clone()),
        };
        let mut keys = self.deleting();
        keys.push(key(name));
        keys
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(range) = self.ranges.get(&key.name) else { return Plan::default() };
        let kind = Kind::SERVICE_CIDR;
        let mut plan = Plan::of(&kind, range);
        let finalizers = list(range, "/metadata/finalizers");
        let is_protected = finalizers.iter().any(|name| name == FINALIZER);
        let Some(deleted) = time(range, "/metadata/deletionTimestamp") else {
            if !is_protected {
                let all = finalizers.iter().cloned().chain([FINALIZER.into()]).collect::<Vec<_>>();
                plan.steps.push(Step::change(&kind, range, json!({"metadata": {"finalizers": all}})));
            }
            plan.steps.extend(set_condition(range, ready(READY, now)));
            return plan;
        };
        if !is_protected {
            return plan;
        }
        if !self.can_go(&key.name, range) {
            plan.steps.extend(set_condition(range, blocked(now)));
            return plan;
        }
        match Duration::try_from(deleted + GRACE - now) {
            Ok(left) if !left.is_zero() => plan.requeue_after(left),
            _ => {
                let others = finalizers.iter().filter(|name| *name != FINALIZER).collect::<Vec<_>>();
                plan.steps.push(Step::change(&kind, range, json!({"metadata": {"finalizers": others}})));
            }
        }
        plan
    }
}

/// Returns the step that sets the condition; `None` if it is the same but for its time.
fn set_condition(range: &Value, condition: Value) -> Option<Step> {
    let known = list(range, "/status/conditions");
    let same = |known: &&Value| ["status", "reason", "message"].iter().all(|field| known[field] == condition[field]);
    let is_of_type = |known: &&Value| known["type"] == condition["type"];
    if known.iter().find(is_of_type).is_some_and(|known| same(&known)) {
        return None;
    }
    let name = text(range, "/metadata/name");
    let config = conditions(name, condition);
    Some(Step::Apply(Kind::SERVICE_CIDR.address("", name), "/status", MANAGER, config))
}

/// Returns the configuration of a range with a condition.
pub(super) fn conditions(name: &str, condition: Value) -> Value {
    let kind = Kind::SERVICE_CIDR;
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": name}, "status": {"conditions": [condition]},
    })
}
