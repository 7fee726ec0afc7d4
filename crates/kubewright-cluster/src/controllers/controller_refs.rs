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
    objects::Objects,
    reconcile::{Key, Step},
    value::{controller_of, controller_reference, is_deleting, list, selector, selects},
};

/// All parents, and which children name them.
#[derive(Debug)]
pub(crate) struct ControllerRefs {
    parent: Kind,
    child: Kind,
    parents: BTreeMap<Key, Arc<Value>>,
    /// All objects of the children's kind.
    children: Objects,
    /// Whether another keeps `children` up to date.
    shared: bool,
    /// The finalizer that children get when they are adopted, and lose when they are released.
    finalizer: Option<&'static str>,
    /// The children whose controller reference names a parent of this kind, by the parent.
    named: BTreeMap<Key, BTreeSet<Key>>,
    /// The parents that these children name.
    named_by: BTreeMap<Key, Key>,
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
        let (parents, named, named_by) = Default::default();
        let children = Objects::default();
        Self { parent, child, parents, children, shared: false, finalizer: None, named, named_by }
    }

    /// Creates an empty set for parents of `pods`, which include each pod before its change is taken.
    pub(crate) fn of_pods(parent: Kind, pods: Objects) -> Self {
        Self { children: pods, shared: true, ..Self::new(parent, Kind::POD) }
    }

    /// Sets the finalizer that children get when they are adopted, and lose when they are released.
    pub(crate) fn finalizer(self, finalizer: &'static str) -> Self {
        Self { finalizer: Some(finalizer), ..self }
    }

    /// Clears the state.
    pub(crate) fn reset(&mut self) {
        self.parents.clear();
        self.named.clear();
        self.named_by.clear();
        if !self.shared {
            self.children.clear();
        }
    }

    /// Returns the parent with this name.
    pub(crate) fn parent(&self, key: &Key) -> Option<&Arc<Value>> {
        self.parents.get(key)
    }

    /// Returns the names of all parents.
    pub(crate) fn parents(&self) -> impl Iterator<Item = &Key> {
        self.parents.keys()
    }

    /// Returns whether there is a child with this name, whoever controls it.
    pub(crate) fn has_child(&self, key: &Key) -> bool {
        self.children.contains(key)
    }

    /// Returns all children whose controller has this name, whether it is the current object or a previous one.
    pub(crate) fn named(&self, key: &Key) -> impl Iterator<Item = Arc<Value>> {
        self.named.get(key).into_iter().flatten().filter_map(|child| self.children.get(child))
    }

    /// Processes a change, and returns the affected parents.
    pub(crate) fn take(&mut self, change: &Change) -> Vec<Key> {
        let gone = change.kind == ChangeKind::Deleted;
        if self.parent.is_of(change) {
            let Some(key) = Key::of(change.object()) else { return Vec::new() };
            if gone {
                self.parents.remove(&key);
            } else {
                self.parents.insert(key.clone(), change.object().clone());
            }
            return vec![key];
        }
        if !self.child.is_of(change) {
            return Vec::new();
        }
        if !self.shared {
            self.children.take(change);
        }
        // Most objects of the kind are none of these parents' business.
        let controller = controller_of(change.object());
        if self.named_by.is_empty() && (controller.is_some() || self.parents.is_empty()) && !self.is_ours(controller) {
            return Vec::new();
        }
        let Some(key) = Key::of(change.object()) else { return Vec::new() };
        let mut concerned: BTreeSet<_> = self.unlink(&key).into_iter().collect();
        if !gone {
            concerned.extend(self.link(&key, change.object()));
        }
        concerned.into_iter().collect()
    }

    fn unlink(&mut self, key: &Key) -> Option<Key> {
        let parent = self.named_by.remove(key)?;
        if let Some(children) = self.named.get_mut(&parent) {
            children.remove(key);
            if children.is_empty() {
                self.named.remove(&parent);
            }
        }
        Some(parent)
    }

    fn link(&mut self, key: &Key, child: &Value) -> Vec<Key> {
        if let Some(parent) = self.named_parent(key, child) {
            self.named.entry(parent.clone()).or_default().insert(key.clone());
            self.named_by.insert(key.clone(), parent.clone());
            return vec![parent];
        }
        if controller_of(child).is_some() {
            return Vec::new();
        }
        self.selected_by(&key.namespace, child).cloned().collect()
    }

    /// Returns the parents whose selectors match a child.
    pub(crate) fn selected_by<'a>(&'a self, namespace: &'a str, child: &'a Value) -> impl Iterator<Item = &'a Key> {
        let parents = self.parents.range(Key::first_of(namespace)..);
        let parents = parents.take_while(move |(parent, _)| parent.namespace == namespace);
        parents.filter(|(_, parent)| selects(&self.selector(parent), child)).map(|(parent, _)| parent)
    }

    /// Returns a child.
    pub(crate) fn child(&self, key: &Key) -> Option<Arc<Value>> {
        self.children.get(key)
    }

    /// Returns whether a controller reference refers to an object of the parents' kind.
    fn is_ours(&self, controller: Option<&Value>) -> bool {
        controller.is_some_and(|controller| {
            let version = controller["apiVersion"].as_str().unwrap_or_default();
            let group = version.split_once('/').map_or("", |(group, _)| group);
            controller["kind"] == self.parent.kind && group == self.parent.group
        })
    }

    /// Returns the controller that a child refers to, if it is of the parents' kind.
    fn named_parent(&self, key: &Key, child: &Value) -> Option<Key> {
        let controller = controller_of(child).filter(|controller| self.is_ours(Some(controller)))?;
        let name = controller["name"].as_str()?;
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
        let owned = |child: &Arc<Value>| controller_of(child).is_some_and(|owner| owner["uid"] == *uid);
        for child in self.named(key).filter(owned) {
            if selects(&child) {
                claim.children.push(child);
            } else if stays {
                let owners = list(&child, "/metadata/ownerReferences");
                let others: Vec<_> = owners.iter().filter(|owner| owner["uid"] != *uid).cloned().collect();
                let mut patch = json!({"metadata": {"ownerReferences": others}});
                if let Some(finalizer) = self.finalizer {
                    let others = list(&child, "/metadata/finalizers").iter().filter(|name| *name != finalizer);
                    patch["metadata"]["finalizers"] = others.cloned().collect();
                }
                claim.steps.push(Step::change(&self.child, &child, patch));
            }
        }
        let orphans = if stays { self.children.orphans(&key.namespace, &selector) } else { Vec::new() };
        for child in orphans.into_iter().filter(|child| !is_deleting(child) && belongs(child)) {
            let mut owners = list(&child, "/metadata/ownerReferences").to_vec();
            owners.push(controller_reference(parent, &self.parent.api_version(), self.parent.kind));
            let mut patch = json!({"metadata": {"ownerReferences": owners}});
            let finalizers = list(&child, "/metadata/finalizers");
            if let Some(finalizer) = self.finalizer.filter(|own| finalizers.iter().all(|name| name != own)) {
                let own = Value::from(finalizer);
                patch["metadata"]["finalizers"] = finalizers.iter().chain([&own]).cloned().collect();
            }
            claim.steps.push(Step::change(&self.child, &child, patch));
            claim.children.push(child);
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
}
