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
    /// The port of a service, and the name of a host that serves it.
    Service(u16, String),
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

    fn of_services(self, labels: &[&str]) -> Option<Vec<Record>> {
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
        let headless = text(service, "/spec/clusterIP") == "None";
        match rest {
            [] if headless => {
                let addresses: Vec<_> = self.endpoints(namespace, name).filter_map(Endpoint::record).collect();
                (!addresses.is_empty()).then_some(addresses)
            }
            [] => Some(text(service, "/spec/clusterIP").parse().map(Record::Address).into_iter().collect()),
            [port, protocol] if port.starts_with('_') && protocol.starts_with('_') => {
                let wanted = (&port[1..], &protocol[1..]);
                let base = format!("{name}.{namespace}.svc.{DOMAIN}");
                let found: Vec<_> = if headless {
                    let each = self.endpoints(namespace, name);
                    each.flat_map(|endpoint| {
                        let target = format!("{}.{base}", endpoint.label());
                        ports(endpoint.slice, "/ports", wanted).map(move |port| Record::Service(port, target.clone()))
                    })
                    .collect()
                } else {
                    ports(service, "/spec/ports", wanted).map(|port| Record::Service(port, base.clone())).collect()
                };
                (!found.is_empty()).then_some(found)
            }
            [protocol] if matches!(*protocol, "_tcp" | "_udp" | "_sctp") => Some(Vec::new()),
            [host] if headless => {
                let here = self.endpoints(namespace, name).filter(|endpoint| endpoint.label() == *host);
                let addresses: Vec<_> = here.filter_map(Endpoint::record).collect();
                (!addresses.is_empty()).then_some(addresses)
            }
            _ => None,
        }
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
    fn record(self) -> Option<Record> {
        self.address.parse().ok().map(Record::Address)
    }

    /// Returns the label of its name: that of its host, or one made of its address.
    fn label(self) -> String {
        if self.host.is_empty() { self.address.replace('.', "-") } else { self.host.to_lowercase() }
    }
}

/// Returns the numbers of the ports with a name and a protocol.
fn ports<'a>(object: &'a Value, path: &str, (name, protocol): (&'a str, &'a str)) -> impl Iterator<Item = u16> + 'a {
    let named = list(object, path).iter().filter(move |port| {
        let given = port["protocol"].as_str().unwrap_or("TCP");
        text(port, "/name") == name && given.eq_ignore_ascii_case(protocol)
    });
    named.filter_map(|port| u16::try_from(port["port"].as_u64()?).ok())
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
            ("shop", "out", json!({"spec": {"type": "ExternalName", "externalName": "Example.com."}})),
        ]);
        let slice = json!({"metadata": {"labels": {SERVICE: "db"}},
        "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": ["127.1.0.8"], "hostname": "db-0"},
            {"addresses": ["127.1.0.9"]},
            {"addresses": ["127.1.0.7"], "hostname": "db-2", "conditions": {"ready": false}},
        ]});
        let slices = objects(&[("shop", "db-x", slice)]);
        let zone = Zone { services: &services, slices: &slices };
        let address = |text: &str| Record::Address(text.parse().unwrap());
        for (name, expect) in [
            ("web.shop.svc.cluster.local", Some(vec![address("127.96.0.1")])),
            (
                "_http._tcp.web.shop.svc.cluster.local",
                Some(vec![Record::Service(80, "web.shop.svc.cluster.local".into())]),
            ),
            ("_http._udp.web.shop.svc.cluster.local", None),
            ("_tcp.web.shop.svc.cluster.local", Some(vec![])),
            ("db.shop.svc.cluster.local", Some(vec![address("127.1.0.8"), address("127.1.0.9")])),
            ("db-0.db.shop.svc.cluster.local", Some(vec![address("127.1.0.8")])),
            ("127-1-0-9.db.shop.svc.cluster.local", Some(vec![address("127.1.0.9")])),
            ("db-2.db.shop.svc.cluster.local", None),
            (
                "_sql._tcp.db.shop.svc.cluster.local",
                Some(vec![
                    Record::Service(5432, "db-0.db.shop.svc.cluster.local".into()),
                    Record::Service(5432, "127-1-0-9.db.shop.svc.cluster.local".into()),
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
