//! Pod disruption budgets: how many pods of each may be evicted
//! (<https://kubernetes.io/docs/tasks/run-application/configure-pdb/>).
//!
//! The API server refuses evictions by the status that this controller writes, and records in it the pods that it
//! evicts.

mod owner;
pub(crate) mod stale;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kubewright_apiserver::{ApiServer, Change, ChangeKind};
use serde_json::{Map, Value, json};

use self::owner::Owners;
use super::{
    kind::Kind,
    objects::Objects,
    pod::is_ready,
    reconcile::{Controller, Key, Plan, Step, StepKind, regarding},
    value::{condition, controller_of, int, is_deleting, list, selector, selects, stamp, text, time},
};
use crate::events::ObjectEvent;

const BUDGET: Kind = Kind { group: "policy", kind: "PodDisruptionBudget", plural: "poddisruptionbudgets" };

/// The condition that says whether disruptions are allowed.
const ALLOWED: &str = "DisruptionAllowed";
/// The time after which an evicted pod that isn't being deleted counts again.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// The disruption controller.
#[derive(Debug)]
pub(crate) struct Disruptions {
    /// Knows which kinds exist, and which of them have a scale.
    api: ApiServer,
    budgets: BTreeMap<Key, Arc<Value>>,
    pods: Objects,
    owners: Owners,
    /// Events about pods that several budgets select, by the first of these budgets.
    ambiguous: BTreeMap<Key, Vec<ObjectEvent>>,
}

impl Disruptions {
    /// Creates a controller for the kinds of a server. `pods` include each pod before its change is taken.
    pub(crate) fn new(api: ApiServer, pods: Objects) -> Self {
        Self { api, budgets: BTreeMap::new(), pods, owners: Owners::default(), ambiguous: BTreeMap::new() }
    }

    /// Returns the budgets that a change of a pod concerns.
    fn take_pod(&mut self, pod: &Value) -> Vec<Key> {
        let budgets = self.selecting(pod);
        if let [first, _, ..] = &budgets[..] {
            let [namespace, name] = ["/metadata/namespace", "/metadata/name"].map(|field| text(pod, field));
            let message = format!(
                "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {:?} arbitrarily.",
                first.name
            );
            let event = ObjectEvent::new(regarding(&Kind::POD, pod), true, "MultiplePodDisruptionBudgets", message);
            self.ambiguous.entry(first.clone()).or_default().push(event);
        }
        budgets
    }

    /// Returns the budgets that select a pod.
    fn selecting(&self, pod: &Value) -> Vec<Key> {
        let namespace = text(pod, "/metadata/namespace");
        let budgets = self.budgets.range(Key::first_of(namespace)..);
        budgets
            .take_while(|(budget, _)| budget.namespace == namespace)
            .filter(|(_, budget)| selects(&selector(budget, "/spec/selector"), pod))
            .map(|(budget, _)| budget.clone())
            .collect()
    }
}

impl Controller for Disruptions {
    fn reset(&mut self) {
        *self = Self::new(self.api.clone(), self.pods.clone());
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if Kind::POD.is_of(change) {
            return self.take_pod(change.object());
        }
        if BUDGET.is_of(change) {
            let Some(key) = Key::of(change.object()) else { return Vec::new() };
            if change.kind == ChangeKind::Deleted {
                self.budgets.remove(&key);
                self.ambiguous.remove(&key);
            } else {
                self.budgets.insert(key.clone(), change.object().clone());
            }
            return vec![key];
        }
        // Whether a change of an owner concerns a budget is found out by the next decision about it.
        if !self.owners.take(change) {
            return Vec::new();
        }
        let Some(key) = Key::of(change.object()) else { return Vec::new() };
        let budgets = self.budgets.range(Key::first_of(&key.namespace)..).map(|(budget, _)| budget);
        budgets.take_while(|budget| budget.namespace == key.namespace).cloned().collect()
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(budget) = self.budgets.get(key) else { return Plan::default() };
        let pods = self.pods.selected(&key.namespace, &selector(budget, "/spec/selector"));
        let pods: Vec<&Value> = pods.iter().map(|pod| &**pod).collect();
        let mut plan = Plan::of(&BUDGET, budget);
        if pods.is_empty() {
            plan.event(false, "NoPods", "No matching pods found".into());
        }
        let status = match self.expected(budget, &pods) {
            Ok(expected) => {
                if expected.unmanaged {
                    plan.event(true, "UnmanagedPods", unmanaged(budget));
                }
                status(budget, &pods, expected, now, &mut plan)
            }
            Err(why) => {
                let message = format!("Failed to calculate the number of expected pods: {why}");
                plan.event(true, "CalculateExpectedPodCountFailed", message);
                failed(budget, why, now)
            }
        };
        match change(budget, status) {
            Some(step) => plan.steps.push(step),
            // Events accompany changes, so that they aren't repeated for each change of a pod.
            None => plan.steps.clear(),
        }
        plan.steps.extend(self.ambiguous.get(key).into_iter().flatten().cloned().map(Step::EventAbout));
        plan
    }

    fn finished(&mut self, key: &Key, _failure: Option<(StepKind, String)>) {
        self.ambiguous.remove(key);
    }
}

/// The number of pods that a budget expects.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Expected {
    pods: i64,
    healthy: i64,
    /// Whether a pod has no controller, so that it isn't counted.
    unmanaged: bool,
}

impl Disruptions {
    /// Returns the number of expected pods, and how many of them have to be healthy.
    ///
    /// # Errors
    /// Returns the reason why the number of a pod's siblings is unknown.
    fn expected(&self, budget: &Value, pods: &[&Value]) -> Result<Expected, String> {
        let (least, most) = (&budget["spec"]["minAvailable"], &budget["spec"]["maxUnavailable"]);
        if !most.is_null() {
            let (pods, unmanaged) = self.scale(pods)?;
            let healthy = (pods - amount(most, pods)?).max(0);
            return Ok(Expected { pods, healthy, unmanaged });
        }
        match least {
            Value::Null => Ok(Expected::default()),
            Value::Number(number) => {
                let pods = i64::try_from(pods.len()).unwrap_or(i64::MAX);
                Ok(Expected { pods, healthy: number.as_i64().unwrap_or_default(), unmanaged: false })
            }
            _ => {
                let (pods, unmanaged) = self.scale(pods)?;
                Ok(Expected { pods, healthy: amount(least, pods)?, unmanaged })
            }
        }
    }

    /// Returns the sum of the scales of all controllers of the pods, and whether a pod has none.
    fn scale(&self, pods: &[&Value]) -> Result<(i64, bool), String> {
        let mut scales = BTreeMap::new();
        let mut unmanaged = false;
        for pod in pods {
            let Some(controller) = controller_of(pod) else {
                unmanaged = true;
                continue;
            };
            let scale = self.owners.scale(text(pod, "/metadata/namespace"), controller);
            let (uid, scale) = scale.ok_or_else(|| self.without_scale(pod, controller))?;
            scales.insert(uid, scale);
        }
        Ok((scales.values().sum(), unmanaged))
    }

    /// Returns the reason why the controller of a pod has no scale.
    fn without_scale(&self, pod: &Value, controller: &Value) -> String {
        let (group, kind) = owner::group_kind(controller);
        let kinds = self.api.registry().all();
        match kinds.iter().find(|entry| *entry.group == *group && *entry.kind == *kind) {
            None => format!("no matches for kind {kind:?} in version {:?}", text(controller, "/apiVersion")),
            Some(entry) if entry.scale.is_none() => {
                let group = if group.is_empty() { group } else { format!(".{group}") };
                format!("{}{group} does not implement the scale subresource", entry.plural)
            }
            Some(_) => format!("found no controllers for pod {:?}", text(pod, "/metadata/name")),
        }
    }
}

/// Returns an integer, or a percentage of `total`, which is rounded up.
fn amount(value: &Value, total: i64) -> Result<i64, String> {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    match (value.as_i64(), percent) {
        (Some(number), _) => Ok(number),
        (_, Some(percent)) => Ok((percent * total + 99).div_euclid(100)),
        _ => Err("invalid value for IntOrString: invalid type: string is not a percentage".into()),
    }
}

fn unmanaged(budget: &Value) -> String {
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of \
         the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods \
         please set \".spec.minAvailable\" field of the PDB to an integer value.",
        selector_text(&budget["spec"]["selector"])
    )
}

/// Returns a selector as Go prints it, which is what Kubernetes' message contains.
fn selector_text(selector: &Value) -> String {
    if selector.is_null() {
        return "nil".into();
    }
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut labels: Vec<_> =
        labels.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    labels.sort_unstable();
    let requirements = list(selector, "/matchExpressions").iter().map(|one| {
        let values: Vec<_> = list(one, "/values").iter().filter_map(Value::as_str).collect();
        let (key, operator) = (text(one, "/key"), text(one, "/operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},", values.join(" "))
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.concat(),
        requirements.collect::<String>()
    )
}

/// Returns the status of a budget, and plans the next decision if it depends on the time.
fn status(budget: &Value, pods: &[&Value], expected: Expected, now: Timestamp, plan: &mut Plan) -> Value {
    let mut disrupted = Map::new();
    for pod in pods.iter().filter(|pod| !is_deleting(pod)) {
        let name = text(pod, "/metadata/name");
        let recorded = &budget["status"]["disruptedPods"][name];
        let end = time(budget, &format!("/status/disruptedPods/{name}"));
        let Some(end) = end.and_then(|at| at.checked_add(DELETION_TIMEOUT).ok()) else { continue };
        if end < now {
            let place = text(budget, "/metadata/namespace");
            plan.event(
                true,
                "NotDeleted",
                format!("Pod was expected by PDB {place}/{place} to be deleted but it wasn't"),
            );
        } else {
            plan.requeue_after(
                Duration::try_from(end.duration_since(now)).unwrap_or_default() + Duration::from_millis(1),
            );
            disrupted.insert(name.to_owned(), recorded.clone());
        }
    }
    let counts =
        |pod: &&&Value| !is_deleting(pod) && !disrupted.contains_key(text(pod, "/metadata/name")) && is_ready(pod);
    let healthy = i64::try_from(pods.iter().filter(counts).count()).unwrap_or(i64::MAX);
    let allowed = if expected.pods > 0 { (healthy - expected.healthy).max(0) } else { 0 };
    let generation = int(budget, "/metadata/generation");
    let (holds, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let mut status = json!({
        "observedGeneration": generation, "disruptionsAllowed": allowed, "currentHealthy": healthy,
        "desiredHealthy": expected.healthy, "expectedPods": expected.pods,
        "conditions": with_condition(budget, holds, reason, "", generation, now),
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = disrupted.into();
    }
    status
}

/// Returns the status of a budget that can't be computed. It allows no disruption.
fn failed(budget: &Value, why: String, now: Timestamp) -> Value {
    let observed = int(budget, "/status/observedGeneration");
    let mut status = budget["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    status["disruptionsAllowed"] = 0.into();
    status["conditions"] = with_condition(budget, "False", "SyncFailed", &why, observed, now);
    status
}

/// Returns the conditions of a budget with a new state of [`ALLOWED`].
fn with_condition(budget: &Value, holds: &str, reason: &str, message: &str, observed: i64, now: Timestamp) -> Value {
    let before = condition(budget, ALLOWED);
    let since = before.filter(|before| before["status"] == holds).map(|before| before["lastTransitionTime"].clone());
    let mut after = json!({
        "type": ALLOWED, "status": holds, "lastTransitionTime": since.unwrap_or_else(|| stamp(now)), "reason": reason,
        "message": message,
    });
    if observed > 0 {
        after["observedGeneration"] = observed.into();
    }
    let mut conditions = list(budget, "/status/conditions").to_vec();
    match conditions.iter_mut().find(|one| one["type"] == ALLOWED) {
        Some(before) => *before = after,
        None => conditions.push(after),
    }
    conditions.into()
}

/// Returns the step that changes the status of a budget; `None` if it is the same already. The API server changes the
/// status, too, so it must not have changed since the decision.
fn change(budget: &Value, mut status: Value) -> Option<Step> {
    let before = &budget["status"];
    if *before == status {
        return None;
    }
    for (name, _) in before["disruptedPods"].as_object().into_iter().flatten() {
        if status["disruptedPods"].get(name).is_none() {
            status["disruptedPods"][name] = Value::Null;
        }
    }
    let metadata = &budget["metadata"];
    let precondition = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
    let path = BUDGET.address(text(budget, "/metadata/namespace"), text(budget, "/metadata/name"));
    Some(Step::Merge(path, "/status", json!({"metadata": precondition, "status": status})))
}
