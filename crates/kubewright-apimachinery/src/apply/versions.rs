//! Fields that others own in other versions of a kind: what a write does to them is seen by converting the object, as in
//! Kubernetes (`structured-merge-diff/merge/update.go`).

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

/// How objects of one kind look in its other versions.
pub trait Versions: fmt::Debug + Sync {
    /// An object in another version. It has no `managedFields`.
    fn convert(&self, object: &Value, api_version: &str) -> Converted<'_>;
}

/// What comes of a conversion.
#[derive(Clone, Debug)]
pub enum Converted<'a> {
    /// The object as the version has it, and the schema of that.
    Known(Arc<Value>, Node<'a>),
    /// It isn't known yet. What is decided without it is to be decided anew when it is.
    Unknown,
    /// There is no such version any more: what is owned in it is nobody's.
    NoVersion,
}

/// What a write changed, as each version has it in which someone owns fields.
pub(super) struct Comparisons {
    pub(super) own: Comparison,
    /// Those of other versions; none of one that is gone.
    others: BTreeMap<String, Option<Comparison>>,
}

impl Comparisons {
    /// What was changed between two states of an object.
    pub(super) fn of(live: &Value, object: &Value, managers: &Managers, ctx: &Context<'_>) -> Self {
        let own = compared(Cursor::root(ctx.node), live, object, ctx);
        let mut others = BTreeMap::new();
        let (false, Some(versions)) = (own.is_empty(), ctx.versions) else { return Self { own, others } };
        let elsewhere = managers.0.iter().filter(|entry| entry.api_version != ctx.group_version);
        for version in elsewhere.map(|entry| &entry.api_version) {
            if others.contains_key(version) {
                continue;
            }
            let states = [live, object].map(|state| versions.convert(&bare(state), version));
            let comparison = match states {
                [Converted::Known(live, node), Converted::Known(object, _)] => {
                    Some(compared(Cursor::root(node), &live, &object, ctx))
                }
                [Converted::NoVersion, _] | [_, Converted::NoVersion] => None,
                _ => continue,
            };
            others.insert(version.clone(), comparison);
        }
        Self { own, others }
    }

    /// What was created.
    pub(super) fn creation(new: &Value, ctx: &Context<'_>) -> Self {
        let own = restricted(Comparison::creation(Cursor::root(ctx.node), new), ctx);
        Self { own, others: BTreeMap::new() }
    }

    /// What was changed as the version has it in which an entry owns its fields; none if that is gone.
    pub(super) fn seen_by(&self, entry: &Entry) -> Option<&Comparison> {
        self.others.get(&entry.api_version).map_or(Some(&self.own), Option::as_ref)
    }
}

fn compared(root: Cursor<'_>, live: &Value, object: &Value, ctx: &Context<'_>) -> Comparison {
    restricted(Comparison::of(root, live, object), ctx)
}

fn restricted(mut comparison: Comparison, ctx: &Context<'_>) -> Comparison {
    ctx.writable.restrict(&mut comparison.changed);
    ctx.writable.restrict(&mut comparison.removed);
    comparison
}

/// An object as it is converted.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    take_managed(&mut object);
    object
}

/// Takes out of `object` what `last` applied and `entry`, which takes its place, doesn't, unless someone holds it.
pub(super) fn prune(object: &mut Value, last: &Entry, entry: &Entry, others: &Managers, ctx: &Context<'_>) {
    let mut held: BTreeMap<&str, FieldSet> = BTreeMap::new();
    for holder in others.0.iter().chain([entry]) {
        let version = ctx.versions.map_or(ctx.group_version, |_| holder.api_version.as_str());
        held.entry(version).or_default().union(holder.fields.clone());
    }
    let first = ctx.versions.map_or(ctx.group_version, |_| last.api_version.as_str());
    let held_first = held.remove(first).unwrap_or_default();
    if held.is_empty() && first == ctx.group_version {
        return merge::prune(Cursor::root(ctx.node), object, &last.fields, &held_first);
    }
    let managed = take_managed(object);
    if let Some(pruned) = pruned(object, (first, &last.fields, &held_first), &held, ctx) {
        *object = pruned;
    }
    set_managed(object, managed);
}

/// The same where several versions are concerned: what was taken out in the version last applied in is put back as far as someone
/// holds it in another. None if nothing goes, or a version isn't there.
fn pruned(
    merged: &Value,
    (first, last, held_first): (&str, &FieldSet, &FieldSet),
    held: &BTreeMap<&str, FieldSet>,
    ctx: &Context<'_>,
) -> Option<Value> {
    let (mut pruned, node) = shown(merged, first, ctx)?;
    let before = pruned.clone();
    merge::prune(Cursor::root(node), &mut pruned, last, held_first);
    if pruned == before {
        return None;
    }
    for (version, held) in held {
        let (mut whole, node) = shown(merged, version, ctx)?;
        let (rest, _) = shown(&pruned, version, ctx)?;
        let cursor = Cursor::root(node);
        let mut kept = cursor.created(&rest);
        kept.union(held.clone());
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
