//! Sources: which changes enqueue which keys.

use std::{
    any::TypeId,
    collections::{BTreeMap, BTreeSet},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
pub use kubewright_apimachinery::description::Relation;

use super::wiring::Wiring;
use crate::{
    cache::{Cause, Delta, Reader},
    context::Enqueue,
    object::{AnyObject, KindName, KindScope, ObjectKey},
    predicate::{Change, Predicate},
    queue,
};

/// The owners that a change of a child enqueues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owners {
    Controller,
    Every,
}

/// Adds a kind to the cache, and makes its changes enqueue keys.
type Connect = Box<dyn FnOnce(&mut Wiring, Enqueue) + Send>;

/// A kind that a controller uses.
pub(super) struct Source {
    pub(super) kind: KindName,
    pub(super) relation: Relation,
    pub(super) is_namespaced: bool,
    /// The declared index.
    pub(super) index: Option<Index>,
    pub(super) connect: Connect,
}

/// The name of an index, and its function if that can be identified: a function that captures nothing has a type of its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) name: &'static str,
    function: Option<TypeId>,
}

impl Index {
    pub(crate) fn new<F: 'static>(name: &'static str, _: &F) -> Self {
        Self { name, function: (size_of::<F>() == 0).then(TypeId::of::<F>) }
    }

    /// Returns whether both are certain to be the same index.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self == other && self.function.is_some()
    }
}

/// The kinds are given as kube's dynamic types: `()` if they are known at compile time.
impl Source {
    fn new<T: AnyObject>(
        kind: &T::DynamicType,
        relation: Relation,
        connect: impl FnOnce(&mut Wiring, Enqueue) + Send + 'static,
    ) -> Self {
        let (kind, is_namespaced) = (KindName::named::<T>(kind), KindScope::of::<T>().is_namespaced());
        Self { kind, relation, is_namespaced, index: None, connect: Box::new(connect) }
    }

    /// Returns the source of the reconciled kind itself.
    pub(super) fn reconciled<K: AnyObject>(reconciled: K::DynamicType, predicate: Predicate<K>) -> Self {
        Self::new::<K>(&reconciled.clone(), Relation::For, move |wiring, enqueue| {
            let kind = wiring.kind::<K>(&reconciled);
            wiring.on_change(&kind, move |delta| {
                if passes(&predicate, delta) {
                    enqueue(delta.object.clone(), None, delta);
                }
            });
        })
    }

    /// Returns a source by which children of kind `T` enqueue their owners of kind `K`, including the former ones if
    /// they changed.
    pub(super) fn owned<K: AnyObject, T: AnyObject>(
        reconciled: K::DynamicType,
        owned: T::DynamicType,
        predicate: Predicate<T>,
        which: Owners,
    ) -> Self {
        Self::new::<T>(&owned.clone(), Relation::Owns, move |wiring, enqueue| {
            let owners = Reader::<K>::new(wiring.kind::<K>(&reconciled), None);
            let kind = wiring.kind::<T>(&owned);
            wiring.on_change(&kind, move |delta| {
                if passes(&predicate, delta) {
                    let found = delta.owners(which == Owners::Every).into_iter();
                    let keys = found.filter_map(|owner| owner_key(&reconciled, &owner, delta.object, &owners));
                    keys.collect::<BTreeSet<_>>().into_iter().for_each(|key| enqueue(key, None, delta));
                }
            });
        })
    }

    /// Returns a source by which objects of kind `T` enqueue the keys that the mapper returns for their old and new
    /// states, with the mapper's priority if it has one.
    pub(super) fn mapped<K: AnyObject, T: AnyObject>(
        reconciled: K::DynamicType,
        watched: T::DynamicType,
        predicate: Predicate<T>,
        mapper: impl Fn(&T, &Reader<K>) -> Vec<MappedKey> + Send + Sync + 'static,
    ) -> Self {
        Self::new::<T>(&watched.clone(), Relation::Watches, move |wiring, enqueue| {
            let known = Reader::new(wiring.kind::<K>(&reconciled), None);
            let kind = wiring.kind::<T>(&watched);
            wiring.on_change(&kind, move |delta| {
                let keys = delta.with(|change: Change<'_, T>| map(change, &predicate, &mapper, &known));
                keys.into_iter().flatten().for_each(|(key, priority)| enqueue(key, priority, delta));
            });
        })
    }

    /// Returns a source of kind `T` which enqueues nothing.
    pub(super) fn read<T: AnyObject>(read: T::DynamicType) -> Self {
        Self::new::<T>(&read.clone(), Relation::Reads, move |wiring, _| drop(wiring.kind::<T>(&read)))
    }

    /// Returns the source of an index, which adds kind `T` to the cache.
    pub(super) fn indexed<T: AnyObject>(
        indexed: T::DynamicType,
        name: &'static str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let index = Index::new(name, &values);
        let source = Self::new::<T>(&indexed.clone(), Relation::Reads, move |wiring, _| {
            wiring.index::<T>(&indexed, name, values);
        });
        Self { index: Some(index), ..source }
    }
}

/// Returns the keys for both states of a change that passes.
fn map<K: AnyObject, T: AnyObject>(
    change: Change<'_, T>,
    predicate: &Predicate<T>,
    mapper: &impl Fn(&T, &Reader<K>) -> Vec<MappedKey>,
    reconciled: &Reader<K>,
) -> BTreeMap<ObjectKey, Option<i32>> {
    let mut keys = BTreeMap::new();
    if !predicate.passes(change) {
        return keys;
    }
    let states = change.old().into_iter().chain([change.object()]);
    // Both states mostly map to the same keys.
    for (key, priority) in states.flat_map(|object| mapper(object, reconciled)) {
        keys.entry(key).and_modify(|known| *known = priority.max(*known)).or_insert(priority);
    }
    keys
}

/// A key that a mapper returns, with a priority if it gives one.
pub(super) type MappedKey = (ObjectKey, Option<i32>);

/// Returns the keys of a mapper without priorities.
pub(super) fn mapped_keys(keys: Vec<ObjectKey>) -> Vec<MappedKey> {
    keys.into_iter().map(|key| (key, None)).collect()
}

/// Returns the keys of a mapper with their priorities.
pub(super) fn ranked_keys(keys: Vec<(ObjectKey, i32)>) -> Vec<MappedKey> {
    keys.into_iter().map(|(key, priority)| (key, Some(priority))).collect()
}

fn passes<T: AnyObject>(predicate: &Predicate<T>, delta: &Delta<'_>) -> bool {
    delta.with(|change| predicate.passes(change)).unwrap_or_default()
}

/// Returns the priority of a change: low for first lists and resyncs, which bring no new change.
pub(super) fn priority(delta: &Delta<'_>) -> i32 {
    if delta.cause == Cause::Event { queue::NORMAL_PRIORITY } else { queue::LOW_PRIORITY }
}

/// Returns the key of a child's owner, if the owner is a `K`, and the cached object with that name has the same UID.
fn owner_key<K: AnyObject>(
    reconciled: &K::DynamicType,
    owner: &OwnerReference,
    child: &ObjectKey,
    known: &Reader<K>,
) -> Option<ObjectKey> {
    if !is_a::<K>(reconciled, owner) {
        return None;
    }
    let cluster_scoped = || ObjectKey::cluster(&owner.name);
    let in_namespace = child.namespace().map(|namespace| ObjectKey::namespaced(namespace, &owner.name));
    let key = match KindScope::of::<K>() {
        KindScope::Cluster => cluster_scoped(),
        KindScope::Namespaced => in_namespace.unwrap_or_else(cluster_scoped),
        // Only the cache tells. An owner that it doesn't have yet is enqueued when it arrives.
        KindScope::Unknown => {
            return in_namespace.into_iter().chain([cluster_scoped()]).find(|key| known.has(key, &owner.uid));
        }
    };
    (!known.is_another(&key, &owner.uid)).then_some(key)
}

/// Returns whether the reference is to a `K`, in any version.
fn is_a<K: AnyObject>(reconciled: &K::DynamicType, owner: &OwnerReference) -> bool {
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    owner.kind == K::kind(reconciled) && group == K::group(reconciled)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::{Namespace, Pod},
    };
    use kube::core::{ApiResource, DynamicObject};
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;
    use crate::{cache::Cache, object::Object};

    fn owner(api_version: &str, kind: &str, uid: &str) -> OwnerReference {
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": "owner", "uid": uid, "controller": true});
        serde_json::from_value(owner).expect("an owner")
    }

    /// Returns the key that a child in namespace `a` enqueues, if the object with the owner's name has this UID.
    fn key<K: Object>(owner: &OwnerReference, known: Option<&str>) -> Option<String> {
        let cache = Cache::new(BTreeSet::new(), Default::default());
        let kind = cache.kind::<K>();
        if let Some(uid) = known {
            kind.put(&json!({"metadata": {"namespace": "a", "name": "owner", "uid": uid}}));
        }
        let key = owner_key::<K>(&(), owner, &ObjectKey::namespaced("a", "child"), &Reader::new(kind, None));
        key.map(|key| key.to_string())
    }

    #[test]
    fn a_child_enqueues_its_controller_of_the_reconciled_kind() {
        let found = |api_version, kind| key::<ReplicaSet>(&owner(api_version, kind, "u"), None);
        assert_eq!(found("apps/v1", "ReplicaSet").as_deref(), Some("a/owner"));
        assert_eq!(found("apps/v1beta9", "ReplicaSet").as_deref(), Some("a/owner"), "of any version");
        assert_eq!(found("other.io/v1", "ReplicaSet"), None, "a kind of another group");
        assert_eq!(found("apps/v1", "Deployment"), None);
        assert_eq!(key::<Namespace>(&owner("v1", "Namespace", "u"), None).as_deref(), Some("owner"), "cluster-scoped");
        assert_eq!(key::<Deployment>(&owner("apps/v1", "Deployment", "u"), None).as_deref(), Some("a/owner"));
    }

    #[test]
    fn a_child_can_enqueue_every_owner() {
        let reference = |name: &str, controller: bool| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": controller});
        for (which, expected) in [(Owners::Controller, vec!["a/owner"]), (Owners::Every, vec!["a/other", "a/owner"])] {
            let (cache, enqueued) = (Cache::new(BTreeSet::new(), Default::default()), Arc::new(Mutex::new(Vec::new())));
            let source = Source::owned::<ReplicaSet, Pod>((), (), Predicate::always(), which);
            let enqueuing = enqueued.clone();
            let enqueue: Enqueue = Arc::new(move |key, _, _| enqueuing.lock().push(key.to_string()));
            (source.connect)(&mut Wiring::new(cache.clone(), false), enqueue);
            cache.kind::<Pod>().put(&json!({"metadata": {
                "namespace": "a", "name": "child",
                "ownerReferences": [reference("other", false), reference("owner", true)],
            }}));
            assert_eq!(*enqueued.lock(), expected);
        }
    }

    /// A namespaced child can have a cluster-scoped owner, so only the UID tells the scope of an owner of a dynamic
    /// kind.
    #[test]
    fn a_child_enqueues_an_owner_of_a_kind_known_at_run_time_in_its_scope() {
        let found = |owners: &[Value]| {
            let cache = Cache::new(BTreeSet::new(), Default::default());
            let resource = ApiResource::erase::<ReplicaSet>(&());
            let kind = cache.kind_with::<DynamicObject>(&resource, true);
            owners.iter().for_each(|owner| kind.put(&json!({"metadata": owner})));
            let reader = Reader::<DynamicObject>::new(kind, None);
            let owner = owner("apps/v1", "ReplicaSet", "u");
            let key = owner_key(&resource, &owner, &ObjectKey::namespaced("a", "child"), &reader);
            key.map(|key| key.to_string())
        };
        let here = json!({"namespace": "a", "name": "owner", "uid": "u"});
        let everywhere = json!({"name": "owner", "uid": "u"});
        let another = json!({"namespace": "a", "name": "owner", "uid": "v"});
        assert_eq!(found(&[here]).as_deref(), Some("a/owner"));
        assert_eq!(found(std::slice::from_ref(&everywhere)).as_deref(), Some("owner"));
        assert_eq!(found(&[another, everywhere]).as_deref(), Some("owner"));
        assert_eq!(found(&[]), None, "it is enqueued by its own arrival");
    }

    /// The object with the owner's name was created after the child's owner was deleted.
    #[test]
    fn a_child_of_an_earlier_owner_enqueues_nothing() {
        let owner = owner("apps/v1", "ReplicaSet", "old");
        assert_eq!(key::<ReplicaSet>(&owner, Some("old")).as_deref(), Some("a/owner"));
        assert_eq!(key::<ReplicaSet>(&owner, Some("new")), None);
    }
}
