//! What a scenario sees: the user of a cluster.

use std::{pin::pin, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
};
use kubewright_apimachinery::clock::{Clock, VirtualClock};
use kubewright_apiserver::FeedSignal;
use kubewright_cluster::Cluster;
use kubewright_runtime::object::Object;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    history::Entry,
    oracle::Finding,
    state::{Condition, State},
    world::{NAMESPACE, World},
};

/// How long [`Sim::until`] waits, in virtual time.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Spans of time, as in `2.hours()`.
pub trait Span {
    /// Returns a duration in seconds.
    fn seconds(self) -> Duration;
    /// Returns a duration in minutes.
    fn minutes(self) -> Duration;
    /// Returns a duration in hours.
    fn hours(self) -> Duration;
}

impl Span for u64 {
    fn seconds(self) -> Duration {
        Duration::from_secs(self)
    }

    fn minutes(self) -> Duration {
        Duration::from_secs(self.saturating_mul(60))
    }

    fn hours(self) -> Duration {
        Duration::from_secs(self.saturating_mul(3600))
    }
}

/// The user of a cluster in which the operator runs. Objects without a namespace belong to `default`.
///
/// A step that the API server refuses is a finding, and ends the run. What the operator does is awaited with
/// [`until`](Self::until); nothing is awaited by itself.
pub struct Sim {
    state: Arc<State>,
    cluster: Cluster,
    client: Client,
    clock: Arc<VirtualClock>,
    signal: FeedSignal,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl Sim {
    pub(crate) fn new(state: Arc<State>, cluster: Cluster, clock: Arc<VirtualClock>, signal: FeedSignal) -> Self {
        let client = cluster.client();
        Self { state, cluster, client, clock, signal }
    }

    /// States what must hold after every change of the cluster, from now on.
    pub fn always(&self, name: &str, holds: impl Fn(&World) -> bool + Send + 'static) {
        self.state.always(Condition { name: name.into(), holds: Box::new(holds) });
    }

    /// States what must hold at the end, once faults have stopped and half an hour has passed.
    pub fn finally(&self, name: &str, holds: impl Fn(&World) -> bool + Send + 'static) {
        self.state.finally(Condition { name: name.into(), holds: Box::new(holds) });
    }

    /// Waits until a condition holds. It is checked at each change of the cluster. If it doesn't hold within an hour of virtual
    /// time, this is a finding, and ends the run.
    pub async fn until(&self, name: &str, holds: impl Fn(&World) -> bool) {
        let mut deadline = pin!(sleep(PATIENCE));
        let mut signal = self.signal.clone();
        while !self.state.read(&holds) {
            tokio::select! {
                biased;
                _ = signal.changed() => {}
                () = &mut deadline => self.fail(Finding::new("until", name)).await,
            }
        }
    }

    /// Lets virtual time pass.
    pub async fn advance(&self, time: Duration) {
        let mut deadline = pin!(sleep(time));
        let mut signal = self.signal.clone();
        loop {
            self.state.follow();
            tokio::select! {
                biased;
                _ = signal.changed() => {}
                () = &mut deadline => break,
            }
        }
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Calls a function with the objects of the cluster.
    pub fn read<T>(&self, read: impl FnOnce(&World) -> T) -> T {
        self.state.read(read)
    }

    /// Returns the client of the user, which no fault affects. What is written with it isn't a step of the story.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Applies a manifest of one or more documents, as `kubectl apply --server-side` does.
    pub async fn apply(&self, manifest: &str) {
        self.step(format!("applies {}", manifest.trim()));
        let applied = self.cluster.apply_yaml(manifest).await;
        self.done(applied.map(drop).map_err(|error| format!("apply: {error}"))).await;
    }

    /// Creates an object.
    pub async fn create<K: Object>(&self, object: &K) {
        let kind = K::kind(&());
        let name = object.meta().name.as_deref().or(object.meta().generate_name.as_deref()).unwrap_or_default();
        self.step(format!("creates {kind} {name}"));
        let created = match dynamic(object) {
            Ok(body) => self.api_of::<K>(object.meta()).create(&PostParams::default(), &body).await,
            Err(error) => Err(kube::Error::SerdeError(error)),
        };
        self.done(created.map(drop).map_err(|error| format!("create {kind} {name}: {error}"))).await;
    }

    /// Merges a patch into an object of the namespace `default`, as `kubectl patch --type merge` does.
    pub async fn edit<K: Object>(&self, name: &str, patch: Value) {
        self.step(format!("edits {} {name}: {patch}", K::kind(&())));
        let edited = self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        self.done(edited.map(drop).map_err(|error| format!("edit {name}: {error}"))).await;
    }

    /// Merges a patch into the status of an object of the namespace `default`.
    pub async fn edit_status<K: Object>(&self, name: &str, status: Value) {
        self.step(format!("edits the status of {} {name}: {status}", K::kind(&())));
        let patch = Patch::Merge(json!({"status": status}));
        let edited = self.api::<K>().patch_status(name, &PatchParams::default(), &patch).await;
        self.done(edited.map(drop).map_err(|error| format!("edit the status of {name}: {error}"))).await;
    }

    /// Deletes an object of the namespace `default`, as `kubectl delete --wait=false` does.
    pub async fn delete<K: Object>(&self, name: &str) {
        self.step(format!("deletes {} {name}", K::kind(&())));
        let deleted = self.api::<K>().delete(name, &DeleteParams::default()).await;
        self.done(deleted.map(drop).map_err(|error| format!("delete {name}: {error}"))).await;
    }

    /// Ends the containers of a running pod with code 0.
    pub async fn finish_pod(&self, name: &str) {
        self.end_pod(name, 0).await;
    }

    /// Ends the containers of a running pod with code 1.
    pub async fn fail_pod(&self, name: &str) {
        self.end_pod(name, 1).await;
    }

    async fn end_pod(&self, name: &str, code: i32) {
        self.step(format!("ends pod {name} with code {code}"));
        let ended = self.cluster.finish_pod(NAMESPACE, name, code).await;
        self.done(ended.map_err(|error| format!("end {name}: {error}"))).await;
    }

    fn step(&self, what: String) {
        self.state.follow();
        self.state.record(Entry::Step(what));
    }

    async fn done(&self, result: Result<(), String>) {
        self.state.follow();
        if let Err(error) = result {
            self.fail(Finding::new("step", error)).await;
        }
    }

    /// Ends the run with a finding.
    async fn fail(&self, finding: Finding) {
        self.state.found(finding);
        self.state.stop();
        std::future::pending::<()>().await;
    }

    fn api<K: Object>(&self) -> Api<DynamicObject> {
        self.api_of::<K>(&ObjectMeta::default())
    }

    fn api_of<K: Object>(&self, meta: &ObjectMeta) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<K>(&());
        match K::is_namespaced() {
            true => Api::namespaced_with(self.client.clone(), meta.namespace.as_deref().unwrap_or(NAMESPACE), &kind),
            false => Api::all_with(self.client.clone(), &kind),
        }
    }
}

fn dynamic<K: Object>(object: &K) -> Result<DynamicObject, serde_json::Error> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = K::api_version(&()).into();
    value["kind"] = K::kind(&()).into();
    serde_json::from_value(value)
}
