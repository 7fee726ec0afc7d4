//! The conformance tests.

use guestbook_operator::api::v1::Guestbook;
use k8s_openapi::api::core::v1::Pod;
use operator_kit::{Subject, TestEnv, eventually};

use crate::fixtures::{alive, book, env, reaches, reported, run_all, serves, without};

/// A Guestbook of three pods: they become ready, and the active one fails.
struct Three;

impl Subject for Three {
    type Child = Pod;
    type Resource = Guestbook;

    // The takeover.
    const EVENTS: usize = 1;
    const CHILDREN: usize = 3;
    const CHILDREN_AT_END: usize = 4;
    const NAME: &'static str = "book";
    // If two operators create pods with generated names, one of them deletes the superfluous ones.
    const AT_MOST_ONCE: bool = false;
    const REFUSED: &'static str = "PodRefused";
    const CHILD_EVENTS: usize = 3;
    // Three writes of the Service, four pods, a deletion, and a status for each step.
    const WRITES: usize = 11;

    async fn env() -> TestEnv {
        env().await
    }

    fn sample() -> Guestbook {
        book(3)
    }

    async fn settled(env: &TestEnv) {
        reaches(env, 3).await;
    }

    async fn finish(env: &TestEnv) {
        let names = reaches(env, 3).await;
        run_all(env).await;
        reported(env, "Ready", "PodsReady").await;
        let first = serves(env, &names).await;
        env.end_pod(&first, 1).await;
        serves(env, &without(&names, &first)).await;
        reaches(env, 3).await;
        run_all(env).await;
        reported(env, "Ready", "PodsReady").await;
    }

    async fn delete_child(env: &TestEnv) -> usize {
        let gone = alive(env).await.remove(1);
        env.delete::<Pod>(&gone).await;
        eventually("it is replaced", async || !reaches(env, 3).await.contains(&gone)).await;
        1
    }
}

operator_kit::conformance_tests!(Three);
