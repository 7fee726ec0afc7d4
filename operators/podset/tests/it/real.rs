//! Pods that really run, or are simulated by the cluster's own node.

use kubewright_cluster::{Pods, faults::Faults};
use operator_kit::{World, assert_quiet, eventually, soon};

use crate::scene::{First, Flavour, Second, reaches, scale, told};

async fn becomes_ready<K: Flavour>(world: &World) {
    world.create(K::web(3)).await;
    reaches::<K>(world, 3).await;
    eventually("all are ready", async || told::<K>(world).await.1 == "True").await;
    scale::<K>(world, 5).await;
    reaches::<K>(world, 5).await;
    eventually("all are ready", async || told::<K>(world).await.1 == "True").await;
    world.delete::<K>("web").await;
    eventually("the pods are gone", async || world.pods().await.is_empty()).await;
}

#[tokio::test]
async fn pods_that_are_processes_become_ready_and_go() {
    let world = World::with(Pods::Run, podset_operator::register, podset_operator::crds()).await;
    let operator = world.start(&Faults::new());
    soon(becomes_ready::<First>(&world)).await;
    soon(becomes_ready::<Second>(&world)).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn simulated_pods_become_ready_and_go() {
    let world = World::with(Pods::Simulate, podset_operator::register, podset_operator::crds()).await;
    let faults = Faults::new();
    let operator = world.start(&faults);
    becomes_ready::<First>(&world).await;
    becomes_ready::<Second>(&world).await;
    assert_quiet(&faults).await;
    operator.stop().await;
}
