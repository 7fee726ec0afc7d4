//! The rows that hold for every operator, and what they show of this one beyond the common.

use std::marker::PhantomData;

use k8s_openapi::api::core::v1::Pod;
use kubewright_cluster::faults::{Faults, Verb};
use operator_kit::{Invalid, Subject, World, eventually, minutes};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::scene::{First, Flavour, Second, reaches, scale, told, world};

/// A set of five pods of one flavour.
struct Five<K>(PhantomData<K>);

impl<K: Flavour> Subject for Five<K> {
    type Child = Pod;
    type Resource = K;

    const EVENTS: usize = 0;
    const MADE: usize = 5;
    const MADE_AT_END: usize = 7;
    const NAME: &'static str = "web";
    // Of two that create pods of any name, one deletes what is too much.
    const ONCE: bool = false;
    const REFUSED: &'static str = "PodRefused";
    const WATCHED: usize = 5;
    // Five pods, three deletions, two pods, a status for each step.
    const WRITES: usize = 13;

    async fn world() -> World {
        world().await
    }

    fn sample() -> K {
        K::web(5)
    }

    fn lie() -> Value {
        K::lie()
    }

    async fn settled(world: &World) {
        reaches::<K>(world, 5).await;
    }

    async fn finish(world: &World) {
        scale::<K>(world, 2).await;
        reaches::<K>(world, 2).await;
        scale::<K>(world, 4).await;
        for name in reaches::<K>(world, 4).await {
            world.run_pod(&name).await;
        }
        eventually("it is ready", async || told::<K>(world).await.1 == "True").await;
    }

    async fn disturb(world: &World) -> usize {
        let gone = reaches::<K>(world, 5).await.remove(1);
        world.delete::<Pod>(&gone).await;
        eventually("it is replaced", async || !reaches::<K>(world, 5).await.contains(&gone)).await;
        1
    }
}

impl<K: Flavour> Invalid for Five<K> {
    const REASON: &'static str = "InvalidTemplate";

    fn invalid() -> K {
        let mut set = serde_json::to_value(K::web(5)).unwrap();
        set["spec"]["template"] = json!({"spec": 5});
        serde_json::from_value(set).unwrap()
    }

    fn mend() -> Value {
        json!({"spec": {"template": null}})
    }
}

// ANCHOR: rows
/// Both flavours have one reconciler: what differs in the first, its names, labels and status, is in these rows.
mod first {
    operator_kit::rows!(super::Five<super::First>;
        row_01_mishap_at_any_write_converges_and_doubles_nothing
        row_02_lost_answers_to_creates_make_no_child_too_many
        row_06_doubled_and_delayed_events_lead_to_the_same
        row_08_the_children_of_an_earlier_one_are_neither_counted_nor_deleted
        row_10_a_steady_state_writes_nothing
        row_12_a_wiped_status_is_rebuilt_and_nothing_done_again
        row_12_a_status_written_by_hand_is_corrected
        row_13_two_leaders_settle
    );
}

mod second {
    operator_kit::rows!(super::Five<super::Second>, invalid);
}
// ANCHOR_END: rows

#[tokio::test(start_paused = true)]
async fn row_14_a_refused_pod_is_told_in_the_servers_words_and_tried_again_slowly() {
    for (code, reason) in [(403, "Forbidden"), (422, "Invalid")] {
        let (world, faults) = (world().await, Faults::new());
        let message = "pods is forbidden: exceeded quota: small";
        let refused = faults.on(&[Verb::Create], "pods").skip(2).always().refuse_with(code, reason, message);
        let operator = world.start(&faults);
        world.create(Second::web(5)).await;
        eventually("it is told", async || told::<Second>(&world).await.2 == "PodRefused").await;
        assert_eq!(world.get::<Second>("web").await.status.unwrap().conditions[0].message, message);
        // The pods that there are are told as well.
        assert_eq!(reaches::<Second>(&world, 2).await.len(), 2);
        sleep(minutes(60)).await;
        assert!((10..=300).contains(&refused.hits()), "{}", refused.hits());
        faults.clear();
        reaches::<Second>(&world, 5).await;
        let events = world.events("web").await;
        assert_eq!(events.iter().filter(|event| event.starts_with("Warning PodRefused")).count(), 1, "{events:?}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn row_10_and_14_a_pod_that_is_refused_again_is_not_told_again() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let mut set = Second::web(2);
    set.spec.template = Some(serde_json::from_value(json!({"spec": {"containers": []}})).unwrap());
    world.create(set).await;
    eventually("it is told", async || told::<Second>(&world).await.2 == "PodRefused").await;
    let message = world.get::<Second>("web").await.status.unwrap().conditions[0].message.clone();
    assert!(message.starts_with("Pod \"web-*\" is invalid: spec.containers: Required value"), "{message}");
    faults.forget();
    sleep(minutes(10)).await;
    let told: Vec<_> = faults.seen().into_iter().filter(|seen| seen.request.resource == "podsets/status").collect();
    assert!(told.is_empty(), "{told:?}");
    operator.stop().await;
}
