//! The remaining objects of namespaces and custom kinds that are being deleted. Pure.

use std::{collections::BTreeMap, sync::Arc};

use crate::object_client::ObjectPath;

/// A namespace or a kind that has to become empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// A namespace, by name.
    Namespace(String),
    /// All objects of a stored resource, `group/plural`.
    Kind(String),
}

/// One object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    /// The UID.
    pub(crate) uid: Arc<str>,
    /// The stored resource, `group/plural`, of an object of a custom kind.
    pub(crate) custom_kind: Option<String>,
    /// The path at which it is served.
    pub(crate) address: ObjectPath,
    /// Whether it is being deleted.
    pub(crate) deleting: bool,
    /// The finalizers.
    pub(crate) finalizers: Vec<String>,
}

impl Item {
    /// Returns the scopes that contain the object.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = Scope> + use<> {
        let namespace = self.address.namespace.clone().map(Scope::Namespace);
        namespace.into_iter().chain(self.custom_kind.clone().map(Scope::Kind))
    }
}

/// The remaining objects of a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemainingContent {
    /// The number of objects of each resource, `pods` or `podsets.app.example.com`.
    pub(crate) resources: BTreeMap<String, usize>,
    /// The number of objects with each finalizer.
    pub(crate) finalizers: BTreeMap<String, usize>,
    /// The collections to delete now: those with objects that are not being deleted yet, and of a namespace with pods
    /// only these.
    pub(crate) to_delete: Vec<ObjectPath>,
    /// Whether a namespace has pods, which are removed before everything else.
    pub(crate) waits_for_pods: bool,
}

impl RemainingContent {
    /// Returns whether nothing remains.
    pub(crate) fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }
}

/// All objects, by scope and UID.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    scopes: BTreeMap<Scope, BTreeMap<Arc<str>, Arc<Item>>>,
}

impl Contents {
    /// Adds or replaces an object.
    pub(crate) fn set(&mut self, item: Item) {
        let item = Arc::new(item);
        for scope in item.scopes() {
            self.scopes.entry(scope).or_default().insert(item.uid.clone(), item.clone());
        }
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, item: &Item) {
        for scope in item.scopes() {
            if let Some(items) = self.scopes.get_mut(&scope) {
                items.remove(&item.uid);
                if items.is_empty() {
                    self.scopes.remove(&scope);
                }
            }
        }
    }

    /// Returns the remaining objects of a scope. The pods of a namespace are deleted first, and what they use stays
    /// until they are gone ([KEP-5080]).
    ///
    /// [KEP-5080]: https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5080-ordered-namespace-deletion
    pub(crate) fn remains(&self, scope: &Scope) -> RemainingContent {
        let mut remains = RemainingContent::default();
        for item in self.scopes.get(scope).into_iter().flat_map(BTreeMap::values) {
            *remains.resources.entry(resource_name(&item.address)).or_default() += 1;
            for finalizer in &item.finalizers {
                *remains.finalizers.entry(finalizer.clone()).or_default() += 1;
            }
            remains.waits_for_pods |= matches!(scope, Scope::Namespace(_)) && is_pod(&item.address);
            let collection = ObjectPath { name: String::new(), ..item.address.clone() };
            if !item.deleting && !remains.to_delete.contains(&collection) {
                remains.to_delete.push(collection);
            }
        }
        if remains.waits_for_pods {
            remains.to_delete.retain(is_pod);
        }
        remains
    }
}

fn is_pod(address: &ObjectPath) -> bool {
    address.group.is_empty() && *address.plural == *"pods"
}

/// Returns a name such as `pods` or `podsets.app.example.com`.
fn resource_name(address: &ObjectPath) -> String {
    if address.group.is_empty() { address.plural.to_string() } else { format!("{}.{}", address.plural, address.group) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(uid: &str, plural: &str, namespace: Option<&str>, deleting: bool, finalizers: &[&str]) -> Item {
        Item {
            uid: uid.into(),
            custom_kind: Some(format!("/{plural}")),
            address: ObjectPath::core(plural, namespace, uid),
            deleting,
            finalizers: finalizers.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn remains_are_counted_by_scope() {
        let mut contents = Contents::default();
        let shop = Scope::Namespace("shop".into());
        assert!(contents.remains(&shop).is_empty());
        contents.set(item("a", "pods", Some("shop"), false, &[]));
        contents.set(item("b", "pods", Some("shop"), false, &[]));
        contents.set(item("c", "secrets", Some("shop"), true, &["example.com/mine"]));
        contents.set(item("d", "pods", Some("other"), false, &[]));
        contents.set(item("e", "nodes", None, false, &[]));
        contents.set(item("f", "configmaps", Some("shop"), false, &[]));
        let remains = contents.remains(&shop);
        assert_eq!(
            remains.resources,
            BTreeMap::from([("configmaps".into(), 1), ("pods".into(), 2), ("secrets".into(), 1)])
        );
        assert_eq!(remains.finalizers, BTreeMap::from([("example.com/mine".into(), 1)]));
        assert!(remains.waits_for_pods);
        assert_eq!(remains.to_delete, [ObjectPath::core("pods", Some("shop"), "")], "pods come first");
        let pods = contents.remains(&Scope::Kind("/pods".into()));
        assert_eq!(pods.resources, BTreeMap::from([("pods".into(), 3)]));
        assert_eq!(pods.to_delete.len(), 2, "one collection for each namespace");
        let remove = |contents: &mut Contents, uid, plural, namespace| {
            contents.remove(&item(uid, plural, namespace, false, &[]));
        };
        remove(&mut contents, "a", "pods", Some("shop"));
        remove(&mut contents, "b", "pods", Some("shop"));
        let remains = contents.remains(&shop);
        assert!(!remains.waits_for_pods);
        assert_eq!(remains.to_delete, [ObjectPath::core("configmaps", Some("shop"), "")]);
        remove(&mut contents, "c", "secrets", Some("shop"));
        remove(&mut contents, "d", "pods", Some("other"));
        remove(&mut contents, "e", "nodes", None);
        remove(&mut contents, "f", "configmaps", Some("shop"));
        assert!(contents.scopes.is_empty());
    }
}
