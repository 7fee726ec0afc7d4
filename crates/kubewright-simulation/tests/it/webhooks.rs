//! The operator's webhooks, which the API server calls within the process.

use kube::CustomResource;
use kubewright::{
    conversion::{ConversionError, Convertible, Hub},
    prelude::*,
    webhook::{Denied, FailurePolicy, Request, ValidationErrors},
};
use kubewright_simulation::{
    Budget, Fault, Outcome, Point, Scenario, Schedule, Sim,
    fault::{ProcessFault, UserFault, WorldFault},
    history::Entry,
    story,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::search;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "simulation.kubewright.dev", version = "v1", kind = "Crate", namespaced, status = "CrateStatus")]
struct CrateSpec {
    size: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
struct CrateStatus {
    size: u32,
}

/// The version of earlier clients, with another name of the field.
mod v1alpha1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "simulation.kubewright.dev", version = "v1alpha1", kind = "Crate", namespaced, storage = false)]
    pub(super) struct CrateSpec {
        pub(super) volume: Option<u32>,
    }

    impl Convertible for Crate {
        type Hub = super::Crate;

        fn convert_to(self) -> Result<super::Crate, ConversionError> {
            let spec = super::CrateSpec { size: self.spec.volume };
            Ok(super::Crate { metadata: self.metadata, spec, status: None })
        }

        fn convert_from(hub: super::Crate) -> Result<Self, ConversionError> {
            Ok(Self { metadata: hub.metadata, spec: CrateSpec { volume: hub.spec.size } })
        }
    }
}

/// Reports the size. It fails without a size, which the defaulter sets.
struct Operator;

impl Reconciler<Crate> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, object: &Crate, ctx: &Context<Crate>) -> Result<Action, ClientError> {
        let status = CrateStatus { size: object.spec.size.unwrap_or_default() };
        if object.status.as_ref() != Some(&status) {
            ctx.set_status(status).await?;
        }
        Ok(Action::await_change())
    }
}

struct Admission;

impl Defaulter<Crate> for Admission {
    async fn set_defaults(&self, object: &mut Crate, _: &Request) -> Result<(), Denied> {
        object.spec.size.get_or_insert(3);
        Ok(())
    }
}

impl Validator<Crate> for Admission {
    async fn validate_create(&self, object: &Crate, _: &Request) -> Result<ValidationErrors, Denied> {
        let mut errors = ValidationErrors::default();
        if object.spec.size.is_some_and(|size| size > 9) {
            errors.forbidden("spec.size", "no crate is larger than 9");
        }
        Ok(errors)
    }
}

fn register(manager: Manager) -> Manager {
    let webhook = Webhook::<Crate>::new().defaulting(Admission).validating(Admission);
    manager.kind::<Crate>().controller(Controller::<Crate>::new(Operator)).webhook(webhook)
}

/// Like [`register`], but what its webhooks don't answer is admitted.
fn register_lenient(manager: Manager) -> Manager {
    let webhook = Webhook::<Crate>::new().defaulting(Admission).policies(|it| it.failure = FailurePolicy::Ignore);
    manager.kind::<Crate>().controller(Controller::<Crate>::new(Operator)).webhook(webhook)
}

fn register_versions(manager: Manager) -> Manager {
    let manager = manager.kind::<Crate>().version::<v1alpha1::Crate>();
    let hub = Hub::<Crate>::new().spoke::<v1alpha1::Crate>();
    manager.controller(Controller::<Crate>::new(Operator)).conversion(hub)
}

const CRATE: &str = "{apiVersion: simulation.kubewright.dev/v1, kind: Crate, metadata: {name: box}, spec: {}}";

async fn creates(sim: &Sim) {
    sim.finally("it has the default", |world| world.get::<Crate>("box").is_some_and(|it| it.spec.size == Some(3)));
    sim.apply(CRATE).await;
    sim.until("it is reported", |world| world.get::<Crate>("box").is_some_and(|it| it.status.is_some())).await;
}

async fn edits(sim: &Sim) {
    creates(sim).await;
    sim.edit::<Crate>("box", json!({"spec": {"size": 10}})).await;
}

async fn uses_an_earlier_version(sim: &Sim) {
    sim.apply(&CRATE.replace("/v1,", "/v1alpha1,").replace("spec: {}", "spec: {volume: 7}")).await;
    sim.until("it is converted", |world| {
        world.get::<Crate>("box").and_then(|it| it.status).is_some_and(|status| status.size == 7)
    })
    .await;
}

/// Returns the records about reviews as text, without their time.
fn reviews(outcome: &Outcome) -> Vec<String> {
    let is_review = |entry: &Entry| matches!(entry, Entry::Review { .. } | Entry::Reviewed { .. });
    let records = outcome.history.records().iter().filter(|record| is_review(&record.entry));
    records.map(|record| record.to_string().split_once("webhook     ").unwrap().1.to_owned()).collect()
}

fn findings(outcome: &Outcome) -> Vec<String> {
    outcome.findings.iter().map(ToString::to_string).collect()
}

fn run(scenario: &Scenario, point: Point, fault: Fault) -> Outcome {
    let outcome = scenario.run(&Schedule::calm(0).with(point, fault)).unwrap();
    assert_eq!((findings(&outcome), outcome.unreached.len()), (vec![], 0), "{point} {fault}");
    outcome
}

#[test]
fn the_api_server_calls_webhooks() {
    let outcome = Scenario::new("creates", register, creates).run(&Schedule::calm(0)).unwrap();
    assert_eq!(findings(&outcome), [""; 0]);
    let expected = [
        "process 0 reviews CREATE crates default/box (review 0)",
        "allows with changes (review 0)",
        "process 0 reviews CREATE crates default/box (review 1)",
        "allows (review 1)",
    ];
    assert_eq!(reviews(&outcome), expected);
    let without = Scenario::new("creates", register, creates).without_webhooks().run(&Schedule::calm(0)).unwrap();
    assert_eq!((findings(&without), reviews(&without)), (vec!["finally: it has the default".into()], vec![]));
}

#[test]
fn a_step_that_is_denied_is_found() {
    let search = Scenario::new("edits", register, edits).search(&Budget::default().runs(1)).unwrap();
    let story = story::text("edits", &search.failures[0]);
    assert!(story.contains("step: edit box: "), "{story}");
    assert!(story.contains("webhook     denies: "), "{story}");
    assert!(story.contains("no crate is larger than 9"), "{story}");
}

#[test]
fn a_dead_process_does_not_answer_and_the_user_repeats_the_step() {
    let down = Fault::User(UserFault::OperatorDown);
    let outcome = run(&Scenario::new("creates", register, creates), Point::Step(0), down);
    let expected = [
        "nothing can review CREATE crates default/box (review 0)",
        "dial tcp: connect: connection refused (review 0)",
        "process 1 reviews CREATE crates default/box (review 1)",
    ];
    assert_eq!(reviews(&outcome)[..3], expected);
}

#[test]
fn the_failure_policy_decides_what_is_not_answered() {
    let down = Schedule::calm(0).with(Point::Step(0), Fault::User(UserFault::OperatorDown));
    let outcome = Scenario::new("lenient", register_lenient, creates).run(&down).unwrap();
    assert_eq!(findings(&outcome), ["finally: it has the default"]);
    assert_eq!(reviews(&outcome)[0], "nothing can review CREATE crates default/box (review 0)");
}

#[test]
fn a_paused_process_does_not_answer() {
    let scenario = Scenario::new("labels", register, async |sim: &Sim| {
        sim.apply(CRATE).await;
        // The process pauses before it writes the status.
        sim.advance(std::time::Duration::from_secs(60)).await;
        sim.edit::<Crate>("box", json!({"metadata": {"labels": {"a": "b"}}})).await;
    });
    let calm = scenario.run(&Schedule::calm(0)).unwrap();
    let write = calm.history.records().iter().find_map(|record| match &record.entry {
        Entry::Request(request) if request.write.is_some() => Some(request.number),
        _ => None,
    });
    let paused = Schedule::calm(0).with(Point::Request(write.unwrap()), Fault::Process(ProcessFault::Paused));
    let outcome = scenario.run(&paused).unwrap();
    assert_eq!(findings(&outcome), [""; 0]);
    let texts: Vec<_> = outcome.history.records().iter().map(ToString::to_string).collect();
    let asked = texts.iter().filter(|text| text.contains("reviews UPDATE crates default/box")).count();
    let answered = texts.iter().filter(|text| text.contains("webhook     allows")).count();
    assert!(asked > answered, "{asked} reviews, {answered} answers");
}

#[test]
fn the_webhooks_are_unavailable_for_the_user_too() {
    let away = Fault::World(WorldFault::WebhookUnavailable);
    let scenario = Scenario::new("edits", register, async |sim: &Sim| {
        creates(sim).await;
        sim.edit::<Crate>("box", json!({"spec": {"size": 4}})).await;
        sim.edit::<Crate>("box", json!({"spec": {"size": 3}})).await;
    });
    let outcome = run(&scenario, Point::Step(0), away);
    let refused = reviews(&outcome).iter().filter(|text| text.starts_with("nothing can review UPDATE")).count();
    assert!(refused > 100, "ten minutes, every five seconds: {refused}");
}

#[test]
fn replicas_take_turns() {
    let outcome = Scenario::new("creates", register, creates).replicas(2).run(&Schedule::calm(0)).unwrap();
    assert_eq!(findings(&outcome), [""; 0]);
    let reviews = reviews(&outcome);
    assert_eq!(reviews[0], "process 0 reviews CREATE crates default/box (review 0)");
    assert_eq!(reviews[2], "process 1 reviews CREATE crates default/box (review 1)");
}

#[test]
fn versions_are_converted() {
    let scenario = Scenario::new("versions", register_versions, uses_an_earlier_version);
    let outcome = scenario.run(&Schedule::calm(0)).unwrap();
    assert_eq!(findings(&outcome), [""; 0]);
    let reviews = reviews(&outcome);
    assert!(reviews[0].starts_with("process 0 reviews 1 objects to simulation.kubewright.dev/v1"), "{reviews:#?}");
    assert!(reviews[1].starts_with("converts"), "{reviews:#?}");
    let down = Fault::User(UserFault::OperatorDown);
    run(&scenario, Point::Step(0), down);
}

#[test]
fn the_definitions_of_converted_kinds_have_authorities() {
    let scenario = Scenario::new("versions", register_versions, uses_an_earlier_version).certificates();
    let outcome = scenario.run(&Schedule::calm(0)).unwrap();
    assert_eq!(findings(&outcome), [""; 0]);
    assert!(reviews(&outcome).iter().any(|text| text.starts_with("converts")), "{:#?}", reviews(&outcome));
}

#[test]
fn no_single_fault_is_a_finding() {
    for (name, register) in [("strict", register as fn(Manager) -> Manager), ("versions", register_versions)] {
        let scenario = match name {
            "strict" => Scenario::new(name, register, creates),
            _ => Scenario::new(name, register, uses_an_earlier_version),
        };
        let Some(search) = search(&scenario, &Budget::default()) else { continue };
        assert!(search.is_complete);
    }
}
