//! Services, including the allocation of their addresses and node ports.

mod allocate;
mod columns;
mod endpoints;
mod range;
mod validate;
mod warnings;

use std::{collections::BTreeMap, net::Ipv4Addr, ops::RangeInclusive, sync::Arc};

use kubewright_apimachinery::{name, random::Random, status::Cause};
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::allocate::Pool;
pub(super) use self::columns::columns;
pub(crate) use self::endpoints::service_endpoints;
pub use self::range::{ServiceRange, ServiceRangeError};
use super::{networking::ServiceRanges, validation::Errors};
use crate::{
    fields::{each, entries, fill, fill_zero, has, int, list, present, remove, set, text, within},
    registry::Strategy,
};

/// The range of node ports, as by default in Kubernetes.
const NODE_PORTS: RangeInclusive<u32> = 30_000..=32_767;
/// The message about a node port that another service or port uses.
const TAKEN: &str = "provided port is already allocated";
/// The only family of addresses.
const IPV4: &str = "IPv4";
/// The number of lowest ports that are allocated only if all others are in use, so that services can request them explicitly, as in Kubernetes (KEP-3668).
const ASKED_FOR: u32 = 86;

/// The strategy of services. It allocates addresses and ports, and tracks those in use in [`Strategy::committed`].
#[derive(Debug)]
pub(super) struct ServiceStrategy {
    addresses: Mutex<Pool>,
    node_ports: Mutex<Pool>,
    /// The range that addresses are allocated from.
    range: ServiceRange,
    /// Further ranges from which addresses can be chosen.
    ranges: Arc<ServiceRanges>,
}

impl ServiceStrategy {
    /// Creates a strategy whose allocation starts at random numbers, since all clusters on a machine share its loopback
    /// network.
    pub(super) fn new(random: &Random, range: ServiceRange, ranges: Arc<ServiceRanges>) -> Self {
        let pool = |range: RangeInclusive<u32>, asked_for: u32| {
            let least = range.start() + asked_for;
            let drawn = random.u64() % u64::from(range.end() - least).max(1);
            Mutex::new(Pool::new(range, least + u32::try_from(drawn).unwrap_or_default()))
        };
        let addresses = pool(range.addresses(), range.asked_for());
        Self { addresses, node_ports: pool(NODE_PORTS, ASKED_FOR), range, ranges }
    }

    /// Allocates an address and node ports for a service that needs them and doesn't set them.
    fn allocate(&self, service: &mut Value) {
        let Some(spec) = service.get_mut("spec") else { return };
        let kind = text(spec, "/type").to_owned();
        if kind != "ExternalName" {
            choose_families(spec);
            if text(spec, "/clusterIP").is_empty()
                && list(spec, "/clusterIPs").is_empty()
                && text(spec, "/ipFamilies/0") == IPV4
                && let Some(address) = self.addresses.lock().next()
            {
                set(spec, "clusterIP", Ipv4Addr::from_bits(address).to_string());
            }
            let address = text(spec, "/clusterIP").to_owned();
            if !address.is_empty() {
                fill(spec, "clusterIPs", json!([address]));
            }
        }
        if has_node_ports(&kind) && spec["allocateLoadBalancerNodePorts"] != false {
            self.allocate_node_ports(spec);
        }
    }

    /// Allocates a node port for each port without one. Ports with the same number and different protocols share one.
    fn allocate_node_ports(&self, spec: &mut Value) {
        let mut given = BTreeMap::new();
        for port in list(spec, "/ports").iter() {
            if let Some(number) = node_port(port) {
                given.entry(int(port, "/port")).or_insert(number);
            }
        }
        let mut pool = self.node_ports.lock();
        for port in each(spec, "ports").filter(|port| port.is_object() && int(port, "/nodePort") == 0) {
            let of = int(port, "/port");
            if let Some(number) = given.get(&of).copied().or_else(|| pool.next()) {
                given.insert(of, number);
                set(port, "nodePort", number);
            }
        }
    }
}

/// Sets the families of a service and their policy. A headless service without selector may have any endpoints, and so
/// both families, even though the cluster has only one.
fn choose_families(spec: &mut Value) {
    let is_open = text(spec, "/clusterIP") == "None" && entries(spec, "/selector").next().is_none();
    fill(spec, "ipFamilyPolicy", if is_open { "RequireDualStack" } else { "SingleStack" });
    fill(spec, "ipFamilies", json!([IPV4]));
    if let [only] = list(spec, "/ipFamilies")
        && is_open
        && text(spec, "/ipFamilyPolicy") != "SingleStack"
    {
        let both = json!([only, if only == IPV4 { "IPv6" } else { IPV4 }]);
        set(spec, "ipFamilies", both);
    }
}

impl Strategy for ServiceStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            fill_zero(spec, "type", "ClusterIP");
            fill_zero(spec, "sessionAffinity", "None");
            match text(spec, "/sessionAffinity") {
                "None" => drop(remove(spec, "sessionAffinityConfig")),
                "ClientIP" if !has(spec, "/sessionAffinityConfig/clientIP/timeoutSeconds") => {
                    set(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10_800}}));
                }
                _ => {}
            }
            for port in each(spec, "ports") {
                fill_zero(port, "protocol", "TCP");
                if let Some(number) = port.get("port").cloned() {
                    fill_zero(port, "targetPort", number);
                }
            }
            let kind = text(spec, "/type").to_owned();
            if kind != "ExternalName" {
                fill(spec, "internalTrafficPolicy", "Cluster");
            }
            if validate::is_accessible(spec) {
                fill_zero(spec, "externalTrafficPolicy", "Cluster");
            }
            if kind == "LoadBalancer" {
                fill(spec, "allocateLoadBalancerNodePorts", true);
            }
        });
        if text(object, "/spec/type") != "LoadBalancer" {
            return;
        }
        present(object, "status", |status| {
            present(status, "loadBalancer", |balancer| {
                each(balancer, "ingress")
                    .filter(|one| !text(one, "/ip").is_empty())
                    .for_each(|one| fill(one, "ipMode", "VIP"));
            });
        });
    }

    fn prepare_create(&self, object: &mut Value) {
        set(object, "status", json!({"loadBalancer": {}}));
        self.allocate(object);
    }

    fn prepare_update(&self, old: &Value, new: &mut Value) {
        carry_over(old, new);
        drop_unused(old, new);
        if text(new, "/spec/type") != "LoadBalancer" {
            within(new, "status", |status| set(status, "loadBalancer", json!({})));
        }
        self.allocate(new);
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        // As in Kubernetes, what can't be allocated is reported alone.
        let mut causes = Errors::collect(|errors| validate::validate_families(old, new, errors));
        if causes.is_empty() {
            causes = self.validate_allocation(old, new);
        }
        if causes.is_empty() {
            causes = Errors::collect(|errors| validate::validate_service(old, new, errors));
        }
        causes
    }

    fn warnings(&self, _old: Option<&Value>, new: &Value) -> Vec<String> {
        warnings::of_service(new)
    }

    fn validate_status(&self, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_status(old, new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn name_rule(&self) -> fn(&str) -> Vec<String> {
        name::dns1123_label
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        let address = |service: Option<&Value>| {
            service.and_then(|service| address_bits(text(service, "/spec/clusterIP"))).into_iter().collect::<Vec<_>>()
        };
        self.addresses.lock().replace(&address(before), &address(after));
        let ports = |service: Option<&Value>| service.map(node_ports_of).unwrap_or_default();
        self.node_ports.lock().replace(&ports(before), &ports(after));
    }
}

impl ServiceStrategy {
    /// Checks that the address and the ports that the client chose can be allocated.
    fn validate_allocation(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        // Numbers of the old object don't conflict, however often they are in use.
        let addresses = self.addresses.lock();
        let had = old.map(|old| text(old, "/spec/clusterIP")).unwrap_or_default();
        let address = text(new, "/spec/clusterIP");
        // An update of an address is refused by the validation.
        if let Some(bits) = address_bits(address).filter(|_| had.is_empty()) {
            let why =
                if !self.range.addresses().contains(&bits) && !self.ranges.contains(Ipv4Addr::from_bits(bits).into()) {
                    Some("the provided network does not match the current range".to_owned())
                } else {
                    addresses.is_used(bits).then(|| "provided IP is already allocated".to_owned())
                };
            let why = why.map(|why| format!("failed to allocate IP {address}: {why}"));
            causes.extend(why.map(|why| Cause::invalid("spec.clusterIPs", &new["spec"]["clusterIPs"], &why)));
        }
        if has_node_ports(text(new, "/spec/type")) {
            self.validate_node_ports(old, new, &mut causes);
        }
        causes
    }

    fn validate_node_ports(&self, old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
        let node_ports = self.node_ports.lock();
        let had: Vec<_> = old.map(node_ports_of).unwrap_or_default();
        let mut taken = BTreeMap::new();
        for (index, port) in list(new, "/spec/ports").iter().enumerate().filter(|(_, port)| int(port, "/nodePort") != 0)
        {
            let number = node_port(port).filter(|number| NODE_PORTS.contains(number));
            let why = match number {
                None => {
                    let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
                    let range = format!("The range of valid ports is {first}-{last}");
                    format!("provided port is not in the valid range. {range}")
                }
                // Ports with the same number and different protocols share a node port.
                Some(number) if *taken.entry(number).or_insert(&port["port"]) != &port["port"] => TAKEN.into(),
                Some(number) if !had.contains(&number) && node_ports.is_used(number) => TAKEN.into(),
                Some(_) => continue,
            };
            causes.push(Cause::invalid(format!("spec.ports[{index}].nodePort"), &port["nodePort"], &why));
        }
    }
}

fn has_node_ports(kind: &str) -> bool {
    matches!(kind, "NodePort" | "LoadBalancer")
}

fn address_bits(address: &str) -> Option<u32> {
    address.parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits)
}

fn node_port(port: &Value) -> Option<u32> {
    port["nodePort"].as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number != 0)
}

fn node_ports_of(service: &Value) -> Vec<u32> {
    list(service, "/spec/ports").iter().filter_map(node_port).collect()
}

/// Preserves allocated addresses and ports that an update doesn't set, as long as the type of the service needs them.
fn carry_over(old: &Value, new: &mut Value) {
    let kind = text(new, "/spec/type").to_owned();
    let (old_spec, Some(spec)) = (&old["spec"], new.get_mut("spec")) else { return };
    if kind == "ExternalName" {
        return;
    }
    if text(spec, "/clusterIP").is_empty() && !text(old_spec, "/clusterIP").is_empty() {
        set(spec, "clusterIP", old_spec["clusterIP"].clone());
        set(spec, "clusterIPs", old_spec["clusterIPs"].clone());
    }
    // A client that changes the address may know only one of the two fields.
    if text(spec, "/clusterIP") != text(old_spec, "/clusterIP")
        && spec.get("clusterIPs") == old_spec.get("clusterIPs")
        && !list(spec, "/clusterIPs").is_empty()
    {
        spec["clusterIPs"][0] = spec["clusterIP"].clone();
    }
    if !has_node_ports(&kind) {
        return;
    }
    for port in each(spec, "ports").filter(|port| !has(port, "/nodePort")) {
        let same = |other: &&Value| other["port"] == port["port"] && other["protocol"] == port["protocol"];
        if let Some(number) = list(old_spec, "/ports").iter().find(same).and_then(node_port) {
            set(port, "nodePort", number);
        }
    }
}

/// Removes fields that the new type of a service doesn't have, if the update leaves their values as they were. Clients that
/// change the type rarely remove them.
fn drop_unused(old: &Value, new: &mut Value) {
    let kind = |service: &Value| text(service, "/spec/type").to_owned();
    let (before, after) = (kind(old), kind(new));
    let given = node_ports_of(old);
    let mut unused = Vec::new();
    if before != "ExternalName" && after == "ExternalName" {
        if ["clusterIP", "clusterIPs"].iter().all(|name| old["spec"].get(*name) == new["spec"].get(*name)) {
            unused.extend(["clusterIP", "clusterIPs"]);
        }
        unused.extend(["ipFamilies", "ipFamilyPolicy"]);
    }
    if before == "LoadBalancer" && after != "LoadBalancer" {
        unused.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if validate::needs_health_check(&old["spec"]) && !validate::needs_health_check(&new["spec"]) {
        unused.push("healthCheckNodePort");
    }
    if validate::is_accessible(&old["spec"]) && !validate::is_accessible(&new["spec"]) {
        unused.push("externalTrafficPolicy");
    }
    let keeps_ports = node_ports_of(new).iter().all(|number| given.contains(number));
    within(new, "spec", |spec| {
        for name in unused.into_iter().filter(|name| old["spec"].get(*name) == spec.get(*name)).collect::<Vec<_>>() {
            remove(spec, name);
        }
        if has_node_ports(&before) && !has_node_ports(&after) && keeps_ports {
            each(spec, "ports").for_each(|port| drop(remove(port, "nodePort")));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> ServiceStrategy {
        ServiceStrategy::new(&Random::seeded(7), ServiceRange::default(), Arc::default())
    }

    fn create(strategy: &ServiceStrategy, spec: Value) -> (Value, Vec<String>) {
        let mut service = json!({"metadata": {"name": "s"}, "spec": spec});
        strategy.default(&mut service);
        strategy.prepare_create(&mut service);
        let causes = strategy.validate(None, &service);
        if causes.is_empty() {
            strategy.committed(None, Some(&service));
        }
        (service, causes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn new_services_get_defaults_and_an_address() {
        let strategy = fresh();
        let (service, causes) = create(&strategy, json!({"ports": [{"port": 80}]}));
        assert_eq!(causes, [""; 0]);
        assert_eq!(service["spec"]["type"], "ClusterIP");
        assert_eq!(service["spec"]["ports"][0], json!({"port": 80, "protocol": "TCP", "targetPort": 80}));
        let bits = |service: &Value| address_bits(text(service, "/spec/clusterIP")).expect("an address");
        assert!(ServiceRange::default().addresses().contains(&bits(&service)));
        assert_eq!(service["spec"]["clusterIPs"], json!([service["spec"]["clusterIP"]]));
        let next = create(&strategy, json!({"ports": [{"port": 80}]})).0;
        assert_eq!(bits(&next), bits(&service) + 1);
        assert_ne!(
            fresh().addresses.lock().next(),
            ServiceStrategy::new(&Random::seeded(8), ServiceRange::default(), Arc::default()).addresses.lock().next()
        );
        let (external, causes) = create(&strategy, json!({"externalIPs": ["10.0.0.1"], "ports": [{"port": 80}]}));
        assert_eq!(
            (causes.as_slice(), &external["spec"]["externalTrafficPolicy"]),
            (&[] as &[String], &json!("Cluster"))
        );
        let headless = create(&strategy, json!({"clusterIP": "None"})).0;
        assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    }

    #[test]
    fn node_ports_are_allocated_once_and_kept() {
        let strategy = fresh();
        let (service, _) = create(&strategy, json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000}]}));
        let (other, _) = create(&strategy, json!({"type": "NodePort", "ports": [{"port": 80}]}));
        let given = other["spec"]["ports"][0]["nodePort"].as_u64().expect("a port");
        assert!((30_086..=32_767).contains(&given), "{given}");
        let (_, causes) = create(&strategy, json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000}]}));
        assert_eq!(causes, ["spec.ports[0].nodePort: Invalid value: 30000: provided port is already allocated"]);
        let mut update = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        strategy.default(&mut update);
        strategy.prepare_update(&service, &mut update);
        assert_eq!(update["spec"]["ports"][0]["nodePort"], 30000);
        assert_eq!(update["spec"]["clusterIP"], service["spec"]["clusterIP"]);
        assert_eq!(strategy.validate(Some(&service), &update), []);
    }

    #[test]
    fn an_unavailable_address_is_refused() {
        let strategy = fresh();
        let asked = |address: &str| create(&strategy, json!({"clusterIP": address, "ports": [{"port": 80}]})).1;
        assert_eq!(asked("127.96.0.10"), [""; 0]);
        let list = "spec.clusterIPs: Invalid value: [\"127.96.0.10\"]: failed to allocate IP 127.96.0.10";
        assert_eq!(asked("127.96.0.10"), [format!("{list}: provided IP is already allocated")]);
        let list = "spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: failed to allocate IP 10.0.0.1";
        let why = "the provided network does not match the current range";
        assert_eq!(asked("10.0.0.1"), [format!("{list}: {why}")]);
    }

    #[test]
    fn released_addresses_can_be_allocated_again() {
        let strategy = fresh();
        let wanted = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30685}]});
        let (service, _) = create(&strategy, wanted.clone());
        strategy.committed(Some(&service), None);
        assert_eq!(create(&strategy, wanted).1, [""; 0]);
    }
}
