//! Which changes wake which keys.

use std::{any::TypeId, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::{
    cache::{Cache, Delta, Kind, Reader},
    object::{KindName, Object, ObjectKey},
    owner::controller_of,
    predicate::Predicate,
    queue,
};

/// Wakes a key, with a priority.
pub(crate) type Wake = Arc<dyn Fn(ObjectKey, i32) + Send + Sync>;

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
                    wake(ObjectKey::of(change.object()), priority(delta));
                }
            });
        })
    }

    /// Children of kind `T` wake their controller of kind `K`, the former one too if it has changed.
    pub(super) fn owned<K: Object, T: Object>(predicate: Predicate<T>) -> Self {
        Self::new::<T>(Relation::Owns, move |cache, wake| {
            let owners = Reader::new(cache.kind::<K>());
            Self::wake_by(cache, predicate, wake, move |child: &T| owner_key(child, &owners).into_iter().collect());
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
            states.flat_map(&keys).for_each(|key| wake(key, priority(delta)));
        });
    }
}

/// What a first list shows can wait: nothing has happened to it just now.
fn priority<T>(delta: &Delta<T>) -> i32 {
    if delta.initial { queue::LOW_PRIORITY } else { queue::NORMAL_PRIORITY }
}

/// The key of the child's controller if that is a `K`, and not an earlier object of the same name as one we know.
fn owner_key<K: Object, T: Object>(child: &T, owners: &Reader<K>) -> Option<ObjectKey> {
    let owner = controller_of(child).filter(|owner| is_a::<K>(owner))?;
    let key = match child.meta().namespace.as_deref() {
        Some(namespace) if K::is_namespaced() => ObjectKey::namespaced(namespace, &owner.name),
        _ => ObjectKey::cluster(&owner.name),
    };
    let is_another = owners.get(&key).is_some_and(|known| known.meta().uid.as_deref() != Some(&owner.uid));
    (!is_another).then_some(key)
}

/// Whether the reference is to a `K`, of any version.
fn is_a<K: Object>(owner: &OwnerReference) -> bool {
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    owner.kind == K::kind(&()) && group == K::group(&())
}
