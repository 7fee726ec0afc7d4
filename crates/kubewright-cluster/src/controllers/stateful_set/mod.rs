//! Stateful sets: pods with stable names, in order, each with its own claims
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/>).
//!
//! * [`identity`]: ordinals, names, and new pods
//! * [`claims`]: the claims of each pod, and their owners
//! * [`rollout`]: the order in which pods are created, deleted and replaced
//! * [`status`]: the counts

mod claims;
mod identity;
mod rollout;
mod status;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::Value;

use super::{
    controller_refs::ControllerRefs,
    history::{CONTROLLER_REVISION, History, Latest},
    kind::Kind,
    objects::Objects,
    reconcile::{Controller, Key, Plan, Step},
    value::{is_deleting, text},
};

/// The kind `StatefulSet`.
pub(crate) const STATEFUL_SET: Kind = Kind { group: "apps", kind: "StatefulSet", plural: "statefulsets" };

/// The label of a pod with the name of its revision.
const REVISION: &str = "controller-revision-hash";
/// The label of a revision with its hash.
const HASH: &str = "controller.kubernetes.io/hash";

/// The stateful set controller.
#[derive(Debug)]
pub(crate) struct StatefulSets {
    pods: ControllerRefs,
    revisions: ControllerRefs,
    claims: BTreeMap<Key, Arc<Value>>,
}

impl StatefulSets {
    /// Creates the controller. `pods` include each pod before its change is taken.
    pub(crate) fn new(pods: Objects) -> Self {
        Self {
            pods: ControllerRefs::of_pods(STATEFUL_SET, pods),
            revisions: ControllerRefs::new(STATEFUL_SET, CONTROLLER_REVISION),
            claims: BTreeMap::new(),
        }
    }
}

impl Controller for StatefulSets {
    fn reset(&mut self) {
        self.pods.reset();
        self.revisions.reset();
        self.claims.clear();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if Kind::CLAIM.is_of(change) {
            return self.take_claim(change);
        }
        let mut keys = self.pods.take(change);
        keys.extend(self.revisions.take(change));
        keys
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(set) = self.pods.parent(key) else { return Plan::default() };
        let mut plan = Plan::of(&STATEFUL_SET, set);
        let name = text(set, "/metadata/name");
        let pods = self.pods.claim_where(key, set, |pod| identity::ordinal(name, pod).is_some());
        let revisions = self.revisions.claim(key, set);
        plan.steps.extend(pods.steps);
        plan.steps.extend(revisions.steps);
        if !plan.steps.is_empty() {
            // Later steps would fail with a conflict, since these steps change the versions of the children.
            return plan;
        }
        let claim = |name: &str| self.claims.get(&Key { name: name.into(), ..key.clone() }).map(|claim| &**claim);
        let taken = |name: &str| self.revisions.has_child(&Key { name: name.into(), ..key.clone() });
        let pods: BTreeMap<i64, &Value> =
            pods.children.iter().filter_map(|pod| Some((identity::ordinal(name, pod)?, &**pod))).collect();
        let revisions = revisions.children.iter().map(|revision| &**revision).collect();
        let history = History { owner: set, kind: STATEFUL_SET, label: HASH, revisions, taken: &taken };
        decide(&View { set, pods, claim: &claim, now }, &history, &mut plan);
        plan
    }
}

impl StatefulSets {
    /// Processes a change of a claim, and returns the sets that use the claim.
    fn take_claim(&mut self, change: &Change) -> Vec<Key> {
        let Some(key) = Key::of(change.object()) else { return Vec::new() };
        // The name ends with those of the set and the ordinal, but both the template's and the set's may contain
        // dashes.
        let stem = key.name.rsplit_once('-').map_or("", |(stem, _)| stem);
        let ends = stem.match_indices('-').map(|(at, _)| &stem[at + 1..]);
        let keys = ends.map(|set| Key { namespace: key.namespace.clone(), name: set.into() });
        let affected = keys.filter(|set| self.pods.parent(set).is_some()).collect();
        if change.kind == ChangeKind::Deleted {
            self.claims.remove(&key);
        } else {
            self.claims.insert(key, change.object().clone());
        }
        affected
    }
}

/// The input of a decision.
struct View<'a> {
    set: &'a Value,
    /// The pods by their ordinals.
    pods: BTreeMap<i64, &'a Value>,
    /// Returns the claim of this name.
    claim: &'a dyn Fn(&str) -> Option<&'a Value>,
    now: Timestamp,
}

impl View<'_> {
    fn name(&self) -> &str {
        text(self.set, "/metadata/name")
    }
}

/// The revisions between which a set moves.
struct Revisions {
    /// The name of the revision of the pods that aren't updated yet.
    current: String,
    /// The template of that revision.
    current_template: Value,
    /// The revision of the present template.
    update: Latest,
}

/// Decides the next steps for a stateful set.
fn decide(view: &View<'_>, history: &History<'_>, plan: &mut Plan) {
    let mut update = history.latest();
    let deleting = is_deleting(view.set);
    plan.steps.extend(update.step.take().filter(|_| !deleting));
    let before = text(view.set, "/status/currentRevision");
    let (current, current_template) = match history.template(before) {
        Some(template) => (before.to_owned(), template),
        None => (update.name.clone(), view.set["spec"]["template"].clone()),
    };
    let revisions = Revisions { current, current_template, update };
    // The status comes first, so that it is written even if a pod can't be created.
    let status = status::status(view, &revisions, plan);
    plan.steps.extend(Step::status(&STATEFUL_SET, view.set, status));
    if deleting {
        return;
    }
    plan.steps.extend(rollout::steps(view, &revisions));
    let used = |revision: &Value| {
        let name = text(revision, "/metadata/name");
        [&revisions.current, &revisions.update.name].iter().any(|live| *live == name)
            || view.pods.values().any(|pod| revision_of(pod) == name)
    };
    plan.steps.extend(history.truncate(used));
}

/// Returns the name of a pod's revision.
fn revision_of(pod: &Value) -> &str {
    pod["metadata"]["labels"][REVISION].as_str().unwrap_or_default()
}
