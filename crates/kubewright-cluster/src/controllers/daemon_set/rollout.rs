//! The rolling update of a daemon set.

use serde_json::Value;

use super::{Changes, View};
use crate::controllers::value::{amount, is_deleting};

/// Returns the changes that replace pods of an old revision, within `maxUnavailable` and `maxSurge`.
pub(super) fn changes<'a>(view: &View<'a>) -> Changes<'a> {
    match view.surge() {
        0 => replace(view),
        surge => replace_with_surge(view, surge),
    }
}

/// The pods of a node that aren't being deleted.
struct OnNode<'a> {
    node: &'a Value,
    new: Option<&'a Value>,
    old: Option<&'a Value>,
}

/// Returns the pods of each node that has some.
fn nodes<'a>(view: &View<'a>) -> Vec<OnNode<'a>> {
    let with_pods = view.nodes.iter().filter(|(node, _)| !view.on(node).is_empty());
    let pods = with_pods.map(|(node, _)| {
        let mut pods = view.on(node).iter().copied().filter(|pod| !is_deleting(pod));
        let new = pods.clone().find(|pod| view.is_updated(pod));
        OnNode { node, new, old: pods.find(|pod| !view.is_updated(pod)) }
    });
    pods.collect()
}

/// Deletes old pods; new ones are created when they are gone.
fn replace<'a>(view: &View<'a>) -> Changes<'a> {
    let parameters = &view.set["spec"]["updateStrategy"]["rollingUpdate"];
    let limit = match &parameters["maxUnavailable"] {
        Value::Null => 1,
        limit => amount(limit, view.desired(), true),
    };
    let (mut unavailable, mut candidates) = (0, Vec::new());
    let mut changes = Changes::default();
    for OnNode { new, old, .. } in nodes(view) {
        match (new, old) {
            (Some(new), None) => unavailable += i64::from(!view.is_available(new)),
            (None, Some(old)) if view.is_available(old) => candidates.push(old),
            (None, Some(old)) => {
                // Its replacement makes nothing worse.
                unavailable += 1;
                changes.pods.push(old);
            }
            _ => unavailable += 1,
        }
    }
    let left = usize::try_from(limit - unavailable).unwrap_or_default();
    changes.pods.extend(candidates.into_iter().take(left));
    changes
}

/// Creates new pods beside old ones, which are deleted when the new ones are available.
fn replace_with_surge<'a>(view: &View<'a>, surge: i64) -> Changes<'a> {
    let (mut present, mut available, mut candidates, mut leaving) = (0, 0, Vec::new(), Vec::new());
    let mut changes = Changes::default();
    for OnNode { node, new, old } in nodes(view) {
        let starts = view.nodes.iter().any(|(one, fit)| std::ptr::eq(*one, node) && fit.starts);
        available += i64::from(old.or(new).is_some_and(|pod| view.is_available(pod)));
        match (new, old) {
            (_, None) => {}
            (None, Some(old)) => match (view.is_available(old), starts) {
                (false, false) => changes.pods.push(old),
                (false, true) => changes.nodes.push(node),
                (true, false) => leaving.push(old),
                (true, true) => candidates.push(node),
            },
            (Some(new), Some(old)) if view.is_available(new) => changes.pods.push(old),
            (Some(_), Some(_)) => present += 1,
        }
    }
    // A pod that has to leave its node stays until the others are available.
    let surplus = usize::try_from(available - view.desired()).unwrap_or_default();
    changes.pods.extend(leaving.into_iter().take(surplus));
    let left = usize::try_from(surge - present).unwrap_or_default();
    changes.nodes.extend(candidates.into_iter().take(left));
    changes
}
