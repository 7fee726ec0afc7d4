//! Ownership of fields in other versions of a kind. The object is converted to compare them, as in Kubernetes
//! (`structured-merge-diff/merge/update.go`).

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value;

use super::{
    Context, FieldSet,
    compare::Comparison,
    managed::{Entry, Managers},
    merge, set_managed, take_managed,
    typed::Cursor,
};
use crate::schema::Node;

/// Converts objects of one kind to its other versions.
pub trait Versions: fmt::Debug + Sync {
    /// Returns whether a version exists.
    fn has(&self, api_version: &str) -> bool;

    /// Converts an object, without `managedFields`, to another version.
    fn convert(&self, object: &Value, api_version: &str) -> Converted<'_>;
}

/// The result of a conversion.
#[derive(Clone, Debug)]
pub enum Converted<'a> {
    /// The converted object, and the schema of the version.
    Known(Arc<Value>, Node<'a>),
    /// The conversion isn't available yet. Decisions made without it must be repeated once it is.
    Unknown,
    /// The version no longer exists. Fields owned in it have no owner.
    NoVersion,
}

/// The difference that a write makes in each version in which fields are owned.
pub(super) struct Comparisons {
    pub(super) own: Comparison,
    /// The differences in the other versions; `None` for a version that no longer exists.
    others: BTreeMap<String, Option<Comparison>>,
}

impl Comparisons {
    /// Compares two states of an object, of which the live one [fits](Context::reconciled) each version.
    ///
    /// # Errors
    /// If the new state doesn't fit a version in which fields are owned.
    pub(super) fn of(live: &Value, object: &Value, managers: &Managers, ctx: &Context<'_>) -> Result<Self, String> {
        let own = Comparison::of(Cursor::root(ctx.node), live, object);
        let is_same = own.is_empty();
        let own = restricted(own, ctx);
        let mut others = BTreeMap::new();
        let Some(versions) = ctx.versions else { return Ok(Self { own, others }) };
        for version in managers.other_versions(ctx.group_version) {
            if is_same {
                others.insert(version.to_owned(), versions.has(version).then(Comparison::default));
                continue;
            }
            let [live, object] = [live, object].map(|state| fitting(&bare(state), version, versions));
            let states = (live?, object.map_err(|why| format!("failed to convert new object: {why}"))?);
            let comparison = match states {
                (Converted::Known(live, node), Converted::Known(object, _)) => {
                    let comparison = Comparison::of(Cursor::root(node), &live, &object);
                    Some(if ctx.schema_changes { comparison } else { restricted(comparison, ctx) })
                }
                (Converted::NoVersion, _) | (_, Converted::NoVersion) => None,
                _ => continue,
            };
            others.insert(version.to_owned(), comparison);
        }
        Ok(Self { own, others })
    }

    /// Returns the difference that a creation makes. Versions that don't exist, in which it says that fields are owned,
    /// have none.
    pub(super) fn creation(new: &Value, managers: &Managers, ctx: &Context<'_>) -> Self {
        let root = Cursor::root(ctx.node);
        let own = match ctx.blank {
            Some(blank) => Comparison { removed: FieldSet::default(), ..Comparison::of(root, blank, new) },
            None => Comparison::creation(root, new),
        };
        let own = restricted(own, ctx);
        let unknown = |version: &&str| ctx.versions.is_some_and(|versions| !versions.has(version));
        let unknown = managers.other_versions(ctx.group_version).into_iter().filter(unknown);
        Self { own, others: unknown.map(|version| (version.to_owned(), None)).collect() }
    }

    /// Removes the changed and removed fields from all managers. Returns whether any manager lost a field.
    pub(super) fn release(&self, managers: &mut Managers) -> bool {
        let mut lost = false;
        for entry in &mut managers.0 {
            let Some(Comparison { changed, removed }) = self.seen_by(entry) else {
                entry.fields = FieldSet::default();
                lost = true;
                continue;
            };
            lost |= entry.fields.remove(changed);
            lost |= entry.fields.remove(removed);
        }
        managers.0.retain(|entry| !entry.fields.is_empty());
        lost
    }

    /// Returns the difference in the version of an entry, or `None` if the version no longer exists.
    pub(super) fn seen_by(&self, entry: &Entry) -> Option<&Comparison> {
        self.others.get(&entry.api_version).map_or(Some(&self.own), Option::as_ref)
    }
}

fn restricted(mut comparison: Comparison, ctx: &Context<'_>) -> Comparison {
    ctx.writable.restrict(&mut comparison.changed);
    ctx.writable.restrict(&mut comparison.removed);
    comparison
}

/// Converts an object to another version, whose schema it must fit, as in Kubernetes: without a webhook, a conversion
/// removes no fields.
///
/// # Errors
/// The way in which it doesn't.
pub(super) fn fitting<'a>(object: &Value, version: &str, versions: &'a dyn Versions) -> Result<Converted<'a>, String> {
    let converted = versions.convert(object, version);
    if let Converted::Known(object, node) = &converted {
        Cursor::root(*node).check(object).map_err(|error| error.to_string())?;
    }
    Ok(converted)
}

/// Returns an object without `managedFields`, which are not converted.
pub(super) fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    take_managed(&mut object);
    object
}

/// Removes the fields that `last` applied and that `entry`, which replaces it, does not apply, unless another manager
/// owns them.
///
/// # Errors
/// If the object doesn't fit a version in which fields are owned.
pub(super) fn prune(
    object: &mut Value,
    last: &Entry,
    entry: &Entry,
    others: &Managers,
    ctx: &Context<'_>,
) -> Result<(), String> {
    let mut owned: BTreeMap<&str, FieldSet> = BTreeMap::new();
    for owner in others.0.iter().chain([entry]) {
        let version = ctx.versions.map_or(ctx.group_version, |_| owner.api_version.as_str());
        owned.entry(version).or_default().union(owner.fields.clone());
    }
    let first = ctx.versions.map_or(ctx.group_version, |_| last.api_version.as_str());
    let owned_first = owned.remove(first).unwrap_or_default();
    if owned.is_empty() && first == ctx.group_version {
        merge::prune(Cursor::root(ctx.node), object, &last.fields, &owned_first);
        return Ok(());
    }
    let managed = take_managed(object);
    if let Some(versions) = ctx.versions {
        let why = |what: &str, why| format!("failed to prune fields: {what}: {why}");
        fitting(object, first, versions)
            .map_err(|error| why("failed to convert merged object to last applied version", error))?;
        for version in owned.keys() {
            let what = "failed add back owned items: failed to convert merged object at version";
            fitting(object, version, versions).map_err(|error| why(&format!("{what} {version}"), error))?;
        }
    }
    if let Some(pruned) = pruned(object, (first, &last.fields, &owned_first), &owned, ctx) {
        *object = pruned;
    }
    set_managed(object, managed);
    Ok(())
}

/// Prunes across several versions: a field that was removed in the version of the last apply is restored if it is owned
/// in another version. Returns `None` if nothing is removed, or if a version doesn't exist.
fn pruned(
    merged: &Value,
    (first, last, owned_first): (&str, &FieldSet, &FieldSet),
    owned: &BTreeMap<&str, FieldSet>,
    ctx: &Context<'_>,
) -> Option<Value> {
    let (mut pruned, node) = shown(merged, first, ctx)?;
    let before = pruned.clone();
    merge::prune(Cursor::root(node), &mut pruned, last, owned_first);
    if pruned == before {
        return None;
    }
    for (version, owned) in owned {
        let (mut whole, node) = shown(merged, version, ctx)?;
        let (rest, _) = shown(&pruned, version, ctx)?;
        let cursor = Cursor::root(node);
        let mut kept = cursor.created(&rest);
        kept.union(owned.clone());
        let all = cursor.created(&whole);
        merge::prune(cursor, &mut whole, &all, &kept);
        pruned = whole;
    }
    shown(&pruned, ctx.group_version, ctx).map(|(pruned, _)| pruned)
}

fn shown<'a>(object: &Value, version: &str, ctx: &Context<'a>) -> Option<(Value, Node<'a>)> {
    match ctx.versions?.convert(object, version) {
        Converted::Known(object, node) => Some((Arc::unwrap_or_clone(object), node)),
        Converted::Unknown | Converted::NoVersion => None,
    }
}
