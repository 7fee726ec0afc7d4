//! Requests, responses and failures of the webhook server.

use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    coordination::v1::Lease,
    core::v1::ConfigMap,
};
use kube::api::{DeleteParams, Patch, PatchParams};
use kubewright_runtime::{leader::LeaderOptions, manager::Manager, webhook::WebhookServer};
use serde_json::{Value, json};

use super::scene::{NAME, Scene, until};
use crate::world::run;

fn merge(data: Value) -> Patch<Value> {
    Patch::Merge(json!({"data": data}))
}

/// In one process, as in tests and demos.
#[tokio::test]
async fn a_local_server_installs_and_removes_its_configurations() {
    let scene = Scene::new();
    let manager = run(scene.manager(WebhookServer::local()));
    let validating = format!("{NAME}-validating-webhook-configuration");
    until("the configuration is there", async || {
        scene.all::<ValidatingWebhookConfiguration>().get_opt(&validating).await.unwrap().is_some()
    })
    .await;
    // The webhooks are effective from the moment the configuration exists.
    let (code, message) = scene.refused("c", json!({"bad": "1", "worse": "2"})).await;
    assert_eq!(code, 422, "{message}");
    let expected = "ConfigMap \"c\" is invalid: [data.bad: Invalid value: \"1\": must not be, \
        data.worse: Invalid value: \"2\": must not be]";
    assert!(message.ends_with(expected), "{message}");

    let created = scene.create("c", json!({"fixed": "1"})).await.unwrap();
    assert_eq!(created.data.unwrap()["default"], "system:admin");
    let configs = scene.api::<ConfigMap>();
    let changed = configs.patch("c", &PatchParams::default(), &merge(json!({"fixed": "2"}))).await;
    assert!(changed.unwrap_err().to_string().contains("data.fixed: Forbidden: it is"));
    configs.patch("c", &PatchParams::default(), &merge(json!({"keep": "1"}))).await.unwrap();
    let deleted = configs.delete("c", &DeleteParams::default()).await;
    assert!(deleted.unwrap_err().to_string().contains("it is to be kept"));

    manager.stop().await;
    let mutating = format!("{NAME}-mutating-webhook-configuration");
    assert!(scene.all::<ValidatingWebhookConfiguration>().get_opt(&validating).await.unwrap().is_none());
    assert!(scene.all::<MutatingWebhookConfiguration>().get_opt(&mutating).await.unwrap().is_none());
    scene.create("d", json!({"bad": "1"})).await.expect("nobody asks any more");
}

#[tokio::test]
async fn panics_are_isolated_and_counted_and_the_process_goes_on() {
    let scene = Scene::new();
    let replica = scene.start(|server| server);
    scene.install(&[replica.address]).await;
    scene.until_asked().await;
    let (code, message) = scene.refused("c", json!({"panic": "1"})).await;
    assert_eq!(code, 500, "{message}");
    assert!(message.contains("panic: on purpose [recovered]"), "{message}");
    assert_eq!(replica.count("controller_runtime_webhook_panics_total"), 1.0);
    scene.create("c", json!({})).await.expect("the next is answered");
    assert_eq!(replica.count("controller_runtime_webhook_requests_in_flight"), 0.0);
    assert!(replica.count("controller_runtime_webhook_requests_total") >= 4.0);
    replica.stop().await;
}

#[tokio::test]
async fn a_dry_run_request_is_marked_as_dry_run() {
    let scene = Scene::new();
    let replica = scene.start(|server| server);
    scene.install(&[replica.address]).await;
    scene.until_asked().await;
    let config: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "c"}, "data": {"odd": "1"}})).unwrap();
    let params = PatchParams { dry_run: true, ..PatchParams::apply("test") };
    let rehearsed = scene.api::<ConfigMap>().patch("c", &params, &Patch::Apply(&config)).await.unwrap();
    assert!(rehearsed.data.unwrap().contains_key("default"));
    assert!(scene.api::<ConfigMap>().get_opt("c").await.unwrap().is_none());
    replica.stop().await;
}

#[tokio::test]
async fn slow_unreachable_and_broken_webhooks_are_reported_clearly() {
    let scene = Scene::new();
    let replica = scene.start(|server| server);
    scene.install(&[replica.address]).await;
    scene.until_asked().await;

    // Slow: the API server times out first, and reports that.
    patience(&scene, 1).await;
    let (code, message) = scene.refused("c", json!({"slow": "1"})).await;
    assert_eq!(code, 500, "{message}");
    let late = message.contains("context deadline exceeded") || message.contains("the webhook took longer than 1s");
    assert!(late, "{message}");

    // A response of ten megabytes, and patches that break the object: nothing is stored. A debug build on a busy
    // machine takes its time for them.
    patience_for_defaults(&scene, 30).await;
    let (code, message) = scene.refused("c", json!({"break": "huge"})).await;
    assert_eq!(code, 500, "{message}");
    assert!(message.contains("the response is larger than 7340032 bytes"), "{message}");
    let (code, message) = scene.refused("c", json!({"break": "label"})).await;
    assert_eq!(code, 422, "{message}");
    assert!(message.contains("metadata.labels: Invalid value: \"a b\""), "{message}");
    let (code, message) = scene.refused("c", json!({"break": "namespace"})).await;
    assert_eq!(code, 400, "{message}");
    assert!(message.contains("the namespace of the provided object does not match"), "{message}");
    assert!(scene.api::<ConfigMap>().get_opt("c").await.unwrap().is_none());

    // A wrong certificate authority in the configuration is detected and corrected.
    let name = format!("{NAME}-validating-webhook-configuration");
    let wrong = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": stranger()}]);
    let wrong = Patch::Json::<()>(serde_json::from_value(wrong).unwrap());
    scene.all::<ValidatingWebhookConfiguration>().patch(&name, &PatchParams::default(), &wrong).await.unwrap();
    scene.until_asked().await;

    // The server is down.
    replica.stop().await;
    let (code, message) = scene.refused("c", json!({})).await;
    assert_eq!(code, 500, "{message}");
    assert!(message.contains("failed calling webhook") && message.contains("connection refused"), "{message}");
}

/// Returns the certificate of an unrelated authority, encoded as in a configuration.
fn stranger() -> String {
    use base64::Engine;
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["stranger".into()]).unwrap().self_signed(&key).unwrap();
    base64::engine::general_purpose::STANDARD.encode(certificate.pem())
}

/// A review in progress when the manager is stopped is answered: here, by a timeout after two seconds.
#[tokio::test]
async fn shutdown_finishes_reviews() {
    let scene = Scene::new();
    let replica = scene.start(|server| server);
    scene.install(&[replica.address]).await;
    scene.until_asked().await;
    patience(&scene, 2).await;
    let slow = scene.refused("c", json!({"slow": "1"}));
    let stop = async {
        until("it is asked", async || replica.count("controller_runtime_webhook_requests_in_flight") > 0.0).await;
        replica.stop().await;
    };
    let ((_, message), ()) = tokio::join!(slow, stop);
    assert!(message.contains("context deadline exceeded") || message.contains("took longer than 2s"), "{message}");
}

/// Sets the timeout of the validating webhook, in seconds.
async fn patience(scene: &Scene, seconds: u64) {
    let name = format!("{NAME}-validating-webhook-configuration");
    let patch = patience_patch(seconds);
    scene.all::<ValidatingWebhookConfiguration>().patch(&name, &PatchParams::default(), &patch).await.unwrap();
}

/// Sets the timeout of the mutating webhook, in seconds.
async fn patience_for_defaults(scene: &Scene, seconds: u64) {
    let name = format!("{NAME}-mutating-webhook-configuration");
    let patch = patience_patch(seconds);
    scene.all::<MutatingWebhookConfiguration>().patch(&name, &PatchParams::default(), &patch).await.unwrap();
}

fn patience_patch(seconds: u64) -> Patch<()> {
    let patch = json!([{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": seconds}]);
    Patch::Json(serde_json::from_value(patch).unwrap())
}

#[tokio::test]
async fn a_standby_replica_serves_webhooks_too() {
    let scene = Scene::new();
    let options = |identity: &str| LeaderOptions::new("default", NAME, identity);
    let leader = run(Manager::new(scene.client.clone()).clock(scene.clock.clone()).leader_election(options("first")));
    until("the first leads", async || {
        let lease = scene.api::<Lease>().get_opt(NAME).await.unwrap();
        lease.and_then(|lease| lease.spec?.holder_identity).as_deref() == Some("first")
    })
    .await;
    let standby = run(scene.manager(WebhookServer::local()).leader_election(options("second")));
    scene.until_asked().await;
    let lease = scene.api::<Lease>().get(NAME).await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some("first"));
    standby.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn without_a_server_nothing_is_served_and_nothing_is_written() {
    let scene = Scene::new();
    let server = WebhookServer::new("0".parse().unwrap());
    let manager = run(scene.manager(server));
    scene.create("c", json!({"bad": "1"})).await.expect("nobody asks");
    manager.stop().await;
    assert!(scene.secret().await.is_none());
}
