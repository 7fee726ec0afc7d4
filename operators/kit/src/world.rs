//! An embedded cluster on virtual time, an operator whose requests may meet faults, and the test as user.

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
use kubewright_cluster::{Cluster, ClusterBuilder, Pods, faults::Faults};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// A kind of namespaced objects.
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

/// When every test begins.
pub const START: &str = "2020-01-30T10:00:00Z";
/// How long anything may take, in virtual time.
const DEADLINE: Duration = Duration::from_secs(3600);
/// Every test has this one namespace.
pub const NAMESPACE: &str = "default";

/// How an operator is added to a manager.
pub type Register = fn(Manager) -> Manager;

/// A cluster; without a node the test plays what is missing.
#[derive(Clone)]
pub struct World {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The clock of the cluster and the operator.
    pub clock: Arc<VirtualClock>,
    register: Register,
}

impl World {
    /// A fresh cluster without a node that knows the operator's kinds.
    pub async fn new(register: Register, crds: Vec<CustomResourceDefinition>) -> Self {
        Self::with(Pods::None, register, crds).await
    }

    /// A fresh cluster that knows the operator's kinds.
    pub async fn with(pods: Pods, register: Register, crds: Vec<CustomResourceDefinition>) -> Self {
        Self::on(Cluster::builder().pods(pods), register, crds).await
    }

    /// A fresh cluster of one's own that knows the operator's kinds; clock and randomness are the world's.
    pub async fn on(cluster: ClusterBuilder, register: Register, crds: Vec<CustomResourceDefinition>) -> Self {
        let clock = VirtualClock::starting_at(START.parse().unwrap());
        let builder = cluster.clock(clock.clone()).random(Random::seeded(7));
        let world = Self { cluster: Arc::new(builder.start().await.unwrap()), clock, register };
        for crd in crds {
            let api = Api::<CustomResourceDefinition>::all(world.client());
            let name = api.create(&PostParams::default(), &crd).await.unwrap().name_any();
            eventually("the kind is served", async || {
                let status = api.get(&name).await.unwrap().status;
                let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
                conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
            })
            .await;
        }
        world
    }

    /// The user's own client, which meets no faults.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    /// The objects of a kind.
    pub fn api<K: Object>(&self) -> Api<K> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// Starts the operator, whose requests meet these faults.
    pub fn start(&self, faults: &Faults) -> Operator {
        self.run(self.manager(faults))
    }

    /// Starts a replica of the operator, which works while it leads.
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

    /// The time in this world.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Creates an object.
    pub async fn create<K: Object>(&self, object: K) -> K {
        self.api().create(&PostParams::default(), &object).await.unwrap()
    }

    /// An object that is there.
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

    /// All objects of a kind.
    pub async fn list<K: Object>(&self) -> Vec<K> {
        self.api().list(&ListParams::default()).await.unwrap().items
    }

    /// What the events about an object say, in their order: `type reason note`.
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
    /// As SIGTERM: what is under way ends first.
    pub async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap();
    }

    /// As SIGKILL.
    pub async fn kill(self) {
        self.task.abort();
        let ended = self.task.await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "the operator ended by itself");
    }
}

/// Waits until it is so.
pub async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let attempts = DEADLINE.as_millis() / 100;
    for _ in 0..attempts {
        if so().await {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("in an hour it did not come about that {what}");
}

/// So many minutes.
pub fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

/// That nothing is written for an hour, although the operator runs.
pub async fn assert_quiet(faults: &Faults) {
    sleep(minutes(5)).await;
    assert_quiet_for(faults, minutes(60)).await;
}

/// That nothing is written for this time.
pub(crate) async fn assert_quiet_for(faults: &Faults, time: Duration) {
    faults.forget();
    sleep(time).await;
    let seen: Vec<_> = faults.seen().into_iter().filter(|seen| seen.request.verb.is_write()).collect();
    assert!(seen.is_empty(), "written without need: {seen:#?}");
}

/// For tests on real time: that it takes less than a minute.
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(minutes(1), work).await.expect("it should take less than a minute")
}
