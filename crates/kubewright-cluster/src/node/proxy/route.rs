//! The endpoints for a service's connections, and the choice among them. Pure.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use serde_json::Value;

use crate::controllers::value::{int, list, text};

/// The number of clients that an address remembers for session affinity.
const CLIENTS: usize = 4096;

/// The label of services that kube-proxy leaves to others, whatever its value.
const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// The label of slices that kube-proxy leaves out, whatever its value.
const HEADLESS: &str = "service.kubernetes.io/headless";

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

/// The endpoints for the connections to an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// The endpoints that accept connections, in order.
    pub(crate) endpoints: Vec<SocketAddr>,
    /// The session affinity timeout: the time after its last connection for which a client is sent to the same
    /// endpoint.
    pub(crate) affinity: Option<Duration>,
}

/// The addresses at which a service answers, with the endpoints of each.
pub(crate) type Routes = BTreeMap<(Protocol, SocketAddr), Route>;

/// Returns the addresses of a service, with the endpoints of each.
///
/// The addresses are the node ports on 127.0.0.1 and on `node`, the node's own address, and the ports on the cluster IP
/// and on external addresses. SCTP is not supported.
pub(crate) fn routes(service: &Value, slices: &[&Value], node: Ipv4Addr) -> Routes {
    let mut routes = BTreeMap::new();
    if has_label(service, OTHER_PROXY) || text(service, "/spec/type") == "ExternalName" {
        return routes;
    }
    let affinity = (text(service, "/spec/sessionAffinity") == "ClientIP").then(|| {
        let seconds = int(service, "/spec/sessionAffinityConfig/clientIP/timeoutSeconds");
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    });
    let cluster_ip = text(service, "/spec/clusterIP").parse::<Ipv4Addr>().ok();
    for port in list(service, "/spec/ports") {
        let Some(protocol) = protocol(port) else { continue };
        let number = |field: &str| port[field].as_u64().and_then(|number| u16::try_from(number).ok());
        let node_port = number("nodePort").filter(|number| *number != 0).into_iter();
        let at_node = node_port.flat_map(|number| [(Ipv4Addr::LOCALHOST, number), (node, number)]);
        let at_cluster_ip = cluster_ip.and_then(|address| Some((address, number("port")?)));
        let outside = external_addresses(service).filter_map(|address| Some((address, number("port")?)));
        let endpoints = endpoints(text(port, "/name"), protocol, slices);
        for address in at_node.chain(at_cluster_ip).chain(outside).map(SocketAddr::from) {
            // A route to the address itself would never reach a pod.
            let endpoints = endpoints.iter().copied().filter(|endpoint| *endpoint != address).collect();
            routes.insert((protocol, address), Route { endpoints, affinity });
        }
    }
    routes
}

/// Returns the addresses outside of the cluster at which a service answers: its `externalIPs`, and those of its load
/// balancer, unless that is a proxy itself.
fn external_addresses(service: &Value) -> impl Iterator<Item = Ipv4Addr> {
    let given = list(service, "/spec/externalIPs").iter().filter_map(Value::as_str);
    let balancers = list(service, "/status/loadBalancer/ingress").iter();
    let balanced = balancers.filter(|one| text(one, "/ipMode") != "Proxy").map(|one| text(one, "/ip"));
    given.chain(balanced).filter_map(|address| address.parse().ok())
}

fn has_label(object: &Value, label: &str) -> bool {
    object["metadata"]["labels"].get(label).is_some()
}

/// Returns the protocol of a port of a service; `None` for SCTP.
pub(crate) fn protocol(port: &Value) -> Option<Protocol> {
    match port["protocol"].as_str().unwrap_or("TCP") {
        "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        _ => None,
    }
}

/// Returns the ready endpoints of a named port. If none is ready, returns the terminating endpoints that still serve,
/// as kube-proxy does (KEP-1669).
fn endpoints(name: &str, of: Protocol, slices: &[&Value]) -> Vec<SocketAddr> {
    let (mut ready, mut ending) = (Vec::new(), Vec::new());
    for slice in slices.iter().filter(|slice| !has_label(slice, HEADLESS)) {
        let named = |port: &&Value| text(port, "/name") == name && protocol(port) == Some(of);
        let port = list(slice, "/ports").iter().find(named);
        let Some(port) = port.and_then(|port| u16::try_from(port["port"].as_u64()?).ok()) else { continue };
        for endpoint in list(slice, "/endpoints") {
            let conditions = &endpoint["conditions"];
            let holds = |field: &str| conditions[field].as_bool();
            let found = match (holds("ready"), holds("serving"), holds("terminating")) {
                (Some(false), Some(true), Some(true)) => &mut ending,
                (Some(false), ..) => continue,
                _ => &mut ready,
            };
            let addresses = list(endpoint, "/addresses").iter().filter_map(|address| address.as_str()?.parse().ok());
            found.extend(addresses.map(|address: IpAddr| SocketAddr::new(address, port)));
        }
    }
    let mut chosen = if ready.is_empty() { ending } else { ready };
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// Picks endpoints in turn or, with session affinity, a client's previous endpoint.
#[derive(Debug, Default)]
pub(crate) struct EndpointPicker {
    next: usize,
    /// The last endpoint of each client, and the time of the connection.
    clients: BTreeMap<IpAddr, (SocketAddr, Duration)>,
}

impl EndpointPicker {
    /// Returns the endpoints in the order in which to try them, for a client that connects at `now`, a monotonic time.
    pub(crate) fn order(&mut self, route: &Route, client: IpAddr, now: Duration) -> Vec<SocketAddr> {
        let mut order = route.endpoints.clone();
        if order.is_empty() {
            return order;
        }
        let Some(affinity) = route.affinity else {
            self.clients.clear();
            self.rotate(&mut order);
            return order;
        };
        let known = self.clients.get(&client).filter(|(_, at)| now.saturating_sub(*at) < affinity);
        match known.and_then(|(last, _)| order.iter().position(|endpoint| endpoint == last)) {
            Some(index) => order.rotate_left(index),
            None => self.rotate(&mut order),
        }
        if self.clients.len() >= CLIENTS {
            self.clients.retain(|_, (_, at)| now.saturating_sub(*at) < affinity);
        }
        if self.clients.len() < CLIENTS || self.clients.contains_key(&client) {
            self.clients.insert(client, (order[0], now));
        }
        order
    }

    fn rotate(&mut self, order: &mut [SocketAddr]) {
        order.rotate_left(self.next % order.len());
        self.next = self.next.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(spec: Value) -> Value {
        let mut service = json!({"spec": {"type": "NodePort", "clusterIP": "127.96.1.7", "ports": [
            {"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP"},
            {"name": "dns", "port": 53, "nodePort": 30053, "protocol": "UDP"},
        ]}});
        for (field, value) in spec.as_object().into_iter().flatten() {
            service["spec"][field] = value.clone();
        }
        service
    }

    /// An EndpointSlice, with the address of each endpoint and whether it is ready, serving and terminating.
    fn slice(endpoints: &[(&str, [bool; 3])]) -> Value {
        let endpoints: Vec<_> = endpoints
            .iter()
            .map(|(address, [ready, serving, terminating])| {
                let conditions = json!({"ready": ready, "serving": serving, "terminating": terminating});
                json!({"addresses": [address], "conditions": conditions})
            })
            .collect();
        json!({"ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints})
    }

    const READY: [bool; 3] = [true, true, false];
    const UNREADY: [bool; 3] = [false, false, false];
    const ENDING: [bool; 3] = [false, true, true];

    fn shown(service: &Value, slices: &[Value]) -> Vec<String> {
        let is_tcp = |((protocol, _), _): &((Protocol, SocketAddr), Route)| *protocol == Protocol::Tcp;
        let routes = routes(service, &slices.iter().collect::<Vec<_>>(), Ipv4Addr::LOCALHOST);
        let line = |((_, address), route): ((Protocol, SocketAddr), Route)| {
            let endpoints: Vec<_> = route.endpoints.iter().map(ToString::to_string).collect();
            format!("{address} -> {}", endpoints.join(" "))
        };
        routes.into_iter().filter(is_tcp).map(line).collect()
    }

    #[test]
    fn a_service_has_routes_for_its_node_port_and_cluster_ip() {
        let ready = slice(&[("127.1.0.2", READY), ("127.1.0.1", READY), ("127.1.0.3", UNREADY)]);
        let slices = [ready, slice(&[("127.1.0.9", READY)])];
        let to = "127.1.0.1:8080 127.1.0.2:8080 127.1.0.9:8080";
        let both = ["127.0.0.1:30080", "127.96.1.7:80"].map(|address| format!("{address} -> {to}"));
        assert_eq!(shown(&service(json!({})), &slices), both);
        let headless = service(json!({"type": "ClusterIP", "clusterIP": "None", "ports": [{"port": 80}]}));
        assert_eq!(shown(&headless, &slices), [""; 0]);
        assert_eq!(shown(&service(json!({"type": "ExternalName"})), &slices), [""; 0]);
        let labelled = |label: &str, mut object: Value| {
            object["metadata"]["labels"][label] = json!("");
            object
        };
        assert_eq!(shown(&labelled(OTHER_PROXY, service(json!({}))), &slices), [""; 0]);
        assert_eq!(shown(&labelled(HEADLESS, service(json!({}))), &slices), both);
        let slices = slices.map(|slice| labelled(HEADLESS, slice));
        let without = shown(&service(json!({})), &slices);
        assert_eq!(without[0], "127.0.0.1:30080 -> ", "{without:?}");
    }

    #[test]
    fn a_service_has_routes_for_external_addresses() {
        let mut service = service(json!({"type": "LoadBalancer", "clusterIP": "None", "externalIPs": ["203.0.113.7"],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}));
        service["status"]["loadBalancer"]["ingress"] = json!([
            {"ip": "203.0.113.8", "ipMode": "VIP"}, {"ip": "203.0.113.9", "ipMode": "Proxy"}, {"hostname": "example.com"},
        ]);
        let to = ["203.0.113.7", "203.0.113.8"].map(|address| format!("{address}:80 -> 127.1.0.1:8080"));
        assert_eq!(shown(&service, &[slice(&[("127.1.0.1", READY)])]), to);
    }

    #[test]
    fn ports_with_the_same_number_differ_by_protocol() {
        let ports = json!([
            {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            {"name": "sctp", "port": 9, "protocol": "SCTP"},
        ]);
        let mut slice = slice(&[("127.1.0.1", READY)]);
        slice["ports"] = json!([
            {"name": "dns", "port": 5353, "protocol": "UDP"}, {"name": "dns-tcp", "port": 5454, "protocol": "TCP"},
        ]);
        let routes = routes(&service(json!({"type": "ClusterIP", "ports": ports})), &[&slice], Ipv4Addr::LOCALHOST);
        let ports: Vec<_> =
            routes.iter().map(|((protocol, _), route)| (*protocol, route.endpoints[0].port())).collect();
        assert_eq!(ports, [(Protocol::Tcp, 5454), (Protocol::Udp, 5353)]);
    }

    #[test]
    fn terminating_endpoints_are_used_only_without_ready_ones() {
        let service = service(json!({"clusterIP": "None"}));
        let check = |endpoints: &[(&str, [bool; 3])], expect: &str| {
            assert_eq!(shown(&service, &[slice(endpoints)]), [format!("127.0.0.1:30080 -> {expect}")]);
        };
        check(&[("127.1.0.1", ENDING), ("127.1.0.2", READY)], "127.1.0.2:8080");
        check(&[("127.1.0.1", ENDING), ("127.1.0.2", UNREADY)], "127.1.0.1:8080");
        check(&[("127.1.0.2", UNREADY)], "");
    }

    #[test]
    fn endpoints_are_used_in_turn_and_affinity_keeps_clients() {
        let endpoints: Vec<SocketAddr> = ["127.1.0.1:1", "127.1.0.2:1"].map(|one| one.parse().expect("one")).into();
        let (one, two): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        let at = Duration::from_secs;
        let mut picker = EndpointPicker::default();
        let route = Route { endpoints: endpoints.clone(), affinity: None };
        let firsts: Vec<_> = (0..3).map(|_| picker.order(&route, one, at(0))[0]).collect();
        assert_eq!(firsts, [endpoints[0], endpoints[1], endpoints[0]]);

        let mut picker = EndpointPicker::default();
        let route = Route { endpoints: endpoints.clone(), affinity: Some(at(10)) };
        assert_eq!(picker.order(&route, one, at(0)), endpoints);
        assert_eq!(picker.order(&route, one, at(9))[0], endpoints[0]);
        assert_eq!(picker.order(&route, two, at(9))[0], endpoints[1]);
        assert_eq!(picker.order(&route, one, at(18))[0], endpoints[0], "each connection restarts the time");
        assert_eq!(picker.order(&route, two, at(19))[0], endpoints[0], "ten seconds are over");
        let moved = Route { endpoints: vec![endpoints[1]], ..route };
        assert_eq!(picker.order(&moved, one, at(19))[0], endpoints[1], "its endpoint is gone");
    }
}
