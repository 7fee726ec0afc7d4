//! The read-your-writes barrier: however late the cache is, a reconcile sees the earlier writes of its key.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use kubewright_cluster::faults::Verb;
use kubewright_runtime::{
    action::Action,
    client::ClientError,
    clock::Clock,
    context::Context,
    controller::{Controller, Reconciler},
    metrics::Metrics,
    object::ObjectKey,
    rbac,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::world::{Fleet, FleetReconciler, FleetStatus, World, controller, pass, run, until};

const SIZE: usize = 12;

/// Returns the number of config maps ever created: none is deleted here, so it is the number at the end.
async fn ships_made(world: &World, delay: Duration) -> usize {
    let late = world.faults.on(&[Verb::Watch], "configmaps").always().delay(delay);
    let manager = run(world.manager().controller(controller(FleetReconciler::generating_names())));
    world.create_fleet("a", SIZE).await;
    world.wait_for_size("a", SIZE).await;
    manager.stop().await;
    assert!(late.hits() > 0, "the fault was met");
    world.ship_names().await.len()
}

/// A cache that is behind by any number of events.
#[tokio::test(start_paused = true)]
async fn a_late_cache_never_leads_to_too_many_children() {
    for millis in [0, 1, 70, 900, 4_900, 5_100, 20_000] {
        let world = World::new().await;
        assert_eq!(ships_made(&world, Duration::from_millis(millis)).await, SIZE, "with events late by {millis} ms");
    }
}

/// A stalled cache isn't waited for: after five seconds, each reconcile reads live.
#[tokio::test(start_paused = true)]
async fn a_stalled_cache_is_bypassed_by_live_reads() {
    let world = World::new().await;
    let metrics = Metrics::new(world.clock.clone());
    let counted = |what: &str| {
        let text = metrics.encode().expect("metrics");
        let name = format!("kubewright_read_your_writes_{what}_total{{controller=\"fleet\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name)).expect("it is counted");
        line.parse::<usize>().expect("a number")
    };
    let manager = world.manager().metrics(metrics.clone());
    let manager = run(manager.controller(controller(FleetReconciler::generating_names())));
    world.create_fleet("first", 1).await;
    world.wait_for_size("first", 1).await;

    let gate = world.faults.on(&[Verb::Watch], "configmaps").always().hold();
    // The current watch ends after its timeout, and the next one is held.
    pass(300).await;
    world.create_fleet("a", 3).await;
    world.wait_for_size("a", 3).await;
    assert_eq!(world.ship_names().await.len(), 1 + 3);
    let lists = world.faults.requests().into_iter().filter(|seen| seen.request.resource == "configmaps");
    assert!(lists.filter(|seen| seen.request.verb == Verb::List).count() > 3, "it was read live");

    assert!((1..=counted("waits")).contains(&counted("timeouts")), "{} waits", counted("waits"));
    drop(gate);
    world.resize("a", 1).await;
    world.wait_for_size("a", 1).await;
    assert_eq!(world.ship_names().await.len(), 1 + 1);
    manager.stop().await;
}

/// The object is created and the answer is lost, so its generated name is unknown.
#[tokio::test(start_paused = true)]
async fn a_create_without_a_response_is_not_repeated() {
    let world = World::new().await;
    let lost = world.faults.on(&[Verb::Create], "configmaps").times(4).lose_response();
    let _late = world.faults.on(&[Verb::Watch], "configmaps").always().delay(Duration::from_secs(2));
    let manager = run(world.manager().controller(controller(FleetReconciler::generating_names())));
    world.create_fleet("a", SIZE).await;
    world.wait_for_size("a", SIZE).await;
    assert_eq!((lost.hits(), world.ship_names().await.len()), (4, SIZE));
    manager.stop().await;
}

/// Returns how often the ships of a namespace, or all ships, were listed. Requests for a single ship don't count.
fn lists(world: &World) -> usize {
    let seen = world.faults.requests().into_iter().map(|seen| seen.request);
    seen.filter(|request| (request.verb, request.resource.as_str()) == (Verb::List, "configmaps"))
        .filter(|request| request.name.is_none())
        .count()
}

/// If the name is known, only that object is read.
#[tokio::test(start_paused = true)]
async fn a_named_create_without_a_response_costs_no_list() {
    let world = World::new().await;
    let lost = world.faults.on(&[Verb::Create], "configmaps").times(4).lose_response();
    let _late = world.faults.on(&[Verb::Watch], "configmaps").always().delay(Duration::from_secs(2));
    let manager = run(world.manager().controller(controller(FleetReconciler::default())));
    world.create_fleet("a", SIZE).await;
    world.wait_for_size("a", SIZE).await;
    assert_eq!((lost.hits(), world.ship_names().await.len()), (4, SIZE));
    assert_eq!(lists(&world), 1, "that of the cache");
    manager.stop().await;
}

/// If the names written by many keys are unknown, the waiting keys share one list.
#[tokio::test(start_paused = true)]
async fn keys_with_lost_responses_share_a_list() {
    const FLEETS: usize = 16;
    let world = World::new().await;
    let lost = world.faults.on(&[Verb::Create], "configmaps").times(FLEETS).lose_response();
    let _slow = world.faults.on(&[Verb::List], "configmaps").always().delay(Duration::from_secs(1));
    let _late = world.faults.on(&[Verb::Watch], "configmaps").always().delay(Duration::from_secs(60));
    let controller = controller(FleetReconciler::generating_names()).concurrency(FLEETS);
    let manager = run(world.manager().controller(controller));
    for number in 0..FLEETS {
        world.create_fleet(&format!("f{number:02}"), 1).await;
    }
    for number in 0..FLEETS {
        world.wait_for_size(&format!("f{number:02}"), 1).await;
    }
    assert_eq!((lost.hits(), world.ship_names().await.len()), (FLEETS, FLEETS));
    assert!((2..=5).contains(&lists(&world)), "{} lists for {FLEETS} keys", lists(&world));
    manager.stop().await;
}

/// A stalled cache has to list again, once for all keys that wait for it.
#[tokio::test(start_paused = true)]
async fn a_stalled_cache_lists_again_once() {
    const FLEETS: usize = 16;
    let world = World::new().await;
    let manager = run(world.manager().controller(controller(FleetReconciler::generating_names())));
    world.create_fleet("first", 1).await;
    world.wait_for_size("first", 1).await;
    let gate = world.faults.on(&[Verb::Watch], "configmaps").always().hold();
    // The current watch ends after its timeout, and the next one is held.
    pass(300).await;
    let before = lists(&world);
    for number in 0..FLEETS {
        world.create_fleet(&format!("f{number:02}"), 1).await;
    }
    for number in 0..FLEETS {
        world.wait_for_size(&format!("f{number:02}"), 1).await;
    }
    assert_eq!(world.ship_names().await.len(), 1 + FLEETS);
    assert_eq!(lists(&world) - before, 1, "for {FLEETS} keys");
    drop(gate);
    manager.stop().await;
}

/// Deletes all ships that the API server has, once for each size, and records those that the cache still returns
/// afterwards.
#[derive(Clone, Default)]
struct Sinker {
    size: Arc<AtomicUsize>,
    sunk: Arc<Mutex<BTreeSet<String>>>,
    ghosts: Arc<Mutex<Vec<String>>>,
}

impl Reconciler<Fleet> for Sinker {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let sunk = self.sunk.lock().clone();
        let shown = ctx.list::<ConfigMap>(&Default::default())?;
        let ghosts = shown.iter().filter_map(|ship| ship.uid()).filter(|uid| sunk.contains(uid));
        self.ghosts.lock().extend(ghosts);
        if self.size.swap(fleet.spec.size, Ordering::SeqCst) != fleet.spec.size {
            for ship in ctx.live().list::<ConfigMap>(&Default::default()).await? {
                self.sunk.lock().extend(ship.uid());
                ctx.delete(&ship).await?;
            }
        }
        ctx.set_status(FleetStatus { size: fleet.spec.size, note: None }).await?;
        // Runs again while the cache receives the events, to check what it returns meanwhile.
        Ok(Action::requeue_after(Duration::from_millis(100)))
    }
}

/// An object that was deleted before the cache had seen it doesn't appear afterwards.
#[tokio::test(start_paused = true)]
async fn an_object_deleted_before_the_cache_saw_it_never_appears() {
    let world = World::new().await;
    let _late = world.faults.on(&[Verb::Watch], "configmaps").always().delay(Duration::from_secs(2));
    let sinker = Sinker::default();
    let manager = run(world.manager().controller(Controller::new(sinker.clone()).reads::<ConfigMap>()));
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    for size in 2..6 {
        let metadata = ObjectMeta { name: Some("s".into()), ..ObjectMeta::default() };
        let ship = ConfigMap { metadata, ..ConfigMap::default() };
        world.ships().create(&Default::default(), &ship).await.expect("accepted");
        // The cache would show the deleted ship for this long.
        pass(1).await;
        world.resize("a", size).await;
        world.wait_for_size("a", size).await;
        pass(3).await;
    }
    assert_eq!(sinker.sunk.lock().len(), 4);
    assert_eq!(*sinker.ghosts.lock(), Vec::<String>::new());
    manager.stop().await;
}

/// Never returns after a write.
struct Lost(FleetReconciler);

impl Reconciler<Fleet> for Lost {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let action = self.0.reconcile(fleet, ctx).await?;
        if action == Action::await_change() { Ok(action) } else { std::future::pending().await }
    }
}

/// The writes of a reconcile that was cancelled are waited for as well.
#[tokio::test(start_paused = true)]
async fn a_reconcile_cut_off_by_the_time_limit_is_waited_for_too() {
    let world = World::new().await;
    let _late = world.faults.on(&[Verb::Watch], "configmaps").always().delay(Duration::from_secs(3));
    let lost = Controller::new(Lost(FleetReconciler::generating_names())).owns::<ConfigMap>();
    let manager = run(world.manager().controller(lost.timeout(Duration::from_secs(1))));
    world.create_fleet("a", 3).await;
    world.wait_for_size("a", 3).await;
    assert_eq!(world.ship_names().await.len(), 3);
    manager.stop().await;
}

/// Copies the size of a fleet to its status. If a live read of the config map `settings` returns another state than the
/// cache, it tries again after a second instead.
struct Reader {
    settings: ObjectKey,
}

impl Reconciler<Fleet> for Reader {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let live = ctx.live().get::<ConfigMap>(&self.settings).await?;
        let cached = ctx.get::<ConfigMap>(&self.settings)?;
        if live.and_then(|map| map.data) != cached.and_then(|map| map.data.clone()) {
            return Ok(Action::requeue_after(Duration::from_secs(1)));
        }
        ctx.set_status(FleetStatus { size: fleet.spec.size, note: None }).await?;
        Ok(Action::await_change())
    }
}

/// A live read that returns a newer state than the cache makes the cache list again: the connection may be half open,
/// and the watch silent for minutes.
#[tokio::test(start_paused = true)]
async fn a_cache_older_than_a_live_read_is_listed_again() {
    for is_deleted in [false, true] {
        let world = World::new().await;
        let settings = ObjectKey::namespaced("default", "settings");
        let map = |value: &str| ConfigMap {
            metadata: ObjectMeta { name: Some("settings".into()), ..ObjectMeta::default() },
            data: Some([("value".to_owned(), value.to_owned())].into()),
            ..ConfigMap::default()
        };
        world.ships().create(&Default::default(), &map("old")).await.expect("accepted");
        let _silent = world.faults.on(&[Verb::Watch], "configmaps").always().hold();
        let controller = Controller::new(Reader { settings }).reads::<ConfigMap>();
        let manager = run(world.manager().controller(controller));
        world.create_fleet("a", 1).await;
        world.wait_for_size("a", 1).await;
        let before = lists(&world);
        if is_deleted {
            world.ships().delete("settings", &Default::default()).await.expect("deleted");
        } else {
            world.ships().replace("settings", &Default::default(), &map("new")).await.expect("accepted");
        }
        world.resize("a", 2).await;
        let soon = tokio::time::timeout(Duration::from_secs(20), world.wait_for_size("a", 2));
        soon.await.unwrap_or_else(|_| panic!("the cache stays behind, deleted: {is_deleted}"));
        pass(1).await;
        assert_eq!(lists(&world) - before, 1, "the cache was made to list");
        manager.stop().await;
    }
}

/// An object that a live read has returned may be gone when the cache lists; the list still counts as newer.
#[tokio::test(start_paused = true)]
async fn a_list_counts_as_newer_than_every_live_read_before_it() {
    let world = World::new().await;
    let _silent = world.faults.on(&[Verb::Watch], "configmaps").always().hold();
    let reconciler = FleetReconciler::generating_names();
    let manager = run(world.manager().controller(controller(reconciler.clone())));
    // The answer is lost, so the ship is known only from a live read.
    let lost = world.faults.on(&[Verb::Create], "configmaps").lose_response();
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    assert_eq!(lost.hits(), 1);
    let name = world.ship_names().await.pop().expect("a ship");
    world.ships().delete(&name, &Default::default()).await.expect("deleted");
    // The cache has to list, the list is empty, and no further events for config maps follow.
    world.resize("a", 0).await;
    world.wait_for_size("a", 0).await;
    pass(120).await;
    let (runs, begun) = (reconciler.runs.load(Ordering::SeqCst), world.clock.monotonic());
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    world.fleets().patch("a", &PatchParams::default(), &label).await.expect("accepted");
    until("it is reconciled", || async { reconciler.runs.load(Ordering::SeqCst) > runs }).await;
    let waited = world.clock.monotonic() - begun;
    assert!(waited < Duration::from_secs(1), "it has waited for {waited:?}");
    manager.stop().await;
}

/// Deletes the config map `s` by name, and records whether its later runs see it.
struct Deleter {
    key: ObjectKey,
    has_deleted: AtomicBool,
    sees: Arc<AtomicBool>,
}

impl Reconciler<Fleet> for Deleter {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        if !self.has_deleted.swap(true, Ordering::SeqCst) {
            ctx.client().kind::<ConfigMap>().delete(&self.key).await?;
            return Ok(Action::requeue_after(Duration::ZERO));
        }
        self.sees.fetch_or(ctx.get::<ConfigMap>(&self.key)?.is_some(), Ordering::SeqCst);
        ctx.set_status(FleetStatus { size: fleet.spec.size, note: None }).await?;
        Ok(Action::await_change())
    }
}

/// The response to a deletion by name may not identify the deleted object; then it is taken to be the one in the cache.
#[tokio::test(start_paused = true)]
async fn an_object_deleted_by_its_name_alone_is_never_seen_again() {
    for is_gone in [false, true] {
        let world = World::new().await;
        let metadata = ObjectMeta { name: Some("s".into()), ..ObjectMeta::default() };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        world.ships().create(&Default::default(), &map).await.expect("accepted");
        let _late = world.faults.on(&[Verb::Watch], "configmaps").always().delay(Duration::from_secs(3));
        let sees = Arc::new(AtomicBool::new(false));
        let key = ObjectKey::namespaced("default", "s");
        let deleter = Deleter { key, has_deleted: AtomicBool::new(false), sees: sees.clone() };
        // An API server that responds with a status without details, as aggregated ones may.
        let controller = Controller::new(deleter).reads::<ConfigMap>().client(|client| {
            client.intercept(|next| async move {
                let is_delete = next.call().verb() == rbac::Verb::Delete;
                let mut answer = next.send().await?;
                if is_delete {
                    answer.text = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}).to_string();
                }
                Ok(answer)
            })
        });
        let manager = run(world.manager().controller(controller));
        pass(10).await;
        if is_gone {
            world.ships().delete("s", &Default::default()).await.expect("deleted");
        }
        world.create_fleet("a", 1).await;
        world.wait_for_size("a", 1).await;
        assert!(!sees.load(Ordering::SeqCst), "the API server answers 404: {is_gone}");
        manager.stop().await;
    }
}

/// Creates a config map with a fixed name, without checking whether it exists.
struct Maker;

impl Reconciler<Fleet> for Maker {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let metadata = ObjectMeta { name: Some("one".into()), ..ObjectMeta::default() };
        ctx.get_or_create_child(ConfigMap { metadata, ..ConfigMap::default() }).await?;
        ctx.set_status(FleetStatus { size: fleet.spec.size, note: None }).await?;
        Ok(Action::await_change())
    }
}

/// Only makes the manager cache config maps.
struct Onlooker;

impl Reconciler<ConfigMap> for Onlooker {
    type Error = ClientError;

    async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action, ClientError> {
        Ok(Action::await_change())
    }
}

/// A controller waits only for its own kinds: a broken cache of another controller's kind doesn't delay it.
#[tokio::test(start_paused = true)]
async fn a_kind_that_only_another_controller_reads_is_not_waited_for() {
    let world = World::new().await;
    let refused = world.faults.on(&[Verb::List], "configmaps").always().refuse(403, "Forbidden");
    let manager = world.manager().controller(Controller::new(Maker)).controller(Controller::new(Onlooker));
    let manager = run(manager);
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    for size in 2..5 {
        world.resize("a", size).await;
        let soon = tokio::time::timeout(Duration::from_secs(2), world.wait_for_size("a", size));
        soon.await.expect("nothing is waited for");
    }
    assert!(refused.hits() > 0, "the fault was met");
    manager.stop().await;
}

/// The opposite case: without writes there is nothing to wait for.
#[tokio::test(start_paused = true)]
async fn a_steady_state_has_no_writes() {
    let world = World::new().await;
    let reconciler = FleetReconciler::default();
    let manager = run(world.manager().controller(controller(reconciler.clone())));
    world.create_fleet("a", 3).await;
    world.wait_for_size("a", 3).await;
    pass(60).await;
    world.faults.forget();
    let runs = reconciler.runs.load(Ordering::SeqCst);
    pass(3600).await;
    assert_eq!((world.faults.writes(), reconciler.runs.load(Ordering::SeqCst) - runs), (0, 0));
    manager.stop().await;
}
