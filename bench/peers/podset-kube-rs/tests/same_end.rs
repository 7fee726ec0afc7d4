//! Tests that the kube-rs peer and `operators/podset` converge to the same state, apart from the names of pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Pod, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use kubewright::prelude::Manager;
use kubewright_apimachinery::{
    clock::{SharedClock, VirtualClock},
    random::Random,
};
use kubewright_cluster::{Cluster, Pods};
use podset_kube_rs::{PodSet, PodSetSpec};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};

/// The final state by PodSet: its status without names and times, and the labels and specs of its pods.
type EndState = BTreeMap<String, (Value, Vec<Value>)>;

type Start = fn(Client, SharedClock, oneshot::Receiver<()>) -> JoinHandle<()>;

fn ours(client: Client, clock: SharedClock, stop: oneshot::Receiver<()>) -> JoinHandle<()> {
    let manager = podset_operator::register(Manager::new(client).clock(clock).random(Random::seeded(3)));
    tokio::spawn(async { manager.run_until(async { drop(stop.await) }).await.expect("it ends well") })
}

fn peer(client: Client, _: SharedClock, stop: oneshot::Receiver<()>) -> JoinHandle<()> {
    tokio::spawn(podset_kube_rs::run(client, async { drop(stop.await) }))
}

struct World {
    sets: Api<PodSet>,
    pods: Api<Pod>,
}

impl World {
    async fn resize(&self, name: &str, replicas: i32) {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.sets.patch(name, &PatchParams::default(), &patch).await.expect("it is resized");
    }

    /// Returns the names of the PodSet's pods that are not being deleted.
    async fn pods_of(&self, name: &str) -> BTreeSet<String> {
        let pods = self.pods.list(&ListParams::default().labels(&format!("app={name}"))).await.expect("a list");
        let stay = pods.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        stay.map(|pod| pod.name_any()).collect()
    }

    /// Waits until the status shows as many ready pods as exist and are wanted.
    async fn wait_for(&self, name: &str, replicas: usize) {
        let is_so = async || {
            let status = self.sets.get(name).await.expect("it is there").status.unwrap_or_default();
            let is_ready = status.conditions.iter().any(|known| known.type_ == "Ready" && known.status == "True");
            let named: BTreeSet<_> = status.pod_names.into_iter().collect();
            is_ready && named.len() == replicas && named == self.pods_of(name).await
        };
        let so = async {
            while !is_so().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(600), so).await.unwrap_or_else(|_| panic!("{name} has no {replicas}"));
    }

    async fn end_state(&self) -> EndState {
        let mut end = EndState::new();
        for set in self.sets.list(&ListParams::default()).await.expect("a list") {
            let name = set.name_any();
            let mut status = serde_json::to_value(set.status.clone().unwrap_or_default()).expect("JSON");
            status["podNames"].take();
            status["conditions"][0]["lastTransitionTime"].take();
            let selector = set.status.unwrap_or_default().selector.unwrap_or_default();
            let parameters = ListParams::default().labels(&selector);
            let pods = self.pods.list(&parameters);
            let pods = pods.await.expect("a list").items.into_iter().map(|pod| {
                let owner = pod.owner_references().first().map(|owner| (owner.name.clone(), owner.controller, owner.block_owner_deletion));
                let spec = pod.spec.as_ref().map(|spec| (&spec.containers[0].image, &spec.containers[0].command));
                json!({"labels": pod.labels(), "generateName": pod.metadata.generate_name, "owner": owner, "spec": spec})
            });
            end.insert(name, (status, pods.collect()));
        }
        end
    }
}

async fn play(start: Start) -> EndState {
    let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
    let builder = Cluster::builder().clock(clock.clone()).random(Random::seeded(1)).pods(Pods::Simulate);
    let cluster = builder.start().await.expect("it starts");
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client());
    for crd in podset_operator::crds() {
        crds.create(&PostParams::default(), &crd).await.expect("accepted");
    }
    let world =
        World { sets: Api::default_namespaced(cluster.client()), pods: Api::default_namespaced(cluster.client()) };
    while world.sets.list(&ListParams::default()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let create = async |name: &str, replicas: i32| {
        let set = PodSet::new(name, PodSetSpec { replicas });
        world.sets.create(&PostParams::default(), &set).await.expect("accepted");
    };
    // Some PodSets exist before the operator starts, and some are created later.
    create("early", 3).await;
    let (stop, stopped) = oneshot::channel();
    let operator = start(cluster.client(), clock, stopped);
    for (name, replicas) in [("grown", 2), ("shrunk", 5), ("robbed", 3)] {
        create(name, replicas).await;
    }
    for (name, replicas) in [("early", 3), ("grown", 2), ("shrunk", 5), ("robbed", 3)] {
        world.wait_for(name, replicas).await;
    }
    world.resize("grown", 4).await;
    world.resize("shrunk", 1).await;
    for name in world.pods_of("robbed").await.iter().take(2) {
        world.pods.delete(name, &Default::default()).await.expect("deleted");
    }
    for (name, replicas) in [("grown", 4), ("shrunk", 1), ("robbed", 3)] {
        world.wait_for(name, replicas).await;
    }
    stop.send(()).expect("it runs");
    operator.await.expect("it doesn't panic");
    let end = world.end_state().await;
    cluster.shutdown().await;
    end
}

#[tokio::test(start_paused = true)]
async fn both_come_to_the_same_end() {
    let (peer, ours) = (play(peer).await, play(ours).await);
    assert_eq!(ours.values().map(|(_, pods)| pods.len()).collect::<Vec<_>>(), [3, 4, 3, 1]);
    assert_eq!(peer, ours);
}
