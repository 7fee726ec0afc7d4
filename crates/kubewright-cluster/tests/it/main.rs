//! Tests of the embedded cluster through its API.

mod account_tokens;
mod admission_policies;
mod api_services;
mod attach;
mod autoscaler;
mod controllers;
mod crds;
mod cron_job;
mod daemon_set;
mod data_dir;
mod deployment;
mod device_claims;
mod disruption;
mod drop;
mod endpoints;
mod ephemeral;
mod event_ttl;
mod exec;
mod garbage;
mod health;
mod isolation;
mod job;
mod kubelet_api;
mod lag;
mod logs;
mod namespace_defaults;
mod namespaces;
mod network_policy;
mod node;
mod node_admission;
mod node_env;
mod player;
mod pod_network;
mod port_forward;
mod probes;
mod protection;
mod proxy;
mod raw_devices;
mod replicaset;
mod resource_metrics;
mod resource_quota;
mod scheduler;
mod service_addresses;
mod signing;
mod simulate;
mod stateful_set;
mod taint_eviction;
mod volume_binder;
mod volumes;
mod wire;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, ContainerState, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams, PropagationPolicy},
};
use kubewright_cluster::{Cluster, Pods};
use serde_json::{Value, json};

/// A cluster without a node.
async fn bare() -> Cluster {
    Cluster::builder().pods(Pods::None).start().await.expect("a cluster")
}

/// A cluster that runs pods.
async fn running() -> Cluster {
    Cluster::builder().pods(Pods::Run).start().await.expect("a cluster")
}

/// A cluster that runs pods, with the images of [`player`].
async fn playing() -> Cluster {
    Cluster::builder().pods(Pods::Run).images(player::images()).start().await.expect("a cluster")
}

fn pods(cluster: &Cluster) -> Api<Pod> {
    Api::namespaced(cluster.client(), "default")
}

fn config_maps(cluster: &Cluster) -> Api<ConfigMap> {
    Api::namespaced(cluster.client(), "default")
}

/// A pod with one container, `main`, that runs a shell command. `spec` adds to or replaces fields of the pod's spec.
fn pod(name: &str, command: &str, spec: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox", "command": ["sh", "-c", command]}],
        },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    serde_json::from_value(pod).expect("a pod")
}

async fn create(cluster: &Cluster, pod: &Pod) -> Pod {
    pods(cluster).create(&PostParams::default(), pod).await.expect("created")
}

/// Waits until a pod of the namespace `default` meets a condition.
async fn until(cluster: &Cluster, name: &str, mut condition: impl FnMut(&Pod) -> bool) -> Pod {
    let mut met = |pods: &[&Pod]| pods.iter().any(|pod| is_default(*pod, name) && condition(pod));
    let found = cluster.expect::<Pod>(&mut met).await.unwrap_or_else(|unmet| panic!("{name}: {unmet}"));
    found.into_iter().find(|pod| is_default(pod, name)).expect("the pod")
}

fn is_default(object: &impl ResourceExt, name: &str) -> bool {
    object.name_any() == name && object.namespace().as_deref() == Some("default")
}

/// Waits until a pod is gone.
async fn gone(cluster: &Cluster, name: &str) {
    cluster.expect::<Pod>(|pods| pods.iter().all(|pod| pod.name_any() != name)).await.expect("it goes");
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn is_running(pod: &Pod) -> bool {
    phase(pod) == "Running" && state(pod).running.is_some()
}

fn address(pod: &Pod) -> String {
    pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default()
}

/// The state of the first main container.
fn state(pod: &Pod) -> ContainerState {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.and_then(|list| list.first()?.state.clone()).unwrap_or_default()
}

fn exit_code(pod: &Pod) -> Option<i32> {
    state(pod).terminated.map(|ended| ended.exit_code)
}

fn waiting_reason(pod: &Pod) -> String {
    state(pod).waiting.and_then(|waiting| waiting.reason).unwrap_or_default()
}

/// Retries until the attempt returns a value.
async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..1500 {
        if let Some(found) = attempt().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: not within 30 s");
}

fn background() -> DeleteParams {
    DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() }
}

fn within(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
