//! The rows that hold for every operator.

use guestbook_operator::api::v1::Guestbook;
use k8s_openapi::api::core::v1::Pod;
use operator_kit::{Subject, World, eventually};
use serde_json::{Value, json};

use crate::scene::{alive, book, reaches, run_all, serves, told, without, world};

/// A Guestbook of three pods: they become ready, and the active one fails.
struct Three;

impl Subject for Three {
    type Child = Pod;
    type Resource = Guestbook;

    // The takeover.
    const EVENTS: usize = 1;
    const MADE: usize = 3;
    const MADE_AT_END: usize = 4;
    const NAME: &'static str = "book";
    // Of two that create pods of any name, one deletes what is too much.
    const ONCE: bool = false;
    const REFUSED: &'static str = "PodRefused";
    const WATCHED: usize = 3;
    // The Service three times, four pods, a deletion, a status for each step.
    const WRITES: usize = 11;

    async fn world() -> World {
        world().await
    }

    fn sample() -> Guestbook {
        book(3)
    }

    fn lie() -> Value {
        json!({"active": "book-none", "standby": ["book-nobody"], "readyReplicas": 7})
    }

    async fn settled(world: &World) {
        reaches(world, 3).await;
    }

    async fn finish(world: &World) {
        let names = reaches(world, 3).await;
        run_all(world).await;
        told(world, "Ready", "PodsReady").await;
        let first = serves(world, &names).await;
        world.end_pod(&first, 1).await;
        serves(world, &without(&names, &first)).await;
        reaches(world, 3).await;
        run_all(world).await;
        told(world, "Ready", "PodsReady").await;
    }

    async fn disturb(world: &World) -> usize {
        let gone = alive(world).await.remove(1);
        world.delete::<Pod>(&gone).await;
        eventually("it is replaced", async || !reaches(world, 3).await.contains(&gone)).await;
        1
    }
}

operator_kit::rows!(Three);
