//! Horizontal pod autoscalers: the replicas of a workload follow what its pods use
//! (<https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/>).
//!
//! * [`target`]: the scales of all objects
//! * [`metrics`], [`metric_api`] and [`calculator`]: the number of replicas that the metrics ask for
//! * [`limits`]: stabilization, rates and bounds
//!
//! As in Kubernetes, there is a decision every 15 seconds. The first one is made at once, where kube-controller-manager
//! waits 15 seconds.

mod calculator;
mod limits;
mod metric_api;
mod metrics;
mod target;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use kubewright_apimachinery::selector::LabelSelector;
use kubewright_apiserver::{ApiServer, Change, ChangeKind, ResourceMetrics, registry::Resource};
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::{
    limits::{History, Limited},
    metric_api::{MetricApis, MetricServices},
    metrics::{Computed, Failed, Workload},
    target::{TargetScale, Targets},
};
use super::{
    kind::Kind,
    objects::Objects,
    reconcile::{Answers, Controller, Key, Plan, Report, Step, StepKind},
    value::{int, list, number, selects, stamp, text},
};
use crate::object_client::ObjectPath;

const AUTOSCALER: Kind =
    Kind { group: "autoscaling", kind: "HorizontalPodAutoscaler", plural: "horizontalpodautoscalers" };
const API_SERVICE: Kind = Kind { group: "apiregistration.k8s.io", kind: "APIService", plural: "apiservices" };
/// The time between two decisions.
const PERIOD: Duration = Duration::from_secs(15);

/// The autoscaler controller.
pub(crate) struct Autoscalers {
    /// Knows which kinds exist, and which of them have a scale.
    api: ApiServer,
    /// What pods use, if that is measured.
    source: Option<Arc<dyn ResourceMetrics>>,
    autoscalers: BTreeMap<Key, Arc<Value>>,
    pods: Objects,
    targets: Targets,
    metric_services: MetricServices,
    memory: Mutex<BTreeMap<Key, Memory>>,
}

/// What is known about an autoscaler from earlier decisions.
#[derive(Debug, Default)]
struct Memory {
    uid: String,
    /// The time of the next decision; `None` for one that waits for the values of metrics.
    due: Option<Timestamp>,
    history: History,
    /// A scale that is being written: before and after, and when it was decided.
    pending: Option<(i64, i64, Timestamp)>,
    /// Why a scale couldn't be written.
    failure: Option<String>,
    /// The values of metrics for the next decision.
    answers: Answers,
}

impl fmt::Debug for Autoscalers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Autoscalers").field("autoscalers", &self.autoscalers.len()).finish_non_exhaustive()
    }
}

impl Autoscalers {
    /// Creates a controller for the kinds of a server. `pods` include each pod before its change is taken.
    pub(crate) fn new(api: ApiServer, pods: Objects, source: Option<Arc<dyn ResourceMetrics>>) -> Self {
        Self {
            api,
            source,
            autoscalers: BTreeMap::new(),
            pods,
            targets: Targets::default(),
            metric_services: MetricServices::default(),
            memory: Mutex::default(),
        }
    }

    /// Returns the scale of an autoscaler's target, and the resource that it belongs to.
    fn target(&self, autoscaler: &Value) -> Result<(Arc<Resource>, TargetScale), String> {
        let reference = &autoscaler["spec"]["scaleTargetRef"];
        let group = text(reference, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
        let (kind, name) = (text(reference, "/kind"), text(reference, "/name"));
        let found = self.api.registry().first_of_kind(group, kind);
        let resource = found.ok_or_else(|| match group {
            "" => format!("no matches for kind {kind:?} in version \"\""),
            _ => format!("no matches for kind {kind:?} in group {group:?}"),
        })?;
        if resource.scale.is_none() {
            return Err("the server could not find the requested resource".into());
        }
        let key = Key { namespace: text(autoscaler, "/metadata/namespace").into(), name: name.into() };
        match self.targets.find(&resource, &key) {
            Some(scale) => Ok((resource, scale.clone())),
            None => {
                let group = if group.is_empty() { String::new() } else { format!(".{group}") };
                Err(format!("{}{group} {name:?} not found", resource.plural))
            }
        }
    }

    /// Returns the pods of a scale.
    ///
    /// # Errors
    /// A reason for a condition and for an event, and both messages.
    fn pods_of(&self, key: &Key, selector: &str) -> Result<Vec<Arc<Value>>, [String; 4]> {
        if selector.is_empty() {
            let message = "the HPA target's scale is missing a selector".into();
            return Err(["InvalidSelector".into(), message, "SelectorRequired".into(), "selector is required".into()]);
        }
        let refused = |reason: &str, why: String| [reason.into(), why.clone(), reason.into(), why];
        let parsed = LabelSelector::parse(selector).map_err(|error| {
            let why = format!("couldn't convert selector into a corresponding internal selector object: {error}");
            refused("InvalidSelector", why)
        })?;
        let pods = self.pods.selected(&key.namespace, &parsed);
        let others = self.autoscalers.range(Key::first_of(&key.namespace)..);
        let others = others.take_while(|(other, _)| other.namespace == key.namespace);
        let controlling = others.filter(|(other, autoscaler)| {
            *other == key || {
                let scale = self.target(autoscaler).map(|(_, scale)| scale).unwrap_or_default();
                let selector = LabelSelector::parse(&scale.selector).ok().filter(|_| !scale.selector.is_empty());
                selector.is_some_and(|selector| pods.iter().any(|pod| selects(&selector, pod)))
            }
        });
        let controlling: Vec<_> = controlling.map(|(other, _)| format!("{}/{}", other.namespace, other.name)).collect();
        if controlling.len() > 1 && !pods.is_empty() {
            let all = controlling.join(" ");
            let why = format!("pods by selector {selector} are controlled by multiple HPAs: [{all}]");
            return Err(refused("AmbiguousSelector", why));
        }
        Ok(pods)
    }

    /// Decides about an autoscaler.
    fn reconcile(&self, key: &Key, autoscaler: &Value, memory: &mut Memory, now: Timestamp) -> Plan {
        let mut decision = Decision::new(autoscaler, now);
        if let Some(failure) = memory.failure.take() {
            let why = format!("the HPA controller was unable to update the target scale: {failure}");
            decision.set("AbleToScale", false, "FailedUpdateScale", why);
            return decision.plan();
        }
        let (resource, scale) = match self.target(autoscaler) {
            Ok(found) => found,
            Err(why) => {
                decision.plan.event(true, "FailedGetScale", why.clone());
                let why = format!("the HPA controller was unable to get the target's current scale: {why}");
                decision.set("AbleToScale", false, "FailedGetScale", why);
                return decision.plan();
            }
        };
        let able = "the HPA controller was able to get the target's current scale";
        decision.set("AbleToScale", true, "SucceededGetScale", able.into());
        let current = scale.replicas;
        memory.history.begin(current, now);
        let (least, most) =
            (number(autoscaler, "/spec/minReplicas").unwrap_or(1), int(autoscaler, "/spec/maxReplicas"));
        let (desired, why) = match current {
            0 => {
                let why = "scaling is disabled since the replica count of the target is zero";
                decision.set("ScalingActive", false, "ScalingDisabled", why.into());
                (0, String::new())
            }
            _ if current > most => (most, "Current number of replicas above Spec.MaxReplicas".into()),
            _ if current < least => (least, "Current number of replicas below Spec.MinReplicas".into()),
            _ => {
                let unread = self.unread(key, autoscaler, &scale, memory);
                if !unread.is_empty() {
                    memory.due = None;
                    return read(autoscaler, unread);
                }
                match self.recommend(key, autoscaler, &scale, memory, &mut decision) {
                    Some(found) => found,
                    None => {
                        decision.status["currentReplicas"] = current.into();
                        return decision.plan();
                    }
                }
            }
        };
        if desired != current {
            memory.pending = Some((current, desired, now));
            decision.rescale(&resource, key, desired, &why);
        }
        decision.status["currentReplicas"] = current.into();
        decision.status["desiredReplicas"] = desired.into();
        decision.plan()
    }

    /// Returns the paths of the metrics whose values have to be read before a decision.
    fn unread(&self, key: &Key, autoscaler: &Value, scale: &TargetScale, memory: &Memory) -> Vec<String> {
        self.with_workload(key, scale, &[], &memory.answers, |workload| {
            list(autoscaler, "/spec/metrics").iter().filter_map(|metric| workload.unread(metric)).collect()
        })
    }

    fn with_workload<T>(
        &self,
        key: &Key,
        scale: &TargetScale,
        pods: &[Arc<Value>],
        answers: &Answers,
        act: impl FnOnce(&Workload<'_>) -> T,
    ) -> T {
        act(&Workload {
            namespace: &key.namespace,
            replicas: scale.replicas,
            observed_replicas: scale.observed,
            selector: &scale.selector,
            pods,
            source: self.source.as_deref(),
            apis: MetricApis { services: &self.metric_services, registry: self.api.registry(), answers },
        })
    }

    /// Returns the number of replicas that the metrics ask for, within the limits, and the reason; `None` if they can't
    /// be computed.
    fn recommend(
        &self,
        key: &Key,
        autoscaler: &Value,
        scale: &TargetScale,
        memory: &mut Memory,
        decision: &mut Decision<'_>,
    ) -> Option<(i64, String)> {
        let (spec, current, now) = (&autoscaler["spec"], scale.replicas, decision.now);
        let pods = match self.pods_of(key, &scale.selector) {
            Ok(pods) => pods,
            Err([reason, message, event, note]) => {
                decision.plan.steps.push(warning(&event, note.clone()));
                decision.set("ScalingActive", false, &reason, message);
                decision.last = Some(note);
                return None;
            }
        };
        let metrics = list(spec, "/metrics");
        let results: Vec<_> = self.with_workload(key, scale, &pods, &memory.answers, |workload| {
            metrics.iter().map(|metric| workload.compute(spec, metric, now)).collect()
        });
        for failed in results.iter().filter_map(|result| result.as_ref().err()) {
            decision.plan.event(true, failed.reason, failed.message.clone());
        }
        let blank = || json!({"type": ""});
        let status =
            |result: &Result<Computed, Failed>| result.as_ref().map_or_else(|_| blank(), |it| it.status.clone());
        decision.status["currentMetrics"] = results.iter().map(status).collect();
        let computed = results.iter().filter_map(|result| result.as_ref().ok());
        // The first one of those that ask for the most.
        let greatest = computed.reduce(|best, next| if next.replicas > best.replicas { next } else { best });
        let failures: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        let greatest = match (greatest, failures.first()) {
            (Some(greatest), None) => greatest,
            (Some(greatest), Some(_)) if greatest.replicas >= current => greatest,
            (_, Some(first)) => {
                let why = format!("the HPA was unable to compute the replica count: {}", first.message);
                decision.set("ScalingActive", false, first.reason, why);
                let (failed, all) = (failures.len(), metrics.len());
                let summary = &first.summary;
                decision.last =
                    Some(format!("invalid metrics ({failed} invalid out of {all}), first error is: {summary}"));
                return None;
            }
            (None, None) => return None,
        };
        let why = format!("the HPA was able to successfully calculate a replica count from {}", greatest.name);
        decision.set("ScalingActive", true, "ValidMetricFound", why);
        let reason = match greatest.replicas {
            wanted if wanted > current => format!("{} above target", greatest.name),
            wanted if wanted < current => "All metrics below target".into(),
            _ => String::new(),
        };
        let limited = limits::limit(spec, &mut memory.history, current, greatest.replicas, now);
        let Limited { replicas, stabilized, limited: (is_limited, why) } = limited;
        decision.set("AbleToScale", true, stabilized.0, stabilized.1.into());
        decision.set("ScalingLimited", is_limited, why.0, why.1.into());
        Some((replicas, reason))
    }
}

/// Returns a plan that reads the values of metrics, after which the next decision follows.
fn read(autoscaler: &Value, paths: Vec<String>) -> Plan {
    let mut plan = Plan::of(&AUTOSCALER, autoscaler);
    plan.steps.push(Step::Read(paths));
    plan.requeue_after(Duration::ZERO);
    plan
}

fn warning(reason: &str, message: String) -> Step {
    let reason = match reason {
        "SelectorRequired" => "SelectorRequired",
        "AmbiguousSelector" => "AmbiguousSelector",
        _ => "InvalidSelector",
    };
    Step::Event { warning: true, reason, message }
}

/// A decision about an autoscaler: events, a scale, and the status.
struct Decision<'a> {
    autoscaler: &'a Value,
    now: Timestamp,
    plan: Plan,
    status: Value,
    /// The message of an event that follows the status.
    last: Option<String>,
}

impl<'a> Decision<'a> {
    fn new(autoscaler: &'a Value, now: Timestamp) -> Self {
        let mut plan = Plan::of(&AUTOSCALER, autoscaler);
        plan.regarding[0] = "autoscaling/v2".into();
        plan.requeue_after(PERIOD);
        let mut status = json!({
            "conditions": list(autoscaler, "/status/conditions"), "currentMetrics": Value::Null,
            "currentReplicas": int(autoscaler, "/status/currentReplicas"),
            "desiredReplicas": int(autoscaler, "/status/desiredReplicas"),
        });
        if let Some(time) = autoscaler.pointer("/status/lastScaleTime") {
            status["lastScaleTime"] = time.clone();
        }
        Self { autoscaler, now, plan, status, last: None }
    }

    /// Sets a condition.
    fn set(&mut self, kind: &str, holds: bool, reason: &str, message: String) {
        let holds = if holds { "True" } else { "False" };
        let mut after = json!({
            "type": kind, "status": holds, "reason": reason, "message": message, "lastTransitionTime": stamp(self.now),
        });
        let Some(conditions) = self.status["conditions"].as_array_mut() else { return };
        match conditions.iter_mut().find(|one| one["type"] == kind) {
            Some(before) => {
                if before["status"] == holds {
                    after["lastTransitionTime"] = before["lastTransitionTime"].clone();
                }
                *before = after;
            }
            None => conditions.push(after),
        }
    }

    /// Changes the scale.
    fn rescale(&mut self, resource: &Resource, key: &Key, desired: i64, why: &str) {
        let name = text(self.autoscaler, "/spec/scaleTargetRef/name");
        let path = ObjectPath::of(resource, Some(&key.namespace), name);
        let message = format!("New size: {desired}; reason: {why}");
        let report = Report {
            failures: vec![("FailedRescale", format!("{message}; error: "))],
            success: Some(("SuccessfulRescale", message)),
        };
        let patch = json!({"spec": {"replicas": desired}});
        self.plan.steps.push(Step::Merge(path, "/scale", patch).reported(report));
        let able = format!("the HPA controller was able to update the target scale to {desired}");
        self.set("AbleToScale", true, "SucceededRescale", able);
        self.status["lastScaleTime"] = stamp(self.now);
    }

    /// Returns the plan, with the status if it has changed.
    fn plan(mut self) -> Plan {
        if self.status["currentReplicas"] == 0
            && let Some(status) = self.status.as_object_mut()
        {
            status.remove("currentReplicas");
        }
        let text = |field: &str| text(self.autoscaler, field).to_owned();
        let path = ObjectPath {
            group: AUTOSCALER.group.into(),
            version: "v2".into(),
            plural: AUTOSCALER.plural.into(),
            namespace: Some(text("/metadata/namespace")),
            name: text("/metadata/name"),
        };
        self.plan.steps.extend(Step::status_at(path, self.autoscaler, self.status));
        if let Some(message) = self.last {
            self.plan.event(true, "FailedComputeMetricsReplicas", message);
        }
        self.plan
    }
}

impl Controller for Autoscalers {
    fn reset(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        *self = Self { memory, ..Self::new(self.api.clone(), self.pods.clone(), self.source.clone()) };
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        self.targets.take(change);
        if API_SERVICE.is_of(change) {
            self.metric_services.take(change.object(), change.kind == ChangeKind::Deleted);
        }
        if !AUTOSCALER.is_of(change) {
            return Vec::new();
        }
        let Some(key) = Key::of(change.object()) else { return Vec::new() };
        if change.kind == ChangeKind::Deleted {
            self.autoscalers.remove(&key);
            self.memory.lock().remove(&key);
        } else {
            self.autoscalers.insert(key.clone(), change.object().clone());
        }
        vec![key]
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(autoscaler) = self.autoscalers.get(key) else { return Plan::default() };
        let mut memory = self.memory.lock();
        let memory = memory.entry(key.clone()).or_default();
        let uid = text(autoscaler, "/metadata/uid");
        if memory.uid != uid {
            *memory = Memory { uid: uid.to_owned(), ..Memory::default() };
        }
        if let Some(due) = memory.due.filter(|due| now < *due && memory.failure.is_none()) {
            let mut plan = Plan::default();
            plan.requeue_after(Duration::try_from(due.duration_since(now)).unwrap_or_default());
            return plan;
        }
        memory.due = now.checked_add(PERIOD).ok();
        memory.pending = None;
        let plan = self.reconcile(key, autoscaler, memory, now);
        // Each decision has its own values.
        if memory.due.is_some() {
            memory.answers.clear();
        }
        plan
    }

    fn answered(&mut self, key: &Key, answers: Answers) {
        if let Some(memory) = self.memory.lock().get_mut(key) {
            memory.answers.extend(answers);
        }
    }

    fn finished(&mut self, key: &Key, failure: Option<(StepKind, String)>) {
        let mut memory = self.memory.lock();
        let Some(memory) = memory.get_mut(key) else { return };
        let Some((before, after, at)) = memory.pending.take() else { return };
        match failure {
            Some((StepKind::Scale, why)) => memory.failure = Some(why),
            _ => {
                let behavior = self.autoscalers.get(key).map(|autoscaler| &autoscaler["spec"]["behavior"]);
                memory.history.scaled(behavior.unwrap_or(&Value::Null), before, after, at);
            }
        }
    }
}
