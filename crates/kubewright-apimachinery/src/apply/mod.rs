//! Server-side apply and field ownership (<https://kubernetes.io/docs/reference/using-api/server-side-apply/>).
//!
//! Every write to an object calls [`apply`] if it applies a configuration, and [`update`] otherwise. Both return the
//! object with up-to-date `metadata.managedFields`. Neither defaults, prunes nor validates. The caller does this
//! afterwards, since a manager doesn't own fields that are absent from its configuration.
//!
//! Fields that are owned in another version of the kind are compared in that version ([`Versions`]). Without versions,
//! all versions are assumed to have the same fields. When the schema makes a list or map atomic, who owned something in
//! it owns it as a whole.

mod compare;
mod conflict;
mod fields;
mod last_applied;
mod managed;
mod merge;
mod scale;
mod typed;
mod versions;

use jiff::Timestamp;
use serde_json::{Map, Value};

use self::{
    conflict::Conflict,
    managed::{Entry, Managers, Operation},
    typed::{Cursor, SchemaError},
    versions::Comparisons,
};
pub use self::{
    fields::{FieldSet, FieldsError, PathElement},
    scale::{SCALE_VERSION, owners_after_scale, owners_in_scale},
    versions::{Converted, Versions},
};
use crate::{name, schema::Node, status::Status};

/// The manager of fields that were set before ownership was recorded.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The parameters of a write that determine ownership.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The schema of the kind.
    pub node: Node<'a>,
    /// True for a custom kind, whose fields may have been recorded by an earlier schema. As in Kubernetes, what a write
    /// to it can't change is ignored in its own version only, not in the others.
    pub schema_changes: bool,
    /// The `apiVersion` that is written: `v1`, `apps/v1`.
    pub group_version: &'a str,
    /// The kind that is written.
    pub kind: &'a str,
    /// The field manager: the request's `fieldManager` or, by default, the user agent's name.
    pub manager: &'a str,
    /// The subresource that is written. Different subresources have separate managers.
    pub subresource: Option<&'a str>,
    /// Forces an apply: it takes over fields that others own. An update always does.
    pub force: bool,
    /// The time of the request, if it is recorded. Kubernetes doesn't record that of writes through `scale`.
    pub now: Option<Timestamp>,
    /// The fields that this write can change.
    pub writable: Writable<'a>,
    /// The object in which no field is set, if it isn't empty. A creation doesn't own what it has in common with it.
    pub blank: Option<&'a Value>,
    /// The other versions of the kind, if they may have other fields.
    pub versions: Option<&'a dyn Versions>,
}

/// The fields that a write to a resource or subresource can change. The server resets all other fields afterwards, so a
/// write doesn't acquire them. The set consists of named fields, as [`FieldSet::of`] creates it.
#[derive(Clone, Copy, Debug)]
pub enum Writable<'a> {
    /// All fields.
    All,
    /// All but these: a resource with a `status` subresource, or the subresource.
    Except(&'a FieldSet),
}

impl Writable<'_> {
    fn restrict(self, fields: &mut FieldSet) {
        match self {
            Self::All => {}
            Self::Except(others) => drop(fields.subtract(others)),
        }
    }
}

impl Context<'_> {
    /// Adapts the fields of the managers of an object to the schemas of the versions in which they own them.
    ///
    /// # Errors
    /// If the object doesn't fit one of these versions.
    fn reconciled(&self, live: Option<&Value>, mut managers: Managers) -> Result<Managers, String> {
        if !self.schema_changes {
            return Ok(managers);
        }
        managers.reconcile(self.group_version, self.node);
        let (Some(live), Some(versions)) = (live, self.versions) else { return Ok(managers) };
        let others: Vec<_> = managers.other_versions(self.group_version).into_iter().map(str::to_owned).collect();
        for version in others {
            if let Converted::Known(_, node) = versions::fitting(&versions::bare(live), &version, versions)? {
                managers.reconcile(&version, node);
            }
        }
        Ok(managers)
    }

    fn entry(&self, operation: Operation, manager: &str, fields: FieldSet) -> Entry {
        Entry {
            manager: manager.to_owned(),
            operation,
            api_version: self.group_version.to_owned(),
            subresource: self.subresource.unwrap_or_default().to_owned(),
            time: self.now,
            fields,
        }
    }
}

/// Applies `config` to the live object, or creates an object from it. Returns the object to store. If the apply changes
/// nothing, the result equals `live`, including ownership and times.
///
/// The manager then owns all fields of `config`. Fields that it applied before but no longer applies are removed,
/// unless another manager owns them.
///
/// # Errors
/// Returns 409 with a cause for each field that another manager owns and `config` would change, unless forced. Returns
/// 400 if `config` has another type or managed fields, and 500 if it has a field that the schema doesn't declare, a
/// value of another type, or list items without keys or with equal keys, or if the live object doesn't fit the schema
/// or a version in which fields are owned.
pub fn apply(live: Option<&Value>, config: &Value, ctx: &Context<'_>) -> Result<Value, Status> {
    let Value::Object(applied) = config else { return Err(Status::bad_request("an apply patch must be an object")) };
    check_config(applied, ctx)?;
    let root = Cursor::root(ctx.node);
    let mut fields = root.claimed(config).map_err(|why| schema_mismatch("patch", config, &why))?;
    ctx.writable.restrict(&mut fields);
    let entry = ctx.entry(Operation::Apply, ctx.manager, fields);
    let Some(live) = live else {
        let mut object = config.clone();
        set_managed(&mut object, Managers(vec![entry]).encode());
        return Ok(object);
    };
    if ctx.schema_changes {
        root.check(live).map_err(|why| schema_mismatch("live", live, &why))?;
    }
    let managers = Managers::decode(managed_fields(live)).map_err(Status::internal)?;
    let managers = ctx.reconciled(Some(live), managers).map_err(Status::unknown)?;
    apply_to_live(root, live, config, entry, managers, ctx)
}

/// Returns the error about an object that doesn't fit the schema.
fn schema_mismatch(what: &str, object: &Value, why: &SchemaError) -> Status {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    Status::unknown(format!(
        "failed to create typed {what} object ({}/{}; {}{version}, Kind={}): {why}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        if version.contains('/') { "" } else { "/" },
        text("/kind")
    ))
}

fn check_config(config: &Map<String, Value>, ctx: &Context<'_>) -> Result<(), Status> {
    let text = |field: &str| config.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if (name::api_version(version), kind) != (ctx.group_version, ctx.kind) {
        let slash = if version.contains('/') { "" } else { "/" };
        return Err(Status::bad_request(format!("invalid object type: {slash}{version}, Kind={kind}")));
    }
    if config.get("metadata").and_then(|metadata| metadata.get("managedFields")).is_some_and(|list| !list.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

fn apply_to_live(
    root: Cursor<'_>,
    live: &Value,
    config: &Value,
    mut entry: Entry,
    mut managers: Managers,
    ctx: &Context<'_>,
) -> Result<Value, Status> {
    if managers.0.is_empty() {
        let fields = Comparisons::creation(live, &managers, ctx).own.changed;
        managers.0.push(ctx.entry(Operation::Update, BEFORE_FIRST_APPLY, fields));
    }
    let last = managers.take(&entry);
    let mut applied = config.clone();
    let sends_metadata = take_servers_metadata(&mut applied, live);

    let mut object = live.clone();
    merge::merge(root, &mut object, &applied);
    if let Some(last) = &last {
        versions::prune(&mut object, last, &entry, &managers, ctx).map_err(Status::unknown)?;
        drop_name(&mut object, last, config);
    }

    let changes = Comparisons::of(live, &object, &managers, ctx).map_err(Status::unknown)?;
    if !ctx.force {
        refuse_conflicts(root, live, &managers, &changes, ctx)?;
    }
    let lost = changes.release(&mut managers);
    // As in Kubernetes, an apply that only adds owners has no time, unless it sends metadata that isn't its own.
    entry.time = if object == *live && !sends_metadata { last.as_ref().and_then(|last| last.time) } else { ctx.now };
    if ctx.manager == last_applied::MANAGER {
        last_applied::follow(&mut object, config);
    }
    let is_known = last.is_some_and(|last| Entry { time: entry.time, ..last } == entry);
    if object == *live && !lost && is_known {
        return Ok(object);
    }
    managers.0.push(entry);
    set_managed(&mut object, managers.encode());
    Ok(object)
}

/// Removes the name of an object whose metadata isn't applied any more. As in Kubernetes, the whole metadata is removed
/// then, and an object without a name is refused.
fn drop_name(object: &mut Value, last: &Entry, config: &Value) {
    let applied = |element: &PathElement| element.as_field() == Some("metadata");
    if config.get("metadata").is_none()
        && last.fields.children().iter().any(|(element, _)| applied(element))
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.remove("name");
    }
}

/// Removes metadata that only the server sets. Clients often send it, mostly as null. Returns whether it differs from
/// that of the live object.
fn take_servers_metadata(applied: &mut Value, live: &Value) -> bool {
    let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut) else { return false };
    let sent =
        ["creationTimestamp", "generation", "selfLink", "managedFields"].map(|name| (name, metadata.remove(name)));
    sent.iter()
        .any(|(name, sent)| *name != "managedFields" && sent.is_some() && live["metadata"].get(name) != sent.as_ref())
}

fn refuse_conflicts(
    root: Cursor<'_>,
    live: &Value,
    managers: &Managers,
    changes: &Comparisons,
    ctx: &Context<'_>,
) -> Result<(), Status> {
    let mut conflicts: Vec<_> = managers
        .0
        .iter()
        .filter_map(|other| Some(Conflict::new(other, other.fields.intersection(&changes.seen_by(other)?.changed))))
        .filter(|conflict| !conflict.fields.is_empty())
        .collect();
    if !conflicts.is_empty()
        && ctx.manager == last_applied::MANAGER
        && let Some(ours) = last_applied::unchanged(root, live, ctx.group_version)
    {
        for conflict in &mut conflicts {
            conflict.fields.remove(&ours);
        }
        conflicts.retain(|conflict| !conflict.fields.is_empty());
    }
    if conflicts.is_empty() { Ok(()) } else { Err(conflict::status(conflicts)) }
}

/// Returns `new` with updated ownership, for a creation or for any write other than an apply.
///
/// The manager then owns the fields that `new` changes, and all other managers lose them. An object without recorded
/// ownership remains without it. The current ownership is taken from `managedFields` in `new` or, if they are absent or
/// invalid or the write is to a subresource, from the live object. `[]`, `[{}]` and entries without fields reset it.
pub fn update(live: Option<&Value>, mut new: Value, ctx: &Context<'_>) -> Value {
    let sent = take_managed(&mut new);
    let managed = current_ownership(sent, live.and_then(managed_fields), ctx.subresource);
    let managers = Managers::decode(managed.as_ref()).unwrap_or_default();
    if live.is_some() && managed.is_none() {
        return new;
    }
    // As in Kubernetes, an object that doesn't fit a version in which fields are owned loses all owners.
    let Ok((mut managers, changes)) = compare_versions(live, &new, managers, ctx) else { return new };
    if changes.own.changed.has_item_without_key() {
        return new;
    }
    let lost = changes.release(&mut managers);
    if changes.own.is_empty() && !lost && !managers.have_excess() {
        set_managed(&mut new, managed);
        return new;
    }
    if !changes.own.changed.is_empty() {
        let mut entry = ctx.entry(Operation::Update, ctx.manager, changes.own.changed);
        if let Some(before) = managers.take(&entry) {
            entry.fields.union(before.fields);
        }
        managers.0.push(entry);
    }
    managers.cap_updates();
    set_managed(&mut new, managers.encode());
    new
}

/// Adapts the managers of a live object to the schemas, and compares it, or nothing, with the new one in each version
/// in which fields are owned.
fn compare_versions(
    live: Option<&Value>,
    new: &Value,
    managers: Managers,
    ctx: &Context<'_>,
) -> Result<(Managers, Comparisons), String> {
    let managers = ctx.reconciled(live, managers)?;
    if ctx.schema_changes {
        // Objects of built-in kinds fit their types, except for items without keys.
        let root = Cursor::root(ctx.node);
        live.into_iter().chain([new]).try_for_each(|object| root.check(object)).map_err(|why| why.to_string())?;
    }
    let changes = match live {
        Some(live) => Comparisons::of(live, new, &managers, ctx)?,
        None => Comparisons::creation(new, &managers, ctx),
    };
    Ok((managers, changes))
}

/// Returns the `managedFields` before an update, given those of the sent and of the stored object, and the subresource
/// that is written.
pub fn current_ownership(sent: Option<Value>, stored: Option<&Value>, subresource: Option<&str>) -> Option<Value> {
    match sent {
        Some(sent) if Some(&sent) == stored => Some(sent),
        Some(sent) if subresource.is_none() && managed::is_reset(&sent) => None,
        Some(sent) if subresource.is_none() => {
            Managers::decode(Some(&sent)).map_or_else(|_| stored.cloned(), Managers::encode)
        }
        _ => stored.cloned(),
    }
}

/// Merges a configuration into an object without owners, as mutating admission policies do.
///
/// # Errors
/// If the configuration doesn't match the schema, or has atomic lists or maps, which can't be merged.
pub fn merge_configuration(node: Node<'_>, live: &Value, config: &Value) -> Result<Value, String> {
    let cursor = Cursor::root(node);
    let checked = cursor.refuse_nulls(config).and_then(|()| cursor.claimed(config));
    checked.map_err(|error| format!("failed to convert patch object to typed object: {error}"))?;
    let mut atomics = Vec::new();
    cursor.collect_atomics(config, "", &mut atomics);
    if !atomics.is_empty() {
        let paths = atomics.join(", ");
        return Err(format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}"));
    }
    let mut merged = live.clone();
    merge::merge(cursor, &mut merged, config);
    Ok(merged)
}

/// Checks a `managedFields` list.
///
/// # Errors
/// If an entry is malformed.
pub fn check_managed_fields(managed: &Value) -> Result<(), String> {
    Managers::decode(Some(managed)).map(drop).map_err(|error| error.to_string())
}

/// Returns `new`, but with the ownership of `live` if the two differ only in the times of ownership. After defaulting,
/// the write then changes nothing.
pub fn ignore_timestamps(live: &Value, mut new: Value) -> Value {
    let timeless = |managed: Option<Value>| {
        let mut managers = Managers::decode(managed.as_ref()).ok()?;
        for entry in &mut managers.0 {
            entry.time = None;
        }
        managers.encode()
    };
    let managed = take_managed(&mut new);
    if managed.as_ref() != managed_fields(live) && timeless(managed.clone()) != timeless(managed_fields(live).cloned())
    {
        set_managed(&mut new, managed);
        return new;
    }
    set_managed(&mut new, managed_fields(live).cloned());
    if new != *live {
        take_managed(&mut new);
        set_managed(&mut new, managed);
    }
    new
}

fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

fn take_managed(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn set_managed(object: &mut Value, managed: Option<Value>) {
    let Value::Object(object) = object else { return };
    let Some(metadata) = object.entry("metadata").or_insert_with(|| Value::Object(Map::new())).as_object_mut() else {
        return;
    };
    match managed {
        Some(managed) => drop(metadata.insert("managedFields".to_owned(), managed)),
        None => drop(metadata.remove("managedFields")),
    }
}

#[cfg(test)]
mod tests;
