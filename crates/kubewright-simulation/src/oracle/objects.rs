//! The objects that the operator has created, counted by what they are.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    time::Duration,
};

use kubewright_apiserver::{Change, ChangeKind};
use serde_json::Value;

use crate::world::text;

/// The time in which creations are counted.
const WINDOW: Duration = Duration::from_secs(600);
/// The number of creations in this time that is too many, if there are few objects at a time.
const MOST: usize = 100;

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
}

/// The objects in a run without faults.
#[derive(Debug, Default)]
pub(crate) struct Calm {
    /// How many there were at most at one time.
    pub(crate) most: BTreeMap<Role, usize>,
    /// How many there were at the end.
    pub(crate) last: BTreeMap<Role, usize>,
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

    /// Returns the number of objects that exist.
    pub(crate) fn alive(&self) -> &BTreeMap<Role, usize> {
        &self.alive
    }

    pub(crate) fn calm(&self) -> Calm {
        Calm { most: self.most.clone(), last: self.alive.clone() }
    }
}
