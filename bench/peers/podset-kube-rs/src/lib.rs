//! The PodSet operator (`app.example.com`) on kube-rs alone, without Kubewright: the peer of `operators/podset` in the
//! convergence benchmark.
//!
//! It behaves like `operators/podset`. The store shows whether anything has to be done, and a live list then decides
//! what: otherwise a reconcile that runs before its own last writes have reached the store would create too many pods.
//! Kubewright's runtime waits for those writes, so its operator lists nothing before it creates. The peer follows
//! kube-rs's recommendations:
//! * one watch for each kind, which feeds a reflector store and triggers the controller ([`Controller::for_stream`],
//!   [`Controller::owns_stream`]), with the managed fields dropped before objects are kept;
//! * children found in the store by their owner's UID ([`Store::state_filter`], since a store has no index);
//! * as many concurrent reconciles as Kubewright's operator has workers, and a status that is written only when it
//!   differs.
//!
//! It has no predicate on generations, so that a status that someone has wiped is rebuilt, as in `operators/podset`.

mod api;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, future::try_join_all};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
};
use kube_runtime::{
    Controller, WatchStreamExt,
    controller::{Action, Config},
    reflector::{self, Store},
    watcher,
};
use rand::{RngExt, distr::Alphanumeric};
use serde_json::json;
use thiserror::Error;
use tokio::sync::OnceCell;

pub use crate::api::{PodSet, PodSetSpec, PodSetStatus};

/// The number of concurrent reconciles, the same as in `operators/podset`.
const CONCURRENCY: u16 = 4;

/// An error of a reconcile.
#[derive(Debug, Error)]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The store's writer is gone.
    #[error("the pods' store is gone")]
    Store(#[from] reflector::store::WriterDropped),
}

struct Context {
    client: Client,
    pods: Store<Pod>,
    /// Whether the store is filled. Of several tasks that wait for a store, kube-runtime 5.0 wakes only one.
    is_ready: OnceCell<()>,
}

/// Runs the operator for all namespaces until `shutdown`.
pub async fn run(client: Client, shutdown: impl Future<Output = ()> + Send + Sync + 'static) {
    let (sets, set_writer) = reflector::store();
    let set_events = watcher(Api::<PodSet>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .modify(|set| set.managed_fields_mut().clear())
        .reflect(set_writer)
        .applied_objects();
    let (pods, pod_writer) = reflector::store();
    let pod_events = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .modify(|pod| pod.managed_fields_mut().clear())
        .reflect(pod_writer)
        .touched_objects();
    Controller::for_stream(set_events, sets)
        .owns_stream(pod_events)
        .with_config(Config::default().concurrency(CONCURRENCY))
        .graceful_shutdown_on(shutdown)
        .run(reconcile, retry, Arc::new(Context { client, pods, is_ready: OnceCell::new() }))
        .for_each(|result| async move {
            match result {
                Ok((set, _)) => tracing::debug!(%set, "reconciled"),
                Err(error) => tracing::warn!(%error, "the reconcile failed"),
            }
        })
        .await;
}

fn retry(_: Arc<PodSet>, _: &Error, _: Arc<Context>) -> Action {
    Action::requeue(Duration::from_secs(1))
}

async fn reconcile(set: Arc<PodSet>, context: Arc<Context>) -> Result<Action, Error> {
    context.is_ready.get_or_try_init(|| context.pods.wait_until_ready()).await?;
    if set.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let uid = set.uid().unwrap_or_default();
    let mut active = context.pods.state_filter(|pod| is_active_child(pod, &uid));
    if active.len() != set.desired() {
        let Some(after) = act(&set, &uid, &context.client).await? else {
            // The store is behind; the event that it is waiting for triggers the next reconcile.
            return Ok(Action::requeue(Duration::from_secs(1)));
        };
        active = after;
    }
    tell(&set, &active, &context.client).await?;
    Ok(Action::await_change())
}

/// Creates missing pods and deletes superfluous ones, according to a live list. Returns `None` if the PodSet was
/// replaced.
async fn act(set: &PodSet, uid: &str, client: &Client) -> Result<Option<Vec<Arc<Pod>>>, Error> {
    let namespace = set.namespace().unwrap_or_default();
    let now = Api::<PodSet>::namespaced(client.clone(), &namespace).get_opt(&set.name_any()).await?;
    let is_same = |now: &PodSet| now.uid() == set.uid() && now.meta().generation == set.meta().generation;
    if !now.is_some_and(|now| is_same(&now) && now.meta().deletion_timestamp.is_none()) {
        return Ok(None);
    }
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    let listed = pods.list(&ListParams::default().labels(&set.selector())).await?;
    let mut active: Vec<_> = listed.items.into_iter().filter(|pod| is_active_child(pod, uid)).map(Arc::new).collect();
    active.sort_by_key(|pod| (!is_ready(pod), pod.creation_timestamp(), pod.name_any()));
    for pod in active.split_off(set.desired().min(active.len())) {
        let preconditions = Preconditions { uid: pod.uid(), resource_version: pod.resource_version() };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        pods.delete(&pod.name_any(), &parameters).await?;
    }
    let mut batch = 1;
    while active.len() < set.desired() {
        let size = batch.min(set.desired() - active.len());
        let parameters = PostParams::default();
        let created = try_join_all((0..size).map(|_| {
            let (pods, pod, parameters) = (&pods, set.pod(), &parameters);
            async move { pods.create(parameters, &pod).await }
        }));
        active.extend(created.await?.into_iter().map(Arc::new));
        batch *= 2;
    }
    Ok(Some(active))
}

/// Writes the status if it differs.
async fn tell(set: &PodSet, active: &[Arc<Pod>], client: &Client) -> Result<(), Error> {
    let mut names: Vec<_> = active.iter().map(|pod| pod.name_any()).collect();
    names.sort();
    let (ready, desired) = (active.iter().filter(|pod| is_ready(pod)).count(), set.desired());
    let generation = set.meta().generation;
    let before = set.status.iter().flat_map(|status| &status.conditions).find(|known| known.type_ == "Ready");
    let status = if ready == desired { "True" } else { "False" };
    let since = before.filter(|known| known.status == status).map(|known| known.last_transition_time.clone());
    let condition = Condition {
        type_: "Ready".into(),
        status: status.into(),
        reason: if ready == desired { "PodsReady" } else { "PodsNotReady" }.into(),
        message: format!("{ready} of {desired} pods are ready"),
        observed_generation: generation,
        #[expect(clippy::disallowed_methods, reason = "it stands for an operator that knows nothing of our clock")]
        last_transition_time: since.unwrap_or_else(|| Time(Timestamp::now())),
    };
    let status = PodSetStatus {
        available_replicas: i32::try_from(names.len()).unwrap_or(i32::MAX),
        pod_names: names,
        selector: Some(set.selector()),
        observed_generation: generation,
        conditions: vec![condition],
    };
    if set.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let sets = Api::<PodSet>::namespaced(client.clone(), &set.namespace().unwrap_or_default());
    let patch = json!({"metadata": {"uid": set.uid()}, "status": status});
    sets.patch_status(&set.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

impl PodSet {
    fn desired(&self) -> usize {
        usize::try_from(self.spec.replicas).unwrap_or_default()
    }

    fn pod_labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("app".into(), self.name_any()), ("version".into(), "v0.1".into())])
    }

    fn selector(&self) -> String {
        format!("app={},version=v0.1", self.name_any())
    }

    fn pod(&self) -> Pod {
        let prefix = format!("{}-pod", self.name_any());
        #[expect(clippy::disallowed_methods, reason = "it stands for an operator that knows nothing of our randomness")]
        let suffix: String = rand::rng().sample_iter(Alphanumeric).take(5).map(char::from).collect();
        let container = Container {
            name: "busybox".into(),
            image: Some("busybox".into()),
            command: Some(vec!["sleep".into(), "3600".into()]),
            ..Container::default()
        };
        Pod {
            metadata: ObjectMeta {
                name: Some(format!("{prefix}{}", suffix.to_lowercase())),
                generate_name: Some(prefix),
                namespace: self.namespace(),
                labels: Some(self.pod_labels()),
                owner_references: Some(self.controller_owner_ref(&()).map(blocking).into_iter().collect()),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
            status: None,
        }
    }
}

/// Sets `blockOwnerDeletion`, as Kubernetes' own controllers and Kubewright do: a foreground deletion removes the owner
/// only after this dependent.
fn blocking(owner: OwnerReference) -> OwnerReference {
    OwnerReference { block_owner_deletion: Some(true), ..owner }
}

fn is_active_child(pod: &Pod, uid: &str) -> bool {
    let is_ours = pod.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == uid);
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    is_ours && pod.metadata.deletion_timestamp.is_none() && matches!(phase, None | Some("Pending" | "Running"))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
