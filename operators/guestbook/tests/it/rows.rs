//! Rows 11, 41 and 47: the texts are not there, or not to be used, and children that are half there.

use guestbook_operator::api::v1::Guestbook;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::{
    Error,
    api::{ApiResource, DynamicObject, PostParams},
};
use kubewright_cluster::faults::{Faults, Verb};
use operator_kit::{World, assert_quiet, eventually, minutes};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::scene::{alive, book, led, reaches, reason, run_all, serves, status, three, told, words, world};

#[tokio::test(start_paused = true)]
async fn row_41_a_crash_between_the_service_and_the_pods_leaves_both() {
    let (world, faults) = (world().await, Faults::new());
    faults.on(&[Verb::Create], "pods").always().lose_request();
    let operator = world.start(&faults);
    world.create(book(2)).await;
    eventually("there is the Service", async || !world.list::<Service>().await.is_empty()).await;
    operator.kill().await;
    assert!(world.pods().await.is_empty());
    faults.clear();
    let operator = world.start(&faults);
    reaches(&world, 2).await;
    run_all(&world).await;
    told(&world, "Ready", "PodsReady").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_14_and_41_what_is_refused_of_one_child_does_not_hold_up_the_other() {
    let (world, faults) = (world().await, Faults::new());
    let message = "services is forbidden: exceeded quota: small";
    let refused = faults.on(&[Verb::Create], "services").always().refuse_with(403, "Forbidden", message);
    let operator = world.start(&faults);
    world.create(book(2)).await;
    assert_eq!(told(&world, "Serving", "ServiceRefused").await, message);
    reaches(&world, 2).await;
    run_all(&world).await;
    assert_eq!(told(&world, "Ready", "ServiceRefused").await, message);
    sleep(minutes(60)).await;
    assert!((10..=300).contains(&refused.hits()), "{}", refused.hits());
    assert_eq!(status(&world).await.active, "");
    let events = world.events("book").await;
    assert_eq!(events, [format!("Warning ServiceRefused {message}")]);
    faults.clear();
    eventually("one serves", async || !status(&world).await.active.is_empty()).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_service_can_have_is_told_in_the_servers_words() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let mut dotted = book(1);
    dotted.metadata.name = Some("the.book".into());
    world.create(dotted).await;
    let mut message = String::new();
    eventually("it is told", async || {
        let status = world.get::<Guestbook>("the.book").await.status.unwrap_or_default();
        let serving = kubewright::condition::get(&status.conditions, "Serving").cloned();
        message = serving.filter(|it| it.reason == "ServiceRefused").map(|it| it.message).unwrap_or_default();
        !message.is_empty()
    })
    .await;
    assert!(message.contains("\"the.book\""), "{message}");
    assert_eq!(world.pods().await.len(), 1, "its pod is there all the same");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_47_missing_texts_are_told_and_wake_it_when_they_come() {
    let (world, faults) = (world().await, Faults::new());
    world.delete::<ConfigMap>("words").await;
    let operator = world.start(&faults);
    world.create(book(2)).await;
    let message = told(&world, "Ready", "ConfigMapMissing").await;
    assert!(message.contains("\"words\""), "{message}");
    assert_quiet(&faults).await;
    assert!(world.pods().await.is_empty());
    world.create(words(json!({}))).await;
    let created = world.now();
    reaches(&world, 2).await;
    assert!(world.now().duration_since(created).as_secs() < 5, "it doesn't wait for a timer");
    assert_eq!(reason(&world, "Configured").await, "Found");
    let events = world.events("book").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].starts_with("Warning ConfigMapMissing"), "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_47_lost_texts_stop_nothing_that_runs() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let names = three(&world).await;
    world.delete::<ConfigMap>("words").await;
    told(&world, "Configured", "ConfigMapMissing").await;
    assert_eq!(alive(&world).await, names);
    let active = serves(&world, &names).await;
    world.delete::<Pod>(&active).await;
    let second = serves(&world, &crate::scene::without(&names, &active)).await;
    assert_quiet(&faults).await;
    assert_eq!(alive(&world).await.len(), 2);
    world.create(words(json!({"title": "Ours"}))).await;
    reaches(&world, 3).await;
    run_all(&world).await;
    told(&world, "Ready", "PodsReady").await;
    assert_eq!(status(&world).await.active, second, "the same texts are no reason to replace anything");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_47_large_and_binary_data_beside_the_texts_do_not_matter() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let names = three(&world).await;
    let large =
        json!({"data": {"other": "x".repeat(900_000)}, "binaryData": {"photo": "/9j/4A==", "greeting": "/w=="}});
    world.edit::<ConfigMap>("words", large).await;
    assert_quiet(&faults).await;
    assert_eq!(reaches(&world, 3).await, names);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_11_and_47_a_text_that_no_program_takes_is_told_not_retried_and_an_edit_wakes() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let names = three(&world).await;
    world.edit::<ConfigMap>("words", json!({"data": {"title": "x".repeat(900_000)}})).await;
    let message = told(&world, "Configured", "InvalidConfigMap").await;
    assert!(message.starts_with("\"title\" in ConfigMap \"words\" has more than 1024 bytes"), "{message}");
    assert_eq!(status(&world).await.conditions[0].observed_generation, Some(1));
    sleep(minutes(1)).await;
    faults.forget();
    sleep(minutes(60)).await;
    assert!(faults.seen().iter().all(|seen| seen.request.verb == Verb::Watch));
    assert_eq!(reaches(&world, 3).await, names, "those that run are left alone");
    world.edit::<ConfigMap>("words", json!({"data": {"title": "short"}})).await;
    told(&world, "Updated", "Rolling").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_config_map_wakes_nothing_and_another_name_is_followed() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(book(1)).await;
    let before = reaches(&world, 1).await;
    run_all(&world).await;
    told(&world, "Ready", "PodsReady").await;
    world.edit::<Guestbook>("book", json!({"spec": {"configMapName": "others"}})).await;
    told(&world, "Configured", "ConfigMapMissing").await;
    let mut others = words(json!({"title": "Others"}));
    others.metadata.name = Some("others".into());
    world.create(others).await;
    eventually("it has a successor", async || alive(&world).await.len() == 2).await;
    run_all(&world).await;
    eventually("that stays", async || alive(&world).await.len() == 1).await;
    assert_ne!(reaches(&world, 1).await, before);
    told(&world, "Ready", "PodsReady").await;
    assert_quiet(&faults).await;
    world.edit::<ConfigMap>("words", json!({"data": {"title": "Nobody's"}})).await;
    assert_quiet(&faults).await;
    assert_eq!(led(&world).await, Some(reaches(&world, 1).await.remove(0)));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn specs_out_of_bounds_are_refused() {
    async fn refused(world: &World, patch: Value, field: &str) {
        let mut book = serde_json::to_value(book(1)).unwrap();
        for (key, value) in patch.as_object().unwrap() {
            book["spec"][key] = value.clone();
        }
        let api = kube::Api::<DynamicObject>::namespaced_with(
            world.client(),
            "default",
            &ApiResource::erase::<Guestbook>(&()),
        );
        match api.create(&PostParams::default(), &serde_json::from_value(book).unwrap()).await {
            Err(Error::Api(status)) => {
                assert_eq!(status.code, 422);
                assert!(status.message.contains(field), "{}", status.message);
            }
            other => panic!("accepted: {other:?}"),
        }
    }
    let world = world().await;
    for size in [json!(0), json!(11), json!(-1), json!(i64::MAX), json!("3"), Value::Null] {
        refused(&world, json!({"size": size}), "spec.size").await;
    }
    for name in [json!(""), json!("sixteen-letters-"), Value::Null] {
        refused(&world, json!({"configMapName": name}), "spec.configMapName").await;
    }
    refused(&world, json!({"alias": "phone"}), "spec.alias").await;
    let plain = json!({"apiVersion": "webapp.my.domain/v1", "kind": "Guestbook", "metadata": {"name": "plain"}, "spec":
        {"size": 10, "configMapName": "fifteen-letters"}});
    let plain: Guestbook = world.create(serde_json::from_value(plain).unwrap()).await;
    assert_eq!(plain.spec.alias.as_str(), "Name");
}
