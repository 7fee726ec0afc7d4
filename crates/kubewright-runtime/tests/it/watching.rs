//! Kinds that are watched on demand, while at least one reconcile uses them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
};
use kubewright_cluster::faults::Verb;
use kubewright_runtime::{
    action::Action,
    cache::Unsynced,
    client::ClientError,
    context::Context,
    controller::{Controller, Reconciler},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    faults::page,
    world::{Fleet, FleetReconciler, World, controller, pass, run, until},
};

/// What a run saw: the names of the objects of its kind, or the reason why there were none.
type Sight = Result<Vec<String>, Unsynced>;

/// Watches the kind in its fleet's annotation, and records what it sees. It fails while the test wants it to.
#[derive(Clone, Default)]
struct Spotter {
    sights: Arc<Mutex<BTreeMap<String, Vec<Sight>>>>,
    fails: Arc<AtomicBool>,
}

impl Reconciler<Fleet> for Spotter {
    type Error = anyhow::Error;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> anyhow::Result<Action> {
        anyhow::ensure!(!self.fails.load(Ordering::SeqCst), "a deliberate failure");
        let resource = match fleet.annotations().get("target").map(String::as_str) {
            Some("secrets") => ApiResource::erase::<Secret>(&()),
            Some("configmaps") => ApiResource::erase::<ConfigMap>(&()),
            Some("fleets") => ApiResource::erase::<Fleet>(&()),
            _ => return Ok(Action::await_change()),
        };
        let name = fleet.name_any();
        let seen = ctx.dynamic(&resource).watch(move |object| object.labels().get("for") == Some(&name));
        let names = |object: &Arc<DynamicObject>| object.name_any();
        let sight = seen.map(|objects| objects.list(None, &Default::default()).iter().map(names).collect());
        self.sights.lock().entry(fleet.name_any()).or_default().push(sight);
        Ok(Action::await_change())
    }
}

impl Spotter {
    fn sights(&self, fleet: &str) -> Vec<Sight> {
        self.sights.lock().get(fleet).cloned().unwrap_or_default()
    }

    fn last(&self, fleet: &str) -> Option<Sight> {
        self.sights(fleet).pop()
    }

    async fn sees(&self, fleet: &str, names: &[&str]) {
        let expected = Some(Ok(names.iter().map(|name| (*name).to_owned()).collect()));
        until(&format!("{fleet} sees {names:?}"), || async { self.last(fleet) == expected }).await;
    }
}

async fn aim(world: &World, fleet: &str, target: &str) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"target": target}}}));
    world.fleets().patch(fleet, &PatchParams::default(), &patch).await.expect("patched");
}

async fn create_secret(world: &World, name: &str, fleet: &str) {
    let secret = serde_json::from_value(json!({"metadata": {"name": name, "labels": {"for": fleet}}}));
    let secrets: Api<Secret> = Api::default_namespaced(world.client.clone());
    secrets.create(&PostParams::default(), &secret.expect("a secret")).await.expect("accepted");
}

/// Returns how often the manager has listed and watched a resource.
fn asked(world: &World, resource: &str) -> (usize, usize) {
    let seen = world.faults.requests();
    let count =
        |verb| seen.iter().filter(|seen| seen.request.resource == resource && seen.request.verb == verb).count();
    (count(Verb::List), count(Verb::Watch))
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_watched_as_long_as_a_reconcile_asks_for_it() {
    let world = World::new().await;
    let spotter = Spotter::default();
    let manager = run(world.manager().controller(Controller::<Fleet>::new(spotter.clone())));
    for fleet in ["a", "b"] {
        world.create_fleet(fleet, 0).await;
    }
    pass(10).await;
    assert_eq!(asked(&world, "secrets"), (0, 0), "without a watch");

    // The first list triggers the waiting keys, even if it is empty.
    for fleet in ["a", "b"] {
        aim(&world, fleet, "secrets").await;
        spotter.sees(fleet, &[]).await;
    }
    assert!(spotter.sights("a")[0].as_ref().is_err_and(|unsynced| unsynced.kind.plural == "secrets"));
    assert_eq!(asked(&world, "secrets"), (1, 1), "one watch for both");

    // A change triggers this key, and no other.
    let before = spotter.sights("b").len();
    create_secret(&world, "one", "a").await;
    spotter.sees("a", &["one"]).await;
    pass(1).await;
    assert_eq!(spotter.sights("b").len(), before);

    // A key that no longer uses the kind isn't triggered; the other one is.
    aim(&world, "a", "nothing").await;
    pass(1).await;
    let before = spotter.sights("a").len();
    create_secret(&world, "two", "a").await;
    create_secret(&world, "three", "b").await;
    spotter.sees("b", &["one", "three", "two"]).await;
    assert_eq!(spotter.sights("a").len(), before);

    // The watch ends with its last user, whose object is deleted here.
    world.fleets().delete("b", &Default::default()).await.expect("deleted");
    pass(1).await;
    let ended = asked(&world, "secrets");
    pass(3600).await;
    assert_eq!(asked(&world, "secrets"), ended);

    // The watch starts again.
    aim(&world, "a", "secrets").await;
    spotter.sees("a", &["one", "three", "two"]).await;
    assert_eq!(asked(&world, "secrets"), (ended.0 + 1, ended.1 + 1));
    manager.stop().await;
}

/// A run that fails before it could request its watches keeps them.
#[tokio::test(start_paused = true)]
async fn a_failed_run_keeps_its_watches() {
    let world = World::new().await;
    let spotter = Spotter::default();
    let manager = run(world.manager().controller(Controller::<Fleet>::new(spotter.clone())));
    world.create_fleet("a", 0).await;
    aim(&world, "a", "secrets").await;
    spotter.sees("a", &[]).await;
    spotter.fails.store(true, Ordering::SeqCst);
    world.resize("a", 1).await;
    pass(60).await;
    assert_eq!(asked(&world, "secrets").0, 1);
    spotter.fails.store(false, Ordering::SeqCst);
    // The retry would come only after minutes.
    create_secret(&world, "one", "a").await;
    tokio::time::timeout(Duration::from_secs(1), spotter.sees("a", &["one"])).await.expect("the secret wakes it");
    assert_eq!(asked(&world, "secrets").0, 1);
    manager.stop().await;
}

/// A kind that doesn't exist, or may not be read, affects only the keys that request it, and may become available
/// later.
#[tokio::test(start_paused = true)]
async fn a_requested_kind_may_be_installed_later() {
    let world = World::new().await;
    let refused = world.faults.on(Verb::READS, "secrets").always().refuse_with(403, "Forbidden", "no secrets for you");
    let spotter = Spotter::default();
    let manager = world.manager().controller(Controller::<Fleet>::new(spotter.clone()));
    let probes = manager.probes().clone();
    let manager = run(manager);
    world.create_fleet("a", 0).await;
    aim(&world, "a", "secrets").await;
    until("it is refused", || async { refused.hits() > 0 }).await;
    // A later run gets the reason.
    world.resize("a", 1).await;
    until("it knows why", || async {
        let error = spotter.last("a").and_then(Result::err).map(|unsynced| unsynced.to_string());
        error.is_some_and(|error| error.starts_with("secrets: ") && error.contains("no secrets for you"))
    })
    .await;
    assert_eq!(page(&probes, "/readyz/caches").await, "ok");
    world.faults.clear();
    spotter.sees("a", &[]).await;
    manager.stop().await;
}

/// A view of config maps without any content.
#[derive(Clone, Debug, Deserialize, Serialize, Resource)]
#[resource(inherit = "ConfigMap")]
struct Shadow {
    #[serde(with = "kubewright_runtime::view::without_annotations")]
    metadata: ObjectMeta,
}

/// Records the data of config maps, of which its controller stores only names.
#[derive(Clone, Default)]
struct Reader(Arc<Mutex<Vec<Option<Value>>>>);

impl Reconciler<Fleet> for Reader {
    type Error = ClientError;

    async fn reconcile(&self, _: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        assert_eq!(ctx.list::<Shadow>(&Default::default())?.len(), 1);
        let maps = ctx.watch::<ConfigMap>(|_| true).map(|maps| maps.get(&ctx.key().sibling("m")));
        self.0.lock().push(maps.ok().map(|map| json!(map.map(|map| map.data.clone()))));
        Ok(Action::await_change())
    }
}

/// A kind that is cached without the fields of a newly requested type is available for that type only after a new list.
#[tokio::test(start_paused = true)]
async fn a_kind_is_listed_again_for_a_type_that_reads_more() {
    let world = World::new().await;
    let map = serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"k": "v"}})).expect("a config map");
    world.ships().create(&PostParams::default(), &map).await.expect("accepted");
    let reader = Reader::default();
    let manager = run(world.manager().controller(Controller::<Fleet>::new(reader.clone()).reads::<Shadow>()));
    world.create_fleet("a", 0).await;
    until("the data is read", || async { reader.0.lock().last() == Some(&Some(json!({"k": "v"}))) }).await;
    assert_eq!(reader.0.lock()[0], None, "at first it isn't there");
    assert_eq!(asked(&world, "configmaps").0, 2);
    let patch = Patch::Merge(json!({"data": {"k": "w"}}));
    world.ships().patch("m", &PatchParams::default(), &patch).await.expect("patched");
    until("the change is read", || async { reader.0.lock().last() == Some(&Some(json!({"k": "w"}))) }).await;
    manager.stop().await;
}

/// Records whether it sees config maps, first only by name.
#[derive(Clone, Default)]
struct Curious(Arc<Mutex<Vec<bool>>>);

impl Reconciler<Fleet> for Curious {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let sees = match fleet.spec.size {
            0 => ctx.watch::<Shadow>(|_| true).is_ok(),
            _ => ctx.watch::<ConfigMap>(|_| true).is_ok(),
        };
        self.0.lock().push(sees);
        Ok(Action::await_change())
    }
}

/// A request for more fields doesn't wait for a list that hangs, but does wait for one that is only slow.
#[tokio::test(start_paused = true)]
async fn a_hanging_list_is_restarted_when_another_is_requested() {
    let world = World::new().await;
    let gate = world.faults.on(&[Verb::List], "configmaps").hold();
    let curious = Curious::default();
    let manager = run(world.manager().controller(Controller::<Fleet>::new(curious.clone())));
    world.create_fleet("a", 0).await;
    until("it is listed", || async { asked(&world, "configmaps").0 == 1 }).await;
    pass(20).await;
    assert_eq!(asked(&world, "configmaps").0, 1, "one list suffices");
    world.resize("a", 1).await;
    until("it is wanted", || async { curious.0.lock().len() == 2 }).await;
    pass(8).await;
    assert_eq!(asked(&world, "configmaps").0, 1, "it may come yet");
    // The client's own timeout is a minute and a half.
    let seen = until("it sees them", || async { curious.0.lock().last() == Some(&true) });
    tokio::time::timeout(Duration::from_secs(4), seen).await.expect("soon");
    assert_eq!(asked(&world, "configmaps"), (2, 1));
    drop(gate);
    manager.stop().await;
}

/// Watches the one secret named by its fleet's annotation, and records whether it exists.
#[derive(Clone, Default)]
struct Keen(Arc<Mutex<BTreeMap<String, Vec<bool>>>>);

impl Reconciler<Fleet> for Keen {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let Some(target) = fleet.annotations().get("target") else { return Ok(Action::await_change()) };
        if let Ok(secret) = ctx.watch_object::<Secret>(&ctx.key().sibling(target)) {
            self.0.lock().entry(fleet.name_any()).or_default().push(secret.is_some());
        }
        Ok(Action::await_change())
    }
}

/// Changes of an object trigger the keys that watch this object.
#[tokio::test(start_paused = true)]
async fn a_change_of_one_object_enqueues_the_keys_that_watch_it() {
    let world = World::new().await;
    let keen = Keen::default();
    let manager = run(world.manager().controller(Controller::<Fleet>::new(keen.clone())));
    let sights = |fleet: &str| keen.0.lock().get(fleet).cloned().unwrap_or_default();
    for (fleet, target) in [("a", "one"), ("b", "two")] {
        world.create_fleet(fleet, 0).await;
        aim(&world, fleet, target).await;
        until("it is looked for", || async { sights(fleet) == [false] }).await;
    }
    create_secret(&world, "one", "").await;
    until("it is seen", || async { sights("a") == [false, true] }).await;
    pass(5).await;
    assert_eq!(sights("b"), [false], "it is another's");

    aim(&world, "a", "two").await;
    until("the other is looked for", || async { sights("a") == [false, true, false] }).await;
    let secrets: Api<Secret> = Api::default_namespaced(world.client.clone());
    secrets.delete("one", &Default::default()).await.expect("deleted");
    pass(5).await;
    assert_eq!(sights("a").len(), 3, "it was looked at before");
    create_secret(&world, "two", "").await;
    until("both see it", || async { sights("a").last() == Some(&true) && sights("b") == [false, true] }).await;
    secrets.delete("two", &Default::default()).await.expect("deleted");
    until("both miss it", || async { sights("a").last() == Some(&false) && sights("b") == [false, true, false] }).await;
    assert_eq!(asked(&world, "secrets"), (1, 1));
    manager.stop().await;
}

/// Creates config maps until there are enough, of a kind that it watches on demand.
struct Maker;

impl Reconciler<Fleet> for Maker {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let uid = fleet.uid().unwrap_or_default();
        let Ok(maps) = ctx.watch::<ConfigMap>(|map| !map.owner_references().is_empty()) else {
            return Ok(Action::await_change());
        };
        let there = maps.controlled_by(&uid).len();
        if there < fleet.spec.size {
            let metadata = ObjectMeta { generate_name: Some("m-".into()), ..ObjectMeta::default() };
            ctx.create_child(ConfigMap { metadata, ..ConfigMap::default() }).await?;
            return Ok(Action::requeue_after(Duration::ZERO));
        }
        ctx.set_status(crate::world::FleetStatus { size: there, note: None }).await?;
        Ok(Action::await_change())
    }
}

/// The reconcile sees its own writes of a kind that no controller declared.
#[tokio::test(start_paused = true)]
async fn a_dynamically_watched_kind_shows_the_keys_own_writes() {
    let world = World::new().await;
    let _late = world.faults.on(&[Verb::Watch], "configmaps").always().delay(Duration::from_millis(700));
    let manager = run(world.manager().controller(Controller::<Fleet>::new(Maker)));
    world.create_fleet("a", 5).await;
    world.wait_for_size("a", 5).await;
    assert_eq!(world.ship_names().await.len(), 5);
    manager.stop().await;
}

/// A kind that another controller declared stays watched when the last key stops using it.
#[tokio::test(start_paused = true)]
async fn a_declared_kind_stays_when_no_one_asks_any_more() {
    let world = World::new().await;
    let spotter = Spotter::default();
    let manager = world
        .manager()
        .controller(Controller::<Fleet>::new(spotter.clone()).name("spotter"))
        .controller(controller(FleetReconciler::default()));
    let manager = run(manager);
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    aim(&world, "a", "configmaps").await;
    spotter.sees("a", &["a-0"]).await;
    aim(&world, "a", "nothing").await;
    pass(1).await;
    world.ships().delete("a-0", &Default::default()).await.expect("deleted");
    until("it is made again", || async { world.ship_names().await == ["a-0"] }).await;
    manager.stop().await;
}
