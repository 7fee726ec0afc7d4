//! Ownership of the children's fields, taken names and ports, and log lines.

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
use kubewright::simulation::{
    Span,
    env::{Namespaced, TestEnv, assert_quiet, eventually, with_a_fault_at_each_write},
};
use kubewright_cluster::faults::{Faults, Verb};
use lolcow_operator::api::v1alpha1::Lolcow;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixtures::{
    GREETING, NAME, args, assert_both, cow, deployment, edit, env, foreign, message, node_port, reaches, reported,
    sample, serves, service, status,
};

/// Applies a part of a child as another manager.
async fn applies<K: Namespaced>(env: &TestEnv, manager: &str, object: Value) {
    let params = PatchParams::apply(manager).force();
    env.api::<K>().patch(NAME, &params, &Patch::Apply(object)).await.unwrap();
}

/// A part of a Deployment with fields of its container.
fn in_container(mut container: Value) -> Value {
    container["name"] = "lolcow".into();
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": {"containers": [container]}}}})
}

/// A merge patch as an editor sends it, with the whole list.
fn edited() -> Value {
    in_container(json!({"image": "busybox"}))
}

/// A repeated event becomes a series, whose end is written after some minutes.
async fn series_end() {
    sleep(15.minutes()).await;
}

fn image_of(deployment: &Deployment) -> String {
    let pod = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    pod.containers[0].image.clone().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_fault_between_the_children_leaves_both() {
    let writes = with_a_fault_at_each_write(env, async |env| {
        env.create(sample()).await;
        eventually("both are there", async || {
            let deployment = env.api::<Deployment>().get_opt(NAME).await.unwrap();
            deployment.is_some() && env.api::<Service>().get_opt(NAME).await.unwrap().is_some()
        })
        .await;
        serves(env).await;
        assert_both(env).await;
    })
    .await;
    // Both children and two statuses, with four kinds of faults.
    assert!(writes >= 4, "{writes} writes");
}

#[tokio::test(start_paused = true)]
async fn assigned_fields_are_kept() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(cow(None, Some(GREETING))).await;
    let reported = serves(&env).await;
    let before = service(&env).await;
    assert_eq!(reported.url, Some(format!("http://127.0.0.1:{}", node_port(&before))));
    assert_quiet(&faults).await;
    edit(&env, json!({"greeting": "Moo"})).await;
    serves(&env).await;
    assert_eq!(service(&env).await.metadata.resource_version, before.metadata.resource_version);
    let given = node_port(&before);
    edit(&env, json!({"port": 30999})).await;
    serves(&env).await;
    let after = service(&env).await;
    assert_eq!(node_port(&after), 30999);
    assert_eq!(after.spec.as_ref().unwrap().cluster_ip, before.spec.as_ref().unwrap().cluster_ip);
    // A port that is no longer wanted is kept as well.
    edit(&env, json!({"port": null})).await;
    serves(&env).await;
    assert_eq!(node_port(&service(&env).await), 30999);
    assert_ne!(given, 30999);
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_immutable_field_is_reported_until_the_object_is_deleted() {
    let (env, faults) = (env().await, Faults::new());
    let cow = env.create(sample()).await;
    let labels = json!({"app": "old"});
    let container = json!({"name": "lolcow", "image": "ghcr.io/vsoch/lolcow-operator"});
    let owner = json!({"apiVersion": "my.domain/v1alpha1", "kind": "Lolcow", "name": NAME, "uid": cow.uid(),
        "controller": true, "blockOwnerDeletion": true});
    let old = json!({
        "metadata": {"name": NAME, "ownerReferences": [owner]},
        "spec": {"selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
    });
    env.create(serde_json::from_value::<Deployment>(old).unwrap()).await;
    let operator = env.start(&faults);
    let reported = reaches(&env, "DeploymentApplied", "False Refused").await;
    assert!(message(&reported, "DeploymentApplied").contains("field is immutable"), "{reported:?}");
    assert_eq!(super::fixtures::reported(&reported, "ServiceApplied"), "True Applied");
    sleep(5.minutes()).await;
    faults.forget();
    sleep(60.minutes()).await;
    // Two attempts every half minute: one without force, and one with it.
    assert!(faults.writes() <= 250, "{} writes in an hour", faults.writes());
    let events = env.events(NAME).await;
    assert_eq!(events.iter().filter(|it| it.starts_with("Warning DeploymentRefused")).count(), 1, "{events:?}");
    env.delete::<Deployment>(NAME).await;
    serves(&env).await;
    assert_both(&env).await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replicas_belong_to_other_managers() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(sample()).await;
    serves(&env).await;
    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    env.api::<Deployment>().patch_scale(NAME, &PatchParams::default(), &scale).await.unwrap();
    eventually("three are ready", async || status(&env.get::<Lolcow>(NAME).await).ready_replicas == 3).await;
    edit(&env, json!({"greeting": "Moo"})).await;
    assert_eq!(serves(&env).await.ready_replicas, 3);
    let replicas = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 0}});
    applies::<Deployment>(&env, "autoscaler", replicas).await;
    reaches(&env, "Ready", "False ScaledToZero").await;
    series_end().await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn fields_applied_by_another_manager_are_kept_and_reported() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(sample()).await;
    serves(&env).await;
    applies::<Deployment>(&env, "announcer", in_container(json!({"args": ["Mee"]}))).await;
    let reported = reaches(&env, "DeploymentApplied", "False FieldConflict").await;
    let said = message(&reported, "DeploymentApplied");
    assert!(said.contains("\"announcer\"") && said.contains(".args"), "{said}");
    assert_eq!(super::fixtures::reported(&reported, "Ready"), "False DeploymentFieldConflict");
    sleep(30.minutes()).await;
    assert_eq!(args(&deployment(&env).await), ["Mee"]);
    // The other child continues, and so does this one once the claim is gone.
    edit(&env, json!({"port": 30686})).await;
    eventually("the service moves", async || node_port(&service(&env).await) == 30686).await;
    applies::<Deployment>(&env, "announcer", json!({"apiVersion": "apps/v1", "kind": "Deployment"})).await;
    serves(&env).await;
    assert_eq!(args(&deployment(&env).await), [GREETING]);
    let events = env.events(NAME).await;
    let conflicts = events.iter().filter(|event| event.starts_with("Warning DeploymentFieldConflict"));
    assert_eq!(conflicts.count(), 1, "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn repeated_updates_by_others_are_not_fought_for_ever() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(sample()).await;
    serves(&env).await;
    let mut edits = 0;
    for _ in 0..720 {
        if image_of(&deployment(&env).await) != "busybox" {
            env.edit::<Deployment>(NAME, edited()).await;
            edits += 1;
        }
        sleep(Duration::from_secs(5)).await;
    }
    assert!((5..=40).contains(&edits), "{edits} edits in an hour");
    reaches(&env, "DeploymentApplied", "False FieldConflict").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_or_edited_children_are_restored() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(sample()).await;
    serves(&env).await;
    env.delete::<Service>(NAME).await;
    eventually("the service is back", async || env.api::<Service>().get_opt(NAME).await.unwrap().is_some()).await;
    env.delete::<Deployment>(NAME).await;
    eventually("the deployment is back", async || {
        env.api::<Deployment>().get_opt(NAME).await.unwrap().is_some_and(|it| it.metadata.deletion_timestamp.is_none())
    })
    .await;
    serves(&env).await;

    env.edit::<Deployment>(NAME, edited()).await;
    let wrong = json!([{"name": "http", "protocol": "TCP", "port": 8080, "targetPort": 9090, "nodePort": 31000}]);
    env.edit::<Service>(NAME, json!({"spec": {"ports": wrong, "selector": {"app": "other"}}})).await;
    eventually("both are restored", async || {
        let service = service(&env).await;
        let selector = service.spec.as_ref().unwrap().selector.clone().unwrap();
        image_of(&deployment(&env).await) != "busybox" && node_port(&service) == 30685 && !selector.contains_key("app")
    })
    .await;
    serves(&env).await;
    assert_both(&env).await;
    let events = env.events(NAME).await;
    assert!(events.iter().any(|it| it.starts_with("Warning Restored deployment: took back .spec")), "{events:?}");
    assert!(events.iter().any(|it| it.starts_with("Warning Restored service: took back .spec")), "{events:?}");
    series_end().await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn foreign_objects_are_never_taken_over() {
    let (env, faults) = (env().await, Faults::new());
    let before = env.create(foreign(NAME, None)).await;
    let operator = env.start(&faults);
    env.create(sample()).await;
    let reported = reaches(&env, "ServiceApplied", "False NameConflict").await;
    assert_eq!(
        message(&reported, "ServiceApplied"),
        "service \"lolcow-pod\" exists and has no controller; it is not taken over"
    );
    assert_eq!(super::fixtures::reported(&reported, "Ready"), "False ServiceNameConflict");
    assert_eq!(reported.url, None);
    eventually("the deployment goes on", async || status(&env.get::<Lolcow>(NAME).await).ready_replicas == 1).await;
    assert_quiet(&faults).await;
    assert_eq!(service(&env).await, before);
    env.delete::<Service>(NAME).await;
    serves(&env).await;
    assert_both(&env).await;
    let events = env.events(NAME).await;
    assert_eq!(events.iter().filter(|it| it.starts_with("Warning ServiceNameConflict")).count(), 1, "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_service_created_meanwhile_is_not_taken_over() {
    let (env, faults) = (env().await, Faults::new());
    let gate = faults.on(&[Verb::Patch], "services").hold();
    let operator = env.start(&faults);
    env.create(sample()).await;
    eventually("the apply is under way", async || {
        faults.requests().iter().any(|seen| seen.request.resource == "services" && seen.request.verb == Verb::Patch)
    })
    .await;
    let before = env.create(foreign(NAME, None)).await;
    gate.open();
    reaches(&env, "ServiceApplied", "False NameConflict").await;
    assert_eq!(service(&env).await, before);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_port_is_reported_with_the_servers_message() {
    let (env, faults) = (env().await, Faults::new());
    let other = env.create(foreign("other", Some(30686))).await;
    let operator = env.start(&faults);
    env.create(sample()).await;
    serves(&env).await;
    for (port, words) in [
        (30686, "provided port is already allocated"),
        (80, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
        (-1, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
        (i32::MAX, "provided port is not in the valid range"),
    ] {
        // A new greeting is still rolled out, at the old port.
        edit(&env, json!({"port": port, "greeting": format!("Not at {port}")})).await;
        let reported = reaches(&env, "ServiceApplied", "False Refused").await;
        assert!(message(&reported, "ServiceApplied").contains(words), "{port}: {reported:?}");
        let reported = reaches(&env, "Progressing", "False RolledOut").await;
        assert_eq!(super::fixtures::reported(&reported, "DeploymentApplied"), "True Applied");
        assert_eq!(super::fixtures::reported(&reported, "Ready"), "False ServiceRefused");
        assert_eq!(reported.url.as_deref(), Some("http://127.0.0.1:30685"));
        assert_eq!(args(&deployment(&env).await), [format!("Not at {port}")]);
    }
    // The port becomes free.
    edit(&env, json!({"port": 30686})).await;
    reaches(&env, "ServiceApplied", "False Refused").await;
    env.delete::<Service>(&other.name_any()).await;
    assert_eq!(serves(&env).await.url.as_deref(), Some("http://127.0.0.1:30686"));
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_that_want_one_port_do_not_stop_each_other() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(sample()).await;
    serves(&env).await;
    let mut second = sample();
    second.metadata.name = Some("second".into());
    env.create(second).await;
    eventually("the second is reported so", async || {
        reported(&status(&env.get::<Lolcow>("second").await), "Ready") == "False ServiceRefused"
    })
    .await;
    assert_eq!(reported(&status(&env.get::<Lolcow>(NAME).await), "Ready"), "True Serving");
    env.delete::<Lolcow>(NAME).await;
    eventually("the second has the port", async || {
        reported(&status(&env.get::<Lolcow>("second").await), "Ready") == "True Serving"
    })
    .await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_service_name_is_reported() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let api: Api<Lolcow> = env.api();
    for name in ["1.cow".to_owned(), "c".repeat(64)] {
        let mut cow = cow(None, None);
        cow.metadata.name = Some(name.clone());
        env.create(cow).await;
        eventually("the service is refused and the pod is ready", async || {
            let status = status(&api.get(&name).await.unwrap());
            reported(&status, "ServiceApplied") == "False Refused" && status.ready_replicas == 1
        })
        .await;
    }
    operator.stop().await;
}

/// Log lines as JSON.
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
    /// Returns the lines about a field so far, as `message: value was`.
    fn about(&self, field: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let about = lines.filter(|line| line["message"].as_str().is_some_and(|it| it.to_lowercase().ends_with(field)));
        about.map(|line| format!("{}: {} {}", line["message"].as_str().unwrap(), line[field], line["was"])).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_has_changes_with_both_values_once() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone()).finish();
    // While tracing knows a single subscriber, the thread that reaches a log statement first decides by its own whether
    // anybody is interested, and the threads of other tests have none.
    let _others = [(); 2].map(|()| tracing::Dispatch::new(tracing_subscriber::registry()));
    let _guard = tracing::subscriber::set_default(subscriber);
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(sample()).await;
    serves(&env).await;
    operator.stop().await;
    let operator = env.start(&faults);
    sleep(5.minutes()).await;
    edit(&env, json!({"greeting": "What, you've never seen a flying cow before?"})).await;
    serves(&env).await;
    edit(&env, json!({"port": 30686})).await;
    serves(&env).await;
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
