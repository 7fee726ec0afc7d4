//! What controllers in Kubernetes' API server write to the status of an object after each write to it. Here the request
//! that wrote the object does so before it is answered, so that clients needn't wait for it.

use std::sync::Arc;

use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::commit::commit;
use crate::{
    decoding,
    managed_fields::{Conversions, Manager},
    registry::{Resource, Settled},
    state::State,
    storage::{Key, Mutation},
};

/// Writes what the controller of a kind would write to the status of a stored object, if there is one.
///
/// # Errors
/// Returns the errors of the store.
pub(crate) fn settle(state: &State, resource: &Resource, key: &Key) -> Result<(), Status> {
    if !resource.strategy.settles() {
        return Ok(());
    }
    settle_one(state, resource, key)?;
    settle_others(state, resource)
}

/// Writes what the controllers would write to the status of other objects after a write to one of a kind, or its
/// removal.
///
/// # Errors
/// Returns the errors of the store.
pub(super) fn settle_others(state: &State, resource: &Resource) -> Result<(), Status> {
    let other = resource.strategy.unsettled_kind().map(|(group, plural)| state.registry.find(group, "v1", plural));
    let kind = match &other {
        Some(Some(other)) => other,
        Some(None) => return Ok(()),
        None => resource,
    };
    // Others may take the names that the object no longer has.
    for name in resource.strategy.unsettled() {
        settle_one(state, kind, &Key::new("", &name))?;
    }
    Ok(())
}

fn settle_one(state: &State, resource: &Resource, key: &Key) -> Result<(), Status> {
    commit(state, resource, key, |present: Option<&Arc<Value>>| {
        let Some(present) = present else { return Ok(Mutation::Keep) };
        let new = settled(state, resource, present)?;
        Ok(new.filter(|new| *new != **present).map_or(Mutation::Keep, Mutation::Put))
    })?;
    Ok(())
}

/// Returns an object with what the controller of its kind would write to its status, and the owners of that; `None` if
/// there is nothing to write. The kinds concerned are stored as they are served.
///
/// # Errors
/// Returns an error if the status can't be applied.
pub(crate) fn settled(state: &State, resource: &Resource, present: &Value) -> Result<Option<Value>, Status> {
    let Some(settled) = resource.strategy.settled(present) else { return Ok(None) };
    let conversions = &Conversions::default();
    let manager = |name, applies| Manager {
        name,
        subresource: "status",
        applies,
        force: true,
        now: state.clock.now(),
        conversions,
    };
    match settled {
        Settled::Update(mut object) => {
            decoding::complete(resource, &mut object);
            Ok(Some(manager("kube-apiserver", false).track(resource, Some(present), object)))
        }
        Settled::Apply(name, config) => manager(name, true).apply(resource, Some(present), &config).map(Some),
    }
}
