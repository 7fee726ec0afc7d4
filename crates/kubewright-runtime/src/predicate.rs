//! Predicates: which changes of an object are worth a reconcile.
//!
//! They see the old and the new object as the cache had them. Without a predicate every change counts, the object's own
//! status writes included: a reconcile must be idempotent anyway, and a predicate that is wrong loses events.

use std::{fmt, sync::Arc};

use kube::core::{Selector, SelectorExt};

use crate::object::Object;

/// A change that the cache has seen.
#[derive(Debug)]
#[non_exhaustive]
pub enum Change<'a, K> {
    /// The object is new to the cache: created, or found by the first list.
    Added(&'a K),
    /// The object differs from what the cache held.
    Updated {
        /// As it was. Changes in between may have been missed.
        old: &'a K,
        /// As it is.
        new: &'a K,
    },
    /// The object is gone; this is the last that was seen of it.
    Deleted(&'a K),
}

impl<K> Clone for Change<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Change<'_, K> {}

impl<'a, K> Change<'a, K> {
    /// The object's newest known state.
    pub fn object(&self) -> &'a K {
        match self {
            Self::Added(object) | Self::Deleted(object) | Self::Updated { new: object, .. } => object,
        }
    }

    /// The state before, if the cache had it.
    pub fn old(&self) -> Option<&'a K> {
        match self {
            Self::Updated { old, .. } => Some(old),
            Self::Added(_) | Self::Deleted(_) => None,
        }
    }
}

/// A test that a change must pass to wake a key.
pub struct Predicate<K>(Arc<Test<K>>);

type Test<K> = dyn Fn(Change<'_, K>) -> bool + Send + Sync;

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Predicate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

impl<K: Object> Predicate<K> {
    /// A predicate of your own.
    pub fn new(test: impl Fn(Change<'_, K>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(test))
    }

    /// Every change passes.
    pub fn always() -> Self {
        Self::new(|_| true)
    }

    /// Additions, deletions, and updates in which `value` gives something else for the new object than for the old.
    pub fn changed<V: PartialEq>(value: impl Fn(&K) -> V + Send + Sync + 'static) -> Self {
        Self::new(move |change| change.old().is_none_or(|old| value(old) != value(change.object())))
    }

    /// Updates that changed the spec (`metadata.generation`), or began the deletion. Changes of status, labels and
    /// annotations don't pass. Only for kinds whose generation the API server counts.
    pub fn generation_changed() -> Self {
        Self::changed(|object| {
            let meta = object.meta();
            (meta.generation, meta.deletion_timestamp.is_some())
        })
    }

    /// Updates that changed anything: a resync or a doubled event doesn't pass.
    pub fn resource_version_changed() -> Self {
        Self::changed(|object| object.meta().resource_version.clone())
    }

    /// Updates that changed a label.
    pub fn labels_changed() -> Self {
        Self::changed(|object| object.meta().labels.clone())
    }

    /// Updates that changed an annotation.
    pub fn annotations_changed() -> Self {
        Self::changed(|object| object.meta().annotations.clone())
    }

    /// Changes of objects that match the selector, before or after: an object whose label is taken off passes once more.
    pub fn labelled(selector: Selector) -> Self {
        let matches = move |object: &K| selector.matches(object.meta().labels.as_ref().unwrap_or(&Default::default()));
        Self::new(move |change| matches(change.object()) || change.old().is_some_and(&matches))
    }

    /// Passes what passes both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(move |change| self.passes(change) && other.passes(change))
    }

    /// Passes what passes either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(move |change| self.passes(change) || other.passes(change))
    }

    /// Passes what this one doesn't.
    #[must_use]
    #[allow(clippy::should_implement_trait, reason = "named beside `and` and `or`")]
    pub fn not(self) -> Self {
        Self::new(move |change| !self.passes(change))
    }

    /// Whether the change passes.
    pub fn passes(&self, change: Change<'_, K>) -> bool {
        (self.0)(change)
    }
}
