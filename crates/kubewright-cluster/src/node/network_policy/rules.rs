//! The connections that NetworkPolicies allow
//! (<https://kubernetes.io/docs/concepts/services-networking/network-policies/>). Pure.
//!
//! A pod that a policy selects for a direction is isolated in that direction: only what one of its policies allows is
//! allowed. A connection between two pods has to be allowed by the egress policies of its source and the ingress
//! policies of its destination. Pods of the host's network are part of the node, whose connections no policy limits.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
    sync::Arc,
};

use kubewright_apimachinery::cidr::Cidr;
use serde_json::Value;

use crate::controllers::{
    reconcile::Key,
    value::{list, selector, selects, text},
};

/// All ports.
const ALL_PORTS: RangeInclusive<u16> = 0..=u16::MAX;

/// The direction of a connection, as seen by a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    /// The name in `policyTypes`, the field of the rules, and the field of a rule's peers.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Ingress => ("Ingress", "/spec/ingress", "/from"),
            Self::Egress => ("Egress", "/spec/egress", "/to"),
        }
    }
}

/// The protocol of a port in a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Transport {
    Tcp,
    Udp,
    Sctp,
}

impl Transport {
    fn of(port: &Value) -> Option<Self> {
        match port["protocol"].as_str().unwrap_or("TCP") {
            "TCP" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            "SCTP" => Some(Self::Sctp),
            _ => None,
        }
    }
}

/// A range of addresses without parts of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) range: Cidr,
    pub(super) except: Vec<Cidr>,
}

impl Block {
    /// Returns the IPv4 range of an `ipBlock`; `None` for one of IPv6, since pods have no such addresses.
    fn of(block: &Value) -> Option<Self> {
        let parse = |text: &str| Cidr::parse(text).filter(|range| range.address.is_ipv4()).map(Cidr::aligned);
        let except = list(block, "/except").iter().filter_map(|range| parse(range.as_str()?)).collect();
        Some(Self { range: parse(text(block, "/cidr"))?, except })
    }

    fn contains(&self, address: Ipv4Addr) -> bool {
        let is_in = |range: &Cidr| range.contains(IpAddr::V4(address));
        is_in(&self.range) && !self.except.iter().any(is_in)
    }
}

/// The other ends of allowed connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Peers {
    Any,
    Some { pods: BTreeSet<Ipv4Addr>, blocks: Vec<Block> },
}

/// The ports of allowed connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ports {
    Any,
    Some(Vec<(Transport, RangeInclusive<u16>)>),
}

/// Connections that a rule allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) peers: Peers,
    /// Those of the destination.
    pub(super) ports: Ports,
}

impl Allowed {
    /// Returns what allows all connections with a pod.
    pub(super) fn from_pod(address: Ipv4Addr) -> Self {
        Self { peers: Peers::Some { pods: [address].into(), blocks: Vec::new() }, ports: Ports::Any }
    }

    /// Returns whether the rule has a port.
    pub(super) fn has_port(&self, transport: Transport, port: u16) -> bool {
        match &self.ports {
            Ports::Any => true,
            Ports::Some(ports) => ports.iter().any(|(of, ports)| *of == transport && ports.contains(&port)),
        }
    }

    fn has_peer(&self, address: Ipv4Addr) -> bool {
        match &self.peers {
            Peers::Any => true,
            Peers::Some { pods, blocks } => {
                pods.contains(&address) || blocks.iter().any(|block| block.contains(address))
            }
        }
    }
}

/// What is allowed in a direction: everything (`None`), or what one of the rules allows.
pub(super) type Isolation = Option<Vec<Allowed>>;

/// Returns whether a connection with a peer, to a port, is allowed.
pub(super) fn allows(isolation: &Isolation, peer: Ipv4Addr, transport: Transport, port: u16) -> bool {
    let allows = |rule: &Allowed| rule.has_peer(peer) && rule.has_port(transport, port);
    isolation.as_ref().is_none_or(|rules| rules.iter().any(allows))
}

/// The objects that policies are about.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) policies: BTreeMap<Key, Arc<Value>>,
    pub(super) namespaces: BTreeMap<String, Arc<Value>>,
    /// Pods with an address of their own that haven't ended, by UID.
    pub(super) pods: BTreeMap<String, Arc<Value>>,
}

impl Objects {
    /// Returns what is allowed for a pod in a direction. `addresses` are those of pods whose status may not have them
    /// yet, by UID.
    pub(super) fn isolation(
        &self,
        pod: &Value,
        direction: Direction,
        addresses: &BTreeMap<String, Ipv4Addr>,
    ) -> Isolation {
        let (name, rules, _) = direction.names();
        let namespace = text(pod, "/metadata/namespace");
        let selecting = self.policies.iter().filter(|(key, policy)| {
            let is_of_type = list(policy, "/spec/policyTypes").iter().any(|kind| kind == name);
            key.namespace == namespace && is_of_type && selects(&selector(policy, "/spec/podSelector"), pod)
        });
        let mut isolation = None;
        for (key, policy) in selecting {
            let allowed = isolation.get_or_insert_with(Vec::new);
            for rule in list(policy, rules) {
                self.add(allowed, rule, (&key.namespace, pod), direction, addresses);
            }
        }
        isolation
    }

    /// Adds the connections that a rule of a policy in a namespace allows for a pod.
    fn add(
        &self,
        allowed: &mut Vec<Allowed>,
        rule: &Value,
        (namespace, pod): (&str, &Value),
        direction: Direction,
        addresses: &BTreeMap<String, Ipv4Addr>,
    ) {
        let (.., peers) = direction.names();
        let peers = list(rule, peers);
        let blocks: Vec<Block> = peers.iter().filter_map(|peer| Block::of(peer.get("ipBlock")?)).collect();
        let address = |pod: &Value| address(pod, addresses);
        let is_peer = |pod: &Value| peers.iter().any(|peer| self.is_peer(peer, namespace, pod));
        let whole = match peers {
            [] => Peers::Any,
            _ => {
                let pods = self.pods.values().filter(|pod| is_peer(pod)).filter_map(|pod| address(pod));
                Peers::Some { pods: pods.collect(), blocks: blocks.clone() }
            }
        };
        let ports = list(rule, "/ports");
        if ports.is_empty() {
            return allowed.push(Allowed { peers: whole, ports: Ports::Any });
        }
        let mut numbers = Vec::new();
        // The pods of an egress rule in which a port has a name, by the port's number.
        let mut named: BTreeMap<(Transport, u16), BTreeSet<Ipv4Addr>> = BTreeMap::new();
        for port in ports {
            let Some(transport) = Transport::of(port) else { continue };
            match (&port["port"], direction) {
                (Value::String(name), Direction::Ingress) => {
                    numbers.extend(named_ports(pod, name, transport).map(|number| (transport, number..=number)));
                }
                (Value::String(name), Direction::Egress) => {
                    for pod in self.pods.values() {
                        let Some(address) = address(pod) else { continue };
                        let is_in = |block: &Block| block.contains(address);
                        if peers.is_empty() || is_peer(pod) || blocks.iter().any(is_in) {
                            for number in named_ports(pod, name, transport) {
                                named.entry((transport, number)).or_default().insert(address);
                            }
                        }
                    }
                }
                (number, _) => numbers.extend(range(number, &port["endPort"]).map(|range| (transport, range))),
            }
        }
        allowed.push(Allowed { peers: whole, ports: Ports::Some(numbers) });
        allowed.extend(named.into_iter().map(|((transport, number), pods)| Allowed {
            peers: Peers::Some { pods, blocks: Vec::new() },
            ports: Ports::Some(vec![(transport, number..=number)]),
        }));
    }

    /// Returns whether a peer of a rule, in a policy of a namespace, selects a pod.
    fn is_peer(&self, peer: &Value, namespace: &str, pod: &Value) -> bool {
        let (pods, namespaces) = (peer.get("podSelector"), peer.get("namespaceSelector"));
        if pods.is_none() && namespaces.is_none() {
            return false;
        }
        let own = text(pod, "/metadata/namespace");
        let in_namespace = match namespaces {
            None => own == namespace,
            Some(_) => {
                let of = self.namespaces.get(own);
                of.is_some_and(|namespace| selects(&selector(peer, "/namespaceSelector"), namespace))
            }
        };
        in_namespace && (pods.is_none() || selects(&selector(peer, "/podSelector"), pod))
    }
}

/// Returns the address of a pod, if it has one.
pub(super) fn address(pod: &Value, addresses: &BTreeMap<String, Ipv4Addr>) -> Option<Ipv4Addr> {
    let known = addresses.get(text(pod, "/metadata/uid")).copied();
    known.or_else(|| text(pod, "/status/podIP").parse().ok())
}

/// Returns the numbers of a pod's ports with a name.
fn named_ports(pod: &Value, name: &str, transport: Transport) -> impl Iterator<Item = u16> {
    let sidecars = list(pod, "/spec/initContainers").iter().filter(|container| container["restartPolicy"] == "Always");
    let ports = list(pod, "/spec/containers").iter().chain(sidecars).flat_map(|container| list(container, "/ports"));
    ports
        .filter(move |port| port["name"] == name && Transport::of(port) == Some(transport))
        .filter_map(|port| u16::try_from(port["containerPort"].as_u64()?).ok())
}

/// Returns the range of a port; all ports if it has no number.
fn range(port: &Value, end: &Value) -> Option<RangeInclusive<u16>> {
    let number = |value: &Value| u16::try_from(value.as_u64()?).ok();
    match port {
        Value::Null => Some(ALL_PORTS),
        port => number(port).map(|first| first..=number(end).unwrap_or(first)),
    }
}
