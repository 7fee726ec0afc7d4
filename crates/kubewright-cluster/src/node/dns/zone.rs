//! The records of the cluster's domain, as the specification of DNS-based service discovery says
//! (<https://github.com/kubernetes/dns/blob/master/docs/specification.md>). Pure.

use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc};

use serde_json::Value;

use crate::controllers::{
    reconcile::Key,
    value::{list, text},
};

/// The domain of the cluster.
pub(crate) const DOMAIN: &str = "cluster.local";
/// The label of an EndpointSlice with the name of its Service.
const SERVICE: &str = "kubernetes.io/service-name";
/// The version of the specification.
const VERSION: &str = "1.1.0";

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// An address.
    Address(Ipv4Addr),
    /// The port of a service, the weight among those of the same name, and the name of a host that serves it.
    Service(u16, u16, String),
    /// Another name.
    Alias(String),
    /// The name of an address.
    Pointer(String),
    /// A text.
    Text(&'static str),
}

/// A ready endpoint of a Service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint<'a> {
    pub(crate) address: &'a str,
    /// The name of its host; empty if it has none.
    pub(crate) host: &'a str,
    slice: &'a Value,
}

/// The objects that the records are made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zone<'a> {
    pub(crate) services: &'a BTreeMap<Key, Arc<Value>>,
    pub(crate) slices: &'a BTreeMap<Key, Arc<Value>>,
}

impl<'a> Zone<'a> {
    /// Returns the records of a name in lower case without the final dot; `None` if there is no such name. A name may
    /// have no records.
    pub(crate) fn records(self, name: &str) -> Option<Vec<Record>> {
        if let Some(reverse) = name.strip_suffix(".in-addr.arpa") {
            return self.pointers(reverse);
        }
        let inner = name.strip_suffix(DOMAIN)?;
        if inner.is_empty() {
            return Some(Vec::new());
        }
        let mut labels: Vec<_> = inner.strip_suffix('.')?.split('.').collect();
        match labels.pop()? {
            "dns-version" if labels.is_empty() => Some(vec![Record::Text(VERSION)]),
            "svc" => self.of_services(&labels),
            "pod" => Some(match labels[..] {
                [] | [_] => Vec::new(),
                [address, _] => vec![Record::Address(address.replace('-', ".").parse().ok()?)],
                _ => return None,
            }),
            _ => None,
        }
    }

    /// Returns whether this domain answers for a name.
    pub(crate) fn contains(name: &str) -> bool {
        let below = |domain: &str| name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        // The addresses of pods and Services are in the loopback network, of which no other server knows.
        below(DOMAIN) || below("127.in-addr.arpa")
    }

    fn of_services<'q>(self, labels: &[&'q str]) -> Option<Vec<Record>> {
        let Some((namespace, rest)) = labels.split_last() else { return Some(Vec::new()) };
        let Some((name, rest)) = rest.split_last() else {
            let known = self
                .services
                .range(Key::first_of(namespace)..)
                .next()
                .is_some_and(|(key, _)| key.namespace == *namespace);
            return known.then(Vec::new);
        };
        let service = self.services.get(&Key { namespace: (*namespace).into(), name: (*name).into() })?;
        if let Some(target) =
            service["spec"]["externalName"].as_str().filter(|_| text(service, "/spec/type") == "ExternalName")
        {
            return rest.is_empty().then(|| vec![Record::Alias(target.trim_end_matches('.').to_lowercase())]);
        }
        let without_mark = |label: &'q str| label.strip_prefix('_').unwrap_or(label);
        let asked = match *rest {
            [] => Asked::default(),
            [endpoint] => Asked { endpoint, ..Asked::default() },
            [port, protocol] => {
                Asked { port: without_mark(port), protocol: without_mark(protocol), ..Asked::default() }
            }
            _ => return None,
        };
        let servers = self.servers(namespace, name, service, asked);
        (!servers.is_empty()).then(|| records_of(servers))
    }

    /// Returns who serves a Service: its endpoints if it is headless or one of them is asked for, else its address.
    fn servers(self, namespace: &str, name: &str, service: &Value, asked: Asked<'_>) -> Vec<Server> {
        let base = format!("{name}.{namespace}.svc.{DOMAIN}");
        let own = text(service, "/spec/clusterIP");
        let server =
            |address: &str, port, name: &str| Server { address: address.parse().ok(), port, name: name.into() };
        if own != "None" && asked.endpoint.is_empty() {
            return ports(service, "/spec/ports", asked).into_iter().map(|port| server(own, port, &base)).collect();
        }
        let endpoints = self.endpoints(namespace, name);
        let found = endpoints.filter(|one| asked.endpoint.is_empty() || one.label() == asked.endpoint);
        let of_endpoint = |endpoint: Endpoint<'_>| {
            let name = format!("{}.{base}", endpoint.label());
            let ports = ports(endpoint.slice, "/ports", asked);
            ports.into_iter().map(|port| server(endpoint.address, port, &name)).collect::<Vec<_>>()
        };
        found.flat_map(of_endpoint).collect()
    }

    /// Returns the names of an address, which is given in reverse.
    fn pointers(self, reverse: &str) -> Option<Vec<Record>> {
        let mut parts: Vec<_> = reverse.split('.').collect();
        parts.reverse();
        let address = parts.join(".");
        let names = self.services.iter().flat_map(|(key, service)| {
            let base = format!("{}.{}.svc.{DOMAIN}", key.name, key.namespace);
            let is_own = text(service, "/spec/clusterIP") == address;
            let at = self.endpoints(&key.namespace, &key.name);
            let at = at.filter(|endpoint| endpoint.address == address);
            let hosts: Vec<_> = at.map(|endpoint| format!("{}.{base}", endpoint.label())).collect();
            is_own.then_some(base).into_iter().chain(hosts)
        });
        let found: Vec<_> = names.map(Record::Pointer).collect();
        (!found.is_empty()).then_some(found)
    }

    /// Returns the ready endpoints of a Service.
    pub(crate) fn endpoints(self, namespace: &'a str, service: &'a str) -> impl Iterator<Item = Endpoint<'a>> {
        let here = self.slices.range(Key::first_of(namespace)..).take_while(move |(key, _)| key.namespace == namespace);
        let own = here.filter(move |(_, slice)| slice["metadata"]["labels"][SERVICE] == service);
        own.flat_map(|(_, slice)| {
            let ready = list(slice, "/endpoints").iter().filter(|endpoint| endpoint["conditions"]["ready"] != false);
            ready.flat_map(move |endpoint| {
                let host = text(endpoint, "/hostname");
                let addresses = list(endpoint, "/addresses").iter().filter_map(|address| address.as_str());
                addresses.map(move |address| Endpoint { address, host, slice })
            })
        })
    }
}

impl Endpoint<'_> {
    /// Returns the label of its name: that of its host, or one made of its address.
    fn label(self) -> String {
        if self.host.is_empty() { self.address.replace('.', "-") } else { self.host.to_lowercase() }
    }
}

/// What a name below that of a Service asks for; empty texts ask for anything.
#[derive(Clone, Copy, Debug, Default)]
struct Asked<'a> {
    endpoint: &'a str,
    port: &'a str,
    protocol: &'a str,
}

/// An endpoint or a Service, at one of its ports.
#[derive(Debug)]
struct Server {
    address: Option<Ipv4Addr>,
    /// The port, if it has one.
    port: Option<u16>,
    name: String,
}

/// Returns the addresses and ports of what has a name, each once.
fn records_of(servers: Vec<Server>) -> Vec<Record> {
    // All have the same share of a hundred, those without a port, too.
    let weight = u16::try_from(100 / servers.len().max(1)).unwrap_or_default().max(1);
    let addresses = servers.iter().filter_map(|server| server.address.map(Record::Address)).collect::<Vec<_>>();
    let services = servers.into_iter().filter_map(|server| Some(Record::Service(server.port?, weight, server.name)));
    let mut records: Vec<Record> = Vec::new();
    for record in addresses.into_iter().chain(services) {
        if !records.contains(&record) {
            records.push(record);
        }
    }
    records
}

/// Returns the numbers of the ports with a name and a protocol. An object without ports has one of `None`, unless a
/// port or protocol is asked for.
fn ports(object: &Value, path: &str, asked: Asked<'_>) -> Vec<Option<u16>> {
    let is_asked = |wanted: &str, given: &str| wanted.is_empty() || wanted.eq_ignore_ascii_case(given);
    let is_meant = |name: &str, protocol: &str| is_asked(asked.port, name) && is_asked(asked.protocol, protocol);
    let all = list(object, path);
    if all.is_empty() {
        return if is_meant("", "") { vec![None] } else { Vec::new() };
    }
    let meant = all.iter().filter(|port| is_meant(text(port, "/name"), port["protocol"].as_str().unwrap_or("TCP")));
    meant.map(|port| u16::try_from(port["port"].as_u64()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        Key { namespace: namespace.into(), name: name.into() }
    }

    fn objects(list: &[(&str, &str, Value)]) -> BTreeMap<Key, Arc<Value>> {
        list.iter().map(|(namespace, name, object)| (key(namespace, name), Arc::new(object.clone()))).collect()
    }

    #[test]
    fn names_are_those_of_the_specification() {
        let port = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
        let services = objects(&[
            ("shop", "web", json!({"spec": {"clusterIP": "127.96.0.1", "ports": port}})),
            ("shop", "db", json!({"spec": {"clusterIP": "None"}})),
            ("shop", "none", json!({"spec": {"clusterIP": "None"}})),
            (
                "shop",
                "two",
                json!({"spec": {"clusterIP": "127.96.0.2", "ports": [
                    {"name": "a", "port": 1}, {"name": "b", "port": 2, "protocol": "UDP"}, {"name": "c", "port": 1},
                ]}}),
            ),
            ("shop", "plain", json!({"spec": {"clusterIP": "None"}})),
            ("shop", "out", json!({"spec": {"type": "ExternalName", "externalName": "Example.com."}})),
        ]);
        let slice = json!({"metadata": {"labels": {SERVICE: "db"}},
        "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": ["127.1.0.8"], "hostname": "db-0"},
            {"addresses": ["127.1.0.9"]},
            {"addresses": ["127.1.0.7"], "hostname": "db-2", "conditions": {"ready": false}},
        ]});
        let of_web = json!({"metadata": {"labels": {SERVICE: "web"}}, "ports": [{"name": "http", "port": 8080}],
            "endpoints": [{"addresses": ["127.1.0.5"]}]});
        let without_ports =
            json!({"metadata": {"labels": {SERVICE: "plain"}}, "endpoints": [{"addresses": ["127.1.0.4"]}]});
        let slices = objects(&[("shop", "db-x", slice), ("shop", "web-x", of_web), ("shop", "plain-x", without_ports)]);
        let zone = Zone { services: &services, slices: &slices };
        let address = |text: &str| Record::Address(text.parse().unwrap());
        let service =
            |port, weight, name: &str| Record::Service(port, weight, format!("{name}.shop.svc.cluster.local"));
        for (name, expect) in [
            ("web.shop.svc.cluster.local", Some(vec![address("127.96.0.1"), service(80, 100, "web")])),
            ("_http._tcp.web.shop.svc.cluster.local", Some(vec![address("127.96.0.1"), service(80, 100, "web")])),
            ("http.tcp.web.shop.svc.cluster.local", Some(vec![address("127.96.0.1"), service(80, 100, "web")])),
            ("_http._udp.web.shop.svc.cluster.local", None),
            ("_tcp.web.shop.svc.cluster.local", None),
            ("x._http._tcp.web.shop.svc.cluster.local", None),
            // An endpoint of a Service with an address has a name, too.
            (
                "127-1-0-5.web.shop.svc.cluster.local",
                Some(vec![address("127.1.0.5"), service(8080, 100, "127-1-0-5.web")]),
            ),
            ("127-1-0-6.web.shop.svc.cluster.local", None),
            // Each has its share; two ports with the same number are one record.
            (
                "two.shop.svc.cluster.local",
                Some(vec![address("127.96.0.2"), service(1, 33, "two"), service(2, 33, "two")]),
            ),
            (
                "db.shop.svc.cluster.local",
                Some(vec![
                    address("127.1.0.8"),
                    address("127.1.0.9"),
                    service(5432, 50, "db-0.db"),
                    service(5432, 50, "127-1-0-9.db"),
                ]),
            ),
            ("db-0.db.shop.svc.cluster.local", Some(vec![address("127.1.0.8"), service(5432, 100, "db-0.db")])),
            (
                "127-1-0-9.db.shop.svc.cluster.local",
                Some(vec![address("127.1.0.9"), service(5432, 100, "127-1-0-9.db")]),
            ),
            ("plain.shop.svc.cluster.local", Some(vec![address("127.1.0.4")])),
            ("_a._tcp.plain.shop.svc.cluster.local", None),
            ("db-2.db.shop.svc.cluster.local", None),
            (
                "_sql._tcp.db.shop.svc.cluster.local",
                Some(vec![
                    address("127.1.0.8"),
                    address("127.1.0.9"),
                    service(5432, 50, "db-0.db"),
                    service(5432, 50, "127-1-0-9.db"),
                ]),
            ),
            ("none.shop.svc.cluster.local", None),
            ("out.shop.svc.cluster.local", Some(vec![Record::Alias("example.com".into())])),
            ("shop.svc.cluster.local", Some(vec![])),
            ("other.svc.cluster.local", None),
            ("web.other.svc.cluster.local", None),
            ("127-1-0-9.shop.pod.cluster.local", Some(vec![address("127.1.0.9")])),
            ("dns-version.cluster.local", Some(vec![Record::Text("1.1.0")])),
            ("cluster.local", Some(vec![])),
            ("nonsense.cluster.local", None),
            ("1.0.96.127.in-addr.arpa", Some(vec![Record::Pointer("web.shop.svc.cluster.local".into())])),
            ("8.0.1.127.in-addr.arpa", Some(vec![Record::Pointer("db-0.db.shop.svc.cluster.local".into())])),
            ("5.0.1.127.in-addr.arpa", Some(vec![Record::Pointer("127-1-0-5.web.shop.svc.cluster.local".into())])),
            ("9.0.1.127.in-addr.arpa", Some(vec![Record::Pointer("127-1-0-9.db.shop.svc.cluster.local".into())])),
            ("7.0.1.127.in-addr.arpa", None),
        ] {
            assert_eq!(zone.records(name), expect, "{name}");
            assert!(Zone::contains(name), "{name}");
        }
        assert!(
            !Zone::contains("example.com")
                && !Zone::contains("notcluster.local")
                && !Zone::contains("1.0.0.10.in-addr.arpa")
        );
    }
}
