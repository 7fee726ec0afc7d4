//! Rows 1, 7, 12, 13: any write goes wrong, with the operator's death or without, caches are stale, two leaders overlap.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    kit::{assert_quiet, eventually, go_wrong_everywhere, minutes},
    kubelet::PodHistory,
    scene::{First, Flavour, Second, active, reaches, scale, told, world},
};

async fn meets_mishaps<K: Flavour>() {
    let mishaps = go_wrong_everywhere(world, async |world| {
        let mut history = PodHistory::of(world);
        world.create(K::web(5)).await;
        reaches::<K>(world, 5).await;
        assert_eq!(history.created(K::APP), 5);
        scale::<K>(world, 2).await;
        reaches::<K>(world, 2).await;
        scale::<K>(world, 4).await;
        let names = reaches::<K>(world, 4).await;
        assert_eq!(history.created(K::APP), 7);
        for name in names {
            world.run_pod(&name).await;
        }
        eventually("it is ready", async || told::<K>(world).await.1 == "True").await;
    })
    .await;
    // Five pods, three deletions, two pods, a status for each step; four mishaps each.
    assert!(mishaps >= 52, "{mishaps}");
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_neither_loses_nor_doubles_a_pod_of_the_first_flavour() {
    meets_mishaps::<First>().await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_neither_loses_nor_doubles_a_pod_of_the_second_flavour() {
    meets_mishaps::<Second>().await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_while_it_is_replaced_leaves_the_new_ones_pods() {
    go_wrong_everywhere(world, async |world| {
        world.create(Second::web(3)).await;
        eventually("there is a pod", async || !world.pods().await.is_empty()).await;
        world.delete::<Second>("web").await;
        world.create(Second::web(2)).await;
        reaches::<Second>(world, 2).await;
        eventually("the old pods are gone", async || world.pods().await.len() == 2).await;
    })
    .await;
}

/// An operator whose cache of pods stands still acts on what the API server says.
async fn acts_on_what_is<K: Flavour>() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = PodHistory::of(&world);
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
    assert_eq!(history.created(K::APP), 7);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_07_a_stale_cache_deletes_nothing_too_many() {
    acts_on_what_is::<First>().await;
    acts_on_what_is::<Second>().await;
}

async fn wipes_the_status<K: Flavour>() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = PodHistory::of(&world);
    let operator = world.start(&faults);
    world.create(K::web(3)).await;
    reaches::<K>(&world, 3).await;
    let before = told::<K>(&world).await;
    world.edit_status::<K>("web", Value::Null).await;
    eventually("it is rebuilt", async || told::<K>(&world).await == before).await;
    assert_quiet(&faults).await;
    assert_eq!(history.created(K::APP), 3);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_12_a_wiped_status_is_rebuilt() {
    wipes_the_status::<First>().await;
    wipes_the_status::<Second>().await;
}

async fn has_two_leaders<K: Flavour>() {
    let (world, faults) = (world().await, Faults::new());
    let (one, two) = (world.start(&faults), world.start(&faults));
    world.create(K::web(4)).await;
    sleep(minutes(5)).await;
    reaches::<K>(&world, 4).await;
    scale::<K>(&world, 2).await;
    sleep(minutes(5)).await;
    reaches::<K>(&world, 2).await;
    assert_quiet(&faults).await;
    one.stop().await;
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_13_two_leaders_settle() {
    has_two_leaders::<First>().await;
    has_two_leaders::<Second>().await;
}
