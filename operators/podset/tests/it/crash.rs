//! Rows 1, 7, 12, 13: any write goes wrong, with the operator's death or without, caches are stale, two leaders overlap.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kubewright_cluster::faults::{Faults, Verb};
use operator_kit::{History, assert_quiet, minutes};
use tokio::time::sleep;

use crate::scene::{First, Flavour, Second, active, reaches, scale, world};

// ANCHOR: stale
/// An operator whose cache of pods stands still acts on what the API server says.
async fn acts_on_what_is<K: Flavour>() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Pod>(&world);
    world.create(K::web(5)).await;
    let operator = world.start(&faults);
    let names = reaches::<K>(&world, 5).await;
    operator.stop().await;
    let gate = faults.on(&[Verb::Watch], "pods").always().hold();
    let operator = world.start(&faults);
    sleep(minutes(1)).await;
    // Two go, and no more than the other three are wanted. From five it would delete the first two.
    world.delete::<Pod>(&names[3]).await;
    world.delete::<Pod>(&names[4]).await;
    scale::<K>(&world, 3).await;
    sleep(minutes(5)).await;
    let left: Vec<_> = active::<K>(&world).await.iter().map(|pod| pod.name_any()).collect();
    assert_eq!(left, names[..3]);
    // One goes, of which it doesn't hear, and one more is wanted.
    world.delete::<Pod>(&names[0]).await;
    scale::<K>(&world, 4).await;
    sleep(minutes(5)).await;
    gate.open();
    reaches::<K>(&world, 4).await;
    assert_quiet(&faults).await;
    assert_eq!(history.created(), 7);
    operator.stop().await;
}
// ANCHOR_END: stale

#[tokio::test(start_paused = true)]
async fn row_07_a_stale_cache_deletes_nothing_too_many() {
    acts_on_what_is::<First>().await;
    acts_on_what_is::<Second>().await;
}
