//! The files under `config`.

use k8s_openapi::api::core::v1::Pod;
use kubewright_cluster::faults::{Faults, Verb};
use operator_kit::{World, eventually, needed};
use podset_operator::api::{app, k8stest};
use serde_json::json;

use crate::scene::{First, Flavour, Second, reaches, scale, world};

#[test]
fn the_samples_are_those_of_the_sources() {
    let first: k8stest::v1alpha1::PodSet =
        serde_saphyr::from_str(&operator_kit::config!().read("samples/k8stest_v1alpha1_podset.yaml")).unwrap();
    assert_eq!(first.spec.replicas, 2);
    let second: app::v1alpha1::PodSet =
        serde_saphyr::from_str(&operator_kit::config!().read("samples/app_v1alpha1_podset.yaml")).unwrap();
    assert_eq!(second.spec.replicas, 3);
}

#[tokio::test(start_paused = true)]
async fn the_role_allows_what_is_used_and_no_more() {
    async fn lives<K: Flavour>(world: &World) {
        world.create(K::web(3)).await;
        let names = reaches::<K>(world, 3).await;
        world.edit::<Pod>(&names[0], json!({"metadata": {"labels": {"app": "other"}}})).await;
        eventually("it is replaced", async || !reaches::<K>(world, 3).await.contains(&names[0])).await;
        scale::<K>(world, 2).await;
        reaches::<K>(world, 2).await;
    }
    let (world, faults) = (world().await, Faults::new());
    // The create is done twice: the second time the pod is there, and is looked at.
    faults.on(&[Verb::Create], "pods").lose_answer();
    let operator = world.start(&faults);
    lives::<First>(&world).await;
    lives::<Second>(&world).await;
    operator.stop().await;

    let mut allowed = operator_kit::config!().allowed();
    // The API server asks for these itself, in some clusters; and here no pod's name was taken, nor was there trouble.
    for group in ["k8stest.justin0u0.com", "app.example.com"] {
        assert!(allowed.remove(&format!("{group} podsets/finalizers update")));
    }
    for unused in ["- pods get", "events.k8s.io events create", "events.k8s.io events patch"] {
        assert!(allowed.remove(unused), "{unused}");
    }
    assert_eq!(needed(&faults), allowed);
}
