//! Predicates: filters for the changes that enqueue an object.
//!
//! A predicate sees the old and the new object from the cache. Without a predicate every change passes, including the
//! controller's own status writes. That is safe, because a reconcile is idempotent; a wrong predicate loses events.
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use kube::core::Expression;
//! use kubewright_runtime::predicate::{Change, Predicate};
//!
//! let web = Predicate::<Pod>::labelled(Expression::Equal("app".into(), "web".into()).into());
//! let phase = Predicate::changed(|pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()));
//! // A test of your own, with the old and the new object.
//! let is_update = Predicate::new(|change: Change<'_, Pod>| change.old().is_some());
//! let predicate = web.and(phase.or(is_update.not()));
//! assert!(!predicate.passes(Change::added(&Pod::default())), "it has no such label");
//! ```

use std::{fmt, sync::Arc};

use kube::{
    Resource,
    core::{Selector, SelectorExt},
};

/// The type of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeType {
    /// The object is new to the cache: created, or found by a list.
    Added,
    /// The object differs from the cached one.
    Updated,
    /// The object was deleted.
    Deleted,
}

/// A change that the cache has observed.
pub struct Change<'a, K> {
    change_type: ChangeType,
    object: &'a K,
    old: Option<&'a dyn OldObject<K>>,
}

/// The object before a change, decoded on demand.
pub(crate) trait OldObject<K> {
    fn get(&self) -> Option<&K>;
}

impl<K> OldObject<K> for K {
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
    /// An addition.
    pub fn added(object: &'a K) -> Self {
        Self { change_type: ChangeType::Added, object, old: None }
    }

    /// An update. Changes between the two states may have been missed.
    pub fn updated(old: &'a K, new: &'a K) -> Self {
        Self { change_type: ChangeType::Updated, object: new, old: Some(old) }
    }

    /// A deletion, with the last known state of the object.
    pub fn deleted(object: &'a K) -> Self {
        Self { change_type: ChangeType::Deleted, object, old: None }
    }

    pub(crate) fn lazy(change_type: ChangeType, object: &'a K, old: &'a dyn OldObject<K>) -> Self {
        Self { change_type, object, old: Some(old) }
    }

    /// The type of the change.
    pub fn change_type(&self) -> ChangeType {
        self.change_type
    }

    /// The latest known state of the object.
    pub fn object(&self) -> &'a K {
        self.object
    }

    /// The state before an update. It is decoded from the packed cache at the first call.
    pub fn old(&self) -> Option<&'a K> {
        self.old.and_then(OldObject::get)
    }
}

/// A test that a change must pass to enqueue a key.
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

impl<K: Resource + 'static> Predicate<K> {
    /// A predicate that passes the changes for which `test` returns true.
    pub fn new(test: impl Fn(Change<'_, K>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(test))
    }

    /// Passes every change.
    pub fn always() -> Self {
        Self::new(|_| true)
    }

    /// Passes additions, deletions, and updates that change the result of `value`.
    pub fn changed<V: PartialEq>(value: impl Fn(&K) -> V + Send + Sync + 'static) -> Self {
        Self::new(move |change| change.old().is_none_or(|old| value(old) != value(change.object())))
    }

    /// Passes additions, deletions, and updates that change the spec (`metadata.generation`) or set the deletion
    /// timestamp. Changes of status, labels and annotations don't pass. Only for kinds with a generation; core kinds
    /// such as config maps have none.
    pub fn generation_changed() -> Self {
        Self::changed(|object| {
            let meta = object.meta();
            (meta.generation, meta.deletion_timestamp.is_some())
        })
    }

    /// Passes additions, deletions, and updates that change the object: a resync doesn't pass.
    pub fn resource_version_changed() -> Self {
        Self::changed(|object| object.meta().resource_version.clone())
    }

    /// Passes additions, deletions, and updates that change labels.
    pub fn labels_changed() -> Self {
        Self::changed(|object| object.meta().labels.clone())
    }

    /// Passes additions, deletions, and updates that change annotations. For [views](crate::view) without annotations
    /// no update passes.
    pub fn annotations_changed() -> Self {
        Self::changed(|object| object.meta().annotations.clone())
    }

    /// Passes changes of objects that match the selector before or after the change: the removal of a label passes too.
    pub fn labelled(selector: Selector) -> Self {
        let matches = move |object: &K| selector.matches(object.meta().labels.as_ref().unwrap_or(&Default::default()));
        Self::new(move |change| matches(change.object()) || change.old().is_some_and(&matches))
    }

    /// Passes changes that pass both predicates.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(move |change| self.passes(change) && other.passes(change))
    }

    /// Passes changes that pass at least one of the predicates.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(move |change| self.passes(change) || other.passes(change))
    }

    /// Passes changes that this predicate rejects.
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
    fn predicates_compare_their_part_of_the_object() {
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
    fn labelled_tests_the_object_before_and_after() {
        let predicate = Predicate::labelled(Expression::Equal("app".into(), "web".into()).into());
        let (with, without) = (json!({"labels": {"app": "web"}}), json!({}));
        assert!(passes(&predicate, with.clone(), without.clone()) && passes(&predicate, without.clone(), with));
        assert!(!passes(&predicate, without.clone(), without));
    }

    #[test]
    fn predicates_combine() {
        let [yes, no] = [true, false].map(|answer| Predicate::<ConfigMap>::new(move |_| answer));
        let check = |predicate: Predicate<ConfigMap>| passes(&predicate, json!({}), json!({}));
        assert!(check(yes.clone().and(yes.clone())) && !check(yes.clone().and(no.clone())));
        assert!(check(no.clone().or(yes.clone())) && !check(no.clone().or(no.clone())));
        assert!(check(no.not()) && !check(yes.not()));
    }
}
