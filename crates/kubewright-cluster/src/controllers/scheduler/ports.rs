//! The host ports of pods, and whether a node has them left. The rules are those of kube-scheduler's plugin
//! `NodePorts`. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::controllers::value::{int, list, text};

/// Why a node can't take a pod of which a port is taken.
pub(crate) const CONFLICT: &str = "node(s) didn't have free ports for the requested pod ports";

/// The address of all interfaces, which is the default. As in Kubernetes, `::` is one address like any other.
const ALL_ADDRESSES: &str = "0.0.0.0";

/// A port of the node that a container takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    protocol: String,
    port: i64,
    address: String,
}

/// Returns the host ports of the containers and sidecars of a pod.
pub(crate) fn host_ports(pod: &Value) -> Vec<HostPort> {
    let sidecars = list(pod, "/spec/initContainers").iter().filter(|one| text(one, "/restartPolicy") == "Always");
    let containers = sidecars.chain(list(pod, "/spec/containers"));
    let ports = containers.flat_map(|container| list(container, "/ports")).filter(|port| int(port, "/hostPort") > 0);
    let or = |found: &str, default: &str| if found.is_empty() { default.to_owned() } else { found.to_owned() };
    let host_port = |port: &Value| HostPort {
        protocol: or(text(port, "/protocol"), "TCP"),
        port: int(port, "/hostPort"),
        address: or(text(port, "/hostIP"), ALL_ADDRESSES),
    };
    ports.map(host_port).collect()
}

/// The host ports that the pods of the node have taken: by protocol and number, the addresses with the number of pods.
/// Pods that name their node themselves may take the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsedPorts(BTreeMap<(String, i64), BTreeMap<String, usize>>);

impl UsedPorts {
    /// Adds the ports of a pod.
    pub(crate) fn add(&mut self, ports: &[HostPort]) {
        for HostPort { protocol, port, address } in ports {
            let addresses = self.0.entry((protocol.clone(), *port)).or_default();
            *addresses.entry(address.clone()).or_default() += 1;
        }
    }

    /// Takes off the ports of a pod.
    pub(crate) fn subtract(&mut self, ports: &[HostPort]) {
        for HostPort { protocol, port, address } in ports {
            let key = (protocol.clone(), *port);
            let Some(addresses) = self.0.get_mut(&key) else { continue };
            if let Some(count) = addresses.get_mut(address) {
                *count -= 1;
                if *count == 0 {
                    addresses.remove(address);
                }
            }
            if addresses.is_empty() {
                self.0.remove(&key);
            }
        }
    }

    /// Returns whether one of the ports is taken. A port at all addresses conflicts with that port at any address.
    pub(crate) fn conflict_with(&self, wanted: &[HostPort]) -> bool {
        wanted.iter().any(|HostPort { protocol, port, address }| {
            self.0.get(&(protocol.clone(), *port)).is_some_and(|taken| {
                address == ALL_ADDRESSES || taken.contains_key(ALL_ADDRESSES) || taken.contains_key(address)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(ports: Value) -> Vec<HostPort> {
        host_ports(&json!({"spec": {"containers": [{"ports": ports}]}}))
    }

    #[track_caller]
    fn check(taken: Value, wanted: Value, conflict: bool) {
        let mut used = UsedPorts::default();
        used.add(&pod(taken.clone()));
        assert_eq!(used.conflict_with(&pod(wanted.clone())), conflict, "{taken} {wanted}");
        let mut used = UsedPorts::default();
        used.add(&pod(wanted.clone()));
        assert_eq!(used.conflict_with(&pod(taken.clone())), conflict, "{wanted} {taken}");
    }

    #[test]
    fn protocol_number_and_address_make_a_conflict() {
        let plain = || json!([{"containerPort": 80, "hostPort": 8080}]);
        let at = |address: &str| json!([{"hostPort": 8080, "hostIP": address, "protocol": "TCP"}]);
        check(plain(), plain(), true);
        check(plain(), json!([{"containerPort": 8080}]), false);
        check(plain(), json!([{"hostPort": 8081}]), false);
        check(plain(), json!([{"hostPort": 8081}, {"hostPort": 8080}]), true);
        check(plain(), json!([{"hostPort": 8080, "protocol": "UDP"}]), false);
        check(plain(), at("0.0.0.0"), true);
        check(plain(), at("10.0.0.1"), true);
        check(at("10.0.0.1"), at("10.0.0.1"), true);
        check(at("10.0.0.1"), at("10.0.0.2"), false);
        check(at("10.0.0.1"), at("::"), false);
    }

    #[test]
    fn containers_and_sidecars_take_ports() {
        let pod = json!({"spec": {
            "initContainers": [
                {"ports": [{"hostPort": 1}]},
                {"ports": [{"hostPort": 2}], "restartPolicy": "Always"},
            ],
            "containers": [{"ports": [{"hostPort": 3}, {"containerPort": 4}]}, {"ports": [{"hostPort": 5}]}],
        }});
        let numbers: Vec<_> = host_ports(&pod).into_iter().map(|port| port.port).collect();
        assert_eq!(numbers, [2, 3, 5]);
    }

    #[test]
    fn a_port_is_free_when_the_last_pod_gives_it_back() {
        let port = pod(json!([{"hostPort": 8080}]));
        let mut used = UsedPorts::default();
        used.add(&port);
        used.add(&port);
        used.subtract(&port);
        assert!(used.conflict_with(&port));
        used.subtract(&port);
        assert!(!used.conflict_with(&port));
        used.subtract(&port);
        assert!(used.0.is_empty());
    }
}
