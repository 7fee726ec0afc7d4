//! Deployments: rollouts of template changes, with one replica set for each revision of the template.
//!
//! * [`revision`]: the replica sets as revisions, their names and numbers, and the history limit
//! * [`size`]: the number of pods of each replica set
//! * [`status`]: counts and conditions

mod revision;
mod size;
mod status;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    controller_refs::ControllerRefs,
    kind::Kind,
    objects::Objects,
    pod::has_ended,
    reconcile::{Controller, Key, Plan, Report, Step, StepKind},
    replicaset::REPLICA_SET,
    value::{controller_of, flag, int, is_deleting, text},
};

/// The kind `Deployment`.
pub(crate) const DEPLOYMENT: Kind = Kind { group: "apps", kind: "Deployment", plural: "deployments" };

/// The deployment controller.
#[derive(Debug)]
pub(crate) struct Deployments {
    sets: ControllerRefs,
    pods: ControllerRefs,
    /// The most recent failures to create replica sets.
    failures: BTreeMap<Key, String>,
}

impl Deployments {
    /// Creates the controller. `pods` include each pod before its change is taken.
    pub(crate) fn new(pods: Objects) -> Self {
        let sets = ControllerRefs::new(DEPLOYMENT, REPLICA_SET);
        Self { sets, pods: ControllerRefs::of_pods(REPLICA_SET, pods), failures: BTreeMap::new() }
    }
}

impl Controller for Deployments {
    fn reset(&mut self) {
        self.sets.reset();
        self.pods.reset();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        let sets = self.pods.take(change);
        if DEPLOYMENT.is_of(change)
            && change.kind == ChangeKind::Deleted
            && let Some(key) = Key::of(change.object())
        {
            self.failures.remove(&key);
        }
        if !Kind::POD.is_of(change) {
            return self.sets.take(change);
        }
        // Pod changes only concern deployments with the strategy `Recreate`, which wait until all old pods are gone.
        let deployment = |set: &Key| {
            let owner = controller_of(self.pods.parent(set)?)?["name"].as_str()?;
            let key = Key { namespace: set.namespace.clone(), name: owner.into() };
            let recreates = text(self.sets.parent(&key)?, "/spec/strategy/type") == "Recreate";
            recreates.then_some(key)
        };
        sets.iter().filter_map(deployment).collect()
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(deployment) = self.sets.parent(key) else { return Plan::default() };
        let claim = self.sets.claim(key, deployment);
        let mut plan = Plan::of(&DEPLOYMENT, deployment);
        plan.steps = claim.steps;
        if !plan.steps.is_empty() {
            // Later steps would fail with a conflict, since these steps change the versions of the sets.
            return plan;
        }
        let runs = |set: &Value| {
            let uid = &set["metadata"]["uid"];
            let owned = |pod: &Arc<Value>| controller_of(pod).is_some_and(|owner| owner["uid"] == *uid);
            Key::of(set).is_some_and(|set| self.pods.named(&set).filter(owned).any(|pod| !has_ended(&pod)))
        };
        let taken = |name: &str| self.sets.has_child(&Key { name: name.into(), ..key.clone() });
        let mut sets: Vec<&Value> = claim.children.iter().map(|set| &**set).collect();
        sets.sort_by_key(|set| (text(set, "/metadata/creationTimestamp"), text(set, "/metadata/name")));
        let failure = self.failures.get(key).map(String::as_str);
        decide(&View { deployment, sets, runs: &runs, taken: &taken, failure }, now, &mut plan);
        plan
    }

    fn finished(&mut self, key: &Key, failure: Option<(StepKind, String)>) {
        match failure {
            Some((StepKind::Create, message)) => drop(self.failures.insert(key.clone(), message)),
            Some(_) => {}
            None => drop(self.failures.remove(key)),
        }
    }
}

/// The input of a decision.
struct View<'a> {
    deployment: &'a Value,
    /// The deployment's replica sets, oldest first.
    sets: Vec<&'a Value>,
    /// Returns whether a replica set has pods that have not ended.
    runs: &'a dyn Fn(&Value) -> bool,
    /// Returns whether a replica set of this name exists, whoever controls it.
    taken: &'a dyn Fn(&str) -> bool,
    /// Why the latest attempt to create a replica set has failed.
    failure: Option<&'a str>,
}

/// The new and the old replica sets of a deployment.
struct ReplicaSetRoles<'a> {
    /// The replica set with the present template.
    new: Option<&'a Value>,
    /// The others, oldest first.
    old: Vec<&'a Value>,
}

impl<'a> ReplicaSetRoles<'a> {
    fn all(&self) -> impl Iterator<Item = &'a Value> {
        self.old.iter().copied().chain(self.new)
    }
}

/// Decides the next step for a deployment. Each decision changes one thing only.
fn decide(view: &View<'_>, now: Timestamp, plan: &mut Plan) {
    let deployment = view.deployment;
    let roles = revision::roles(deployment, &view.sets);
    let mut event = status::Event::None;
    if !is_deleting(deployment) {
        let paused = flag(deployment, "/spec/paused");
        let scaled = paused || size::is_scaled(deployment, &roles);
        let sizes = if scaled { size::scale(deployment, &roles) } else { size::Sizes::default() };
        if !paused && sizes.is_empty() {
            event = roll_out(view, &roles, plan);
        } else if !number(deployment, &roles, plan) {
            sizes.apply(deployment, plan);
            if paused {
                forget_history(deployment, &roles, plan);
            }
        }
    }
    let status = status::status(deployment, &roles, &event, now, plan);
    let status = Step::status(&DEPLOYMENT, deployment, status);
    if matches!(event, status::Event::Failed(_)) {
        // A plan ends with its first step that fails, and so a failure is reported before the next attempt.
        plan.steps.splice(0..0, status);
    } else {
        let note = plan.steps.extract_if(.., |step| matches!(step, Step::Merge(_, "/status", _))).next();
        plan.steps.extend(with_status(note, status));
    }
}

/// Writes the note of a revision together with the status, as Kubernetes does: a client that waits for the revision
/// would see the condition of the one before.
fn with_status(note: Option<Step>, status: Option<Step>) -> Option<Step> {
    match (note, status) {
        (Some(Step::Merge(path, part, mut note)), Some(Step::Merge(_, _, status))) => {
            note["status"] = status["status"].clone();
            Some(Step::Merge(path, part, note))
        }
        (note, status) => note.or(status),
    }
}

/// Moves pods from the old replica sets to the new one.
fn roll_out(view: &View<'_>, roles: &ReplicaSetRoles<'_>, plan: &mut Plan) -> status::Event {
    let deployment = view.deployment;
    let recreate = text(deployment, "/spec/strategy/type") == "Recreate";
    if recreate {
        let down = size::all_to_zero(&roles.old);
        if !down.is_empty() {
            number(deployment, roles, plan);
            down.apply(deployment, plan);
            return status::Event::None;
        }
        if roles.old.iter().any(|set| (view.runs)(set)) {
            return status::Event::None;
        }
    }
    if roles.new.is_none() {
        return create(view, roles, plan);
    }
    if number(deployment, roles, plan) {
        return status::Event::Found;
    }
    let sizes = size::rolling(deployment, roles, recreate);
    if sizes.is_empty() && status::is_complete(deployment, roles) {
        forget_history(deployment, roles, plan);
    }
    sizes.apply(deployment, plan);
    status::Event::Found
}

/// Creates the replica set of the present template. Its name is derived from the template; if the name is taken, the
/// collision count in the status results in a different one.
fn create(view: &View<'_>, roles: &ReplicaSetRoles<'_>, plan: &mut Plan) -> status::Event {
    let deployment = view.deployment;
    let revision = revision::latest(&roles.old) + 1;
    let set = revision::new_set(deployment, revision, size::of_new(deployment, roles, None));
    let name = text(&set, "/metadata/name").to_owned();
    if (view.taken)(&name) {
        return status::Event::Collision;
    }
    let size = int(&set, "/spec/replicas");
    let path = REPLICA_SET.address(text(deployment, "/metadata/namespace"), "");
    let report = Report {
        success: (size > 0).then(|| ("ScalingReplicaSet", format!("Scaled up replica set {name} from 0 to {size}"))),
        failures: vec![(status::CREATION_FAILED, status::creation_failed(&name, ""))],
    };
    plan.steps.push(Step::Create(path, set).reported(report));
    plan.steps.extend(revision::note(deployment, revision));
    match view.failure {
        Some(failure) => status::Event::Failed(status::creation_failed(&name, failure)),
        None => status::Event::Created(name),
    }
}

/// Assigns the latest revision to the new replica set and the deployment. Returns true if the replica set has to change
/// first.
fn number(deployment: &Value, roles: &ReplicaSetRoles<'_>, plan: &mut Plan) -> bool {
    let Some(new) = roles.new else { return false };
    let revision = revision::latest(&roles.old) + 1;
    if let Some(patch) = revision::renew(deployment, new, revision) {
        plan.steps.push(Step::change(&REPLICA_SET, new, patch));
        return true;
    }
    plan.steps.extend(revision::note(deployment, revision::of(new)));
    false
}

/// Deletes the oldest empty replica sets beyond the history limit.
fn forget_history(deployment: &Value, roles: &ReplicaSetRoles<'_>, plan: &mut Plan) {
    for set in revision::forgotten(deployment, &roles.old) {
        plan.steps.push(Step::delete(&REPLICA_SET, set));
    }
}

impl size::Sizes<'_> {
    /// Writes the sizes, and records events about them.
    fn apply(self, deployment: &Value, plan: &mut Plan) {
        let notes = size::notes(deployment);
        for (set, size) in self.0 {
            let before = int(set, "/spec/replicas");
            let patch = json!({"metadata": {"annotations": notes}, "spec": {"replicas": size}});
            plan.steps.push(Step::change(&REPLICA_SET, set, patch));
            if before != size {
                let way = if before < size { "up" } else { "down" };
                let name = text(set, "/metadata/name");
                plan.event(
                    false,
                    "ScalingReplicaSet",
                    format!("Scaled {way} replica set {name} from {before} to {size}"),
                );
            }
        }
    }
}
