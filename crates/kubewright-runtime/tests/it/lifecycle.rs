//! Managers, caches and controllers from start to end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::Expression,
};
use kubewright_cluster::faults::Verb;
use kubewright_runtime::{
    action::Action,
    cache::{CacheOptions, KindOptions},
    client::ClientError,
    clock::Clock,
    context::Context,
    controller::{Controller, Reconciler, Relation},
    leader::LeaderOptions,
    manager::ManagerError,
    object::ObjectKey,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::world::{Fleet, FleetReconciler, FleetStatus, World, controller, fleet, pass, run, until};

/// Both controllers need config maps, which are listed and watched once.
#[tokio::test(start_paused = true)]
async fn a_kind_is_watched_once_however_many_controllers_use_it() {
    let world = World::new().await;
    let other = Controller::<ConfigMap>::new(crate::faults::Idle::default()).reads::<Secret>();
    let manager = world.manager().controller(controller(FleetReconciler::default())).controller(other);
    let uses = manager.describe().controllers.into_iter().flat_map(|controller| controller.uses);
    let uses: Vec<_> = uses.map(|used| (used.kind.to_string(), used.relation)).collect();
    let expected = [
        ("configmaps", Relation::Owns),
        ("fleets.test.kubewright.dev", Relation::For),
        ("configmaps", Relation::For),
        ("secrets", Relation::Reads),
    ];
    assert_eq!(uses, expected.map(|(kind, relation)| (kind.to_owned(), relation)));

    let manager = run(manager);
    world.create_fleet("a", 2).await;
    world.wait_for_size("a", 2).await;
    let seen = world.faults.requests();
    for resource in ["configmaps", "fleets", "secrets"] {
        let count =
            |verb| seen.iter().filter(|seen| seen.request.resource == resource && seen.request.verb == verb).count();
        assert_eq!((count(Verb::List), count(Verb::Watch)), (1, 1), "{resource}");
    }
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_controllers_of_one_name_are_refused() {
    let world = World::new().await;
    let manager = world
        .manager()
        .controller(controller(FleetReconciler::default()))
        .controller(controller(FleetReconciler::default()));
    let error = manager.run_until(std::future::pending::<()>()).await.expect_err("it is refused");
    assert!(matches!(error, ManagerError::SameName(name) if name == "fleet"));
}

/// The manager waits for a CRD that is not installed yet, and reports its name; other controllers work meanwhile.
#[tokio::test(start_paused = true)]
async fn a_kind_may_come_to_exist_later() {
    let world = World::without_fleets();
    let idle = crate::faults::Idle::default();
    let manager =
        world.manager().controller(controller(FleetReconciler::default())).controller(Controller::new(idle.clone()));
    let ready = manager.probes().clone();
    let manager = run(manager);
    pass(300).await;
    let page = crate::faults::page(&ready, "/readyz/caches").await;
    assert!(page.contains("fleets.test.kubewright.dev: ") && page.contains("CustomResourceDefinition"), "{page}");
    let other = serde_json::from_value(json!({"metadata": {"name": "other"}})).expect("a config map");
    world.ships().create(&PostParams::default(), &other).await.expect("accepted");
    until("the other controller works", || async { idle.0.load(Ordering::SeqCst) > 0 }).await;

    world.install_fleets().await;
    world.create_fleet("a", 1).await;
    tokio::time::timeout(Duration::from_secs(2), world.wait_for_size("a", 1)).await.expect("it starts within a second");
    manager.stop().await;
}

/// The watched and stored objects can be configured for each kind.
#[tokio::test(start_paused = true)]
async fn the_cache_can_be_limited_by_namespaces_and_selectors() {
    let world = World::new().await;
    let ours = Expression::Equal("fleet".into(), "ours".into());
    let maps = KindOptions::new().labels(ours.into()).namespaces(["default"]).without(["data", "secret"]);
    let options = CacheOptions::new().kind::<ConfigMap>(maps).resync(Duration::from_secs(60));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let manager = world.manager().cache(options).controller(Controller::<ConfigMap>::new(Looker(seen.clone())));
    let manager = run(manager);
    let create = |name: &str, fleet: &str, namespace: &str| {
        let map =
            json!({"metadata": {"name": name, "labels": {"fleet": fleet}}, "data": {"secret": "s", "plain": "p"}});
        let (maps, map) = (Api::<ConfigMap>::namespaced(world.client.clone(), namespace), serde_json::from_value(map));
        async move { maps.create(&PostParams::default(), &map.expect("a config map")).await.expect("accepted") }
    };
    create("b", "theirs", "default").await;
    create("c", "ours", "kube-system").await;
    create("a", "ours", "default").await;
    let data = || vec!["plain".to_owned()];
    until("the object is seen", || async { *seen.lock() == [("a".to_owned(), data())] }).await;
    pass(61).await;
    until("it is passed again", || async { seen.lock().len() >= 2 }).await;
    assert!(seen.lock().iter().all(|seen| *seen == ("a".to_owned(), data())));
    manager.stop().await;
}

/// The name of an object, and the keys of its data.
type Shown = (String, Vec<String>);

/// Records the objects that it sees, and writes to objects outside the cache.
struct Looker(Arc<Mutex<Vec<Shown>>>);

impl Reconciler<ConfigMap> for Looker {
    type Error = ClientError;

    async fn reconcile(&self, map: &ConfigMap, ctx: &Context<ConfigMap>) -> Result<Action, ClientError> {
        self.0.lock().push((map.name_any(), map.data.iter().flatten().map(|(key, _)| key.clone()).collect()));
        let patch = Patch::Merge(json!({"data": {"seen": ctx.now().to_string()}}));
        ctx.patch::<ConfigMap, _>(&ctx.key().sibling("b"), &patch).await?;
        Ok(Action::await_change())
    }
}

/// An object that doesn't match its type is left out, and the others arrive.
#[tokio::test(start_paused = true)]
async fn an_undecodable_object_does_not_hide_the_others() {
    let world = World::without_fleets();
    let mut definition = serde_json::to_value(<Fleet as kube::CustomResourceExt>::crd()).expect("json");
    definition["spec"]["versions"][0]["schema"] =
        json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let definition: CustomResourceDefinition = serde_json::from_value(definition).expect("a definition");
    definitions.create(&PostParams::default(), &definition).await.expect("accepted");
    let dynamic: Api<kube::api::DynamicObject> =
        Api::default_namespaced_with(world.client.clone(), &kube::api::ApiResource::erase::<Fleet>(&()));
    let object = |name: &str, size: serde_json::Value| {
        serde_json::from_value(json!({
            "apiVersion": "test.kubewright.dev/v1", "kind": "Fleet", "metadata": {"name": name}, "spec": {"size": size},
        }))
        .expect("an object")
    };
    until("the kind is served", || async {
        dynamic.create(&PostParams::default(), &object("bad", json!("many"))).await.is_ok()
    })
    .await;
    dynamic.create(&PostParams::default(), &object("good", json!(2))).await.expect("accepted");
    let manager = run(world.manager().controller(controller(FleetReconciler::default())));
    world.wait_for_size("good", 2).await;
    // Once it is corrected, it is treated like any other.
    let patch = Patch::Merge(json!({"spec": {"size": 1}}));
    dynamic.patch("bad", &PatchParams::default(), &patch).await.expect("patched");
    world.wait_for_size("bad", 1).await;
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_given_namespaces_are_watched() {
    let world = World::new().await;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    for name in ["one", "two", "three"] {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
        namespaces.create(&PostParams::default(), &namespace).await.expect("accepted");
        let fleets: Api<Fleet> = Api::namespaced(world.client.clone(), name);
        fleets.create(&PostParams::default(), &fleet("a", 1)).await.expect("accepted");
    }
    let manager = world.manager().namespaces(["one", "two"]).controller(controller(FleetReconciler::default()));
    let manager = run(manager);
    let size = async |namespace: &str| {
        let fleets: Api<Fleet> = Api::namespaced(world.client.clone(), namespace);
        fleets.get("a").await.expect("it exists").status.map(|status| status.size)
    };
    until("both are done", || async { size("one").await == Some(1) && size("two").await == Some(1) }).await;
    pass(60).await;
    assert_eq!(size("three").await, None);
    manager.stop().await;
}

/// Records the time of each run, and requeues the fleet at the time given by its size.
#[derive(Clone, Default)]
struct Sleeper {
    woken: Arc<Mutex<Vec<Timestamp>>>,
}

impl Reconciler<Fleet> for Sleeper {
    type Error = std::convert::Infallible;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, Self::Error> {
        self.woken.lock().push(ctx.now());
        let time = Timestamp::from_second(i64::try_from(fleet.spec.size).unwrap_or_default()).unwrap_or_default();
        Ok(if ctx.now() < time { Action::requeue_at(time) } else { Action::await_change() })
    }
}

/// The wall clock is set forward and back.
#[tokio::test(start_paused = true)]
async fn a_requeue_at_a_time_follows_the_wall_clock() {
    let world = World::new().await;
    let sleeper = Sleeper::default();
    let manager = run(world.manager().controller(Controller::new(sleeper.clone())));
    world.create_fleet("a", 10_000).await;
    pass(100).await;
    assert_eq!(sleeper.woken.lock().len(), 1);
    world.clock.jump(SignedDuration::from_secs(-3600));
    pass(9_950).await;
    assert_eq!(sleeper.woken.lock().len(), 1, "it isn't time yet");
    world.clock.jump(SignedDuration::from_secs(3600));
    pass(11).await;
    let woken = sleeper.woken.lock().clone();
    assert_eq!(woken.len(), 2);
    assert!(woken[1].as_second() >= 10_000 && world.clock.now().as_second() < 10_100);
    manager.stop().await;
}

/// Needs some time and two attempts to clean up.
#[derive(Clone, Default)]
struct Careful {
    cleaned: Arc<AtomicUsize>,
    gone: Arc<AtomicUsize>,
}

impl Reconciler<Fleet> for Careful {
    const FINALIZER: Option<&'static str> = Some("fleets.test.kubewright.dev/cleanup");
    type Error = anyhow::Error;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> anyhow::Result<Action> {
        assert!(fleet.finalizers().iter().any(|finalizer| Some(finalizer.as_str()) == Self::FINALIZER));
        ctx.set_status(FleetStatus { size: fleet.spec.size, note: None }).await?;
        Ok(Action::await_change())
    }

    async fn cleanup(&self, _: &Fleet, ctx: &Context<Fleet>) -> anyhow::Result<Action> {
        // No children are created for an owner that is being deleted.
        let refused = ctx.create_child(ConfigMap::default()).await.expect_err("it is refused");
        anyhow::ensure!(refused.to_string().contains("is being deleted"), "{refused}");
        let before = self.cleaned.fetch_add(1, Ordering::SeqCst);
        Ok(if before == 0 { Action::requeue_after(Duration::from_secs(30)) } else { Action::await_change() })
    }

    async fn deleted(&self, key: &ObjectKey, ctx: &Context<Fleet>) -> anyhow::Result<()> {
        anyhow::ensure!(key.to_string() == "default/a" && ctx.key() == key, "{key}");
        self.gone.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_holds_the_object_until_it_is_cleaned_up() {
    let world = World::new().await;
    let careful = Careful::default();
    // The first attempt to add the finalizer meets a conflict.
    let conflict = world.faults.on(&[Verb::Patch], "fleets").refuse(409, "Conflict");
    let manager = run(world.manager().controller(Controller::new(careful.clone())));
    world.create_fleet("a", 3).await;
    world.wait_for_size("a", 3).await;
    assert_eq!(conflict.hits(), 1);
    // The finalizer of another controller is kept.
    let fleets = world.fleets();
    let finalizers = json!({"metadata": {"finalizers": [Careful::FINALIZER, "example.com/other"]}});
    fleets.patch("a", &PatchParams::default(), &Patch::Merge(finalizers)).await.expect("patched");
    fleets.delete("a", &Default::default()).await.expect("deleted");
    pass(29).await;
    assert_eq!(careful.cleaned.load(Ordering::SeqCst), 1);
    until("ours is off", || async { fleets.get("a").await.expect("it is held").finalizers() == ["example.com/other"] })
        .await;
    fleets
        .patch("a", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}})))
        .await
        .expect("ok");
    until("it is gone", || async { careful.gone.load(Ordering::SeqCst) == 1 }).await;
    assert_eq!(careful.cleaned.load(Ordering::SeqCst), 2);
    manager.stop().await;
}

/// Records the number of concurrent runs, and whether they were cancelled.
#[derive(Clone, Default)]
struct Slow {
    running: Arc<Mutex<Vec<ObjectKey>>>,
    most: Arc<AtomicUsize>,
    cancelled: Arc<AtomicUsize>,
    deaf: Arc<AtomicBool>,
    finished: Arc<AtomicUsize>,
    /// The number of times that two workers ran the same key. A panic in a worker would only be retried.
    doubled: Arc<AtomicUsize>,
}

impl Reconciler<Fleet> for Slow {
    type Error = std::convert::Infallible;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, Self::Error> {
        {
            let mut running = self.running.lock();
            self.doubled.fetch_add(usize::from(running.contains(ctx.key())), Ordering::SeqCst);
            running.push(ctx.key().clone());
            self.most.fetch_max(running.len(), Ordering::SeqCst);
        }
        let work = tokio::time::sleep(Duration::from_secs(fleet.spec.size as u64));
        if self.deaf.load(Ordering::SeqCst) {
            work.await;
        } else {
            tokio::select! {
                () = work => {}
                () = ctx.cancelled().cancelled() => drop(self.cancelled.fetch_add(1, Ordering::SeqCst)),
            }
        }
        self.running.lock().retain(|key| key != ctx.key());
        self.finished.fetch_add(1, Ordering::SeqCst);
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn workers_are_bounded_and_never_two_on_a_key() {
    let wirings: [fn(Controller<Fleet>) -> Controller<Fleet>; 2] = [|it| it, |it| it.concurrency(3)];
    // The concurrency of the controller takes precedence over that of its kind.
    for (of_kind, wiring) in [3, 7].into_iter().zip(wirings) {
        three_work_at_once(of_kind, wiring).await;
    }
}

async fn three_work_at_once(of_kind: usize, wiring: fn(Controller<Fleet>) -> Controller<Fleet>) {
    let world = World::new().await;
    let slow = Slow::default();
    let manager = world.manager().group_kind_concurrency([("Fleet.test.kubewright.dev", of_kind)]);
    let manager = run(manager.controller(wiring(Controller::new(slow.clone()))));
    for number in 0..8 {
        world.create_fleet(&format!("f{number}"), 10).await;
    }
    for round in 11..15 {
        pass(4).await;
        for number in 0..8 {
            world.resize(&format!("f{number}"), round).await;
        }
    }
    until("all is quiet", || async { slow.running.lock().is_empty() && slow.finished.load(Ordering::SeqCst) >= 11 })
        .await;
    assert_eq!((slow.most.load(Ordering::SeqCst), slow.doubled.load(Ordering::SeqCst)), (3, 0));
    manager.stop().await;
}

/// Runs in progress are notified of the shutdown and waited for, and no new ones begin.
#[tokio::test(start_paused = true)]
async fn shutdown_drains_within_its_grace_period() {
    let world = World::new().await;
    for (deaf, seconds, took, finished) in [(false, 1000, 0, 1), (true, 20, 20, 1), (true, 1000, 30, 0)] {
        let slow = Slow::default();
        slow.deaf.store(deaf, Ordering::SeqCst);
        let manager = run(world.manager().controller(Controller::new(slow.clone())));
        for name in ["a", "b"] {
            world.create_fleet(name, seconds).await;
        }
        until("one is at work", || async { slow.running.lock().len() == 1 }).await;
        let start = world.clock.monotonic();
        let ended = manager.end().await;
        let waited = (world.clock.monotonic() - start).as_secs();
        assert_eq!(ended.is_ok(), finished == 1 || !deaf, "{ended:?}");
        assert!((took..=took + 1).contains(&waited), "deaf: {deaf}, {seconds} s of work: waited {waited} s");
        assert_eq!(slow.finished.load(Ordering::SeqCst), finished);
        assert_eq!(slow.cancelled.load(Ordering::SeqCst), usize::from(!deaf));
        for name in ["a", "b"] {
            world.fleets().delete(name, &Default::default()).await.expect("deleted");
        }
    }
}

/// Two replicas, one leader; a lost lease cancels the runs in progress.
#[tokio::test(start_paused = true)]
async fn only_the_leader_works_until_it_loses_the_lease() {
    let world = World::new().await;
    let slow = Slow::default();
    slow.deaf.store(true, Ordering::SeqCst);
    let options = |identity: &str| LeaderOptions::new("default", "fleets", identity);
    let first = world.manager().leader_election(options("first")).controller(Controller::new(slow.clone()));
    let first = tokio::spawn(first.run_until(std::future::pending::<()>()));
    world.create_fleet("a", 10_000).await;
    until("the first works", || async { slow.running.lock().len() == 1 }).await;

    // The second replica has its own network.
    let second = kubewright_runtime::manager::Manager::new(world.client.clone())
        .clock(world.clock.clone())
        .random(world.random.clone())
        .leader_election(options("second"))
        .controller(controller(FleetReconciler::default()));
    let second = run(second);
    pass(60).await;
    assert!(world.ship_names().await.is_empty(), "the second stands by");
    world.faults.on(Verb::WRITES, "leases").always().lose_request();
    let error = first.await.expect("it doesn't panic").expect_err("it ends in an error");
    assert!(error.to_string().contains("leadership lost"), "{error}");
    assert_eq!(slow.finished.load(Ordering::SeqCst), 0, "what was in flight is cut off");
    world.resize("a", 2).await;
    world.wait_for_size("a", 2).await;
    second.stop().await;
}

/// Attempts operations that a reconciler must not be able to do.
#[derive(Clone, Default)]
struct Greedy {
    results: Arc<Mutex<Vec<String>>>,
}

impl Reconciler<Fleet> for Greedy {
    type Error = anyhow::Error;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> anyhow::Result<Action> {
        if !self.results.lock().is_empty() {
            return Ok(Action::await_change());
        }
        let named = |name: &str, namespace: Option<&str>| -> ConfigMap {
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace}})).expect("a config map")
        };
        let mut results = Vec::new();
        for child in [named("elsewhere", Some("kube-system")), named("foreign", None)] {
            results.push(ctx.get_or_create_child(child).await.expect_err("it is refused").to_string());
        }
        // As if the answer to the first create were lost: the object exists, and is owned by this one.
        let mine = ctx.create_child(named("mine", None)).await?;
        let again = ctx.get_or_create_child(named("mine", None)).await?;
        anyhow::ensure!(again.uid() == mine.uid() && mine.uid().is_some(), "one object");
        let taken = ctx.create_child(named("mine", None)).await.expect_err("the name is taken");
        anyhow::ensure!(taken.is_already_exists(), "{taken}");
        // The object has changed since it was read, so the delete is refused unless any version is allowed.
        let changed = json!({"metadata": {"labels": {"changed": "yes"}}});
        ctx.patch::<ConfigMap, _>(&ctx.key().sibling("mine"), &Patch::Merge(changed)).await?;
        results.push(ctx.delete(&mine).await.expect_err("it is refused").is_conflict().to_string());
        ctx.delete(&mine).any_version().await?;
        ctx.delete(&mine).await?;
        anyhow::ensure!(ctx.live().get::<ConfigMap>(&ctx.key().sibling("mine")).await?.is_none(), "it is gone");
        let mut finalized = mine;
        finalized.metadata.finalizers = Some(vec!["example.com/test".into()]);
        let removed = ctx.remove_finalizer(&finalized, "example.com/test").await?;
        anyhow::ensure!(removed.is_none(), "a finalizer of an object that is gone is removed already");
        // Fields that an apply no longer contains are removed.
        let applied: ConfigMap =
            serde_json::from_value(json!({"metadata": {"name": "applied"}, "data": {"a": "1", "b": "2"}}))?;
        ctx.apply_child(applied.clone()).await?;
        let smaller = ConfigMap { data: Some([("a".into(), "1".into())].into()), ..applied };
        let applied = ctx.apply_child(smaller).force().await?;
        results.push(format!("{:?}", applied.data.unwrap_or_default().keys().collect::<Vec<_>>()));
        let owner = applied.metadata.owner_references.unwrap_or_default();
        anyhow::ensure!(owner[0].uid == fleet.uid().unwrap_or_default() && owner[0].controller == Some(true), "owned");
        *self.results.lock() = results;
        Ok(Action::await_change())
    }
}

/// Deletions with preconditions are included.
#[tokio::test(start_paused = true)]
async fn writes_refuse_objects_of_other_owners() {
    let world = World::new().await;
    let foreign = serde_json::from_value(json!({"metadata": {"name": "foreign"}})).expect("a config map");
    world.ships().create(&PostParams::default(), &foreign).await.expect("accepted");
    let greedy = Greedy::default();
    let manager = run(world.manager().controller(Controller::new(greedy.clone()).owns::<ConfigMap>()));
    world.create_fleet("a", 0).await;
    until("it has tried", || async { !greedy.results.lock().is_empty() }).await;
    let results = greedy.results.lock().clone();
    assert!(results[0].contains("different namespaces"), "{}", results[0]);
    assert_eq!(results[1], "configmaps default/foreign already exists and is controlled by no controller");
    assert_eq!(results[2..], ["true", "[\"a\"]"]);
    manager.stop().await;
}

/// The whole status is replaced: fields that the new one lacks are removed, and a wiped status is rebuilt.
#[tokio::test(start_paused = true)]
async fn a_status_is_replaced_as_a_whole_and_rebuilt_when_wiped() {
    let world = World::new().await;
    world.create_fleet("a", 1).await;
    let fleets = world.fleets();
    let set = async |status: serde_json::Value| {
        let patch = Patch::Merge(json!({"status": status}));
        fleets.patch_status("a", &PatchParams::default(), &patch).await.expect("patched");
    };
    set(json!({"size": 9, "note": "old"})).await;
    let manager = run(world.manager().controller(controller(FleetReconciler::default())));
    let is_right =
        || async { fleets.get("a").await.expect("it exists").status == Some(FleetStatus { size: 1, note: None }) };
    until("the note is gone", is_right).await;
    set(serde_json::Value::Null).await;
    until("it is rebuilt", is_right).await;
    assert_eq!(world.ship_names().await, ["a-0"]);
    manager.stop().await;
}
