//! Between the form in which objects are stored and the version in which they are served.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::{discovery::group_version, registry::Resource, storage::Stored};

/// Whether objects are stored as they are served, so that the stored text can be sent as it is.
pub(crate) fn is_stored_form(resource: &Resource) -> bool {
    let (group, version, kind) = &resource.stored_as;
    (group, version, kind) == (&resource.group, &resource.version, &resource.kind)
}

/// Whether an object of the store can be served as it stands. Objects of a custom kind keep the version that was the stored
/// one when they were written.
fn is_served_form(resource: &Resource, api_version: &str) -> bool {
    let written_in = api_version.split_once('/').unwrap_or(("", api_version));
    is_stored_form(resource) && written_in == (&*resource.group, &*resource.version)
}

/// Turns an object of the served version into the stored form.
pub(crate) fn to_stored(resource: &Resource, object: &mut Value) {
    if !is_stored_form(resource) {
        let (group, version, kind) = &resource.stored_as;
        resource.strategy.decode(object);
        set_type(object, group, version, kind);
    }
}

/// The object in the served version.
pub(crate) fn to_served(resource: &Resource, stored: &Arc<Value>) -> Arc<Value> {
    if is_served_form(resource, stored["apiVersion"].as_str().unwrap_or_default()) {
        return stored.clone();
    }
    let mut object = (**stored).clone();
    if !is_stored_form(resource) {
        resource.strategy.encode(&mut object);
    }
    set_type(&mut object, &resource.group, &resource.version, &resource.kind);
    Arc::new(object)
}

/// The JSON text of the object in the served version.
pub(crate) fn served_text(resource: &Resource, stored: &Stored) -> Bytes {
    if is_served_form(resource, stored.api_version()) {
        stored.json()
    } else {
        to_served(resource, &stored.value()).to_string().into()
    }
}

/// The whole watch event of a version of an object, as everyone gets it, if it can be served as it stands.
pub(crate) fn served_frame(resource: &Resource, stored: &Stored) -> Option<Bytes> {
    is_served_form(resource, stored.api_version()).then(|| stored.frame())
}

/// Sets `apiVersion` and `kind`.
pub(crate) fn set_type(object: &mut Value, group: &str, version: &str, kind: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), group_version(group, version).into());
        fields.insert("kind".into(), kind.into());
    }
}
