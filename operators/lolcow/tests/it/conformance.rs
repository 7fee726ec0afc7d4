//! The conformance tests.

use k8s_openapi::api::apps::v1::Deployment;
use kubewright_cluster::faults::Verb;
use lolcow_operator::api::v1alpha1::Lolcow;
use operator_kit::{Subject, TestEnv, eventually};
use serde_json::json;

use crate::fixtures::{GREETING, NAME, assert_both, cow, deployment, edit, env, serves};

/// A Lolcow whose port the API server chooses, so that there can be several.
struct Cow;

impl Subject for Cow {
    type Child = Deployment;
    type Resource = Lolcow;

    // It serves at one port and then at another; three events are about the Deployment, which has the same name.
    const EVENTS: usize = 5;
    const CHILDREN: usize = 1;
    const CREATE_VERBS: &'static [Verb] = &[Verb::Patch];
    const NAME: &'static str = NAME;
    const AT_MOST_ONCE: bool = true;
    const REFUSED: &'static str = "DeploymentRefused";
    const CHILD_EVENTS: usize = 3;
    // Both children and two statuses, twice.
    const WRITES: usize = 8;

    async fn env() -> TestEnv {
        env().await
    }

    fn sample() -> Lolcow {
        cow(None, Some(GREETING))
    }

    async fn settled(env: &TestEnv) {
        serves(env).await;
    }

    async fn finish(env: &TestEnv) {
        edit(env, json!({"greeting": "Moo", "port": 30686})).await;
        assert_eq!(serves(env).await.url.as_deref(), Some("http://127.0.0.1:30686"));
        assert_both(env).await;
    }

    async fn delete_child(env: &TestEnv) -> usize {
        let uid = deployment(env).await.metadata.uid;
        env.delete::<Deployment>(NAME).await;
        eventually("it is created again", async || {
            let found = env.api::<Deployment>().get_opt(NAME).await.unwrap();
            found.is_some_and(|found| found.metadata.uid != uid)
        })
        .await;
        serves(env).await;
        1
    }
}

operator_kit::conformance_tests!(Cow);
