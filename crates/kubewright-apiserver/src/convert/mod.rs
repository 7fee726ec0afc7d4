//! Between the form in which objects are stored and the version in which they are served: the one place where either
//! becomes the other.
//!
//! There are two ways. A built-in kind with two faces has them in its strategy ([`to_stored`], [`to_served`]): that costs
//! nothing, and its own rules see the stored form. The versions of a custom kind ([`Versions`]) are told apart where objects
//! leave the store and enter it ([`load`], [`save`]), since a webhook may have to be asked: all between sees the version of
//! the request, as in Kubernetes.

mod owned;
mod review;
mod versions;

use std::sync::Arc;

use bytes::Bytes;
use kubewright_apimachinery::status::Status;
use serde_json::Value;

pub use self::versions::Versions;
pub(crate) use self::{
    owned::Conversions,
    review::{REVIEWS, Webhook},
    versions::Definition,
};
use crate::{discovery::group_version, registry::Resource, server::Inner, storage::Stored};

/// Whether the kind's own rules see objects as they are served.
pub(crate) fn is_stored_form(resource: &Resource) -> bool {
    let (group, version, kind) = &resource.stored_as;
    resource.versions.is_some() || (group, version, kind) == (&resource.group, &resource.version, &resource.kind)
}

/// Whether new states of objects are stored in this very version.
pub(crate) fn is_storage_version(resource: &Resource) -> bool {
    let (group, version, kind) = &resource.stored_as;
    (group, version, kind) == (&resource.group, &resource.version, &resource.kind)
}

/// Whether an object of the store can be served as it stands. Objects of a custom kind keep the version that was the stored
/// one when they were written.
pub(crate) fn is_served_form(resource: &Resource, stored: &Stored) -> bool {
    let written_in = stored.api_version().split_once('/').unwrap_or(("", stored.api_version()));
    is_stored_form(resource) && written_in == (&*resource.group, &*resource.version)
}

/// The objects in the version of the resource, if the kind is a custom one with several; in their order. It costs requests
/// to a webhook, if the definition says so: one for some hundred objects.
pub(crate) async fn load(
    server: &Arc<Inner>,
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
    for (index, shown) in others.into_iter().zip(versions.load(server, stored, &wanted).await?) {
        objects[index] = shown;
    }
    Ok(objects)
}

/// One object in the version of the resource.
pub(crate) async fn load_one(
    server: &Arc<Inner>,
    resource: &Resource,
    object: Arc<Stored>,
) -> Result<Arc<Stored>, Status> {
    let shown = load(server, resource, vec![object]).await?.pop();
    shown.ok_or_else(|| Status::internal("a conversion lost its object"))
}

/// An object of a custom kind with several versions, in that in which it is to be stored; any other object as it is.
pub(crate) async fn save(server: &Arc<Inner>, resource: &Resource, object: Value) -> Result<Value, Status> {
    let (group, version, _) = &resource.stored_as;
    match &resource.versions {
        Some(versions) => versions.convert_one(server, object, &group_version(group, version)).await,
        None => Ok(object),
    }
}

/// An object that is served as one resource, as it is served as another of the same objects.
pub(crate) async fn between(
    server: &Arc<Inner>,
    from: &Resource,
    to: &Resource,
    mut object: Value,
) -> Result<Value, Status> {
    if let Some(versions) = &to.versions {
        return versions.convert_one(server, object, &group_version(&to.group, &to.version)).await;
    }
    to_stored(from, &mut object);
    Ok(Arc::unwrap_or_clone(to_served(to, &Arc::new(object))))
}

/// Turns an object of the served version into the form that the kind's rules see.
pub(crate) fn to_stored(resource: &Resource, object: &mut Value) {
    if !is_stored_form(resource) {
        let (group, version, kind) = &resource.stored_as;
        resource.strategy.decode(object);
        set_type(object, group, version, kind);
    }
}

/// The object in the served version, from the form that the kind's rules see.
pub(crate) fn to_served(resource: &Resource, stored: &Arc<Value>) -> Arc<Value> {
    if is_stored_form(resource) {
        return stored.clone();
    }
    let mut object = (**stored).clone();
    resource.strategy.encode(&mut object);
    set_type(&mut object, &resource.group, &resource.version, &resource.kind);
    Arc::new(object)
}

/// The JSON text in the served version of an object that was [loaded](load).
pub(crate) fn served_text(resource: &Resource, loaded: &Stored) -> Bytes {
    if is_stored_form(resource) { loaded.json() } else { to_served(resource, &loaded.value()).to_string().into() }
}

/// The whole watch event of a version of an object, as everyone gets it, if it can be served as it stands.
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
