//! The rows that hold for every operator.

use k8s_openapi::api::apps::v1::Deployment;
use kubewright_cluster::faults::Verb;
use lolcow_operator::api::v1alpha1::Lolcow;
use operator_kit::{Subject, World, eventually};
use serde_json::{Value, json};

use crate::scene::{GREETING, NAME, assert_both, cow, deployment, edit, serves, world};

/// A Lolcow whose port the API server chooses, so that there can be several.
struct Cow;

impl Subject for Cow {
    type Child = Deployment;
    type Resource = Lolcow;

    // It serves at one port, and then at another; three are about the Deployment, which has the same name.
    const EVENTS: usize = 5;
    const MADE: usize = 1;
    const MAKES: &'static [Verb] = &[Verb::Patch];
    const NAME: &'static str = NAME;
    const ONCE: bool = true;
    const REFUSED: &'static str = "DeploymentRefused";
    const WATCHED: usize = 3;
    // Both children and two statuses, and all that again.
    const WRITES: usize = 8;

    async fn world() -> World {
        world().await
    }

    fn sample() -> Lolcow {
        cow(None, Some(GREETING))
    }

    fn lie() -> Value {
        json!({"url": "http://nowhere", "readyReplicas": 7})
    }

    async fn settled(world: &World) {
        serves(world).await;
    }

    async fn finish(world: &World) {
        edit(world, json!({"greeting": "Moo", "port": 30686})).await;
        assert_eq!(serves(world).await.url.as_deref(), Some("http://127.0.0.1:30686"));
        assert_both(world).await;
    }

    async fn disturb(world: &World) -> usize {
        let uid = deployment(world).await.metadata.uid;
        world.delete::<Deployment>(NAME).await;
        eventually("it is made anew", async || {
            let found = world.api::<Deployment>().get_opt(NAME).await.unwrap();
            found.is_some_and(|found| found.metadata.uid != uid)
        })
        .await;
        serves(world).await;
        1
    }
}

operator_kit::rows!(Cow);
