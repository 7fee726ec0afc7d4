//! Services, including the allocation of their addresses and node ports.

mod allocate;
mod columns;
mod endpoints;
mod range;
mod update;
mod validate;
mod warnings;

use std::{collections::BTreeMap, net::Ipv4Addr, ops::RangeInclusive, sync::Arc};

use kubewright_apimachinery::{
    name,
    random::Random,
    status::{Cause, Status},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::allocate::Pool;
pub(super) use self::columns::columns;
pub(crate) use self::endpoints::service_endpoints;
pub use self::range::{ServiceRange, ServiceRangeError};
use super::{networking::ServiceRanges, validation::Errors};
use crate::{
    auth::Requester,
    fields::{each, entries, fill, fill_zero, has, int, list, present, remove, set, text, within},
    registry::Strategy,
};

/// The range of node ports, as by default in Kubernetes.
const NODE_PORTS: RangeInclusive<u32> = 30_000..=32_767;
/// The number before the first node port that a dry run shows.
const DRY_RUN_PORTS: u32 = 32_768;
/// The message about a node port that another service or port uses.
const TAKEN: &str = "provided port is already allocated";
/// The only family of addresses.
const IPV4: &str = "IPv4";
/// The number of lowest ports that are allocated only if all others are in use, so that services can request them
/// explicitly, as in Kubernetes (KEP-3668).
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

    /// Allocates an address and ports for a service that needs them and doesn't set them. `old` is the spec that an
    /// update replaces.
    fn allocate(&self, old: Option<&Value>, service: &mut Value) {
        let Some(spec) = service.get_mut("spec") else { return };
        let address = text(spec, "/clusterIP").to_owned();
        if !address.is_empty() && list(spec, "/clusterIPs").is_empty() {
            set(spec, "clusterIPs", json!([address]));
        }
        let kind = text(spec, "/type").to_owned();
        if kind == "ExternalName" {
            drop_internal_policy(spec);
        } else {
            choose_families(old, spec);
            if text(spec, "/clusterIP").is_empty()
                && list(spec, "/clusterIPs").is_empty()
                && text(spec, "/ipFamilies/0") == IPV4
                && let Some(address) = self.addresses.lock().next()
            {
                let address = Ipv4Addr::from_bits(address).to_string();
                set(spec, "clusterIPs", json!([address]));
                set(spec, "clusterIP", address);
            }
        }
        if needs_node_ports(spec) {
            self.allocate_node_ports(spec);
        }
        if validate::needs_health_check(spec) && int(spec, "/healthCheckNodePort") == 0 {
            let taken = node_ports_of(spec);
            if let Some(number) = free_port(&mut self.node_ports.lock(), |number| !taken.contains(&number)) {
                set(spec, "healthCheckNodePort", number);
            }
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

/// Replaces allocated node ports by those that follow on the highest one of the service so far, as in a dry run of
/// Kubernetes.
fn show_dry_run_ports(asked: &Value, spec: &mut Value) {
    let mut highest = None;
    let mut take = |given: Option<u32>| {
        let number = given.unwrap_or_else(|| highest.unwrap_or(DRY_RUN_PORTS) + 1);
        highest = highest.max(Some(number));
        number
    };
    let asked_ports = list(asked, "/ports");
    let mut numbers = BTreeMap::new();
    for port in asked_ports.iter() {
        if let Some(given) = node_port(port) {
            numbers.entry(int(port, "/port")).or_insert(given);
        }
    }
    for (port, asked) in each(spec, "ports").zip(asked_ports.iter()).filter(|(port, _)| int(port, "/nodePort") != 0) {
        if let Some(given) = node_port(asked) {
            take(Some(given));
        } else {
            let number = *numbers.entry(int(port, "/port")).or_insert_with(|| take(None));
            take(Some(number));
            set(port, "nodePort", number);
        }
    }
    if int(spec, "/healthCheckNodePort") != 0 && int(asked, "/healthCheckNodePort") == 0 {
        set(spec, "healthCheckNodePort", take(None));
    }
}

/// Returns the next free port that fulfils a condition.
fn free_port(pool: &mut Pool, is_allowed: impl Fn(u32) -> bool) -> Option<u32> {
    // Few ports are excluded: those of the same service.
    NODE_PORTS.map_while(|_| pool.next()).find(|number| is_allowed(*number))
}

/// Removes the policy for traffic from inside of the cluster, which Kubernetes doesn't show for a service without an
/// address. A value that isn't valid is left for validation.
fn drop_internal_policy(spec: &mut Value) {
    if matches!(text(spec, "/internalTrafficPolicy"), "Cluster" | "Local") {
        remove(spec, "internalTrafficPolicy");
    }
}

/// Sets the families of a service and their policy. A headless service without selector may have any endpoints, and so
/// both families, even though the cluster has only one.
///
/// An update keeps the policy, and reduces a service of a single family to the first. The families are those of the
/// addresses; if the cluster doesn't have that of an address, or two addresses have the same, none is set, and
/// validation refuses the addresses (`initIPFamilyFields` of Kubernetes' registry).
fn choose_families(old: Option<&Value>, spec: &mut Value) {
    let is_open = text(spec, "/clusterIP") == "None" && entries(spec, "/selector").next().is_none();
    let kept = old.and_then(|old| old.get("ipFamilyPolicy")).filter(|policy| !policy.is_null()).cloned();
    let policy = kept.unwrap_or_else(|| if is_open { "RequireDualStack" } else { "SingleStack" }.into());
    fill(spec, "ipFamilyPolicy", policy);
    if let Some(old) = old.filter(|_| text(spec, "/ipFamilyPolicy") == "SingleStack") {
        for name in ["clusterIPs", "ipFamilies"] {
            if let Some(Value::Array(items)) = spec.get_mut(name)
                && old.get(name).and_then(Value::as_array) == Some(items)
            {
                items.truncate(1);
            }
        }
    }
    let mut families = list(spec, "/ipFamilies").to_vec();
    let addresses = list(spec, "/clusterIPs").iter().map(|address| address.as_str().unwrap_or_default());
    for address in addresses.skip(families.len()).take_while(|address| *address != "None") {
        if address_bits(address).is_none() || families.iter().any(|family| family == IPV4) {
            return;
        }
        families.push(IPV4.into());
    }
    if families.is_empty() {
        families.push(IPV4.into());
    }
    if let [only] = families.as_slice()
        && is_open
        && text(spec, "/ipFamilyPolicy") != "SingleStack"
    {
        families.push(if only == IPV4 { "IPv6" } else { IPV4 }.into());
    }
    set(spec, "ipFamilies", families);
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
        self.allocate(None, object);
    }

    fn prepare_dry_run(&self, asked: &Value, new: &mut Value) {
        // That of the network itself, which no service gets.
        let address = Ipv4Addr::from_bits(self.range.addresses().start() - 1).to_string();
        let (asked, spec) = (&asked["spec"], &mut new["spec"]);
        if text(asked, "/clusterIP").is_empty() && !matches!(text(spec, "/clusterIP"), "" | "None") {
            set(spec, "clusterIPs", json!([address]));
            set(spec, "clusterIP", address);
        }
        show_dry_run_ports(asked, spec);
    }

    fn prepare_update(&self, old: &Value, new: &mut Value) {
        update::drop_unused(old, new);
        update::carry_over(&old["spec"], new);
        if text(new, "/spec/type") != "LoadBalancer" {
            within(new, "status", |status| set(status, "loadBalancer", json!({})));
        }
        self.allocate(Some(&old["spec"]), new);
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

    fn validate_commit(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        self.validate_allocation(old, new)
    }

    fn check_access(&self, _requester: &Requester<'_>, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        self.check_health_check_port(old, new)
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
        let ports = |service: Option<&Value>| service.map(|service| ports_of(&service["spec"])).unwrap_or_default();
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
        if has_node_ports(&new["spec"]) {
            self.validate_node_ports(old, new, &mut causes);
        }
        causes
    }

    fn validate_node_ports(&self, old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
        let node_ports = self.node_ports.lock();
        let had: Vec<_> = old.map(|old| node_ports_of(&old["spec"])).unwrap_or_default();
        let mut taken = BTreeMap::new();
        for (index, port) in list(new, "/spec/ports").iter().enumerate().filter(|(_, port)| int(port, "/nodePort") != 0)
        {
            let number = node_port(port).filter(|number| NODE_PORTS.contains(number));
            let why = match number {
                None => out_of_range(),
                // Ports with the same number and different protocols share a node port.
                Some(number) if *taken.entry(number).or_insert(&port["port"]) != &port["port"] => TAKEN.into(),
                Some(number) if !had.contains(&number) && node_ports.is_used(number) => TAKEN.into(),
                Some(_) => continue,
            };
            causes.push(Cause::invalid(format!("spec.ports[{index}].nodePort"), &port["nodePort"], &why));
        }
    }

    /// Checks that the port for health checks, if it is new, is one of the node ports and free. Kubernetes calls it an
    /// internal error if not (`allocHealthCheckNodePort` of its registry).
    fn check_health_check_port(&self, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        let port = |service: &Value| int(service, "/spec/healthCheckNodePort");
        let number = port(new);
        if !validate::needs_health_check(&new["spec"]) || old.is_some_and(|old| port(old) == number) {
            return Ok(());
        }
        let why = match u32::try_from(number).ok().filter(|number| NODE_PORTS.contains(number)) {
            None => out_of_range(),
            Some(number) if self.node_ports.lock().is_used(number) || node_ports_of(&new["spec"]).contains(&number) => {
                TAKEN.into()
            }
            Some(_) => return Ok(()),
        };
        Err(Status::internal(format!("failed to allocate requested HealthCheck NodePort {number}: {why}")))
    }
}

fn out_of_range() -> String {
    let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
    format!("provided port is not in the valid range. The range of valid ports is {first}-{last}")
}

fn has_node_ports(spec: &Value) -> bool {
    matches!(text(spec, "/type"), "NodePort" | "LoadBalancer")
}

/// Returns whether each port of a service gets a node port.
fn needs_node_ports(spec: &Value) -> bool {
    match text(spec, "/type") {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

fn address_bits(address: &str) -> Option<u32> {
    address.parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits)
}

fn node_port(port: &Value) -> Option<u32> {
    port["nodePort"].as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number != 0)
}

fn node_ports_of(spec: &Value) -> Vec<u32> {
    list(spec, "/ports").iter().filter_map(node_port).collect()
}

/// Returns the ports of nodes that a service uses: those of its ports, and that for health checks.
fn ports_of(spec: &Value) -> Vec<u32> {
    let health = spec["healthCheckNodePort"].as_u64().and_then(|number| u32::try_from(number).ok());
    node_ports_of(spec).into_iter().chain(health.filter(|number| *number != 0)).collect()
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

    /// As recorded on 1.36.3.
    #[test]
    fn a_dry_run_shows_other_addresses_and_ports() {
        let strategy = fresh();
        let check = |spec: Value, address: Option<&str>, ports: &[u64], health: Option<u64>| {
            let mut service = create(&strategy, spec.clone()).0;
            strategy.prepare_dry_run(&json!({"spec": spec}), &mut service);
            let spec = &service["spec"];
            assert_eq!(spec["clusterIP"].as_str(), address, "{service}");
            assert_eq!(list(spec, "/clusterIPs").first().and_then(Value::as_str), address, "{service}");
            let shown: Vec<_> = list(spec, "/ports").iter().filter_map(|port| port["nodePort"].as_u64()).collect();
            assert_eq!((shown.as_slice(), spec["healthCheckNodePort"].as_u64()), (ports, health), "{service}");
        };
        let first = Some("127.96.0.0");
        let port = |number: u32, given: u32| match given {
            0 => json!({"name": format!("p{number}"), "port": number}),
            given => json!({"name": format!("g{given}"), "port": number, "nodePort": given}),
        };
        let mut udp = port(80, 0);
        (udp["name"], udp["protocol"]) = ("udp".into(), "UDP".into());
        let of = |kind: &str, ports: &[Value]| json!({"type": kind, "ports": ports});
        check(of("ClusterIP", &[port(80, 0)]), first, &[], None);
        check(of("NodePort", &[port(80, 0), port(81, 0), udp]), first, &[32769, 32770, 32769], None);
        check(of("NodePort", &[port(80, 0), port(81, 30005), port(82, 0)]), first, &[32769, 30005, 32770], None);
        let mut local = of("LoadBalancer", &[port(80, 0)]);
        local["externalTrafficPolicy"] = "Local".into();
        check(local.clone(), first, &[32769], Some(32770));
        local["healthCheckNodePort"] = 31000.into();
        check(local, first, &[32769], Some(31000));
        check(json!({"clusterIP": "None", "ports": [port(80, 0)]}), Some("None"), &[], None);
        check(json!({"clusterIP": "127.96.3.4", "ports": [port(80, 0)]}), Some("127.96.3.4"), &[], None);
        check(json!({"type": "ExternalName", "externalName": "a.b"}), None, &[], None);
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
    fn a_local_load_balancer_has_a_port_for_health_checks() {
        let strategy = fresh();
        let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}],
            "allocateLoadBalancerNodePorts": false});
        let (service, causes) = create(&strategy, spec.clone());
        assert_eq!(causes, [""; 0]);
        let number = service["spec"]["healthCheckNodePort"].clone();
        let bits = u32::try_from(number.as_u64().expect("a port")).expect("a port");
        assert!(strategy.node_ports.lock().is_used(bits) && !has(&service, "/spec/ports/0/nodePort"));
        let update = |old: &Value, spec: Value| {
            let mut new = json!({"metadata": {"name": "s"}, "spec": spec});
            strategy.default(&mut new);
            strategy.prepare_update(old, &mut new);
            let causes = strategy.validate(Some(old), &new);
            assert_eq!(causes, []);
            strategy.committed(Some(old), Some(&new));
            new
        };
        let kept = update(&service, spec.clone());
        assert_eq!(kept["spec"]["healthCheckNodePort"], number);
        let check = |number: &Value| {
            let mut other = json!({"spec": spec});
            other["spec"]["healthCheckNodePort"] = number.clone();
            strategy.check_health_check_port(None, &other).map_err(|status| status.message)
        };
        let failed = "Internal error occurred: failed to allocate requested HealthCheck NodePort";
        assert_eq!(check(&number), Err(format!("{failed} {number}: {TAKEN}")));
        let range = "provided port is not in the valid range. The range of valid ports is 30000-32767";
        assert_eq!(check(&json!(80)), Err(format!("{failed} 80: {range}")));
        assert_eq!(strategy.check_health_check_port(Some(&service), &service), Ok(()));
        let mut spec = kept["spec"].clone();
        spec["externalTrafficPolicy"] = "Cluster".into();
        let released = update(&kept, spec.clone());
        assert!(!has(&released, "/spec/healthCheckNodePort") && !strategy.node_ports.lock().is_used(bits));
        spec["externalTrafficPolicy"] = "Local".into();
        remove(&mut spec, "healthCheckNodePort");
        assert_ne!(update(&released, spec)["spec"]["healthCheckNodePort"], json!(null));
    }

    #[test]
    fn a_service_without_an_address_has_no_fields_about_it() {
        let strategy = fresh();
        let external = json!({"type": "ExternalName", "externalName": "a.b", "clusterIP": "None"});
        let why = "spec.clusterIPs: Forbidden: may not be set for ExternalName services";
        assert_eq!(create(&strategy, external).1, [why]);
        let (service, _) = create(&strategy, json!({"ports": [{"port": 80}]}));
        let mut update = service.clone();
        update["spec"]["type"] = "ExternalName".into();
        update["spec"]["externalName"] = "a.b".into();
        strategy.default(&mut update);
        strategy.prepare_update(&service, &mut update);
        assert_eq!(strategy.validate(Some(&service), &update), []);
        for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            assert_eq!(update["spec"].get(name), None, "{name}");
        }
    }

    #[test]
    fn families_are_those_of_the_addresses() {
        let strategy = fresh();
        let check = |spec: Value, expected: &[&str]| assert_eq!(create(&strategy, spec).1, expected);
        let ports = json!([{"port": 80}]);
        check(
            json!({"clusterIP": "::1", "ports": ports}),
            &["spec.clusterIPs[0]: Invalid value: [\"::1\"]: IPv6 is not configured on this cluster"],
        );
        check(
            json!({"clusterIP": "::1", "ipFamilies": ["IPv6"], "ports": ports}),
            &["spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"],
        );
        check(
            json!({"clusterIP": "::1", "ipFamilies": ["IPv4"], "ports": ports}),
            &["spec.clusterIPs[0]: Invalid value: \"::1\": expected an IPv4 value as indicated by `ipFamilies[0]`"],
        );
        check(
            json!({"clusterIP": "127.96.0.9", "clusterIPs": ["127.96.0.9", "::1"], "ports": ports}),
            &[
                "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when \
                 multiple cluster IPs are specified",
                "spec.clusterIPs[1]: Invalid value: [\"127.96.0.9\",\"::1\"]: IPv6 is not configured on this cluster",
            ],
        );
        let (open, causes) = create(&strategy, json!({"clusterIP": "None"}));
        assert_eq!((causes.as_slice(), &open["spec"]["ipFamilies"]), (&[] as &[String], &json!(["IPv4", "IPv6"])));
        let mut single = open.clone();
        single["spec"]["ipFamilyPolicy"] = "SingleStack".into();
        strategy.prepare_update(&open, &mut single);
        assert_eq!(single["spec"]["ipFamilies"], json!(["IPv4"]));
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
