//! The objects that the operator has created, counted by what they are.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    time::Duration,
};

use kubewright_apiserver::{Change, ChangeKind};
use serde_json::Value;

use super::Seen;
use crate::world::text;

/// The time in which creations are counted.
const WINDOW: Duration = Duration::from_secs(600);
/// The number of creations in this time that is too many, if there are few objects at a time.
const MOST: usize = 100;

/// The least time between a step of the user and a creation that is due to a timer, in a run without faults.
const TIMER: Duration = Duration::from_secs(30);
/// The delay from which on the user is late, compared with the run without faults.
const DELAY: Duration = Duration::from_secs(1);

/// What an object is, apart from its name: its resource, namespace and controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Role {
    resource: String,
    namespace: String,
    owner: String,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, namespace, owner } = self;
        match owner.is_empty() {
            true => write!(f, "{resource} without a controller in namespace {namespace:?}"),
            false => write!(f, "{resource} of {owner} in namespace {namespace:?}"),
        }
    }
}

/// The objects of an operator that exist and aren't being deleted.
#[derive(Debug, Default)]
pub(crate) struct Created {
    roles: BTreeMap<String, Role>,
    /// The UIDs of objects that were seen to go.
    gone: BTreeSet<String>,
    alive: BTreeMap<Role, usize>,
    most: BTreeMap<Role, usize>,
    /// When objects were created in the last ten minutes.
    recent: BTreeMap<Role, VecDeque<Duration>>,
    /// When the steps of the user began.
    steps: Vec<Duration>,
    /// What was created long after a step.
    timed: BTreeSet<Role>,
}

/// The objects in a run without faults.
#[derive(Debug, Default)]
pub(crate) struct Calm {
    /// How many there were at most at one time.
    most: BTreeMap<Role, usize>,
    /// How many there were at the end.
    last: BTreeMap<Role, usize>,
    /// When the steps of the user began, and when the run ended.
    steps: Vec<Duration>,
    /// What was created at a time, and not because of a step.
    timed: BTreeSet<Role>,
}

impl Calm {
    /// Returns what there is more of than at any time of this run, with both numbers. What this run has never created
    /// is left out.
    pub(crate) fn more_than_most<'a>(&'a self, seen: &'a Seen<'_>) -> impl Iterator<Item = (&'a Role, usize, usize)> {
        let both = self.alive(seen).filter_map(|(role, alive)| Some((role, alive, *self.most.get(role)?)));
        both.filter(|(_, alive, most)| alive > most)
    }

    /// Returns what there is more of than at the end of this run, with both numbers.
    pub(crate) fn more_than_last<'a>(&'a self, seen: &'a Seen<'_>) -> impl Iterator<Item = (&'a Role, usize, usize)> {
        let last = |role| self.last.get(role).copied().unwrap_or_default();
        let both = self.alive(seen).map(move |(role, alive)| (role, alive, last(role)));
        both.filter(|(_, alive, last)| alive > last)
    }

    /// Returns the numbers of objects that can be compared.
    fn alive<'a>(&'a self, seen: &'a Seen<'_>) -> impl Iterator<Item = (&'a Role, usize)> {
        let alive = seen.created.alive.iter().map(|(role, alive)| (role, *alive));
        alive.filter(|(role, _)| self.is_comparable(role, seen))
    }

    /// Returns what there is less of than at the end of this run, with both numbers.
    pub(crate) fn fewer<'a>(&'a self, seen: &'a Seen<'_>) -> impl Iterator<Item = (&'a Role, usize, usize)> {
        let known = self.last.iter().filter(|(role, _)| self.is_comparable(role, seen));
        let both = known.map(|(role, known)| (role, seen.created.alive.get(role).copied().unwrap_or_default(), *known));
        both.filter(|(_, alive, known)| alive < known)
    }

    /// Returns whether a number can be compared: if a fault delays the user, an operator creates more objects by its
    /// timers before the next step.
    fn is_comparable(&self, role: &Role, seen: &Seen<'_>) -> bool {
        let next = self.steps.get(seen.created.steps.len()).or(self.steps.last());
        !self.timed.contains(role) || next.is_none_or(|next| seen.at <= *next + DELAY)
    }
}

impl Created {
    /// Adds an object that the operator has created.
    pub(crate) fn add(&mut self, at: Duration, resource: &str, object: &Value) {
        let uid = text(object, "uid").to_owned();
        if matches!(resource, "events" | "leases") || uid.is_empty() || self.roles.contains_key(&uid) {
            return;
        }
        let owners = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let controller = owners.iter().find(|owner| owner["controller"] == true);
        let part = |field: &str| controller.and_then(|owner| owner[field].as_str()).unwrap_or_default();
        let owner = controller.map(|_| format!("{} {}", part("kind"), part("name"))).unwrap_or_default();
        let role = Role { resource: resource.into(), namespace: text(object, "namespace").into(), owner };
        self.roles.insert(uid.clone(), role.clone());
        if self.steps.last().is_some_and(|step| at.saturating_sub(*step) >= TIMER) {
            self.timed.insert(role.clone());
        }
        let recent = self.recent.entry(role.clone()).or_default();
        recent.push_back(at);
        while recent.front().is_some_and(|first| at.saturating_sub(*first) > WINDOW) {
            recent.pop_front();
        }
        if !self.gone.contains(&uid) {
            let alive = self.alive.entry(role.clone()).or_default();
            *alive += 1;
            let most = self.most.entry(role).or_default();
            *most = (*most).max(*alive);
        }
    }

    /// Follows a change of any object.
    pub(crate) fn follow(&mut self, change: &Change) {
        let is_going =
            change.kind == ChangeKind::Deleted || !change.object()["metadata"]["deletionTimestamp"].is_null();
        let uid = text(change.object(), "uid");
        if is_going
            && self.gone.insert(uid.to_owned())
            && let Some(role) = self.roles.get(uid)
        {
            *self.alive.entry(role.clone()).or_default() -= 1;
        }
    }

    /// Returns whether the operator has created the object of this UID.
    pub(crate) fn has(&self, uid: &str) -> bool {
        self.roles.contains_key(uid)
    }

    /// Returns what is created again and again: far more often within ten minutes than there are objects at a time.
    pub(crate) fn churned(&self) -> Option<&Role> {
        let most = |role: &Role| self.most.get(role).copied().unwrap_or_default();
        self.recent.iter().find(|(role, recent)| recent.len() > MOST + 10 * most(role)).map(|(role, _)| role)
    }

    /// Follows the user, who begins a step.
    pub(crate) fn step(&mut self, at: Duration) {
        self.steps.push(at);
    }

    /// Returns what later runs are compared with, if this one has no faults and ends now.
    pub(crate) fn calm(&self, at: Duration) -> Calm {
        let steps = self.steps.iter().copied().chain([at]).collect();
        Calm { most: self.most.clone(), last: self.alive.clone(), steps, timed: self.timed.clone() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::world::World;

    /// Returns what a run has created whose user takes two steps, and the operator one object soon after the first and
    /// more of them later.
    fn created(second: u64, times: &[u64]) -> Created {
        let mut created = Created::default();
        created.step(Duration::from_secs(1));
        created.add(Duration::from_secs(2), "pods", &json!({"metadata": {"uid": "p"}}));
        for time in times {
            created.add(Duration::from_secs(*time), "jobs", &json!({"metadata": {"uid": format!("{time}")}}));
        }
        created.step(Duration::from_secs(second));
        created
    }

    #[test]
    fn what_timers_create_is_not_compared_once_the_user_is_late() {
        let calm = created(65, &[60]).calm(Duration::from_secs(7200));
        let more = |second, times: &[u64], at| {
            let (mut created, world) = (created(second, times), World::default());
            created.add(Duration::from_secs(at), "pods", &json!({"metadata": {"uid": "another"}}));
            // The second step hasn't begun, or it has.
            created.steps.retain(|step| step.as_secs() <= at);
            let seen = Seen { at: Duration::from_secs(at), created: &created, world: &world, is_unavailable: false };
            calm.more_than_most(&seen).map(|(role, ..)| role.resource.clone()).collect::<Vec<_>>()
        };
        assert_eq!(more(65, &[60, 63], 64), ["jobs", "pods"]);
        assert_eq!(more(65, &[60, 120], 120), ["jobs", "pods"]);
        assert_eq!(more(365, &[60, 120], 120), ["pods"]);
    }
}
