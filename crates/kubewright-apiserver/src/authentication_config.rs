//! The ConfigMaps about authentication: how this server identifies users to aggregated API servers
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/#original-request-username-and-group>),
//! and since when the use of tokens in Secrets is recorded
//! (<https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#legacy-serviceaccount-token-tracking-controller>).

use std::sync::Arc;

use jiff::civil::Date;
use serde_json::{Value, json};

use crate::{
    aggregation::CLIENT_NAME,
    decoding,
    managed_fields::{Conversions, Manager},
    meta,
    state::State,
    storage::{Key, Mutation, WriteError},
    token_use::date,
};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

/// Writes the authorities of clients and of the front proxy, and the date since which the use of tokens in Secrets is
/// recorded, unless they are there. `clients` are certificates in PEM.
pub(crate) fn publish(state: &State, clients: &str) -> Result<(), WriteError> {
    let since = json!({"since": date(state.clock.now())});
    put(state, TRACKING, &since, |present| {
        present["since"].as_str().is_some_and(|since| since.parse::<Date>().is_ok())
    })?;
    let front_proxy = match state.aggregation.front_proxy.authority() {
        Ok(authority) => authority,
        Err(error) => {
            tracing::error!(%error, "failed to generate the certificate of the front proxy");
            return Ok(());
        }
    };
    let list = |name: &str| json!([name]).to_string();
    let data = json!({
        "client-ca-file": clients,
        "requestheader-allowed-names": list(CLIENT_NAME),
        "requestheader-client-ca-file": front_proxy,
        "requestheader-extra-headers-prefix": list("X-Remote-Extra-"),
        "requestheader-group-headers": list("X-Remote-Group"),
        "requestheader-uid-headers": list("X-Remote-Uid"),
        "requestheader-username-headers": list("X-Remote-User"),
    });
    put(state, NAME, &data, |present| *present == data)
}

/// Writes the data of a ConfigMap, unless it exists with data that `is_current`.
fn put(state: &State, name: &str, data: &Value, is_current: impl Fn(&Value) -> bool) -> Result<(), WriteError> {
    let Some(resource) = state.registry.find("", "v1", "configmaps") else { return Ok(()) };
    let (now, conversions) = (state.clock.now(), &Conversions::default());
    let manager = Manager { name: "kube-apiserver", subresource: "", applies: false, force: false, now, conversions };
    let decide = |present: Option<&Arc<Value>>| {
        if present.is_some_and(|present| is_current(&present["data"])) {
            return Ok::<_, WriteError>(Mutation::Keep);
        }
        let new = || {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": NAMESPACE},
            })
        };
        let mut object = present.map_or_else(new, |present| (**present).clone());
        object["data"] = data.clone();
        object = manager.track(&resource, present.map(|present| &**present), object);
        if present.is_none() {
            meta::set(&mut object, "uid", Some(state.random.uuid().into()));
            meta::set(&mut object, "creationTimestamp", Some(meta::time(now)));
        }
        decoding::complete(&resource, &mut object);
        Ok(Mutation::Put(object))
    };
    let observe = |before: Option<&Value>, after: Option<&Value>| resource.strategy.committed(before, after);
    state.store.transact(&resource.storage, &Key::new(NAMESPACE, name), decide, observe)?;
    Ok(())
}
