//! The current objects of one kind, shared by controllers. An object is parsed when a controller first asks for it.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use kubewright_apimachinery::selector::LabelSelector;
use kubewright_apiserver::{Change, ChangeKind, StoredObject};
use parking_lot::RwLock;
use serde_json::Value;

use super::{reconcile::Key, value::controller_of};

/// The current objects of one kind. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects(Arc<RwLock<BTreeMap<Key, Entry>>>);

#[derive(Debug)]
struct Entry {
    stored: StoredObject,
    /// The parsed object, once it has been asked for.
    value: OnceLock<Arc<Value>>,
    has_controller: bool,
}

impl Entry {
    fn value(&self) -> &Arc<Value> {
        self.value.get_or_init(|| self.stored.value())
    }
}

impl Objects {
    /// Removes all objects.
    pub(crate) fn clear(&self) {
        self.0.write().clear();
    }

    /// Processes a change of an object of the kind.
    pub(crate) fn take(&self, change: &Change) {
        if change.kind != ChangeKind::Deleted {
            self.insert(change.object(), change.stored.clone());
        } else if let Some(key) = Key::of(change.object()) {
            self.0.write().remove(&key);
        }
    }

    /// Adds or replaces an object, of which `stored` is the stored version.
    pub(crate) fn insert(&self, object: &Value, stored: StoredObject) {
        let Some(key) = Key::of(object) else { return };
        let entry = Entry { stored, value: OnceLock::new(), has_controller: controller_of(object).is_some() };
        self.0.write().insert(key, entry);
    }

    /// Returns whether an object exists.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.0.read().contains_key(key)
    }

    /// Returns an object.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Value>> {
        Some(self.0.read().get(key)?.value().clone())
    }

    /// Returns all objects.
    pub(crate) fn all(&self) -> Vec<Arc<Value>> {
        self.0.read().values().map(|entry| entry.value().clone()).collect()
    }

    /// Returns how many objects are held parsed.
    #[cfg(test)]
    pub(crate) fn number_parsed(&self) -> usize {
        self.0.read().values().filter(|entry| entry.value.get().is_some()).count()
    }

    /// Returns the objects in a namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Arc<Value>> {
        let objects = self.0.read();
        let objects = objects.range(Key::first_of(namespace)..).take_while(|(key, _)| key.namespace == namespace);
        objects.map(|(_, entry)| entry.value().clone()).collect()
    }

    /// Returns the objects in a namespace that a selector matches.
    pub(crate) fn selected(&self, namespace: &str, selector: &LabelSelector) -> Vec<Arc<Value>> {
        self.select(namespace, selector, |_| true)
    }

    /// Returns the objects in a namespace that a selector matches and that have no controller.
    pub(crate) fn orphans(&self, namespace: &str, selector: &LabelSelector) -> Vec<Arc<Value>> {
        self.select(namespace, selector, |entry| !entry.has_controller)
    }

    fn select(&self, namespace: &str, selector: &LabelSelector, also: impl Fn(&Entry) -> bool) -> Vec<Arc<Value>> {
        let objects = self.0.read();
        let objects = objects.range(Key::first_of(namespace)..).take_while(|(key, _)| key.namespace == namespace);
        let objects = objects.map(|(_, entry)| entry).filter(|entry| also(entry));
        let objects = objects.filter(|entry| selector.matches(|key| entry.stored.label(key)));
        objects.map(|entry| entry.value().clone()).collect()
    }
}
