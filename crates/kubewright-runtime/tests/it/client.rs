//! The client: its requests and wrappers, and the guarantee that a reconcile sees all earlier writes of its key,
//! however they were made.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v1::Scale,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, PartialObjectMeta, Patch, ValidationDirective,
    },
    core::{PartialObjectMetaExt, Selector, Status},
};
use kubewright_cluster::faults::Verb as RequestVerb;
use kubewright_runtime::{
    action::Action,
    client::{Client, ClientError, OperationResult},
    context::Context,
    controller::{Controller, Reconciler},
    object::ObjectKey,
    rbac::Verb,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::world::{Fleet, FleetSpec, FleetStatus, World, pass, run, until};

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

fn map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta {
        namespace: Some("default".into()),
        name: Some(name.into()),
        labels: Some([("test".into(), "yes".into())].into()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn config_maps() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}

fn code<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> u16 {
    answer.expect_err("it is refused").status().expect("the API server answered").code
}

fn labelled() -> ListParams {
    ListParams::default().labels("test=yes")
}

#[tokio::test(start_paused = true)]
async fn every_verb_for_every_sort_of_kind() {
    let world = World::new().await;
    let client = Client::new(world.client.clone()).field_owner("test");
    let (typed, dynamic) = (client.kind::<ConfigMap>(), client.dynamic(&config_maps()));
    let metadata = client.metadata::<ConfigMap>();

    let created = typed.create(&map("a")).await.expect("created");
    assert_eq!(code(typed.create(&map("a")).await), 409);
    assert!(created.managed_fields().is_empty(), "writes return none");
    let read = typed.get(&key("a")).await.expect("an answer").expect("it exists");
    assert_eq!(read.managed_fields()[0].manager.as_deref(), Some("test"));
    assert_eq!(read.resource_version(), created.resource_version());
    let mut same = dynamic.get(&key("a")).await.expect("an answer").expect("it exists");
    assert_eq!(same.uid(), created.uid());
    same.data["data"] = json!({"x": "1"});
    dynamic.update(&same).await.expect("updated");
    assert_eq!(code(dynamic.update(&same).await), 409, "it has changed since it was read");

    let json: json_patch::Patch =
        serde_json::from_value(json!([{"op": "add", "path": "/data/y", "value": "2"}])).expect("a patch");
    typed.patch::<()>(&key("a"), &Patch::Json(json)).await.expect("patched");
    typed.patch(&key("a"), &Patch::Strategic(json!({"data": {"z": "3"}}))).await.expect("patched");
    let applied = map("a").metadata.into_request_partial::<ConfigMap>();
    let labels = PartialObjectMeta {
        metadata: ObjectMeta { labels: Some([("by".into(), "apply".into())].into()), ..applied.metadata },
        ..applied
    };
    let answer = metadata.apply(&labels).await.expect("applied");
    assert_eq!(answer.labels().get("by").map(String::as_str), Some("apply"));
    let full = typed.get(&key("a")).await.expect("an answer").expect("it exists");
    assert_eq!(full.data.expect("data").into_keys().collect::<Vec<_>>(), ["x", "y", "z"], "apply left the data alone");
    let refused = metadata.update(&answer).await.expect_err("it would wipe the rest").to_string();
    assert_eq!(refused, "can't update configmaps default/a with a metadata-only client: patch or apply it");

    for number in 0..7 {
        let generated = ObjectMeta { name: None, generate_name: Some(format!("b{number}-")), ..map("").metadata };
        typed.create(&ConfigMap { metadata: generated, ..ConfigMap::default() }).await.expect("created");
    }
    let page = typed.list_page(&labelled().limit(3)).await.expect("a page");
    let token = page.metadata.continue_.expect("there is more");
    let next = typed.list_page(&labelled().limit(3).continue_token(&token)).await.expect("a page");
    assert_eq!((page.items.len(), next.items.len()), (3, 3));
    assert_eq!(metadata.list(&labelled().limit(3)).await.expect("a list").len(), 8);
    let one = dynamic.list(&ListParams::default().fields("metadata.name=a")).await.expect("a list");
    assert_eq!(one.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a"]);

    typed.delete(&key("a")).only(&created).await.expect_err("it is another version");
    typed.delete(&key("a")).only(&created).any_version().await.expect("deleted");
    typed.delete(&key("a")).await.expect("it is gone, which is no error");
    let unbound = typed.delete_collection(&DeleteParams::default(), &labelled()).await;
    assert!(matches!(unbound, Err(ClientError::NoNamespace { .. })), "{unbound:?}");
    let bound = client.clone().namespace("default").metadata::<ConfigMap>();
    bound.delete_collection(&DeleteParams::default(), &labelled()).await.expect("deleted");
    assert_eq!(typed.list(&labelled()).await.expect("a list"), []);
}

#[tokio::test(start_paused = true)]
async fn subresources_have_their_own_paths() {
    let world = World::new().await;
    let client = Client::new(world.client.clone()).field_owner("test").namespace("default");
    let pod = json!({"containers": [{"name": "c", "image": "busybox"}]});
    let web: Deployment = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod},
    }}))
    .expect("a deployment");
    client.kind::<Deployment>().create(&web).await.expect("created");
    let (deployments, web) = (client.kind::<Deployment>(), ObjectKey::cluster("web"));
    let scale = deployments.subresource("scale");
    let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let answer: Scale = scale.patch(&web, &patch).await.expect("scaled");
    assert_eq!(answer.spec.and_then(|spec| spec.replicas), Some(3));
    let mut now: Scale = scale.get(&web).await.expect("an answer").expect("it exists");
    now.spec.get_or_insert_default().replicas = Some(5);
    scale.update(&web, &now).await.expect("scaled");
    assert_eq!(code(scale.update(&web, &now).await), 409, "it has changed since it was read");
    let deployment = deployments.get(&web).await.expect("an answer").expect("it exists");
    assert_eq!(deployment.spec.and_then(|spec| spec.replicas), Some(5));
    assert!(scale.get::<Scale>(&ObjectKey::cluster("none")).await.expect("an answer").is_none());

    let pods = client.kind::<Pod>();
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": pod})).expect("a pod");
    pods.create(&pod).await.expect("created");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let evict = pods.subresource("eviction");
    evict.create::<Status>(&ObjectKey::cluster("p"), &eviction).await.expect("evicted");
    let left = pods.get(&ObjectKey::cluster("p")).await.expect("an answer");
    assert!(left.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()));

    let fleets = client.kind::<Fleet>();
    let fleet = fleets.create(&Fleet::new("a", FleetSpec { size: 1 })).await.expect("created");
    let changed = Fleet { status: Some(FleetStatus { size: 7, note: None }), ..fleet };
    fleets.status().update(&ObjectKey::cluster("a"), &changed).await.expect("written");
    let status = json!({"apiVersion": "test.kubewright.dev/v1", "kind": "Fleet", "status": {"note": "applied"}});
    let applied: Fleet = fleets.status().apply(&ObjectKey::cluster("a"), &status, false).await.expect("applied");
    assert_eq!(applied.status, Some(FleetStatus { size: 7, note: Some("applied".into()) }));
}

#[tokio::test(start_paused = true)]
async fn wrappers_change_how_requests_are_sent() {
    let world = World::new().await;
    let client = Client::new(world.client.clone()).field_owner("test");
    // A dry run writes nothing, with any verb.
    let dry = client.clone().dry_run().namespace("default").kind::<ConfigMap>();
    client.kind::<ConfigMap>().create(&map("a")).await.expect("created");
    assert!(dry.create(&map("b")).await.expect("it would be created").uid().is_some());
    dry.patch(&key("a"), &Patch::Merge(json!({"data": {"x": "1"}}))).await.expect("it would be patched");
    dry.apply(&map("a")).force().await.expect("it would be applied");
    dry.delete(&key("a")).await.expect("it would be deleted");
    dry.delete_collection(&DeleteParams::default(), &labelled()).await.expect("they would be deleted");
    let left = client.kind::<ConfigMap>().list(&labelled()).await.expect("a list");
    assert_eq!(left.iter().map(|map| (map.name_any(), map.data.clone())).collect::<Vec<_>>(), [("a".into(), None)]);

    // Fields that are unknown to the kind.
    let odd = DynamicObject::new("odd", &config_maps()).within("default").data(json!({"dta": {}}));
    let strict = client.clone().field_validation(ValidationDirective::Strict);
    let refused = strict.dynamic(&config_maps()).create(&odd).await.expect_err("it is refused").to_string();
    assert!(refused.contains("unknown field") && refused.contains("dta"), "{refused}");
    let ignoring = client.clone().field_validation(ValidationDirective::Ignore);
    let stored = ignoring.dynamic(&config_maps()).create(&odd).await.expect("the field is dropped");
    assert_eq!(stored.data.get("dta"), None);
    let refused = strict.dynamic(&config_maps()).apply(&odd).await.expect_err("it is refused").to_string();
    assert!(refused.contains("dta"), "{refused}");

    // A client restricted to one namespace.
    let bound = client.clone().namespace("kube-system");
    let refused = bound.kind::<ConfigMap>().get(&key("a")).await.expect_err("it is refused").to_string();
    assert_eq!(
        refused,
        "configmaps default/a is in another namespace: the client is limited to the namespace kube-system"
    );
    assert_eq!(bound.kind::<ConfigMap>().list(&labelled()).await.expect("a list"), []);
    let map = ConfigMap { metadata: ObjectMeta { namespace: None, ..map("c").metadata }, ..ConfigMap::default() };
    let created = bound.kind::<ConfigMap>().create(&map).await.expect("created");
    assert_eq!(created.namespace().as_deref(), Some("kube-system"));
    let refused = client.kind::<ConfigMap>().create(&map).await.expect_err("it is refused").to_string();
    assert!(refused.starts_with("configmaps c has no namespace"), "{refused}");

    // An apply requires a field manager.
    let refused = Client::new(world.client.clone()).kind::<ConfigMap>().apply(&created).await;
    assert!(refused.expect_err("it is refused").to_string().contains("fieldManager"));
}

#[tokio::test(start_paused = true)]
async fn interceptors_can_inspect_send_and_answer_requests() {
    let world = World::new().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (outer, inner) = (seen.clone(), seen.clone());
    let client = Client::new(world.client.clone())
        .intercept(move |next| {
            inner.lock().push(format!("inner {}", next.call()));
            async move { if next.call().name() == Some("b") { next.answer(&map("fake")) } else { next.send().await } }
        })
        .intercept(move |next| {
            outer.lock().push(next.call().to_string());
            async move {
                if next.call().verb() == Verb::Delete {
                    return next.refuse(403, "Forbidden", "nothing is deleted today");
                }
                next.send().await
            }
        });
    let maps = client.kind::<ConfigMap>();
    maps.create(&map("a")).await.expect("created");
    assert_eq!(maps.get(&key("b")).await.expect("an answer").map(|map| map.name_any()).as_deref(), Some("fake"));
    let error = maps.delete(&key("a")).await.expect_err("it is refused");
    assert!(error.is_forbidden());
    assert_eq!(error.to_string(), "delete configmaps default/a: nothing is deleted today");
    let expected = [
        "create configmaps default/a",
        "inner create configmaps default/a",
        "get configmaps default/b",
        "inner get configmaps default/b",
        "delete configmaps default/a",
    ];
    assert_eq!(*seen.lock(), expected);
}

/// A list that takes so long that its continue token expires.
#[tokio::test(start_paused = true)]
async fn an_expired_paged_list_restarts_without_pages() {
    let world = World::new().await;
    let pages = Arc::new(AtomicUsize::new(0));
    let counted = pages.clone();
    let client = Client::new(world.client.clone()).intercept(move |next| {
        let page = counted.fetch_add(usize::from(next.call().verb() == Verb::List), Ordering::SeqCst);
        async move { if page == 1 { next.refuse(410, "Expired", "too old") } else { next.send().await } }
    });
    let maps = client.kind::<ConfigMap>();
    for number in 0..7 {
        maps.create(&map(&format!("m{number}"))).await.expect("created");
    }
    assert_eq!(maps.list(&labelled().limit(3)).await.expect("a list").len(), 7);
    assert_eq!(pages.load(Ordering::SeqCst), 3, "a page, one that was refused, all");
}

#[tokio::test(start_paused = true)]
async fn create_or_update_and_create_or_patch_write_what_differs() {
    let world = World::new().await;
    let writes = Arc::new(Mutex::new(Vec::new()));
    let seen = writes.clone();
    let client = Client::new(world.client.clone()).field_owner("test").intercept(move |next| {
        if next.call().is_write() {
            seen.lock().push((next.call().to_string(), String::from_utf8_lossy(next.body()).into_owned()));
        }
        next.send()
    });
    let maps = client.kind::<ConfigMap>();
    let set = |value: &'static str| {
        move |map: &mut ConfigMap| drop(map.data.get_or_insert_default().insert("x".into(), value.into()))
    };
    let done = async |answer: Result<(OperationResult, ConfigMap), ClientError>| {
        let (done, map) = answer.expect("an answer");
        (done, map.data.unwrap_or_default()["x"].clone())
    };
    use OperationResult::{Created, Unchanged, Updated};
    assert_eq!(done(maps.create_or_update(map("a"), set("1")).await).await, (Created, "1".into()));
    assert_eq!(done(maps.create_or_update(map("a"), set("1")).await).await, (Unchanged, "1".into()));
    assert_eq!(done(maps.create_or_update(map("a"), set("2")).await).await, (Updated, "2".into()));
    assert_eq!(done(maps.create_or_patch(map("a"), set("2")).await).await, (Unchanged, "2".into()));
    assert_eq!(done(maps.create_or_patch(map("a"), set("3")).await).await, (Updated, "3".into()));
    assert_eq!(done(maps.create_or_patch(map("b"), set("3")).await).await, (Created, "3".into()));
    let patch = writes.lock()[2].1.clone();
    let uid = maps.get(&key("a")).await.expect("an answer").and_then(|map| map.uid());
    let expected = json!({"data": {"x": "3"}, "metadata": {"uid": uid}});
    assert_eq!(serde_json::from_str::<serde_json::Value>(&patch).expect("json"), expected, "only what differs");
    let verbs: Vec<_> = writes.lock().iter().map(|(call, _)| call.clone()).collect();
    let verbs: Vec<_> = verbs.iter().filter_map(|call| call.split(' ').next()).collect();
    assert_eq!(verbs, ["create", "update", "patch", "create"]);

    let rename = |map: &mut ConfigMap| map.metadata.name = Some("z".into());
    let refused = maps.create_or_update(map("a"), rename).await;
    assert!(matches!(refused, Err(ClientError::Renamed { .. })), "{refused:?}");

    // A status that is a subresource is written through the subresource.
    let fleets = client.kind::<Fleet>();
    let fleet = || Fleet::new("f", FleetSpec { size: 1 });
    let mut placed = fleet();
    placed.metadata.namespace = Some("default".into());
    fleets.create(&placed).await.expect("created");
    let (_, created) = fleets
        .create_or_patch(placed, |fleet| {
            fleet.spec.size = 2;
            fleet.status = Some(FleetStatus { size: 1, note: None });
        })
        .await
        .expect("patched");
    assert_eq!((created.spec.size, created.status.map(|status| status.size)), (2, Some(1)));
}

/// The ways to write, each with the state that the next run must see.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Dynamic,
    Metadata,
    Update,
    Upsert,
    UpsertByPatch,
    Finalizer,
    DeleteCollection,
    Subresource,
    Wrapped,
    DryRun,
}

/// Writes in its first run, and reads in its second.
struct Writer {
    way: Way,
    first: Mutex<Option<Duration>>,
    /// Whether the second run saw the write, and the time between the runs.
    second: Arc<Mutex<Option<(bool, Duration)>>>,
}

impl Reconciler<Fleet> for Writer {
    type Error = anyhow::Error;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> anyhow::Result<Action> {
        let first = *self.first.lock();
        match first {
            None => {
                self.write(ctx).await?;
                *self.first.lock() = Some(ctx.monotonic());
                Ok(Action::requeue_after(Duration::ZERO))
            }
            Some(time) => {
                self.second.lock().get_or_insert((self.is_seen(fleet, ctx)?, ctx.monotonic() - time));
                Ok(Action::await_change())
            }
        }
    }
}

impl Writer {
    async fn write(&self, ctx: &Context<Fleet>) -> anyhow::Result<()> {
        let client = ctx.client();
        let made =
            || ConfigMap { metadata: ObjectMeta { name: Some("made".into()), ..ObjectMeta::default() }, ..map("") };
        let say = |map: &mut ConfigMap| map.data = Some([("mark".into(), "yes".into())].into());
        let there = ctx.get::<ConfigMap>(&key("there"))?.ok_or_else(|| anyhow::anyhow!("it is cached"))?;
        match self.way {
            Way::Dynamic => drop(client.dynamic(&config_maps()).create(&made_dynamic()).await?),
            Way::Metadata => {
                let patch = Patch::Merge(json!({"metadata": {"annotations": {"mark": "yes"}}}));
                client.metadata::<ConfigMap>().patch(&key("there"), &patch).await?;
            }
            Way::Update => {
                let mut there = ConfigMap::clone(&there);
                say(&mut there);
                ctx.update(&there).await?;
            }
            Way::Upsert => {
                let (done, made) = ctx.create_or_update_child(made(), say).await?;
                anyhow::ensure!(
                    done == OperationResult::Created && made.owner_references()[0].controller == Some(true)
                );
            }
            Way::UpsertByPatch => {
                let (done, _) = ctx.create_or_patch_child(map("there"), say).await?;
                anyhow::ensure!(done == OperationResult::Updated);
            }
            Way::Finalizer => drop(ctx.add_finalizer(there.as_ref(), "example.com/test").await?),
            Way::DeleteCollection => {
                client.kind::<ConfigMap>().delete_collection(&DeleteParams::default(), &labelled()).await?;
            }
            Way::Subresource => {
                let status = Patch::Merge(json!({"status": {"size": 9}}));
                client.kind::<Fleet>().status().patch::<Fleet, _>(ctx.key(), &status).await?;
            }
            Way::Wrapped => {
                let strict = client.field_validation(ValidationDirective::Strict).intercept(|next| next.send());
                strict.namespace("default").kind::<ConfigMap>().create(&made()).await?;
            }
            Way::DryRun => {
                client.dry_run().kind::<ConfigMap>().create(&made()).await?;
            }
        }
        Ok(())
    }

    fn is_seen(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<bool, ClientError> {
        let there = ctx.get::<ConfigMap>(&key("there"))?;
        let has_mark = |map: Arc<ConfigMap>| map.data.iter().flatten().any(|(key, _)| key == "mark");
        Ok(match self.way {
            Way::Dynamic | Way::Wrapped | Way::DryRun => ctx.get::<ConfigMap>(&key("made"))?.is_some(),
            Way::Metadata => there.is_some_and(|map| map.annotations().contains_key("mark")),
            Way::Update | Way::UpsertByPatch => there.is_some_and(has_mark),
            Way::Upsert => ctx.children::<ConfigMap>()?.into_iter().any(has_mark),
            Way::Finalizer => there.is_some_and(|map| map.finalizers() == ["example.com/test"]),
            Way::DeleteCollection => ctx.list::<ConfigMap>(&Selector::from_iter([("test", "yes")]))?.is_empty(),
            Way::Subresource => fleet.status.as_ref().is_some_and(|status| status.size == 9),
        })
    }
}

fn made_dynamic() -> DynamicObject {
    DynamicObject::new("made", &config_maps()).within("default")
}

/// However a reconcile writes, the next reconcile of its key sees the write. It doesn't wait for writes that didn't
/// take effect.
#[tokio::test(start_paused = true)]
async fn the_next_reconcile_sees_writes_of_every_verb() {
    use Way::*;
    for way in
        [Dynamic, Metadata, Update, Upsert, UpsertByPatch, Finalizer, DeleteCollection, Subresource, Wrapped, DryRun]
    {
        let world = World::new().await;
        let client = Client::new(world.client.clone());
        for name in ["there", "too"] {
            client.kind::<ConfigMap>().create(&map(name)).await.expect("created");
        }
        let delay = Duration::from_secs(2);
        let late =
            ["configmaps", "fleets"].map(|kind| world.faults.on(&[RequestVerb::Watch], kind).always().delay(delay));
        let second = Arc::default();
        let writer = Writer { way, first: Mutex::default(), second: Arc::clone(&second) };
        let manager = run(world.manager().controller(Controller::new(writer).owns::<ConfigMap>()));
        pass(10).await;
        world.create_fleet("a", 1).await;
        until("it has looked", || async { second.lock().is_some() }).await;
        let (is_seen, after) = second.lock().take().expect("it has looked");
        let written = way != DryRun;
        assert_eq!((is_seen, after >= Duration::from_secs(1)), (written, written), "{way:?}, after {after:?}");
        assert!(late.iter().all(|fault| fault.hits() > 0));
        manager.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_is_the_difference_of_two_states() {
    let world = World::new().await;
    let maps = Client::new(world.client.clone()).field_owner("test").kind::<ConfigMap>();
    let old = maps.create(&map("a")).await.expect("created");
    let changed = |old: &ConfigMap, field: &str, value: &str| {
        let mut new = old.clone();
        new.data.get_or_insert_default().insert(field.into(), value.into());
        new
    };
    // Two changes of the same state don't conflict, unless one has a lock.
    maps.patch_from(&old, &changed(&old, "x", "1")).await.expect("patched");
    let both = maps.patch_from(&old, &changed(&old, "y", "2")).await.expect("patched");
    assert_eq!(both.data.as_ref().expect("data").len(), 2);
    assert_eq!(code(maps.patch_from(&old, &changed(&old, "z", "3")).optimistic_lock().await), 409);
    maps.patch_from(&both, &changed(&both, "z", "3")).optimistic_lock().await.expect("it is current");
    let same = maps.patch_from(&old, &old.clone()).await.expect("nothing is sent");
    assert_eq!(same.resource_version(), old.resource_version());
    assert!(matches!(maps.patch_from(&old, &map("b")).await, Err(ClientError::Renamed { .. })));
    maps.delete(&key("a")).await.expect("deleted");
    maps.create(&map("a")).await.expect("created again");
    assert_eq!(code(maps.patch_from(&old, &changed(&old, "x", "1")).await), 422, "another object of that name");

    let fleets = Client::new(world.client.clone()).kind::<Fleet>();
    let old = world.create_fleet("f", 1).await;
    let mut new = old.clone();
    (new.spec.size, new.status) = (2, Some(FleetStatus { size: 7, note: None }));
    assert_eq!(fleets.patch_from(&old, &new).await.expect("patched").status, None);
    let written = fleets.patch_from(&old, &new).status().await.expect("patched");
    assert_eq!((written.spec.size, written.status.map(|status| status.size)), (2, Some(7)));
}

#[tokio::test(start_paused = true)]
async fn a_strategic_patch_changes_single_items_of_lists() {
    let world = World::new().await;
    let client = Client::new(world.client.clone()).field_owner("test");
    let pods = client.kind::<Pod>();
    let pod = |containers: serde_json::Value| -> Pod {
        let spec = json!({"containers": containers, "volumes": [{"name": "data", "emptyDir": {}}]});
        serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "default"}, "spec": spec})).expect("a pod")
    };
    let old = pods.create(&pod(json!([{"name": "one", "image": "x:1"}, {"name": "two", "image": "y:1"}]))).await;
    let old = old.expect("created");
    let image = |old: &Pod, name: &str, image: &str| {
        let mut new = old.clone();
        let containers = &mut new.spec.as_mut().expect("a spec").containers;
        containers.iter_mut().filter(|it| it.name == name).for_each(|it| it.image = Some(image.into()));
        new
    };
    // Two changes of one list, made from the same state.
    pods.patch_from(&old, &image(&old, "one", "x:2")).strategic().await.expect("patched");
    let both = pods.patch_from(&old, &image(&old, "two", "y:2")).strategic().await.expect("patched");
    let images = |pod: &Pod| -> Vec<_> {
        pod.spec.iter().flat_map(|spec| &spec.containers).filter_map(|it| it.image.clone()).collect()
    };
    assert_eq!(images(&both), ["x:2", "y:2"]);
    let mut new = both.clone();
    new.metadata.finalizers = Some(vec!["example.com/a".into(), "example.com/b".into()]);
    let held = pods.patch_from(&both, &new).strategic().optimistic_lock().await.expect("patched");
    let mut fewer = held.clone();
    fewer.metadata.finalizers = Some(vec!["example.com/b".into()]);
    let left = pods.patch_from(&held, &fewer).strategic().await.expect("patched");
    assert_eq!(left.metadata.finalizers.as_deref(), Some(&["example.com/b".to_owned()][..]));

    let deployments = client.kind::<Deployment>();
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": pod(json!([{"name": "one", "image": "x"}])).spec});
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
    let web = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec});
    let old = deployments.create(&serde_json::from_value(web).expect("a Deployment")).await.expect("created");
    let mut value = serde_json::to_value(&old).expect("JSON");
    value["spec"]["strategy"] = json!({"type": "Recreate"});
    value["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "data", "configMap": {"name": "m", "defaultMode": 420}}]);
    let containers = value["spec"]["template"]["spec"]["containers"].as_array_mut().expect("containers");
    let mut second = containers[0].clone();
    second["name"] = json!("two");
    containers.insert(0, second);
    let new: Deployment = serde_json::from_value(value).expect("a Deployment");
    let written = deployments.patch_from(&old, &new).strategic().await.expect("patched");
    assert_eq!(written.spec, new.spec);

    let fleets = client.kind::<Fleet>();
    let old = world.create_fleet("f", 1).await;
    let mut new = old.clone();
    new.spec.size = 2;
    assert_eq!(code(fleets.patch_from(&old, &new).strategic().await), 415, "a custom resource");
}

#[tokio::test(start_paused = true)]
async fn a_change_is_repeated_after_a_conflict() {
    let world = World::new().await;
    let (other, reads) = (world.client.clone(), Arc::new(AtomicUsize::new(0)));
    let conflicts = Arc::new(AtomicUsize::new(2));
    let count = reads.clone();
    let left = conflicts.clone();
    // Another client is faster, some times.
    let client = Client::new(world.client.clone()).intercept(move |next| {
        let (other, reads, left) = (Client::new(other.clone()).kind::<ConfigMap>(), count.clone(), left.clone());
        async move {
            match next.call().verb() {
                Verb::Get => drop(reads.fetch_add(1, Ordering::SeqCst)),
                _ if left.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() => {
                    let patch = Patch::Merge(json!({"data": {"other": left.load(Ordering::SeqCst).to_string()}}));
                    other.patch(&key("a"), &patch).await?;
                }
                _ => {}
            }
            next.send().await
        }
    });
    let maps = client.kind::<ConfigMap>();
    let none = maps.retry_on_conflict(&key("a"), |_| ()).await.expect("no such map");
    assert_eq!(none, None);
    Client::new(world.client.clone()).kind().create(&map("a")).await.expect("created");
    let add = |map: &mut ConfigMap| drop(map.data.get_or_insert_default().insert("mine".into(), "1".into()));
    let stored = maps.retry_on_conflict(&key("a"), add).await.expect("stored").expect("it exists");
    let data = stored.data.expect("data");
    assert_eq!((data["mine"].as_str(), data["other"].as_str()), ("1", "0"));
    assert_eq!(reads.load(Ordering::SeqCst), 1 + 3);

    conflicts.store(100, Ordering::SeqCst);
    let change = |map: &mut ConfigMap| drop(map.data.get_or_insert_default().insert("mine".into(), "2".into()));
    assert_eq!(code(maps.retry_on_conflict(&key("a"), change).await), 409);
    assert_eq!(conflicts.load(Ordering::SeqCst), 95, "five attempts");
}
