//! Pods that are processes, or simulated by the cluster's node.

use kubewright::simulation::env::{TestEnv, assert_quiet, eventually, within_a_minute};
use kubewright_cluster::{Pods, faults::Faults};

use crate::fixtures::{First, Flavour, Second, reaches, reported, scale};

async fn becomes_ready<K: Flavour>(env: &TestEnv) {
    env.create(K::web(3)).await;
    reaches::<K>(env, 3).await;
    eventually("all are ready", async || reported::<K>(env).await.1 == "True").await;
    scale::<K>(env, 5).await;
    reaches::<K>(env, 5).await;
    eventually("all are ready", async || reported::<K>(env).await.1 == "True").await;
    env.delete::<K>("web").await;
    eventually("the pods are gone", async || env.pods().await.is_empty()).await;
}

#[tokio::test]
async fn pods_that_are_processes_become_ready_and_go() {
    let env = TestEnv::with(Pods::Run, podset_operator::register, podset_operator::crds()).await;
    let operator = env.start(&Faults::new());
    within_a_minute(becomes_ready::<First>(&env)).await;
    within_a_minute(becomes_ready::<Second>(&env)).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn simulated_pods_become_ready_and_go() {
    let env = TestEnv::with(Pods::Simulate, podset_operator::register, podset_operator::crds()).await;
    let faults = Faults::new();
    let operator = env.start(&faults);
    becomes_ready::<First>(&env).await;
    becomes_ready::<Second>(&env).await;
    assert_quiet(&faults).await;
    operator.stop().await;
}
