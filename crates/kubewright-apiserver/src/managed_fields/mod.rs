//! Managed fields, which record the owners of an object's fields
//! (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>).

mod body;
mod conversions;
mod scale;

use std::sync::LazyLock;

use jiff::Timestamp;
use kubewright_apimachinery::{
    apply::{self, Context, FieldSet, Writable},
    status::Status,
};
use serde_json::Value;

use self::conversions::BuiltinConversions;
pub(crate) use self::conversions::Conversions;
use crate::{group_version::group_version, meta, object_type::ObjectType, registry::Resource};

/// The fields that a write to an object with a status subresource can't change.
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
    fn with_context<T>(&self, resource: &Resource, run: impl FnOnce(&Context<'_>) -> T) -> T {
        let part = resource.lifecycle.part_resets.iter().find(|(part, _)| *part == self.subresource);
        let writable = match self.subresource {
            _ if let Some((_, resets)) = part => Writable::Except(resets),
            "status" => Writable::Except(&resource.lifecycle.status_resets),
            // In Kubernetes, these writes own what they send, even fields that they can't change.
            part if resource.has_part(part) => Writable::All,
            _ if resource.status => Writable::Except(&STATUS),
            _ => Writable::All,
        };
        let (custom, builtin) = (self.conversions.of(resource), BuiltinConversions::of(resource));
        let custom = custom.as_ref().map(|versions| versions as &dyn apply::Versions);
        let builtin = builtin.as_ref().map(|versions| versions as &dyn apply::Versions);
        run(&Context {
            blank: resource.schema.served.map(ObjectType::blank),
            schema_changes: resource.schema.custom,
            node: resource.schema.node(),
            group_version: &group_version(&resource.group, &resource.version),
            kind: &resource.kind,
            manager: self.name,
            subresource: Some(self.subresource).filter(|name| !name.is_empty()),
            force: self.force,
            now: Some(self.now),
            writable,
            versions: custom.or(builtin),
        })
    }

    /// Applies a configuration to the live object, if there is one. All are in served form.
    pub(crate) fn apply(&self, resource: &Resource, live: Option<&Value>, config: &Value) -> Result<Value, Status> {
        let applied = self.with_context(resource, |context| apply::apply(live, config, context));
        let is_decided = applied.as_ref().err().is_none_or(|error| error.code == 409);
        let managed = live.and_then(|live| live["metadata"].get("managedFields")).filter(|_| is_decided);
        match managed.and_then(|managed| removed_version(resource, managed)) {
            Some(version) => {
                Err(Status::unknown(format!("request to convert CR to an invalid group/version: {version}")))
            }
            None => applied,
        }
    }

    /// Records the owners of the fields of an object, which is new or replaces `old`. Both are in served form.
    pub(crate) fn track(&self, resource: &Resource, old: Option<&Value>, object: Value) -> Value {
        if self.applies {
            return object;
        }
        let managed = old.filter(|_| resource.schema.custom).and_then(|old| {
            let [sent, stored] = [&object, old].map(|object| object["metadata"].get("managedFields"));
            apply::current_ownership(sent.cloned(), stored, Some(self.subresource).filter(|name| !name.is_empty()))
        });
        let is_lost = managed.is_some_and(|managed| removed_version(resource, &managed).is_some());
        let mut tracked = self.with_context(resource, |context| apply::update(old, object, context));
        if is_lost {
            meta::set(&mut tracked, "managedFields", None);
        }
        tracked
    }
}

/// Returns a version in which fields of a custom object are owned, but which its CRD no longer has. As in Kubernetes,
/// such an object can't be applied, and loses all owners with the next update.
fn removed_version(resource: &Resource, managed: &Value) -> Option<String> {
    let is_known = |version: &str| {
        let versions = resource.versions.as_ref();
        version == group_version(&resource.group, &resource.version)
            || versions.is_some_and(|versions| versions.schema(version).is_some())
    };
    let entries = managed.as_array().into_iter().flatten().filter(|_| resource.schema.custom);
    let mut versions = entries.filter_map(|entry| entry["apiVersion"].as_str());
    versions.find(|version| !is_known(version)).map(str::to_owned)
}

/// Restores the managed fields of an object that admission changed, if they are invalid now. Returns the warning about
/// them.
pub(crate) fn repair(before: Option<Value>, object: &mut Value) -> Option<String> {
    let managed = object["metadata"].get("managedFields").filter(|managed| !managed.is_null())?;
    let why = apply::check_managed_fields(managed).err()?;
    meta::set(object, "managedFields", before);
    Some(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
         admission controller; please fix your requests: {why}"
    ))
}
