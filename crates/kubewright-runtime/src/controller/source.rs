//! Which changes wake which keys.

use std::{
    any::TypeId,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject};
pub use kubewright_apimachinery::description::Relation;

use crate::{
    cache::{Cache, Cause, Delta, Kind, Reader},
    client::AnyObject,
    object::{KindName, Object, ObjectKey},
    predicate::{Change, Predicate},
    queue,
};

/// Wakes a key for this reason, with the priority that a mapper has given, if one has.
pub(crate) type Wake = Arc<dyn Fn(ObjectKey, Option<i32>, &Delta<'_>) + Send + Sync>;

/// Which owners a child wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owners {
    Controller,
    Every,
}

/// Makes the cache keep a kind, and its changes wake keys.
type Wire = Box<dyn FnOnce(&Cache, Wake) + Send>;

/// A kind that a controller uses.
pub(super) struct Source {
    pub(super) kind: KindName,
    pub(super) relation: Relation,
    pub(super) is_namespaced: bool,
    /// The type that the kind is read as.
    pub(super) of: TypeId,
    /// The index that it declares.
    pub(super) index: Option<Index>,
    pub(super) wire: Wire,
}

/// An index by its name, and the function that makes it if that is known: one that captures nothing has a type of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) name: &'static str,
    function: Option<TypeId>,
}

impl Index {
    fn new<F: 'static>(name: &'static str, _: &F) -> Self {
        Self { name, function: (size_of::<F>() == 0).then(TypeId::of::<F>) }
    }

    /// Whether they are one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self == other && self.function.is_some()
    }
}

impl Source {
    fn new<T: Object>(relation: Relation, wire: impl FnOnce(&Cache, Wake) + Send + 'static) -> Self {
        let (kind, is_namespaced, of) = (KindName::of::<T>(), T::is_namespaced(), TypeId::of::<T>());
        Self { kind, relation, is_namespaced, of, index: None, wire: Box::new(wire) }
    }

    /// The reconciled kind itself.
    pub(super) fn reconciled<K: Object>(predicate: Predicate<K>) -> Self {
        Self::new::<K>(Relation::For, move |cache, wake| {
            cache.kind::<K>().on_change(move |delta| {
                if passes(&predicate, delta) {
                    wake(delta.object.clone(), None, delta);
                }
            });
        })
    }

    /// Children of kind `T` wake their owners of kind `K`, the former ones too if they have changed.
    pub(super) fn owned<K: Object, T: Object>(predicate: Predicate<T>, which: Owners) -> Self {
        Self::new::<T>(Relation::Owns, move |cache, wake| {
            let passes = move |delta: &Delta<'_>| passes(&predicate, delta);
            wake_owners::<K>(&cache.kind::<T>(), cache, wake, passes, which);
        })
    }

    /// [`Source::owned`] of a kind that is known only at run time.
    pub(super) fn owned_dynamic<K: Object>(
        resource: ApiResource,
        predicate: Predicate<DynamicObject>,
        which: Owners,
    ) -> Self {
        Self::dynamic(resource.clone(), Relation::Owns, move |cache, wake| {
            let kind = cache.kind_with::<DynamicObject>(&resource, true);
            wake_owners::<K>(&kind, cache, wake, move |delta| passes(&predicate, delta), which);
        })
    }

    /// Objects of kind `T` wake what the mapper says, for their old and their new state, and with which priority if it says
    /// so.
    pub(super) fn mapped<K: Object, T: Object>(
        predicate: Predicate<T>,
        mapper: impl Fn(&T, &Reader<K>) -> Vec<Wanted> + Send + Sync + 'static,
    ) -> Self {
        Self::new::<T>(Relation::Watches, move |cache, wake| {
            wake_by_mapper(
                &cache.kind::<T>(),
                cache,
                wake,
                move |change: Change<'_, T>| predicate.passes(change),
                mapper,
            );
        })
    }

    /// [`Source::mapped`] of a kind that is known only at run time.
    pub(super) fn mapped_dynamic<K: Object>(
        resource: ApiResource,
        predicate: Predicate<DynamicObject>,
        mapper: impl Fn(&DynamicObject, &Reader<K>) -> Vec<Wanted> + Send + Sync + 'static,
    ) -> Self {
        Self::dynamic(resource.clone(), Relation::Watches, move |cache, wake| {
            let kind = cache.kind_with::<DynamicObject>(&resource, true);
            wake_by_mapper(&kind, cache, wake, move |change| predicate.passes(change), mapper);
        })
    }

    /// Objects of a kind that is known only at run time wake nothing.
    pub(super) fn read_dynamic(resource: ApiResource) -> Self {
        Self::dynamic(resource.clone(), Relation::Reads, move |cache, _| {
            cache.kind_with::<DynamicObject>(&resource, true);
        })
    }

    fn dynamic(resource: ApiResource, relation: Relation, wire: impl FnOnce(&Cache, Wake) + Send + 'static) -> Self {
        let (kind, of) = (KindName::named::<DynamicObject>(&resource), TypeId::of::<DynamicObject>());
        // Nothing says that it isn't.
        Self { kind, relation, is_namespaced: true, of, index: None, wire: Box::new(wire) }
    }

    /// Objects of kind `T` wake nothing.
    pub(super) fn read<T: Object>() -> Self {
        Self::new::<T>(Relation::Reads, |cache, _| drop(cache.kind::<T>()))
    }

    /// An index of kind `T`, which is thereby cached.
    pub(super) fn indexed<T: Object>(
        name: &'static str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let index = Some(Index::new(name, &values));
        let source = Self::new::<T>(Relation::Reads, move |cache, _| cache.kind::<T>().index(name, values));
        Self { index, ..source }
    }

    /// [`Source::indexed`] of a kind that is known only at run time.
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

fn wake_owners<K: Object>(
    kind: &Kind,
    cache: &Cache,
    wake: Wake,
    passes: impl Fn(&Delta<'_>) -> bool + Send + Sync + 'static,
    which: Owners,
) {
    let owners = Reader::<K>::new(cache.kind::<K>(), None);
    kind.on_change(move |delta| {
        if passes(delta) {
            let woken = delta.owners(which == Owners::Every).into_iter();
            let woken = woken.filter_map(|owner| owner_key(&owner, delta.object, &owners));
            woken.collect::<BTreeSet<_>>().into_iter().for_each(|key| wake(key, None, delta));
        }
    });
}

fn wake_by_mapper<K: Object, T: AnyObject>(
    kind: &Kind,
    cache: &Cache,
    wake: Wake,
    passes: impl Fn(Change<'_, T>) -> bool + Send + Sync + 'static,
    mapper: impl Fn(&T, &Reader<K>) -> Vec<Wanted> + Send + Sync + 'static,
) {
    let reconciled = Reader::new(cache.kind::<K>(), None);
    kind.on_change(move |delta| {
        let keys = delta.with(|change: Change<'_, T>| {
            let mut keys = BTreeMap::new();
            if !passes(change) {
                return keys;
            }
            let states = change.old().into_iter().chain([change.object()]);
            // Mostly both states have the same keys.
            for (key, priority) in states.flat_map(|object| mapper(object, &reconciled)) {
                keys.entry(key).and_modify(|known| *known = priority.max(*known)).or_insert(priority);
            }
            keys
        });
        keys.into_iter().flatten().for_each(|(key, priority)| wake(key, priority, delta));
    });
}

/// A key that a mapper wants, and with which priority, if it says so.
pub(super) type Wanted = (ObjectKey, Option<i32>);

/// The keys of a mapper that says nothing of priorities.
pub(super) fn wanted(keys: Vec<ObjectKey>) -> Vec<Wanted> {
    keys.into_iter().map(|key| (key, None)).collect()
}

fn passes<T: AnyObject>(predicate: &Predicate<T>, delta: &Delta<'_>) -> bool {
    delta.with(|change| predicate.passes(change)).unwrap_or_default()
}

/// What a first list or a resync tells can wait: nothing has happened to it just now.
pub(super) fn priority(delta: &Delta<'_>) -> i32 {
    if delta.cause == Cause::Event { queue::NORMAL_PRIORITY } else { queue::LOW_PRIORITY }
}

/// The key of a child's owner if that is a `K`, and not an earlier object of the same name as one we know.
fn owner_key<K: Object>(owner: &OwnerReference, child: &ObjectKey, known: &Reader<K>) -> Option<ObjectKey> {
    let key = match child.namespace() {
        Some(namespace) if K::is_namespaced() => ObjectKey::namespaced(namespace, &owner.name),
        _ => ObjectKey::cluster(&owner.name),
    };
    (is_a::<K>(owner) && !known.is_another(&key, &owner.uid)).then_some(key)
}

/// Whether the reference is to a `K`, of any version.
fn is_a<K: Object>(owner: &OwnerReference) -> bool {
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    owner.kind == K::kind(&()) && group == K::group(&())
}

#[cfg(test)]
mod tests {
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

    /// Whom a child in namespace `a` with this controller wakes, if this is the UID of the object of its name.
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
    fn a_child_wakes_its_controller_of_our_kind() {
        let found = |api_version, kind| key::<ReplicaSet>(&owner(api_version, kind, "u"), None);
        assert_eq!(found("apps/v1", "ReplicaSet").as_deref(), Some("a/owner"));
        assert_eq!(found("apps/v1beta9", "ReplicaSet").as_deref(), Some("a/owner"), "of any version");
        assert_eq!(found("other.io/v1", "ReplicaSet"), None, "a kind of another group");
        assert_eq!(found("apps/v1", "Deployment"), None);
        assert_eq!(key::<Namespace>(&owner("v1", "Namespace", "u"), None).as_deref(), Some("owner"), "cluster-scoped");
        assert_eq!(key::<Deployment>(&owner("apps/v1", "Deployment", "u"), None).as_deref(), Some("a/owner"));
    }

    #[test]
    fn a_child_may_wake_every_owner() {
        let reference = |name: &str, controller: bool| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": controller});
        for (which, expected) in [(Owners::Controller, vec!["a/owner"]), (Owners::Every, vec!["a/other", "a/owner"])] {
            let (cache, woken) = (Cache::new(BTreeSet::new(), Default::default()), Arc::new(Mutex::new(Vec::new())));
            let source = Source::owned::<ReplicaSet, Pod>(Predicate::always(), which);
            let waking = woken.clone();
            (source.wire)(&cache, Arc::new(move |key, _, _| waking.lock().push(key.to_string())));
            cache.kind::<Pod>().put(&json!({"metadata": {
                "namespace": "a", "name": "child",
                "ownerReferences": [reference("other", false), reference("owner", true)],
            }}));
            assert_eq!(*woken.lock(), expected);
        }
    }

    /// Row 8 of the faults: an owner of the same name, made after the child's own was deleted, is not woken by it.
    #[test]
    fn row_8_a_child_of_an_earlier_owner_wakes_no_one() {
        let owner = owner("apps/v1", "ReplicaSet", "old");
        assert_eq!(key::<ReplicaSet>(&owner, Some("old")).as_deref(), Some("a/owner"));
        assert_eq!(key::<ReplicaSet>(&owner, Some("new")), None);
    }
}
