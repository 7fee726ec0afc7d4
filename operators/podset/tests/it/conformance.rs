//! The conformance tests, and further tests of the same faults that are specific to this operator.

use k8s_openapi::api::core::v1::Pod;
use kubewright::{
    condition,
    prelude::*,
    simulation::{
        Span, World,
        conformance::{Invalid, Subject},
        conformance_tests,
        env::eventually,
    },
};
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixtures::{Flavour, Second, env, reaches, reported};

/// A set of five pods. Both flavours share one reconciler; the first has a scenario of its life.
struct Five;

// ANCHOR: conformance
impl Subject for Five {
    type Child = Pod;
    type Resource = Second;

    const CHILDREN: usize = 5;
    const NAME: &'static str = "web";
    const REFUSED: &'static str = "PodRefused";

    fn register(manager: Manager) -> Manager {
        podset_operator::register(manager)
    }

    fn sample() -> Second {
        Second::web(5)
    }

    fn is_settled(world: &World) -> bool {
        let status = world.get::<Second>(Self::NAME).and_then(|set| set.status).unwrap_or_default();
        let is_ready = condition::get(&status.conditions, "Ready").is_some_and(|ready| ready.status == "True");
        is_ready && status.available_replicas == 5 && status.pod_names.len() == 5
    }
}

impl Invalid for Five {
    const REASON: &'static str = "InvalidTemplate";

    fn invalid() -> Second {
        let mut set = serde_json::to_value(Second::web(5)).unwrap();
        set["spec"]["template"] = json!({"spec": 5});
        serde_json::from_value(set).unwrap()
    }

    fn valid_patch() -> Value {
        json!({"spec": {"template": null}})
    }
}

conformance_tests!(Five, invalid);
// ANCHOR_END: conformance

#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_reported_with_the_servers_message_and_retried_slowly() {
    for (code, reason) in [(403, "Forbidden"), (422, "Invalid")] {
        let (env, faults) = (env().await, Faults::new());
        let message = "pods is forbidden: exceeded quota: small";
        let refused = faults.on(&[Verb::Create], "pods").skip(2).always().refuse_with(code, reason, message);
        let operator = env.start(&faults);
        env.create(Second::web(5)).await;
        eventually("it is reported", async || reported::<Second>(&env).await.2 == "PodRefused").await;
        assert_eq!(env.get::<Second>("web").await.status.unwrap().conditions[0].message, message);
        // Existing pods are reported as well.
        assert_eq!(reaches::<Second>(&env, 2).await.len(), 2);
        sleep(60.minutes()).await;
        assert!((10..=300).contains(&refused.hits()), "{}", refused.hits());
        faults.clear();
        reaches::<Second>(&env, 5).await;
        let events = env.events("web").await;
        assert_eq!(events.iter().filter(|event| event.starts_with("Warning PodRefused")).count(), 1, "{events:?}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_refused_again_causes_no_second_event() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let mut set = Second::web(2);
    set.spec.template = Some(serde_json::from_value(json!({"spec": {"containers": []}})).unwrap());
    env.create(set).await;
    eventually("it is reported", async || reported::<Second>(&env).await.2 == "PodRefused").await;
    let message = env.get::<Second>("web").await.status.unwrap().conditions[0].message.clone();
    assert!(message.starts_with("Pod \"web-*\" is invalid: spec.containers: Required value"), "{message}");
    faults.forget();
    sleep(10.minutes()).await;
    let reported: Vec<_> =
        faults.requests().into_iter().filter(|seen| seen.request.resource == "podsets/status").collect();
    assert!(reported.is_empty(), "{reported:?}");
    operator.stop().await;
}
