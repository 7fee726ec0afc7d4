//! How many pods each replica set of a deployment may have.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::Roles;
use crate::controllers::value::{int, text};

/// How many pods the deployment wanted when the set got its size.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// How many there could have been then.
pub(super) const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";

/// Sets, and the sizes that they are to have.
#[derive(Debug, Default)]
pub(super) struct Sizes<'a>(pub(super) Vec<(&'a Value, i64)>);

impl Sizes<'_> {
    /// Nothing is to change.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The size that a set is to have.
pub(super) fn size(set: &Value) -> i64 {
    int(set, "/spec/replicas")
}

fn wanted(deployment: &Value) -> i64 {
    int(deployment, "/spec/replicas")
}

fn available(set: &Value) -> i64 {
    int(set, "/status/availableReplicas")
}

fn annotation(set: &Value, name: &str) -> Option<i64> {
    set["metadata"]["annotations"][name].as_str()?.parse().ok()
}

/// A number, or a percentage of `total`.
fn amount(value: &Value, total: i64, round_up: bool) -> i64 {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    match (value.as_i64(), percent) {
        (Some(number), _) => number,
        (_, Some(percent)) if round_up => (percent * total + 99).div_euclid(100),
        (_, Some(percent)) => (percent * total).div_euclid(100),
        _ => 0,
    }
}

/// How many pods there may be too many, and how many too few. Percentages of the former are rounded up, of the latter down;
/// if nothing remains of either, one may be missing, since nothing could move otherwise.
pub(super) fn leeway(deployment: &Value) -> (i64, i64) {
    let numbers = &deployment["spec"]["strategy"]["rollingUpdate"];
    let total = wanted(deployment);
    if text(deployment, "/spec/strategy/type") != "RollingUpdate" {
        return (0, 0);
    }
    let surge = amount(&numbers["maxSurge"], total, true);
    let missing = amount(&numbers["maxUnavailable"], total, false);
    let missing = if surge == 0 && missing == 0 { 1 } else { missing };
    (surge, missing.min(total))
}

/// The annotations that tell what the sizes of sets rest on.
pub(super) fn notes(deployment: &Value) -> Value {
    let total = wanted(deployment);
    json!({DESIRED: total.to_string(), MAXIMUM: (total + leeway(deployment).0).to_string()})
}

/// Whether the deployment wants another number of pods than when its sets got their sizes.
pub(super) fn is_scaled(deployment: &Value, roles: &Roles<'_>) -> bool {
    let differs = |set: &Value| annotation(set, DESIRED).is_some_and(|desired| desired != wanted(deployment));
    roles.all().any(|set| size(set) > 0 && differs(set))
}

/// The size of the set of the present template, as far as the surge lets it grow.
pub(super) fn of_new(deployment: &Value, roles: &Roles<'_>, new: Option<&Value>) -> i64 {
    let (total, before) = (wanted(deployment), new.map_or(0, size));
    if text(deployment, "/spec/strategy/type") != "RollingUpdate" {
        return total;
    }
    let room = total + leeway(deployment).0 - roles.all().map(size).sum::<i64>();
    before + room.min(total - before).max(0)
}

/// No pods for any of the sets.
pub(super) fn all_to_zero<'a>(sets: &[&'a Value]) -> Sizes<'a> {
    Sizes(sets.iter().filter(|set| size(set) > 0).map(|set| (*set, 0)).collect())
}

/// The next step from the old sets to the new one: it grows, or else they shrink.
pub(super) fn rolling<'a>(deployment: &Value, roles: &Roles<'a>, recreate: bool) -> Sizes<'a> {
    let Some(new) = roles.new else { return Sizes::default() };
    let total = wanted(deployment);
    let next = if size(new) > total { total } else { of_new(deployment, roles, Some(new)) };
    if next != size(new) {
        return Sizes(vec![(new, next)]);
    }
    if recreate { Sizes::default() } else { shrink(deployment, roles, new) }
}

/// Takes pods from the old sets: first such as aren't available, then others, as long as enough remain available.
fn shrink<'a>(deployment: &Value, roles: &Roles<'a>, new: &Value) -> Sizes<'a> {
    let least = wanted(deployment) - leeway(deployment).1;
    let unavailable = size(new) - available(new);
    let mut spare = roles.all().map(size).sum::<i64>() - least - unavailable;
    let mut sizes: Vec<_> = roles.old.iter().map(|set| (*set, size(set))).collect();
    if spare <= 0 {
        return Sizes::default();
    }
    for (set, size) in &mut sizes {
        let taken = (*size - available(set)).min(spare).max(0);
        *size -= taken;
        spare -= taken;
    }
    let mut surplus = roles.all().map(available).sum::<i64>() - least;
    for (_, size) in &mut sizes {
        let taken = surplus.min(*size).max(0);
        *size -= taken;
        surplus -= taken;
    }
    sizes.retain(|(set, next)| *next != size(set));
    Sizes(sizes)
}

/// The sizes after the deployment has been scaled, without moving on between sets: the one with pods gets all; of several
/// each gets its share, so that a rollout is neither sped up nor undone by it.
pub(super) fn scale<'a>(deployment: &Value, roles: &Roles<'a>) -> Sizes<'a> {
    let total = wanted(deployment);
    let mut active: Vec<&Value> = roles.all().filter(|set| size(set) > 0).collect();
    let alone = match active[..] {
        [] => roles.new.or(roles.old.last().copied()),
        [one] => Some(one),
        _ => None,
    };
    if let Some(set) = alone {
        let noted = annotation(set, DESIRED) == Some(total);
        return if size(set) == total && (noted || total == 0) { Sizes::default() } else { Sizes(vec![(set, total)]) };
    }
    let is_saturated =
        |set: &Value| size(set) == total && available(set) == total && annotation(set, DESIRED) == Some(total);
    if roles.new.is_some_and(is_saturated) {
        return all_to_zero(&roles.old);
    }
    if text(deployment, "/spec/strategy/type") != "RollingUpdate" {
        return Sizes::default();
    }
    let allowed = if total > 0 { total + leeway(deployment).0 } else { 0 };
    let change = allowed - active.iter().map(|set| size(set)).sum::<i64>();
    let created = |set: &Value| text(set, "/metadata/creationTimestamp").to_owned();
    if change > 0 {
        active.sort_by_key(|set| (Reverse(size(set)), Reverse(created(set))));
    } else {
        active.sort_by_key(|set| (Reverse(size(set)), created(set)));
    }
    let mut rest = change;
    let mut sizes = Vec::new();
    for set in active {
        let part = share(deployment, set, allowed).clamp(rest.min(0), rest.max(0));
        sizes.push((set, size(set) + part));
        rest -= part;
    }
    if let Some((_, first)) = sizes.first_mut() {
        *first = (*first + rest).max(0);
    }
    let differs = |set: &Value, next: i64| next != size(set) || annotation(set, DESIRED) != Some(total);
    sizes.retain(|(set, next)| differs(set, *next));
    Sizes(sizes)
}

/// By how much a set grows when all grow alike, rounded.
fn share(deployment: &Value, set: &Value, allowed: i64) -> i64 {
    if wanted(deployment) == 0 {
        return -size(set);
    }
    match annotation(set, MAXIMUM).unwrap_or_else(|| int(deployment, "/status/replicas")) {
        before @ 1.. => (2 * size(set) * allowed + before).div_euclid(2 * before) - size(set),
        _ => 0,
    }
}
