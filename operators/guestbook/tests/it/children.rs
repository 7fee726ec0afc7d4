//! Rows 42 to 45: what others write to the children, and Services that aren't the Guestbook's.

use guestbook_operator::api::v1::Guestbook;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use kubewright_cluster::{Pods, faults::Faults};
use operator_kit::{assert_quiet, eventually, minutes};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::scene::{
    alive, book, gone, led, reaches, reason, run_all, serves, status, three, told, without, world, world_with,
};

#[tokio::test(start_paused = true)]
async fn row_42_fields_that_the_server_decides_stay_as_they_are() {
    let (world, faults) = (world_with(Pods::Simulate).await, Faults::new());
    let operator = world.start(&faults);
    world.create(book(3)).await;
    told(&world, "Ready", "PodsReady").await;
    let address = |service: Service| service.spec.unwrap().cluster_ip.unwrap();
    let before = address(world.get("book").await);
    let active = status(&world).await.active;
    world.delete::<Pod>(&active).await;
    serves(&world, &without(&alive(&world).await, &active)).await;
    told(&world, "Ready", "PodsReady").await;
    assert_eq!(address(world.get("book").await), before);
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_44_what_other_managers_decide_is_not_fought() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let names = three(&world).await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "book", "labels": {"team": "web"}, "annotations": {"example.com/owner": "web"}},
        "spec": {"type": "NodePort", "sessionAffinity": "ClientIP", "ports": [{"port": 9090, "name": "metrics"}]},
    });
    world.api::<Service>().patch("book", &PatchParams::apply("web-team").force(), &Patch::Apply(theirs)).await.unwrap();
    world.edit::<Pod>(&names[0], json!({"metadata": {"labels": {"team": "web"}}})).await;
    assert_quiet(&faults).await;
    // Nor by a takeover.
    let active = serves(&world, &names).await;
    world.delete::<Pod>(&active).await;
    serves(&world, &without(&names, &active)).await;
    let service = world.get::<Service>("book").await;
    let spec = service.spec.clone().unwrap();
    assert_eq!((spec.type_.as_deref(), spec.session_affinity.as_deref()), (Some("NodePort"), Some("ClientIP")));
    assert_eq!((spec.ports.unwrap().len(), service.labels()["team"].as_str()), (2, "web"));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_44_a_service_that_is_changed_back_again_and_again_is_written_ever_more_slowly() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let names = three(&world).await;
    let active = serves(&world, &names).await;
    faults.forget();
    for _ in 0..900 {
        let selector = json!({"spec": {"selector": {"app": "other"}}});
        world.api::<Service>().patch("book", &PatchParams::default(), &Patch::Merge(selector)).await.unwrap();
        sleep(std::time::Duration::from_secs(1)).await;
    }
    let seen = faults.seen().into_iter().filter(|seen| seen.request.resource == "services");
    let written = seen.filter(|seen| seen.request.verb.is_write()).count();
    assert!((10..30).contains(&written), "{written}");
    told(&world, "Serving", "ServiceContended").await;
    assert_eq!(serves(&world, &names).await, active);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_45_a_service_that_is_edited_or_deleted_is_restored() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let names = three(&world).await;
    let active = serves(&world, &names).await;
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
        // Without the name of a pod it begins with the oldest: names are its order here.
        world.edit::<Service>("book", edit.clone()).await;
        let is_whole = async || {
            let (selector, ports, labels) = essence(world.get("book").await);
            let led = selector.unwrap();
            led.len() == 3
                && names.contains(&led["webapp.my.domain/pod"])
                && ports.unwrap()[0].target_port == serde_json::from_value(json!("http")).unwrap()
                && labels.unwrap_or_default().len() == 2
        };
        eventually(&format!("it is restored after {edit}"), is_whole).await;
    }
    world.delete::<Service>("book").await;
    eventually("it is restored", async || led(&world).await.is_some_and(|pod| names.contains(&pod))).await;
    assert!(names.contains(&active));
    // The new Service may have another address, of which the pods are to know.
    eventually("all are up to date again", async || {
        run_all(&world).await;
        reason(&world, "Updated").await == "UpToDate" && reason(&world, "Ready").await == "PodsReady"
    })
    .await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_43_and_45_pods_that_are_edited_are_restored_or_replaced() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let names = three(&world).await;
    let labels = world.get::<Pod>(&names[0]).await.labels().clone();
    world.edit::<Pod>(&names[0], json!({"metadata": {"labels": null}})).await;
    eventually("it has its labels again", async || *world.get::<Pod>(&names[0]).await.labels() == labels).await;
    assert_eq!(reaches(&world, 3).await, names);

    let standby = without(&names, &status(&world).await.active).remove(0);
    let edited = json!({"spec": {"containers": [{"name": "guestbook", "image": "nginx"}]}});
    world.api::<Pod>().patch(&standby, &PatchParams::default(), &Patch::Strategic(edited)).await.unwrap();
    eventually("it is replaced", async || !reaches(&world, 3).await.contains(&standby)).await;
    run_all(&world).await;
    told(&world, "Ready", "PodsReady").await;

    // Without its owner it is no longer the Guestbook's, though it has the labels.
    let active = status(&world).await.active;
    world.edit::<Pod>(&active, json!({"metadata": {"ownerReferences": null}})).await;
    eventually("another serves", async || ![active.as_str(), ""].contains(&status(&world).await.active.as_str())).await;
    assert_eq!(reaches(&world, 3).await.len(), 3);
    world.get::<Pod>(&active).await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_45_a_service_that_is_anothers_is_never_taken_over() {
    let (world, faults) = (world().await, Faults::new());
    let theirs =
        json!({"metadata": {"name": "book"}, "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]}});
    let theirs: Service = world.create(serde_json::from_value(theirs).unwrap()).await;
    let operator = world.start(&faults);
    world.create(book(2)).await;
    reaches(&world, 2).await;
    run_all(&world).await;
    let message = told(&world, "Ready", "NameConflict").await;
    assert!(message.starts_with("services default/book exists already, and is controlled by nobody"), "{message}");
    assert_quiet(&faults).await;
    assert_eq!(world.get::<Service>("book").await, theirs);
    let now = status(&world).await;
    assert_eq!((now.active.as_str(), now.ready_replicas), ("", 2));

    world.delete::<Service>("book").await;
    eventually("one serves", async || !status(&world).await.active.is_empty()).await;
    // Also one that has its owner's name, and not its UID.
    world.delete::<Guestbook>("book").await;
    gone(&world).await;
    let stranger = json!({"apiVersion": "webapp.my.domain/v1", "kind": "Guestbook", "name": "book", "uid": "another",
        "controller": true, "blockOwnerDeletion": true});
    let held: Value = json!({"metadata": {"name": "book", "ownerReferences": [stranger], "finalizers": ["example.com/hold"]},
        "spec": {"ports": [{"port": 80}]}});
    world.create(serde_json::from_value::<Service>(held).unwrap()).await;
    world.create(book(1)).await;
    let message = told(&world, "Serving", "NameConflict").await;
    assert!(message.contains("is controlled by Guestbook book"), "{message}");
    sleep(minutes(5)).await;
    assert_eq!(led(&world).await, None);
    operator.stop().await;
}
