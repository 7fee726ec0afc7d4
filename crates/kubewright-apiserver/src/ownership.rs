//! Who owns which field: the pipeline's side of server-side apply.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use kubewright_apimachinery::{
    apply::{self, Context, FieldSet, Writable},
    status::Status,
};
use serde_json::Value;

use crate::{
    convert::{self, Conversions},
    discovery::group_version,
    meta,
    registry::Resource,
};

static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of(["status"]));

/// Who writes, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    /// The field manager.
    pub(crate) manager: &'a str,
    /// The subresource written to; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The write is an apply, which records its ownership itself.
    pub(crate) applies: bool,
    /// Whether an apply takes what others own.
    pub(crate) force: bool,
    /// The time of the request.
    pub(crate) now: Timestamp,
    /// How the object looks in other versions.
    pub(crate) conversions: &'a Conversions,
}

impl Owner<'_> {
    fn with<T>(&self, resource: &Resource, use_it: impl FnOnce(&Context<'_>) -> T) -> T {
        let writable = match self.subresource {
            "status" => Writable::Only(&STATUS),
            _ if resource.status => Writable::Except(&STATUS),
            _ => Writable::All,
        };
        let versions = self.conversions.of(resource);
        use_it(&Context {
            node: resource.schema.node(),
            group_version: &group_version(&resource.group, &resource.version),
            manager: self.manager,
            subresource: Some(self.subresource).filter(|name| !name.is_empty()),
            force: self.force,
            now: self.now,
            writable,
            versions: versions.as_ref().map(|versions| versions as &dyn apply::Versions),
        })
    }

    /// Applies a configuration to an object, or to none; both in served form.
    pub(crate) fn apply(&self, resource: &Resource, live: Option<&Value>, config: &Value) -> Result<Value, Status> {
        self.with(resource, |context| apply::apply(live, config, context))
    }

    /// Records who owns the fields of an object in its stored form, which replaces `old` (served form) or is new.
    pub(crate) fn track(&self, resource: &Resource, old: Option<&Value>, object: Value) -> Value {
        if self.applies {
            return object;
        }
        if convert::is_stored_form(resource) {
            return self.with(resource, |context| apply::update(old, object, context));
        }
        let served = convert::to_served(resource, &Arc::new(object.clone()));
        let tracked = self.with(resource, |context| apply::update(old, (*served).clone(), context));
        let mut object = object;
        meta::set(&mut object, "managedFields", tracked["metadata"].get("managedFields").cloned());
        object
    }
}
