//! An operator that creates an instance with a generated name and notes the name. If it dies in between, there are two.

use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{CustomResource, api::ObjectMeta};
use kubewright::prelude::*;
use kubewright_simulation::{
    Budget, Fault, Outcome, Point, Scenario, Schedule, Settings, Sim,
    fault::{EventFault, RestartFault, UserFault, WriteFault},
    history::Entry,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "simulation.kubewright.dev", version = "v1", kind = "Machine", namespaced, status = "MachineStatus")]
pub(crate) struct MachineSpec {}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub(crate) struct MachineStatus {
    pub(crate) instance: Option<String>,
}

/// What an operator does.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Behavior {
    Forgets,
    Fixed,
    Panics,
    Spins,
    WritesAgain,
    /// Writes in the first run of each process.
    WritesAtStart,
    /// Reads from the API server, and tries again every second until it answers.
    Insists,
    /// Uses the system's clock.
    Diverges,
}

/// What it does, and whether this process has run.
struct Operator(Behavior, AtomicBool);

impl Reconciler<Machine> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, machine: &Machine, ctx: &Context<Machine>) -> Result<Action, ClientError> {
        let is_first = !self.1.swap(true, Ordering::Relaxed);
        if machine.status.as_ref().is_some_and(|status| status.instance.is_some()) {
            return match self.0 {
                Behavior::Panics => panic!("it is noted"),
                Behavior::Spins => {
                    ctx.live().get::<Machine>(ctx.key()).await?;
                    Ok(Action::requeue_after(std::time::Duration::from_millis(1)))
                }
                Behavior::WritesAgain => {
                    let period = ctx.now().as_second() / 600;
                    ctx.set_status(MachineStatus { instance: Some(period.to_string()) }).await?;
                    Ok(Action::requeue_after(std::time::Duration::from_secs(600)))
                }
                Behavior::WritesAtStart if is_first => {
                    ctx.set_status(MachineStatus { instance: Some(ctx.now().to_string()) }).await?;
                    Ok(Action::await_change())
                }
                _ => Ok(Action::await_change()),
            };
        }
        if self.0 == Behavior::Insists && ctx.live().get::<Machine>(ctx.key()).await.is_err() {
            return Ok(Action::requeue_after(std::time::Duration::from_secs(1)));
        }
        let instance = match self.0 {
            Behavior::Forgets => {
                let metadata = ObjectMeta { generate_name: Some("instance-".into()), ..ObjectMeta::default() };
                ctx.create_child(ConfigMap { metadata, ..ConfigMap::default() }).await?
            }
            _ => {
                let metadata = ObjectMeta { name: Some(machine.name_any()), ..ObjectMeta::default() };
                ctx.get_or_create_child(ConfigMap { metadata, ..ConfigMap::default() }).await?
            }
        };
        let mut name = instance.name_any();
        if self.0 == Behavior::Diverges {
            // The keys of the standard library's hashers are different in each run.
            let number = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
            name = format!("{name}-{number}");
        }
        ctx.set_status(MachineStatus { instance: Some(name) }).await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, behavior: Behavior) -> Manager {
    manager
        .kind::<Machine>()
        .controller(Controller::<Machine>::new(Operator(behavior, AtomicBool::new(false))).owns::<ConfigMap>())
}

/// The instance is noted; then the machine gets a label, and is deleted.
pub(crate) async fn notes_labels_and_deletes(sim: &Sim) {
    notes_its_instance(sim).await;
    sim.edit::<Machine>("build", json!({"metadata": {"labels": {"a": "b"}}})).await;
    sim.advance(std::time::Duration::from_secs(60)).await;
    sim.delete::<Machine>("build").await;
    sim.finally("it is gone", |world| world.list::<Machine>().is_empty());
}

pub(crate) async fn notes_its_instance(sim: &Sim) {
    sim.create(&Machine::new("build", MachineSpec {})).await;
    sim.until("the instance is noted", |world| {
        world.get::<Machine>("build").is_some_and(|it| it.status.is_some_and(|status| status.instance.is_some()))
    })
    .await;
}

/// What a user does.
type Boxed<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;

fn oracles(scenario: &Scenario) -> Vec<String> {
    let search = scenario.search(&Budget::default().runs(20)).unwrap();
    let findings = search.failures.into_iter().flat_map(|failure| failure.outcome.findings);
    findings.map(|finding| finding.oracle).collect()
}

#[test]
fn a_crash_between_two_writes_is_found_and_replayed() {
    let scenario = Scenario::new("notes", |manager| register(manager, Behavior::Forgets), notes_its_instance);
    let search = scenario.search(&Budget::default()).unwrap();
    let failure = &search.failures[0];
    assert_eq!(failure.schedule, Schedule::calm(0).with(Point::Write(0), Fault::Write(WriteFault::DiedAfter)));
    let found: Vec<_> = failure.outcome.findings.iter().map(ToString::to_string).collect();
    let twice =
        "created-twice: there are 2 configmaps of Machine build in namespace \"default\"; without faults at most 1";
    let left = "orphaned: 2 configmaps of Machine build in namespace \"default\" are left; without faults 1";
    assert_eq!(found, [twice, left]);
    let story = kubewright_simulation::story::text("notes", failure);
    assert!(story.contains("at write 0 of the operator, the operator dies after the write"), "{story}");
    assert!(story.contains("user        creates Machine build"), "{story}");
    assert!(story.contains(r#"KUBEWRIGHT_SIMULATION='{"replay":{"#), "{story}");
}

#[test]
fn a_failure_is_shrunk_to_the_fault_that_it_needs() {
    let scenario = Scenario::new("notes", |manager| register(manager, Behavior::Forgets), notes_its_instance);
    let fault = |nth, fault| (Point::Write(nth), Fault::Write(fault));
    let faults = [
        fault(0, WriteFault::Conflict),
        fault(1, WriteFault::DiedAfter),
        fault(2, WriteFault::TooManyRequests),
        fault(3, WriteFault::InternalError),
    ];
    let schedule = faults.into_iter().fold(Schedule::calm(0), |schedule, (point, fault)| schedule.with(point, fault));
    let mut settings = Settings::default();
    settings.replay = Some(schedule);
    let failure = settings.search(&scenario).unwrap().failures.remove(0);
    let found = scenario.shrink(failure, 50).unwrap();
    // Without the conflict before it, the first instance is created by write 0, and the crash comes after the status.
    assert_eq!(found.schedule.injections.len(), 2, "{:?}", found.schedule);
    assert_eq!(found.outcome.findings[0].oracle, "created-twice");
}

#[test]
fn a_failure_is_shrunk_to_the_steps_that_it_needs() {
    let scenario = Scenario::new(
        "notes",
        |manager| register(manager, Behavior::Forgets),
        async |sim: &Sim| {
            sim.create(&Machine::new("other", MachineSpec {})).await;
            sim.advance(std::time::Duration::from_secs(60)).await;
            notes_its_instance(sim).await;
            sim.edit::<Machine>("build", json!({"metadata": {"labels": {"a": "b"}}})).await;
        },
    );
    // The write of the second step, whichever comes first.
    let schedule = Schedule::calm(0).with(Point::Write(2), Fault::Write(WriteFault::DiedAfter));
    let mut settings = Settings::default();
    settings.replay = Some(schedule);
    let failure = settings.search(&scenario).unwrap().failures.remove(0);
    assert_eq!(failure.outcome.findings[0].oracle, "created-twice");
    let found = scenario.shrink(failure, 50).unwrap();
    // The change of the label isn't needed. Without the first step, the fault would meet another write.
    assert_eq!(found.schedule.skipped.iter().copied().collect::<Vec<_>>(), [2], "{:?}", found.schedule);
    let text = kubewright_simulation::story::text("notes", &found);
    assert!(text.contains("without these steps of the user, which it doesn't need: 2"), "{text}");
    let line = found.schedule.to_string();
    assert_eq!(line.parse::<Schedule>().unwrap(), found.schedule);
}

#[test]
fn a_fixed_operator_is_not_blamed() {
    let scenario = Scenario::new("fixed", |manager| register(manager, Behavior::Fixed), notes_its_instance);
    let search = scenario.search(&Budget::default()).unwrap();
    let story = search.failures.first().map(|failure| kubewright_simulation::story::text("fixed", failure));
    assert_eq!(story, None);
    // At each write the user may edit or recreate the object or change its status, a quota may be full and a webhook
    // unavailable; at each step there are the restarts, the user (but for the policies of a deletion), the clock, the
    // quota, the webhook and the namespace.
    let of_writes = search.writes * (WriteFault::ALL.len() + 6);
    // Kills, and pauses; at a write it isn't killed, but two processes overlap, or the API server is away.
    let of_requests = 2 * search.requests + search.writes;
    let of_steps = search.steps * (RestartFault::ALL.len() + UserFault::ALL.len() - 2 + 5);
    let single = of_writes + search.events * EventFault::ALL.len() + of_requests + of_steps;
    assert!(search.is_complete && search.writes >= 2 && search.events >= 2 && search.runs == 2 + single);
    let several = scenario.search(&Budget::default().runs(search.runs + 30).combinations()).unwrap();
    let story = several.failures.first().map(|failure| kubewright_simulation::story::text("fixed", failure));
    assert_eq!(story, None);
    assert_eq!(several.runs, search.runs + 30);
    scenario.test();
}

#[test]
fn faults_of_events_happen_as_configured() {
    let scenario = Scenario::new("fixed", |manager| register(manager, Behavior::Fixed), notes_its_instance);
    let count = |outcome: &Outcome, part: &str| {
        // Without faults, the operator is restarted at the end.
        let records = outcome.history.records().iter().take_while(|record| record.at < 3_600_000);
        records.filter(|record| record.to_string().contains(part)).count()
    };
    let calm = scenario.run(&Schedule::calm(0)).unwrap();
    for (fault, repeated) in [
        (EventFault::Cut, "operator    watch "),
        (EventFault::Expired, "operator    list "),
        (EventFault::Died, "operator    process 1 starts"),
        (EventFault::Delayed, ""),
    ] {
        let outcome = scenario.run(&Schedule::calm(0).with(Point::Event(1), Fault::Event(fault))).unwrap();
        assert_eq!(count(&outcome, &format!("at event 1, {fault}")), 1, "{fault}");
        assert!(repeated.is_empty() || count(&outcome, repeated) > count(&calm, repeated), "{fault}");
        assert_eq!(outcome.findings, [], "{fault}");
    }
    let late = |outcome: &Outcome| {
        let events = outcome.history.records().iter().filter(|it| matches!(it.entry, Entry::Event { .. }));
        events.map(|record| record.at).nth(1)
    };
    let delayed = scenario.run(&Schedule::calm(0).with(Point::Event(1), Fault::Event(EventFault::Delayed))).unwrap();
    // The cache lists again after five seconds, so the event itself may never arrive.
    let on_time = late(&calm).unwrap();
    assert!(late(&delayed).is_none_or(|late| late >= on_time + 10_000));
}

#[test]
fn a_panic_is_found() {
    let scenario = Scenario::new("panics", |manager| register(manager, Behavior::Panics), notes_its_instance);
    assert_eq!(oracles(&scenario)[0], "panic");
    assert_eq!(oracles(&scenario.omit("panic", "it is what is tested")), Vec::<String>::new());
}

#[test]
fn a_hot_loop_is_found() {
    let scenario = Scenario::new("spins", |manager| register(manager, Behavior::Spins), notes_its_instance);
    assert_eq!(oracles(&scenario)[0], "hot-loop");
}

#[test]
fn a_random_source_of_the_operator_is_found() {
    let scenario = Scenario::new("diverges", |manager| register(manager, Behavior::Diverges), notes_its_instance);
    let findings = scenario.search(&Budget::default()).unwrap().failures.remove(0).outcome.findings;
    assert_eq!(findings[0].oracle, "determinism");
    assert!(findings[0].message.contains("patch machines/status default/build"), "{}", findings[0].message);
    let omitted = scenario.omit("determinism", "it is what is tested").search(&Budget::default().runs(3)).unwrap();
    assert_eq!(omitted.failures.len(), 0);
}

#[test]
fn writes_at_rest_are_found() {
    let scenario = Scenario::new("writes", |manager| register(manager, Behavior::WritesAgain), notes_its_instance);
    assert_eq!(oracles(&scenario)[0], "quiet");
}

#[test]
fn writes_after_a_restart_at_rest_are_found() {
    let scenario = Scenario::new("writes", |manager| register(manager, Behavior::WritesAtStart), notes_its_instance);
    let calm = scenario.run(&Schedule::calm(0)).unwrap();
    let found: Vec<_> = calm.findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "quiet: nothing happens, and the operator is restarted and changes something: patch machines/status default/build"
        ]
    );
}

#[test]
fn a_scenario_without_faults_runs_twice() {
    let scenario = Scenario::new("forgets", |manager| register(manager, Behavior::Forgets), notes_its_instance);
    let search = scenario.without_faults().search(&Budget::default().runs(100)).unwrap();
    assert_eq!((search.runs, search.failures.len()), (2, 0));
}

#[test]
fn conditions_are_checked() {
    let run = |user: for<'a> fn(&'a Sim) -> Boxed<'a>| {
        let scenario = Scenario::new(
            "conditions",
            |manager| register(manager, Behavior::Fixed),
            async move |sim: &Sim| user(sim).await,
        );
        let findings = scenario.run(&Schedule::calm(0)).unwrap().findings;
        findings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let found = run(|sim| {
        Box::pin(async move {
            sim.always("there is nothing", |world| world.list::<ConfigMap>().iter().all(|it| it.name_any() != "build"));
            sim.finally("there is a pod", |world| !world.list::<Pod>().is_empty());
            notes_its_instance(sim).await;
            sim.edit::<Machine>("build", json!({"metadata": {"labels": {"a": "b"}}})).await;
        })
    });
    assert_eq!(found, ["always: there is nothing", "finally: there is a pod"]);
    let found = run(|sim| {
        Box::pin(async move {
            sim.until("there is a pod", |world| !world.list::<Pod>().is_empty()).await;
        })
    });
    assert_eq!(found, ["until: there is a pod"]);
    let found = run(|sim| Box::pin(async move { sim.delete::<Pod>("web").await }));
    assert!(found[0].starts_with("step: delete web:") && found.len() == 1, "{found:?}");
    let found =
        run(|sim| Box::pin(async move { assert!(sim.read(|world| world.get::<Pod>("web").is_some()), "no pod") }));
    assert!(found[0].starts_with("panic: no pod at ") && found.len() == 1, "{found:?}");
}
