//! The rules of network namespaces, in the language of nftables. Pure.

use std::{
    collections::BTreeMap,
    fmt::{Display, Write},
    net::{Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
};

use super::rules::{Allowed, Isolation, Peers, Ports, Transport};

/// The table of the rules.
const TABLE: &str = "ip kubewright_policies";

/// The side of a packet that is compared with the peers of a rule.
#[derive(Clone, Copy)]
enum Side {
    Source,
    Destination,
}

impl Side {
    fn field(self) -> &'static str {
        match self {
            Self::Source => "ip saddr",
            Self::Destination => "ip daddr",
        }
    }
}

/// Returns the commands that remove the rules of a namespace, whether there are any or not.
pub(super) fn none() -> String {
    format!("add table {TABLE}\ndelete table {TABLE}\n")
}

/// Returns the commands that replace the rules of a pod's namespace. `node` is the node's address, and `services` are
/// the addresses at which the pod reaches an endpoint. They are what the pod connects to, since the node connects to
/// the endpoints.
pub(super) fn of_pod(
    node: Ipv4Addr,
    ingress: &Isolation,
    egress: &Isolation,
    services: &[(Transport, SocketAddr)],
) -> String {
    let mut chains = String::new();
    if let Some(rules) = ingress {
        chain(&mut chains, "ingress", "input priority 0", Side::Source, node, |lines| {
            rules.iter().for_each(|rule| allow(lines, "", Side::Source, rule, &rule.ports));
            line(lines, "drop");
        });
    }
    if let Some(rules) = egress {
        // Before connections to other machines are redirected.
        chain(&mut chains, "egress", "output priority -150", Side::Destination, node, |lines| {
            rules.iter().for_each(|rule| allow(lines, "", Side::Destination, rule, &rule.ports));
            services.iter().for_each(|service| line(lines, format_args!("{} accept", destination(*service))));
            line(lines, "drop");
        });
    }
    table(&chains)
}

/// Returns the commands that replace the rules of the namespace for Services. Each of these addresses is open for the
/// peers of its rules only. The ports of the rules are those of endpoints, and aren't compared.
pub(super) fn of_services(node: Ipv4Addr, services: &BTreeMap<(Transport, SocketAddr), Vec<Allowed>>) -> String {
    let mut chains = String::new();
    if !services.is_empty() {
        chain(&mut chains, "ingress", "input priority 0", Side::Source, node, |lines| {
            for (service, rules) in services {
                let to = destination(*service);
                rules.iter().for_each(|rule| allow(lines, &to, Side::Source, rule, &Ports::Any));
                line(lines, format_args!("{to} drop"));
            }
        });
    }
    table(&chains)
}

fn table(chains: &str) -> String {
    let mut text = none();
    if !chains.is_empty() {
        let _ = write!(text, "table {TABLE} {{\n{chains}}}\n");
    }
    text
}

/// Adds a chain that accepts packets of the namespace itself, of accepted connections, and of the node.
fn chain(text: &mut String, name: &str, hook: &str, side: Side, node: Ipv4Addr, rules: impl FnOnce(&mut String)) {
    let device = match side {
        Side::Source => "iifname",
        Side::Destination => "oifname",
    };
    line(text, format_args!("chain {name} {{ type filter hook {hook};"));
    line(text, format_args!("{device} \"lo\" accept"));
    line(text, "ct state established,related accept");
    line(text, format_args!("{} {node} accept", side.field()));
    rules(text);
    line(text, "}");
}

/// Adds the lines that accept what a rule allows, where a packet meets a condition.
fn allow(text: &mut String, condition: &str, side: Side, rule: &Allowed, ports: &Ports) {
    let peers = peers(side, &rule.peers);
    let ports = match ports {
        Ports::Any => vec![String::new()],
        Ports::Some(ports) => ports.iter().map(|(transport, range)| port(*transport, range)).collect(),
    };
    for peer in &peers {
        for port in &ports {
            let words = [condition, peer, port, "accept"];
            let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
            line(text, words.join(" "));
        }
    }
}

fn peers(side: Side, peers: &Peers) -> Vec<String> {
    let field = side.field();
    match peers {
        Peers::Any => vec![String::new()],
        Peers::Some { pods, blocks } => {
            let addresses: Vec<String> = pods.iter().map(Ipv4Addr::to_string).collect();
            let pods = (!addresses.is_empty()).then(|| format!("{field} {{ {} }}", addresses.join(", ")));
            let blocks = blocks.iter().map(|block| {
                let except: String = block.except.iter().map(|range| format!(" {field} != {range}")).collect();
                format!("{field} {}{except}", block.range)
            });
            pods.into_iter().chain(blocks).collect()
        }
    }
}

fn port(transport: Transport, range: &RangeInclusive<u16>) -> String {
    let (name, first, last) = (name(transport), range.start(), range.end());
    match (first, last) {
        (&0, &u16::MAX) => format!("meta l4proto {name}"),
        (first, last) if first == last => format!("{name} dport {first}"),
        (first, last) => format!("{name} dport {first}-{last}"),
    }
}

fn destination((transport, address): (Transport, SocketAddr)) -> String {
    format!("ip daddr {} {} dport {}", address.ip(), name(transport), address.port())
}

fn name(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
        Transport::Sctp => "sctp",
    }
}

fn line(text: &mut String, words: impl Display) {
    let _ = writeln!(text, "{words}");
}
