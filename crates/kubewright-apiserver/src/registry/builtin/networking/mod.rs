//! Ingresses and their classes, network policies, endpoints, endpoint slices, and the addresses of Services.

mod address;
mod class;
mod endpoints;
mod ingress;
mod network_policy;

use std::sync::Arc;

use kubewright_apimachinery::status::Cause;
use serde_json::{Value, json};

pub(crate) use self::address::ServiceRanges;
pub(super) use self::{
    address::{IpAddressStrategy, ServiceCidrStrategy, ip_address_columns, service_cidr_columns},
    class::{IngressClassStrategy, ingress_class_columns},
};
use self::{
    endpoints::{endpoint_slice_warnings, endpoints_warnings, validate_endpoint_slice, validate_endpoints},
    ingress::{ingress_warnings, validate_ingress, validate_ingress_status},
    network_policy::{network_policy_warnings, validate_network_policy},
};
use super::{default_class::Classes, validation::Errors};
use crate::{
    fields::{each, fill, fill_zero, has, list, set, within},
    plugins::{AdmissionPlugin, Plugins},
    registry::Strategy,
};

/// The strategy of ingresses.
#[derive(Debug)]
pub(super) struct IngressStrategy {
    pub(super) classes: Arc<Classes>,
    pub(super) plugins: Arc<Plugins>,
}

impl Strategy for IngressStrategy {
    /// Sets the default class, unless the ingress has one.
    fn admit(&self, old: Option<&Value>, object: &mut Value) -> Result<(), String> {
        let has_class = has(object, "/spec/ingressClassName")
            || object["metadata"]["annotations"].get("kubernetes.io/ingress.class").is_some();
        if old.is_none()
            && !has_class
            && self.plugins.has(AdmissionPlugin::DefaultIngressClass)
            && let Some(class) = self.classes.default_class()
        {
            within(object, "spec", |spec| set(spec, "ingressClassName", class));
        }
        Ok(())
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate_ingress(old, new, errors))
    }

    fn validate_status(&self, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate_ingress_status(old, new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn warnings(&self, old: Option<&Value>, new: &Value) -> Vec<String> {
        if old.is_none() { ingress_warnings(new) } else { Vec::new() }
    }
}

/// The strategy of network policies.
#[derive(Debug)]
pub(super) struct NetworkPolicyStrategy;

impl Strategy for NetworkPolicyStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            if list(spec, "/policyTypes").is_empty() {
                let both = !list(spec, "/egress").is_empty();
                set(spec, "policyTypes", if both { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
            }
            for direction in ["ingress", "egress"] {
                for rule in each(spec, direction) {
                    each(rule, "ports").for_each(|port| fill(port, "protocol", "TCP"));
                }
            }
        });
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate_network_policy(old, new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn warnings(&self, _old: Option<&Value>, new: &Value) -> Vec<String> {
        network_policy_warnings(new)
    }

    fn counts_empty_as_change(&self) -> bool {
        true
    }
}

/// The strategy of endpoints.
#[derive(Debug)]
pub(super) struct EndpointsStrategy;

impl Strategy for EndpointsStrategy {
    fn default(&self, object: &mut Value) {
        for subset in each(object, "subsets") {
            each(subset, "ports").for_each(|port| fill_zero(port, "protocol", "TCP"));
        }
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate_endpoints(old, new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn warnings(&self, _old: Option<&Value>, new: &Value) -> Vec<String> {
        endpoints_warnings(new)
    }

    fn has_generation(&self) -> bool {
        false
    }
}

/// The strategy of endpoint slices.
#[derive(Debug)]
pub(super) struct EndpointSliceStrategy;

impl Strategy for EndpointSliceStrategy {
    fn default(&self, object: &mut Value) {
        for port in each(object, "ports") {
            fill(port, "name", "");
            fill(port, "protocol", "TCP");
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        drop_topology(object);
    }

    fn prepare_update(&self, _old: &Value, new: &mut Value) {
        drop_topology(new);
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate_endpoint_slice(old, new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn warnings(&self, old: Option<&Value>, new: &Value) -> Vec<String> {
        endpoint_slice_warnings(old, new)
    }

    /// Labels count, too, since they name the service.
    fn increments_generation(&self, old: &Value, new: &Value, changed: bool) -> bool {
        changed || old["metadata"]["labels"] != new["metadata"]["labels"]
    }
}

/// Drops the topology of endpoints, which only the older version of the kind has.
fn drop_topology(slice: &mut Value) {
    for endpoint in each(slice, "endpoints") {
        if let Some(fields) = endpoint.as_object_mut() {
            fields.remove("deprecatedTopology");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topology_of_endpoints_is_dropped() {
        let mut slice = json!({"endpoints": [{"addresses": ["1.1.1.1"], "deprecatedTopology": {"a": "b"}}]});
        EndpointSliceStrategy.prepare_create(&mut slice);
        assert_eq!(slice, json!({"endpoints": [{"addresses": ["1.1.1.1"]}]}));
    }

    #[test]
    fn a_network_policy_gets_its_published_defaults() {
        let check = |mut spec: Value, expect: Value| {
            let mut object = json!({"spec": spec.take()});
            NetworkPolicyStrategy.default(&mut object);
            assert_eq!(object["spec"], expect);
        };
        check(json!({}), json!({"policyTypes": ["Ingress"]}));
        let egress = json!([{"ports": [{"port": 1, "protocol": "TCP"}, {"port": 2, "protocol": "UDP"}]}]);
        check(
            json!({"egress": [{"ports": [{"port": 1}, {"port": 2, "protocol": "UDP"}]}]}),
            json!({"policyTypes": ["Ingress", "Egress"], "egress": egress}),
        );
        check(json!({"policyTypes": ["Egress"]}), json!({"policyTypes": ["Egress"]}));
    }

    #[test]
    fn ports_of_endpoints_and_slices_have_a_protocol() {
        let mut endpoints = json!({"subsets": [{"ports": [{"port": 1}]}]});
        EndpointsStrategy.default(&mut endpoints);
        assert_eq!(endpoints["subsets"][0]["ports"][0], json!({"port": 1, "protocol": "TCP"}));
        let mut slice = json!({"ports": [{"port": 1}]});
        EndpointSliceStrategy.default(&mut slice);
        assert_eq!(slice["ports"][0], json!({"name": "", "port": 1, "protocol": "TCP"}));
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        assert!(EndpointSliceStrategy.increments_generation(&json!({}), &labelled, false));
    }
}
