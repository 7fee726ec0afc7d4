//! Rows 41 to 46, and what else is particular to a Lolcow.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use kubewright_cluster::faults::{Faults, Verb};
use lolcow_operator::api::v1alpha1::Lolcow;
use operator_kit::{Object, World, assert_quiet, eventually, go_wrong_everywhere, minutes};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::scene::{
    GREETING, NAME, args, assert_both, cow, deployment, edit, foreign, message, node_port, reaches, sample, serves,
    service, status, told, world,
};

/// Another manager applies a part of a child.
async fn applies<K: Object>(world: &World, manager: &str, object: Value) {
    let params = PatchParams::apply(manager).force();
    world.api::<K>().patch(NAME, &params, &Patch::Apply(object)).await.unwrap();
}

/// A part of a Deployment that says this of its container.
fn in_container(mut container: Value) -> Value {
    container["name"] = "lolcow".into();
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": {"containers": [container]}}}})
}

/// As an editor leaves it: a merge patch has the whole list.
fn edited() -> Value {
    in_container(json!({"image": "busybox"}))
}

/// The same event again is a series, and the end of a series is written after some minutes.
async fn series_end() {
    sleep(minutes(15)).await;
}

fn image_of(deployment: &Deployment) -> String {
    let pod = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    pod.containers[0].image.clone().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn row_41_mishap_between_the_children_leaves_both() {
    let writes = go_wrong_everywhere(world, async |world| {
        world.create(sample()).await;
        eventually("both are there", async || {
            let deployment = world.api::<Deployment>().get_opt(NAME).await.unwrap();
            deployment.is_some() && world.api::<Service>().get_opt(NAME).await.unwrap().is_some()
        })
        .await;
        serves(world).await;
        assert_both(world).await;
    })
    .await;
    // Both children and two statuses.
    assert!(writes >= 4, "{writes} writes");
}

#[tokio::test(start_paused = true)]
async fn row_42_what_the_server_gives_is_kept() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(cow(None, Some(GREETING))).await;
    let told = serves(&world).await;
    let before = service(&world).await;
    assert_eq!(told.url, Some(format!("http://127.0.0.1:{}", node_port(&before))));
    assert_quiet(&faults).await;
    edit(&world, json!({"greeting": "Moo"})).await;
    serves(&world).await;
    assert_eq!(service(&world).await.metadata.resource_version, before.metadata.resource_version);
    let given = node_port(&before);
    edit(&world, json!({"port": 30999})).await;
    serves(&world).await;
    let after = service(&world).await;
    assert_eq!(node_port(&after), 30999);
    assert_eq!(after.spec.as_ref().unwrap().cluster_ip, before.spec.as_ref().unwrap().cluster_ip);
    // A port that is no longer asked for stays as well.
    edit(&world, json!({"port": null})).await;
    serves(&world).await;
    assert_eq!(node_port(&service(&world).await), 30999);
    assert_ne!(given, 30999);
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_43_a_field_that_cannot_change_is_told_and_a_deletion_mends_it() {
    let (world, faults) = (world().await, Faults::new());
    let cow = world.create(sample()).await;
    let labels = json!({"app": "old"});
    let container = json!({"name": "lolcow", "image": "ghcr.io/vsoch/lolcow-operator"});
    let owner = json!({"apiVersion": "my.domain/v1alpha1", "kind": "Lolcow", "name": NAME, "uid": cow.uid(),
        "controller": true, "blockOwnerDeletion": true});
    let old = json!({
        "metadata": {"name": NAME, "ownerReferences": [owner]},
        "spec": {"selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
    });
    world.create(serde_json::from_value::<Deployment>(old).unwrap()).await;
    let operator = world.start(&faults);
    let told = reaches(&world, "DeploymentApplied", "False Refused").await;
    assert!(message(&told, "DeploymentApplied").contains("field is immutable"), "{told:?}");
    assert_eq!(super::scene::told(&told, "ServiceApplied"), "True Applied");
    sleep(minutes(5)).await;
    faults.forget();
    sleep(minutes(60)).await;
    // Every half a minute: without force, and with it.
    assert!(faults.writes() <= 250, "{} writes in an hour", faults.writes());
    let events = world.events(NAME).await;
    assert_eq!(events.iter().filter(|it| it.starts_with("Warning DeploymentRefused")).count(), 1, "{events:?}");
    world.delete::<Deployment>(NAME).await;
    serves(&world).await;
    assert_both(&world).await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_44_replicas_are_others_business() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(sample()).await;
    serves(&world).await;
    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    world.api::<Deployment>().patch_scale(NAME, &PatchParams::default(), &scale).await.unwrap();
    eventually("three are ready", async || status(&world.get::<Lolcow>(NAME).await).ready_replicas == 3).await;
    edit(&world, json!({"greeting": "Moo"})).await;
    assert_eq!(serves(&world).await.ready_replicas, 3);
    let replicas = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 0}});
    applies::<Deployment>(&world, "autoscaler", replicas).await;
    reaches(&world, "Ready", "False ScaledToZero").await;
    series_end().await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_44_what_another_manager_applies_is_left_and_named() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(sample()).await;
    serves(&world).await;
    applies::<Deployment>(&world, "announcer", in_container(json!({"args": ["Mee"]}))).await;
    let told = reaches(&world, "DeploymentApplied", "False FieldConflict").await;
    let said = message(&told, "DeploymentApplied");
    assert!(said.contains("\"announcer\"") && said.contains(".args"), "{said}");
    assert_eq!(super::scene::told(&told, "Ready"), "False DeploymentFieldConflict");
    sleep(minutes(30)).await;
    assert_eq!(args(&deployment(&world).await), ["Mee"]);
    // The other child goes on, and once the claim is gone this one does.
    edit(&world, json!({"port": 30686})).await;
    eventually("the service moves", async || node_port(&service(&world).await) == 30686).await;
    applies::<Deployment>(&world, "announcer", json!({"apiVersion": "apps/v1", "kind": "Deployment"})).await;
    serves(&world).await;
    assert_eq!(args(&deployment(&world).await), [GREETING]);
    let events = world.events(NAME).await;
    let conflicts = events.iter().filter(|event| event.starts_with("Warning DeploymentFieldConflict"));
    assert_eq!(conflicts.count(), 1, "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_44_whoever_insists_by_updates_is_not_fought_for_ever() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(sample()).await;
    serves(&world).await;
    let mut edits = 0;
    for _ in 0..720 {
        if image_of(&deployment(&world).await) != "busybox" {
            world.edit::<Deployment>(NAME, edited()).await;
            edits += 1;
        }
        sleep(Duration::from_secs(5)).await;
    }
    assert!((5..=40).contains(&edits), "{edits} edits in an hour");
    reaches(&world, "DeploymentApplied", "False FieldConflict").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_45_what_is_deleted_or_edited_is_restored() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(sample()).await;
    serves(&world).await;
    world.delete::<Service>(NAME).await;
    eventually("the service is back", async || world.api::<Service>().get_opt(NAME).await.unwrap().is_some()).await;
    world.delete::<Deployment>(NAME).await;
    eventually("the deployment is back", async || {
        world
            .api::<Deployment>()
            .get_opt(NAME)
            .await
            .unwrap()
            .is_some_and(|it| it.metadata.deletion_timestamp.is_none())
    })
    .await;
    serves(&world).await;

    world.edit::<Deployment>(NAME, edited()).await;
    let wrong = json!([{"name": "http", "protocol": "TCP", "port": 8080, "targetPort": 9090, "nodePort": 31000}]);
    world.edit::<Service>(NAME, json!({"spec": {"ports": wrong, "selector": {"app": "other"}}})).await;
    eventually("both are restored", async || {
        let service = service(&world).await;
        let selector = service.spec.as_ref().unwrap().selector.clone().unwrap();
        image_of(&deployment(&world).await) != "busybox"
            && node_port(&service) == 30685
            && !selector.contains_key("app")
    })
    .await;
    serves(&world).await;
    assert_both(&world).await;
    let events = world.events(NAME).await;
    assert!(events.iter().any(|it| it.starts_with("Warning Restored deployment: took back .spec")), "{events:?}");
    assert!(events.iter().any(|it| it.starts_with("Warning Restored service: took back .spec")), "{events:?}");
    series_end().await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_45_what_is_not_ours_is_never_taken_over() {
    let (world, faults) = (world().await, Faults::new());
    let before = world.create(foreign(NAME, None)).await;
    let operator = world.start(&faults);
    world.create(sample()).await;
    let told = reaches(&world, "ServiceApplied", "False NameConflict").await;
    assert_eq!(
        message(&told, "ServiceApplied"),
        "service \"lolcow-pod\" exists and has no controller: it is left alone"
    );
    assert_eq!(super::scene::told(&told, "Ready"), "False ServiceNameConflict");
    assert_eq!(told.url, None);
    eventually("the deployment goes on", async || status(&world.get::<Lolcow>(NAME).await).ready_replicas == 1).await;
    assert_quiet(&faults).await;
    assert_eq!(service(&world).await, before);
    world.delete::<Service>(NAME).await;
    serves(&world).await;
    assert_both(&world).await;
    let events = world.events(NAME).await;
    assert_eq!(events.iter().filter(|it| it.starts_with("Warning ServiceNameConflict")).count(), 1, "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_45_one_that_appears_just_then_is_not_taken_over_either() {
    let (world, faults) = (world().await, Faults::new());
    let gate = faults.on(&[Verb::Patch], "services").hold();
    let operator = world.start(&faults);
    world.create(sample()).await;
    eventually("the apply is under way", async || {
        faults.seen().iter().any(|seen| seen.request.resource == "services" && seen.request.verb == Verb::Patch)
    })
    .await;
    let before = world.create(foreign(NAME, None)).await;
    gate.open();
    reaches(&world, "ServiceApplied", "False NameConflict").await;
    assert_eq!(service(&world).await, before);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_46_a_port_that_is_taken_or_out_of_range_is_told_in_the_servers_words() {
    let (world, faults) = (world().await, Faults::new());
    let other = world.create(foreign("other", Some(30686))).await;
    let operator = world.start(&faults);
    world.create(sample()).await;
    serves(&world).await;
    for (port, words) in [
        (30686, "provided port is already allocated"),
        (80, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
        (-1, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
        (i32::MAX, "provided port is not in the valid range"),
    ] {
        // A new greeting is served all the same, at the old port.
        edit(&world, json!({"port": port, "greeting": format!("Not at {port}")})).await;
        let told = reaches(&world, "ServiceApplied", "False Refused").await;
        assert!(message(&told, "ServiceApplied").contains(words), "{port}: {told:?}");
        let told = reaches(&world, "Progressing", "False RolledOut").await;
        assert_eq!(super::scene::told(&told, "DeploymentApplied"), "True Applied");
        assert_eq!(super::scene::told(&told, "Ready"), "False ServiceRefused");
        assert_eq!(told.url.as_deref(), Some("http://127.0.0.1:30685"));
        assert_eq!(args(&deployment(&world).await), [format!("Not at {port}")]);
    }
    // The port becomes free.
    edit(&world, json!({"port": 30686})).await;
    reaches(&world, "ServiceApplied", "False Refused").await;
    world.delete::<Service>(&other.name_any()).await;
    assert_eq!(serves(&world).await.url.as_deref(), Some("http://127.0.0.1:30686"));
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_that_want_one_port_do_not_stop_each_other() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(sample()).await;
    serves(&world).await;
    let mut second = sample();
    second.metadata.name = Some("second".into());
    world.create(second).await;
    eventually("the second is told so", async || {
        told(&status(&world.get::<Lolcow>("second").await), "Ready") == "False ServiceRefused"
    })
    .await;
    assert_eq!(told(&status(&world.get::<Lolcow>(NAME).await), "Ready"), "True Serving");
    world.delete::<Lolcow>(NAME).await;
    eventually("the second has the port", async || {
        told(&status(&world.get::<Lolcow>("second").await), "Ready") == "True Serving"
    })
    .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_service_may_have_is_told() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let api: Api<Lolcow> = world.api();
    for name in ["1.cow".to_owned(), "c".repeat(64)] {
        let mut cow = cow(None, None);
        cow.metadata.name = Some(name.clone());
        world.create(cow).await;
        eventually("the service is refused and the pod is ready", async || {
            let status = status(&api.get(&name).await.unwrap());
            told(&status, "ServiceApplied") == "False Refused" && status.ready_replicas == 1
        })
        .await;
    }
    operator.stop().await;
}

/// Log lines, as JSON.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// `message value was` of the lines about this field so far, which are taken.
    fn about(&self, field: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let about = lines.filter(|line| line["message"].as_str().is_some_and(|it| it.to_lowercase().ends_with(field)));
        about.map(|line| format!("{}: {} {}", line["message"].as_str().unwrap(), line[field], line["was"])).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_changes_with_both_values_once() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(sample()).await;
    serves(&world).await;
    operator.stop().await;
    let operator = world.start(&faults);
    sleep(minutes(5)).await;
    edit(&world, json!({"greeting": "What, you've never seen a flying cow before?"})).await;
    serves(&world).await;
    edit(&world, json!({"port": 30686})).await;
    serves(&world).await;
    operator.stop().await;
    let (first, second) = (json!(GREETING), json!("What, you've never seen a flying cow before?"));
    let expected = [
        format!("New Greeting: {first} null"),
        format!("No Change to Greeting: {first} {first}"),
        format!("New Greeting: {second} {first}"),
        format!("No Change to Greeting: {second} {second}"),
    ];
    assert_eq!(lines.about("greeting"), expected);
    let expected = [
        "New Port: 30685 null",
        "No Change to Port: 30685 30685",
        "No Change to Port: 30685 30685",
        "New Port: 30686 30685",
    ];
    assert_eq!(lines.about("port"), expected);
}
