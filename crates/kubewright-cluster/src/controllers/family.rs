//! Parents of one kind and the children they control: who claims whom. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    reconcile::{Key, Step},
    value::{controller_of, controller_reference, is_deleting, list, selector, selects},
};
use crate::access::Address;

/// A kind, as references and requests name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The group; empty for the core group.
    pub(crate) group: &'static str,
    /// The kind.
    pub(crate) kind: &'static str,
    /// The resource.
    pub(crate) plural: &'static str,
}

impl Kind {
    /// Pods.
    pub(crate) const POD: Self = Self { group: "", kind: "Pod", plural: "pods" };

    /// The group and the version, which is v1 of all that the controllers know.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { "v1".into() } else { format!("{}/v1", self.group) }
    }

    /// Whether a change is of an object of this kind.
    pub(crate) fn is_of(&self, change: &Change) -> bool {
        change.resource.storage.split_once('/') == Some((self.group, self.plural))
    }

    /// Where an object, or with an empty name all of a namespace, is served.
    pub(crate) fn address(&self, namespace: &str, name: &str) -> Address {
        Address { group: self.group.into(), ..Address::core(self.plural, Some(namespace), name) }
    }
}

/// All parents and all children.
#[derive(Debug)]
pub(crate) struct Family {
    parent: Kind,
    child: Kind,
    parents: BTreeMap<Key, Arc<Value>>,
    children: BTreeMap<Key, Arc<Value>>,
    /// The children that name a parent of this kind as their controller.
    named: BTreeMap<Key, BTreeSet<Key>>,
    /// The children without any controller, by namespace.
    orphans: BTreeMap<String, BTreeSet<Key>>,
}

/// What a parent has.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    /// Its children, those included that it is to adopt.
    pub(crate) children: Vec<Arc<Value>>,
    /// What makes it so.
    pub(crate) steps: Vec<Step>,
}

impl Family {
    /// Of two kinds.
    pub(crate) fn new(parent: Kind, child: Kind) -> Self {
        let (parents, children) = Default::default();
        Self { parent, child, parents, children, named: BTreeMap::new(), orphans: BTreeMap::new() }
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.parent, self.child);
    }

    /// The parent of this name.
    pub(crate) fn parent(&self, key: &Key) -> Option<&Arc<Value>> {
        self.parents.get(key)
    }

    /// The child of this name.
    pub(crate) fn child(&self, key: &Key) -> Option<&Arc<Value>> {
        self.children.get(key)
    }

    /// All children whose controller has this name, be it the parent that exists or one before it.
    pub(crate) fn named(&self, key: &Key) -> impl Iterator<Item = &Arc<Value>> {
        self.named.get(key).into_iter().flatten().filter_map(|child| self.children.get(child))
    }

    /// Takes in a change, and says which parents it matters to.
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
            .filter(|(_, parent)| selects(&selector(parent, "/spec/selector"), child))
            .map(|(parent, _)| parent.clone())
            .collect()
    }

    /// The controller that a child names, if it is of the parents' kind.
    fn named_parent(&self, key: &Key, child: &Value) -> Option<Key> {
        let controller = controller_of(child)?;
        let group = controller["apiVersion"].as_str()?.split_once('/').map_or("", |(group, _)| group);
        let ours = controller["kind"] == self.parent.kind && group == self.parent.group;
        let name = controller["name"].as_str().filter(|_| ours)?;
        Some(Key { namespace: key.namespace.clone(), name: name.into() })
    }

    /// What a parent has: what it controls and selects. What it selects and nobody controls is adopted, what it controls and
    /// doesn't select is released; a parent that is being deleted does neither.
    pub(crate) fn claim(&self, key: &Key, parent: &Value) -> Claim {
        let selector = selector(parent, "/spec/selector");
        let uid = &parent["metadata"]["uid"];
        let stays = !is_deleting(parent);
        let mut claim = Claim::default();
        let owned = |child: &&Arc<Value>| controller_of(child).is_some_and(|owner| owner["uid"] == *uid);
        for child in self.named(key).filter(owned) {
            if selects(&selector, child) {
                claim.children.push(child.clone());
            } else if stays {
                let owners = list(child, "/metadata/ownerReferences");
                let others = owners.iter().filter(|owner| owner["uid"] != *uid).cloned().collect();
                claim.steps.push(self.set_owners(child, others));
            }
        }
        let orphans = self.orphans.get(&key.namespace).into_iter().flatten();
        let wanted = |child: &&Arc<Value>| stays && !is_deleting(child) && selects(&selector, child);
        for child in orphans.filter_map(|orphan| self.children.get(orphan)).filter(wanted) {
            let mut owners = list(child, "/metadata/ownerReferences").to_vec();
            owners.push(controller_reference(parent, &self.parent.api_version(), self.parent.kind));
            claim.steps.push(self.set_owners(child, owners));
            claim.children.push(child.clone());
        }
        claim
    }

    fn set_owners(&self, child: &Value, owners: Vec<Value>) -> Step {
        Step::change(&self.child, child, json!({"metadata": {"ownerReferences": owners}}))
    }
}
