//! Controllers whose keys are no Kubernetes objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_runtime::{
    action::{Action, Retry},
    controller::{KeyContext, KeyController, KeyReconciler, Relation},
    manager::ManagerError,
    metrics::Metrics,
    predicate::Predicate,
    rbac::{PolicyRule, Verb},
    shard::ShardOptions,
};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::world::{World, pass, run, until};

/// The zone of a name server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Zone {
    name: String,
    view: u32,
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.view)
    }
}

fn zone(name: &str) -> Zone {
    Zone { name: name.into(), view: 1 }
}

#[derive(Debug, Error)]
#[error("{0}")]
struct Unreachable(&'static str);

/// Counts the runs of each zone. Some of them fail, by their names.
#[derive(Clone, Default)]
struct Zones {
    runs: Arc<Mutex<BTreeMap<Zone, usize>>>,
    running: Arc<AtomicUsize>,
    /// The slow zones that run now.
    slow: Arc<Mutex<BTreeSet<Zone>>>,
    /// Whether a zone ran beside itself.
    doubled: Arc<AtomicBool>,
    most: Arc<AtomicUsize>,
}

impl KeyReconciler<Zone> for Zones {
    type Error = Unreachable;

    async fn reconcile(&self, zone: &Zone, ctx: &KeyContext) -> Result<Action, Unreachable> {
        let runs = {
            let mut runs = self.runs.lock();
            let runs = runs.entry(zone.clone()).or_default();
            *runs += 1;
            *runs
        };
        match (zone.name.as_str(), runs) {
            ("fails-twice", 1 | 2) => return Err(Unreachable("the name server is away")),
            ("terminal", _) => return Err(Unreachable("terminal")),
            ("panics-once", 1) => panic!("out of ideas"),
            ("hangs-once", 1) => std::future::pending::<()>().await,
            ("again", 1) => return Ok(Action::requeue_after(Duration::from_secs(60))),
            ("slow", _) => {
                let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(running, Ordering::SeqCst);
                self.doubled.fetch_or(!self.slow.lock().insert(zone.clone()), Ordering::SeqCst);
                ctx.cancelled().run_until_cancelled(tokio::time::sleep(Duration::from_secs(1))).await;
                self.slow.lock().remove(zone);
                self.running.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        }
        Ok(Action::await_change())
    }

    fn error_policy(&self, error: &Unreachable) -> Retry {
        if error.0 == "terminal" { Retry::Terminal } else { Retry::Backoff }
    }
}

impl Zones {
    fn runs(&self, name: &str) -> usize {
        self.runs.lock().get(&zone(name)).copied().unwrap_or_default()
    }
}

fn named(name: &str, zone: &str) -> ConfigMap {
    let labels = [("zone".to_owned(), zone.to_owned())].into();
    let metadata = ObjectMeta { name: Some(name.into()), labels: Some(labels), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn zone_of(map: &ConfigMap) -> Vec<Zone> {
    map.labels().get("zone").map(|name| zone(name)).into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn keys_come_from_objects_channels_and_tasks() {
    let world = World::without_fleets();
    let maps = world.ships();
    maps.create(&PostParams::default(), &named("first", "listed")).await.expect("accepted");
    let zones = Zones::default();
    let (sender, receiver) = mpsc::channel(1);
    let (awake, mut woken) = mpsc::channel(1);
    let controller = KeyController::new("zones", zones.clone())
        .watches_when(Predicate::<ConfigMap>::new(|change| change.object().name_any() != "ignored"), zone_of)
        .reconcile_on(receiver)
        .watches_raw_source(|waker| async move {
            waker.wake_after(zone("delayed"), Duration::from_secs(30));
            waker.wake(zone("woken"));
            let _ = awake.send(waker).await;
        });
    let manager = run(world.manager().key_controller(controller));
    until("the first list is mapped", || async { zones.runs("listed") == 1 }).await;
    let waker = woken.recv().await.expect("the source runs");
    sender.send(zone("sent")).await.expect("the controller listens");
    until("the channel and the task wake keys", || async { zones.runs("sent") == 1 && zones.runs("woken") == 1 }).await;
    assert_eq!(zones.runs("delayed"), 0);
    until("the delay ends", || async { zones.runs("delayed") == 1 }).await;

    // A change of the key wakes the old and the new one.
    maps.create(&PostParams::default(), &named("ignored", "ignored")).await.expect("accepted");
    let moved = maps.get("first").await.expect("the object");
    let moved = ConfigMap {
        metadata: ObjectMeta { labels: named("first", "moved").metadata.labels, ..moved.metadata },
        ..moved
    };
    maps.replace("first", &PostParams::default(), &moved).await.expect("accepted");
    until("both zones are reconciled", || async { zones.runs("listed") == 2 && zones.runs("moved") == 1 }).await;
    maps.delete("first", &DeleteParams::default()).await.expect("deleted");
    until("a deletion too", || async { zones.runs("moved") == 2 }).await;
    waker.wake_with(zone("late"), 5);
    until("a waker works on", || async { zones.runs("late") == 1 }).await;
    assert_eq!(zones.runs("ignored"), 0);
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_keys_are_retried_on_their_own() {
    let world = World::without_fleets();
    let (zones, metrics) = (Zones::default(), Metrics::new(world.clock.clone()));
    let (sender, receiver) = mpsc::channel(8);
    let controller = KeyController::new("zones", zones.clone()).reconcile_on(receiver).timeout(Duration::from_secs(20));
    let manager = run(world.manager().metrics(metrics.clone()).key_controller(controller));
    for name in ["fails-twice", "terminal", "panics-once", "again", "fine"] {
        sender.send(zone(name)).await.expect("the controller listens");
    }
    until("they are repeated", || async {
        zones.runs("fails-twice") == 3 && zones.runs("panics-once") == 2 && zones.runs("again") == 2
    })
    .await;
    sender.send(zone("hangs-once")).await.expect("the controller listens");
    until("the time limit ends a run", || async { zones.runs("hangs-once") == 2 }).await;
    pass(3600).await;
    assert_eq!((zones.runs("terminal"), zones.runs("fine"), zones.runs("fails-twice")), (1, 1, 3));
    let text = metrics.encode().expect("text");
    for line in [
        "controller_runtime_reconcile_total{controller=\"zones\",result=\"success\"} 5",
        "controller_runtime_reconcile_total{controller=\"zones\",result=\"error\"} 5",
        "controller_runtime_reconcile_total{controller=\"zones\",result=\"requeue_after\"} 1",
        "controller_runtime_terminal_reconcile_errors_total{controller=\"zones\"} 1",
        "controller_runtime_reconcile_panics_total{controller=\"zones\"} 1",
        "controller_runtime_reconcile_timeouts_total{controller=\"zones\"} 1",
        "controller_runtime_active_workers{controller=\"zones\"} 0",
        "workqueue_retries_total{controller=\"zones\",name=\"zones\"} 5",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    manager.stop().await;
}

/// Requeues its zones after a minute, and up to half a minute more.
#[derive(Clone)]
struct Refreshed {
    clock: SharedClock,
    /// The times of the runs of each zone.
    runs: Arc<Mutex<BTreeMap<String, Vec<Duration>>>>,
}

impl KeyReconciler<Zone> for Refreshed {
    type Error = Unreachable;

    async fn reconcile(&self, zone: &Zone, _: &KeyContext) -> Result<Action, Unreachable> {
        self.runs.lock().entry(zone.name.clone()).or_default().push(self.clock.monotonic());
        Ok(Action::requeue_after(Duration::from_secs(60)).jitter(Duration::from_secs(30)))
    }
}

#[tokio::test(start_paused = true)]
async fn requeues_with_jitter_spread() {
    let world = World::without_fleets();
    let zones = Refreshed { clock: world.clock.clone(), runs: Arc::default() };
    let (sender, receiver) = mpsc::channel(8);
    let manager =
        run(world.manager().key_controller(KeyController::new("zones", zones.clone()).reconcile_on(receiver)));
    for name in ["a", "b", "c", "d"] {
        sender.send(zone(name)).await.expect("the controller listens");
    }
    pass(3600).await;
    let runs = zones.runs.lock().clone();
    let delays =
        |runs: &Vec<Duration>| runs.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect::<Vec<_>>();
    let delays = runs.values().flat_map(delays).collect::<Vec<_>>();
    assert!(delays.iter().all(|delay| (60.0..90.1).contains(delay)), "{delays:?}");
    let seconds = delays.iter().map(|delay| *delay as u64).collect::<BTreeSet<_>>();
    assert!(delays.len() > 150 && seconds.len() > 20, "{} delays of {seconds:?}", delays.len());
    manager.stop().await;
}

/// Keys run side by side, none beside itself, and a stop waits for them.
#[tokio::test(start_paused = true)]
async fn keys_run_side_by_side_up_to_the_concurrency() {
    let world = World::without_fleets();
    let zones = Zones::default();
    let controller = KeyController::new("zones", zones.clone()).concurrency(3).watches_raw_source(|waker| async move {
        for _ in 0..4 {
            (0..10).for_each(|view| waker.wake(Zone { view, ..zone("slow") }));
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let manager = run(world.manager().key_controller(controller));
    until("all of them run", || async { zones.runs.lock().len() == 10 }).await;
    assert_eq!(zones.most.load(Ordering::SeqCst), 3);
    until("some run", || async { zones.running.load(Ordering::SeqCst) > 0 }).await;
    manager.stop().await;
    assert_eq!(zones.running.load(Ordering::SeqCst), 0);
    assert!(!zones.doubled.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn key_controllers_are_described_and_need_a_leader_unless_configured() {
    let world = World::without_fleets();
    let controller = || {
        let rule = PolicyRule::of::<ConfigMap>([Verb::Patch]);
        KeyController::new("zones", Zones::default()).watches(zone_of).watches(zone_of).policy_rule(rule)
    };
    let described = world.manager().key_controller(controller()).describe();
    let uses = described.controllers[0].uses.iter().map(|of| (of.kind.to_string(), of.relation)).collect::<Vec<_>>();
    assert_eq!(uses, [("configmaps".to_owned(), Relation::Watches)]);
    assert_eq!(described.controllers[0].allowed.len(), 1);

    let shards = || ShardOptions::new("default", "zones", "one");
    let refused = world.manager().sharding(shards()).key_controller(controller());
    let error = refused.run_until(std::future::ready(())).await.expect_err("nobody would have the keys");
    assert!(matches!(&error, ManagerError::Indivisible(name) if name == "zones"), "{error}");
    let everywhere = world.manager().sharding(shards()).key_controller(controller().needs_leader(false));
    run(everywhere).stop().await;
    let twice = world.manager().key_controller(controller()).key_controller(controller());
    let error = twice.run_until(std::future::ready(())).await.expect_err("their metrics would be one");
    assert!(matches!(error, ManagerError::SameName(_)), "{error}");
}
