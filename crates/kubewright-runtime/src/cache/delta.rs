//! A change of an object, as those who wait for it get it: unpacked only as far as they ask.

use std::{
    any::TypeId,
    cell::{OnceCell, RefCell},
    fmt,
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kubewright_packed::{self as packed, Dictionary};

use super::{
    fresh::{Typed, Types, typed},
    kind::Kind,
    store::Row,
};
use crate::{
    client::AnyObject,
    object::{KindName, ObjectKey},
    predicate::{Before, Change, ChangeType},
    trace::{Difference, ObservedChange, Reason, Trigger},
};

/// Why a change is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It has happened.
    Event,
    /// Nothing has happened: we only learn what is there.
    FirstList,
    /// Nothing has happened: all is told again after the time of [`CacheOptions::resync`](super::CacheOptions::resync).
    Resync,
}

/// What a feed has changed in the store. One of the states is there.
pub(super) struct Step {
    pub(super) old: Option<Row>,
    pub(super) new: Option<Row>,
    /// The newest of them, as the types read it, if it was just read.
    pub(super) types: Types,
    pub(super) cause: Cause,
    /// What differs, once someone has asked.
    pub(super) changed: OnceCell<Vec<String>>,
    /// The newest one's owners, once someone has asked.
    owners: OnceCell<Vec<OwnerReference>>,
    /// The states that were unpacked because someone asked, by whether it is the old one and as which type: others ask, too.
    unpacked: RefCell<Vec<(bool, TypeId, Arc<Typed>)>>,
}

impl Step {
    pub(super) fn new(old: Option<Row>, new: Option<Row>, types: Types, cause: Cause) -> Self {
        let (changed, owners, unpacked) = (OnceCell::new(), OnceCell::new(), RefCell::default());
        Self { old, new, types, cause, changed, owners, unpacked }
    }

    /// A state as a `T`, unless it is none.
    fn unpack<T: AnyObject>(&self, cache: &Kind, row: &Row, is_old: bool) -> Option<Arc<T>> {
        let is_it = |(old, id, _): &&(bool, TypeId, Arc<Typed>)| (*old, *id) == (is_old, TypeId::of::<T>());
        let known = self.unpacked.borrow().iter().find(is_it).map(|(.., object)| object.clone());
        if let Some(object) = known.and_then(|object| object.downcast().ok()) {
            return Some(object);
        }
        let object = cache.unpack::<T>(row)?;
        self.unpacked.borrow_mut().push((is_old, TypeId::of::<T>(), object.clone()));
        Some(object)
    }
}

/// The two states of an update, kept until they are compared.
pub(super) struct Changes {
    old: Row,
    new: Row,
    dictionary: Arc<Dictionary>,
}

impl Changes {
    pub(super) fn new(old: Row, new: Row, dictionary: Arc<Dictionary>) -> Self {
        Self { old, new, dictionary }
    }

    /// The paths of what differs, such as `spec.replicas` or `status.conditions[0].status`: some, if there are many.
    fn fields(&self) -> Vec<String> {
        packed::changed_fields(self.old.bytes(), self.new.bytes(), &self.dictionary)
    }
}

/// A change that the cache has seen.
pub(crate) struct Delta<'a> {
    pub(crate) kind: &'a KindName,
    /// The object that has changed.
    pub(crate) object: &'a ObjectKey,
    pub(crate) change: ChangeType,
    pub(crate) cause: Cause,
    newest: &'a Row,
    step: &'a Step,
    cache: &'a Kind,
}

impl fmt::Debug for Delta<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delta").field("kind", self.kind).field("object", self.object).finish_non_exhaustive()
    }
}

impl<'a> Delta<'a> {
    pub(super) fn new(cache: &'a Kind, step: &'a Step) -> Option<Self> {
        let (newest, change) = match (&step.old, &step.new) {
            (None, Some(new)) => (new, ChangeType::Added),
            (Some(_), Some(new)) => (new, ChangeType::Updated),
            (Some(old), None) => (old, ChangeType::Deleted),
            (None, None) => return None,
        };
        Some(Self { kind: cache.name(), object: &newest.key, change, cause: step.cause, newest, step, cache })
    }

    /// The paths of what an update has changed, such as `spec.replicas` or `status.conditions[0].status`: some, if there
    /// are many. Additions and deletions have none. The two states are compared once, whoever asks.
    pub(crate) fn changed_fields(&self) -> Vec<String> {
        let compare = || self.changes().map(|changes| changes.fields()).unwrap_or_default();
        self.step.changed.get_or_init(compare).clone()
    }

    fn changes(&self) -> Option<Changes> {
        Some(self.cache.changes(self.before()?, self.newest))
    }

    /// Calls `then` with the change as seen by a `T`, unless the object is none.
    pub(crate) fn with<T: AnyObject, R>(&self, then: impl FnOnce(Change<'_, T>) -> R) -> Option<R> {
        let known = typed(&self.step.types);
        let object: Arc<T> = known.or_else(|| self.step.unpack(self.cache, self.newest, false))?;
        let old = Old { cache: self.cache, step: self.step, row: self.before(), unpacked: OnceCell::new() };
        Some(then(Change::lazy(self.change, object.as_ref(), &old)))
    }

    /// The references to the object's controllers, or to all its owners, before and after.
    pub(crate) fn owners(&self, all: bool) -> Vec<OwnerReference> {
        let old = self.before().filter(|old| all || old.controller != self.newest.controller);
        let new = self.step.owners.get_or_init(|| self.cache.owners_of(self.newest)).clone();
        let owners = old.into_iter().flat_map(|row| self.cache.owners_of(row)).chain(new);
        owners.filter(|owner| all || owner.controller == Some(true)).collect()
    }

    /// The state before an update.
    fn before(&self) -> Option<&'a Row> {
        self.step.old.as_ref().filter(|_| self.change == ChangeType::Updated)
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
        Trigger::change(reason, self.kind.kind.clone().into(), self.object.clone())
    }

    fn fields(&self) -> Vec<String> {
        self.changed_fields()
    }

    fn difference(&self) -> Option<Difference> {
        let changes = self.changes()?;
        Some(Arc::new(move || changes.fields()))
    }
}

/// The state before, unpacked when it is first asked for.
struct Old<'a, T> {
    cache: &'a Kind,
    step: &'a Step,
    row: Option<&'a Row>,
    unpacked: OnceCell<Option<Arc<T>>>,
}

impl<T: AnyObject> Before<T> for Old<'_, T> {
    fn get(&self) -> Option<&T> {
        self.unpacked.get_or_init(|| self.step.unpack(self.cache, self.row?, true)).as_deref()
    }
}
