//! The scales of the objects that can be scaled, of all kinds. Pure.

use std::collections::BTreeMap;

use kubewright_apimachinery::{path::JsonPath, selector::LabelSelector};
use kubewright_apiserver::{Change, ChangeKind, registry::Resource};
use serde_json::Value;

use crate::controllers::{reconcile::Key, value::text};

/// The scale of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TargetScale {
    /// The desired number of replicas.
    pub(super) replicas: i64,
    /// The observed number of replicas.
    pub(super) observed: i64,
    /// The selector of its pods, as text; empty if it has none.
    pub(super) selector: String,
}

/// The objects that have a scale, by the stored resource.
#[derive(Debug, Default)]
pub(super) struct Targets(BTreeMap<(String, Key), TargetScale>);

impl Targets {
    /// Processes a change.
    pub(super) fn take(&mut self, change: &Change) {
        let resource = &change.resource;
        let Some(paths) = &resource.scale else { return };
        let object = change.object();
        let Some(key) = Key::of(object) else { return };
        let key = (resource.storage.to_string(), key);
        if change.kind == ChangeKind::Deleted {
            self.0.remove(&key);
            return;
        }
        let find = |path: &str| JsonPath::parse(path).ok().and_then(|path| path.first(object).cloned());
        let selector = match paths.selector.as_deref().and_then(find) {
            Some(Value::String(text)) => text,
            // ReplicationControllers select by a plain map.
            Some(map @ Value::Object(_)) if text(object, "/kind") == "ReplicationController" => {
                let labels = map.as_object().into_iter().flatten();
                let labels: Vec<_> =
                    labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
                labels.join(",")
            }
            Some(object @ Value::Object(_)) => {
                LabelSelector::from_object(&object).map(|selector| selector.to_string()).unwrap_or_default()
            }
            _ => String::new(),
        };
        let number = |path: &str| find(path).and_then(|number| number.as_i64()).unwrap_or_default();
        let (replicas, observed) = (number(&paths.spec_replicas), number(&paths.status_replicas));
        self.0.insert(key, TargetScale { replicas, observed, selector });
    }

    /// Returns the scale of an object.
    pub(super) fn find(&self, resource: &Resource, key: &Key) -> Option<&TargetScale> {
        self.0.get(&(resource.storage.to_string(), key.clone()))
    }
}
