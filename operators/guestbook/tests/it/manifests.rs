//! The files under `config`.

use guestbook_operator::api::v1::{Alias, Guestbook};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kubewright::simulation::env::{eventually, granted, needed};
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::json;

use crate::fixtures::{env, reaches, reported, run_all, serves, three, without};

#[test]
fn the_sample_matches_the_source_and_has_texts_and_standbys() {
    let sample = include_str!("../../config/samples/webapp_v1_guestbook.yaml");
    let (texts, guestbook) = sample.split_once("---\n").unwrap();
    let texts: ConfigMap = serde_saphyr::from_str(texts).unwrap();
    assert_eq!(texts.data.unwrap().into_keys().collect::<Vec<_>>(), ["greeting", "title"]);
    let guestbook: Guestbook = serde_saphyr::from_str(guestbook).unwrap();
    assert_eq!((guestbook.spec.config_map_name, guestbook.spec.alias), (texts.metadata.name.unwrap(), Alias::Address));
    assert!(guestbook.spec.size > 1);
}

#[tokio::test(start_paused = true)]
async fn the_role_allows_what_is_used_and_no_more() {
    let (env, faults) = (env().await, Faults::new());
    // After a lost answer the create is repeated, and the existing pod is read.
    faults.on(&[Verb::Create], "pods").lose_response();
    let operator = env.start(&faults);
    let names = three(&env).await;
    env.edit::<Pod>(&names[0], json!({"metadata": {"labels": null}})).await;
    eventually("it has its labels again", async || env.get::<Pod>(&names[0]).await.metadata.labels.is_some()).await;
    let first = serves(&env, &names).await;
    env.end_pod(&first, 1).await;
    serves(&env, &without(&names, &first)).await;
    reaches(&env, 3).await;
    run_all(&env).await;
    reported(&env, "Ready", "PodsReady").await;
    operator.stop().await;

    let mut allowed = granted(include_str!("../../config/rbac/role.yaml"));
    // Some API servers require the first one themselves, and the recorder needs the second one only for repeated
    // events.
    for unused in ["webapp.my.domain guestbooks/finalizers update", "events.k8s.io events patch"] {
        assert!(allowed.remove(unused), "{unused}");
    }
    assert_eq!(needed(&faults), allowed);
}
