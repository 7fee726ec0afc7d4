//! The pods that wait for a node, and what to do about each. Pure.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind, StoredObject};
use serde_json::Value;

use super::{
    action::PodAction,
    candidate::{Candidate, Occupant, PodKey, priority},
    placement::{self, Nominated, Refusal},
    spread,
    state::{ClusterState, Relations},
    terms::Terms,
    volumes::{Progress, Scope},
};
use crate::controllers::{
    pod::{claims_of, has_ended},
    reconcile::keep,
    value::{condition, is_deleting, text},
};

/// The default scheduler name.
const SCHEDULER: &str = "default-scheduler";
/// What errors about the claims of a pod begin with.
const DEVICES: &str = "plugin \"DynamicResources\"";

/// A pod that waits for a node.
#[derive(Debug)]
struct Waiting {
    object: Arc<Value>,
    stored: StoredObject,
    priority: i64,
    /// The number of pods that came before.
    arrival: u64,
    /// The node that is kept free for it.
    nominated: Option<String>,
    /// Whether others are being evicted in its favour.
    is_preempting: bool,
    /// The node that its volumes and claims are being bound for.
    prepared_for: Option<String>,
    /// Whether they should be bound by now.
    is_late: bool,
    /// Whether it isn't decided about for a while, because they couldn't be bound, or nothing could be decided.
    is_paused: bool,
    report: ReportProgress,
}

/// The progress of a report about a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReportProgress {
    #[default]
    None,
    Sending,
    /// The report is being sent, and the pod is to be decided about afterwards.
    Outdated,
}

/// The scheduler's state.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    pub(super) state: ClusterState,
    waiting: BTreeMap<PodKey, Waiting>,
    /// Those pods that other pods may be in the way of or wanted by.
    relational: BTreeSet<PodKey>,
    arrivals: u64,
    /// Where the search for a node begins.
    start: usize,
}

/// What a change of a pod on a node means for those that wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    None,
    /// The pod matters only to those that look for other pods.
    Seen,
    Freed,
}

impl Scheduler {
    /// Processes a change, and returns the affected pods, the most important first.
    pub(super) fn take(&mut self, change: &Change) -> Vec<PodKey> {
        let gone = change.kind == ChangeKind::Deleted;
        match &*change.resource.storage {
            "/pods" => self.take_pod(change.object(), &change.stored, gone),
            "/nodes" => self.take_node(change.object(), gone),
            "/namespaces" => self.take_namespace(change.object(), gone),
            "policy/poddisruptionbudgets" => {
                keep(&mut self.state.budgets, change.object(), gone);
                Vec::new()
            }
            storage => {
                if let Some(scope) = self.state.devices.take(change) {
                    let concerns = |waiting: &Waiting| self.state.devices.matters(&scope, &waiting.object);
                    return self.in_order(self.waiting.iter().filter(|one| concerns(one.1)).map(|(pod, _)| pod));
                }
                if self.state.volume_limits.take(change) {
                    let has_claims = |waiting: &Waiting| claims_of(&waiting.object).next().is_some();
                    return self.in_order(self.waiting.iter().filter(|one| has_claims(one.1)).map(|(pod, _)| pod));
                }
                let Some(scope) = self.state.volumes.take(change) else {
                    self.state.groups.take(storage, &change.stored, gone);
                    return Vec::new();
                };
                self.users(&scope)
            }
        }
    }

    /// Processes a change of a pod.
    pub(super) fn take_pod(&mut self, object: &Arc<Value>, stored: &StoredObject, gone: bool) -> Vec<PodKey> {
        let pod = PodKey::of(object);
        if !gone && is_unbound(object) {
            self.wait(&pod, object, stored);
            return vec![pod];
        }
        let runs = !gone && !text(object, "/spec/nodeName").is_empty() && !has_ended(object);
        self.end_waiting(&pod, runs.then(|| Occupant::by(object, stored.clone())))
    }

    /// Removes a pod that doesn't wait any more, and records what it takes. Returns the affected pods.
    fn end_waiting(&mut self, pod: &PodKey, taken: Option<Occupant>) -> Vec<PodKey> {
        let was_nominated = self.waiting.remove(pod).is_some_and(|waiting| waiting.nominated.is_some());
        self.relational.remove(pod);
        let runs = taken.is_some();
        match self.account(pod, taken) {
            Effect::Freed => self.all(),
            // What was kept free for a pod that is gone is free.
            _ if was_nominated && !runs => self.all(),
            Effect::Seen => self.in_order(self.relational.iter()),
            Effect::None => Vec::new(),
        }
    }

    fn wait(&mut self, pod: &PodKey, object: &Arc<Value>, stored: &StoredObject) {
        let before = self.waiting.get(pod);
        let is_preempting = before.is_some_and(|before| before.is_preempting);
        let report = before.map_or_else(ReportProgress::default, |before| before.report);
        let arrival = before.map_or(self.arrivals, |before| before.arrival);
        self.arrivals += u64::from(before.is_none());
        let is_relational = spread::hard(object).next().is_some() || Terms::of(object).are_required();
        if is_relational {
            self.relational.insert(pod.clone());
        }
        let nominated = match before.filter(|_| is_preempting) {
            Some(before) => before.nominated.clone(),
            None => Some(text(object, "/status/nominatedNodeName").to_owned()).filter(|name| !name.is_empty()),
        };
        let waiting = Waiting {
            object: object.clone(),
            stored: stored.clone(),
            priority: priority(object),
            arrival,
            nominated,
            is_preempting,
            prepared_for: before.and_then(|before| before.prepared_for.clone()),
            is_late: before.is_some_and(|before| before.is_late),
            is_paused: before.is_some_and(|before| before.is_paused),
            report,
        };
        self.waiting.insert(pod.clone(), waiting);
    }

    /// Records what a pod takes, if it takes anything.
    fn account(&mut self, pod: &PodKey, taken: Option<Occupant>) -> Effect {
        let before = self.state.remove(pod);
        let effect = match (&before, &taken) {
            (None, None) => Effect::None,
            (None, Some(_)) => Effect::Seen,
            (Some(before), Some(taken)) if !before.takes_the_same(taken) => Effect::Freed,
            (Some(_), None) => Effect::Freed,
            _ if self.relational.is_empty() => Effect::None,
            (Some(before), Some(taken)) if before.looks_the_same(taken) => Effect::None,
            (Some(_), Some(_)) => Effect::Seen,
        };
        if let Some(taken) = taken {
            self.state.add(pod.clone(), taken);
        }
        effect
    }

    fn take_node(&mut self, node: &Arc<Value>, gone: bool) -> Vec<PodKey> {
        let name = text(node, "/metadata/name");
        let before =
            if gone { self.state.nodes.remove(name) } else { self.state.nodes.insert(name.to_owned(), node.clone()) };
        let is_alike = |before: &Value| {
            ["/metadata/labels", "/spec", "/status/allocatable"]
                .iter()
                .all(|field| before.pointer(field) == node.pointer(field))
        };
        if before.is_some_and(|before| !gone && is_alike(&before)) { Vec::new() } else { self.all() }
    }

    fn take_namespace(&mut self, namespace: &Value, gone: bool) -> Vec<PodKey> {
        let (name, labels) = (text(namespace, "/metadata/name"), &namespace["metadata"]["labels"]);
        if gone {
            self.state.namespaces.remove(name);
            return Vec::new();
        }
        let before = self.state.namespaces.insert(name.to_owned(), labels.clone());
        if before.is_some_and(|before| before == *labels) { Vec::new() } else { self.all() }
    }

    /// Returns the pods that wait and use a claim that a change of volumes matters to.
    fn users(&self, change: &Scope) -> Vec<PodKey> {
        let uses = |(pod, waiting): &(&PodKey, &Waiting)| {
            claims_of(&waiting.object).any(|claim| self.state.volumes.matters(change, &pod.namespace, &claim))
        };
        self.in_order(self.waiting.iter().filter(uses).map(|(pod, _)| pod))
    }

    /// Returns the pods that wait.
    pub(super) fn all(&self) -> Vec<PodKey> {
        self.in_order(self.waiting.keys())
    }

    /// Returns whether a pod waits for a node.
    pub(super) fn is_waiting(&self, pod: &PodKey) -> bool {
        self.waiting.contains_key(pod)
    }

    /// Returns the resource version of a pod that waits for a node.
    pub(super) fn version(&self, pod: &PodKey) -> &str {
        self.waiting.get(pod).map_or("", |waiting| text(&waiting.object, "/metadata/resourceVersion"))
    }

    /// Sorts pods as kube-scheduler's queue does: by priority, then by arrival.
    fn in_order<'a>(&self, pods: impl Iterator<Item = &'a PodKey>) -> Vec<PodKey> {
        let place = |pod: &PodKey| self.waiting.get(pod).map(|waiting| (Reverse(waiting.priority), waiting.arrival));
        let mut pods: Vec<_> = pods.map(|pod| (place(pod), pod)).collect();
        pods.sort_unstable_by_key(|(place, _)| *place);
        pods.into_iter().map(|(_, pod)| pod.clone()).collect()
    }

    /// Removes a pod that an action hasn't found. Its change arrives later. Returns the affected pods.
    pub(super) fn remove_gone(&mut self, pod: &PodKey) -> Vec<PodKey> {
        self.end_waiting(pod, None)
    }

    /// Ends an action for a pod. Returns the pods to decide about.
    pub(super) fn end(&mut self, pod: &PodKey, action: &PodAction, done: bool) -> Vec<PodKey> {
        match action {
            PodAction::Bind(_) if !done => self.withdraw(pod),
            PodAction::Prepare { volumes, .. } if !done => {
                self.state.volumes.withdraw(volumes);
                self.state.devices.withdraw(pod);
                if let Some(waiting) = self.waiting.get_mut(pod) {
                    waiting.prepared_for = None;
                }
                self.withdraw(pod)
            }
            PodAction::Prepare { .. } => vec![pod.clone()],
            // What was set aside for it is free.
            PodAction::Fail(..) => self.all().into_iter().filter(|other| other != pod).collect(),
            PodAction::Preempt { node, .. } => {
                let Some(waiting) = self.waiting.get_mut(pod) else { return Vec::new() };
                waiting.is_preempting = false;
                waiting.nominated = done.then(|| node.clone());
                // Victims may be gone already.
                vec![pod.clone()]
            }
            PodAction::Report(..) | PodAction::Deallocate { .. } => {
                let Some(waiting) = self.waiting.get_mut(pod) else { return Vec::new() };
                let report = std::mem::take(&mut waiting.report);
                (report == ReportProgress::Outdated).then(|| pod.clone()).into_iter().collect()
            }
            PodAction::Bind(_) => Vec::new(),
        }
    }

    /// Gives back what was set aside for a pod that couldn't be bound. Returns the other pods that wait, if something
    /// was freed.
    fn withdraw(&mut self, pod: &PodKey) -> Vec<PodKey> {
        if self.waiting.contains_key(pod) && self.account(pod, None) == Effect::Freed {
            return self.all().into_iter().filter(|other| other != pod).collect();
        }
        Vec::new()
    }

    /// Ends the pause of a pod, or the time in which its volumes should be bound.
    pub(super) fn wake(&mut self, pod: &PodKey) {
        if let Some(waiting) = self.waiting.get_mut(pod) {
            waiting.is_paused = false;
            waiting.is_late = waiting.prepared_for.is_some();
        }
    }

    /// Sets the present time, which matters to devices that have to meet conditions.
    pub(super) fn set_time(&mut self, now: Timestamp) {
        self.state.devices.now = now;
    }

    /// Returns the action for a pod; `None` if its condition is up to date. What a pod to bind takes is set aside for
    /// it.
    pub(super) fn decide(&mut self, pod: &PodKey) -> Option<PodAction> {
        let waiting = self.waiting.get_mut(pod)?;
        if waiting.report != ReportProgress::None {
            // Another report would conflict with this one.
            waiting.report = ReportProgress::Outdated;
            return None;
        }
        let action = self.action(pod);
        if let Some(PodAction::Report(..) | PodAction::Deallocate { .. }) = &action {
            self.waiting.get_mut(pod)?.report = ReportProgress::Sending;
        }
        action
    }

    fn action(&mut self, pod: &PodKey) -> Option<PodAction> {
        let waiting = self.waiting.get(pod)?;
        if let Some(node) = waiting.prepared_for.clone() {
            return self.bind_when_prepared(pod, node);
        }
        if waiting.is_preempting || waiting.is_paused || self.state.has(pod) {
            // It is being bound, or its victims are being deleted; the end of either action leads to another decision.
            return None;
        }
        let object = waiting.object.clone();
        if self.state.devices.is_gated(&object) {
            return None;
        }
        if self.state.nodes.is_empty() {
            return report(waiting, "no nodes available to schedule pods".into());
        }
        let mut candidate = Candidate::new(pod, &object, waiting.stored.clone());
        let nominated = self.nominated(&candidate);
        let preferred = waiting.nominated.as_deref();
        // Both searches use them: that for a node, and the one for victims if no node fits.
        let relations = self.state.relations(&candidate);
        match placement::find(&candidate, preferred, (&self.state, &relations), &nominated, &mut self.start) {
            Ok(node) => {
                drop(relations);
                let preparation = self.prepare(&candidate, &node);
                candidate.taken.node.clone_from(&node);
                candidate.taken.is_assumed = true;
                let taken = candidate.taken;
                self.account(pod, Some(taken));
                Some(preparation.unwrap_or(PodAction::Bind(node)))
            }
            Err(refusal) => {
                let choice = self.choose(&candidate, &refusal, &nominated, &relations);
                drop(relations);
                match choice {
                    Choice::Wait(action) => action,
                    Choice::Fail(why) => {
                        self.waiting.get_mut(pod)?.is_paused = true;
                        Some(PodAction::Fail(why, object))
                    }
                    Choice::Preempt(why, node, victims) => self.preempt(pod, why, node, victims),
                }
            }
        }
    }

    /// Reserves volumes and devices for the claims of a pod on a node; `None` if all of them are bound.
    fn prepare(&mut self, pod: &Candidate<'_>, node: &str) -> Option<PodAction> {
        let object = self.state.nodes.get(node)?.clone();
        if self.progress(pod, &object).0 == Progress::Bound {
            return None;
        }
        let waiting = self.waiting.get_mut(pod.key)?;
        (waiting.prepared_for, waiting.is_late) = (Some(node.to_owned()), false);
        let volumes = self.state.volumes.reserve(pod, &object);
        let claims = self.state.devices.reserve(pod, &object);
        let awaited = self.state.devices.has_conditions(pod, &claims).then(|| node.to_owned());
        Some(PodAction::Prepare { volumes, claims, awaited })
    }

    /// Returns how far the volumes and claims of a pod are bound for a node, and what the error about them begins with.
    fn progress(&self, pod: &Candidate<'_>, node: &Value) -> (Progress, &'static str) {
        match self.state.volumes.progress(pod, node) {
            Progress::Bound => (self.state.devices.progress(pod, node), DEVICES),
            progress => (progress, "plugin \"VolumeBinding\": binding volumes"),
        }
    }

    /// Returns the action for a pod whose volumes and claims are being bound for a node.
    fn bind_when_prepared(&mut self, pod: &PodKey, node: String) -> Option<PodAction> {
        let waiting = self.waiting.get(pod)?;
        let candidate = Candidate::new(pod, &waiting.object, waiting.stored.clone());
        let (progress, what) = match self.state.nodes.get(&node) {
            Some(node) => self.progress(&candidate, node),
            None => {
                let why = format!("failed to get node \"{node}\": node \"{node}\" not found");
                (Progress::Failed(why), "plugin \"VolumeBinding\": binding volumes")
            }
        };
        let (object, is_late) = (waiting.object.clone(), waiting.is_late);
        let why = match progress {
            Progress::Pending if !is_late => return None,
            Progress::Pending if what == DEVICES => "device binding timeout: context deadline exceeded".into(),
            Progress::Pending => "context deadline exceeded".into(),
            Progress::Failed(why) => why,
            Progress::Bound => {
                self.waiting.get_mut(pod)?.prepared_for = None;
                return Some(PodAction::Bind(node));
            }
        };
        let waiting = self.waiting.get_mut(pod)?;
        (waiting.prepared_for, waiting.is_paused) = (None, true);
        self.state.devices.withdraw(pod);
        self.account(pod, None);
        Some(PodAction::Fail(format!("running PreBind {what}: {why}"), object))
    }

    /// Returns the pods of at least the same priority that nodes are kept free for, as if they were there.
    fn nominated(&self, pod: &Candidate<'_>) -> Vec<(String, Occupant)> {
        let counts = |(key, waiting): &(&PodKey, &Waiting)| {
            waiting.priority >= pod.taken.priority && *key != pod.key && !self.state.has(key)
        };
        let occupant = |(key, waiting): (&PodKey, &Waiting)| {
            let node = waiting.nominated.clone()?;
            let mut occupant = Occupant::by(&waiting.object, waiting.stored.clone());
            occupant.node = node;
            Some((key.namespace.clone(), occupant))
        };
        self.waiting.iter().filter(counts).filter_map(occupant).collect()
    }

    /// Returns what to do about a pod that doesn't fit.
    fn choose(
        &self,
        pod: &Candidate<'_>,
        refusal: &Refusal,
        nominated: &Nominated,
        relations: &Relations<'_>,
    ) -> Choice {
        let Some(waiting) = self.waiting.get(pod.key) else { return Choice::Wait(None) };
        let none = format!("0/{} nodes are available", self.state.nodes.len());
        let why = format!("{none}: {}.", refusal.reasons());
        let freed = match refusal {
            Refusal::Error(why) => return Choice::Fail(why.clone()),
            // The search for claims whose devices could be given back finds nothing to begin with.
            Refusal::Volumes(_) => return Choice::Wait(report(waiting, format!("{why} not found"))),
            Refusal::Devices(_) => Err("no new claims to deallocate"),
            Refusal::Nodes(_) if !self.state.devices.has_claims(pod.object) => Err("no new claims to deallocate"),
            Refusal::Nodes(_) => {
                let nodes = refusal.without_devices().filter_map(|name| Some(&**self.state.nodes.get(name)?));
                self.state.devices.idle(pod, nodes).ok_or("still not schedulable")
            }
        };
        let about_claims = freed.as_ref().map_or_else(|why| *why, |_| "deallocation of ResourceClaim completed");
        let wait = |about_pods: &str| {
            let why = format!("{why} {about_claims}, preemption: {about_pods}");
            match &freed {
                Ok(claim) => {
                    let (pod, claim) = (waiting.object.clone(), claim.clone());
                    Choice::Wait(Some(PodAction::Deallocate { why, pod, claim }))
                }
                Err(_) => Choice::Wait(report(waiting, why)),
            }
        };
        if text(pod.object, "/spec/preemptionPolicy") == "Never" {
            return wait("not eligible due to preemptionPolicy=Never.");
        }
        let is_going = |(_, other): (&PodKey, &Occupant)| other.is_preempted && other.priority < pod.taken.priority;
        let keeps = |node: &String| refusal.is_removable(node) && self.state.on_node(node).any(is_going);
        if waiting.nominated.as_ref().is_some_and(keeps) {
            // Its victims are terminating.
            return Choice::Wait(None);
        }
        match placement::victims(pod, refusal, (&self.state, relations), nominated) {
            Ok((node, victims)) => Choice::Preempt(why, node.to_owned(), victims.pods.into_iter().cloned().collect()),
            Err(reasons) => wait(&format!("{none}: {reasons}.")),
        }
    }

    /// Returns the action that evicts the victims of a pod, for which their node is kept free from now on.
    fn preempt(&mut self, pod: &PodKey, why: String, node: String, victims: Vec<PodKey>) -> Option<PodAction> {
        let priority = self.waiting.get(pod)?.priority;
        let mut superseded = Vec::new();
        for (key, other) in &mut self.waiting {
            if other.nominated.as_ref() == Some(&node) && other.priority < priority {
                other.nominated = None;
                superseded.push(key.clone());
            }
        }
        let waiting = self.waiting.get_mut(pod)?;
        waiting.nominated = Some(node.clone());
        waiting.is_preempting = true;
        Some(PodAction::Preempt { why, pod: waiting.object.clone(), node, victims, superseded })
    }
}

/// What to do about a pod that doesn't fit.
enum Choice {
    /// To wait, after a report if there is a new reason.
    Wait(Option<PodAction>),
    /// To try again later, because of an error.
    Fail(String),
    /// To evict pods from a node, and why that is necessary.
    Preempt(String, String, Vec<PodKey>),
}

/// Returns the action that reports why a pod waits, unless it has been reported.
fn report(pod: &Waiting, why: String) -> Option<PodAction> {
    let reported = condition(&pod.object, "PodScheduled");
    let is_reported = reported.is_some_and(|one| one["status"] == "False" && one["message"] == why);
    let is_nominated = !pod.object["status"]["nominatedNodeName"].is_null();
    (!is_reported || is_nominated).then(|| PodAction::Report(why, pod.object.clone()))
}

/// Returns whether a pod has to be bound.
fn is_unbound(pod: &Value) -> bool {
    let spec = &pod["spec"];
    let scheduler = spec["schedulerName"].as_str().unwrap_or(SCHEDULER);
    let gated = spec["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let wanted = spec["nodeName"].as_str().unwrap_or_default().is_empty() && scheduler == SCHEDULER && !gated;
    wanted && !is_deleting(pod)
}
