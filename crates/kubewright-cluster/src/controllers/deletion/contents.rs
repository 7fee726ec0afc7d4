//! What is left in the namespaces, and of the custom kinds, that are being deleted. Pure.

use std::{collections::BTreeMap, sync::Arc};

use crate::access::Address;

/// What must become empty.
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
    /// Its UID.
    pub(crate) uid: Arc<str>,
    /// The stored resource, `group/plural`, of an object of a custom kind.
    pub(crate) custom_kind: Option<String>,
    /// Where it is served.
    pub(crate) address: Address,
    /// It is being deleted.
    pub(crate) deleting: bool,
    /// What its deletion waits for.
    pub(crate) finalizers: Vec<String>,
}

impl Item {
    /// The scopes that it is in.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = Scope> + use<> {
        let namespace = self.address.namespace.clone().map(Scope::Namespace);
        namespace.into_iter().chain(self.custom_kind.clone().map(Scope::Kind))
    }
}

/// What a scope still has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remains {
    /// The number of objects of each resource, `pods` or `podsets.app.example.com`.
    pub(crate) resources: BTreeMap<String, usize>,
    /// The number of objects that each finalizer holds.
    pub(crate) finalizers: BTreeMap<String, usize>,
    /// Collections with objects that nobody has deleted yet.
    pub(crate) to_delete: Vec<Address>,
}

impl Remains {
    /// Nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }
}

/// All objects there are, by scope and UID.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    scopes: BTreeMap<Scope, BTreeMap<Arc<str>, Arc<Item>>>,
}

impl Contents {
    /// An object was created or changed.
    pub(crate) fn set(&mut self, item: Item) {
        let item = Arc::new(item);
        for scope in item.scopes() {
            self.scopes.entry(scope).or_default().insert(item.uid.clone(), item.clone());
        }
    }

    /// An object is gone.
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

    /// What a scope still has.
    pub(crate) fn remains(&self, scope: &Scope) -> Remains {
        let mut remains = Remains::default();
        for item in self.scopes.get(scope).into_iter().flat_map(BTreeMap::values) {
            *remains.resources.entry(resource_name(&item.address)).or_default() += 1;
            for finalizer in &item.finalizers {
                *remains.finalizers.entry(finalizer.clone()).or_default() += 1;
            }
            let collection = Address { name: String::new(), ..item.address.clone() };
            if !item.deleting && !remains.to_delete.contains(&collection) {
                remains.to_delete.push(collection);
            }
        }
        remains
    }
}

/// `pods`, or `podsets.app.example.com`.
fn resource_name(address: &Address) -> String {
    if address.group.is_empty() { address.plural.to_string() } else { format!("{}.{}", address.plural, address.group) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(uid: &str, plural: &str, namespace: Option<&str>, deleting: bool, finalizers: &[&str]) -> Item {
        Item {
            uid: uid.into(),
            custom_kind: Some(format!("/{plural}")),
            address: Address::core(plural, namespace, uid),
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
        let remains = contents.remains(&shop);
        assert_eq!(remains.resources, BTreeMap::from([("pods".into(), 2), ("secrets".into(), 1)]));
        assert_eq!(remains.finalizers, BTreeMap::from([("example.com/mine".into(), 1)]));
        assert_eq!(remains.to_delete, [Address::core("pods", Some("shop"), "")]);
        let pods = contents.remains(&Scope::Kind("/pods".into()));
        assert_eq!(pods.resources, BTreeMap::from([("pods".into(), 3)]));
        assert_eq!(pods.to_delete.len(), 2, "one collection for each namespace");
        for uid in ["a", "b", "c", "d", "e"] {
            let plural = match uid {
                "c" => "secrets",
                "e" => "nodes",
                _ => "pods",
            };
            let namespace = match uid {
                "d" => Some("other"),
                "e" => None,
                _ => Some("shop"),
            };
            contents.remove(&item(uid, plural, namespace, false, &[]));
        }
        assert!(contents.scopes.is_empty());
    }
}
