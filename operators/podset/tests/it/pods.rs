//! The ownership and number of pods, the order of deletions, and the rate of creations.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::{
    autoscaling::v1::Scale,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Error, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use kubewright::simulation::{
    Span,
    env::{History, TestEnv, assert_quiet, eventually},
};
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixtures::{First, Flavour, Second, active, env, reaches, reported, scale, stray};

// ANCHOR: kept
/// Scales from 3 to 5 to 2 pods, in every way available to users.
async fn is_kept_at_its_number<K: Flavour>() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(K::web(3)).await;
    reaches::<K>(&env, 3).await;
    let api = env.api::<K>();
    let patch = json!([{"op": "replace", "path": "/spec/replicas", "value": 5}]);
    let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
    api.patch("web", &PatchParams::default(), &patch).await.unwrap();
    let names = reaches::<K>(&env, 5).await;
    for name in &names {
        env.run_pod(name).await;
    }
    eventually("it is ready", async || reported::<K>(&env).await.1 == "True").await;

    let mut scaled: Scale = api.get_scale("web").await.unwrap();
    assert_eq!(scaled.status.as_ref().map(|status| status.replicas), Some(5));
    let selector: Vec<_> = K::labels().iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(scaled.status.as_ref().and_then(|status| status.selector.clone()), Some(selector.join(",")));
    scaled.spec.get_or_insert_default().replicas = Some(2);
    let params = PatchParams::default();
    api.patch_scale("web", &params, &Patch::Merge(json!({"spec": {"replicas": 2}}))).await.unwrap();
    let names = reaches::<K>(&env, 2).await;

    env.delete::<Pod>(&names[0]).await;
    let replaced = reaches::<K>(&env, 2).await;
    assert!(!replaced.contains(&names[0]));
    assert_quiet(&faults).await;
    env.delete::<K>("web").await;
    eventually("the pods are gone", async || env.pods().await.is_empty()).await;
    operator.stop().await;
}
// ANCHOR_END: kept

#[tokio::test(start_paused = true)]
async fn the_first_flavour_is_kept_at_its_number() {
    is_kept_at_its_number::<First>().await;
}

#[tokio::test(start_paused = true)]
async fn the_second_flavour_is_kept_at_its_number() {
    is_kept_at_its_number::<Second>().await;
}

#[tokio::test(start_paused = true)]
async fn both_flavours_of_one_name_keep_to_their_own() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(First::web(2)).await;
    env.create(Second::web(3)).await;
    let first = reaches::<First>(&env, 2).await;
    let second = reaches::<Second>(&env, 3).await;
    assert!(first.iter().all(|name| name.strip_prefix("web-").is_some_and(|suffix| suffix.len() == 12)), "{first:?}");
    assert!(second.iter().all(|name| name.strip_prefix("web-pod").is_some_and(|it| it.len() == 5)), "{second:?}");
    let generated = active::<Second>(&env).await;
    assert!(generated.iter().all(|pod| pod.metadata.generate_name.as_deref() == Some("web-pod")));
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_template_is_used_and_a_malformed_one_reported() {
    let env = env().await;
    let operator = env.start(&Faults::new());
    let mut set = Second::web(1);
    let template = json!({"spec": {"containers": "many"}});
    set.spec.template = Some(serde_json::from_value(template).unwrap());
    env.create(set).await;
    eventually("it is reported", async || reported::<Second>(&env).await.2 == "InvalidTemplate").await;
    let template = json!({
        "metadata": {"labels": {"tier": "front"}, "annotations": {"a": "b"}},
        "spec": {"containers": [{"name": "web", "image": "busybox", "command": ["httpd"]}]},
    });
    env.edit::<Second>("web", json!({"spec": {"template": template}})).await;
    let name = reaches::<Second>(&env, 1).await.remove(0);
    let pod: Pod = env.get(&name).await;
    assert_eq!((pod.labels()["tier"].as_str(), pod.labels()["app"].as_str()), ("front", "web"));
    assert_eq!(pod.spec.unwrap().containers[0].name, "web");
    operator.stop().await;
}

async fn a_matching_pod_of_another_controller<K: Flavour>() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    // A kind without a controller: a ReplicaSet would release pods that it doesn't select.
    let owner: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "other"}})).unwrap();
    let owner = env.create(owner).await.controller_owner_ref(&());
    let foreign = stray::<K>(&env, "foreign", json!([owner])).await;
    env.create(K::web(2)).await;
    assert!(!reaches::<K>(&env, 2).await.contains(&"foreign".to_owned()));
    scale::<K>(&env, 1).await;
    reaches::<K>(&env, 1).await;
    assert_quiet(&faults).await;
    assert_eq!(env.get::<Pod>("foreign").await.metadata, foreign.metadata);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_matching_pod_of_another_controller_is_left_alone() {
    a_matching_pod_of_another_controller::<First>().await;
    a_matching_pod_of_another_controller::<Second>().await;
}

#[tokio::test(start_paused = true)]
async fn a_matching_orphan_is_ignored() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let orphan = stray::<Second>(&env, "orphan", Value::Null).await;
    env.create(Second::web(2)).await;
    reaches::<Second>(&env, 2).await;
    scale::<Second>(&env, 1).await;
    reaches::<Second>(&env, 1).await;
    assert_quiet(&faults).await;
    assert_eq!(env.get::<Pod>("orphan").await.metadata, orphan.metadata);
    operator.stop().await;
}

async fn a_pod_that_loses_its_label<K: Flavour>() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(K::web(2)).await;
    let names = reaches::<K>(&env, 2).await;
    env.edit::<Pod>(&names[0], json!({"metadata": {"labels": {"app": "other"}}})).await;
    eventually("it is released", async || env.get::<Pod>(&names[0]).await.owner_references().is_empty()).await;
    let after = reaches::<K>(&env, 2).await;
    assert!(!after.contains(&names[0]) && after.contains(&names[1]));
    assert_quiet(&faults).await;
    env.delete::<K>("web").await;
    eventually("only the released pod stays", async || env.pods().await.len() == 1).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_loses_its_label_is_released_and_replaced() {
    a_pod_that_loses_its_label::<First>().await;
    a_pod_that_loses_its_label::<Second>().await;
}

/// A cache that sees pods a minute late causes no excess creation or deletion of pods.
async fn a_stale_cache<K: Flavour>() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Pod>(&env);
    faults.on(&[Verb::Watch], "pods").always().delay(1.minutes());
    let operator = env.start(&faults);
    env.create(K::web(4)).await;
    reaches::<K>(&env, 4).await;
    for replicas in [6, 3, 7] {
        scale::<K>(&env, replicas).await;
        sleep(Duration::from_secs(7)).await;
    }
    let mut most = 0;
    for _ in 0..300 {
        most = most.max(active::<K>(&env).await.len());
        sleep(Duration::from_secs(1)).await;
    }
    reaches::<K>(&env, 7).await;
    assert_eq!(most, 7);
    assert!(history.created() <= 4 + 2 + 4, "{}", history.created());
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stale_cache_never_creates_too_many_pods() {
    a_stale_cache::<First>().await;
    a_stale_cache::<Second>().await;
}

#[tokio::test(start_paused = true)]
async fn scale_down_deletes_unready_pods_then_the_newest() {
    let env = env().await;
    let operator = env.start(&Faults::new());
    env.create(First::web(0)).await;
    let mut ages: Vec<String> = Vec::new();
    for replicas in 1..=4 {
        scale::<First>(&env, replicas).await;
        let names = reaches::<First>(&env, usize::try_from(replicas).unwrap()).await;
        ages.extend(names.into_iter().find(|name| !ages.contains(name)));
        sleep(1.minutes()).await;
    }
    for name in [&ages[0], &ages[2], &ages[3]] {
        env.run_pod(name).await;
    }
    sleep(1.minutes()).await;
    for gone in [1, 3, 2] {
        let left = reaches::<First>(&env, active::<First>(&env).await.len()).await.len() - 1;
        scale::<First>(&env, i32::try_from(left).unwrap()).await;
        let names = reaches::<First>(&env, left).await;
        assert!(!names.contains(&ages[gone]), "{gone}");
    }
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replicas_out_of_range_are_refused() {
    async fn refused<K: Flavour>(env: &TestEnv, replicas: i64) {
        let mut set = serde_json::to_value(K::web(1)).unwrap();
        set["spec"]["replicas"] = replicas.into();
        let api = kube::Api::<kube::api::DynamicObject>::namespaced_with(
            env.client(),
            "default",
            &kube::api::ApiResource::erase::<K>(&()),
        );
        match api.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await {
            Err(Error::Api(status)) => {
                assert_eq!(status.code, 422);
                assert!(status.message.contains("spec.replicas"), "{}", status.message);
            }
            other => panic!("accepted: {other:?}"),
        }
    }
    let env = env().await;
    for replicas in [-1, 5001, i64::from(i32::MAX), i64::MAX] {
        refused::<First>(&env, replicas).await;
    }
    for replicas in [-1, 0, 11, i64::from(i32::MAX) + 1] {
        refused::<Second>(&env, replicas).await;
    }
    assert_eq!(env.create(Second::web(10)).await.spec.replicas, 10);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_pods_are_created_in_batches_that_stop_at_the_first_error() {
    let (env, faults) = (env().await, Faults::new());
    let refused = faults.on(&[Verb::Create], "pods").skip(20).always().refuse_with(403, "Forbidden", "exceeded quota");
    let operator = env.start(&faults);
    env.create(First::web(1000)).await;
    eventually("it is reported", async || reported::<First>(&env).await.2 == "PodRefused").await;
    // 1 + 2 + 4 + 8 were created, and the first five of the next sixteen.
    assert_eq!((active::<First>(&env).await.len(), refused.hits()), (20, 11));
    faults.clear();
    reaches::<First>(&env, 1000).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn ended_and_stuck_pods_are_replaced_once_and_their_number_is_bounded() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Pod>(&env);
    let operator = env.start(&faults);
    env.create(First::web(3)).await;
    let names = reaches::<First>(&env, 3).await;
    // One is stuck, one fails, one is evicted.
    env.edit::<Pod>(&names[0], json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    env.delete::<Pod>(&names[0]).await;
    env.end_pod(&names[1], 1).await;
    env.edit_status::<Pod>(&names[2], json!({"phase": "Failed", "reason": "Evicted"})).await;
    reaches::<First>(&env, 3).await;
    assert_quiet(&faults).await;
    assert_eq!(history.created(), 6);
    assert_eq!(env.pods().await.len(), 6);

    // However many pods end, three are kept in addition to the stuck one.
    for _ in 0..4 {
        for pod in active::<First>(&env).await {
            env.end_pod(&pod.name_any(), 0).await;
        }
        reaches::<First>(&env, 3).await;
    }
    assert_quiet(&faults).await;
    assert_eq!(env.pods().await.len(), 3 + 3 + 1);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_deleted_as_fast_as_they_appear_are_replaced_with_back_off() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Pod>(&env);
    let operator = env.start(&faults);
    env.create(First::web(3)).await;
    let end = env.now() + SignedDuration::from_hours(1);
    while env.now() < end {
        for pod in env.pods().await {
            env.delete::<Pod>(&pod.name_any()).await;
        }
        sleep(Duration::from_millis(500)).await;
    }
    let created = history.created();
    assert!((20..150).contains(&created), "{created}");
    assert!(faults.writes() < 4 * created, "{} writes for {created} pods", faults.writes());
    let events = env.events("web").await;
    assert!(events.iter().any(|event| event.starts_with("Warning BackOff")), "{events:?}");
    // After that, all pods exist soon.
    reaches::<First>(&env, 3).await;
    assert_quiet(&faults).await;
    operator.stop().await;
}
