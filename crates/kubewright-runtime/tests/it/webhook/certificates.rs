//! Self-managed certificates: creation, renewal without a gap, and repair.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::Secret,
    },
};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kubewright_cluster::faults::{Faults, Verb};
use kubewright_runtime::{probe::BindAddress, webhook::WebhookServer};
use serde_json::json;

use super::scene::{DAY, NAME, SECRET, Scene, until};
use crate::world::{own_address, run};

fn count(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

#[tokio::test]
async fn two_replicas_that_start_at_once_end_with_one_authority() {
    for _ in 0..5 {
        let scene = Scene::new();
        let replicas = [scene.start(|server| server), scene.start(|server| server)];
        scene.install(&[replicas[0].address]).await;
        for replica in &replicas {
            until("both are ready", async || replica.is_ready().await).await;
        }
        scene.until_asked().await;
        let authorities = scene.held("ca.crt").await;
        assert_eq!(count(&authorities), 1, "{authorities}");
        until("the configurations know it", async || {
            scene.bundles().await == [authorities.clone(), authorities.clone()]
        })
        .await;
        // The API server trusts the other replica, too.
        let [one, other] = replicas;
        scene.lead_to(&[other.address]).await;
        one.stop().await;
        scene.until_asked().await;
        other.stop().await;
    }
}

/// The API server calls a server at its own URL as soon as the first of its configurations exists.
#[tokio::test]
async fn the_first_installed_configuration_leads_to_a_server_with_a_certificate() {
    let scene = Scene::new();
    let faults = Faults::new();
    let gate = faults.on(&[Verb::Patch], "validatingwebhookconfigurations").hold();
    let manager = run(scene.manager_of(faults.client(&scene.client), WebhookServer::local()));
    let name = format!("{NAME}-mutating-webhook-configuration");
    until("the first configuration is installed", async || {
        scene.all::<MutatingWebhookConfiguration>().get_opt(&name).await.unwrap().is_some()
    })
    .await;
    let made = scene.create("first", json!({})).await.expect("the webhook answers");
    assert!(made.data.is_some_and(|data| data.contains_key("default")), "the webhook is called");
    gate.open();
    manager.stop().await;
}

/// The others call webhooks of their own, and a certificate that only they trust is better than none.
#[tokio::test]
async fn a_configuration_that_cannot_be_read_or_written_leaves_out_only_itself() {
    for verb in [&[Verb::Get], &[Verb::Patch]] {
        let scene = Scene::new();
        let faults = Faults::new();
        let refusal = faults.on(verb, "mutatingwebhookconfigurations").always().refuse(403, "Forbidden");
        let address = own_address();
        scene.install(&[address]).await;
        let server = WebhookServer::new(BindAddress::Host(address.ip().to_string(), address.port()));
        let manager = run(scene.manager_of(faults.client(&scene.client), server));
        let counts = async || scene.bundles().await.iter().map(|bundle| count(bundle)).collect::<Vec<_>>();
        until("the other one knows the authority", async || counts().await == [0, 1]).await;
        assert!(refusal.hits() > 0);
        faults.clear();
        until("it is tried again", async || counts().await == [1, 1]).await;
        scene.until_asked().await;
        manager.stop().await;
    }
}

/// Three years in which both certificates and authorities are renewed, with requests all the time.
#[tokio::test]
async fn renewals_cost_no_request() {
    let scene = Arc::new(Scene::new());
    let replicas = [scene.start(|server| server), scene.start(|server| server)];
    scene.install(&[replicas[0].address, replicas[1].address]).await;
    scene.until_asked().await;
    let ends = Arc::new(AtomicBool::new(false));
    let requests = {
        let (scene, ends) = (scene.clone(), ends.clone());
        tokio::spawn(async move {
            let mut number = 0;
            while !ends.load(Ordering::Relaxed) {
                scene
                    .create(&format!("c{number}"), json!({}))
                    .await
                    .unwrap_or_else(|error| panic!("{number}: {error}"));
                number += 1;
            }
            number
        })
    };
    let name = format!("{NAME}-validating-webhook-configuration");
    let (mut certificates, mut authorities, mut most) = (vec![], vec![], 0);
    for step in 0..55 {
        scene.clock.jump(20 * DAY);
        // A changed configuration makes the API server open a new connection, whose certificate it verifies.
        let patch = json!([{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 20 + step % 2}]);
        let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
        scene.all::<ValidatingWebhookConfiguration>().patch(&name, &PatchParams::default(), &patch).await.unwrap();
        for replica in &replicas {
            replica.looks().await;
        }
        let (certificate, bundle) = (scene.held("tls.crt").await, scene.held("ca.crt").await);
        most = most.max(count(&bundle));
        certificates.push(certificate);
        authorities.push(bundle);
        assert!(!requests.is_finished(), "a request failed");
    }
    ends.store(true, Ordering::Relaxed);
    let sent = requests.await.expect("no request failed");
    certificates.dedup();
    authorities.dedup();
    assert!(sent >= 55 && certificates.len() >= 12 && authorities.len() >= 3 && most == 2);
    for replica in replicas {
        assert!(replica.count("certwatcher_read_certificate_total") >= 12.0);
        assert_eq!(replica.count("certwatcher_read_certificate_errors_total"), 0.0);
        replica.stop().await;
    }
}

#[tokio::test]
async fn deleted_changed_or_expired_certificates_are_replaced() {
    let scene = Scene::new();
    let replica = scene.start(|server| server);
    scene.install(&[replica.address]).await;
    scene.until_asked().await;
    let secrets = scene.api::<Secret>();

    let before = scene.held("tls.crt").await;
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    until("it is back", async || scene.secret().await.is_some()).await;
    assert_eq!(scene.held("tls.crt").await, before, "as it was");

    for key in ["tls.key", "tls.crt", "ca.crt", "ca.key"] {
        let tampered = scene.held(key).await;
        let data = json!({"data": {key: ByteString(b"garbage".to_vec())}});
        secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(data)).await.unwrap();
        until("it is healed", async || {
            let held = scene.held(key).await;
            held != "garbage" && (held != tampered || key == "ca.crt")
        })
        .await;
        scene.until_asked().await;
    }

    // Nothing ran for three years: the certificates of the replica and of the Secret have expired.
    scene.clock.jump(1100 * DAY);
    scene.until_asked().await;
    until("it is ready", async || replica.is_ready().await).await;
    assert_eq!(count(&scene.held("ca.crt").await), 1);
    replica.stop().await;

    let later = scene.start(|server| server);
    scene.clock.jump(1100 * DAY);
    scene.lead_to(&[later.address]).await;
    scene.until_asked().await;
    later.crash().await;
}

#[tokio::test]
async fn a_secret_of_someone_else_is_left_alone() {
    let scene = Scene::new();
    let foreign: Secret = serde_json::from_value(json!({
        "metadata": {"name": SECRET}, "data": {"password": ByteString(b"theirs".to_vec())},
    }))
    .unwrap();
    let created = scene.api::<Secret>().create(&PostParams::default(), &foreign).await.unwrap();
    let replica = scene.start(|server| server);
    // The start waits for the certificate until its deadline; then the readiness check exists, and fails.
    until("the check is there", async || replica.check().await == Some(false)).await;
    replica.looks().await;
    assert_eq!(scene.secret().await.unwrap().metadata.resource_version, created.metadata.resource_version);
    // Once the Secret is deleted, the replica becomes ready.
    scene.api::<Secret>().delete(SECRET, &DeleteParams::default()).await.unwrap();
    until("it is ready", async || replica.is_ready().await).await;
    replica.stop().await;
}

/// The API server connects to the name of the service, and accepts the certificate only for that name.
#[tokio::test]
async fn a_service_of_another_name_is_served_too() {
    let scene = Scene::new();
    let first = scene.start(|server| server);
    until("it is ready", async || first.is_ready().await).await;
    let before = scene.held("tls.crt").await;
    first.stop().await;
    let second = scene.start(|server| server.service("hooks"));
    until("the certificate has the name", async || scene.held("tls.crt").await != before).await;
    until("it is ready", async || second.is_ready().await).await;
    second.stop().await;
}
