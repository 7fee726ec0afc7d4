//! The parameters of admission policies.

use std::sync::Arc;

use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::{
    attributes::Attributes,
    policy::{ParamKind, ParamReference, Policy, PolicyBinding},
};
use crate::{
    codec, meta,
    registry::{Registry, Resource},
    storage::{Key, Stored},
    webhook_client::WebhookClient,
};

impl ParamKind {
    /// Returns the resource of the parameters.
    ///
    /// # Errors
    /// If it isn't served.
    pub(super) fn resource(&self, registry: &Registry) -> Result<Arc<Resource>, String> {
        let Self { group, version, kind } = self;
        let found = registry.first(|it| &*it.group == group && &*it.version == version && &*it.kind == kind);
        found
            .ok_or_else(|| format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"))
    }
}

/// Returns the parameters with which a policy is evaluated for a binding. A policy without parameters is evaluated
/// once, with `None`.
///
/// # Errors
/// If the reference can't be resolved, or finds nothing and requires parameters.
pub(super) async fn collect(
    client: &WebhookClient,
    resource: Option<&Resource>,
    policy: &Policy,
    binding: &PolicyBinding,
    attributes: &Attributes,
) -> Result<Vec<Option<Arc<Value>>>, String> {
    let (Some(_), Some(resource), Some(reference)) = (&policy.param_kind, resource, &binding.params) else {
        return Ok(vec![None]);
    };
    let found = find(client, resource, reference, attributes)?;
    if found.is_empty() && reference.required {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    let loaded = codec::load(client, resource, found).await.map_err(|status: Status| status.message)?;
    let has_type = policy.mutations.is_empty();
    Ok(loaded.iter().map(|stored| Some(shown(resource, &stored.value(), has_type))).collect())
}

/// Returns a parameter as policies see it. Kubernetes reads those of built-in kinds from a cache without owners, and
/// mutating policies see them without types.
fn shown(resource: &Resource, stored: &Arc<Value>, has_type: bool) -> Arc<Value> {
    let mut served = codec::to_served(resource, stored);
    if !resource.schema.custom {
        let object = Arc::make_mut(&mut served);
        meta::set(object, "managedFields", None);
        if let Some(fields) = object.as_object_mut().filter(|_| !has_type) {
            fields.retain(|name, _| name != "apiVersion" && name != "kind");
        }
    }
    served
}

fn find(
    client: &WebhookClient,
    resource: &Resource,
    reference: &ParamReference,
    attributes: &Attributes,
) -> Result<Vec<Arc<Stored>>, String> {
    let namespace = match (resource.namespaced, reference.namespace.as_str(), attributes.namespace.as_str()) {
        (true, "", "") => {
            return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into());
        }
        (true, "", requested) => requested,
        (false, "", _) => "",
        (false, _, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
        }
        (true, given, _) => given,
    };
    let Some(selector) = reference.selector.as_ref().filter(|_| reference.name.is_empty()) else {
        return Ok(client.store.get(&resource.storage, &Key::new(namespace, &reference.name)).into_iter().collect());
    };
    let snapshot = client.store.snapshot(&resource.storage);
    let in_namespace =
        snapshot.objects.range(Key::new(namespace, "")..).take_while(|(key, _)| &*key.namespace == namespace);
    let selected = in_namespace.filter(|(_, stored)| selector.matches(|key| stored.label(key)));
    Ok(selected.map(|(_, stored)| stored.clone()).collect())
}
