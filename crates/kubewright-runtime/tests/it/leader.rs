//! Leader election with the embedded API server, including network faults.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use kubewright_apiserver::ApiServer;
use kubewright_cluster::faults::{Faults, Verb};
use kubewright_runtime::{
    clock::{SharedClock, VirtualClock},
    leader::{LeaderElection, LeaderOptions, LeaderOptionsError, Lock, LockError},
    metrics::Metrics,
    random::Random,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;

use crate::world::{FleetReconciler, World, controller, pass, run, until};

struct Bench {
    api: ApiServer,
    clock: SharedClock,
    metrics: Metrics,
}

impl Bench {
    fn new() -> Self {
        let clock: SharedClock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let api = ApiServer::builder().clock(clock.clone()).random(Random::seeded(1)).build();
        Self { api, metrics: Metrics::new(clock.clone()), clock }
    }

    fn candidate(&self, client: Client, identity: &str) -> Result<LeaderElection, LeaderOptionsError> {
        let options = LeaderOptions::new("kube-system", "operator", identity);
        LeaderElection::start(client, options, self.clock.clone(), Random::seeded(2), self.metrics.clone())
    }

    async fn lease(&self) -> anyhow::Result<(Option<String>, Option<i32>)> {
        let leases = Api::<Lease>::namespaced(self.api.client(), "kube-system");
        let spec = leases.get("operator").await?.spec.unwrap_or_default();
        Ok((spec.holder_identity, spec.lease_transitions))
    }

    fn is_leader_metric(&self) -> anyhow::Result<bool> {
        Ok(self.metrics.encode()?.contains("leader_election_master_status{name=\"operator\"} 1"))
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_passes_from_holder_to_holder() -> anyhow::Result<()> {
    let bench = Bench::new();
    let first = bench.candidate(bench.api.client(), "first")?;
    timeout(Duration::from_secs(1), first.elected().cancelled()).await?;
    assert!(bench.is_leader_metric()?);
    assert_eq!(bench.lease().await?, (Some("first".into()), Some(0)));
    first.release().await;
    assert_eq!(bench.lease().await?, (Some(String::new()), Some(0)));
    assert!(!bench.is_leader_metric()?);
    let second = bench.candidate(bench.api.client(), "second")?;
    timeout(Duration::from_secs(1), second.elected().cancelled()).await?;
    assert_eq!(bench.lease().await?, (Some("second".into()), Some(1)));
    Ok(())
}

/// A disconnected leader stops before the next one begins.
#[tokio::test(start_paused = true)]
async fn a_disconnected_leader_stops_before_the_next_one_starts() -> anyhow::Result<()> {
    let bench = Bench::new();
    let network = Faults::new();
    let first = bench.candidate(network.client(&bench.api.client()), "first")?;
    first.elected().cancelled().await;
    let second = bench.candidate(bench.api.client(), "second")?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(first.is_leader() && !second.is_leader());
    network.on(Verb::WRITES, "leases").always().lose_request();
    tokio::select! {
        () = first.lost().cancelled_owned() => assert!(!second.is_leader()),
        () = second.elected().cancelled_owned() => anyhow::bail!("the second began before the first had stopped"),
    }
    timeout(Duration::from_secs(10), second.elected().cancelled()).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn occasional_lost_responses_do_not_end_leadership() -> anyhow::Result<()> {
    let bench = Bench::new();
    let network = Faults::new();
    let leader = bench.candidate(network.client(&bench.api.client()), "first")?;
    network.on(Verb::WRITES, "leases").lose_response();
    leader.elected().cancelled().await;
    for _ in 0..20 {
        let fault = network.on(Verb::WRITES, "leases").times(2).lose_response();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(fault.hits(), 2);
    }
    assert!(leader.is_leader());
    assert_eq!(bench.lease().await?, (Some("first".into()), Some(0)));
    Ok(())
}

/// A database with one record. Clones share it.
#[derive(Clone, Default)]
struct Database(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    version: u64,
    record: Option<Lease>,
    is_away: bool,
}

impl Database {
    fn set_away(&self, is_away: bool) {
        self.0.lock().is_away = is_away;
    }

    fn holder(&self) -> Option<String> {
        self.0.lock().record.as_ref()?.spec.as_ref()?.holder_identity.clone()
    }

    fn open(&self) -> Result<MutexGuard<'_, Stored>, LockError> {
        let stored = self.0.lock();
        if stored.is_away { Err(LockError::failed("the database is away")) } else { Ok(stored) }
    }

    fn write(&self, record: &Lease) -> Result<Lease, LockError> {
        let mut stored = self.open()?;
        let seen = stored.record.as_ref().and_then(|record| record.metadata.resource_version.clone());
        if record.metadata.resource_version != seen {
            return Err(LockError::Conflict);
        }
        stored.version += 1;
        let mut record = record.clone();
        record.metadata.resource_version = Some(stored.version.to_string());
        Ok(stored.record.insert(record).clone())
    }
}

impl Lock for Database {
    async fn read(&self) -> Result<Option<Lease>, LockError> {
        self.open().map(|stored| stored.record.clone())
    }

    async fn create(&self, record: &Lease) -> Result<Lease, LockError> {
        self.write(record)
    }

    async fn update(&self, record: &Lease) -> Result<Lease, LockError> {
        self.write(record)
    }
}

#[tokio::test(start_paused = true)]
async fn the_record_can_be_in_a_store_of_the_operator() -> anyhow::Result<()> {
    let bench = Bench::new();
    let database = Database::default();
    let start = |identity: &str| {
        let options = LeaderOptions::new("kube-system", "operator", identity);
        let (clock, metrics) = (bench.clock.clone(), bench.metrics.clone());
        LeaderElection::start_with_lock(database.clone(), options, clock, Random::seeded(2), metrics)
    };
    let first = start("first")?;
    timeout(Duration::from_secs(1), first.elected().cancelled()).await?;
    let second = start("second")?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(first.is_leader() && !second.is_leader());
    database.set_away(true);
    timeout(Duration::from_secs(11), first.lost().cancelled()).await?;
    let error = first.last_error().expect("it failed");
    assert_eq!(error, "can't read the lease: the database is away");
    assert!(!second.is_leader());
    database.set_away(false);
    timeout(Duration::from_secs(20), second.elected().cancelled()).await?;
    assert_eq!(database.holder().as_deref(), Some("second"));
    second.release().await;
    assert_eq!(database.holder().as_deref(), Some(""));
    Ok(())
}

/// A manager with such a lock makes no lease, and its controllers wait for the record.
#[tokio::test(start_paused = true)]
async fn a_manager_leads_by_the_lock_that_it_is_given() {
    let world = World::new().await;
    let database = Database::default();
    let fleets = FleetReconciler::default();
    let options = |identity: &str| LeaderOptions::new("kube-system", "operator", identity);
    let manager = |identity: &str, fleets: &FleetReconciler| {
        let manager = world.manager().leader_election(options(identity)).leader_lock(database.clone());
        manager.controller(controller(fleets.clone()))
    };
    let first = run(manager("first", &fleets));
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    assert_eq!(database.holder().as_deref(), Some("first"));
    let leases = Api::<Lease>::all(world.client.clone()).list(&Default::default()).await.expect("a list");
    assert!(leases.items.is_empty(), "{:?}", leases.items);
    let waiting = FleetReconciler::default();
    let second = run(manager("second", &waiting));
    pass(30).await;
    assert_eq!(waiting.runs.load(Ordering::SeqCst), 0);
    first.stop().await;
    until("the second leads", || async { waiting.runs.load(Ordering::SeqCst) > 0 }).await;
    second.stop().await;
}
