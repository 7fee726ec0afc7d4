//! The parents of one kind and the children that they control, matched by controller references and selectors. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kubewright_apimachinery::selector::LabelSelector;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    reconcile::{Key, Step},
    value::{controller_of, controller_reference, is_deleting, list, selector, selects},
};

/// All parents and all children.
#[derive(Debug)]
pub(crate) struct ControllerRefs {
    parent: Kind,
    child: Kind,
    parents: BTreeMap<Key, Arc<Value>>,
    children: BTreeMap<Key, Arc<Value>>,
    /// The children whose controller reference names a parent of this kind.
    named: BTreeMap<Key, BTreeSet<Key>>,
    /// The children without a controller, by namespace.
    orphans: BTreeMap<String, BTreeSet<Key>>,
}

/// The children of a parent.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    /// The children, including those to adopt.
    pub(crate) children: Vec<Arc<Value>>,
    /// The steps that adopt and release children.
    pub(crate) steps: Vec<Step>,
}

impl ControllerRefs {
    /// Creates an empty set for two kinds.
    pub(crate) fn new(parent: Kind, child: Kind) -> Self {
        let (parents, children) = Default::default();
        Self { parent, child, parents, children, named: BTreeMap::new(), orphans: BTreeMap::new() }
    }

    /// Clears the state.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.parent, self.child);
    }

    /// Returns the parent with this name.
    pub(crate) fn parent(&self, key: &Key) -> Option<&Arc<Value>> {
        self.parents.get(key)
    }

    /// Returns the names of all parents.
    pub(crate) fn parents(&self) -> impl Iterator<Item = &Key> {
        self.parents.keys()
    }

    /// Returns the child with this name.
    pub(crate) fn child(&self, key: &Key) -> Option<&Arc<Value>> {
        self.children.get(key)
    }

    /// Returns all children whose controller has this name, whether it is the current object or a previous one.
    pub(crate) fn named(&self, key: &Key) -> impl Iterator<Item = &Arc<Value>> {
        self.named.get(key).into_iter().flatten().filter_map(|child| self.children.get(child))
    }

    /// Processes a change, and returns the affected parents.
    pub(crate) fn take(&mut self, change: &Change) -> Vec<Key> {
        let Some(key) = Key::of(&change.object) else { return Vec::new() };
        let gone = change.kind == ChangeKind::Deleted;
        if self.parent.is_of(change) {
            if gone {
                self.parents.remove(&key);
            } else {
                self.parents.insert(key.clone(), change.object.clone());
            }
            return vec![key];
        }
        if !self.child.is_of(change) {
            return Vec::new();
        }
        let mut concerned = BTreeSet::new();
        if let Some(before) = self.children.remove(&key) {
            concerned.extend(self.unlink(&key, &before));
        }
        if !gone {
            concerned.extend(self.link(&key, &change.object));
            self.children.insert(key, change.object.clone());
        }
        concerned.into_iter().collect()
    }

    fn unlink(&mut self, key: &Key, child: &Value) -> Vec<Key> {
        if let Some(parent) = self.named_parent(key, child) {
            if let Some(children) = self.named.get_mut(&parent) {
                children.remove(key);
                if children.is_empty() {
                    self.named.remove(&parent);
                }
            }
            return vec![parent];
        }
        if let Some(orphans) = self.orphans.get_mut(&key.namespace) {
            orphans.remove(key);
        }
        Vec::new()
    }

    fn link(&mut self, key: &Key, child: &Value) -> Vec<Key> {
        if let Some(parent) = self.named_parent(key, child) {
            self.named.entry(parent.clone()).or_default().insert(key.clone());
            return vec![parent];
        }
        if controller_of(child).is_some() {
            return Vec::new();
        }
        self.orphans.entry(key.namespace.clone()).or_default().insert(key.clone());
        self.parents
            .range(Key::first_of(&key.namespace)..)
            .take_while(|(parent, _)| parent.namespace == key.namespace)
            .filter(|(_, parent)| selects(&self.selector(parent), child))
            .map(|(parent, _)| parent.clone())
            .collect()
    }

    /// Returns the controller that a child refers to, if it is of the parents' kind.
    fn named_parent(&self, key: &Key, child: &Value) -> Option<Key> {
        let controller = controller_of(child)?;
        let group = controller["apiVersion"].as_str()?.split_once('/').map_or("", |(group, _)| group);
        let ours = controller["kind"] == self.parent.kind && group == self.parent.group;
        let name = controller["name"].as_str().filter(|_| ours)?;
        Some(Key { namespace: key.namespace.clone(), name: name.into() })
    }

    /// Returns the children that a parent controls and selects. Selected children without a controller are adopted, and
    /// controlled children that no longer match the selector are released. A parent that is being deleted does neither.
    pub(crate) fn claim(&self, key: &Key, parent: &Value) -> Claim {
        self.claim_where(key, parent, |_| true)
    }

    /// Like [`Self::claim`], with another condition that the children have to meet beside the selector.
    pub(crate) fn claim_where(&self, key: &Key, parent: &Value, belongs: impl Fn(&Value) -> bool) -> Claim {
        let selector = self.selector(parent);
        let selects = |child: &Value| selects(&selector, child) && belongs(child);
        let uid = &parent["metadata"]["uid"];
        let stays = !is_deleting(parent);
        let mut claim = Claim::default();
        let owned = |child: &&Arc<Value>| controller_of(child).is_some_and(|owner| owner["uid"] == *uid);
        for child in self.named(key).filter(owned) {
            if selects(child) {
                claim.children.push(child.clone());
            } else if stays {
                let owners = list(child, "/metadata/ownerReferences");
                let others = owners.iter().filter(|owner| owner["uid"] != *uid).cloned().collect();
                claim.steps.push(self.set_owners(child, others));
            }
        }
        let orphans = self.orphans.get(&key.namespace).into_iter().flatten();
        let wanted = |child: &&Arc<Value>| stays && !is_deleting(child) && selects(child);
        for child in orphans.filter_map(|orphan| self.children.get(orphan)).filter(wanted) {
            let mut owners = list(child, "/metadata/ownerReferences").to_vec();
            owners.push(controller_reference(parent, &self.parent.api_version(), self.parent.kind));
            claim.steps.push(self.set_owners(child, owners));
            claim.children.push(child.clone());
        }
        claim
    }

    /// Returns the selector of a parent. That of a ReplicationController, an older kind, is a map of labels.
    fn selector(&self, parent: &Value) -> LabelSelector {
        match self.parent.group {
            "" => selector(&json!({"matchLabels": parent["spec"]["selector"]}), ""),
            _ => selector(parent, "/spec/selector"),
        }
    }

    fn set_owners(&self, child: &Value, owners: Vec<Value>) -> Step {
        Step::change(&self.child, child, json!({"metadata": {"ownerReferences": owners}}))
    }
}
