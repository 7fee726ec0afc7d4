//! The options of a controller: additional event sources, priorities, rate limits, and its client.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Resource,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use kubewright_runtime::{
    action::Action,
    clock::Clock,
    context::Context,
    controller::{Controller, ControllerError, RateLimit, Reconciler},
    manager::ManagerError,
    object::ObjectKey,
    queue::Backoff,
    trace::{End, Traces},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;

use crate::world::{self, Fleet, FleetStatus, World, pass, run, until};

/// Records the time of each run, whether or not the object exists. The object's name determines the result.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<(String, Duration)>>>);

impl Diary {
    fn note(&self, ctx: &Context<Fleet>) -> usize {
        let mut entries = self.0.lock();
        let before = entries.iter().filter(|(name, _)| name == ctx.key().name()).count();
        entries.push((ctx.key().name().into(), ctx.monotonic()));
        before
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().iter().map(|(name, _)| name.clone()).collect()
    }

    fn times(&self, name: &str) -> Vec<Duration> {
        self.0.lock().iter().filter(|(noted, _)| noted == name).map(|(_, time)| *time).collect()
    }
}

impl Reconciler<Fleet> for Diary {
    type Error = anyhow::Error;

    async fn reconcile(&self, _: &Fleet, ctx: &Context<Fleet>) -> anyhow::Result<Action> {
        let again = |priority| Action::requeue_after_with_priority(Duration::from_secs(1), priority);
        match (ctx.key().name(), self.note(ctx)) {
            ("low", 0) => Ok(again(-5)),
            ("high", 0) => Ok(again(5)),
            (name, _) if name.starts_with("bad") => anyhow::bail!("as its name says"),
            _ => Ok(Action::await_change()),
        }
    }

    async fn deleted(&self, _: &ObjectKey, ctx: &Context<Fleet>) -> anyhow::Result<()> {
        self.note(ctx);
        if ctx.key().name() == "slow" {
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        Ok(())
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

#[tokio::test(start_paused = true)]
async fn channels_and_sources_wake_keys() {
    let world = World::new().await;
    let diary = Diary::default();
    let (sender, receiver) = mpsc::channel(1);
    let source = Controller::new(diary.clone()).reconcile_on(receiver).watches_raw_source(|waker| async move {
        waker.wake_after(key("later"), Duration::from_secs(60));
        waker.wake(key("source"));
        panic!("what it woke is woken, and nothing else ends");
    });
    sender.send(key("early")).await.expect("there is room");
    let manager = run(world.manager().controller(source));
    until("both woke", || async { diary.names().len() == 2 }).await;
    for name in ["a", "b", "a"] {
        sender.send(key(name)).await.expect("it is listened to");
        until("it is woken", || async { diary.names().last().is_some_and(|last| last == name) }).await;
    }
    assert!(diary.times("later").is_empty());
    pass(60).await;
    assert_eq!(diary.times("later").len(), 1);
    manager.stop().await;
    assert!(sender.is_closed(), "nobody listens after the end");
}

/// A change of the settings wakes all objects, or those that use them.
#[tokio::test(start_paused = true)]
async fn a_source_wakes_all_objects_or_those_that_pass() {
    let world = World::new().await;
    for (name, size) in [("a", 1), ("b", 2), ("c", 3)] {
        world.create_fleet(name, size).await;
    }
    let diary = Diary::default();
    let (settings, mut changed) = tokio::sync::watch::channel(0);
    let controller = Controller::new(diary.clone()).watches_raw_source(|waker| async move {
        while changed.changed().await.is_ok() {
            match *changed.borrow() {
                0 => waker.wake_all(),
                least => waker.wake_all_when(|fleet: &Fleet| fleet.spec.size >= least),
            }
        }
    });
    let manager = run(world.manager().controller(controller));
    until("all have run", || async { diary.names().len() == 3 }).await;
    settings.send(0).expect("it listens");
    until("all have run again", || async { diary.names().len() == 6 }).await;
    settings.send(2).expect("it listens");
    until("two have run again", || async { diary.names().len() == 8 }).await;
    pass(5).await;
    manager.stop().await;
    assert_eq!(diary.names()[3..], ["a", "b", "c", "b", "c"]);
}

/// Twenty changes within ten seconds are one run, and a stream of changes doesn't delay a run for ever.
#[tokio::test(start_paused = true)]
async fn bursts_of_changes_are_one_run() {
    let world = World::new().await;
    world.create_fleet("a", 0).await;
    let diary = Diary::default();
    let debounced = Controller::new(diary.clone()).debounce(Duration::from_secs(1), Duration::from_secs(20));
    let manager = run(world.manager().controller(debounced));
    until("it has run", || async { diary.names().len() == 1 }).await;
    for size in 1..=20 {
        world.resize("a", size).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(diary.names().len(), 1, "it changes all the time");
    until("it has run again", || async { diary.names().len() == 2 }).await;
    for size in 1..=60 {
        world.resize("a", size).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(diary.names().len(), 3, "after the longest delay, and not more often");
    manager.stop().await;
}

/// Two keys become ready while the only worker is busy: the one that was requeued with the higher priority runs first.
#[tokio::test(start_paused = true)]
async fn a_requeue_has_the_priority_that_the_action_gives_it() {
    let world = World::new().await;
    let diary = Diary::default();
    let slow = |waker: kubewright_runtime::controller::Waker<Fleet>| async move {
        tokio::time::sleep(Duration::from_secs(10)).await;
        waker.wake_after(key("slow"), Duration::from_millis(500));
        std::future::pending().await
    };
    let manager = run(world.manager().controller(Controller::new(diary.clone()).watches_raw_source(slow)));
    pass(10).await;
    for name in ["low", "high"] {
        world.create_fleet(name, 0).await;
    }
    until("all have run again", || async { diary.names().len() == 5 }).await;
    assert_eq!(diary.names()[2..], ["slow", "high", "low"]);
    manager.stop().await;
}

/// The objects of an initial list run in the order of their priorities, and so do objects that change while the only
/// worker is busy. A priority returned by a mapper takes precedence.
#[tokio::test(start_paused = true)]
async fn objects_and_mappers_may_say_what_goes_first() {
    let world = World::new().await;
    for (name, size) in [("one", 1), ("nine", 9)] {
        world.create_fleet(name, size).await;
    }
    let diary = Diary::default();
    let (sender, receiver) = mpsc::channel(1);
    let ranked = Controller::new(diary.clone())
        .priority(|fleet: &Fleet| i32::try_from(fleet.spec.size).expect("it is small"))
        .watches_with_priority(|map: &ConfigMap, _| vec![(ObjectKey::of(map), 3)])
        .reconcile_on(receiver);
    let manager = run(world.manager().controller(ranked));
    until("both have run", || async { diary.names().len() == 2 }).await;
    sender.send(key("slow")).await.expect("it is listened to");
    until("the worker is busy", || async { diary.names().len() == 3 }).await;
    for (name, size) in [("two", 2), ("four", 4)] {
        world.create_fleet(name, size).await;
    }
    let map = serde_json::from_value(json!({"metadata": {"name": "mapped"}})).expect("a config map");
    world.ships().create(&PostParams::default(), &map).await.expect("accepted");
    until("all have run", || async { diary.names().len() == 6 }).await;
    assert_eq!(diary.names(), ["nine", "one", "slow", "four", "mapped", "two"]);
    manager.stop().await;
}

/// Panics for the first object, and is slow for the second.
struct Fragile(Arc<Mutex<Vec<&'static str>>>);

impl Reconciler<Fleet> for Fragile {
    type Error = std::convert::Infallible;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, Self::Error> {
        if fleet.spec.size == 0 {
            panic!("on purpose");
        }
        self.0.lock().push("begins");
        ctx.cancelled().cancelled().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        self.0.lock().push("ends");
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_the_manager_if_panics_are_not_recovered() {
    let world = World::new().await;
    let events = Arc::new(Mutex::new(Vec::new()));
    let fragile = Controller::new(Fragile(events.clone())).concurrency(2).recover_panic(false);
    let manager = tokio::spawn(world.manager().controller(fragile).run_until(std::future::pending::<()>()));
    world.create_fleet("calm", 1).await;
    until("the first is at work", || async { !events.lock().is_empty() }).await;
    world.create_fleet("wild", 0).await;
    let error = manager.await.expect("it doesn't panic itself").expect_err("it ends");
    assert!(matches!(error, ManagerError::Controller(ControllerError::Panicked { .. })), "{error:?}");
    assert_eq!(error.to_string(), "the reconciler of fleet panicked for default/wild: on purpose");
    assert_eq!(*events.lock(), ["begins", "ends"], "others have their time");
}

/// Exceeds its time limit, and cleans up when it is cancelled.
struct Orderly(Arc<Mutex<Vec<Duration>>>);

impl Reconciler<Fleet> for Orderly {
    type Error = std::convert::Infallible;

    async fn reconcile(&self, _: &Fleet, ctx: &Context<Fleet>) -> Result<Action, Self::Error> {
        let start = ctx.monotonic();
        ctx.cancelled().cancelled().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.0.lock().push(ctx.monotonic() - start);
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_can_react_to_its_timeout() {
    let world = World::new().await;
    let events = Arc::new(Mutex::new(Vec::new()));
    let (traces, orderly) =
        (Traces::default(), Controller::new(Orderly(events.clone())).timeout(Duration::from_secs(2)));
    let manager = run(world.manager().traces(traces.clone()).controller(orderly));
    world.create_fleet("late", 1).await;
    until("it has failed all the same", || async {
        let runs = traces.of("fleet", &key("late"));
        runs.first().is_some_and(|run| run.end == End::TimedOut { limit: Duration::from_secs(2) })
    })
    .await;
    assert_eq!(events.lock()[0], Duration::from_millis(2500));
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cache_sync_timeout_can_end_the_manager() {
    let world = World::without_fleets();
    let begun = world.clock.monotonic();
    let patient = Controller::<Fleet>::new(Diary::default()).cache_sync_timeout(Duration::from_secs(30));
    let error = world.manager().controller(patient).run_until(std::future::pending::<()>()).await;
    let error = error.expect_err("it gives up").to_string();
    assert_eq!((world.clock.monotonic() - begun).as_secs(), 30);
    let start = "the cache of the controller fleet did not sync within 30s: ";
    assert!(error.starts_with(start) && error.contains("fleets.test.kubewright.dev: "), "{error}");
    assert!(error.contains("CustomResourceDefinition"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn backoff_and_rate_limit_are_the_controllers_own() {
    let world = World::new().await;
    let (diary, limited) = (Diary::default(), Diary::default());
    let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(4) };
    let tight = Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(1) };
    let limit = RateLimit { per_second: 0.5, burst: 10 };
    let manager = world
        .manager()
        .controller(Controller::new(diary.clone()).backoff(backoff))
        .controller(Controller::new(limited.clone()).name("limited").backoff(tight).rate_limit(limit));
    let manager = run(manager);
    for name in ["bad-1", "bad-2"] {
        world.create_fleet(name, 0).await;
    }
    pass(100).await;
    let times = diary.times("bad-1");
    let pauses: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    for (pause, most) in pauses.iter().zip([1.0, 2.0, 4.0, 4.0]) {
        assert!((most * 0.75..=most + 0.05).contains(pause), "{pauses:?}");
    }
    // Ten at once, then one every two seconds.
    let runs = limited.names().len();
    assert!((55..=65).contains(&runs), "{runs} runs");
    manager.stop().await;
}

/// A config map that has an owner reference to a fleet, but is not controlled by it.
#[tokio::test(start_paused = true)]
async fn children_may_wake_owners_that_do_not_control_them() {
    let world = World::new().await;
    let (every, only) = (Diary::default(), Diary::default());
    let manager = world
        .manager()
        .controller(Controller::new(every.clone()).name("every").owns_for_every_owner::<ConfigMap>())
        .controller(Controller::new(only.clone()).name("only").owns::<ConfigMap>());
    let manager = run(manager);
    let fleet = world.create_fleet("a", 0).await;
    let owner = fleet.owner_ref(&()).expect("it is stored");
    until("both have seen it", || async { every.names().len() == 1 && only.names().len() == 1 }).await;
    let child = json!({"metadata": {"name": "shared", "ownerReferences": [owner]}});
    let child: ConfigMap = serde_json::from_value(child).expect("a config map");
    world.ships().create(&PostParams::default(), &child).await.expect("accepted");
    until("it is woken", || async { every.names().len() == 2 }).await;
    let released = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    world.ships().patch("shared", &PatchParams::default(), &released).await.expect("accepted");
    until("the former owner is woken", || async { every.names().len() == 3 }).await;
    pass(10).await;
    assert_eq!((every.names().len(), only.names().len()), (3, 1));
    manager.stop().await;
}

/// Creates a config map for each fleet, and sets the fleet's status.
struct Maker;

impl Reconciler<Fleet> for Maker {
    type Error = anyhow::Error;

    async fn reconcile(&self, _: &Fleet, ctx: &Context<Fleet>) -> anyhow::Result<Action> {
        let metadata = ObjectMeta { name: Some(ctx.key().name().into()), ..ObjectMeta::default() };
        ctx.get_or_create_child(ConfigMap { metadata, ..ConfigMap::default() }).await?;
        ctx.set_status(FleetStatus { size: 1, note: None }).await?;
        Ok(Action::await_change())
    }
}

/// A controller in dry-run mode: all its writes are validated, and none takes effect.
#[tokio::test(start_paused = true)]
async fn a_controllers_client_can_be_wrapped() {
    let world = World::new().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let calls = seen.clone();
    let rehearsing = Controller::new(Maker).owns::<ConfigMap>().client(move |client| {
        client.dry_run().intercept(move |next| {
            calls.lock().push(next.call().to_string());
            next.send()
        })
    });
    let manager = run(world.manager().controller(rehearsing));
    world.create_fleet("a", 2).await;
    until("it has tried", || async { seen.lock().len() == 2 }).await;
    pass(10).await;
    let expected = ["create configmaps default/a", "patch fleets.test.kubewright.dev/status default/a"];
    assert_eq!(*seen.lock(), expected, "once, for nothing has changed");
    assert!(world.ship_names().await.is_empty());
    assert_eq!(world.fleets().get("a").await.expect("it exists").status, None);
    manager.stop().await;
}

/// Changes the fleet between the read and the write of a run: its spec in the first run, and then its identity.
struct Interrupted {
    fleets: Api<Fleet>,
    results: Arc<Mutex<Vec<Result<(), bool>>>>,
}

impl Reconciler<Fleet> for Interrupted {
    type Error = anyhow::Error;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> anyhow::Result<Action> {
        let run = self.results.lock().len();
        match run {
            0 => {
                let larger = Patch::Merge(json!({"spec": {"size": 2}}));
                self.fleets.patch("a", &PatchParams::default(), &larger).await?;
            }
            1 => {
                self.fleets.delete("a", &DeleteParams::default()).await?;
                self.fleets.create(&PostParams::default(), &world::fleet("a", 3)).await?;
            }
            _ => return Ok(Action::await_change()),
        }
        let written = ctx.set_status(FleetStatus { size: fleet.spec.size, note: None }).await;
        self.results.lock().push(written.map_err(|error| error.is_conflict()));
        Ok(Action::requeue_after(Duration::ZERO))
    }
}

/// Kubernetes ignores the UID in status patches of custom objects, so only the version can tell the objects apart.
#[tokio::test(start_paused = true)]
async fn a_status_survives_edits_and_never_reaches_a_recreated_object() {
    let world = World::new().await;
    let results = Arc::new(Mutex::new(Vec::new()));
    let interrupted = Interrupted { fleets: world.fleets(), results: results.clone() };
    let manager = run(world.manager().controller(Controller::new(interrupted)));
    world.create_fleet("a", 1).await;
    until("both have been written", || async { results.lock().len() == 2 }).await;
    pass(10).await;
    assert_eq!(*results.lock(), [Ok(()), Err(true)], "the object of the second write is gone");
    let fleet = world.fleets().get("a").await.expect("it exists");
    assert_eq!((fleet.spec.size, fleet.status), (3, None));
    manager.stop().await;
}
