//! What carries requests to services, as kube-proxy does: each answers at its node ports on 127.0.0.1, and on Linux at its
//! cluster IP, which is an address of the loopback network.
//!
//! * [`plan`]: where connections go
//! * [`door`]: one address that answers
//!
//! A service without a ready endpoint refuses connections. There is no DNS: services are found by the variables of
//! [`super::links`], or by their addresses. To a pod every connection comes from 127.0.0.1.

mod door;
mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    sync::Arc,
};

use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{ApiServer, Change, ChangeKind};
use serde_json::Value;
use tokio_util::task::TaskTracker;

use self::{
    door::Door,
    plan::{is_carried, routes},
};
use crate::{
    controllers::{
        batch,
        reconcile::Key,
        value::{list, text},
    },
    events::{Occurrence, Recorder},
};

/// Carries requests for as long as it is polled. Dropping the future closes all addresses.
pub(crate) async fn run(api: ApiServer, clock: SharedClock, events: Recorder, tasks: TaskTracker) {
    let mut proxy =
        Proxy { clock, events, tasks, services: BTreeMap::new(), slices: BTreeMap::new(), fronts: BTreeMap::new() };
    let mut feed = api.feed();
    let mut dirty = BTreeSet::new();
    loop {
        let batch = batch::next(&mut feed).await;
        if batch.anew {
            proxy.services.clear();
            proxy.slices.clear();
            dirty.extend(proxy.fronts.keys().cloned());
        }
        dirty.extend(batch.changes.iter().filter_map(|change| proxy.take(change)));
        if feed.is_synced() {
            proxy.settle(std::mem::take(&mut dirty)).await;
        }
    }
}

struct Proxy {
    clock: SharedClock,
    events: Recorder,
    tasks: TaskTracker,
    services: BTreeMap<Key, Arc<Value>>,
    /// By service, then by name.
    slices: BTreeMap<Key, BTreeMap<String, Arc<Value>>>,
    /// Where each service answers.
    fronts: BTreeMap<Key, Front>,
}

/// What there is of a service.
struct Front {
    uid: String,
    doors: BTreeMap<SocketAddr, Door>,
}

impl Proxy {
    /// Takes in a change, and says which service it matters to.
    fn take(&mut self, change: &Change) -> Option<Key> {
        let key = match &*change.resource.storage {
            "/services" | "discovery.k8s.io/endpointslices" => Key::of(&change.object)?,
            _ => return None,
        };
        let gone = change.kind == ChangeKind::Deleted;
        if &*change.resource.storage == "/services" {
            match gone {
                true => self.services.remove(&key),
                false => self.services.insert(key.clone(), change.object.clone()),
            };
            return Some(key);
        }
        let name = change.object["metadata"]["labels"]["kubernetes.io/service-name"].as_str()?;
        let service = Key { namespace: key.namespace, name: name.into() };
        let slices = self.slices.entry(service.clone()).or_default();
        match gone {
            true => slices.remove(&key.name),
            false => slices.insert(key.name, change.object.clone()),
        };
        if slices.is_empty() {
            self.slices.remove(&service);
        }
        Some(service)
    }

    /// Lets the services answer where they are to. What is to be closed is, before anything is opened: a port may have
    /// passed from one service to another.
    async fn settle(&mut self, dirty: BTreeSet<Key>) {
        let mut wanted = Vec::new();
        for key in dirty {
            let slices: Vec<&Value> = self.slices.get(&key).into_iter().flatten().map(|(_, slice)| &**slice).collect();
            let service = self.services.get(&key).cloned();
            let routes = service.as_deref().map(|service| routes(service, &slices)).unwrap_or_default();
            let uid = service.as_deref().map(|service| text(service, "/metadata/uid").to_owned());
            if let Some(front) = self.fronts.get_mut(&key) {
                let same = uid.as_ref() == Some(&front.uid);
                let past = front.doors.extract_if(.., |address, _| !same || !routes.contains_key(address));
                for (_, door) in past.collect::<Vec<_>>() {
                    door.close().await;
                }
                if !same {
                    self.fronts.remove(&key);
                }
            }
            wanted.extend(service.map(|service| (key, service, routes)));
        }
        for (key, service, routes) in wanted {
            let uid = text(&service, "/metadata/uid").to_owned();
            let front = self.fronts.entry(key).or_insert_with(|| {
                uncarried(&service).into_iter().for_each(|told| self.events.record(told));
                Front { uid, doors: BTreeMap::new() }
            });
            for (address, route) in routes {
                if let Some(door) = front.doors.get(&address) {
                    door.lead(route);
                    continue;
                }
                let (events, service) = (self.events.clone(), service.clone());
                let trouble = move |error: &io::Error| events.record(unheard(&service, address, error));
                let door = Door::open(address, route, self.clock.clone(), &self.tasks, trouble);
                front.doors.insert(address, door);
            }
        }
    }
}

/// Some ports of a service lead nowhere.
fn uncarried(service: &Value) -> Option<Occurrence> {
    let ports = list(service, "/spec/ports").iter().filter(|port| !is_carried(port));
    let ports: Vec<_> = ports.map(|port| format!("{}/{}", port["port"], text(port, "/protocol"))).collect();
    let message = format!("this node carries TCP only, hence not {}", ports.join(", "));
    (!ports.is_empty()).then(|| about(service, true, "ProtocolNotSupported", message))
}

/// An address can't be had. Ports below 1024 of cluster IPs need a privilege that few have or miss, so that is no warning.
fn unheard(service: &Value, address: SocketAddr, error: &io::Error) -> Occurrence {
    if error.kind() == io::ErrorKind::PermissionDenied {
        let message = format!(
            "can't listen on {address}: {error}. Ports below 1024 need a privilege here: use another port, a node port or \
             the pods' addresses"
        );
        return about(service, false, "PortNeedsPrivilege", message);
    }
    let message = format!(
        "can't listen on {address}: {error}. Another program of this machine may have it: end that, or choose another port. \
         It is tried again every few seconds"
    );
    about(service, true, "PortNotAvailable", message)
}

fn about(service: &Value, warning: bool, reason: &str, message: String) -> Occurrence {
    let metadata = |field: &str| text(&service["metadata"], field).to_owned();
    let regarding = ["v1".into(), "Service".into(), metadata("/namespace"), metadata("/name"), metadata("/uid")];
    Occurrence { regarding, warning, reason: reason.into(), message }
}
