//! A test environment: an embedded cluster on virtual time, an operator with fault injection, and helpers for a test in
//! the role of a user.

use std::{fmt::Debug, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope, api::events::v1::Event,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use kubewright::{
    clock::{Clock, VirtualClock},
    leader::LeaderOptions,
    prelude::*,
    random::Random,
};
use kubewright_cluster::{
    Cluster, ClusterBuilder, Pods,
    faults::{Faults, RecordedRequest, Verb},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// A namespaced kind.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The time at which every test starts.
pub const START: &str = "2020-01-30T10:00:00Z";
/// The timeout of every wait, in virtual time.
const DEADLINE: Duration = Duration::from_secs(3600);
/// The one namespace of every test.
pub const NAMESPACE: &str = "default";

/// A function that adds an operator to a manager.
pub type Register = fn(Manager) -> Manager;

/// A cluster with an operator's kinds. If it has no node, the test sets the status of pods itself.
#[derive(Clone)]
pub struct TestEnv {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The clock of the cluster and the operator.
    pub clock: Arc<VirtualClock>,
    register: Register,
}

impl TestEnv {
    /// Creates an environment without a node.
    pub async fn new(register: Register, crds: Vec<CustomResourceDefinition>) -> Self {
        Self::with(Pods::None, register, crds).await
    }

    /// Creates an environment with this kind of node.
    pub async fn with(pods: Pods, register: Register, crds: Vec<CustomResourceDefinition>) -> Self {
        Self::on(Cluster::builder().pods(pods), register, crds).await
    }

    /// Creates an environment from a cluster builder, with its own clock and random source.
    pub async fn on(cluster: ClusterBuilder, register: Register, crds: Vec<CustomResourceDefinition>) -> Self {
        let clock = VirtualClock::starting_at(START.parse().unwrap());
        let builder = cluster.clock(clock.clone()).random(Random::seeded(7));
        let env = Self { cluster: Arc::new(builder.start().await.unwrap()), clock, register };
        for crd in crds {
            let api = Api::<CustomResourceDefinition>::all(env.client());
            let name = api.create(&PostParams::default(), &crd).await.unwrap().name_any();
            eventually("the kind is served", async || {
                let status = api.get(&name).await.unwrap().status;
                let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
                conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
            })
            .await;
        }
        env
    }

    /// Returns the client of the user, which is not subject to faults.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    /// Returns the API of a kind.
    pub fn api<K: Object>(&self) -> Api<K> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// Starts the operator with these faults.
    pub fn start(&self, faults: &Faults) -> Operator {
        self.run(self.manager(faults))
    }

    /// Starts a replica of the operator with leader election.
    pub fn start_replica(&self, faults: &Faults, identity: &str) -> Operator {
        self.run(self.manager(faults).leader_election(LeaderOptions::new(NAMESPACE, "operator", identity)))
    }

    fn manager(&self, faults: &Faults) -> Manager {
        Manager::new(faults.client(&self.client())).clock(self.clock.clone()).random(Random::seeded(1))
    }

    fn run(&self, manager: Manager) -> Operator {
        let manager = (self.register)(manager);
        let (stop, stopped) = oneshot::channel::<()>();
        let run = async move {
            manager.run_until(async { stopped.await.unwrap_or_default() }).await.unwrap();
        };
        Operator { stop, task: tokio::spawn(run) }
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Creates an object.
    pub async fn create<K: Object>(&self, object: K) -> K {
        self.api().create(&PostParams::default(), &object).await.unwrap()
    }

    /// Returns an object. Panics if it doesn't exist.
    pub async fn get<K: Object>(&self, name: &str) -> K {
        self.api().get(name).await.unwrap()
    }

    /// Merges a patch into an object.
    pub async fn edit<K: Object>(&self, name: &str, patch: Value) -> K {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Merges a patch into the status of an object.
    pub async fn edit_status<K: Object>(&self, name: &str, status: Value) -> K {
        let patch = Patch::Merge(json!({"status": status}));
        self.api().patch_status(name, &PatchParams::default(), &patch).await.unwrap()
    }

    /// Deletes an object, as `kubectl delete` does.
    pub async fn delete<K: Object>(&self, name: &str) {
        self.api::<K>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Returns all objects of a kind.
    pub async fn list<K: Object>(&self) -> Vec<K> {
        self.api().list(&ListParams::default()).await.unwrap().items
    }

    /// Returns the events about an object in order, as `type reason note`.
    pub async fn events(&self, name: &str) -> Vec<String> {
        let mut events = self.list::<Event>().await;
        events.retain(|event| event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(name));
        events.sort_by_key(|event| event.event_time.clone());
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        events.iter().map(|it| format!("{} {} {}", text(&it.type_), text(&it.reason), text(&it.note))).collect()
    }
}

/// A running operator.
pub struct Operator {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Operator {
    /// Stops the operator gracefully, as SIGTERM does.
    pub async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap();
    }

    /// Aborts the operator, as SIGKILL does.
    pub async fn kill(self) {
        self.task.abort();
        let ended = self.task.await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "the operator ended by itself");
    }
}

/// Waits until a condition holds.
pub async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let attempts = DEADLINE.as_millis() / 100;
    for _ in 0..attempts {
        if so().await {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("timed out after an hour waiting until {what}");
}

/// Returns a duration in minutes.
pub fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

/// Asserts that nothing has been requested but watches, and one list for each watch, which confirms the version from which
/// it is resumed.
pub fn assert_only_watches(faults: &Faults) {
    let (watches, mut others): (Vec<_>, Vec<_>) =
        faults.requests().into_iter().partition(|seen| seen.request.verb == Verb::Watch);
    for watch in watches {
        let confirms =
            |seen: &RecordedRequest| seen.request.verb == Verb::List && seen.request.resource == watch.request.resource;
        if let Some(at) = others.iter().position(confirms) {
            others.remove(at);
        }
    }
    assert!(others.is_empty(), "{others:?}");
}

/// Checks that nothing is written for an hour while the operator runs.
pub async fn assert_quiet(faults: &Faults) {
    sleep(minutes(5)).await;
    assert_quiet_for(faults, minutes(60)).await;
}

/// Checks that nothing is written for some time.
pub(crate) async fn assert_quiet_for(faults: &Faults, time: Duration) {
    faults.forget();
    sleep(time).await;
    let seen: Vec<_> = faults.requests().into_iter().filter(|seen| seen.request.verb.is_write()).collect();
    assert!(seen.is_empty(), "unexpected writes: {seen:#?}");
}

/// Limits a test in real time to a minute.
pub async fn within_a_minute<T>(work: impl Future<Output = T>) -> T {
    timeout(minutes(1), work).await.expect("it should take less than a minute")
}
