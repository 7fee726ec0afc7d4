//! A missing, invalid or changed ConfigMap, and partially created children.

use guestbook_operator::api::v1::Guestbook;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::{
    Error,
    api::{ApiResource, DynamicObject, PostParams},
};
use kubewright::simulation::{
    Span,
    env::{TestEnv, assert_only_watches, assert_quiet, eventually},
};
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixtures::{alive, book, env, led, reaches, reason, reported, run_all, serves, status, three, words};

#[tokio::test(start_paused = true)]
async fn a_crash_between_the_service_and_the_pods_leaves_both() {
    let (env, faults) = (env().await, Faults::new());
    faults.on(&[Verb::Create], "pods").always().lose_request();
    let operator = env.start(&faults);
    env.create(book(2)).await;
    eventually("there is the Service", async || !env.list::<Service>().await.is_empty()).await;
    operator.kill().await;
    assert!(env.pods().await.is_empty());
    faults.clear();
    let operator = env.start(&faults);
    reaches(&env, 2).await;
    run_all(&env).await;
    reported(&env, "Ready", "PodsReady").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_child_does_not_block_the_other() {
    let (env, faults) = (env().await, Faults::new());
    let message = "services is forbidden: exceeded quota: small";
    let refused = faults.on(&[Verb::Create], "services").always().refuse_with(403, "Forbidden", message);
    let operator = env.start(&faults);
    env.create(book(2)).await;
    assert_eq!(reported(&env, "Serving", "ServiceRefused").await, message);
    reaches(&env, 2).await;
    run_all(&env).await;
    assert_eq!(reported(&env, "Ready", "ServiceRefused").await, message);
    sleep(60.minutes()).await;
    assert!((10..=300).contains(&refused.hits()), "{}", refused.hits());
    assert_eq!(status(&env).await.active, "");
    let events = env.events("book").await;
    assert_eq!(events, [format!("Warning ServiceRefused {message}")]);
    faults.clear();
    eventually("one serves", async || !status(&env).await.active.is_empty()).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_service_name_is_reported_with_the_servers_message() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let mut dotted = book(1);
    dotted.metadata.name = Some("the.book".into());
    env.create(dotted).await;
    let mut message = String::new();
    eventually("it is reported", async || {
        let status = env.get::<Guestbook>("the.book").await.status.unwrap_or_default();
        let serving = kubewright::condition::get(&status.conditions, "Serving").cloned();
        message = serving.filter(|it| it.reason == "ServiceRefused").map(|it| it.message).unwrap_or_default();
        !message.is_empty()
    })
    .await;
    assert!(message.contains("\"the.book\""), "{message}");
    assert_eq!(env.pods().await.len(), 1, "its pod is there all the same");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_config_map_is_reported_until_it_is_created() {
    let (env, faults) = (env().await, Faults::new());
    env.delete::<ConfigMap>("words").await;
    let operator = env.start(&faults);
    env.create(book(2)).await;
    let message = reported(&env, "Ready", "ConfigMapMissing").await;
    assert!(message.contains("\"words\""), "{message}");
    assert_quiet(&faults).await;
    assert!(env.pods().await.is_empty());
    env.create(words(json!({}))).await;
    let created = env.now();
    reaches(&env, 2).await;
    assert!(env.now().duration_since(created).as_secs() < 5, "it doesn't wait for a timer");
    assert_eq!(reason(&env, "Configured").await, "Found");
    let events = env.events("book").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].starts_with("Warning ConfigMapMissing"), "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_config_map_does_not_stop_running_pods() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let names = three(&env).await;
    env.delete::<ConfigMap>("words").await;
    reported(&env, "Configured", "ConfigMapMissing").await;
    assert_eq!(alive(&env).await, names);
    let active = serves(&env, &names).await;
    env.delete::<Pod>(&active).await;
    let second = serves(&env, &crate::fixtures::without(&names, &active)).await;
    assert_quiet(&faults).await;
    assert_eq!(alive(&env).await.len(), 2);
    env.create(words(json!({"title": "Ours"}))).await;
    reaches(&env, 3).await;
    run_all(&env).await;
    reported(&env, "Ready", "PodsReady").await;
    assert_eq!(status(&env).await.active, second, "the same texts are no reason to replace anything");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn large_and_binary_data_in_the_config_map_is_ignored() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let names = three(&env).await;
    let large =
        json!({"data": {"other": "x".repeat(900_000)}, "binaryData": {"photo": "/9j/4A==", "greeting": "/w=="}});
    env.edit::<ConfigMap>("words", large).await;
    assert_quiet(&faults).await;
    assert_eq!(reaches(&env, 3).await, names);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_text_is_reported_and_retried_only_after_an_edit() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let names = three(&env).await;
    env.edit::<ConfigMap>("words", json!({"data": {"title": "x".repeat(900_000)}})).await;
    let message = reported(&env, "Configured", "InvalidConfigMap").await;
    assert!(message.starts_with("\"title\" in ConfigMap \"words\" has more than 1024 bytes"), "{message}");
    assert_eq!(status(&env).await.conditions[0].observed_generation, Some(1));
    sleep(1.minutes()).await;
    faults.forget();
    sleep(60.minutes()).await;
    assert_only_watches(&faults);
    assert_eq!(reaches(&env, 3).await, names, "those that run are left alone");
    env.edit::<ConfigMap>("words", json!({"data": {"title": "short"}})).await;
    reported(&env, "Updated", "Rolling").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_config_map_wakes_nothing_and_another_name_is_followed() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(book(1)).await;
    let before = reaches(&env, 1).await;
    run_all(&env).await;
    reported(&env, "Ready", "PodsReady").await;
    env.edit::<Guestbook>("book", json!({"spec": {"configMapName": "others"}})).await;
    reported(&env, "Configured", "ConfigMapMissing").await;
    let mut others = words(json!({"title": "Others"}));
    others.metadata.name = Some("others".into());
    env.create(others).await;
    eventually("it has a successor", async || alive(&env).await.len() == 2).await;
    run_all(&env).await;
    eventually("that stays", async || alive(&env).await.len() == 1).await;
    assert_ne!(reaches(&env, 1).await, before);
    reported(&env, "Ready", "PodsReady").await;
    assert_quiet(&faults).await;
    env.edit::<ConfigMap>("words", json!({"data": {"title": "Nobody's"}})).await;
    assert_quiet(&faults).await;
    assert_eq!(led(&env).await, Some(reaches(&env, 1).await.remove(0)));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn specs_out_of_bounds_are_refused() {
    async fn refused(env: &TestEnv, patch: Value, field: &str) {
        let mut book = serde_json::to_value(book(1)).unwrap();
        for (key, value) in patch.as_object().unwrap() {
            book["spec"][key] = value.clone();
        }
        let api =
            kube::Api::<DynamicObject>::namespaced_with(env.client(), "default", &ApiResource::erase::<Guestbook>(&()));
        match api.create(&PostParams::default(), &serde_json::from_value(book).unwrap()).await {
            Err(Error::Api(status)) => {
                assert_eq!(status.code, 422);
                assert!(status.message.contains(field), "{}", status.message);
            }
            other => panic!("accepted: {other:?}"),
        }
    }
    let env = env().await;
    for size in [json!(0), json!(11), json!(-1), json!(i64::MAX), json!("3"), Value::Null] {
        refused(&env, json!({"size": size}), "spec.size").await;
    }
    for name in [json!(""), json!("sixteen-letters-"), Value::Null] {
        refused(&env, json!({"configMapName": name}), "spec.configMapName").await;
    }
    refused(&env, json!({"alias": "phone"}), "spec.alias").await;
    let plain = json!({"apiVersion": "webapp.my.domain/v1", "kind": "Guestbook", "metadata": {"name": "plain"}, "spec":
        {"size": 10, "configMapName": "fifteen-letters"}});
    let plain: Guestbook = env.create(serde_json::from_value(plain).unwrap()).await;
    assert_eq!(plain.spec.alias.as_str(), "Name");
}
