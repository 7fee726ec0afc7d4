//! The scheduler, which binds pods to the single node. A pod that can't be bound waits, and its condition contains the
//! reason.
//!
//! It respects `cordon`, taints, node selectors and required node affinity ([`filter`]), the host ports of pods ([`ports`]), and
//! what pods request of the node ([`fit`]). Pods of higher priority don't preempt others.

pub(crate) mod filter;
mod fit;
mod ports;

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{ApiServer, Change, ChangeKind};
use serde_json::{Value, json};

use self::{
    fit::{Amounts, Requested},
    ports::{HostPort, UsedPorts},
};
use super::{
    pod::{claims_of, has_ended},
    reconcile::Key,
    retry::{Retries, until},
    value::{condition, is_deleting, list, stamp, text},
};
use crate::{
    events::{ObjectEvent, Recorder},
    node::NODE_NAME,
    object_client::{ObjectClient, ObjectPath, is_conflict, is_gone},
};

/// The number of pods that are bound concurrently.
const CONCURRENCY: usize = 64;
/// The default scheduler name.
const SCHEDULER: &str = "default-scheduler";

/// A pod to bind: its namespace, name and UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unbound {
    namespace: String,
    name: String,
    uid: String,
}

/// An action for a pod.
#[derive(Clone, Debug, PartialEq)]
enum PodAction {
    Bind,
    /// Set the condition `PodScheduled` of a pod that can't be bound, with the reason.
    Report(String, Arc<Value>),
}

type Completion = (Unbound, PodAction, Result<(), kube::Error>);

/// Binds pods for as long as it is polled. Records no events if `events` is `None`.
pub(crate) async fn run(api: ApiServer, client: ObjectClient, clock: SharedClock, events: Option<Recorder>) {
    let mut feed = api.feed();
    let mut work: FuturesUnordered<BoxFuture<'_, Completion>> = FuturesUnordered::new();
    let mut retries = Retries::default();
    let mut scheduler = Scheduler::default();
    loop {
        let now = clock.monotonic();
        let begin = |pod: Unbound, scheduler: &mut Scheduler| {
            let action = scheduler.decide(&pod)?;
            let (client, now) = (&client, clock.now());
            Some(Box::pin(async move {
                let result = perform(client, &pod, &action, now).await;
                (pod, action, result)
            }) as BoxFuture<'_, _>)
        };
        work.extend(retries.due(now).into_iter().filter_map(|pod| begin(pod, &mut scheduler)));
        let timer = until(retries.next(), now);
        tokio::select! {
            biased;
            change = feed.next(), if work.len() < CONCURRENCY => match change {
                Ok(change) => {
                    let affected = scheduler.take(&change);
                    work.extend(affected.into_iter().filter_map(|pod| begin(pod, &mut scheduler)));
                }
                Err(lagged) => {
                    tracing::info!(%lagged, "the scheduler restarts from a snapshot");
                    scheduler = Scheduler::default();
                }
            },
            Some((pod, action, result)) = work.next() => match result {
                Ok(()) => {
                    retries.forget(&pod);
                    if let Some(events) = &events {
                        events.record(event(pod, action));
                    }
                }
                Err(error) => {
                    if action == PodAction::Bind {
                        let freed = scheduler.withdraw(&pod).into_iter().filter(|other| !retries.is_waiting(other));
                        work.extend(freed.filter_map(|other| begin(other, &mut scheduler)));
                    }
                    if is_gone(&error) || is_conflict(&error) {
                        // The pod is gone, already bound, or changed. The feed delivers its new state.
                        retries.forget(&pod);
                    } else {
                        tracing::warn!(%error, pod = pod.name, namespace = pod.namespace, "failed to bind a pod");
                        retries.failed(pod, now);
                    }
                }
            },
            () = timer => {}
        }
    }
}

/// The scheduler's state. Pure.
#[derive(Debug, Default)]
struct Scheduler {
    node: Option<Arc<Value>>,
    pods: BTreeMap<Unbound, Arc<Value>>,
    claims: BTreeMap<Key, Arc<Value>>,
    /// What each pod takes that is bound or about to be, and the sums.
    bound: BTreeMap<Unbound, Taken>,
    requested: Requested,
    ports: UsedPorts,
}

/// What a pod takes of the node.
#[derive(Debug, PartialEq)]
struct Taken {
    requests: Amounts,
    ports: Vec<HostPort>,
}

impl Taken {
    fn by(pod: &Value) -> Self {
        Self { requests: fit::requests(pod), ports: ports::host_ports(pod) }
    }
}

impl Scheduler {
    /// Processes a change, and returns the affected pods.
    fn take(&mut self, change: &Change) -> Vec<Unbound> {
        let gone = change.kind == ChangeKind::Deleted;
        match &*change.resource.storage {
            "/nodes" if change.object["metadata"]["name"] == NODE_NAME => {
                self.node = (!gone).then(|| change.object.clone());
                self.pods.keys().cloned().collect()
            }
            "/persistentvolumeclaims" => self.take_claim(&change.object, gone),
            "/pods" => {
                let pod = named(&change.object);
                if gone || !is_unbound(&change.object) {
                    self.pods.remove(&pod);
                    let runs =
                        !gone && text(&change.object, "/spec/nodeName") == NODE_NAME && !has_ended(&change.object);
                    let freed = self.account(&pod, runs.then(|| Taken::by(&change.object)));
                    return if freed { self.pods.keys().cloned().collect() } else { Vec::new() };
                }
                self.pods.insert(pod.clone(), change.object.clone());
                vec![pod]
            }
            _ => Vec::new(),
        }
    }

    /// Records what a pod takes, if it takes anything. Returns whether something was freed.
    fn account(&mut self, pod: &Unbound, taken: Option<Taken>) -> bool {
        let before = self.bound.remove(pod);
        let changed = before.is_some() && before != taken;
        if let Some(before) = before {
            self.requested.subtract(&before.requests);
            self.ports.subtract(&before.ports);
        }
        if let Some(taken) = taken {
            self.requested.add(&taken.requests);
            self.ports.add(&taken.ports);
            self.bound.insert(pod.clone(), taken);
        }
        changed
    }

    /// Gives back what was set aside for a pod that couldn't be bound. Returns the other pods that wait, if something was freed.
    fn withdraw(&mut self, pod: &Unbound) -> Vec<Unbound> {
        if self.pods.contains_key(pod) && self.account(pod, None) {
            return self.pods.keys().filter(|other| *other != pod).cloned().collect();
        }
        Vec::new()
    }

    /// Processes a change of a claim, and returns the pods that wait for it.
    fn take_claim(&mut self, claim: &Arc<Value>, gone: bool) -> Vec<Unbound> {
        let Some(key) = Key::of(claim) else { return Vec::new() };
        let waits = |(pod, object): (&Unbound, &Arc<Value>)| {
            let uses = pod.namespace == key.namespace && claims_of(object).any(|name| name == key.name);
            uses.then(|| pod.clone())
        };
        let waiting = self.pods.iter().filter_map(waits).collect();
        if gone {
            self.claims.remove(&key);
        } else {
            self.claims.insert(key, claim.clone());
        }
        waiting
    }

    /// Returns which claim a pod has to wait for.
    fn reason_to_wait(&self, pod: &Unbound, object: &Value) -> Option<String> {
        claims_of(object).find_map(|name| {
            match self.claims.get(&Key { namespace: pod.namespace.clone(), name: name.clone() }) {
                None => Some(format!("persistentvolumeclaim \"{name}\" not found")),
                Some(claim) if is_deleting(claim) => Some(format!("persistentvolumeclaim \"{name}\" is being deleted")),
                Some(claim) if text(claim, "/status/phase") == "Bound" => None,
                Some(_) => Some("pod has unbound immediate PersistentVolumeClaims".into()),
            }
        })
    }

    /// Returns the action for a pod; `None` if its condition is up to date. What a pod to bind takes is set aside for it.
    fn decide(&mut self, pod: &Unbound) -> Option<PodAction> {
        let object = self.pods.get(pod)?;
        let Some(node) = &self.node else {
            return report(object, "no nodes available to schedule pods".into());
        };
        let [preemption, no_victims] = match text(object, "/spec/preemptionPolicy") {
            "Never" => ["preemption: not eligible due to preemptionPolicy=Never."; 2],
            _ => [
                "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
                "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
            ],
        };
        if let Some(why) = self.reason_to_wait(pod, object) {
            return report(object, format!("0/1 nodes are available: {why}. {preemption}"));
        }
        if let Some(why) = filter::reason_not_to_bind(object, node) {
            return report(object, format!("0/1 nodes are available: 1 {why}. {preemption}"));
        }
        if self.bound.contains_key(pod) {
            // It is being bound.
            return None;
        }
        let taken = Taken::by(object);
        if self.ports.conflict_with(&taken.ports) {
            return report(object, format!("0/1 nodes are available: 1 {}. {no_victims}", ports::CONFLICT));
        }
        if let Some(lack) = self.requested.lack(&taken.requests, node) {
            let why: Vec<_> = lack.reasons.iter().map(|reason| format!("1 {reason}")).collect();
            let preemption = if lack.is_final { preemption } else { no_victims };
            return report(object, format!("0/1 nodes are available: {}. {preemption}", why.join(", ")));
        }
        self.account(pod, Some(taken));
        Some(PodAction::Bind)
    }
}

fn report(pod: &Arc<Value>, why: String) -> Option<PodAction> {
    let is_reported =
        condition(pod, "PodScheduled").is_some_and(|one| one["status"] == "False" && one["message"] == why);
    (!is_reported).then(|| PodAction::Report(why, pod.clone()))
}

async fn perform(
    client: &ObjectClient,
    pod: &Unbound,
    action: &PodAction,
    now: jiff::Timestamp,
) -> Result<(), kube::Error> {
    let address = ObjectPath::core("pods", Some(&pod.namespace), &pod.name);
    let metadata = json!({"name": pod.name, "namespace": pod.namespace, "uid": pod.uid});
    match action {
        PodAction::Bind => {
            let target = json!({"apiVersion": "v1", "kind": "Node", "name": NODE_NAME});
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target});
            client.create(&address, "/binding", &binding).await.map(drop)
        }
        PodAction::Report(why, object) => {
            let others = list(object, "/status/conditions").iter().filter(|one| one["type"] != "PodScheduled");
            let before = condition(object, "PodScheduled").filter(|one| one["status"] == "False");
            let since = before.map_or_else(|| stamp(now), |one| one["lastTransitionTime"].clone());
            let ours = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
                "lastTransitionTime": since, "observedGeneration": object["metadata"]["generation"],
            });
            let conditions: Vec<_> = others.cloned().chain([ours]).collect();
            let metadata = json!({"uid": pod.uid, "resourceVersion": object["metadata"]["resourceVersion"]});
            let patch = json!({"metadata": metadata, "status": {"conditions": conditions}});
            client.merge(&address, "/status", &patch).await.map(drop)
        }
    }
}

fn named(pod: &Value) -> Unbound {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    Unbound { namespace: text("namespace"), name: text("name"), uid: text("uid") }
}

/// Returns whether a pod has to be bound.
fn is_unbound(pod: &Value) -> bool {
    let spec = &pod["spec"];
    let scheduler = spec["schedulerName"].as_str().unwrap_or(SCHEDULER);
    let gated = spec["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let wanted = spec["nodeName"].as_str().unwrap_or_default().is_empty() && scheduler == SCHEDULER && !gated;
    wanted && pod["metadata"]["deletionTimestamp"].is_null()
}

fn event(pod: Unbound, action: PodAction) -> ObjectEvent {
    let Unbound { namespace, name, uid } = pod;
    let (warning, reason, message) = match action {
        PodAction::Bind => (false, "Scheduled", format!("Successfully assigned {namespace}/{name} to {NODE_NAME}")),
        PodAction::Report(why, _) => (true, "FailedScheduling", why),
    };
    ObjectEvent {
        regarding: ["v1".into(), "Pod".into(), namespace, name, uid],
        warning,
        reason: reason.into(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a pod that waits, with a host port.
    fn add(scheduler: &mut Scheduler, name: &str) -> Unbound {
        let containers = json!([{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]);
        let metadata = json!({"namespace": "default", "name": name, "uid": name});
        let pod = json!({"metadata": metadata, "spec": {"containers": containers}});
        let key = named(&pod);
        scheduler.pods.insert(key.clone(), Arc::new(pod));
        key
    }

    #[test]
    fn a_pod_that_is_not_bound_leaves_its_port_to_others() {
        let node = json!({"metadata": {"name": NODE_NAME}});
        let mut scheduler = Scheduler { node: Some(Arc::new(node)), ..Scheduler::default() };
        let (first, second) = (add(&mut scheduler, "first"), add(&mut scheduler, "second"));
        assert_eq!(scheduler.decide(&first), Some(PodAction::Bind));
        assert_eq!(scheduler.decide(&first), None, "it is being bound");
        let refused = scheduler.decide(&second);
        assert!(matches!(refused, Some(PodAction::Report(why, _)) if why.contains(ports::CONFLICT)));
        assert_eq!(scheduler.withdraw(&first), std::slice::from_ref(&second));
        assert_eq!(scheduler.decide(&second), Some(PodAction::Bind));
        assert!(scheduler.withdraw(&first).is_empty(), "nothing was set aside for it");
    }

    #[test]
    fn a_pod_that_never_preempts_says_so() {
        let node = json!({"metadata": {"name": NODE_NAME}, "spec": {"unschedulable": true}});
        let mut scheduler = Scheduler { node: Some(Arc::new(node)), ..Scheduler::default() };
        let key = add(&mut scheduler, "modest");
        let why = |scheduler: &mut Scheduler| match scheduler.decide(&key) {
            Some(PodAction::Report(why, _)) => why,
            other => panic!("{other:?}"),
        };
        let reason = "0/1 nodes are available: 1 node(s) were unschedulable.";
        let unhelpful = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
        assert_eq!(why(&mut scheduler), format!("{reason} {unhelpful}"));
        let mut pod = (*scheduler.pods[&key]).clone();
        pod["spec"]["preemptionPolicy"] = json!("Never");
        scheduler.pods.insert(key.clone(), Arc::new(pod));
        assert_eq!(why(&mut scheduler), format!("{reason} preemption: not eligible due to preemptionPolicy=Never."));
    }
}
