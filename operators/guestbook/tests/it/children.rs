//! Children that others edit or delete, and Services that belong to others.

use guestbook_operator::api::v1::Guestbook;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use kubewright::simulation::{
    Span,
    env::{assert_quiet, eventually},
};
use kubewright_cluster::{Pods, faults::Faults};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixtures::{
    alive, book, env, gone, led, reaches, reason, reported, run_all, serves, status, three, without, world_with,
};

#[tokio::test(start_paused = true)]
async fn server_defaults_are_kept() {
    let (env, faults) = (world_with(Pods::Simulate).await, Faults::new());
    let operator = env.start(&faults);
    env.create(book(3)).await;
    reported(&env, "Ready", "PodsReady").await;
    let address = |service: Service| service.spec.unwrap().cluster_ip.unwrap();
    let before = address(env.get("book").await);
    let active = status(&env).await.active;
    env.delete::<Pod>(&active).await;
    serves(&env, &without(&alive(&env).await, &active)).await;
    reported(&env, "Ready", "PodsReady").await;
    assert_eq!(address(env.get("book").await), before);
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn fields_of_other_managers_are_not_overwritten() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let names = three(&env).await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "book", "labels": {"team": "web"}, "annotations": {"example.com/owner": "web"}},
        "spec": {"type": "NodePort", "sessionAffinity": "ClientIP", "ports": [{"port": 9090, "name": "metrics"}]},
    });
    env.api::<Service>().patch("book", &PatchParams::apply("web-team").force(), &Patch::Apply(theirs)).await.unwrap();
    env.edit::<Pod>(&names[0], json!({"metadata": {"labels": {"team": "web"}}})).await;
    assert_quiet(&faults).await;
    // A takeover keeps their fields, too.
    let active = serves(&env, &names).await;
    env.delete::<Pod>(&active).await;
    serves(&env, &without(&names, &active)).await;
    let service = env.get::<Service>("book").await;
    let spec = service.spec.clone().unwrap();
    assert_eq!((spec.type_.as_deref(), spec.session_affinity.as_deref()), (Some("NodePort"), Some("ClientIP")));
    assert_eq!((spec.ports.unwrap().len(), service.labels()["team"].as_str()), (2, "web"));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_contested_service_is_written_with_back_off() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let names = three(&env).await;
    let active = serves(&env, &names).await;
    faults.forget();
    for _ in 0..900 {
        let selector = json!({"spec": {"selector": {"app": "other"}}});
        env.api::<Service>().patch("book", &PatchParams::default(), &Patch::Merge(selector)).await.unwrap();
        sleep(std::time::Duration::from_secs(1)).await;
    }
    let seen = faults.requests().into_iter().filter(|seen| seen.request.resource == "services");
    let written = seen.filter(|seen| seen.request.verb.is_write()).count();
    assert!((10..30).contains(&written), "{written}");
    reported(&env, "Serving", "ServiceContended").await;
    assert_eq!(serves(&env, &names).await, active);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_edited_or_deleted_service_is_restored() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let names = three(&env).await;
    let active = serves(&env, &names).await;
    let edits = [
        json!({"spec": {"selector": {"app": "other", "webapp.my.domain/pod": null}}}),
        json!({"spec": {"selector": {"webapp.my.domain/pod": "nobody"}}}),
        json!({"spec": {"ports": [{"port": 80, "name": "http", "targetPort": 9999}]}}),
        json!({"metadata": {"labels": null}}),
    ];
    let essence = |service: Service| {
        let spec = service.spec.clone().unwrap();
        (spec.selector, spec.ports, service.metadata.labels)
    };
    for edit in edits {
        // Without the name of a pod, the oldest one is chosen, which is the first by name here.
        env.edit::<Service>("book", edit.clone()).await;
        let is_whole = async || {
            let (selector, ports, labels) = essence(env.get("book").await);
            let led = selector.unwrap();
            led.len() == 3
                && names.contains(&led["webapp.my.domain/pod"])
                && ports.unwrap()[0].target_port == serde_json::from_value(json!("http")).unwrap()
                && labels.unwrap_or_default().len() == 2
        };
        eventually(&format!("it is restored after {edit}"), is_whole).await;
    }
    env.delete::<Service>("book").await;
    eventually("it is restored", async || led(&env).await.is_some_and(|pod| names.contains(&pod))).await;
    assert!(names.contains(&active));
    // The new Service may have another address, which the pods need.
    eventually("all are up to date again", async || {
        run_all(&env).await;
        reason(&env, "Updated").await == "UpToDate" && reason(&env, "Ready").await == "PodsReady"
    })
    .await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn edited_pods_are_restored_or_replaced() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let names = three(&env).await;
    let labels = env.get::<Pod>(&names[0]).await.labels().clone();
    env.edit::<Pod>(&names[0], json!({"metadata": {"labels": null}})).await;
    eventually("it has its labels again", async || *env.get::<Pod>(&names[0]).await.labels() == labels).await;
    assert_eq!(reaches(&env, 3).await, names);

    let standby = without(&names, &status(&env).await.active).remove(0);
    let edited = json!({"spec": {"containers": [{"name": "guestbook", "image": "nginx"}]}});
    env.api::<Pod>().patch(&standby, &PatchParams::default(), &Patch::Strategic(edited)).await.unwrap();
    eventually("it is replaced", async || !reaches(&env, 3).await.contains(&standby)).await;
    run_all(&env).await;
    reported(&env, "Ready", "PodsReady").await;

    // Without its owner reference it no longer belongs to the Guestbook, though it has the labels.
    let active = status(&env).await.active;
    env.edit::<Pod>(&active, json!({"metadata": {"ownerReferences": null}})).await;
    eventually("another serves", async || ![active.as_str(), ""].contains(&status(&env).await.active.as_str())).await;
    assert_eq!(reaches(&env, 3).await.len(), 3);
    env.get::<Pod>(&active).await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_service_is_never_taken_over() {
    let (env, faults) = (env().await, Faults::new());
    let theirs =
        json!({"metadata": {"name": "book"}, "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]}});
    let theirs: Service = env.create(serde_json::from_value(theirs).unwrap()).await;
    let operator = env.start(&faults);
    env.create(book(2)).await;
    reaches(&env, 2).await;
    run_all(&env).await;
    let message = reported(&env, "Ready", "NameConflict").await;
    assert!(message.starts_with("services default/book exists and is controlled by nobody"), "{message}");
    assert_quiet(&faults).await;
    assert_eq!(env.get::<Service>("book").await, theirs);
    let now = status(&env).await;
    assert_eq!((now.active.as_str(), now.ready_replicas), ("", 2));

    env.delete::<Service>("book").await;
    eventually("one serves", async || !status(&env).await.active.is_empty()).await;
    // Also a Service whose owner has the same name but another UID.
    env.delete::<Guestbook>("book").await;
    gone(&env).await;
    let stranger = json!({"apiVersion": "webapp.my.domain/v1", "kind": "Guestbook", "name": "book", "uid": "another",
        "controller": true, "blockOwnerDeletion": true});
    let held: Value = json!({"metadata": {"name": "book", "ownerReferences": [stranger], "finalizers": ["example.com/hold"]},
        "spec": {"ports": [{"port": 80}]}});
    env.create(serde_json::from_value::<Service>(held).unwrap()).await;
    env.create(book(1)).await;
    let message = reported(&env, "Serving", "NameConflict").await;
    assert!(message.contains("is controlled by Guestbook book"), "{message}");
    sleep(5.minutes()).await;
    assert_eq!(led(&env).await, None);
    operator.stop().await;
}
