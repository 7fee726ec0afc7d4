//! Predicates: which changes of an object are worth a reconcile.
//!
//! They see the old and the new object as the cache had them. Without a predicate every change counts, the object's own
//! status writes included: a reconcile must be idempotent anyway, and a predicate that is wrong loses events.
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use kube::core::Expression;
//! use kubewright_runtime::predicate::{Change, Predicate};
//!
//! let web = Predicate::<Pod>::labelled(Expression::Equal("app".into(), "web".into()).into());
//! let phase = Predicate::changed(|pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()));
//! // One of your own, with the old and the new state.
//! let is_update = Predicate::new(|change: Change<'_, Pod>| change.old().is_some());
//! let predicate = web.and(phase.or(is_update.not()));
//! assert!(!predicate.passes(Change::added(&Pod::default())), "it has no such label");
//! ```

use std::{fmt, sync::Arc};

use kube::core::{Selector, SelectorExt};

use crate::object::Object;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeType {
    /// It is new to the cache: created, or found by a list.
    Added,
    /// It differs from what the cache held.
    Updated,
    /// It is gone.
    Deleted,
}

/// A change that the cache has seen.
pub struct Change<'a, K> {
    change_type: ChangeType,
    object: &'a K,
    old: Option<&'a dyn Before<K>>,
}

/// The state before a change; made only if it is asked for.
pub(crate) trait Before<K> {
    fn get(&self) -> Option<&K>;
}

impl<K> Before<K> for K {
    fn get(&self) -> Option<&K> {
        Some(self)
    }
}

impl<K> Clone for Change<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Change<'_, K> {}

impl<K: fmt::Debug> fmt::Debug for Change<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change")
            .field("change_type", &self.change_type)
            .field("object", self.object)
            .finish_non_exhaustive()
    }
}

impl<'a, K> Change<'a, K> {
    /// The object is new.
    pub fn added(object: &'a K) -> Self {
        Self { change_type: ChangeType::Added, object, old: None }
    }

    /// The object differs from what it was; changes in between may have been missed.
    pub fn updated(old: &'a K, new: &'a K) -> Self {
        Self { change_type: ChangeType::Updated, object: new, old: Some(old) }
    }

    /// The object is gone; this is the last that was seen of it.
    pub fn deleted(object: &'a K) -> Self {
        Self { change_type: ChangeType::Deleted, object, old: None }
    }

    pub(crate) fn lazy(change_type: ChangeType, object: &'a K, old: &'a dyn Before<K>) -> Self {
        Self { change_type, object, old: Some(old) }
    }

    /// What happened.
    pub fn change_type(&self) -> ChangeType {
        self.change_type
    }

    /// The object's newest known state.
    pub fn object(&self) -> &'a K {
        self.object
    }

    /// The state before an update. It is kept packed, and made when it is first asked for.
    pub fn old(&self) -> Option<&'a K> {
        self.old.and_then(Before::get)
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

    /// Updates that changed an annotation. Not for [views](crate::view) without annotations, of which none passes.
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::Expression;
    use serde_json::{Value, json};

    use super::*;

    fn object(metadata: Value) -> ConfigMap {
        serde_json::from_value(json!({"metadata": metadata})).expect("a config map")
    }

    fn passes(predicate: &Predicate<ConfigMap>, old: Value, new: Value) -> bool {
        predicate.passes(Change::updated(&object(old), &object(new)))
    }

    #[test]
    fn each_looks_at_its_own_part() {
        let before = json!({"generation": 1, "resourceVersion": "1", "labels": {"a": "1"}, "annotations": {"b": "1"}});
        let after = |field: &str, value: Value| {
            let mut after = before.clone();
            after[field] = value;
            after
        };
        let predicates = [
            Predicate::generation_changed(),
            Predicate::resource_version_changed(),
            Predicate::labels_changed(),
            Predicate::annotations_changed(),
        ];
        let check = |new: Value, expected: [bool; 4]| {
            let found = predicates.each_ref().map(|predicate| passes(predicate, before.clone(), new.clone()));
            assert_eq!(found, expected, "{new}");
        };
        check(before.clone(), [false; 4]);
        check(after("generation", json!(2)), [true, false, false, false]);
        check(after("deletionTimestamp", json!("2026-01-01T00:00:00Z")), [true, false, false, false]);
        check(after("resourceVersion", json!("2")), [false, true, false, false]);
        check(after("labels", json!({"a": "2"})), [false, false, true, false]);
        check(after("annotations", Value::Null), [false, false, false, true]);
        for predicate in &predicates {
            let object = object(before.clone());
            assert!(predicate.passes(Change::added(&object)) && predicate.passes(Change::deleted(&object)));
        }
    }

    #[test]
    fn a_selector_counts_before_and_after() {
        let predicate = Predicate::labelled(Expression::Equal("app".into(), "web".into()).into());
        let (with, without) = (json!({"labels": {"app": "web"}}), json!({}));
        assert!(passes(&predicate, with.clone(), without.clone()) && passes(&predicate, without.clone(), with));
        assert!(!passes(&predicate, without.clone(), without));
    }

    #[test]
    fn they_combine() {
        let [yes, no] = [true, false].map(|answer| Predicate::<ConfigMap>::new(move |_| answer));
        let check = |predicate: Predicate<ConfigMap>| passes(&predicate, json!({}), json!({}));
        assert!(check(yes.clone().and(yes.clone())) && !check(yes.clone().and(no.clone())));
        assert!(check(no.clone().or(yes.clone())) && !check(no.clone().or(no.clone())));
        assert!(check(no.not()) && !check(yes.not()));
    }
}
