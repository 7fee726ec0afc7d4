//! Managers that divide the keys: no key is processed by two of them, and none is left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt};
use kubewright_cluster::faults::{Faults, Verb};
use kubewright_runtime::{
    action::Action,
    client::ClientError,
    clock::Clock,
    context::Context,
    controller::{Controller, Reconciler},
    manager::{Manager, ManagerError},
    object::ObjectKey,
    shard::{GROUP_LABEL, ShardOptions},
};
use parking_lot::Mutex;

use crate::world::{Fleet, FleetStatus, Running, World, pass, run, until};

const FLEETS: usize = 200;

/// A record of the work of all replicas.
#[derive(Clone, Default)]
struct Log {
    at_work: Arc<Mutex<BTreeMap<ObjectKey, String>>>,
    runs: Arc<AtomicUsize>,
    interrupted: Arc<AtomicUsize>,
    /// Keys that two replicas worked on at once.
    doubled: Arc<Mutex<Vec<String>>>,
}

/// Writes the name of its replica into the status, and takes some time for it.
#[derive(Clone)]
struct Signing {
    replica: String,
    log: Log,
    seconds: f64,
}

/// A key that is being worked on, until this is dropped.
struct AtWork<'a>(&'a Log, &'a ObjectKey, bool);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.at_work.lock().remove(self.1);
        if !self.2 {
            self.0.interrupted.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Reconciler<Fleet> for Signing {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let other = self.log.at_work.lock().insert(ctx.key().clone(), self.replica.clone());
        // Recorded, since a panic would be caught.
        if let Some(other) = other {
            self.log.doubled.lock().push(format!("{} begins {} while {other} is at it", self.replica, ctx.key()));
        }
        let mut at_work = AtWork(&self.log, ctx.key(), false);
        let signed = FleetStatus { size: fleet.spec.size, note: Some(self.replica.clone()) };
        if fleet.status.as_ref() != Some(&signed) {
            tokio::time::sleep(Duration::from_secs_f64(self.seconds * ctx.random().fraction())).await;
            ctx.set_status(signed).await?;
        }
        self.log.runs.fetch_add(1, Ordering::SeqCst);
        at_work.2 = true;
        Ok(Action::await_change())
    }
}

/// Replicas that share one world.
struct Replicas {
    world: World,
    log: Log,
    running: BTreeMap<String, Running>,
}

impl Replicas {
    async fn new(fleets: usize) -> Self {
        let world = World::new().await;
        for number in 0..fleets {
            world.create_fleet(&format!("f{number:03}"), 1).await;
        }
        Self { world, log: Log::default(), running: BTreeMap::new() }
    }

    fn manager(&self, replica: &str, network: &Faults, seconds: f64) -> Manager {
        let reconciler = Signing { replica: replica.into(), log: self.log.clone(), seconds };
        Manager::new(network.client(&self.world.client))
            .clock(self.world.clock.clone())
            .random(self.world.random.clone())
            .sharding(ShardOptions::new("default", "fleets", replica))
            .controller(Controller::new(reconciler).concurrency(4))
    }

    fn start(&mut self, replica: &str) {
        let manager = self.manager(replica, &Faults::new(), 1.0);
        self.running.insert(replica.into(), run(manager));
    }

    /// Returns the number of fleets of this size that each replica has signed.
    async fn signed(&self, size: usize) -> BTreeMap<String, usize> {
        let mut signed = BTreeMap::new();
        for fleet in self.world.fleets().list(&Default::default()).await.expect("a list") {
            let status = fleet.status.unwrap_or_default();
            if status.size == size {
                *signed.entry(status.note.unwrap_or_default()).or_default() += 1;
            }
        }
        signed
    }

    /// Waits until exactly these replicas have signed all fleets of this size, each a fair share.
    async fn wait_for_shares(&self, size: usize, replicas: &[&str]) {
        let expected = replicas.iter().map(|replica| (*replica).to_owned()).collect::<BTreeSet<_>>();
        let fair = FLEETS / replicas.len();
        until(&format!("{replicas:?} share the fleets"), || async {
            // Each check reads all fleets, so checks are not too frequent.
            tokio::time::sleep(Duration::from_millis(500)).await;
            let signed = self.signed(size).await;
            signed.values().sum::<usize>() == FLEETS
                && signed.keys().cloned().collect::<BTreeSet<_>>() == expected
                && signed.values().all(|count| (fair / 2..fair * 2).contains(count))
        })
        .await;
    }

    async fn resize_all(&self, size: usize) {
        for number in 0..FLEETS {
            self.world.resize(&format!("f{number:03}"), size).await;
        }
    }

    async fn leases(&self) -> Vec<Lease> {
        let leases = Api::<Lease>::default_namespaced(self.world.client.clone());
        leases.list(&Default::default()).await.expect("a list").items
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_divide_the_keys_and_take_over_from_each_other() {
    let mut replicas = Replicas::new(FLEETS).await;
    for replica in ["a", "b", "c"] {
        replicas.start(replica);
    }
    replicas.wait_for_shares(1, &["a", "b", "c"]).await;

    // A replica crashes in the middle of much work.
    replicas.resize_all(2).await;
    until("some work", || async { replicas.log.at_work.lock().len() > 6 }).await;
    let died = replicas.world.clock.monotonic();
    replicas.running.remove("b").expect("it runs").crash().await;
    replicas.log.interrupted.store(0, Ordering::SeqCst);
    replicas.wait_for_shares(2, &["a", "c"]).await;
    // The lease duration, two rounds of the protocol, and a third of two hundred fleets by four workers, half a second
    // each.
    let took = (replicas.world.clock.monotonic() - died).as_secs();
    assert!((13..40).contains(&took), "{took} s");

    // A replica joins while all others are working.
    replicas.resize_all(3).await;
    until("some work", || async { replicas.log.at_work.lock().len() > 6 }).await;
    let came = replicas.world.clock.monotonic();
    replicas.start("d");
    replicas.wait_for_shares(3, &["a", "c", "d"]).await;
    let took = (replicas.world.clock.monotonic() - came).as_secs();
    assert!(took < 40, "{took} s");

    // A replica leaves gracefully, so nobody waits for its lease to expire.
    replicas.resize_all(4).await;
    let left = replicas.world.clock.monotonic();
    replicas.running.remove("a").expect("it runs").stop().await;
    replicas.wait_for_shares(4, &["c", "d"]).await;
    let took = (replicas.world.clock.monotonic() - left).as_secs();
    assert!(took < 30, "{took} s");
    assert_eq!(replicas.log.interrupted.load(Ordering::SeqCst), 0, "nothing was cut off half-way");
    assert_eq!(*replicas.log.doubled.lock(), Vec::<String>::new());

    // The leases of the replicas that are gone are deleted, and then nothing more happens.
    until("two leases are left", || async { replicas.leases().await.len() == 2 }).await;
    assert!(
        replicas
            .leases()
            .await
            .iter()
            .all(|lease| lease.labels().get(GROUP_LABEL).is_some_and(|name| name == "fleets"))
    );
    pass(60).await;
    let runs = replicas.log.runs.load(Ordering::SeqCst);
    pass(300).await;
    assert_eq!(replicas.log.runs.load(Ordering::SeqCst), runs);
    for (_, running) in replicas.running {
        running.stop().await;
    }
}

/// A new replica gets its share of the keys although one of the keys to be moved is worked on forever.
#[tokio::test(start_paused = true)]
async fn a_reconcile_that_never_ends_holds_up_its_own_key_alone() {
    let mut replicas = Replicas::new(FLEETS).await;
    replicas.start("a");
    replicas.wait_for_shares(1, &["a"]).await;
    // Four workers hang, each on a key. With high probability, some of these keys are to be moved.
    let slow = replicas.running.remove("a").expect("it runs");
    slow.stop().await;
    replicas.resize_all(2).await;
    let hanging = run(replicas.manager("hanging", &Faults::new(), 1e9));
    until("it is at work", || async { replicas.log.at_work.lock().len() == 4 }).await;
    let busy = replicas.log.at_work.lock().keys().cloned().collect::<BTreeSet<_>>();
    replicas.start("b");
    replicas.start("c");
    // The share of the new replicas: two thirds, without the keys that the first one is working on.
    until("all that may move has moved", || async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let signed = replicas.signed(2).await;
        signed.values().sum::<usize>() > FLEETS / 2 && signed.keys().eq(["b", "c"])
    })
    .await;
    let still = replicas.log.at_work.lock().clone();
    assert!(busy.iter().all(|key| still.get(key).is_some_and(|replica| replica == "hanging")), "{still:?}");
    assert_eq!(*replicas.log.doubled.lock(), Vec::<String>::new());
    hanging.crash().await;
    for (_, running) in replicas.running {
        running.stop().await;
    }
}

/// A disconnected replica stops before the others take over its keys.
#[tokio::test(start_paused = true)]
async fn a_disconnected_replica_has_stopped_when_others_take_over() {
    let mut replicas = Replicas::new(4).await;
    let network = Faults::new();
    // Its work never ends by itself.
    let cut_off = replicas.manager("cut-off", &network, 1e9);
    let cut_off = tokio::spawn(cut_off.run_until(std::future::pending::<()>()));
    until("it is at work", || async { replicas.log.at_work.lock().len() == 4 }).await;
    replicas.start("other");
    pass(60).await;
    assert!(replicas.log.at_work.lock().values().all(|replica| replica == "cut-off"), "what it works on is left to it");
    network.on(Verb::WRITES, "leases").always().lose_request();
    let error = cut_off.await.expect("it doesn't panic").expect_err("it ends in an error");
    assert!(matches!(&error, ManagerError::ShardLost(lease) if lease.starts_with("default/fleets-")), "{error}");
    assert!(replicas.log.at_work.lock().is_empty(), "what was under way is cut off");
    until("the other has all", || async { replicas.signed(1).await.get("other") == Some(&4) }).await;
    for (_, running) in replicas.running {
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_cannot_be_a_label_is_refused() {
    let world = World::new().await;
    let manager = world.manager().sharding(ShardOptions::new("default", "n".repeat(64), "a"));
    let error = manager.run_until(std::future::pending::<()>()).await.expect_err("it is refused");
    assert!(
        error.to_string().contains("invalid group name")
            && error.to_string().contains("must be no more than 63 characters"),
        "{error}"
    );
}

/// Returns the result of the readiness check.
async fn readiness(probes: &kubewright_runtime::probe::Probes) -> String {
    crate::faults::page(probes, "/readyz/shards").await
}

/// A replica that can't see the others doesn't know which keys it owns, so it must not report that it is ready.
#[tokio::test(start_paused = true)]
async fn a_replica_that_may_not_list_the_leases_is_not_ready() {
    let replicas = Replicas::new(4).await;
    let network = Faults::new();
    network.on(&[Verb::List], "leases").always().refuse(403, "Forbidden");
    let manager = replicas.manager("a", &network, 0.0);
    let probes = manager.probes().clone();
    let running = run(manager);
    pass(60).await;
    let page = readiness(&probes).await;
    assert!(page.contains("has not joined the others yet") && page.contains("list leases"), "{page}");
    assert_eq!(replicas.log.runs.load(Ordering::SeqCst), 0, "nothing is worked on");
    network.clear();
    until("it is ready", || async { readiness(&probes).await == "ok" }).await;
    until("it works", || async { replicas.signed(1).await.get("a") == Some(&4) }).await;

    // The permission is revoked: the replica stays ready for a while, and then reports why it is not.
    network.on(&[Verb::List], "leases").always().refuse(403, "Forbidden");
    pass(5).await;
    assert_eq!(readiness(&probes).await, "ok");
    pass(30).await;
    let page = readiness(&probes).await;
    assert!(page.contains("could not be listed"), "{page}");
    running.stop().await;
}

/// An external event arrives at one replica, which may not own the key.
#[tokio::test(start_paused = true)]
async fn a_wake_from_outside_reaches_the_owner_of_the_key() {
    let mut replicas = Replicas::new(FLEETS).await;
    replicas.start("a");
    let (sender, receiver) = tokio::sync::mpsc::channel(FLEETS);
    let reconciler = Signing { replica: "b".into(), log: replicas.log.clone(), seconds: 1.0 };
    let controller = Controller::new(reconciler).concurrency(4).reconcile_on(receiver);
    let manager = Manager::new(replicas.world.client.clone()).clock(replicas.world.clock.clone());
    let manager = manager.random(replicas.world.random.clone()).sharding(ShardOptions::new("default", "fleets", "b"));
    replicas.running.insert("b".into(), run(manager.controller(controller)));
    replicas.wait_for_shares(1, &["a", "b"]).await;
    pass(60).await;
    let runs = replicas.log.runs.load(Ordering::SeqCst);
    pass(60).await;
    assert_eq!(replicas.log.runs.load(Ordering::SeqCst), runs, "it is quiet");
    for number in 0..FLEETS {
        sender.send(ObjectKey::namespaced("default", &format!("f{number:03}"))).await.expect("it listens");
    }
    pass(10).await;
    assert_eq!(replicas.log.runs.load(Ordering::SeqCst) - runs, FLEETS, "each by its owner, once");
    pass(60).await;
    assert_eq!(replicas.log.runs.load(Ordering::SeqCst) - runs, FLEETS, "and not again");
    for (_, running) in replicas.running {
        running.stop().await;
    }
}
