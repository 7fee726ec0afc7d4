//! Types that contain only a part of their kind's fields.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, ObjectMeta, PartialObjectMeta, Patch, PatchParams, PostParams},
};
use kubewright_cluster::faults::Verb;
use kubewright_runtime::{
    action::Action,
    client::ClientError,
    context::Context,
    controller::{Controller, Reconciler},
    object::ObjectKey,
    predicate::Predicate,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::world::{Fleet, World, run, until};

/// A config map as the reconciler sees it.
#[derive(Clone, Debug, Deserialize, Serialize, Resource)]
#[resource(inherit = "ConfigMap")]
struct Ship {
    #[serde(with = "kubewright_runtime::view::without_annotations")]
    metadata: ObjectMeta,
    data: Option<Cargo>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Cargo {
    cargo: Option<String>,
}

/// The cargo of each ship by name, and the labels of the secrets.
type Seen = (BTreeMap<String, Option<String>>, BTreeMap<String, String>);

/// Deletes empty ships, and records the others.
#[derive(Clone, Default)]
struct Captain {
    seen: Arc<Mutex<Seen>>,
}

impl Reconciler<Fleet> for Captain {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let ships = ctx.children::<Ship>()?;
        for ship in &ships {
            assert!(ship.annotations().is_empty(), "the view has none");
            assert_eq!(ship.owner_references()[0].name, fleet.name_any());
            if ship.data.is_none() {
                ctx.delete(ship.as_ref()).await?;
            }
        }
        let cargo = ships.iter().map(|ship| (ship.name_any(), ship.data.as_ref().and_then(|data| data.cargo.clone())));
        let secrets = ctx.list::<PartialObjectMeta<Secret>>(&Default::default())?;
        let labels = secrets.iter().flat_map(|secret| secret.labels().clone());
        *self.seen.lock() = (cargo.collect(), labels.collect());
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn a_view_can_be_used_wherever_a_kind_can() {
    let world = World::new().await;
    let captain = Captain::default();
    let ships_in_sight = |ship: &PartialObjectMeta<ConfigMap>| ship.labels().get("fleet").cloned();
    let controller = Controller::<Fleet>::new(captain.clone())
        .owns_when::<Ship>(Predicate::changed(|ship: &Ship| ship.data.as_ref().map(|data| data.cargo.clone())))
        .reads::<PartialObjectMeta<Secret>>()
        .watches(move |ship: &PartialObjectMeta<ConfigMap>, _| {
            ships_in_sight(ship).map(|fleet| ObjectKey::namespaced("default", &fleet)).into_iter().collect()
        });
    let secrets: Api<Secret> = Api::default_namespaced(world.client.clone());
    let secret = json!({"metadata": {"name": "s", "labels": {"color": "red"}}, "stringData": {"key": "secret"}});
    let secret = serde_json::from_value(secret).expect("a secret");
    secrets.create(&PostParams::default(), &secret).await.expect("accepted");
    let fleet = world.create_fleet("a", 0).await;
    let manager = run(world.manager().controller(controller));

    let create = |name: &str, data: Option<&str>| {
        let ship = json!({"data": data.map(|cargo| json!({"cargo": cargo, "other": "unseen"})), "metadata": {
            "name": name, "annotations": {"a": "b"}, "ownerReferences": [fleet.controller_owner_ref(&())],
        }});
        let ship: ConfigMap = serde_json::from_value(ship).expect("a config map");
        let ships = world.ships();
        async move { ships.create(&PostParams::default(), &ship).await.expect("accepted") }
    };
    create("full", Some("tea")).await;
    create("empty", None).await;
    until("the empty ship is gone", || async { world.ship_names().await == ["full"] }).await;
    let cargo = |tea: &str| BTreeMap::from([("full".to_owned(), Some(tea.to_owned()))]);
    until("the full one is seen", || async { captain.seen.lock().0 == cargo("tea") }).await;
    assert_eq!(captain.seen.lock().1.get("color").map(String::as_str), Some("red"));

    let patch = Patch::Merge(json!({"data": {"cargo": "silk"}}));
    world.ships().patch("full", &PatchParams::default(), &patch).await.expect("accepted");
    until("the change is seen", || async { captain.seen.lock().0 == cargo("silk") }).await;

    tokio::time::sleep(Duration::from_secs(1)).await;
    for resource in ["configmaps", "secrets"] {
        let seen = world.faults.requests();
        let lists = seen.iter().filter(|seen| seen.request.resource == resource && seen.request.verb == Verb::List);
        assert_eq!(lists.count(), 1, "{resource} are watched once, whatever they are read as");
    }
    manager.stop().await;
}

/// Records what it sees of a kind that it knows only by name.
struct ByName {
    maps: ApiResource,
    cargo: Arc<Mutex<Vec<String>>>,
}

impl Reconciler<Fleet> for ByName {
    type Error = ClientError;

    async fn reconcile(&self, _: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let maps = ctx.dynamic(&self.maps).cached()?.list(ctx.key().namespace(), &Default::default());
        let cargo = maps.iter().filter_map(|map| map.data["data"]["cargo"].as_str().map(str::to_owned));
        *self.cargo.lock() = cargo.collect();
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_can_be_watched_by_name_beside_its_type() {
    let world = World::new().await;
    let (maps, cargo) = (ApiResource::erase::<ConfigMap>(&()), Arc::new(Mutex::new(Vec::new())));
    let controller = Controller::<Fleet>::new(ByName { maps: maps.clone(), cargo: cargo.clone() })
        .dynamic(&maps, |kind| kind.watches(|map, _| vec![ObjectKey::of(map).sibling("a")]))
        .owns::<Ship>();
    world.create_fleet("a", 0).await;
    let manager = run(world.manager().controller(controller));
    let ship =
        serde_json::from_value(json!({"metadata": {"name": "s"}, "data": {"cargo": "tea"}})).expect("a config map");
    world.ships().create(&PostParams::default(), &ship).await.expect("accepted");
    until("the cargo is seen", || async { *cargo.lock() == ["tea"] }).await;
    let seen = world.faults.requests();
    let lists = seen.iter().filter(|seen| seen.request.resource == "configmaps" && seen.request.verb == Verb::List);
    assert_eq!(lists.count(), 1, "one watch for the type and the name");
    manager.stop().await;
}
