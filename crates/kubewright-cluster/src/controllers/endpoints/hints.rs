//! The zones of endpoints, and the hints to which clients they should be given
//! (<https://kubernetes.io/docs/concepts/services-networking/service/#traffic-distribution>).
//!
//! The annotation `service.kubernetes.io/topology-mode` has no effect.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::controllers::value::text;

/// What decides about the hints of a service's endpoints.
pub(super) struct Traffic<'a> {
    /// The zones of nodes.
    pub(super) zones: &'a BTreeMap<String, String>,
    /// `spec.trafficDistribution` of the service.
    pub(super) distribution: &'a str,
}

impl Traffic<'_> {
    /// Returns an endpoint with its zone, and with hints if it is ready.
    pub(super) fn with_hints(&self, mut endpoint: Value) -> Value {
        let node = text(&endpoint, "/nodeName").to_owned();
        let zone = self.zones.get(&node);
        if let Some(zone) = zone {
            endpoint["zone"] = zone.as_str().into();
        }
        if endpoint["conditions"]["ready"] != true {
            return endpoint;
        }
        let (by_zone, by_node) = match self.distribution {
            "PreferClose" | "PreferSameZone" => (true, false),
            "PreferSameNode" => (true, true),
            _ => (false, false),
        };
        if let Some(zone) = zone.filter(|_| by_zone) {
            endpoint["hints"]["forZones"] = json!([{"name": zone}]);
        }
        if by_node && !node.is_empty() {
            endpoint["hints"]["forNodes"] = json!([{"name": node}]);
        }
        endpoint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_endpoints_have_hints() {
        let zones = BTreeMap::from([("a".to_owned(), "north".to_owned())]);
        let check = |distribution, node: &str, ready: bool, expect: Value| {
            let endpoint = json!({"nodeName": node, "conditions": {"ready": ready}});
            let found = Traffic { zones: &zones, distribution }.with_hints(endpoint);
            let zone = if node == "a" { json!("north") } else { Value::Null };
            assert_eq!((&found["hints"], &found["zone"]), (&expect, &zone), "{distribution} {node} {ready}");
        };
        let zone = || json!({"forZones": [{"name": "north"}]});
        check("PreferClose", "a", true, zone());
        check("PreferSameZone", "a", true, zone());
        check("PreferSameNode", "a", true, json!({"forZones": [{"name": "north"}], "forNodes": [{"name": "a"}]}));
        check("PreferSameNode", "b", true, json!({"forNodes": [{"name": "b"}]}));
        check("PreferClose", "b", true, Value::Null);
        check("PreferClose", "a", false, Value::Null);
        check("", "a", true, Value::Null);
    }
}
