use std::collections::BTreeSet;

use serde_json::json;

use super::{rules::address, *};

const NODE: Ipv4Addr = Ipv4Addr::new(127, 9, 9, 9);

/// The objects of a test: two namespaces `x` and `y`, each with pods `a`, `b` and `c`, whose port `web` is 80 in all of
/// them but `c`, where it is 8080.
fn objects(policies: &[Value]) -> Objects {
    let mut objects = Objects::default();
    for (number, namespace) in ["x", "y"].into_iter().enumerate() {
        let labels = json!({"metadata": {"name": namespace, "labels": {"ns": namespace}}});
        objects.namespaces.insert(namespace.into(), Arc::new(labels));
        for (last, name) in ["a", "b", "c"].into_iter().enumerate() {
            let port = if name == "c" { 8080 } else { 80 };
            let uid = format!("{namespace}/{name}");
            let pod = json!({
                "metadata": {"namespace": namespace, "name": name, "uid": uid, "labels": {"pod": name}},
                "spec": {"containers": [{"name": "main", "ports": [{"name": "web", "containerPort": port}]}]},
                "status": {"podIP": format!("10.0.{number}.{last}")},
            });
            objects.pods.insert(uid, Arc::new(pod));
        }
    }
    for (number, spec) in policies.iter().enumerate() {
        let policy = json!({"metadata": {"namespace": "x", "name": number.to_string()}, "spec": spec});
        objects.policies.insert(Key::of(&policy).expect("a key"), Arc::new(policy));
    }
    objects
}

fn isolation(objects: &Objects, pod: &str, direction: Direction) -> Isolation {
    objects.isolation(&objects.pods[pod], direction, &BTreeMap::new())
}

/// Returns the pods with which a pod may have connections by TCP to a port.
fn peers(objects: &Objects, pod: &str, direction: Direction, port: u16) -> BTreeSet<String> {
    let isolation = isolation(objects, pod, direction);
    let at = |pod: &Value| address(pod, &BTreeMap::new()).expect("an address");
    let allowed = objects.pods.iter().filter(|(_, pod)| allows(&isolation, at(pod), Transport::Tcp, port));
    allowed.map(|(uid, _)| uid.clone()).collect()
}

fn set<const N: usize>(pods: [&str; N]) -> BTreeSet<String> {
    pods.map(str::to_owned).into()
}

#[test]
fn only_selected_pods_are_isolated_in_the_directions_of_their_policies() {
    let deny = json!({"podSelector": {"matchLabels": {"pod": "a"}}, "policyTypes": ["Ingress"]});
    let objects = objects(&[deny]);
    assert_eq!(isolation(&objects, "x/a", Direction::Ingress), Some(Vec::new()));
    assert_eq!(isolation(&objects, "x/a", Direction::Egress), None);
    assert_eq!(isolation(&objects, "x/b", Direction::Ingress), None);
    assert_eq!(isolation(&objects, "y/a", Direction::Ingress), None, "of another namespace");
}

#[test]
fn peers_are_selected_by_pod_namespace_both_or_address() {
    let with = |from: Value| {
        let policy = json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": from}]});
        peers(&objects(&[policy]), "x/a", Direction::Ingress, 80)
    };
    let b = json!({"matchLabels": {"pod": "b"}});
    let y = json!({"matchLabels": {"ns": "y"}});
    assert_eq!(with(json!([{"podSelector": b}])), set(["x/b"]));
    assert_eq!(with(json!([{"namespaceSelector": y}])), set(["y/a", "y/b", "y/c"]));
    assert_eq!(with(json!([{"namespaceSelector": y, "podSelector": b}])), set(["y/b"]));
    assert_eq!(with(json!([{"namespaceSelector": y}, {"podSelector": b}])), set(["x/b", "y/a", "y/b", "y/c"]));
    assert_eq!(with(json!([{"namespaceSelector": {}, "podSelector": b}])), set(["x/b", "y/b"]));
    assert_eq!(with(json!([{"podSelector": {}}])), set(["x/a", "x/b", "x/c"]));
    let block = json!([{"ipBlock": {"cidr": "10.0.1.0/24", "except": ["10.0.1.2/32"]}}]);
    assert_eq!(with(block), set(["y/a", "y/b"]));
    assert_eq!(with(json!([{"ipBlock": {"cidr": "fd00::/8"}}])), set([]));
    assert_eq!(with(json!([])).len(), 6);
}

#[test]
fn rules_of_several_policies_add_up() {
    let policy = |pod: &str, port: u16| {
        json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [
            {"from": [{"podSelector": {"matchLabels": {"pod": pod}}}], "ports": [{"port": port}]},
        ]})
    };
    let objects = objects(&[policy("a", 80), policy("b", 81)]);
    assert_eq!(peers(&objects, "x/c", Direction::Ingress, 80), set(["x/a"]));
    assert_eq!(peers(&objects, "x/c", Direction::Ingress, 81), set(["x/b"]));
}

#[test]
fn ports_have_a_protocol_a_number_a_range_or_a_name() {
    let rules = |port: Value| {
        let policy = json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"ports": [port]}]});
        isolation(&objects(&[policy]), "x/c", Direction::Ingress)
    };
    let peer = Ipv4Addr::new(10, 0, 0, 0);
    let ports = |port: Value, transport| {
        let rules = rules(port);
        [79, 80, 81, 8080].into_iter().filter(|port| allows(&rules, peer, transport, *port)).collect::<Vec<_>>()
    };
    assert_eq!(ports(json!({"port": 80}), Transport::Tcp), [80]);
    assert_eq!(ports(json!({"port": 80}), Transport::Udp), [] as [u16; 0]);
    assert_eq!(ports(json!({"port": 80, "endPort": 81, "protocol": "UDP"}), Transport::Udp), [80, 81]);
    assert_eq!(ports(json!({"protocol": "SCTP"}), Transport::Sctp), [79, 80, 81, 8080]);
    assert_eq!(ports(json!({"port": "web"}), Transport::Tcp), [8080]);
    assert_eq!(ports(json!({"port": "web", "protocol": "UDP"}), Transport::Udp), [] as [u16; 0]);
    assert_eq!(ports(json!({"port": "other"}), Transport::Tcp), [] as [u16; 0], "no such port allows nothing");
}

#[test]
fn names_of_ports_in_egress_rules_are_those_of_the_destination() {
    let with = |to: Value, port: u16| {
        let rule = json!({"to": to, "ports": [{"port": "web"}]});
        let policy = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [rule]});
        peers(&objects(&[policy]), "x/a", Direction::Egress, port)
    };
    assert_eq!(with(json!([]), 8080), set(["x/c", "y/c"]));
    assert_eq!(with(json!([{"podSelector": {}}]), 8080), set(["x/c"]));
    assert_eq!(with(json!([{"podSelector": {}}]), 80), set(["x/a", "x/b"]));
    assert_eq!(with(json!([{"ipBlock": {"cidr": "10.0.1.0/24"}}]), 8080), set(["y/c"]));
}

#[test]
fn rules_of_pods_are_written_for_nftables() {
    let policy = json!({
        "podSelector": {"matchLabels": {"pod": "a"}}, "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {"from": [{"podSelector": {"matchExpressions": [{"key": "pod", "operator": "NotIn", "values": ["a"]}]}},
                {"ipBlock": {"cidr": "192.0.2.7/24", "except": ["192.0.2.0/28", "192.0.2.64/28"]}}],
             "ports": [{"port": 80, "endPort": 90}, {"protocol": "UDP"}]},
        ],
        "egress": [{"ports": [{"port": 443}]}],
    });
    let objects = objects(&[policy]);
    let [ingress, egress] =
        [Direction::Ingress, Direction::Egress].map(|direction| isolation(&objects, "x/a", direction));
    let service = (Transport::Tcp, SocketAddr::from(([127, 200, 0, 1], 8443)));
    assert_eq!(
        nftables::of_pod(NODE, &ingress, &egress, &[service]),
        "add table ip kubewright_policies\n\
         delete table ip kubewright_policies\n\
         table ip kubewright_policies {\n\
         chain ingress { type filter hook input priority 0;\n\
         iifname \"lo\" accept\n\
         ct state established,related accept\n\
         ip saddr 127.9.9.9 accept\n\
         ip saddr { 10.0.0.1, 10.0.0.2 } tcp dport 80-90 accept\n\
         ip saddr { 10.0.0.1, 10.0.0.2 } meta l4proto udp accept\n\
         ip saddr 192.0.2.0/24 ip saddr != 192.0.2.0/28 ip saddr != 192.0.2.64/28 tcp dport 80-90 accept\n\
         ip saddr 192.0.2.0/24 ip saddr != 192.0.2.0/28 ip saddr != 192.0.2.64/28 meta l4proto udp accept\n\
         drop\n\
         }\n\
         chain egress { type filter hook output priority -150;\n\
         oifname \"lo\" accept\n\
         ct state established,related accept\n\
         ip daddr 127.9.9.9 accept\n\
         tcp dport 443 accept\n\
         ip daddr 127.200.0.1 tcp dport 8443 accept\n\
         drop\n\
         }\n\
         }\n"
    );
    assert_eq!(nftables::of_pod(NODE, &None, &None, &[service]), nftables::none());
    assert_eq!(nftables::of_services(NODE, &BTreeMap::new()), nftables::none());
}

/// The policies of a cluster with these objects and Services.
fn policies(objects: Objects, services: &[(&str, &[&str])]) -> NetworkPolicies {
    let policies = NetworkPolicies::new("nft".into(), NODE);
    policies.state.lock().snapshot = Some(objects);
    policies.complete();
    for (service, endpoints) in services {
        let endpoints = endpoints.iter().map(|endpoint| endpoint.parse().expect("an address")).collect();
        let route = crate::node::proxy::Route { endpoints, affinity: None };
        let routes = [((Protocol::Tcp, service.parse().expect("an address")), route)].into();
        policies.set_routes(&Key { namespace: "x".into(), name: (*service).into() }, &routes);
    }
    policies
}

#[test]
fn clients_reach_the_endpoints_that_both_sides_allow() {
    let only = |types: &str, pod: &str, peer: &str| {
        let peers = json!([{"podSelector": {"matchLabels": {"pod": peer}}}]);
        let (rules, of) = if types == "Ingress" { ("ingress", "from") } else { ("egress", "to") };
        json!({"podSelector": {"matchLabels": {"pod": pod}}, "policyTypes": [types], rules: [{of: peers}]})
    };
    let policies =
        policies(objects(&[only("Ingress", "a", "b"), only("Egress", "c", "b"), only("Egress", "b", "a")]), &[]);
    let reaches = |client: &str, endpoint: &str| {
        policies.allows(client.parse().unwrap(), Protocol::Tcp, SocketAddr::new(endpoint.parse().unwrap(), 80))
    };
    let [a, b, c, other] = ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.1.0"];
    assert!(reaches(b, a), "both allow it");
    assert!(!reaches(c, a), "neither does");
    assert!(reaches(c, b) && !reaches(b, c) && !reaches(b, other));
    assert!(reaches(a, b) && reaches(a, c) && reaches(other, c), "nobody limits it");
    assert!(!reaches(other, a) && !reaches("192.0.2.1", a));
    assert!(reaches(a, a), "a pod reaches itself");
    for node in ["127.9.9.9", "127.0.0.1"] {
        assert!(reaches(node, a) && reaches(b, node), "the node is open");
    }
}

#[test]
fn addresses_of_services_are_closed_for_pods_that_reach_no_endpoint() {
    let ingress = json!({"podSelector": {"matchLabels": {"pod": "a"}}, "policyTypes": ["Ingress"], "ingress": [
        {"from": [{"podSelector": {"matchLabels": {"pod": "b"}}}], "ports": [{"port": 80}]},
        {"from": [{"podSelector": {}}], "ports": [{"port": 81}]},
    ]});
    let egress = json!({"podSelector": {"matchLabels": {"pod": "b"}}, "policyTypes": ["Egress"], "egress": [
        {"to": [{"podSelector": {"matchLabels": {"pod": "a"}}}]},
    ]});
    let policies = policies(
        objects(&[ingress, egress]),
        &[
            ("10.9.0.1:8080", &["10.0.0.0:80"]),
            ("10.9.0.2:8080", &["10.0.0.0:80", "10.0.1.0:80"]),
            ("10.9.0.3:443", &["127.9.9.9:6443"]),
            ("10.9.0.4:80", &["10.0.0.2:80"]),
        ],
    );
    let services = policies.commands(None).expect("commands");
    let accepts: Vec<_> = services.lines().filter(|line| line.starts_with("ip daddr")).collect();
    // The second Service has an endpoint that is open for all.
    assert_eq!(
        accepts,
        [
            "ip daddr 10.9.0.1 tcp dport 8080 ip saddr { 10.0.0.1 } accept",
            "ip daddr 10.9.0.1 tcp dport 8080 ip saddr { 10.0.0.0 } accept",
            "ip daddr 10.9.0.1 tcp dport 8080 drop",
        ]
    );
    let b = policies.commands(Some(Ipv4Addr::new(10, 0, 0, 1))).expect("commands");
    let accepts: Vec<_> = b.lines().filter(|line| line.starts_with("ip daddr")).collect();
    assert_eq!(
        accepts,
        [
            "ip daddr 127.9.9.9 accept",
            "ip daddr { 10.0.0.0 } accept",
            "ip daddr 10.9.0.1 tcp dport 8080 accept",
            "ip daddr 10.9.0.2 tcp dport 8080 accept",
            "ip daddr 10.9.0.3 tcp dport 443 accept",
        ]
    );
    assert_eq!(policies.commands(Some(Ipv4Addr::new(10, 0, 0, 2))), Some(nftables::none()));
    assert_eq!(policies.commands(Some(Ipv4Addr::new(10, 0, 0, 9))), None, "its pod is gone");
}
