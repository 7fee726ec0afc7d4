//! Tests of the scheduler's decisions.

mod affinity;
mod binding;
mod devices;
mod nodes;
mod preemption;
mod score;
mod spread;
mod volumes;
mod waiting;

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    action::PodAction,
    candidate::{Candidate, PodKey},
    decision::Scheduler,
    state::ClusterState,
};
use crate::node::NODE_NAME;

/// A scheduler with one node.
fn scheduler(node: Value) -> Scheduler {
    let mut scheduler = Scheduler::default();
    let mut node = node;
    node["metadata"]["name"] = json!(NODE_NAME);
    node["status"]["allocatable"]["pods"] = json!("110");
    scheduler.state.nodes.insert(NODE_NAME.to_owned(), Arc::new(node));
    scheduler
}

/// Adds a version of a pod, and returns its key.
fn put(scheduler: &mut Scheduler, pod: &Value) -> PodKey {
    scheduler.take_pod(&Arc::new(pod.clone()), &pod.clone().into(), false);
    PodKey::of(pod)
}

/// A pod with the fields of its metadata and spec.
fn pod(name: &str, metadata: Value, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"namespace": "default", "name": name, "uid": name}, "spec": spec});
    pod["metadata"].as_object_mut().expect("an object").extend(metadata.as_object().cloned().unwrap_or_default());
    pod
}

/// The same pod on the node.
fn bound(mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = json!(NODE_NAME);
    pod
}

/// The same pod on a node.
fn on(node: &str, mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = json!(node);
    pod
}

/// Decides about a new pod, and returns its node.
#[track_caller]
fn place(scheduler: &mut Scheduler, pod: &Value) -> String {
    let key = put(scheduler, pod);
    match scheduler.decide(&key) {
        Some(PodAction::Bind(node)) => node,
        other => panic!("{other:?}"),
    }
}

/// Decides about a pod that can't be bound, and returns the reason.
#[track_caller]
fn refused(scheduler: &mut Scheduler, pod: &PodKey) -> String {
    match scheduler.decide(pod) {
        Some(PodAction::Report(why, object)) => {
            scheduler.end(pod, &PodAction::Report(why.clone(), object), true);
            why
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the first reason why a node can't take a pod.
fn obstacle(state: &ClusterState, pod: &Value, node: &str) -> Option<String> {
    let key = PodKey::of(pod);
    let candidate = Candidate::new(&key, pod, pod.clone().into());
    let relations = state.relations(&candidate);
    let obstacle = state.trial(node, &[], &candidate, &relations).obstacle(&state.nodes[node]);
    obstacle.and_then(|obstacle| obstacle.reasons.into_iter().next())
}
