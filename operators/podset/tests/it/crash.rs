//! Faults and crashes at any write, stale caches, and overlapping leaders.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kubewright::simulation::{
    Span,
    env::{History, assert_quiet},
};
use kubewright_cluster::faults::{Faults, Verb};
use tokio::time::sleep;

use crate::fixtures::{First, Flavour, Second, active, env, reaches, scale};

// ANCHOR: stale
/// An operator with a stale cache of pods acts on the live state.
async fn acts_on_what_is<K: Flavour>() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Pod>(&env);
    env.create(K::web(5)).await;
    let operator = env.start(&faults);
    let names = reaches::<K>(&env, 5).await;
    operator.stop().await;
    let gate = faults.on(&[Verb::Watch], "pods").always().hold();
    let operator = env.start(&faults);
    sleep(1.minutes()).await;
    // Two pods disappear, and only the other three are wanted. Based on five, it would delete the first two.
    env.delete::<Pod>(&names[3]).await;
    env.delete::<Pod>(&names[4]).await;
    scale::<K>(&env, 3).await;
    sleep(5.minutes()).await;
    let left: Vec<_> = active::<K>(&env).await.iter().map(|pod| pod.name_any()).collect();
    assert_eq!(left, names[..3]);
    // One disappears unseen, and one more is wanted.
    env.delete::<Pod>(&names[0]).await;
    scale::<K>(&env, 4).await;
    sleep(5.minutes()).await;
    gate.open();
    reaches::<K>(&env, 4).await;
    assert_quiet(&faults).await;
    assert_eq!(history.created(), 7);
    operator.stop().await;
}
// ANCHOR_END: stale

#[tokio::test(start_paused = true)]
async fn a_stale_cache_deletes_no_additional_pod() {
    acts_on_what_is::<First>().await;
    acts_on_what_is::<Second>().await;
}
