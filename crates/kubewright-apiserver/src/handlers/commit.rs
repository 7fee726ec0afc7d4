//! Commits of objects to the store.

use std::sync::Arc;

use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::call::Call;
use crate::{
    decoding, meta, object_size,
    registry::Resource,
    state::State,
    storage::{Committed, Key, Mutation, Stored},
};

/// Commits a decision about an object of a resource.
///
/// # Errors
/// Returns the errors of the decision, and 500 for an object that is too large to be stored.
pub(super) fn commit(
    state: &State,
    resource: &Resource,
    key: &Key,
    decide: impl FnMut(Option<&Arc<Value>>) -> Result<Mutation, Status>,
) -> Result<Committed, Status> {
    let Resource { storage, strategy, .. } = resource;
    let observe = |before: Option<&Value>, after: Option<&Value>| strategy.committed(before, after);
    state.store.transact(storage, key, completed(resource, false, decide), observe)
}

/// Returns the decision about an object with the fields that are always stored. `applied` tells whether the object is
/// the result of an apply.
fn completed(
    resource: &Resource,
    applied: bool,
    mut decide: impl FnMut(Option<&Arc<Value>>) -> Result<Mutation, Status>,
) -> impl FnMut(Option<&Arc<Value>>) -> Result<Mutation, Status> {
    move |present| match decide(present)? {
        Mutation::Put(mut object) => {
            decoding::complete_stored(resource, &mut object);
            object_size::limit(object, applied).map(Mutation::Put)
        }
        other => Ok(other),
    }
}

impl Call {
    /// Commits a decision about an object of this resource, like [`commit`].
    pub(super) fn commit(
        &self,
        key: &Key,
        decide: impl FnMut(Option<&Arc<Value>>) -> Result<Mutation, Status>,
    ) -> Result<Committed, Status> {
        commit(&self.state, &self.resource, key, decide)
    }

    /// Commits a decision about an object of this resource that the quotas of its namespace admit. Its usage is
    /// recorded in their status in the same transaction.
    pub(super) fn commit_charged(
        &self,
        key: &Key,
        decide: impl FnMut(Option<&Arc<Value>>) -> Result<Mutation, Status>,
    ) -> Result<Committed, Status> {
        let State { store, registry, .. } = &*self.state;
        let Resource { storage, strategy, .. } = &*self.resource;
        let attach = |old: Option<&Value>, new: &Value| self.charge(old, new);
        let verify = |old: Option<&Value>, new: &Value| self.verify(old, new);
        let observe = |changed: &str, before: Option<&Value>, after: Option<&Value>| {
            if *changed == **storage {
                strategy.committed(before, after);
            } else if let Some(other) = registry.first(|other| *other.storage == *changed) {
                other.strategy.committed(before, after);
            }
        };
        let committed = store.transact_with(
            storage,
            key,
            completed(&self.resource, self.applies(), decide),
            attach,
            verify,
            observe,
        )?;
        if let Some(object) = &committed.object {
            self.outdate(object);
        }
        Ok(committed)
    }

    /// Tells the present schemas of a custom kind about an object that was written with those before.
    fn outdate(&self, object: &Stored) {
        let Resource { group, version, plural, storage, versions: Some(used), .. } = &*self.resource else { return };
        let registry = &self.state.registry;
        let present =
            registry.find(group, version, plural).or_else(|| registry.first(|other| other.storage == *storage));
        if let Some(present) = present.as_ref().and_then(|present| present.versions.as_ref())
            && !Arc::ptr_eq(present, used)
        {
            present.outdate(object);
        }
    }

    /// Checks what may have changed since the object was validated: webhooks take their time.
    fn verify(&self, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        if old.is_none() {
            self.check_namespace(new)?;
        }
        let causes = self.resource.strategy.validate_commit(old, new);
        if causes.is_empty() {
            return Ok(());
        }
        let Resource { group, kind, .. } = &*self.resource;
        Err(Status::invalid(group, kind, meta::text(new, "name"), causes))
    }

    /// Replaces the object of this call with the one that `propose` returns (in stored form), and returns the stored
    /// result. An object whose deletion waited for this change is removed; an unchanged object is not written.
    pub(super) fn modify(
        &self,
        dry_run: bool,
        mut propose: impl FnMut(Option<&Arc<Value>>) -> Result<Value, Status>,
    ) -> Result<Arc<Stored>, Status> {
        let mut decide = |old: Option<&Arc<Value>>| {
            let new = propose(old)?;
            Ok(if old.is_some() && is_removable(&self.resource, &new) {
                Mutation::Remove(new)
            } else if old.is_some_and(|old| **old == new) {
                Mutation::Keep
            } else {
                Mutation::Put(new)
            })
        };
        let key = self.key();
        if dry_run {
            let present = self.state.store.get(&self.resource.storage, &key);
            let old = present.as_ref().map(|stored| stored.value());
            let decision = decide(old.as_ref())?;
            if let Mutation::Put(new) = &decision {
                self.charge(old.as_deref(), new)?;
            }
            return match (decision, present) {
                (Mutation::Put(object) | Mutation::Remove(object), _) => Ok(Arc::new(Stored::unsaved(object))),
                (Mutation::Keep, Some(present)) => Ok(present),
                (Mutation::Keep, None) => Err(self.not_found()),
            };
        }
        self.commit_charged(&key, decide)?.object.ok_or_else(|| self.not_found())
    }
}

/// Returns whether an object that is being deleted can be removed.
pub(super) fn is_removable(resource: &Resource, object: &Value) -> bool {
    meta::is_terminating(object)
        && meta::finalizers(object).is_empty()
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !resource.strategy.is_held(object)
}
