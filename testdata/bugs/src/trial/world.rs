//! What conditions see.

use std::collections::BTreeMap;

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
};
use kubewright::object::Object;
use serde_json::Value;

/// The objects of the cluster at one moment.
#[derive(Debug)]
pub struct World {
    objects: BTreeMap<String, Vec<Value>>,
}

impl World {
    /// Reads all objects of these kinds.
    pub(super) async fn read(client: &Client, kinds: &[ApiResource]) -> Self {
        let mut objects = BTreeMap::new();
        for kind in kinds {
            let listed = Api::<DynamicObject>::all_with(client.clone(), kind).list(&ListParams::default()).await;
            let values = listed.into_iter().flatten().filter_map(|object| serde_json::to_value(object).ok());
            objects.insert(kind.kind.clone(), values.collect());
        }
        Self { objects }
    }

    /// Returns the objects of a kind in all namespaces, in the order of their keys.
    pub fn list<K: Object>(&self) -> Vec<K> {
        let objects = self.objects.get(&*K::kind(&())).into_iter().flatten();
        objects.filter_map(|object| serde_json::from_value(object.clone()).ok()).collect()
    }

    /// Returns the object of this name in the namespace `default`.
    pub fn get<K: Object>(&self, name: &str) -> Option<K> {
        let is_it = |object: &K| object.name_any() == name && object.namespace().is_none_or(|it| it == "default");
        self.list().into_iter().find(is_it)
    }
}
