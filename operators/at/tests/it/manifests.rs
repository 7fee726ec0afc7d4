//! The files under `config`.

use at_operator::api::v1alpha1::{At, AtSpec, Phase};
use kubewright::simulation::{
    Span,
    env::{granted, needed},
};
use kubewright_cluster::faults::{Faults, Verb};

use crate::fixtures::{PAST, SOON, at, env, reaches};

#[test]
fn the_sample_matches_the_source() {
    let sample: At = serde_saphyr::from_str(include_str!("../../config/samples/cnat_v1alpha1_at.yaml")).unwrap();
    let expect = AtSpec { schedule: "2020-01-30T10:02:00Z".into(), command: "echo YAY".into(), ..AtSpec::default() };
    assert_eq!(sample.spec, expect);
}

#[tokio::test(start_paused = true)]
async fn the_role_allows_what_is_used_and_no_more() {
    let (env, faults) = (env().await, Faults::new());
    // After a lost answer it reads live instead of from its cache.
    faults.on(&[Verb::Create], "pods").lose_response();
    let operator = env.start(&faults);
    env.create(at(SOON, "echo YAY")).await;
    reaches(&env, Phase::Running, "Running").await;
    env.end_pod("lunch-pod", 0).await;
    reaches(&env, Phase::Done, "Succeeded").await;
    let mut other = at(PAST, "echo YAY");
    other.spec.schedule = "tomorrow".into();
    other.metadata.name = Some("other".into());
    // A repeated event becomes a series, which is a patch.
    for _ in 0..2 {
        env.create(other.clone()).await;
        tokio::time::sleep(1.minutes()).await;
        env.delete::<At>("other").await;
    }
    operator.stop().await;

    let mut allowed = granted(include_str!("../../config/rbac/role.yaml"));
    // Some API servers require the first one themselves, and the recorder needs the second one only for repeated
    // events.
    assert!(allowed.remove("cnat.d2iq.com ats/finalizers update"));
    allowed.remove("events.k8s.io events patch");
    let mut needed = needed(&faults);
    needed.remove("events.k8s.io events patch");
    assert_eq!(needed, allowed);
}
