//! An embedded cluster on virtual time, with an operator and faults, for asynchronous tests that aren't searched.
//!
//! A [scenario](crate::Scenario) is run again and again with faults at chosen moments. A [`TestEnv`] is for what
//! happens once: the test does each step itself, in the role of the user and, without a node, of the kubelet, and
//! injects faults by rules ([`kubewright_cluster::faults`]). On a paused clock an hour of virtual time takes
//! milliseconds.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kubewright_cluster::faults::{Faults, Verb};
//! use kubewright_runtime::manager::Manager;
//! use kubewright_simulation::env::{TestEnv, assert_quiet};
//!
//! fn register(manager: Manager) -> Manager {
//!     manager // .controller(…)
//! }
//!
//! // #[tokio::test(start_paused = true)]
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() {
//!     let (env, faults) = (TestEnv::new(register, Vec::new()).await, Faults::new());
//!     faults.on(&[Verb::Create], "configmaps").times(3).refuse(503, "ServiceUnavailable");
//!     let operator = env.start(&faults);
//!     let object: ConfigMap = serde_json::from_str(r#"{"metadata": {"name": "a"}}"#).unwrap();
//!     env.create(object).await;
//!     assert_quiet(&faults).await;
//!     operator.stop().await;
//! }
//! ```
//!
//! The functions are for tests: they panic if the API server refuses a request.

mod created;
mod operator;
mod permissions;
mod pods;
mod write_fault;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope, api::events::v1::Event,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use kubewright_apimachinery::{
    clock::{Clock, VirtualClock},
    random::Random,
};
use kubewright_cluster::{
    Cluster, ClusterBuilder, Pods,
    faults::{Faults, RecordedRequest, Verb},
};
use kubewright_runtime::object::Object;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

pub use self::{
    created::History,
    operator::Operator,
    permissions::{granted, needed},
    write_fault::{FaultyOperator, WriteFault, with_a_fault_at_each_write},
};
use crate::{run::START, scenario::Register, sim::Span, world::NAMESPACE};

/// The timeout of every wait, in virtual time.
const DEADLINE: Duration = Duration::from_secs(3600);
/// The interval at which a condition is checked.
const POLL: Duration = Duration::from_millis(100);

/// A kind with namespaces.
pub trait Namespaced: Object + Resource<DynamicType = (), Scope = NamespaceResourceScope> {}

impl<K: Object + Resource<DynamicType = (), Scope = NamespaceResourceScope>> Namespaced for K {}

/// A cluster with an operator's kinds. Its objects belong to the namespace `default`. If it has no node, the test sets
/// the status of pods itself.
#[derive(Clone)]
pub struct TestEnv {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The clock of the cluster and the operator. It starts on 2020-01-30 at 10:00 UTC.
    pub clock: Arc<VirtualClock>,
    register: Register,
}

impl std::fmt::Debug for TestEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestEnv").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl TestEnv {
    /// Creates an environment without a node, with these kinds.
    pub async fn new(register: Register, crds: Vec<CustomResourceDefinition>) -> Self {
        Self::with(Pods::None, register, crds).await
    }

    /// Creates an environment with this kind of node.
    pub async fn with(pods: Pods, register: Register, crds: Vec<CustomResourceDefinition>) -> Self {
        Self::on(Cluster::builder().pods(pods), register, crds).await
    }

    /// Creates an environment from a cluster builder, with its own clock and random source. If pods run as processes,
    /// the source has a random seed, so that clusters that run at the same time have different addresses.
    ///
    /// # Panics
    /// If the cluster can't be started, or refuses a kind.
    pub async fn on(cluster: ClusterBuilder, register: Register, crds: Vec<CustomResourceDefinition>) -> Self {
        let clock = VirtualClock::starting_at(START.parse().unwrap());
        let random = if cluster.runs_pods() { Random::from_entropy() } else { Random::seeded(7) };
        let builder = cluster.clock(clock.clone()).random(random);
        let cluster = Arc::new(builder.start().await.unwrap());
        cluster.install(crds).await.unwrap();
        Self { cluster, clock, register }
    }

    /// Returns the client of the user, which is not subject to faults.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    /// Returns the API of a kind in the namespace `default`.
    pub fn api<K: Namespaced>(&self) -> Api<K> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Creates an object.
    pub async fn create<K: Namespaced>(&self, object: K) -> K {
        self.api().create(&PostParams::default(), &object).await.unwrap()
    }

    /// Returns an object. Panics if it doesn't exist.
    pub async fn get<K: Namespaced>(&self, name: &str) -> K {
        self.api().get(name).await.unwrap()
    }

    /// Merges a patch into an object.
    pub async fn edit<K: Namespaced>(&self, name: &str, patch: Value) -> K {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Merges a patch into the status of an object.
    pub async fn edit_status<K: Namespaced>(&self, name: &str, status: Value) -> K {
        let patch = Patch::Merge(json!({"status": status}));
        self.api().patch_status(name, &PatchParams::default(), &patch).await.unwrap()
    }

    /// Deletes an object, as `kubectl delete --wait=false` does.
    pub async fn delete<K: Namespaced>(&self, name: &str) {
        self.api::<K>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Returns all objects of a kind.
    pub async fn list<K: Namespaced>(&self) -> Vec<K> {
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

/// Waits until a condition holds. It is checked ten times in a second of virtual time.
///
/// # Panics
/// If it doesn't hold within an hour of virtual time.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let attempts = DEADLINE.as_millis() / POLL.as_millis();
    for _ in 0..attempts {
        if holds().await {
            return;
        }
        sleep(POLL).await;
    }
    panic!("timed out after an hour waiting until {what}");
}

/// Limits a test in real time to a minute.
///
/// # Panics
/// If it takes longer.
pub async fn within_a_minute<T>(work: impl Future<Output = T>) -> T {
    timeout(1.minutes(), work).await.expect("it should take less than a minute")
}

/// Asserts that the operator has requested nothing but watches, and one list for each watch, which confirms the version
/// from which it is resumed.
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

/// Waits for five minutes, and then asserts that the operator writes nothing for an hour.
pub async fn assert_quiet(faults: &Faults) {
    sleep(5.minutes()).await;
    assert_quiet_for(faults, 1.hours()).await;
}

/// Asserts that the operator writes nothing for some time.
async fn assert_quiet_for(faults: &Faults, time: Duration) {
    faults.forget();
    sleep(time).await;
    let seen: Vec<_> = faults.requests().into_iter().filter(|seen| seen.request.verb.is_write()).collect();
    assert!(seen.is_empty(), "unexpected writes: {seen:#?}");
}
