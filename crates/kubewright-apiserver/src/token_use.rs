//! The record of when the tokens in Secrets are used, by which tokens that nobody uses can be found
//! (<https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#legacy-serviceaccount-token-tracking-controller>).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    auth::{LAST_USED, SECRETS},
    decoding,
    managed_fields::{Conversions, Manager},
    meta,
    state::State,
    storage::{Key, Mutation, WriteError},
};

/// Labels a Secret, whose token a request has, with the present date, unless it has that label.
pub(crate) fn record(state: &State, secret: &Value) {
    let now = state.clock.now();
    let labels = &secret["metadata"]["labels"];
    // Another server's clock may be ahead.
    if [now, now + SignedDuration::from_hours(24)].iter().any(|day| labels[LAST_USED] == date(*day)) {
        return;
    }
    if let Err(error) = label(state, secret, now) {
        tracing::warn!(%error, name = meta::text(secret, "name"), "failed to label a Secret with the date of its last use");
    }
}

fn label(state: &State, secret: &Value, now: Timestamp) -> Result<(), WriteError> {
    let Some(resource) = state.registry.first(|resource| &*resource.storage == SECRETS) else { return Ok(()) };
    let conversions = &Conversions::default();
    let manager = Manager { name: "kube-apiserver", subresource: "", applies: false, force: false, now, conversions };
    let decide = |present: Option<&Arc<Value>>| {
        let Some(present) = present.filter(|present| meta::text(present, "uid") == meta::text(secret, "uid")) else {
            return Ok::<_, WriteError>(Mutation::Keep);
        };
        let mut object = (**present).clone();
        if !object["metadata"]["labels"].is_object() {
            object["metadata"]["labels"] = json!({});
        }
        object["metadata"]["labels"][LAST_USED] = date(now).into();
        object = manager.track(&resource, Some(present), object);
        decoding::complete(&resource, &mut object);
        Ok(Mutation::Put(object))
    };
    let key = Key::new(meta::text(secret, "namespace"), meta::text(secret, "name"));
    let observe = |before: Option<&Value>, after: Option<&Value>| resource.strategy.committed(before, after);
    state.store.transact(&resource.storage, &key, decide, observe)?;
    Ok(())
}

/// Returns a date in UTC.
pub(crate) fn date(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}
