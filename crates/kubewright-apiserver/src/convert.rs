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

/// Whether this object was stored as it is served, so that its stored text can be sent as it is. When a custom resource
/// definition moves on to another storage version, objects of the earlier one stay as they are until they are written.
pub(crate) fn is_served_form(resource: &Resource, stored: &Value) -> bool {
    let version = stored["apiVersion"].as_str().unwrap_or_default();
    is_stored_form(resource)
        && version.rsplit_once('/').unwrap_or(("", version)) == (&*resource.group, &*resource.version)
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
    if is_served_form(resource, stored) {
        return stored.clone();
    }
    let mut object = (**stored).clone();
    resource.strategy.encode(&mut object);
    set_type(&mut object, &resource.group, &resource.version, &resource.kind);
    Arc::new(object)
}

/// The JSON text of the object in the served version.
pub(crate) fn served_text(resource: &Resource, stored: &Stored) -> Bytes {
    if is_served_form(resource, stored.value()) {
        stored.json()
    } else {
        to_served(resource, stored.value()).to_string().into()
    }
}

/// Sets `apiVersion` and `kind`.
pub(crate) fn set_type(object: &mut Value, group: &str, version: &str, kind: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), group_version(group, version).into());
        fields.insert("kind".into(), kind.into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::builtin;

    #[test]
    fn an_object_of_an_earlier_storage_version_is_served_in_the_present_one() {
        let pods = builtin::resources().into_iter().find(|entry| &*entry.plural == "pods").unwrap();
        let custom = Resource {
            group: "a.example.com".into(),
            version: "v2".into(),
            stored_as: ("a.example.com".into(), "v2".into(), "Pod".into()),
            ..pods
        };
        let stored = |version: &str| Arc::new(json!({"apiVersion": version, "kind": "Pod"}));
        let present = stored("a.example.com/v2");
        assert!(Arc::ptr_eq(&to_served(&custom, &present), &present));
        assert_eq!(to_served(&custom, &stored("a.example.com/v1"))["apiVersion"], "a.example.com/v2");
    }
}
