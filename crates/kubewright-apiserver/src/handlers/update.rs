//! PUT, and what is common to all changes of an object that exists.

use std::sync::Arc;

use http::StatusCode;
use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::{
    Call,
    admission::{Edited, PartEdit},
    decode::{self, Format},
    lifecycle::Incoming,
    query::WriteOptions,
    size,
};
use crate::{
    meta,
    registry::Resource,
    respond::Answer,
    storage::{Committed, Decision, Key, Stored},
};

/// Which part of an object a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Everything but the status, where that is a subresource.
    Main,
    /// Only the status.
    Status,
    /// Only `spec.finalizers`, which namespaces have.
    Finalizers,
}

impl Part {
    /// The name of the subresource; empty for the object itself.
    pub(super) fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Finalizers => "finalize",
        }
    }
}

/// Replaces an object.
pub(super) async fn update(call: &Call, part: Part) -> Result<Answer, Status> {
    let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
    let decoded = decode::decode(Format::of(&call.parts.headers)?, &call.body)?;
    let Incoming { object, warnings } = call.receive(decoded, options.field_validation)?;
    let manager = call.manager(&options);
    let owner = call.owner(&manager, part.subresource());
    let ask = |_: &Value| Ok(Incoming { object: object.clone(), warnings: warnings.clone() });
    let edit = PartEdit { call, part, owner: &owner, ask };
    let Edited { stored, warnings } = call.edit(&edit, &options, part.subresource()).await?;
    Ok(call.object(StatusCode::OK, &stored, &warnings))
}

impl Call {
    /// Commits a decision about an object of this resource.
    ///
    /// # Errors
    /// Those of the decision, and 500 for an object that is too large to be stored.
    pub(super) fn commit(
        &self,
        key: &Key,
        mut decide: impl FnMut(Option<&Arc<Value>>) -> Result<Decision, Status>,
    ) -> Result<Committed, Status> {
        let decide = |present: Option<&Arc<Value>>| match decide(present)? {
            Decision::Put(object) => size::fit(object).map(Decision::Put),
            other => Ok(other),
        };
        let Resource { storage, strategy, .. } = &*self.resource;
        let registry = &self.server.registry;
        self.server.store.transact(storage, key, decide, |before, after| strategy.committed(registry, before, after))
    }

    /// Changes the object of this call to what `propose` makes of it (in stored form), and gives back what it is then. An
    /// object whose deletion waited for this change goes; one that is as it was is not written.
    pub(super) fn modify(
        &self,
        dry_run: bool,
        mut propose: impl FnMut(Option<&Arc<Value>>) -> Result<Value, Status>,
    ) -> Result<Arc<Stored>, Status> {
        let mut decide = |old: Option<&Arc<Value>>| {
            let new = propose(old)?;
            Ok(if old.is_some() && may_go(&self.resource, &new) {
                Decision::Remove(new)
            } else if old.is_some_and(|old| **old == new) {
                Decision::Keep
            } else {
                Decision::Put(new)
            })
        };
        let key = self.key();
        if dry_run {
            let present = self.server.store.get(&self.resource.storage, &key);
            return match (decide(present.as_ref().map(|stored| stored.value()).as_ref())?, present) {
                (Decision::Put(object) | Decision::Remove(object), _) => Ok(Arc::new(Stored::rehearsed(object))),
                (Decision::Keep, Some(present)) => Ok(present),
                (Decision::Keep, None) => Err(self.not_found()),
            };
        }
        self.commit(&key, decide)?.object.ok_or_else(|| self.not_found())
    }
}

/// Whether an object that is being deleted has nothing left to wait for.
pub(super) fn may_go(resource: &Resource, object: &Value) -> bool {
    meta::is_terminating(object)
        && meta::finalizers(object).is_empty()
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !resource.strategy.held(object)
}
