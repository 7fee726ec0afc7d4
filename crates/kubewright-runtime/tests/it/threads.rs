//! Several threads in real time: several namespaces, a slow mapper, and many workers at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use kubewright_runtime::{
    action::Action,
    client::ClientError,
    context::Context,
    controller::{Controller, Reconciler},
    object::ObjectKey,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::world::{Fleet, FleetStatus, World, fleet, run};

const NAMESPACES: [&str; 3] = ["one", "two", "three"];
const FLEETS: usize = 12;
const ROUNDS: usize = 8;
/// The timeout of the whole test, generous because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(240);

/// Writes the content of the orders, which are config maps that name a fleet, into the status.
#[derive(Clone, Default)]
struct Admiral {
    at_work: Arc<Mutex<BTreeSet<ObjectKey>>>,
    threads: Arc<Mutex<BTreeSet<String>>>,
    doubled: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

fn order_of(order: &ConfigMap, fleet: &str) -> Option<usize> {
    let data = order.data.as_ref().filter(|data| data.get("fleet").is_some_and(|name| name == fleet))?;
    data.get("size")?.parse().ok()
}

impl Reconciler<Fleet> for Admiral {
    type Error = ClientError;

    async fn reconcile(&self, fleet: &Fleet, ctx: &Context<Fleet>) -> Result<Action, ClientError> {
        let (is_alone, count) = {
            let mut at_work = self.at_work.lock();
            (at_work.insert(ctx.key().clone()), at_work.len())
        };
        self.doubled.fetch_add(usize::from(!is_alone), Ordering::SeqCst);
        self.most.fetch_max(count, Ordering::SeqCst);
        self.threads.lock().insert(format!("{:?}", std::thread::current().id()));
        let orders = ctx.list::<ConfigMap>(&Default::default())?;
        let size = orders.iter().filter_map(|order| order_of(order, &fleet.name_any())).sum();
        let result = ctx.set_status(FleetStatus { size, note: None }).await;
        self.at_work.lock().remove(ctx.key());
        result.map(|()| Action::await_change())
    }
}

struct Sea {
    client: Client,
}

impl Sea {
    async fn order(&self, namespace: &str, number: usize, size: usize) {
        let name = format!("order-{number}");
        let order = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"fleet": format!("f{number}"), "size": size.to_string()},
        });
        let orders: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        orders.patch(&name, &PatchParams::apply("test"), &Patch::Apply(order)).await.expect("accepted");
    }

    /// Returns the sizes in the statuses, by namespace and name.
    async fn sizes(&self) -> BTreeMap<String, usize> {
        let fleets = Api::<Fleet>::all(self.client.clone()).list(&Default::default()).await.expect("a list");
        let size = |fleet: Fleet| {
            let key = ObjectKey::of(&fleet).to_string();
            fleet.status.map(|status| (key, status.size))
        };
        fleets.into_iter().filter_map(size).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_namespaces_and_a_slow_mapper_reach_the_desired_state() {
    let world = World::new().await;
    let sea = Sea { client: world.client.clone() };
    for name in NAMESPACES.into_iter().chain(["elsewhere"]) {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
        Api::all(sea.client.clone()).create(&PostParams::default(), &namespace).await.expect("accepted");
        for number in 0..FLEETS {
            let fleets: Api<Fleet> = Api::namespaced(sea.client.clone(), name);
            fleets.create(&PostParams::default(), &fleet(&format!("f{number}"), 1)).await.expect("accepted");
        }
    }
    let admiral = Admiral::default();
    let controller = Controller::<Fleet>::new(admiral.clone())
        .watches(|order: &ConfigMap, _| {
            // Delays the events of its kind, and loses none.
            std::thread::sleep(Duration::from_millis(2));
            let name = order.data.as_ref().and_then(|data| data.get("fleet"));
            name.map(|name| ObjectKey::of(order).sibling(name)).into_iter().collect()
        })
        .concurrency(8);
    let running = run(world.manager().namespaces(NAMESPACES).controller(controller));
    // All namespaces at once, while the controller starts and works.
    let writers = NAMESPACES.into_iter().map(|namespace| {
        let sea = Sea { client: sea.client.clone() };
        tokio::spawn(async move {
            for round in 1..=ROUNDS {
                for number in 0..FLEETS {
                    sea.order(namespace, number, round * 100 + number).await;
                }
            }
        })
    });
    let wanted = NAMESPACES
        .into_iter()
        .flat_map(|namespace| (0..FLEETS).map(move |number| (format!("{namespace}/f{number}"), ROUNDS * 100 + number)));
    let wanted: BTreeMap<_, _> = wanted.collect();
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("all orders are given");
    }
    let came = tokio::time::timeout(PATIENCE, async {
        while sea.sizes().await != wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    if came.await.is_err() {
        panic!("it never came to what is wanted: {:?}", sea.sizes().await);
    }
    running.stop().await;
    assert_eq!(admiral.doubled.load(Ordering::SeqCst), 0, "two workers on one key");
    let (most, threads) = (admiral.most.load(Ordering::SeqCst), admiral.threads.lock().len());
    assert!((2..=8).contains(&most), "{most} at once");
    assert!(threads > 1, "on one thread alone");
}
