//! Changes of cached objects, as handlers receive them: decoded only as far as a handler asks.

use std::{
    any::TypeId,
    cell::{OnceCell, RefCell},
    fmt,
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kubewright_packed::{self as packed, Dictionary};

use super::{
    codec::Codec,
    decoded::{Typed, Types, typed},
    store::Row,
};
use crate::{
    object::{AnyObject, KindName, ObjectKey},
    predicate::{Change, ChangeType, OldObject},
    trace::{Difference, ObservedChange, Reason, Trigger},
};

/// The reason for which handlers are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The object has changed.
    Event,
    /// The first list contains the object.
    FirstList,
    /// Nothing has changed: the period of [`CacheOptions::resync`](super::CacheOptions::resync) is over.
    Resync,
}

/// A change of the store. At least one of the states is present.
pub(super) struct StoreChange {
    pub(super) old: Option<Row>,
    pub(super) new: Option<Row>,
    /// The newest state as the kind's types, if it was just decoded.
    pub(super) types: Types,
    pub(super) cause: Cause,
    /// The paths that differ, once a handler has asked.
    pub(super) changed: OnceCell<Vec<String>>,
    /// The owners in the newest state, once a handler has asked.
    owners: OnceCell<Vec<OwnerReference>>,
    /// The states that were decoded for a handler, by whether it is the old one and by type, for the next handlers.
    decoded: RefCell<Vec<(bool, TypeId, Arc<Typed>)>>,
}

impl StoreChange {
    pub(super) fn new(old: Option<Row>, new: Option<Row>, types: Types, cause: Cause) -> Self {
        let (changed, owners, decoded) = (OnceCell::new(), OnceCell::new(), RefCell::default());
        Self { old, new, types, cause, changed, owners, decoded }
    }

    /// Decodes a state as a `T`, if it is one.
    fn decode<T: AnyObject>(&self, codec: &Codec, row: &Row, is_old: bool) -> Option<Arc<T>> {
        let is_it = |(old, id, _): &&(bool, TypeId, Arc<Typed>)| (*old, *id) == (is_old, TypeId::of::<T>());
        let known = self.decoded.borrow().iter().find(is_it).map(|(.., object)| object.clone());
        if let Some(object) = known.and_then(|object| object.downcast().ok()) {
            return Some(object);
        }
        let object = codec.decode::<T>(row)?;
        self.decoded.borrow_mut().push((is_old, TypeId::of::<T>(), object.clone()));
        Some(object)
    }
}

/// Both states of an update, compared when the difference is asked for.
pub(super) struct Changes {
    old: Row,
    new: Row,
    dictionary: Arc<Dictionary>,
}

impl Changes {
    pub(super) fn new(old: Row, new: Row, dictionary: Arc<Dictionary>) -> Self {
        Self { old, new, dictionary }
    }

    /// Returns the paths that differ, such as `spec.replicas` or `status.conditions[0].status`; if there are many, some
    /// of them.
    fn fields(&self) -> Vec<String> {
        packed::changed_fields(self.old.bytes(), self.new.bytes(), &self.dictionary)
    }
}

/// A change of a cached object.
pub(crate) struct Delta<'a> {
    pub(crate) kind: &'a KindName,
    /// The changed object.
    pub(crate) object: &'a ObjectKey,
    pub(crate) change: ChangeType,
    pub(crate) cause: Cause,
    newest: &'a Row,
    store_change: &'a StoreChange,
    codec: &'a Codec,
}

impl fmt::Debug for Delta<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delta").field("kind", self.kind).field("object", self.object).finish_non_exhaustive()
    }
}

impl<'a> Delta<'a> {
    pub(super) fn new(codec: &'a Codec, store_change: &'a StoreChange) -> Option<Self> {
        let (newest, change) = match (&store_change.old, &store_change.new) {
            (None, Some(new)) => (new, ChangeType::Added),
            (Some(_), Some(new)) => (new, ChangeType::Updated),
            (Some(old), None) => (old, ChangeType::Deleted),
            (None, None) => return None,
        };
        Some(Self {
            kind: codec.name(),
            object: &newest.key,
            change,
            cause: store_change.cause,
            newest,
            store_change,
            codec,
        })
    }

    /// Returns the paths that an update has changed, such as `spec.replicas` or `status.conditions[0].status`; if there
    /// are many, some of them. Additions and deletions have none. The two states are compared once for all handlers.
    pub(crate) fn changed_fields(&self) -> Vec<String> {
        let compare = || self.changes().map(|changes| changes.fields()).unwrap_or_default();
        self.store_change.changed.get_or_init(compare).clone()
    }

    /// Returns both states of an update, for [`Delta::changed_fields`] at a later time.
    fn changes(&self) -> Option<Changes> {
        Some(Changes::new(self.before()?.clone(), self.newest.clone(), self.codec.dictionary().clone()))
    }

    /// Calls `then` with the change, decoded as `T`; not if the object can't be decoded.
    pub(crate) fn with<T: AnyObject, R>(&self, then: impl FnOnce(Change<'_, T>) -> R) -> Option<R> {
        let known = typed(&self.store_change.types);
        let object: Arc<T> = known.or_else(|| self.store_change.decode(self.codec, self.newest, false))?;
        let old = OldState {
            codec: self.codec,
            store_change: self.store_change,
            row: self.before(),
            decoded: OnceCell::new(),
        };
        Some(then(Change::lazy(self.change, object.as_ref(), &old)))
    }

    /// Returns the references to the object's controllers, or to all its owners, in both states.
    pub(crate) fn owners(&self, all: bool) -> Vec<OwnerReference> {
        let old = self.before().filter(|old| all || old.controller != self.newest.controller);
        let new = self.store_change.owners.get_or_init(|| self.codec.owners_of(self.newest)).clone();
        let owners = old.into_iter().flat_map(|row| self.codec.owners_of(row)).chain(new);
        owners.filter(|owner| all || owner.controller == Some(true)).collect()
    }

    /// Returns the state before an update.
    fn before(&self) -> Option<&'a Row> {
        self.store_change.old.as_ref().filter(|_| self.change == ChangeType::Updated)
    }
}

impl ObservedChange for Delta<'_> {
    fn trigger(&self) -> Trigger {
        let reason = match (self.cause, self.change) {
            (Cause::FirstList, _) => Reason::InitialList,
            (Cause::Resync, _) => Reason::Resync,
            (Cause::Event, ChangeType::Added) => Reason::Added,
            (Cause::Event, ChangeType::Updated) => Reason::Updated,
            (Cause::Event, ChangeType::Deleted) => Reason::Deleted,
        };
        Trigger::change(reason, self.kind.kind.clone(), self.object.to_string())
    }

    fn fields(&self) -> Vec<String> {
        self.changed_fields()
    }

    fn difference(&self) -> Option<Difference> {
        let changes = self.changes()?;
        Some(Arc::new(move || changes.fields()))
    }
}

/// The state before an update, decoded when it is first asked for.
struct OldState<'a, T> {
    codec: &'a Codec,
    store_change: &'a StoreChange,
    row: Option<&'a Row>,
    decoded: OnceCell<Option<Arc<T>>>,
}

impl<T: AnyObject> OldObject<T> for OldState<'_, T> {
    fn get(&self) -> Option<&T> {
        self.decoded.get_or_init(|| self.store_change.decode(self.codec, self.row?, true)).as_deref()
    }
}
