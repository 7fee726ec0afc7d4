//! Which changes wake which keys.

use std::{any::TypeId, collections::BTreeSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::{
    cache::{Cache, Cause, Delta, Kind, Reader},
    object::{KindName, Object, ObjectKey},
    predicate::Predicate,
    queue,
};

/// Wakes a key, with a priority and the reason.
pub(crate) type Wake = Arc<dyn Fn(ObjectKey, i32, &Cause<'_>) + Send + Sync>;

/// How a controller uses a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Relation {
    /// It reconciles objects of this kind.
    For,
    /// Its objects' children are of this kind.
    Owns,
    /// Changes of this kind wake it, through a mapper.
    Watches,
    /// It only reads this kind.
    Reads,
}

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
    pub(super) id: TypeId,
    pub(super) wire: Wire,
}

impl Source {
    fn new<T: Object>(relation: Relation, wire: impl FnOnce(&Cache, Wake) + Send + 'static) -> Self {
        Self { kind: KindName::of::<T>(), relation, id: Kind::<T>::id(), wire: Box::new(wire) }
    }

    /// The reconciled kind itself.
    pub(super) fn reconciled<K: Object>(predicate: Predicate<K>) -> Self {
        Self::new::<K>(Relation::For, move |cache, wake| {
            cache.kind::<K>().on_change(move |delta| {
                let Some(change) = delta.change() else { return };
                if predicate.passes(change) {
                    delta.tell(change, |cause| wake(cause.object.clone(), priority(delta), cause));
                }
            });
        })
    }

    /// Children of kind `T` wake their owners of kind `K`, the former ones too if they have changed.
    pub(super) fn owned<K: Object, T: Object>(predicate: Predicate<T>, which: Owners) -> Self {
        Self::new::<T>(Relation::Owns, move |cache, wake| {
            let owners = Reader::new(cache.kind::<K>());
            Self::wake_by(cache, predicate, wake, move |child: &T| owner_keys(child, &owners, which));
        })
    }

    /// Objects of kind `T` wake what the mapper says, for their old and their new state.
    pub(super) fn mapped<K: Object, T: Object>(
        predicate: Predicate<T>,
        mapper: impl Fn(&T, &Reader<K>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        Self::new::<T>(Relation::Watches, move |cache, wake| {
            let reconciled = Reader::new(cache.kind::<K>());
            Self::wake_by(cache, predicate, wake, move |object: &T| mapper(object, &reconciled));
        })
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
        Self::new::<T>(Relation::Reads, move |cache, _| cache.kind::<T>().index(name, values))
    }

    fn wake_by<T: Object>(
        cache: &Cache,
        predicate: Predicate<T>,
        wake: Wake,
        keys: impl Fn(&T) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) {
        cache.kind::<T>().on_change(move |delta| {
            let Some(change) = delta.change() else { return };
            if !predicate.passes(change) {
                return;
            }
            let states = change.old().into_iter().chain([change.object()]);
            // Mostly both states have the same keys.
            let keys = states.flat_map(&keys).collect::<BTreeSet<_>>();
            delta.tell(change, |cause| keys.into_iter().for_each(|key| wake(key, priority(delta), cause)));
        });
    }
}

/// What a first list shows can wait: nothing has happened to it just now.
fn priority<T>(delta: &Delta<T>) -> i32 {
    if delta.initial { queue::LOW_PRIORITY } else { queue::NORMAL_PRIORITY }
}

/// The keys of the child's owners that are `K`s, and not earlier objects of the same name as ones we know.
fn owner_keys<K: Object, T: Object>(child: &T, known: &Reader<K>, which: Owners) -> Vec<ObjectKey> {
    let references = child.meta().owner_references.iter().flatten();
    let counts =
        |owner: &&OwnerReference| (which == Owners::Every || owner.controller == Some(true)) && is_a::<K>(owner);
    let key = |owner: &OwnerReference| {
        let key = match child.meta().namespace.as_deref() {
            Some(namespace) if K::is_namespaced() => ObjectKey::namespaced(namespace, &owner.name),
            _ => ObjectKey::cluster(&owner.name),
        };
        let is_another = known.get(&key).is_some_and(|known| known.meta().uid.as_deref() != Some(&owner.uid));
        (!is_another).then_some(key)
    };
    references.filter(counts).filter_map(key).collect()
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
    use serde_json::json;

    use super::*;

    /// A pod in namespace `a` with this controller.
    fn pod(api_version: &str, kind: &str, uid: &str) -> Pod {
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": "owner", "uid": uid, "controller": true});
        let other = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "uid": "o"});
        serde_json::from_value(json!({
            "metadata": {"namespace": "a", "name": "child", "ownerReferences": [other, owner]},
        }))
        .expect("a pod")
    }

    fn owners<K: Object>(known: Option<K>) -> Reader<K> {
        let kind = Kind::<K>::new(&BTreeSet::new());
        Reader::with_live(&kind, vec![(None, known.into_iter().map(Arc::new).collect())])
    }

    fn key<K: Object>(child: &Pod, known: Option<K>) -> Option<String> {
        owner_keys(child, &owners(known), Owners::Controller).first().map(ToString::to_string)
    }

    #[test]
    fn a_child_wakes_its_controller_of_our_kind() {
        let found = |pod: Pod| key::<ReplicaSet>(&pod, None);
        assert_eq!(found(pod("apps/v1", "ReplicaSet", "u")).as_deref(), Some("a/owner"));
        assert_eq!(found(pod("apps/v1beta9", "ReplicaSet", "u")).as_deref(), Some("a/owner"), "of any version");
        assert_eq!(found(pod("other.io/v1", "ReplicaSet", "u")), None, "a kind of another group");
        assert_eq!(found(pod("apps/v1", "Deployment", "u")), None);
        assert_eq!(found(Pod::default()), None);
        assert_eq!(key::<Namespace>(&pod("v1", "Namespace", "u"), None).as_deref(), Some("owner"), "cluster-scoped");
        assert_eq!(key::<Deployment>(&pod("apps/v1", "Deployment", "u"), None).as_deref(), Some("a/owner"));
    }

    #[test]
    fn a_child_may_wake_every_owner() {
        let child = pod("apps/v1", "ReplicaSet", "u");
        let woken = |which| {
            let keys = owner_keys(&child, &owners::<ReplicaSet>(None), which);
            keys.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(woken(Owners::Controller), ["a/owner"]);
        assert_eq!(woken(Owners::Every), ["a/other", "a/owner"]);
    }

    /// Row 8 of the faults: an owner of the same name, made after the child's own was deleted, is not woken by it.
    #[test]
    fn row_8_a_child_of_an_earlier_owner_wakes_no_one() {
        let known = |uid: &str| {
            serde_json::from_value::<ReplicaSet>(json!({"metadata": {"namespace": "a", "name": "owner", "uid": uid}}))
                .ok()
        };
        let child = pod("apps/v1", "ReplicaSet", "old");
        assert_eq!(key(&child, known("old")).as_deref(), Some("a/owner"));
        assert_eq!(key(&child, known("new")), None);
    }
}
