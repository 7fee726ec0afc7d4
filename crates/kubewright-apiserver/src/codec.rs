//! Conversion between the stored form of objects and the version in which they are served.
//!
//! A built-in kind that is served in two groups is converted by its strategy ([`to_stored`], [`to_served`]). This is
//! cheap, and the kind's rules get the stored form. The versions of a custom kind are converted when objects are read
//! from or written to the store ([`load`], [`save`]), since this may require a call of a webhook. All code in between
//! works with the version of the request, as in Kubernetes.

use std::sync::Arc;

use bytes::Bytes;
use kubewright_apimachinery::{schema, status::Status};
use serde_json::Value;

use crate::{
    group_version::group_version, object_type, registry::Resource, storage::Stored, webhook_client::WebhookClient,
};

/// Returns whether the rules of the kind get objects in served form.
pub(crate) fn is_stored_form(resource: &Resource) -> bool {
    let (group, version, kind) = &resource.stored_as;
    resource.versions.is_some() || (group, version, kind) == (&resource.group, &resource.version, &resource.kind)
}

/// Returns whether objects are stored in the version of this resource.
pub(crate) fn is_storage_version(resource: &Resource) -> bool {
    let (group, version, kind) = &resource.stored_as;
    (group, version, kind) == (&resource.group, &resource.version, &resource.kind)
}

/// Returns whether a stored object can be served without conversion. Objects of a custom kind keep the storage version
/// and the form in which they were written, although the schema may have changed.
pub(crate) fn is_served_form(resource: &Resource, stored: &Stored) -> bool {
    let written_in = stored.api_version().split_once('/').unwrap_or(("", stored.api_version()));
    is_stored_form(resource)
        && written_in == (&*resource.group, &*resource.version)
        && resource.versions.as_ref().is_none_or(|versions| versions.is_up_to_date(stored))
}

/// Converts stored objects of a custom kind to the version of the resource, preserving their order. Other objects are
/// unchanged. With a conversion webhook, this costs one call for several hundred objects.
pub(crate) async fn load(
    client: &WebhookClient,
    resource: &Resource,
    mut objects: Vec<Arc<Stored>>,
) -> Result<Vec<Arc<Stored>>, Status> {
    let Some(versions) = &resource.versions else { return Ok(objects) };
    let others: Vec<_> = (0..objects.len()).filter(|&index| !is_served_form(resource, &objects[index])).collect();
    if others.is_empty() {
        return Ok(objects);
    }
    let wanted = group_version(&resource.group, &resource.version);
    let stored = others.iter().map(|&index| objects[index].clone()).collect();
    // Boxed, as all that few requests need: each request would have room for it in its future, which is moved several
    // times.
    let converted = Box::pin(versions.load(client, stored, &wanted)).await?;
    for (index, converted) in others.into_iter().zip(converted) {
        objects[index] = converted;
    }
    Ok(objects)
}

/// Converts a stored object to the version of the resource. As in Kubernetes, each read of one object calls a
/// conversion webhook, so that its failure is noticed.
pub(crate) async fn load_one(
    client: &WebhookClient,
    resource: &Resource,
    object: Arc<Stored>,
) -> Result<Arc<Stored>, Status> {
    let Some(versions) = resource.versions.as_ref().filter(|_| !is_served_form(resource, &object)) else {
        return Ok(object);
    };
    let wanted = group_version(&resource.group, &resource.version);
    let converted = Box::pin(versions.load_uncached(client, [&object].into_iter(), &wanted)).await?.pop();
    converted.ok_or_else(|| Status::internal("the conversion returned no object"))
}

/// Converts an object of a custom kind to the storage version. Other objects are unchanged. In Kubernetes, a stored
/// object gets the defaults of this version when it is read: those of fields that other versions don't have, and of the
/// status, which is removed from new objects.
pub(crate) async fn save(client: &WebhookClient, resource: &Resource, object: Value) -> Result<Value, Status> {
    let (group, version, _) = &resource.stored_as;
    let Some(versions) = &resource.versions else { return Ok(object) };
    let storage_version = group_version(group, version);
    let mut object = Box::pin(versions.convert_one(client, object, &storage_version)).await?;
    if let Some(schema) = versions.schema(&storage_version) {
        schema::default(schema.node(), &mut object);
    }
    Ok(object)
}

/// Converts an object from one resource to another of the same stored objects.
pub(crate) async fn between(
    client: &WebhookClient,
    from: &Resource,
    to: &Resource,
    mut object: Value,
) -> Result<Value, Status> {
    if let Some(versions) = &to.versions {
        return Box::pin(versions.convert_one(client, object, &group_version(&to.group, &to.version))).await;
    }
    to_stored(from, &mut object);
    Ok(Arc::unwrap_or_clone(to_served(to, &Arc::new(object))))
}

/// Converts an object from the served version to the form that the rules of the kind expect.
pub(crate) fn to_stored(resource: &Resource, object: &mut Value) {
    if !is_stored_form(resource) {
        let (group, version, kind) = &resource.stored_as;
        resource.strategy.decode(object);
        set_type(object, group, version, kind);
    }
}

/// Converts an object to the served version from the form that the rules of the kind expect.
pub(crate) fn to_served(resource: &Resource, stored: &Arc<Value>) -> Arc<Value> {
    if is_stored_form(resource) {
        return stored.clone();
    }
    let mut object = (**stored).clone();
    resource.strategy.encode(&mut object);
    set_type(&mut object, &resource.group, &resource.version, &resource.kind);
    Arc::new(object)
}

/// Returns the JSON text of a [loaded](load) object in the served version.
pub(crate) fn served_text(resource: &Resource, loaded: &Stored) -> Bytes {
    if is_stored_form(resource) {
        loaded.json()
    } else {
        object_type::to_vec(&to_served(resource, &loaded.value())).into()
    }
}

/// Returns the JSON text of an item of a list, after its opening brace. As in Kubernetes, the items of a list of a
/// built-in kind have no `kind` and `apiVersion`.
pub(crate) fn item_text(resource: &Resource, loaded: &Stored) -> Bytes {
    let text = served_text(resource, loaded);
    let start = if resource.schema.custom { 1 } else { type_meta_length(&text) };
    text.slice(start..)
}

/// Removes `kind` and `apiVersion` from an item of a list of a built-in kind.
pub(crate) fn item(resource: &Resource, object: &mut Value) {
    if let (false, Some(fields)) = (resource.schema.custom, object.as_object_mut()) {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
}

/// Returns the length of the opening brace, `kind` and `apiVersion` of a built-in object, which it begins with.
fn type_meta_length(text: &[u8]) -> usize {
    let mut length = 1;
    for name in [&b"\"kind\":\""[..], b"\"apiVersion\":\""] {
        let Some(rest) = text.get(length..).and_then(|rest| rest.strip_prefix(name)) else { break };
        // Kinds and versions have no quotes.
        let Some(end) = rest.iter().position(|byte| *byte == b'"') else { break };
        length += name.len() + end + 1;
        length += usize::from(text.get(length) == Some(&b','));
    }
    length
}

/// Returns the watch event of a [loaded](load) object that all watchers share, if the served version is the stored
/// form.
pub(crate) fn served_frame(resource: &Resource, loaded: &Stored) -> Option<Bytes> {
    is_stored_form(resource).then(|| loaded.frame())
}

/// Sets `apiVersion` and `kind`.
pub(crate) fn set_type(object: &mut Value, group: &str, version: &str, kind: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), group_version(group, version).into());
        fields.insert("kind".into(), kind.into());
    }
}
