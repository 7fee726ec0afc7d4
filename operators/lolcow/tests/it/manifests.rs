//! The files under `config`.

use kubewright::simulation::env::{granted, needed};
use kubewright_cluster::faults::Faults;
use lolcow_operator::api::v1alpha1::Lolcow;
use serde_json::json;

use crate::fixtures::{GREETING, NAME, assert_both, edit, env, reaches, sample, serves};

#[test]
fn the_sample_matches_the_source() {
    let sample: Lolcow = serde_saphyr::from_str(include_str!("../../config/samples/v1alpha1_lolcow.yaml")).unwrap();
    assert_eq!(sample.metadata.name.as_deref(), Some(NAME));
    assert_eq!((sample.spec.port, sample.spec.greeting.as_deref()), (Some(30685), Some(GREETING)));
}

#[tokio::test(start_paused = true)]
async fn the_role_allows_what_is_used_and_no_more() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(sample()).await;
    serves(&env).await;
    edit(&env, json!({"port": 80})).await;
    reaches(&env, "ServiceApplied", "False Refused").await;
    edit(&env, json!({"port": 30686})).await;
    serves(&env).await;
    assert_both(&env).await;
    operator.stop().await;

    let mut allowed = granted(include_str!("../../config/rbac/role.yaml"));
    // API servers may require these themselves: the first for owner references, the others when an apply creates the
    // object.
    for own in ["my.domain lolcows/finalizers update", "apps deployments create", "- services create"] {
        assert!(allowed.remove(own), "{own}");
    }
    let mut needed = needed(&faults);
    // A repeated event becomes a series, which is a patch.
    allowed.remove("events.k8s.io events patch");
    needed.remove("events.k8s.io events patch");
    assert_eq!(needed, allowed);
}
