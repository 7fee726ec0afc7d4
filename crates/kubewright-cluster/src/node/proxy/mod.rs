//! The service proxy. As with kube-proxy, services answer at their node ports on 127.0.0.1, and on Linux also at their
//! cluster IPs, as far as they are addresses of the loopback network, and at external addresses of the host. If pods
//! have network namespaces, all cluster IPs are in one, too ([`super::service_network`]), and so are all other external
//! addresses.
//!
//! * [`route`]: the endpoints of each address
//! * [`places`]: where the node listens on an address
//! * [`service_listener`]: one address at which a service answers
//! * [`datagrams`]: the UDP ports of services
//!
//! A service without a ready endpoint refuses connections. Services are found by the environment variables of
//! [`super::service_env`], by names ([`super::hosts`] and [`super::dns`]), or by their addresses. Pods see all
//! connections as coming from the node.

mod datagrams;
mod places;
mod route;
mod service_listener;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    sync::Arc,
};

use kubewright_apiserver::{ApiServer, Change, ChangeKind};
use serde_json::Value;

use self::route::{protocol, routes};
pub(crate) use self::{
    places::Places,
    route::{Protocol, Route, Routes},
    service_listener::{ListenerContext, Place, ServiceListener},
};
use crate::{
    controllers::{
        batch,
        reconcile::Key,
        value::{list, text},
    },
    events::{ObjectEvent, Recorder},
};

/// Proxies connections for as long as it is polled. Dropping the future closes all addresses.
pub(crate) async fn run(api: ApiServer, context: ListenerContext, events: Recorder, places: Places) {
    let mut proxy =
        Proxy { context, events, places, services: BTreeMap::new(), slices: BTreeMap::new(), states: BTreeMap::new() };
    let mut feed = api.feed();
    let mut dirty = BTreeSet::new();
    loop {
        let batch = batch::next(&mut feed).await;
        if batch.restarted {
            proxy.services.clear();
            proxy.slices.clear();
            dirty.extend(proxy.states.keys().cloned());
        }
        dirty.extend(batch.changes.iter().filter_map(|change| proxy.take(change)));
        if feed.is_synced() {
            proxy.settle(std::mem::take(&mut dirty)).await;
        }
    }
}

struct Proxy {
    context: ListenerContext,
    events: Recorder,
    places: Places,
    services: BTreeMap<Key, Arc<Value>>,
    /// The slices by service, then by name.
    slices: BTreeMap<Key, BTreeMap<String, Arc<Value>>>,
    /// The open listeners of each service.
    states: BTreeMap<Key, ServiceState>,
}

/// The listeners of a service.
struct ServiceState {
    uid: String,
    listeners: BTreeMap<(Protocol, SocketAddr), ServiceListener>,
}

impl Proxy {
    /// Processes a change, and returns the affected service.
    fn take(&mut self, change: &Change) -> Option<Key> {
        let key = match &*change.resource.storage {
            "/services" | "discovery.k8s.io/endpointslices" => Key::of(change.object())?,
            _ => return None,
        };
        let gone = change.kind == ChangeKind::Deleted;
        if &*change.resource.storage == "/services" {
            match gone {
                true => self.services.remove(&key),
                false => self.services.insert(key.clone(), change.object().clone()),
            };
            return Some(key);
        }
        let name = change.object()["metadata"]["labels"]["kubernetes.io/service-name"].as_str()?;
        let service = Key { namespace: key.namespace, name: name.into() };
        let slices = self.slices.entry(service.clone()).or_default();
        match gone {
            true => slices.remove(&key.name),
            false => slices.insert(key.name, change.object().clone()),
        };
        if slices.is_empty() {
            self.slices.remove(&service);
        }
        Some(service)
    }

    /// Opens and closes listeners. All obsolete listeners are closed before new ones are opened, since a port may have
    /// moved from one service to another.
    async fn settle(&mut self, dirty: BTreeSet<Key>) {
        let mut wanted = Vec::new();
        for key in dirty {
            let slices: Vec<&Value> = self.slices.get(&key).into_iter().flatten().map(|(_, slice)| &**slice).collect();
            let service = self.services.get(&key).cloned();
            let routes =
                service.as_deref().map(|service| routes(service, &slices, self.places.node())).unwrap_or_default();
            if let Some(policies) = &self.context.policies {
                policies.set_routes(&key, &routes);
            }
            let uid = service.as_deref().map(|service| text(service, "/metadata/uid").to_owned());
            if let Some(state) = self.states.get_mut(&key) {
                let same = uid.as_ref() == Some(&state.uid);
                let past = state.listeners.extract_if(.., |address, _| !same || !routes.contains_key(address));
                for (_, listener) in past.collect::<Vec<_>>() {
                    listener.close().await;
                }
                self.places.retain(&key, |ip| same && routes.keys().any(|(_, address)| address.ip() == ip)).await;
                if !same {
                    self.states.remove(&key);
                }
            }
            wanted.extend(service.map(|service| (key, service, routes)));
        }
        for (key, service, routes) in wanted {
            let uid = text(&service, "/metadata/uid").to_owned();
            let state = self.states.entry(key.clone()).or_insert_with(|| {
                unsupported_ports(&service).into_iter().for_each(|told| self.events.record(told));
                ServiceState { uid, listeners: BTreeMap::new() }
            });
            for (at, route) in routes {
                if let Some(listener) = state.listeners.get(&at) {
                    listener.set_route(route);
                    continue;
                }
                let (events, service) = (self.events.clone(), service.clone());
                let (_, address) = at;
                let Some(place) = self.places.of(address.ip(), &key).await else { continue };
                let on_failure = move |error: &io::Error| events.record(listen_failure(&service, address, error));
                let listener = ServiceListener::open(at, place, route, self.context.clone(), on_failure);
                state.listeners.insert(at, listener);
            }
        }
    }
}

/// Returns an event about ports with unsupported protocols.
fn unsupported_ports(service: &Value) -> Option<ObjectEvent> {
    let ports = list(service, "/spec/ports").iter().filter(|port| protocol(port).is_none());
    let ports: Vec<_> = ports.map(|port| format!("{}/{}", port["port"], text(port, "/protocol"))).collect();
    let message = format!("this node proxies TCP and UDP only; these ports are not served: {}", ports.join(", "));
    (!ports.is_empty()).then(|| about(service, true, "ProtocolNotSupported", message))
}

/// Returns an event about an address that can't be bound. Ports of cluster IPs below 1024 require a privilege that is
/// often missing, so in that case the event is not a warning.
fn listen_failure(service: &Value, address: SocketAddr, error: &io::Error) -> ObjectEvent {
    if error.kind() == io::ErrorKind::PermissionDenied {
        let message = format!(
            "failed to listen on {address}: {error}; ports below 1024 need a privilege here: use another port, a node port or \
             the pods' addresses"
        );
        return about(service, false, "PortNeedsPrivilege", message);
    }
    let message = format!(
        "failed to listen on {address}: {error}; another program of this machine may use the port: stop it, or choose another \
         port. Retrying every few seconds"
    );
    about(service, true, "PortNotAvailable", message)
}

fn about(service: &Value, warning: bool, reason: &str, message: String) -> ObjectEvent {
    let metadata = |field: &str| text(&service["metadata"], field).to_owned();
    let regarding = ["v1".into(), "Service".into(), metadata("/namespace"), metadata("/name"), metadata("/uid")];
    ObjectEvent::new(regarding, warning, reason, message)
}
