//! Managed fields, which record the owners of an object's fields
//! (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>).

mod conversions;

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use kubewright_apimachinery::{
    apply::{self, Context, FieldSet, Writable},
    status::Status,
};
use serde_json::Value;

pub(crate) use self::conversions::Conversions;
use crate::{codec, group_version::group_version, meta, object_type::ObjectType, registry::Resource};

static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of(["status"]));

/// The field manager of a write, and the type of the write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manager<'a> {
    /// The manager's name.
    pub(crate) name: &'a str,
    /// The subresource that is written; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// True if the write is an apply, which records ownership itself.
    pub(crate) applies: bool,
    /// True if an apply takes over fields that others own.
    pub(crate) force: bool,
    /// The time of the request.
    pub(crate) now: Timestamp,
    /// The object in other versions.
    pub(crate) conversions: &'a Conversions,
}

impl Manager<'_> {
    fn with_context<T>(&self, resource: &Resource, blank: Option<&Value>, run: impl FnOnce(&Context<'_>) -> T) -> T {
        let writable = match self.subresource {
            "status" => Writable::Only(&STATUS),
            _ if resource.status => Writable::Except(&STATUS),
            _ => Writable::All,
        };
        let versions = self.conversions.of(resource);
        run(&Context {
            blank,
            node: resource.schema.node(),
            group_version: &group_version(&resource.group, &resource.version),
            manager: self.name,
            subresource: Some(self.subresource).filter(|name| !name.is_empty()),
            force: self.force,
            now: self.now,
            writable,
            versions: versions.as_ref().map(|versions| versions as &dyn apply::Versions),
        })
    }

    /// Applies a configuration to the live object, if there is one. All are in served form.
    pub(crate) fn apply(&self, resource: &Resource, live: Option<&Value>, config: &Value) -> Result<Value, Status> {
        self.with_context(resource, None, |context| apply::apply(live, config, context))
    }

    /// Records the owners of the fields of an object in stored form, which is new or replaces `old` (in served form).
    pub(crate) fn track(&self, resource: &Resource, old: Option<&Value>, object: Value) -> Value {
        if self.applies {
            return object;
        }
        let blank = resource.schema.served.filter(|_| old.is_none()).map(ObjectType::blank);
        if codec::is_stored_form(resource) {
            return self.with_context(resource, blank.as_ref(), |context| apply::update(old, object, context));
        }
        let served = codec::to_served(resource, &Arc::new(object.clone()));
        let tracked =
            self.with_context(resource, blank.as_ref(), |context| apply::update(old, (*served).clone(), context));
        let mut object = object;
        meta::set(&mut object, "managedFields", tracked["metadata"].get("managedFields").cloned());
        object
    }
}
