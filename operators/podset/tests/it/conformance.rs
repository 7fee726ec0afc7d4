//! The conformance tests, and further tests of the same faults that are specific to this operator.

use std::marker::PhantomData;

use k8s_openapi::api::core::v1::Pod;
use kubewright_cluster::faults::{Faults, Verb};
use operator_kit::{Invalid, Subject, TestEnv, eventually, minutes};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixtures::{First, Flavour, Second, env, reaches, reported, scale};

/// A set of five pods of one flavour.
struct Five<K>(PhantomData<K>);

impl<K: Flavour> Subject for Five<K> {
    type Child = Pod;
    type Resource = K;

    const EVENTS: usize = 0;
    const CHILDREN: usize = 5;
    const CHILDREN_AT_END: usize = 7;
    const NAME: &'static str = "web";
    // If two operators create pods with generated names, one of them deletes the superfluous ones.
    const AT_MOST_ONCE: bool = false;
    const REFUSED: &'static str = "PodRefused";
    const CHILD_EVENTS: usize = 5;
    // Five pods, three deletions, two pods, and a status for each step.
    const WRITES: usize = 13;

    async fn env() -> TestEnv {
        env().await
    }

    fn sample() -> K {
        K::web(5)
    }

    async fn settled(env: &TestEnv) {
        reaches::<K>(env, 5).await;
    }

    async fn finish(env: &TestEnv) {
        scale::<K>(env, 2).await;
        reaches::<K>(env, 2).await;
        scale::<K>(env, 4).await;
        for name in reaches::<K>(env, 4).await {
            env.run_pod(&name).await;
        }
        eventually("it is ready", async || reported::<K>(env).await.1 == "True").await;
    }

    async fn delete_child(env: &TestEnv) -> usize {
        let gone = reaches::<K>(env, 5).await.remove(1);
        env.delete::<Pod>(&gone).await;
        eventually("it is replaced", async || !reaches::<K>(env, 5).await.contains(&gone)).await;
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

    fn valid_patch() -> Value {
        json!({"spec": {"template": null}})
    }
}

// ANCHOR: conformance
/// Both flavours share one reconciler. These tests cover the differences of the first: names, labels and status.
mod first {
    operator_kit::conformance_tests!(super::Five<super::First>;
        a_fault_at_any_write_duplicates_nothing
        doubled_and_delayed_events_lead_to_the_same_state
        children_of_a_former_owner_are_neither_counted_nor_deleted
        a_steady_state_writes_nothing
        two_leaders_converge
    );
}

mod second {
    operator_kit::conformance_tests!(super::Five<super::Second>, invalid);
}
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
        sleep(minutes(60)).await;
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
    sleep(minutes(10)).await;
    let reported: Vec<_> =
        faults.requests().into_iter().filter(|seen| seen.request.resource == "podsets/status").collect();
    assert!(reported.is_empty(), "{reported:?}");
    operator.stop().await;
}
