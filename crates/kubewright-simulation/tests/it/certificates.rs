//! The certificates of webhooks, made and renewed over two years: the API server can call the webhooks all the time.

use std::time::Duration;

use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
        },
        core::v1::Secret,
    },
};
use kube::{Api, CustomResource, api::PostParams};
use kubewright::{
    prelude::*,
    webhook::{Denied, Request, ValidationErrors},
};
use kubewright_simulation::{Budget, Outcome, Scenario, Schedule, Sim, Span, World, story};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "simulation.kubewright.dev", version = "v1", kind = "Permit", namespaced)]
struct PermitSpec {
    days: Option<u32>,
}

struct Admission;

impl Defaulter<Permit> for Admission {
    async fn set_defaults(&self, object: &mut Permit, _: &Request) -> Result<(), Denied> {
        object.spec.days.get_or_insert(3);
        Ok(())
    }
}

impl Validator<Permit> for Admission {
    async fn validate_create(&self, object: &Permit, _: &Request) -> Result<ValidationErrors, Denied> {
        let mut errors = ValidationErrors::default();
        if object.spec.days.is_some_and(|days| days > 9) {
            errors.forbidden("spec.days", "no permit is longer than 9");
        }
        Ok(errors)
    }
}

fn register(manager: Manager) -> Manager {
    manager.kind::<Permit>().webhook(Webhook::<Permit>::new().defaulting(Admission).validating(Admission))
}

const PERMIT: &str = "{apiVersion: simulation.kubewright.dev/v1, kind: Permit, metadata: {name: ada}, spec: {}}";
/// After this time, a certificate of a server is due, at the next rotation.
const SERVED: Duration = Duration::from_secs(60 * 24 * 3600);

/// Returns whether there is one Secret, and each configuration has its authorities.
fn agree(world: &World) -> bool {
    let mutating = world.list::<MutatingWebhookConfiguration>().into_iter().flat_map(|it| it.webhooks);
    let validating = world.list::<ValidatingWebhookConfiguration>().into_iter().flat_map(|it| it.webhooks);
    let clients: Vec<WebhookClientConfig> = mutating
        .flatten()
        .map(|webhook| webhook.client_config)
        .chain(validating.flatten().map(|webhook| webhook.client_config))
        .collect();
    let mut secrets = world.list::<Secret>();
    secrets.retain(|secret| secret.type_.as_deref() == Some("kubernetes.io/tls"));
    let [Secret { data: Some(data), .. }] = &secrets[..] else { return false };
    let authorities = data.get("ca.crt").filter(|ByteString(bundle)| !bundle.is_empty());
    authorities.is_some() && clients.len() == 2 && clients.iter().all(|client| client.ca_bundle.as_ref() == authorities)
}

/// Sends a request that the webhook denies, until it is answered.
async fn is_denied(sim: &Sim) {
    let permits = Api::<Permit>::namespaced(sim.client(), "default");
    for _ in 0..720 {
        let created = permits.create(&PostParams::default(), &Permit::new("bob", PermitSpec { days: Some(10) })).await;
        let error = created.expect_err("the webhook denies it").to_string();
        if error.contains("no permit is longer than 9") {
            return;
        }
        assert!(error.contains("failed calling webhook"), "{error}");
        sim.advance(5.seconds()).await;
    }
    panic!("no process answers");
}

/// Waits for the first certificate, and until it was replaced by others, and the authority too.
async fn serves(sim: &Sim, renewals: u32) {
    sim.finally("the configurations have the authorities of the Secret", agree);
    sim.apply(PERMIT).await;
    for _ in 0..renewals {
        sim.skip(SERVED);
        sim.advance(40.minutes()).await;
        is_denied(sim).await;
    }
    sim.edit::<Permit>("ada", json!({"spec": {"days": 4}})).await;
}

fn first_renewal() -> Scenario {
    Scenario::new("first renewal", register, async |sim: &Sim| serves(sim, 1).await).certificates()
}

fn two_years() -> Scenario {
    Scenario::new("two years", register, async |sim: &Sim| serves(sim, 13).await).certificates()
}

fn findings(outcome: &Outcome) -> Vec<String> {
    outcome.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_certificate_is_made_and_renewed_for_two_years() {
    let start = std::time::Instant::now();
    let outcome = two_years().run(&Schedule::calm(0)).unwrap();
    println!("{:?}", start.elapsed());
    let start = std::time::Instant::now();
    two_years().run(&Schedule::calm(0)).unwrap();
    println!("{:?} {}", start.elapsed(), outcome.history.records().len());
    for record in outcome.history.records() {
        let text = record.to_string();
        println!("{}", text.chars().take(260).collect::<String>());
    }
    assert_eq!(findings(&outcome), [""; 0]);
}
