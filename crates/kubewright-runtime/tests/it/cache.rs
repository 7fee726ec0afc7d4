//! The objects that the cache watches and stores, as determined by its options and the controllers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::Expression,
};
use kubewright_cluster::faults::Verb;
use kubewright_runtime::{
    action::Action,
    cache::{CacheOptions, KindOptions, NamespaceOptions},
    client::ClientError,
    context::{Context, DeclaredContext},
    controller::{Controller, Reconciler, Relation},
    manager::ManagerError,
    predicate::Predicate,
    reads,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::world::{Fleet, World, run, until};

fn maps() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}

/// Creates a config map with a color label.
async fn create(world: &World, namespace: &str, name: &str, color: &str, owner: Option<&Fleet>) {
    let owners = owner.and_then(|owner| owner.controller_owner_ref(&())).into_iter().collect::<Vec<_>>();
    let map = json!({
        "metadata": {"name": name, "labels": {"color": color}, "ownerReferences": owners},
        "data": {"color": color, "secret": "s"},
    });
    let map = serde_json::from_value(map).expect("a config map");
    let maps = Api::<ConfigMap>::namespaced(world.client.clone(), namespace);
    maps.create(&PostParams::default(), &map).await.expect("accepted");
}

/// Records the data of all config maps that it sees, by key.
#[derive(Clone, Default)]
struct Looker(Arc<Mutex<BTreeMap<String, Value>>>);

impl Reconciler<ConfigMap> for Looker {
    type Error = ClientError;

    async fn reconcile(&self, map: &ConfigMap, ctx: &Context<ConfigMap>) -> Result<Action, ClientError> {
        self.0.lock().insert(ctx.key().to_string(), json!(map.data));
        Ok(Action::await_change())
    }
}

/// The equivalent of `cache.ByObject`, with selectors by namespace and a transform for each.
#[tokio::test(start_paused = true)]
async fn each_namespace_can_have_its_own_selectors_and_transform() {
    let world = World::new().await;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    for name in ["one", "two", "three"] {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
        namespaces.create(&PostParams::default(), &namespace).await.expect("accepted");
        for color in ["red", "blue"] {
            create(&world, name, color, color, None).await;
        }
    }
    let color = |color: &str| Expression::Equal("color".into(), color.into()).into();
    let blinded = |object: &mut DynamicObject| object.data["data"]["secret"] = "***".into();
    let maps = KindOptions::new().labels(color("red")).namespaces(["one"]).namespace(
        "two",
        NamespaceOptions::new().labels(color("blue")).fields("metadata.name=blue").transform(blinded),
    );
    let options = CacheOptions::new()
        .kind::<ConfigMap>(maps)
        .transform(|object| drop(object.data["data"].as_object_mut().map(|data| data.remove("secret"))));
    let looker = Looker::default();
    let manager = run(world.manager().cache(options).controller(Controller::<ConfigMap>::new(looker.clone())));
    let expected = BTreeMap::from([
        ("one/red".to_owned(), json!({"color": "red"})),
        ("two/blue".to_owned(), json!({"color": "blue", "secret": "***"})),
    ]);
    until("all are seen", || async { *looker.0.lock() == expected }).await;
    // Objects that no longer match disappear, objects that begin to match appear, and the others stay as they are.
    let maps = Api::<ConfigMap>::namespaced(world.client.clone(), "one");
    let repaint = Patch::Merge(json!({"metadata": {"labels": {"color": "red"}}, "data": {"color": "painted"}}));
    maps.patch("blue", &PatchParams::default(), &repaint).await.expect("accepted");
    until("the new one is seen", || async { looker.0.lock().contains_key("one/blue") }).await;
    assert_eq!(looker.0.lock().get("one/blue"), Some(&json!({"color": "painted"})));
    assert_eq!(looker.0.lock().len(), 3);
    manager.stop().await;
}

/// Records its children, and all red config maps, of a kind that it knows only by name.
#[derive(Clone, Default)]
struct ByName(Arc<Mutex<(Vec<String>, Vec<String>)>>);

impl Reconciler<Fleet> for ByName {
    type Error = ClientError;

    async fn reconcile(&self, _: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let names = |maps: Vec<Arc<DynamicObject>>| maps.iter().map(|map| map.name_any()).collect();
        let red = ctx.dynamic(&maps()).cached()?.indexed("color", "red");
        *self.0.lock() = (names(ctx.dynamic(&maps()).children()?), names(red));
        Ok(Action::await_change())
    }
}

/// Options, an index and children of a kind that is known only at run time.
#[tokio::test(start_paused = true)]
async fn a_kind_known_by_name_has_options_an_index_and_owners() {
    let world = World::new().await;
    let fleet = world.create_fleet("a", 0).await;
    let options = CacheOptions::new()
        .kind_dynamic(&maps(), KindOptions::new().namespaces(["default"]).without(["data", "secret"]));
    let color = |map: &DynamicObject| {
        assert_eq!(map.data["data"].get("secret"), None);
        map.data["data"]["color"].as_str().map(Into::into).into_iter().collect()
    };
    let captain = ByName::default();
    let controller =
        Controller::<Fleet>::new(captain.clone()).dynamic(&maps(), |kind| kind.owns().index("color", color));
    let manager = run(world.manager().cache(options).controller(controller));
    create(&world, "kube-system", "elsewhere", "red", None).await;
    create(&world, "default", "stranger", "red", None).await;
    create(&world, "default", "child", "blue", Some(&fleet)).await;
    let expected = |children: &[&str], red: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        (names(children), names(red))
    };
    until("the child wakes it", || async { *captain.0.lock() == expected(&["child"], &["stranger"]) }).await;
    world.ships().delete("child", &Default::default()).await.expect("deleted");
    until("so does its end", || async { *captain.0.lock() == expected(&[], &["stranger"]) }).await;
    let seen = world.faults.requests().into_iter().filter(|seen| seen.request.resource == "configmaps");
    assert_eq!(seen.filter(|seen| seen.request.verb == Verb::List).count(), 1);
    manager.stop().await;
}

fn by_color(map: &ConfigMap) -> Vec<String> {
    map.labels().get("color").cloned().into_iter().collect()
}

/// Two different indexes can't share a name; two controllers may declare the same index.
#[tokio::test(start_paused = true)]
async fn two_indexes_of_one_name_are_refused() {
    let world = World::new().await;
    let looker = |name: &str| Controller::<ConfigMap>::new(Looker::default()).name(name);
    let manager = world.manager().controller(looker("one").index("color", by_color));
    let same = manager.controller(looker("two").index("color", by_color).index("other", |_: &ConfigMap| Vec::new()));
    run(same).stop().await;
    let manager = world.manager().controller(looker("one").index("color", by_color));
    let other = manager.controller(looker("two").dynamic(&maps(), |kind| kind.index("color", |_| Vec::new())));
    let error = other.run_until(std::future::pending::<()>()).await.expect_err("it is refused");
    assert!(matches!(&error, ManagerError::SameIndex { first, second, .. } if first == "one" && second == "two"));
    assert!(error.to_string().contains("\"color\" of configmaps"), "{error}");
}

/// A resync of many objects is split into parts, so that events and other tasks are processed in between.
#[tokio::test(start_paused = true)]
async fn a_resync_lets_others_in() {
    let world = World::new().await;
    for number in 0..250 {
        create(&world, "default", &format!("m{number:03}"), "red", None).await;
    }
    let (count, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counted, ring) = (count.clone(), begun.clone());
    let retold = Predicate::<ConfigMap>::new(move |change| {
        if change.old().is_some() && counted.fetch_add(1, Ordering::SeqCst) == 0 {
            ring.notify_one();
        }
        true
    });
    let options = CacheOptions::new().resync(Duration::from_secs(60));
    let controller = Controller::new(Looker::default()).predicate(retold);
    let manager = run(world.manager().cache(options).controller(controller));
    begun.notified().await;
    let first = count.load(Ordering::SeqCst);
    assert!((1..=100).contains(&first), "{first} of them before anything else");
    until("all are handled", || async { count.load(Ordering::SeqCst) == 250 }).await;
    manager.stop().await;
}

/// Reads types that its controller doesn't declare, and records the errors.
#[derive(Clone, Default)]
struct Undeclared(Arc<Mutex<Vec<String>>>);

impl Reconciler<Fleet> for Undeclared {
    type Error = ClientError;

    async fn reconcile(&self, _: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let errors = [
            ctx.children::<Namespace>().map(drop),
            ctx.get::<Namespace>(ctx.key()).map(drop),
            ctx.list::<Namespace>(&Default::default()).map(drop),
            ctx.cached::<Namespace>().map(drop),
            ctx.dynamic(&maps()).children().map(drop),
        ];
        let errors = errors.map(|read| read.expect_err("it isn't declared").to_string());
        *self.0.lock() = errors.into();
        ctx.children::<ConfigMap>().map(|_| Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_of_an_undeclared_type_is_an_error_that_names_it() {
    let world = World::new().await;
    let undeclared = Undeclared::default();
    let manager = world.manager();
    let readyz = manager.probes().readyz.clone();
    let manager = run(manager.controller(Controller::new(undeclared.clone()).owns::<ConfigMap>()));
    until("the check passes", || async { readyz.run("declarations").await == Some(Ok(())) }).await;
    world.create_fleet("a", 0).await;
    until("it has read", || async { !undeclared.0.lock().is_empty() }).await;
    let check = readyz.run("declarations").await.expect("there is a check").expect_err("a rollout stops here");
    assert!(check.contains("controller fleet doesn't declare Namespace"), "{check}");
    assert!(check.contains("DynamicObject"), "{check}");
    manager.stop().await;
    let errors = undeclared.0.lock().clone();
    let (typed, dynamic) = errors.split_at(4);
    let expected = "controller fleet doesn't declare Namespace as k8s_openapi::";
    assert!(typed.iter().all(|error| error.starts_with(expected)), "{typed:?}");
    assert!(dynamic[0].contains("doesn't declare ConfigMap as kube_core::dynamic::DynamicObject"), "{dynamic:?}");
}

reads! {
    enum OwnReads: ConfigMap;
}

/// Reads what its context lists. Its controller declares nothing else.
#[derive(Clone, Default)]
struct Listed(Arc<Mutex<Vec<String>>>);

impl Reconciler<Fleet, DeclaredContext<Fleet, OwnReads>> for Listed {
    type Error = ClientError;

    async fn reconcile(&self, _: &Fleet, ctx: &DeclaredContext<Fleet, OwnReads>) -> Result<Action, ClientError> {
        let here = ctx.list::<ConfigMap>(&Default::default())?;
        let lost = ctx.get::<ConfigMap>(&ctx.key().sibling("lost"))?;
        let all = ctx.cached::<ConfigMap>()?.len();
        let children = ctx.children::<ConfigMap>()?;
        *self.0.lock() =
            vec![format!("{} here, {all} in all, {} of ours, {}", here.len(), children.len(), lost.is_some())];
        // Through the plain context, as helpers have it, the check is at run time.
        let plain: &Context<Fleet> = ctx;
        self.0.lock().extend(plain.get::<Namespace>(ctx.key()).err().map(|error| error.to_string()));
        Ok(Action::await_change())
    }
}

/// The list of a reconciler's context declares the types to the cache and to the role.
#[tokio::test(start_paused = true)]
async fn types_that_a_context_lists_are_declared_by_it() {
    let world = World::new().await;
    let fleet = world.create_fleet("a", 0).await;
    create(&world, "default", "one", "red", Some(&fleet)).await;
    create(&world, "default", "two", "red", None).await;
    let listed = Listed::default();
    let manager = world.manager().controller(Controller::new(listed.clone()));
    let uses = &manager.describe().controllers[0].uses;
    let reads = uses.iter().filter(|of| of.relation == Relation::Reads).map(|of| of.kind.to_string());
    assert_eq!(reads.collect::<Vec<_>>(), ["configmaps"]);
    let manager = run(manager);
    until("it has read", || async { !listed.0.lock().is_empty() }).await;
    manager.stop().await;
    let read = listed.0.lock().clone();
    assert_eq!(read[0], "2 here, 2 in all, 1 of ours, false");
    assert!(read[1].contains("doesn't declare Namespace"), "{read:?}");
}

/// The first list comes as the beginning of the watch, and so does the one after a watch that expires.
#[tokio::test(start_paused = true)]
async fn lists_can_be_streamed() {
    let world = World::new().await;
    for name in ["a", "b"] {
        world.create_fleet(name, 0).await;
    }
    let manager = world.manager().cache(CacheOptions::new().streamed_lists(true));
    let fleets = manager.cached::<Fleet>();
    let running = run(manager);
    let reader = fleets.synced().await.expect("it runs");
    assert_eq!(reader.len(), 2);
    world.create_fleet("c", 0).await;
    world.fleets().delete("a", &Default::default()).await.expect("deleted");
    until("the changes arrive", || async {
        let names = reader.keys(None, &Default::default());
        names.iter().map(|key| key.name()).collect::<Vec<_>>() == ["b", "c"]
    })
    .await;
    running.stop().await;
    let requests = world.faults.requests();
    let of =
        |verb| requests.iter().filter(|seen| seen.request.resource == "fleets" && seen.request.verb == verb).count();
    assert_eq!((of(Verb::List), of(Verb::Watch)), (0, 1));
}
