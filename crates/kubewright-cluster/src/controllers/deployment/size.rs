//! The number of pods of each replica set of a deployment.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::ReplicaSetRoles;
use crate::controllers::value::{amount, int, text};

/// The annotation with the deployment's replicas at the time when the replica set was sized.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The annotation with the maximum number of pods at that time.
pub(super) const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";

/// Replica sets and the sizes that they need.
#[derive(Debug, Default)]
pub(super) struct Sizes<'a>(pub(super) Vec<(&'a Value, i64)>);

impl Sizes<'_> {
    /// Returns whether nothing has to change.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the wanted size of a replica set.
pub(super) fn size(set: &Value) -> i64 {
    int(set, "/spec/replicas")
}

fn wanted(deployment: &Value) -> i64 {
    int(deployment, "/spec/replicas")
}

/// Returns the number of available pods that a replica set keeps. Its status may be older than its size.
fn available(set: &Value) -> i64 {
    int(set, "/status/availableReplicas").min(size(set))
}

fn annotation(set: &Value, name: &str) -> Option<i64> {
    set["metadata"]["annotations"][name].as_str()?.parse().ok()
}

/// Returns the maximum surge and the maximum number of unavailable pods. Percentages are rounded up for the surge and
/// down for unavailable pods. If both are zero, one pod may be unavailable, since the rollout couldn't progress
/// otherwise.
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

/// Returns the annotations that record the basis of the sizes.
pub(super) fn notes(deployment: &Value) -> Value {
    let total = wanted(deployment);
    json!({DESIRED: total.to_string(), MAXIMUM: (total + leeway(deployment).0).to_string()})
}

/// Returns whether the deployment was scaled since its replica sets were sized.
pub(super) fn is_scaled(deployment: &Value, roles: &ReplicaSetRoles<'_>) -> bool {
    let differs = |set: &Value| annotation(set, DESIRED).is_some_and(|desired| desired != wanted(deployment));
    roles.all().any(|set| size(set) > 0 && differs(set))
}

/// Returns the size of the new replica set that the surge permits.
pub(super) fn of_new(deployment: &Value, roles: &ReplicaSetRoles<'_>, new: Option<&Value>) -> i64 {
    let (total, before) = (wanted(deployment), new.map_or(0, size));
    if text(deployment, "/spec/strategy/type") != "RollingUpdate" {
        return total;
    }
    let room = total + leeway(deployment).0 - roles.all().map(size).sum::<i64>();
    before + room.min(total - before).max(0)
}

/// Scales all replica sets to zero.
pub(super) fn all_to_zero<'a>(sets: &[&'a Value]) -> Sizes<'a> {
    Sizes(sets.iter().filter(|set| size(set) > 0).map(|set| (*set, 0)).collect())
}

/// Returns the next step of a rolling update: the new replica set grows, or else the old ones shrink.
pub(super) fn rolling<'a>(deployment: &Value, roles: &ReplicaSetRoles<'a>, recreate: bool) -> Sizes<'a> {
    let Some(new) = roles.new else { return Sizes::default() };
    let total = wanted(deployment);
    let next = if size(new) > total { total } else { of_new(deployment, roles, Some(new)) };
    if next != size(new) {
        return Sizes(vec![(new, next)]);
    }
    if recreate { Sizes::default() } else { shrink(deployment, roles, new) }
}

/// Scales the old replica sets down: unavailable pods first, then others as long as enough pods remain available.
fn shrink<'a>(deployment: &Value, roles: &ReplicaSetRoles<'a>, new: &Value) -> Sizes<'a> {
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

/// Returns the sizes after the deployment was scaled. A single replica set with pods gets all replicas; several get
/// proportional shares, so that scaling neither advances nor reverts a rollout.
pub(super) fn scale<'a>(deployment: &Value, roles: &ReplicaSetRoles<'a>) -> Sizes<'a> {
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

/// Returns the rounded number by which a replica set grows in proportion.
fn share(deployment: &Value, set: &Value, allowed: i64) -> i64 {
    if wanted(deployment) == 0 {
        return -size(set);
    }
    match annotation(set, MAXIMUM).unwrap_or_else(|| int(deployment, "/status/replicas")) {
        before @ 1.. => (2 * size(set) * allowed + before).div_euclid(2 * before) - size(set),
        _ => 0,
    }
}
