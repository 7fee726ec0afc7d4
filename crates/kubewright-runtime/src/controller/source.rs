//! Sources: which changes enqueue which keys.

use std::{
    any::TypeId,
    collections::{BTreeMap, BTreeSet},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject};
pub use kubewright_apimachinery::description::Relation;

use crate::{
    cache::{Cache, Cause, Delta, Kind, Reader},
    context::Enqueue,
    object::{AnyObject, KindName, Object, ObjectKey},
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
type Connect = Box<dyn FnOnce(&Cache, Enqueue) + Send>;

/// A kind that a controller uses.
pub(super) struct Source {
    pub(super) kind: KindName,
    pub(super) relation: Relation,
    pub(super) is_namespaced: bool,
    /// The type as which the kind is read.
    pub(super) of: TypeId,
    /// The declared index.
    pub(super) index: Option<Index>,
    pub(super) connect: Connect,
}

/// The name of an index, and its function if that can be identified: a function that captures nothing has a type of its own.
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

impl Source {
    fn new<T: Object>(relation: Relation, connect: impl FnOnce(&Cache, Enqueue) + Send + 'static) -> Self {
        let (kind, is_namespaced, of) = (KindName::of::<T>(), T::is_namespaced(), TypeId::of::<T>());
        Self { kind, relation, is_namespaced, of, index: None, connect: Box::new(connect) }
    }

    /// Returns the source of the reconciled kind itself.
    pub(super) fn reconciled<K: Object>(predicate: Predicate<K>) -> Self {
        Self::new::<K>(Relation::For, move |cache, enqueue| {
            cache.kind::<K>().on_change(move |delta| {
                if passes(&predicate, delta) {
                    enqueue(delta.object.clone(), None, delta);
                }
            });
        })
    }

    /// Returns a source by which children of kind `T` enqueue their owners of kind `K`, including the former ones if they changed.
    pub(super) fn owned<K: Object, T: Object>(predicate: Predicate<T>, which: Owners) -> Self {
        Self::new::<T>(Relation::Owns, move |cache, enqueue| {
            let passes = move |delta: &Delta<'_>| passes(&predicate, delta);
            enqueue_owners::<K>(&cache.kind::<T>(), cache, enqueue, passes, which);
        })
    }

    /// [`Source::owned`] for a kind that is known only at run time.
    pub(super) fn owned_dynamic<K: Object>(
        resource: ApiResource,
        predicate: Predicate<DynamicObject>,
        which: Owners,
    ) -> Self {
        Self::dynamic(resource.clone(), Relation::Owns, move |cache, enqueue| {
            let kind = cache.kind_with::<DynamicObject>(&resource, true);
            enqueue_owners::<K>(&kind, cache, enqueue, move |delta| passes(&predicate, delta), which);
        })
    }

    /// Returns a source by which objects of kind `T` enqueue the keys that the mapper returns for their old and new states, with
    /// the mapper's priority if it has one.
    pub(super) fn mapped<K: Object, T: Object>(
        predicate: Predicate<T>,
        mapper: impl Fn(&T, &Reader<K>) -> Vec<MappedKey> + Send + Sync + 'static,
    ) -> Self {
        Self::new::<T>(Relation::Watches, move |cache, enqueue| {
            enqueue_by_mapper(
                &cache.kind::<T>(),
                cache,
                enqueue,
                move |change: Change<'_, T>| predicate.passes(change),
                mapper,
            );
        })
    }

    /// [`Source::mapped`] for a kind that is known only at run time.
    pub(super) fn mapped_dynamic<K: Object>(
        resource: ApiResource,
        predicate: Predicate<DynamicObject>,
        mapper: impl Fn(&DynamicObject, &Reader<K>) -> Vec<MappedKey> + Send + Sync + 'static,
    ) -> Self {
        Self::dynamic(resource.clone(), Relation::Watches, move |cache, enqueue| {
            let kind = cache.kind_with::<DynamicObject>(&resource, true);
            enqueue_by_mapper(&kind, cache, enqueue, move |change| predicate.passes(change), mapper);
        })
    }

    /// Returns a source of a kind that is known only at run time, which enqueues nothing.
    pub(super) fn read_dynamic(resource: ApiResource) -> Self {
        Self::dynamic(resource.clone(), Relation::Reads, move |cache, _| {
            cache.kind_with::<DynamicObject>(&resource, true);
        })
    }

    fn dynamic(
        resource: ApiResource,
        relation: Relation,
        connect: impl FnOnce(&Cache, Enqueue) + Send + 'static,
    ) -> Self {
        let (kind, of) = (KindName::named::<DynamicObject>(&resource), TypeId::of::<DynamicObject>());
        // The scope is unknown: namespaced by default.
        Self { kind, relation, is_namespaced: true, of, index: None, connect: Box::new(connect) }
    }

    /// Returns a source of kind `T` which enqueues nothing.
    pub(super) fn read<T: Object>() -> Self {
        Self::new::<T>(Relation::Reads, |cache, _| drop(cache.kind::<T>()))
    }

    /// Returns the source of an index, which adds kind `T` to the cache.
    pub(super) fn indexed<T: Object>(
        name: &'static str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let index = Some(Index::new(name, &values));
        let source = Self::new::<T>(Relation::Reads, move |cache, _| cache.kind::<T>().index(name, values));
        Self { index, ..source }
    }

    /// [`Source::indexed`] for a kind that is known only at run time.
    pub(super) fn indexed_dynamic(
        resource: ApiResource,
        name: &'static str,
        values: impl Fn(&DynamicObject) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let index = Some(Index::new(name, &values));
        let source = Self::dynamic(resource.clone(), Relation::Reads, move |cache, _| {
            cache.kind_with::<DynamicObject>(&resource, true).index(name, values);
        });
        Self { index, ..source }
    }
}

fn enqueue_owners<K: Object>(
    kind: &Kind,
    cache: &Cache,
    enqueue: Enqueue,
    passes: impl Fn(&Delta<'_>) -> bool + Send + Sync + 'static,
    which: Owners,
) {
    let owners = Reader::<K>::new(cache.kind::<K>(), None);
    kind.on_change(move |delta| {
        if passes(delta) {
            let found = delta.owners(which == Owners::Every).into_iter();
            let keys = found.filter_map(|owner| owner_key(&owner, delta.object, &owners));
            keys.collect::<BTreeSet<_>>().into_iter().for_each(|key| enqueue(key, None, delta));
        }
    });
}

fn enqueue_by_mapper<K: Object, T: AnyObject>(
    kind: &Kind,
    cache: &Cache,
    enqueue: Enqueue,
    passes: impl Fn(Change<'_, T>) -> bool + Send + Sync + 'static,
    mapper: impl Fn(&T, &Reader<K>) -> Vec<MappedKey> + Send + Sync + 'static,
) {
    let reconciled = Reader::new(cache.kind::<K>(), None);
    kind.on_change(move |delta| {
        let keys = delta.with(|change: Change<'_, T>| {
            let mut keys = BTreeMap::new();
            if !passes(change) {
                return keys;
            }
            let states = change.old().into_iter().chain([change.object()]);
            // Both states mostly map to the same keys.
            for (key, priority) in states.flat_map(|object| mapper(object, &reconciled)) {
                keys.entry(key).and_modify(|known| *known = priority.max(*known)).or_insert(priority);
            }
            keys
        });
        keys.into_iter().flatten().for_each(|(key, priority)| enqueue(key, priority, delta));
    });
}

/// A key that a mapper returns, with a priority if it gives one.
pub(super) type MappedKey = (ObjectKey, Option<i32>);

/// Returns the keys of a mapper without priorities.
pub(super) fn mapped_keys(keys: Vec<ObjectKey>) -> Vec<MappedKey> {
    keys.into_iter().map(|key| (key, None)).collect()
}

fn passes<T: AnyObject>(predicate: &Predicate<T>, delta: &Delta<'_>) -> bool {
    delta.with(|change| predicate.passes(change)).unwrap_or_default()
}

/// Returns the priority of a change: low for first lists and resyncs, which bring no new change.
pub(super) fn priority(delta: &Delta<'_>) -> i32 {
    if delta.cause == Cause::Event { queue::NORMAL_PRIORITY } else { queue::LOW_PRIORITY }
}

/// Returns the key of a child's owner, if the owner is a `K`, and the cached object with that name has the same UID.
fn owner_key<K: Object>(owner: &OwnerReference, child: &ObjectKey, known: &Reader<K>) -> Option<ObjectKey> {
    let key = match child.namespace() {
        Some(namespace) if K::is_namespaced() => ObjectKey::namespaced(namespace, &owner.name),
        _ => ObjectKey::cluster(&owner.name),
    };
    (is_a::<K>(owner) && !known.is_another(&key, &owner.uid)).then_some(key)
}

/// Returns whether the reference is to a `K`, in any version.
fn is_a<K: Object>(owner: &OwnerReference) -> bool {
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    owner.kind == K::kind(&()) && group == K::group(&())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::{Namespace, Pod},
    };
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

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
        let key = owner_key::<K>(owner, &ObjectKey::namespaced("a", "child"), &Reader::new(kind, None));
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
            let source = Source::owned::<ReplicaSet, Pod>(Predicate::always(), which);
            let enqueuing = enqueued.clone();
            (source.connect)(&cache, Arc::new(move |key, _, _| enqueuing.lock().push(key.to_string())));
            cache.kind::<Pod>().put(&json!({"metadata": {
                "namespace": "a", "name": "child",
                "ownerReferences": [reference("other", false), reference("owner", true)],
            }}));
            assert_eq!(*enqueued.lock(), expected);
        }
    }

    /// The object with the owner's name was created after the child's owner was deleted.
    #[test]
    fn a_child_of_an_earlier_owner_enqueues_nothing() {
        let owner = owner("apps/v1", "ReplicaSet", "old");
        assert_eq!(key::<ReplicaSet>(&owner, Some("old")).as_deref(), Some("a/owner"));
        assert_eq!(key::<ReplicaSet>(&owner, Some("new")), None);
    }
}
