//! Binds every pod to the one node as soon as it appears. There is no choice to make.

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{ApiServer, Change, ChangeKind};
use serde_json::{Value, json};

use super::retry::{Retries, until};
use crate::{
    access::{Access, Address, is_conflict, is_gone},
    events::{Occurrence, Recorder},
    node::NODE_NAME,
};

/// How many pods are bound at a time.
const AT_A_TIME: usize = 64;
/// The scheduler that pods name when they want any.
const SCHEDULER: &str = "default-scheduler";

/// A pod to bind: its namespace, name and UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unbound {
    namespace: String,
    name: String,
    uid: String,
}

/// Binds pods for as long as it is polled. Without `events` it tells nobody.
pub(crate) async fn run(api: ApiServer, access: Access, clock: SharedClock, events: Option<Recorder>) {
    let mut feed = api.feed();
    let mut work: FuturesUnordered<BoxFuture<'_, (Unbound, Result<(), kube::Error>)>> = FuturesUnordered::new();
    let mut retries = Retries::default();
    loop {
        let now = clock.monotonic();
        for pod in retries.due(now) {
            work.push(Box::pin(bind(&access, pod)));
        }
        let timer = until(retries.next(), now);
        tokio::select! {
            biased;
            change = feed.next(), if work.len() < AT_A_TIME => match change {
                Ok(change) => work.extend(unbound(&change).map(|pod| Box::pin(bind(&access, pod)) as BoxFuture<'_, _>)),
                Err(lagged) => tracing::info!(%lagged, "the scheduler begins anew"),
            },
            Some((pod, result)) = work.next() => match result {
                Ok(()) => {
                    retries.forget(&pod);
                    if let Some(events) = &events {
                        events.record(occurrence(&pod));
                    }
                }
                // It is gone, or bound already.
                Err(error) if is_gone(&error) || is_conflict(&error) => retries.forget(&pod),
                Err(error) => {
                    tracing::warn!(%error, pod = pod.name, namespace = pod.namespace, "a pod can't be bound");
                    retries.failed(pod, now);
                }
            },
            () = timer => {}
        }
    }
}

async fn bind(access: &Access, pod: Unbound) -> (Unbound, Result<(), kube::Error>) {
    let address = Address::core("pods", Some(&pod.namespace), &pod.name);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE_NAME},
    });
    let result = access.create(&address, "/binding", &binding).await.map(drop);
    (pod, result)
}

/// The pod, if it is to be bound.
fn unbound(change: &Change) -> Option<Unbound> {
    let pod = &change.object;
    let is_pod = &*change.resource.storage == "/pods" && change.kind != ChangeKind::Deleted;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &pod["spec"];
    let scheduler = spec["schedulerName"].as_str().unwrap_or(SCHEDULER);
    let gated = spec["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let wanted = spec["nodeName"].as_str().unwrap_or_default().is_empty() && scheduler == SCHEDULER && !gated;
    let metadata = &pod["metadata"];
    let alive = metadata["deletionTimestamp"].is_null();
    (is_pod && wanted && alive).then(|| Unbound {
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        uid: text(&metadata["uid"]),
    })
}

fn occurrence(pod: &Unbound) -> Occurrence {
    let Unbound { namespace, name, uid } = pod.clone();
    let message = format!("Successfully assigned {namespace}/{name} to {NODE_NAME}");
    Occurrence {
        regarding: ["v1".into(), "Pod".into(), namespace, name, uid],
        warning: false,
        reason: "Scheduled".into(),
        message,
    }
}
