//! The files under `config`.

use k8s_openapi::api::core::v1::Pod;
use kubewright::simulation::env::{TestEnv, eventually, granted, needed};
use kubewright_cluster::faults::{Faults, Verb};
use podset_operator::api::{app, k8stest};
use serde_json::json;

use crate::fixtures::{First, Flavour, Second, env, reaches, scale};

#[test]
fn the_samples_match_the_sources() {
    let first: k8stest::v1alpha1::PodSet =
        serde_saphyr::from_str(include_str!("../../config/samples/k8stest_v1alpha1_podset.yaml")).unwrap();
    assert_eq!(first.spec.replicas, 2);
    let second: app::v1alpha1::PodSet =
        serde_saphyr::from_str(include_str!("../../config/samples/app_v1alpha1_podset.yaml")).unwrap();
    assert_eq!(second.spec.replicas, 3);
}

#[tokio::test(start_paused = true)]
async fn the_role_allows_what_is_used_and_no_more() {
    async fn lives<K: Flavour>(env: &TestEnv) {
        env.create(K::web(3)).await;
        let names = reaches::<K>(env, 3).await;
        env.edit::<Pod>(&names[0], json!({"metadata": {"labels": {"app": "other"}}})).await;
        eventually("it is replaced", async || !reaches::<K>(env, 3).await.contains(&names[0])).await;
        scale::<K>(env, 2).await;
        reaches::<K>(env, 2).await;
    }
    let (env, faults) = (env().await, Faults::new());
    // After a lost answer the create is repeated, and the existing pod is read.
    faults.on(&[Verb::Create], "pods").lose_response();
    let operator = env.start(&faults);
    lives::<First>(&env).await;
    lives::<Second>(&env).await;
    operator.stop().await;

    let mut allowed = granted(include_str!("../../config/rbac/role.yaml"));
    // Some API servers require these themselves, and the others are only needed for name conflicts and errors.
    for group in ["k8stest.justin0u0.com", "app.example.com"] {
        assert!(allowed.remove(&format!("{group} podsets/finalizers update")));
    }
    for unused in ["- pods get", "events.k8s.io events create", "events.k8s.io events patch"] {
        assert!(allowed.remove(unused), "{unused}");
    }
    assert_eq!(needed(&faults), allowed);
}
