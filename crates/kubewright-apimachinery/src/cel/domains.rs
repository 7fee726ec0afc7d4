//! Maps of a device by domain: its attributes and capacities. The map of a domain that a device doesn't have is empty,
//! so that the error is about the attribute (`k8s.io/dynamic-resource-allocation/cel`).

use std::{collections::HashMap, sync::Arc};

use kube_cel::cel::{
    Value,
    objects::{Key, KeyRef, Map, Opaque},
};

/// A map by domain.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Domains(Map);

impl Eq for Domains {}

impl Opaque for Domains {
    fn runtime_type_name(&self) -> &'static str {
        "map"
    }
}

impl Domains {
    /// Returns a map by domain as a value.
    pub(super) fn value(domains: HashMap<Key, HashMap<Key, Value>>) -> Value {
        let domains = domains.into_iter().map(|(domain, entries)| (domain, map(entries))).collect();
        Value::Opaque(Arc::new(Self(Map { map: Arc::new(domains) })))
    }

    /// Returns a map by domain, or `None` for other values.
    pub(super) fn of(value: &Value) -> Option<&Self> {
        match value {
            Value::Opaque(value) => value.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the map of a domain.
    pub(super) fn get(&self, domain: &Value) -> Value {
        let found = KeyRef::try_from(domain).ok().and_then(|domain| self.0.get(&domain));
        found.cloned().unwrap_or_else(|| map(HashMap::new()))
    }
}

fn map(entries: HashMap<Key, Value>) -> Value {
    Value::Map(Map { map: Arc::new(entries) })
}

/// Returns the entries that a map of any kind has, or `None` for other values.
pub(super) fn entries(value: &Value) -> Option<&Map> {
    match value {
        Value::Map(map) => Some(map),
        value => Domains::of(value).map(|Domains(map)| map),
    }
}
