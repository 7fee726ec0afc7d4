//! Shared test code: a cluster, a kind `Fleet` that wants a number of config maps, and a reconciler for it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, CustomResource, CustomResourceExt, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use kubewright_apiserver::ApiServer;
use kubewright_cluster::faults::Faults;
use kubewright_runtime::{
    action::Action,
    client::ClientError,
    clock::VirtualClock,
    context::Context,
    controller::{Controller, Reconciler},
    manager::{Manager, ManagerError},
    random::Random,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, task::JoinHandle};
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Wants a number of config maps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "test.kubewright.dev", version = "v1", kind = "Fleet", namespaced, status = "FleetStatus")]
pub(crate) struct FleetSpec {
    pub(crate) size: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FleetStatus {
    pub(crate) size: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// Creates and deletes config maps until the number is right. It relies on its cache.
#[derive(Clone, Default)]
pub(crate) struct FleetReconciler {
    pub(crate) runs: Arc<AtomicUsize>,
    /// Lets the API server generate the names, so that only the count prevents too many children.
    pub(crate) generate_names: bool,
}

impl Reconciler<Fleet> for FleetReconciler {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let ships = ctx.children::<ConfigMap>()?;
        let size = fleet.spec.size;
        if ships.len() < size {
            ctx.get_or_create_child(self.ship(fleet, &ships)).await?;
            // One child per run, and the next run at once: the worst case for a stale cache.
            return Ok(Action::requeue_after(Duration::ZERO));
        }
        for ship in ships.iter().skip(size) {
            ctx.delete(ship.as_ref()).await?;
        }
        ctx.set_status(FleetStatus { size, note: None }).await?;
        Ok(Action::await_change())
    }
}

impl FleetReconciler {
    pub(crate) fn generating_names() -> Self {
        Self { generate_names: true, ..Self::default() }
    }

    fn ship(&self, fleet: &Fleet, ships: &[Arc<ConfigMap>]) -> ConfigMap {
        let prefix = format!("{}-", fleet.name_any());
        let metadata = if self.generate_names {
            ObjectMeta { generate_name: Some(prefix), ..ObjectMeta::default() }
        } else {
            let is_free = |name: &String| ships.iter().all(|ship| ship.name_any() != *name);
            let name = (0..).map(|number| format!("{prefix}{number}")).find(is_free);
            ObjectMeta { name, ..ObjectMeta::default() }
        };
        ConfigMap { metadata, ..ConfigMap::default() }
    }
}

pub(crate) fn fleet(name: &str, size: usize) -> Fleet {
    Fleet::new(name, FleetSpec { size })
}

/// A cluster on virtual time, with scripted faults between it and the manager.
pub(crate) struct World {
    pub(crate) clock: Arc<VirtualClock>,
    /// A client that bypasses the faults.
    pub(crate) client: Client,
    pub(crate) faults: Faults,
    pub(crate) random: Random,
}

impl World {
    /// Creates a cluster with the kind `Fleet`. Call it in a runtime whose time is paused.
    pub(crate) async fn new() -> Self {
        let world = Self::without_fleets();
        world.install_fleets().await;
        world
    }

    pub(crate) fn without_fleets() -> Self {
        log();
        let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let random = Random::seeded(7);
        let api = ApiServer::builder().clock(clock.clone()).random(random.clone()).build();
        Self { clock, client: api.client(), faults: Faults::new(), random }
    }

    pub(crate) async fn install_fleets(&self) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        crds.create(&PostParams::default(), &Fleet::crd()).await.expect("the definition is accepted");
        let fleets = self.fleets();
        until("fleets are served", || async { fleets.list(&Default::default()).await.is_ok() }).await;
    }

    /// Returns a manager whose requests meet the faults.
    pub(crate) fn manager(&self) -> Manager {
        Manager::new(self.faults.client(&self.client)).clock(self.clock.clone()).random(self.random.clone())
    }

    pub(crate) fn fleets(&self) -> Api<Fleet> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn ships(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn create_fleet(&self, name: &str, size: usize) -> Fleet {
        self.fleets().create(&PostParams::default(), &fleet(name, size)).await.expect("the fleet is accepted")
    }

    pub(crate) async fn resize(&self, name: &str, size: usize) {
        let patch = Patch::Merge(serde_json::json!({"spec": {"size": size}}));
        self.fleets().patch(name, &PatchParams::default(), &patch).await.expect("the fleet is resized");
    }

    /// Returns the names of the ships in order.
    pub(crate) async fn ship_names(&self) -> Vec<String> {
        let ships = self.ships().list(&Default::default()).await.expect("a list").items;
        let ours = ships.iter().filter(|ship| !ship.owner_references().is_empty());
        ours.map(ResourceExt::name_any).collect()
    }

    /// Waits until the fleet reports its size.
    pub(crate) async fn wait_for_size(&self, name: &str, size: usize) {
        let fleets = self.fleets();
        until(&format!("{name} has {size} ships"), || async {
            let fleet = fleets.get(name).await.expect("the fleet");
            fleet.status.is_some_and(|status| status.size == size)
        })
        .await;
    }
}

/// Returns the controller of a [`FleetReconciler`].
pub(crate) fn controller(reconciler: FleetReconciler) -> Controller<Fleet> {
    Controller::new(reconciler).owns::<ConfigMap>()
}

/// A manager that runs in a task until it is stopped.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ManagerError>>,
}

pub(crate) fn run(manager: Manager) -> Running {
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
    Running { stop, task }
}

impl Running {
    /// Stops it gracefully, as a signal does, and waits.
    pub(crate) async fn stop(self) {
        self.end().await.expect("it ends well");
    }

    /// Stops it gracefully, and returns how it ended.
    pub(crate) async fn end(self) -> Result<(), ManagerError> {
        let _ = self.stop.send(());
        self.task.await.expect("it doesn't panic")
    }

    /// Aborts it at its next `await`, without any cleanup, as a crash does.
    pub(crate) async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Returns a free port of a loopback address that no other test on this machine uses, so it stays free.
pub(crate) fn own_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let process = std::process::id();
    let [_, _, high, low] = process.to_be_bytes();
    let host = [127, 64 + (high & 0x3f), low, u8::try_from(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap()];
    // Any fixed port could be in use, by a program that listens on all addresses.
    std::net::TcpListener::bind((std::net::Ipv4Addr::from(host), 0)).unwrap().local_addr().unwrap()
}

/// Prints logs with failing tests, filtered by `RUST_LOG`.
pub(crate) fn log() {
    let asked = std::env::var("RUST_LOG").ok().and_then(|asked| asked.parse::<Targets>().ok()).unwrap_or_default();
    let lines = fmt::layer().with_test_writer().with_ansi(false);
    let _ = tracing_subscriber::registry().with(asked).with(lines).try_init();
}

/// Waits for a condition, up to ten minutes of virtual time.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let holds = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), holds).await.unwrap_or_else(|_| panic!("it never came: {what}"));
}

/// Lets some virtual time pass, in seconds.
pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
