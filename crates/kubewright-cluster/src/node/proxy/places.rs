//! Where the proxy listens on an address: in the network of the host, or in the network namespace for Services.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, UdpSocket},
};

use super::service_listener::Place;
use crate::{controllers::reconcile::Key, node::service_network::ServiceNetwork};

/// The networks in which the node listens on the addresses of Services.
#[derive(Debug)]
pub(crate) struct Places {
    node: Ipv4Addr,
    /// The network namespace for Services; `None` if pods have none either, or if it can't be created.
    network: Option<ServiceNetwork>,
    /// The addresses in the namespace, by Service. Several Services may have the same external address.
    routed: BTreeMap<Key, BTreeSet<Ipv4Addr>>,
}

impl Places {
    /// Creates the places of a node with an address, and with a network namespace for Services, if there is one.
    pub(crate) fn new(node: Ipv4Addr, network: Option<ServiceNetwork>) -> Self {
        Self { node, network, routed: BTreeMap::new() }
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
