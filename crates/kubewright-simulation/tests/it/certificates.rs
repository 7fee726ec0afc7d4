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
use kube::{
    Api, CustomResource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kubewright::{
    prelude::*,
    webhook::{Denied, Request, ValidationErrors},
};
use kubewright_apimachinery::random::Random;
use kubewright_simulation::{
    Budget, Fault, Outcome, Point, Scenario, Schedule, Sim, Span, World,
    fault::{ProcessFault, UserFault, WorldFault, WriteFault},
    history::Entry,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::search;

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

/// Lets sixty days pass in which nothing happens, and then the time in which the certificate is renewed, which is due:
/// the clock may go back by an hour first, and a new authority signs an hour later. Then the webhook answers.
async fn after_sixty_days(sim: &Sim) {
    sim.skip(Duration::from_secs(60 * 24 * 3600));
    sim.advance(100.minutes()).await;
    is_denied(sim).await;
}

/// Begins with the first certificate, and ends with a request that the webhook allows.
async fn serves(sim: &Sim, renewals: impl AsyncFn()) {
    sim.finally("the configurations have the authorities of the Secret", agree);
    sim.apply(PERMIT).await;
    renewals().await;
    sim.edit::<Permit>("ada", json!({"spec": {"days": 4}})).await;
}

/// The certificate is due after sixty days.
async fn renews_a_certificate(sim: &Sim) {
    serves(sim, async || after_sixty_days(sim).await).await;
}

/// The authority is due after 487 days, here at the same time as a certificate. It signs an hour later; the one before
/// expires after two years.
async fn renews_an_authority(sim: &Sim) {
    serves(sim, async || {
        for _ in 0..13 {
            after_sixty_days(sim).await;
        }
    })
    .await;
}

/// The user loses the Secret, which the process restores.
async fn loses_the_secret(sim: &Sim) {
    serves(sim, async || {
        let lost = secrets(sim).delete("webhook-server-cert", &DeleteParams::default()).await;
        lost.expect("the Secret is there");
        sim.advance(40.minutes()).await;
        is_denied(sim).await;
    })
    .await;
}

/// The user replaces the Secret by this one, with another authority.
async fn replaces_the_secret(sim: &Sim, by: &Value) {
    serves(sim, async || {
        let patch = Patch::Merge(json!({"data": by["data"]}));
        let replaced = secrets(sim).patch("webhook-server-cert", &PatchParams::default(), &patch).await;
        replaced.expect("the Secret is there");
        sim.advance(40.minutes()).await;
        is_denied(sim).await;
    })
    .await;
}

fn secrets(sim: &Sim) -> Api<Secret> {
    Api::namespaced(sim.client(), "system")
}

fn certificate() -> Scenario {
    Scenario::new("certificate", register, renews_a_certificate).certificates().unconditional()
}

fn authority() -> Scenario {
    Scenario::new("authority", register, renews_an_authority).certificates().unconditional()
}

/// Returns a number of runs. `cargo xtask test --all` sets the variable.
fn runs(few: usize, many: usize) -> usize {
    let is_exhaustive = std::env::var_os("KUBEWRIGHT_EXHAUSTIVE").is_some_and(|value| !value.is_empty());
    if is_exhaustive { many } else { few }
}

/// Returns a schedule with two to four faults at points of a run.
fn schedule(seed: u64, calm: &Outcome, replicas: usize) -> Schedule {
    let random = Random::seeded(seed);
    let below = |limit: usize| usize::try_from(random.u64()).unwrap() % limit;
    let mut processes =
        vec![ProcessFault::Killed, ProcessFault::Paused, ProcessFault::Displaced, ProcessFault::ServerUnavailable];
    processes.push(if replicas > 1 { ProcessFault::TakenOver } else { ProcessFault::Overlapped });
    let world = [WorldFault::ClockAhead, WorldFault::ClockBack, WorldFault::WebhookUnavailable];
    let requests = calm.history.records().iter().filter_map(|record| match &record.entry {
        Entry::Request(request) if request.resource != "leases" => Some(request.number),
        _ => None,
    });
    let (requests, count) = (requests.collect::<Vec<_>>(), 2 + below(3));
    (0..count).fold(Schedule::calm(seed), |schedule, _| match below(4) {
        0 => schedule.with(Point::Step(below(2)), Fault::World(world[below(world.len())])),
        1 => schedule.with(Point::Step(below(2)), Fault::User(UserFault::OperatorDown)),
        2 => {
            let fault = WriteFault::ALL[below(WriteFault::ALL.len())];
            schedule.with(Point::Write(below(calm.writes)), Fault::Write(fault))
        }
        _ => {
            let fault = processes[below(processes.len())];
            schedule.with(Point::Request(requests[below(requests.len())]), Fault::Process(fault))
        }
    })
}

fn findings(outcome: &Outcome) -> Vec<String> {
    outcome.findings.iter().map(ToString::to_string).collect()
}

/// Runs schedules of several faults, other ones for each seed.
fn several(scenario: &Scenario, replicas: usize, seeds: usize) {
    let scenario = scenario.clone().replicas(replicas);
    let calm = scenario.run(&Schedule::calm(0)).unwrap();
    for seed in 0..seeds {
        let schedule = schedule(seed as u64, &calm, replicas);
        let outcome = scenario.run(&schedule).unwrap();
        assert_eq!(findings(&outcome), [""; 0], "{schedule}");
    }
}

fn lost() -> Scenario {
    Scenario::new("lost", register, loses_the_secret).certificates().unconditional()
}

/// A user who replaces the Secret by that of another cluster.
fn replaced() -> Scenario {
    let outcome = certificate().run(&Schedule::calm(1)).unwrap();
    let other = outcome.history.records().iter().find_map(|record| match &record.entry {
        Entry::Change { kind, object, .. } if kind == "Secret" => Some(object.clone()),
        _ => None,
    });
    let other = other.expect("there is a Secret");
    let user = async move |sim: &Sim| replaces_the_secret(sim, &other).await;
    Scenario::new("replaced", register, user).certificates().unconditional()
}

#[test]
fn a_certificate_and_its_authority_are_renewed() {
    let outcome = authority().run(&Schedule::calm(0)).unwrap();
    assert_eq!(findings(&outcome), [""; 0]);
    let renewed = outcome.history.records().iter().filter(|it| it.to_string().contains("renewed the webhooks' cert"));
    assert_eq!(renewed.count(), 15, "thirteen renewals after the first certificate, and an authority");
}

#[test]
fn one_seed_makes_the_same_certificates() {
    let digests = [7, 7, 8].map(|seed| certificate().run(&Schedule::calm(seed)).unwrap().history.digest());
    assert_eq!(digests[0], digests[1]);
    assert_ne!(digests[0], digests[2]);
}

#[test]
fn a_call_fails_while_the_certificate_is_not_trusted() {
    let scenario = Scenario::new("distrusts", register, async |sim: &Sim| {
        sim.apply(PERMIT).await;
        let configurations = Api::<ValidatingWebhookConfiguration>::all(sim.client());
        let remove = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]);
        let patch = Patch::<()>::Json(serde_json::from_value(remove).unwrap());
        let patched = configurations.patch("validating-webhook-configuration", &PatchParams::default(), &patch).await;
        patched.expect("the configuration has a bundle");
        sim.edit::<Permit>("ada", json!({"spec": {"days": 4}})).await;
    });
    let outcome = scenario.certificates().run(&Schedule::calm(0)).unwrap();
    let unknown = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    let of =
        "the certificate of process 0 isn't trusted by ValidatingWebhookConfiguration validating-webhook-configuration";
    assert_eq!(findings(&outcome), [format!("untrusted: {of}: {unknown}")]);
    let results = outcome.history.records().iter().filter_map(|record| match &record.entry {
        Entry::Reviewed { result, .. } => Some(result.as_str()),
        _ => None,
    });
    let results: Vec<_> = results.collect();
    assert!(results[2..].contains(&unknown) && results.last() == Some(&"allows"), "{results:?}");
}

#[test]
fn no_single_fault_makes_a_call_fail() {
    let Some(search) = search(&certificate(), &Budget::default()) else { return };
    assert!(search.is_complete && search.runs > 100, "{} runs", search.runs);
}

#[test]
fn no_single_fault_makes_a_call_of_a_replica_fail() {
    search(&certificate().replicas(2), &Budget::default().runs(runs(5, 20)));
}

#[test]
fn no_single_fault_at_a_new_authority_makes_a_call_fail() {
    search(&authority(), &Budget::default().runs(runs(10, 60)));
}

#[test]
fn no_single_fault_makes_a_call_fail_when_the_secret_is_lost_or_replaced() {
    search(&lost(), &Budget::default().runs(runs(40, usize::MAX)));
    search(&replaced(), &Budget::default().runs(runs(40, usize::MAX)));
}

/// Between the reads of the configurations and the Secret, the Secret was made and lost: the process makes another, but
/// the configurations that it has read are older.
#[test]
fn a_process_that_has_read_older_configurations_serves_nothing() {
    let [displaced, away] = [ProcessFault::Displaced, ProcessFault::ServerUnavailable].map(Fault::Process);
    let schedules = [
        Schedule::calm(0).with(Point::Request(1), displaced),
        // The rotations that fail before don't count.
        Schedule::calm(0).with(Point::Request(0), away).with(Point::Request(11), displaced),
    ];
    for (scenario, schedule) in [lost(), replaced()].iter().flat_map(|it| schedules.iter().map(move |at| (it, at))) {
        let outcome = scenario.run(schedule).unwrap();
        assert_eq!((findings(&outcome), outcome.unreached.len()), (vec![], 0), "{schedule}");
    }
}

#[test]
fn no_faults_together_make_a_call_fail() {
    several(&certificate(), 1, runs(30, 200));
    several(&certificate(), 2, runs(2, 10));
    several(&authority(), 1, runs(4, 20));
    several(&replaced(), 1, runs(10, 100));
    several(&lost(), 1, runs(10, 100));
}
