//! Small helpers: sets of finalizers, owner references that don't block, predicates of owners and priorities, and
//! waiting.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, CustomResourceExt, ResourceExt,
    api::{ApiResource, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
    core::Selector,
};
use kubewright_runtime::{
    action::Action,
    client::{Client, ClientError, Impersonation},
    context::Context,
    controller::{Controller, Finalizer, Finalizers, FinalizersError, Reconciler},
    object::ObjectKey,
    owner::set_owner_reference,
    predicate::Predicate,
    wait::{await_condition, conditions},
};
use parking_lot::Mutex;
use serde_json::json;

use crate::world::{Fleet, FleetReconciler, World, controller, pass, run, until};

/// Notes its name, and fails on request.
#[derive(Clone, Default)]
struct Part {
    name: &'static str,
    done: Arc<Mutex<Vec<&'static str>>>,
    fails: Arc<AtomicBool>,
}

impl Finalizer<Fleet> for Part {
    type Error = anyhow::Error;

    async fn finalize(&self, _: &Fleet, _: &Context<Fleet>) -> anyhow::Result<()> {
        anyhow::ensure!(!self.fails.load(Ordering::SeqCst), "not yet");
        self.done.lock().push(self.name);
        Ok(())
    }
}

struct Parts(Finalizers<Fleet>, Arc<Mutex<Vec<String>>>);

impl Reconciler<Fleet> for Parts {
    type Error = FinalizersError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, FinalizersError> {
        self.0.finalize(fleet, ctx).await?;
        Ok(Action::await_change())
    }

    async fn cleanup(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, FinalizersError> {
        let result = self.0.finalize(fleet, ctx).await;
        self.1.lock().extend(result.as_ref().err().map(ToString::to_string));
        result.map(|()| Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn several_finalizers_clean_up_independently() {
    let world = World::new().await;
    let done = Arc::<Mutex<Vec<_>>>::default();
    let part = |name| Part { name, done: done.clone(), ..Part::default() };
    let (first, second) = (part("first"), part("second"));
    first.fails.store(true, Ordering::SeqCst);
    let finalizers =
        Finalizers::new().register("example.com/first", first.clone()).register("example.com/second", second.clone());
    let errors = Arc::default();
    let running = run(world.manager().controller(Controller::new(Parts(finalizers, Arc::clone(&errors)))));
    world.create_fleet("a", 0).await;
    let fleets = world.fleets();
    let left = || async { fleets.get_opt("a").await.expect("an answer").map(|fleet| fleet.finalizers().to_vec()) };
    until("both are there", || async { left().await.is_some_and(|left| left.len() == 2) }).await;
    fleets.delete("a", &DeleteParams::default()).await.expect("it is being deleted");
    until("one is left", || async { left().await.is_some_and(|left| left == ["example.com/first"]) }).await;
    until("the error is reported", || async { !errors.lock().is_empty() }).await;
    assert_eq!(errors.lock()[0], "the finalizer example.com/first failed: not yet");
    first.fails.store(false, Ordering::SeqCst);
    until("it is gone", || async { left().await.is_none() }).await;
    running.stop().await;
    assert_eq!(*done.lock(), ["second", "first"], "each once");
}

#[tokio::test(start_paused = true)]
async fn children_need_not_block_the_deletion_of_their_owner() {
    let world = World::new().await;
    world.create_fleet("a", 2).await;
    let running = run(world.manager().controller(controller(FleetReconciler::default()).block_owner_deletion(false)));
    world.wait_for_size("a", 2).await;
    running.stop().await;
    let ships = world.ships().list(&Default::default()).await.expect("a list").items;
    let references = ships.iter().flat_map(ResourceExt::owner_references).collect::<Vec<_>>();
    let flags = references.iter().map(|owner| (owner.controller, owner.block_owner_deletion)).collect::<Vec<_>>();
    assert_eq!(flags, [(Some(true), Some(false)), (Some(true), Some(false))]);
}

/// Counts the runs of each name.
#[derive(Clone, Default)]
struct Count(Arc<Mutex<Vec<String>>>);

impl Reconciler<Fleet> for Count {
    type Error = ClientError;

    async fn reconcile(&self, _: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        self.0.lock().push(ctx.key().name().into());
        Ok(Action::await_change())
    }
}

fn map(name: &str, label: &str, owner: Option<&Fleet>) -> ConfigMap {
    let labels = Some([("use".to_owned(), label.to_owned())].into());
    let metadata =
        ObjectMeta { name: Some(name.into()), labels, namespace: Some("default".into()), ..ObjectMeta::default() };
    let mut map = ConfigMap { metadata, ..ConfigMap::default() };
    if let Some(owner) = owner {
        set_owner_reference(owner, &mut map).expect("it may own it");
    }
    map
}

/// Both forms of a kind: known at compile time, and only at run time.
#[tokio::test(start_paused = true)]
async fn owners_and_priorities_have_predicates() {
    for is_dynamic in [false, true] {
        let world = World::new().await;
        let fleet = world.create_fleet("a", 0).await;
        world.create_fleet("b", 0).await;
        let (count, maps) = (Count::default(), ApiResource::erase::<ConfigMap>(&()));
        let to_b =
            |namespace: Option<String>| vec![(ObjectKey::namespaced(namespace.as_deref().unwrap_or_default(), "b"), 7)];
        let used = |label: &'static str| Selector::from_iter([("use", label)]);
        let controller = Controller::<Fleet>::new(count.clone());
        let controller = if is_dynamic {
            controller.dynamic(&maps, |kind| {
                kind.owns_for_every_owner_when(Predicate::labelled(used("owner")))
                    .watches_with_priority_when(Predicate::labelled(used("mapper")), move |map, _| {
                        to_b(map.namespace())
                    })
            })
        } else {
            controller
                .owns_for_every_owner_when::<ConfigMap>(Predicate::labelled(used("owner")))
                .watches_with_priority_when(Predicate::labelled(used("mapper")), move |map: &ConfigMap, _| {
                    to_b(map.namespace())
                })
        };
        let running = run(world.manager().controller(controller));
        until("both have run", || async { count.0.lock().len() == 2 }).await;
        for (name, label, owner) in [("x", "none", Some(&fleet)), ("y", "mapper", None), ("z", "owner", Some(&fleet))] {
            world.ships().create(&PostParams::default(), &map(name, label, owner)).await.expect("created");
            pass(1).await;
        }
        running.stop().await;
        assert_eq!(count.0.lock()[2..], ["b", "a"], "is_dynamic: {is_dynamic}");
    }
}

#[tokio::test(start_paused = true)]
async fn conditions_of_objects_are_awaited() {
    let world = World::without_fleets();
    let client = Client::new(world.client.clone()).namespace("default");
    let definitions = client.kind::<CustomResourceDefinition>();
    let name = ObjectKey::cluster(Fleet::crd_name());
    let established = tokio::spawn({
        let (definitions, name) = (definitions.clone(), name.clone());
        async move { await_condition(&definitions, &name, conditions::is_crd_established()).await }
    });
    pass(3).await;
    assert!(!established.is_finished());
    Api::all(world.client.clone()).create(&PostParams::default(), &Fleet::crd()).await.expect("created");
    let found = established.await.expect("it doesn't panic").expect("it is established").expect("it exists");
    assert_eq!(found.name_any(), Fleet::crd_name());

    let maps = client.kind::<ConfigMap>();
    let created = world.ships().create(&PostParams::default(), &map("a", "x", None)).await.expect("created");
    let (key, uid) = (ObjectKey::namespaced("default", "a"), created.uid().expect("a UID"));
    let labelled = |map: Option<&ConfigMap>| map.is_some_and(|map| map.labels().contains_key("new"));
    let (labelling, deleting) = (world.ships(), world.ships());
    let (found, ()) = tokio::join!(await_condition(&maps, &key, labelled), async {
        pass(3).await;
        let patch = Patch::Merge(json!({"metadata": {"labels": {"new": "yes"}}}));
        labelling.patch("a", &PatchParams::default(), &patch).await.expect("labelled");
    });
    assert!(found.expect("an answer").is_some());
    let metadata = client.metadata::<ConfigMap>();
    let (gone, ()) = tokio::join!(await_condition(&metadata, &key, conditions::is_deleted(&uid)), async {
        pass(3).await;
        deleting.delete("a", &DeleteParams::default()).await.expect("deleted");
    });
    assert!(gone.expect("an answer").is_none());
    let refused = tokio::time::timeout(Duration::from_secs(5), async {
        let spaces = client.impersonate(Impersonation::user("nobody")).kind::<Namespace>();
        await_condition(&spaces, &ObjectKey::cluster("x"), conditions::is_deleted("")).await
    });
    let error = refused.await.expect("it isn't repeated").expect_err("nobody may list them");
    assert_eq!(error.status().map(|status| status.code), Some(403));
}
