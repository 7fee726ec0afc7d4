//! The ConfigMap by which aggregated API servers find out how this server identifies users to them
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/#original-request-username-and-group>).

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    aggregation::CLIENT_NAME,
    decoding,
    managed_fields::{Conversions, Manager},
    meta,
    state::State,
    storage::{Key, Mutation, WriteError},
};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// Writes the authorities of clients and of the front proxy, unless they are there. `clients` are certificates in PEM.
pub(crate) fn publish(state: &State, clients: &str) -> Result<(), WriteError> {
    let Some(resource) = state.registry.find("", "v1", "configmaps") else { return Ok(()) };
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
    let (now, conversions) = (state.clock.now(), &Conversions::default());
    let manager = Manager { name: "kube-apiserver", subresource: "", applies: false, force: false, now, conversions };
    let decide = |present: Option<&Arc<Value>>| {
        if present.is_some_and(|present| present["data"] == data) {
            return Ok::<_, WriteError>(Mutation::Keep);
        }
        let new = || {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": NAME, "namespace": NAMESPACE},
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
    state.store.transact(&resource.storage, &Key::new(NAMESPACE, NAME), decide, observe)?;
    Ok(())
}
