//! Owners of the fields of objects that subresources take and that aren't stored, such as bindings and token requests.

use kubewright_apimachinery::{
    apply::{self, Context, Writable},
    schema::Node,
};
use serde_json::Value;

use super::Manager;
use crate::{group_version::group_version, object_type::ObjectType, registry::builtin::schemas};

impl Manager<'_> {
    /// Records the owners of the fields of an object of a built-in kind. What it says about owners itself is ignored.
    pub(crate) fn track_body(&self, (group, version, kind): (&str, &str, &str), object: Value) -> Value {
        let package = group.split('.').next().filter(|name| !name.is_empty()).unwrap_or("core");
        let schema = schemas::reference(&format!("io.k8s.api.{package}.{version}.{kind}"));
        let definitions = schemas::definitions();
        let context = Context {
            node: Node::new(&schema, &definitions),
            group_version: &group_version(group, version),
            kind,
            manager: self.name,
            subresource: Some(self.subresource).filter(|name| !name.is_empty()),
            force: false,
            now: Some(self.now),
            writable: Writable::All,
            blank: ObjectType::of(group, version, kind).map(ObjectType::blank),
            schema_changes: false,
            versions: None,
        };
        apply::update(None, object, &context)
    }
}
