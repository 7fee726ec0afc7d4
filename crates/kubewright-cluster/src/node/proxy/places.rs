//! Where the proxy listens on an address: in the network of the host, or in the network namespace for Services.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, UdpSocket},
    sync::Arc,
};

use super::service_listener::Place;
use crate::{
    controllers::reconcile::Key,
    node::{address::Lease, network::PodNetworks, service_network::ServiceNetwork},
};

/// The network of the node, as the proxy needs it.
pub(crate) struct ProxyNetwork {
    /// The address of the node.
    pub(crate) node: Ipv4Addr,
    /// The factory of the pods' network namespaces, if they have any, and an address for one of the proxy's own.
    pub(crate) pods: Option<(Arc<PodNetworks>, Lease)>,
}

/// The networks in which the node listens on the addresses of Services.
#[derive(Debug)]
pub(super) struct Places {
    node: Ipv4Addr,
    /// The network namespace for Services; `None` if pods have none either, or if it can't be created.
    network: Option<ServiceNetwork>,
    /// The addresses in the namespace, by Service. Several Services may have the same external address.
    routed: BTreeMap<Key, BTreeSet<Ipv4Addr>>,
}

impl Places {
    /// Creates the network namespace for Services, if pods have network namespaces.
    pub(super) async fn open(network: ProxyNetwork) -> Self {
        let mut places = Self { node: network.node, network: None, routed: BTreeMap::new() };
        if let Some((networks, own)) = network.pods {
            let opened = ServiceNetwork::open(networks, own).await;
            let opened = opened.inspect_err(|why| {
                tracing::warn!(
                    why,
                    "Services are in the network of the host: what listens on all addresses takes their ports"
                );
            });
            places.network = opened.ok();
        }
        places
    }

    /// Returns the address of the node.
    pub(super) fn node(&self) -> Ipv4Addr {
        self.node
    }

    /// Returns where a Service can have an address; `None` if the address isn't one of this host, and packets to it
    /// can't be routed into the namespace.
    pub(super) async fn of(&mut self, address: IpAddr, service: &Key) -> Option<Place> {
        let IpAddr::V4(ip) = address else { return None };
        if [Ipv4Addr::LOCALHOST, self.node].contains(&ip) {
            return Some(Place::Host);
        }
        let is_here = is_of_host(ip);
        // The host keeps its other addresses.
        let Some(network) = self.network.as_ref().filter(|_| ip.is_loopback() || !is_here) else {
            return is_here.then_some(Place::Host);
        };
        let has_it = |addresses: &BTreeSet<Ipv4Addr>| addresses.contains(&ip);
        if !self.routed.get(service).is_some_and(has_it) {
            // Only one Service has a cluster IP.
            let is_routed = !ip.is_loopback() && self.routed.values().any(has_it);
            if !is_routed && let Err(why) = network.add(ip).await {
                tracing::warn!(why, %ip, "failed to route the address of a Service");
                return is_here.then_some(Place::Host);
            }
            self.routed.entry(service.clone()).or_default().insert(ip);
        }
        Some(Place::Namespace(network.namespace().clone()))
    }

    /// Removes the addresses that a Service no longer has.
    pub(super) async fn retain(&mut self, service: &Key, holds: impl Fn(Ipv4Addr) -> bool) {
        let Some(addresses) = self.routed.get_mut(service) else { return };
        let past: Vec<_> = addresses.extract_if(.., |ip| !holds(*ip)).collect();
        if addresses.is_empty() {
            self.routed.remove(service);
        }
        for ip in past {
            if let Some(network) = &self.network
                && !self.routed.values().any(|others| others.contains(&ip))
            {
                network.remove(ip).await;
            }
        }
    }
}

/// Returns whether an address is one of the host's, which is so if a socket can have it.
fn is_of_host(ip: Ipv4Addr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}
