//! The manager's cache and events for code outside of reconciles.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace},
    events::v1::Event as StoredEvent,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, PostParams},
    core::Selector,
};
use kubewright_runtime::{
    action::Action,
    cache::Cached,
    client::ClientError,
    context::Context,
    controller::{Controller, Reconciler},
    event::Event,
    manager::{ManagerError, Runnable},
    object::ObjectKey,
    predicate::{Change, ChangeType},
};
use parking_lot::Mutex;

use crate::world::{Fleet, FleetReconciler, World, controller, fleet, run, until};

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

#[tokio::test(start_paused = true)]
async fn a_runnable_reads_the_cache_and_records_events() {
    let world = World::new().await;
    let fleet = world.create_fleet("a", 2).await;
    let manager = world.manager().controller(controller(FleetReconciler::default()));
    let (fleets, ships, recorder) =
        (manager.cached::<Fleet>(), manager.cached::<ConfigMap>(), manager.recorder("audit"));
    let before = fleets.reader().expect_err("the manager doesn't run");
    assert_eq!(before.to_string(), "fleets.test.kubewright.dev: the manager doesn't run");
    let found = Arc::new(Mutex::new(None));
    let (reading, counted) = (found.clone(), fleets.clone());
    let running = run(manager.runnable(Runnable::new("audit", async move |_| {
        let fleet = counted.synced().await?.get(&key("a")).ok_or("it exists")?;
        recorder.record(&fleet.object_ref(&()), Event::normal("Audited", "all is well"));
        *reading.lock() = Some(fleet.spec.size);
        Ok(())
    })));
    until("it has read", || async { found.lock().is_some() }).await;
    assert_eq!(*found.lock(), Some(2));
    until("the ships of the controller are in the same cache", || async {
        ships.reader().is_ok_and(|ships| ships.controlled_by(&fleet.uid().expect("a UID")).len() == 2)
    })
    .await;
    running.stop().await;
    assert!(fleets.reader().is_err(), "the cache has ended with the manager");
    let events = Api::<StoredEvent>::default_namespaced(world.client.clone()).list(&Default::default()).await;
    let events = events.expect("a list").items;
    let [event] = events.as_slice() else { panic!("one event: {events:?}") };
    let regarding = event.regarding.as_ref().and_then(|object| object.uid.clone());
    assert_eq!((event.reporting_controller.as_deref(), regarding), (Some("audit"), fleet.uid()));
}

/// Maps a config map to the fleets that are named in a namespace's annotation: a mapper that reads another kind.
#[tokio::test(start_paused = true)]
async fn a_mapper_reads_other_kinds() {
    let world = World::new().await;
    world.create_fleet("a", 0).await;
    let manager = world.manager();
    let namespaces: Cached<Namespace> = manager.cached();
    let reconciler = FleetReconciler::default();
    let mapping =
        Controller::<Fleet>::new(reconciler.clone()).reads::<ConfigMap>().watches(move |map: &ConfigMap, _| {
            let namespace = map.metadata.namespace.clone().unwrap_or_default();
            let known = namespaces.reader().ok().and_then(|known| known.get(&ObjectKey::cluster(&namespace)));
            known
                .iter()
                .flat_map(|it| it.labels().get("fleet"))
                .map(|name| ObjectKey::namespaced(&namespace, name))
                .collect()
        });
    let synced = manager.cached::<Namespace>();
    let runs = || reconciler.runs.load(std::sync::atomic::Ordering::SeqCst);
    let namespaces = Api::<Namespace>::all(world.client.clone());
    let label = serde_json::json!({"metadata": {"labels": {"fleet": "a"}}});
    namespaces.patch("default", &Default::default(), &kube::api::Patch::Merge(label)).await.expect("labelled");
    let running = run(manager.controller(mapping));
    until("it has run", || async { runs() > 0 && synced.reader().is_ok() }).await;
    world.wait_for_size("a", 0).await;
    let before = runs();
    let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "m"}})).expect("a map");
    world.ships().create(&PostParams::default(), &map).await.expect("created");
    until("the map has woken the fleet", || async { runs() > before }).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn changes_are_handled_without_a_controller() {
    let world = World::new().await;
    world.create_fleet("a", 1).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = seen.clone();
    let manager = world.manager().on_change(move |change: Change<'_, Fleet>| {
        let before = change.old().map(|old| old.spec.size);
        record.lock().push((change.change_type(), change.object().spec.size, before));
        assert_ne!(change.object().spec.size, 3, "a panic of a handler");
    });
    let running = run(manager);
    let until_seen = |count: usize| {
        let seen = seen.clone();
        async move { until("it is seen", || async { seen.lock().len() == count }).await }
    };
    until_seen(1).await;
    world.resize("a", 3).await;
    until_seen(2).await;
    world.resize("a", 4).await;
    until_seen(3).await;
    world.fleets().delete("a", &Default::default()).await.expect("deleted");
    until_seen(4).await;
    running.stop().await;
    use ChangeType::{Added, Deleted, Updated};
    assert_eq!(*seen.lock(), [(Added, 1, None), (Updated, 3, Some(1)), (Updated, 4, Some(3)), (Deleted, 4, None)]);
}

#[tokio::test(start_paused = true)]
async fn indexes_and_kinds_known_at_run_time() {
    let world = World::new().await;
    world.create_fleet("a", 1).await;
    world.create_fleet("b", 2).await;
    let size = |fleet: &Fleet| vec![fleet.spec.size.to_string()];
    let manager = world.manager().index("spec.size", size);
    let dynamic = manager.cached_dynamic(&ApiResource::erase::<Fleet>(&()));
    let fleets = manager.cached::<Fleet>();
    let running = run(manager);
    let found = fleets.synced().await.expect("it runs").indexed_keys("spec.size", "2");
    assert_eq!(found, [key("b")]);
    let object = dynamic.synced().await.expect("it runs").get(&key("b")).expect("it exists");
    assert_eq!(object.data["spec"]["size"], 2);
    running.stop().await;

    let one = 1;
    let other = move |fleet: &Fleet| vec![(fleet.spec.size + one).to_string()];
    let twice = Controller::<Fleet>::new(FleetReconciler::default()).index("spec.size", other);
    let manager = world.manager().index("spec.size", size).controller(twice);
    let error = manager.run_until(std::future::pending::<()>()).await.expect_err("two functions");
    assert!(matches!(error, ManagerError::SameIndex { .. }), "{error}");
}

#[tokio::test]
async fn what_handles_declare_is_in_the_description() {
    let world = World::without_fleets();
    let manager = world.manager();
    let (_, _, _) = (manager.cached::<ConfigMap>(), manager.cached::<ConfigMap>(), manager.recorder("audit"));
    let document = manager.describe().document().expect("a document");
    let rules = document.rights.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(rules, ["get, list, watch configmaps", "create, patch events.events.k8s.io"]);
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_a_manager_that_never_runs_is_an_error() {
    let world = World::without_fleets();
    let manager = world.manager();
    let maps = manager.cached::<ConfigMap>();
    drop(manager);
    assert!(maps.synced().await.is_err());
}

#[test]
fn a_fixed_handle_reads_what_it_is_given() {
    let mut known = fleet("a", 3);
    known.metadata.namespace = Some("default".into());
    let fleets = Cached::fixed([known]);
    let fleets = fleets.reader().expect("it needs no manager");
    assert_eq!(fleets.get(&key("a")).expect("it is there").spec.size, 3);
    assert_eq!(fleets.list(None, &Selector::default()).len(), 1);
}

/// Records an event about the config map of the same name.
struct Reporter;

impl Reconciler<Fleet> for Reporter {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        if let Some(map) = ctx.live().get::<ConfigMap>(ctx.key()).await? {
            let event = Event::warning("Foreign", "it is no ship").related(fleet.object_ref(&()));
            ctx.record_about(&map.object_ref(&()), event);
        }
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_records_events_about_other_objects() {
    let world = World::new().await;
    let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}})).expect("a map");
    let map = world.ships().create(&PostParams::default(), &map).await.expect("created");
    let fleet = world.create_fleet("a", 0).await;
    let running = run(world.manager().controller(Controller::<Fleet>::new(Reporter)));
    let events = Api::<StoredEvent>::default_namespaced(world.client.clone());
    let stored = || async { events.list(&Default::default()).await.expect("a list").items };
    until("it is written", || async { stored().await.len() == 1 }).await;
    running.stop().await;
    let event = stored().await.remove(0);
    assert_eq!(event.regarding.and_then(|object| object.uid), map.uid());
    assert_eq!(event.related.and_then(|object| object.uid), fleet.uid());
    assert_eq!(event.reporting_controller.as_deref(), Some("fleet-controller"));
}
