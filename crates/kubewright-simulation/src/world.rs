//! What conditions see.

use std::{collections::BTreeMap, sync::Arc};

use kube::ResourceExt;
use kubewright_apiserver::{Change, ChangeKind};
use kubewright_runtime::object::Object;
use serde_json::Value;

/// The namespace of objects that are named without one.
pub(crate) const NAMESPACE: &str = "default";

/// The objects of a kind, by namespace and name.
type Objects = BTreeMap<(String, String), Arc<Value>>;

/// The objects of the cluster at one moment.
#[derive(Debug, Default)]
pub struct World {
    /// By group and kind.
    objects: BTreeMap<(String, String), Objects>,
}

impl World {
    /// Returns the objects of a kind in all namespaces, by namespace and name. Objects that can't be read as `K` are
    /// left out.
    pub fn list<K: Object>(&self) -> Vec<K> {
        self.values(&K::group(&()), &K::kind(&())).filter_map(|object| K::deserialize(&**object).ok()).collect()
    }

    /// Returns an object of the namespace `default`, or of a kind without namespaces.
    pub fn get<K: Object>(&self, name: &str) -> Option<K> {
        self.get_in(NAMESPACE, name)
    }

    /// Returns an object of a namespace, which isn't considered if the kind has none.
    pub fn get_in<K: Object>(&self, namespace: &str, name: &str) -> Option<K> {
        let namespace = if K::is_namespaced() { namespace } else { "" };
        let kind = (K::group(&()).into_owned(), K::kind(&()).into_owned());
        let object = self.objects.get(&kind)?.get(&(namespace.into(), name.into()))?;
        K::deserialize(&**object).ok()
    }

    /// Returns an object of the namespace `default`, or of a kind without namespaces, as JSON.
    pub fn value<K: Object>(&self, name: &str) -> Option<&Arc<Value>> {
        let namespace = if K::is_namespaced() { NAMESPACE } else { "" };
        let kind = (K::group(&()).into_owned(), K::kind(&()).into_owned());
        self.objects.get(&kind)?.get(&(namespace.into(), name.into()))
    }

    /// Returns the children of an object: those whose controller it is.
    pub fn children<K: Object>(&self, owner: &impl kube::Resource) -> Vec<K> {
        let Some(uid) = owner.meta().uid.as_deref() else { return Vec::new() };
        let mut children = self.list::<K>();
        children.retain(|child| {
            child.owner_references().iter().any(|it| it.uid == uid && it.controller.unwrap_or_default())
        });
        children
    }

    /// Returns the objects of a kind as JSON, by namespace and name.
    pub fn values(&self, group: &str, kind: &str) -> impl Iterator<Item = &Arc<Value>> {
        self.objects.get(&(group.into(), kind.into())).into_iter().flat_map(BTreeMap::values)
    }

    /// Returns all objects as JSON, by group, kind, namespace and name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.objects.values().flat_map(BTreeMap::values)
    }

    pub(crate) fn apply(&mut self, change: &Change) {
        let key = (text(change.object(), "namespace").to_owned(), text(change.object(), "name").to_owned());
        let kind = (change.resource.group.to_string(), change.resource.kind.to_string());
        let objects = self.objects.entry(kind).or_default();
        match change.kind {
            ChangeKind::Deleted => drop(objects.remove(&key)),
            ChangeKind::Added | ChangeKind::Modified => drop(objects.insert(key, change.object().clone())),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.objects.clear();
    }
}

/// Returns a field of the metadata, or an empty text.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}
