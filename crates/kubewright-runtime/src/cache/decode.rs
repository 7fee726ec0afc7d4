//! Objects as they come off the wire: one that can't be decoded must not fail the list it is in.

use std::{borrow::Cow, fmt, marker::PhantomData, sync::Arc};

use kube::{Resource, api::ObjectMeta, core::DynamicResourceScope};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

use crate::object::Object;

/// The annotation in which `kubectl apply` keeps a second copy of the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object of kind `K`, or why it isn't one.
pub(crate) struct Decoded<K> {
    /// Enough to know which object this is, also when the rest is not understood.
    pub(crate) metadata: ObjectMeta,
    /// The object, without managed fields and the last-applied annotation.
    pub(crate) object: Result<Arc<K>, String>,
}

impl<K> Clone for Decoded<K> {
    fn clone(&self) -> Self {
        Self { metadata: self.metadata.clone(), object: self.object.clone() }
    }
}

impl<K> fmt::Debug for Decoded<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoded").field("name", &self.metadata.name).finish_non_exhaustive()
    }
}

impl<'de, K: Object> Deserialize<'de> for Decoded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        strip(&mut value);
        let identity = identity(&value).ok_or_else(|| D::Error::custom("an object without metadata"))?;
        let object = serde_json::from_value(value).map(Arc::new).map_err(|error| error.to_string());
        Ok(Self { metadata: identity, object })
    }
}

/// Drops what no operator reads and what takes most of a cached object's memory.
fn strip(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.remove("managedFields");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
}

/// The fields that tell one object from another. Read one by one, so that a fault elsewhere doesn't matter.
fn identity(object: &Value) -> Option<ObjectMeta> {
    let metadata = object.get("metadata")?;
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).map(str::to_owned);
    Some(ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ..ObjectMeta::default()
    })
}

/// The wire form of a kind, for kube's watcher: the same path, but a scope that is known only at run time, so that one
/// code serves namespaced and cluster-scoped kinds.
impl<K: Object> Resource for Decoded<K> {
    type DynamicType = PhantomData<K>;
    type Scope = DynamicResourceScope;

    fn kind(_: &Self::DynamicType) -> Cow<'_, str> {
        Cow::Owned(K::kind(&()).into_owned())
    }

    fn group(_: &Self::DynamicType) -> Cow<'_, str> {
        Cow::Owned(K::group(&()).into_owned())
    }

    fn version(_: &Self::DynamicType) -> Cow<'_, str> {
        Cow::Owned(K::version(&()).into_owned())
    }

    fn plural(_: &Self::DynamicType) -> Cow<'_, str> {
        Cow::Owned(K::plural(&()).into_owned())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{ResourceExt, core::ObjectList};
    use serde_json::json;

    use super::*;

    #[test]
    fn one_bad_object_leaves_the_rest_of_the_list_readable() {
        let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "9"}, "items": [
            {"metadata": {"name": "good", "namespace": "a", "resourceVersion": "3"}, "data": {"k": "v"}},
            {"metadata": {"name": "bad", "namespace": "a", "resourceVersion": "4"}, "data": "not a map"},
        ]});
        let list: ObjectList<Decoded<ConfigMap>> = serde_json::from_value(list).expect("the list is readable");
        let good = list.items[0].object.as_ref().expect("the first is a config map");
        assert_eq!(good.data.as_ref().and_then(|data| data.get("k")).map(String::as_str), Some("v"));
        assert!(list.items[1].object.as_ref().is_err_and(|why| why.contains("invalid type")));
        assert_eq!(list.items[1].name_any(), "bad");
    }

    #[test]
    fn managed_fields_and_the_last_applied_copy_are_dropped() {
        let object = json!({"metadata": {
            "name": "a", "managedFields": [{"manager": "kubectl"}], "annotations": {LAST_APPLIED: "{}", "kept": "yes"},
        }});
        let decoded: Decoded<ConfigMap> = serde_json::from_value(object).expect("decodes");
        let object = decoded.object.expect("is a config map");
        assert!(object.managed_fields().is_empty());
        assert_eq!(object.annotations().keys().collect::<Vec<_>>(), ["kept"]);
    }
}
