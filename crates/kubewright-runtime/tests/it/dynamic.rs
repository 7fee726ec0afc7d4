//! Kinds known only at run time as the reconciled ones, and controllers that come and go while the manager runs.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::join_all;
use k8s_openapi::{
    api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ObjectMeta, PartialObjectMeta, Patch, PatchParams, PostParams},
    core::{GroupVersionKind, Selector},
};
use kubewright_runtime::{
    action::Action,
    client::ClientError,
    clock::SharedClock,
    context::Context,
    controller::{Controller, ControllerError, Reconciler},
    event::Event,
    leader::LeaderOptions,
    manager::{Controllers, ManagerError},
    metrics::Metrics,
    object::ObjectKey,
    trace::Traces,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::world::{FleetReconciler, World, controller, pass, run, until};

const GROUP: &str = "paint.test.dev";

/// Returns a kind by number: `Widget0` with the plural `widget0s`.
fn widgets(number: usize) -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(GROUP, "v1", &format!("Widget{number}")),
        &format!("widget{number}s"),
    )
}

fn definitions(world: &World) -> Api<CustomResourceDefinition> {
    Api::all(world.client.clone())
}

/// Defines a kind, and waits until it is served.
async fn define(world: &World, number: usize, scope: &str) {
    let ApiResource { kind, plural, .. } = widgets(number);
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": scope, "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
            }],
        },
    });
    let definition = serde_json::from_value(definition).expect("a definition");
    definitions(world).create(&PostParams::default(), &definition).await.expect("the definition is accepted");
    let all = Api::<DynamicObject>::all_with(world.client.clone(), &widgets(number));
    until("the kind is served", || async { all.list(&Default::default()).await.is_ok() }).await;
}

/// Deletes a kind without objects.
async fn undefine(world: &World, number: usize) {
    let all = Api::<DynamicObject>::all_with(world.client.clone(), &widgets(number));
    let name = format!("{}.{GROUP}", widgets(number).plural);
    definitions(world).delete(&name, &DeleteParams::default()).await.expect("deleted");
    // No controller deletes the objects here, which are gone.
    let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    definitions(world).patch(&name, &PatchParams::default(), &released).await.expect("patched");
    until("the kind is no longer served", || async { all.list(&Default::default()).await.is_err() }).await;
}

fn namespaced(world: &World, number: usize) -> Api<DynamicObject> {
    Api::default_namespaced_with(world.client.clone(), &widgets(number))
}

async fn create(api: &Api<DynamicObject>, number: usize, name: &str) {
    let object = DynamicObject::new(name, &widgets(number)).data(json!({"spec": {"colour": "red"}}));
    api.create(&PostParams::default(), &object).await.expect("the widget is accepted");
}

/// Paints widgets: each gets a child and a status.
#[derive(Clone)]
struct Painter {
    resource: ApiResource,
    painted: Arc<Mutex<BTreeSet<ObjectKey>>>,
    cleaned: Arc<Mutex<BTreeSet<ObjectKey>>>,
    /// The cached objects, as long as anything keeps them.
    seen: Arc<Mutex<Vec<Weak<DynamicObject>>>>,
}

impl Painter {
    fn of(number: usize) -> Self {
        let (painted, cleaned, seen) = Default::default();
        Self { resource: widgets(number), painted, cleaned, seen }
    }

    fn controller(&self) -> Controller<DynamicObject> {
        Controller::<DynamicObject>::new_with(self.clone(), self.resource.clone()).owns::<ConfigMap>()
    }

    async fn has_painted(&self, name: &str) {
        until(&format!("{name} is painted"), || async { self.painted.lock().iter().any(|key| key.name() == name) })
            .await;
    }
}

impl Reconciler<DynamicObject> for Painter {
    const FINALIZER: Option<&'static str> = Some("paint.test.dev/wash");

    type Error = ClientError;

    async fn reconcile(&self, widget: &DynamicObject, ctx: &Context<DynamicObject>) -> Result<Action, ClientError> {
        self.seen.lock().extend(ctx.dynamic(&self.resource).cached()?.get(ctx.key()).iter().map(Arc::downgrade));
        if ctx.key().namespace().is_some() {
            let metadata = ObjectMeta { name: Some(format!("of-{}", widget.name_any())), ..ObjectMeta::default() };
            ctx.apply_child(ConfigMap { metadata, ..ConfigMap::default() }).await?;
            ctx.workspace::<Vec<u8>>().await?;
        }
        ctx.set_dynamic_status(json!({"painted": widget.data["spec"]["colour"]})).await?;
        ctx.record(Event::normal("Painted", "it has a colour"));
        self.painted.lock().insert(ctx.key().clone());
        Ok(Action::await_change())
    }

    async fn cleanup(&self, _: &DynamicObject, ctx: &Context<DynamicObject>) -> Result<Action, ClientError> {
        self.cleaned.lock().insert(ctx.key().clone());
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_known_at_run_time_is_reconciled() {
    let world = World::new().await;
    define(&world, 0, "Namespaced").await;
    define(&world, 1, "Cluster").await;
    let (painter, sprayer) = (Painter::of(0), Painter::of(1));
    let (widgets, sprayed) = (namespaced(&world, 0), Api::all_with(world.client.clone(), &widgets(1)));
    let running = run(world.manager().controller(painter.controller()).controller(sprayer.controller()));
    create(&widgets, 0, "a").await;
    create(&sprayed, 1, "b").await;
    painter.has_painted("a").await;
    sprayer.has_painted("b").await;

    let a = widgets.get("a").await.expect("the widget");
    assert_eq!((&a.data["status"]["painted"], a.finalizers().len()), (&json!("red"), 1));
    assert_eq!(sprayed.get("b").await.expect("the widget").data["status"]["painted"], json!("red"));
    // A deleted child wakes its owner.
    let child = world.ships().get("of-a").await.expect("the child");
    assert_eq!(child.owner_references()[0].kind, "Widget0");
    world.ships().delete("of-a", &DeleteParams::default()).await.expect("deleted");
    until("the child is there again", || async { world.ships().get("of-a").await.is_ok() }).await;
    // The finalizer is removed after the cleanup.
    widgets.delete("a", &DeleteParams::default()).await.expect("deleted");
    until("the widget is gone", || async { widgets.get_opt("a").await.expect("an answer").is_none() }).await;
    assert!(painter.cleaned.lock().contains(&ObjectKey::namespaced("default", "a")));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_manager_of_some_namespaces_finds_the_scope_of_a_kind() {
    let world = World::new().await;
    define(&world, 0, "Namespaced").await;
    let (painter, sprayer) = (Painter::of(0), Painter::of(1));
    let (widgets, sprayed) = (namespaced(&world, 0), Api::all_with(world.client.clone(), &widgets(1)));
    let elsewhere = Api::namespaced_with(world.client.clone(), "kube-system", &self::widgets(0));
    create(&elsewhere, 0, "c").await;
    create(&widgets, 0, "a").await;
    let manager = world.manager().namespaces(["default", "kube-public"]).controller(painter.controller());
    let running = run(manager.controller(sprayer.controller()));
    painter.has_painted("a").await;
    // The kind appears later.
    define(&world, 1, "Cluster").await;
    create(&sprayed, 1, "b").await;
    sprayer.has_painted("b").await;
    pass(10).await;
    assert!(painter.painted.lock().iter().all(|key| key.name() != "c"), "of another namespace");
    sprayed.delete("b", &DeleteParams::default()).await.expect("deleted");
    until("the widget is gone", || async { sprayed.get_opt("b").await.expect("an answer").is_none() }).await;
    running.stop().await;
}

/// Returns the names of all series, without those of the client and the process.
fn series(metrics: &Metrics) -> BTreeSet<String> {
    let text = metrics.encode().expect("metrics");
    let names = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    let names = names.map(|(name, _)| name.to_owned());
    names.filter(|name| !name.starts_with("rest_client") && !name.starts_with("process")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_thousand_controllers_come_and_go_without_a_trace() {
    const KINDS: usize = 20;
    const ROUNDS: usize = 50;
    let world = World::new().await;
    for number in 0..KINDS {
        define(&world, number, "Namespaced").await;
        create(&namespaced(&world, number), number, &format!("w{number}")).await;
    }
    let clock: SharedClock = world.clock.clone();
    let (metrics, traces) = (Metrics::new(clock), Traces::default());
    let manager = world.manager().metrics(metrics.clone()).traces(traces.clone());
    let manager = manager.controller(controller(FleetReconciler::default()));
    let controllers = manager.controllers();
    let running = run(manager);
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let about_widgets =
        || world.faults.requests().iter().filter(|seen| seen.request.resource.starts_with("widget")).count();
    let (tasks, names) = (alive(), series(&metrics));

    let mut seen = Vec::new();
    for round in 0..ROUNDS {
        let painters = (0..KINDS).map(Painter::of).collect::<Vec<_>>();
        let added = painters.iter().map(|painter| {
            // A source that never ends holds the painter, too.
            let held = painter.clone();
            let source = painter.controller().watches_raw_source(async move |_| {
                std::future::pending::<()>().await;
                drop(held);
            });
            controllers.add(source)
        });
        join_all(added).await.into_iter().for_each(|added| drop(added.expect("added")));
        for (number, painter) in painters.iter().enumerate() {
            painter.has_painted(&format!("w{number}")).await;
            seen.append(&mut painter.seen.lock());
        }
        if round == 0 {
            assert!(alive() > tasks && series(&metrics).len() > names.len() && traces.controllers().len() == KINDS + 1);
            assert!(seen.iter().any(|seen| seen.strong_count() > 0), "the cache keeps the objects");
        }
        let names = controllers.names();
        assert_eq!(names.len(), KINDS);
        assert!(join_all(names.iter().map(|name| controllers.remove(name))).await.iter().all(|removed| *removed));
        for painter in painters {
            assert_eq!(Arc::strong_count(&painter.painted), 1, "something keeps the controller");
        }
    }
    let requests = about_widgets();
    assert!(requests >= ROUNDS * KINDS * 2, "each controller lists and watches again");
    // Longer than any watch lasts, and than events are kept for their series.
    pass(3600).await;
    assert_eq!(about_widgets(), requests, "a watch goes on");
    assert_eq!(alive(), tasks, "a task goes on");
    assert_eq!(series(&metrics).difference(&names).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(traces.controllers().len(), 1);
    assert_eq!(seen.iter().filter(|seen| seen.strong_count() > 0).count(), 0, "the cache keeps objects");
    assert!(!controllers.remove("widget0").await && controllers.names().is_empty());
    // The other controller works as before.
    world.resize("a", 2).await;
    world.wait_for_size("a", 2).await;
    running.stop().await;
}

/// Waits until the controller of `widget0s` names a failure with this text, or none.
async fn reports(controllers: &Controllers, failure: Option<&str>) {
    until(&format!("the failure is {failure:?}"), || async {
        let failures = controllers.failures("widget0").iter().map(ToString::to_string).collect::<Vec<_>>();
        match failure {
            None => failures.is_empty(),
            Some(text) => failures.len() == 1 && failures[0].contains(text),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_vanishes_is_named_and_others_are_unaffected() {
    let world = World::new().await;
    define(&world, 0, "Namespaced").await;
    let manager = world.manager().controller(controller(FleetReconciler::default()));
    let (painter, controllers) = (Painter::of(0), manager.controllers());
    let running = run(manager);
    controllers.add(painter.controller()).await.expect("added");
    create(&namespaced(&world, 0), 0, "a").await;
    painter.has_painted("a").await;
    reports(&controllers, None).await;

    namespaced(&world, 0).delete("a", &DeleteParams::default()).await.expect("deleted");
    until("it is cleaned up", || async { !painter.cleaned.lock().is_empty() }).await;
    undefine(&world, 0).await;
    reports(&controllers, Some("widget0s.paint.test.dev: ")).await;
    reports(&controllers, Some("check that its CustomResourceDefinition is installed")).await;
    world.create_fleet("f", 1).await;
    world.wait_for_size("f", 1).await;

    // The kind is reconciled again when it is back.
    define(&world, 0, "Namespaced").await;
    create(&namespaced(&world, 0), 0, "b").await;
    painter.has_painted("b").await;
    reports(&controllers, None).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_changes_its_scope_is_an_error_until_it_is_added_again() {
    let world = World::new().await;
    define(&world, 0, "Namespaced").await;
    let traces = Traces::default();
    let manager = world.manager().traces(traces.clone()).controller(controller(FleetReconciler::default()));
    let (painter, controllers) = (Painter::of(0), manager.controllers());
    let running = run(manager);
    controllers.add(painter.controller()).await.expect("added");
    create(&namespaced(&world, 0), 0, "a").await;
    painter.has_painted("a").await;
    namespaced(&world, 0).delete("a", &DeleteParams::default()).await.expect("deleted");
    until("it is cleaned up", || async { !painter.cleaned.lock().is_empty() }).await;
    undefine(&world, 0).await;
    define(&world, 0, "Cluster").await;
    create(&Api::all_with(world.client.clone(), &widgets(0)), 0, "b").await;
    let last = || traces.of("widget0", &ObjectKey::cluster("b")).last().map(ToString::to_string).unwrap_or_default();
    let expected =
        "widget0s.paint.test.dev has become cluster-scoped, but the controller widget0 was made for a namespaced kind";
    until("the object is refused", || async { last().contains(expected) }).await;
    assert_eq!(painter.painted.lock().len(), 1);
    world.create_fleet("f", 1).await;
    world.wait_for_size("f", 1).await;

    assert!(controllers.remove("widget0").await);
    controllers.add(painter.controller()).await.expect("added");
    painter.has_painted("b").await;
    running.stop().await;
}

/// Records the config maps that it finds by their colour.
#[derive(Clone, Default)]
struct Sorter(Arc<Mutex<Vec<String>>>);

impl Reconciler<ConfigMap> for Sorter {
    type Error = ClientError;

    async fn reconcile(&self, _: &ConfigMap, ctx: &Context<ConfigMap>) -> Result<Action, ClientError> {
        let red = ctx.cached::<ConfigMap>()?.indexed("colour", "red");
        *self.0.lock() = red.iter().map(|map| map.name_any()).collect();
        Ok(Action::await_change())
    }
}

/// Reads the metadata of the config maps only.
struct Counter;

impl Reconciler<PartialObjectMeta<ConfigMap>> for Counter {
    type Error = ClientError;

    async fn reconcile(
        &self,
        _: &PartialObjectMeta<ConfigMap>,
        _: &Context<PartialObjectMeta<ConfigMap>>,
    ) -> Result<Action, ClientError> {
        Ok(Action::await_change())
    }
}

fn sorting(sorter: &Sorter) -> Controller<ConfigMap> {
    let colour = |map: &ConfigMap| map.data.iter().flatten().map(|(_, value)| value.clone()).collect();
    Controller::<ConfigMap>::new(sorter.clone()).name("sorter").index("colour", colour)
}

/// A kind that is cached already is completed with the fields and indexes that a later controller declares, and the
/// objects that are there are reconciled.
#[tokio::test(start_paused = true)]
async fn a_controller_that_is_added_finds_what_was_cached_before() {
    let world = World::new().await;
    for (name, colour) in [("one", "red"), ("two", "blue"), ("three", "red")] {
        let map: Value = json!({"metadata": {"name": name}, "data": {"colour": colour}});
        let map = serde_json::from_value(map).expect("a config map");
        world.ships().create(&PostParams::default(), &map).await.expect("accepted");
    }
    let manager = world.manager().controller(Controller::new(Counter).name("counter"));
    let (controllers, maps) = (manager.controllers(), manager.cached::<PartialObjectMeta<ConfigMap>>());
    let running = run(manager);
    maps.synced().await.expect("listed");
    let sorter = Sorter::default();
    for _ in 0..2 {
        controllers.add(sorting(&sorter)).await.expect("added");
        until("it has found them", || async { *sorter.0.lock() == ["one", "three"] }).await;
        let again = controllers.add(sorting(&sorter)).await;
        assert!(matches!(again, Err(ManagerError::SameName(name)) if name == "sorter"));
        let other = sorting(&sorter).name("other").index("colour", |_: &ConfigMap| vec![]);
        assert!(matches!(controllers.add(other).await, Err(ManagerError::SameIndex { .. })));
        assert!(controllers.remove("sorter").await);
        sorter.0.lock().clear();
    }
    assert_eq!(maps.reader().expect("the kind is still cached").list(None, &Selector::default()).len(), 3);
    running.stop().await;
    assert!(matches!(controllers.add(sorting(&sorter)).await, Err(ManagerError::Ended(name)) if name == "sorter"));
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_added_waits_for_the_leadership_and_ends_alone() {
    let world = World::new().await;
    define(&world, 0, "Namespaced").await;
    create(&namespaced(&world, 0), 0, "a").await;
    let lead = |identity: &str| LeaderOptions::new("default", "paint", identity);
    let first = run(world.manager().leader_election(lead("first")));
    let manager = world.manager().leader_election(lead("second")).controller(controller(FleetReconciler::default()));
    let (elected, controllers) = (manager.elected(), manager.controllers());
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::default_namespaced(world.client.clone());
    until("the first leads", || async { leases.get("paint").await.is_ok() }).await;
    let second = run(manager);
    let painter = Painter::of(0);
    controllers.add(painter.controller()).await.expect("added");
    // One that can't list its kind ends by itself.
    let impatient = Painter::of(7).controller().cache_sync_timeout(Duration::from_secs(5)).needs_leader(false);
    let end = controllers.add(impatient).await.expect("added").wait().await.expect_err("the kind doesn't exist");
    assert!(matches!(&end, ControllerError::NotSynced { controller, .. } if controller == "widget7"), "{end}");
    assert!(end.to_string().contains("widget7s.paint.test.dev"), "{end}");
    assert!(controllers.names() == ["widget0"] && !elected.is_cancelled() && painter.painted.lock().is_empty());
    first.stop().await;
    painter.has_painted("a").await;
    world.create_fleet("f", 1).await;
    world.wait_for_size("f", 1).await;
    second.stop().await;
}
