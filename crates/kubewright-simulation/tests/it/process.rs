//! An operator that gives up on a ticket that is two minutes old, although what it waits for is there. Only a pause
//! shows it.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResource, api::ObjectMeta};
use kubewright::prelude::*;
use kubewright_simulation::{
    Budget, Fault, Point, Scenario, Schedule, Sim, fault::ProcessFault, history::Entry, story,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::search;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "simulation.kubewright.dev", version = "v1", kind = "Ticket", namespaced, status = "TicketStatus")]
struct TicketSpec {}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
struct TicketStatus {
    phase: String,
}

/// Whether the operator looks before it gives up.
struct Operator {
    looks_first: bool,
}

impl Reconciler<Ticket> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, ticket: &Ticket, ctx: &Context<Ticket>) -> Result<Action, ClientError> {
        if ticket.status.is_some() {
            return Ok(Action::await_change());
        }
        let created = ticket.metadata.creation_timestamp.as_ref().map_or(ctx.now(), |time| time.0);
        let is_late = ctx.now().as_second() - created.as_second() > 120;
        let is_there = (self.looks_first || !is_late) && ctx.live().get::<ConfigMap>(ctx.key()).await?.is_some();
        let phase = match (is_there, is_late) {
            (true, _) => "Done",
            (false, true) => "TimedOut",
            (false, false) => return Ok(Action::requeue_after(std::time::Duration::from_secs(10))),
        };
        ctx.set_status(TicketStatus { phase: phase.into() }).await?;
        Ok(Action::await_change())
    }
}

fn register(manager: Manager, looks_first: bool) -> Manager {
    let controller = Controller::<Ticket>::new(Operator { looks_first });
    manager.kind::<Ticket>().policy_rule(PolicyRule::of::<ConfigMap>([Verb::Get])).controller(controller)
}

async fn waits(sim: &Sim) {
    let phase = |ticket: Ticket| ticket.status.map(|status| status.phase);
    sim.finally("the ticket is done", move |world| {
        world.get::<Ticket>("one").and_then(phase).as_deref() == Some("Done")
    });
    let metadata = ObjectMeta { name: Some("one".into()), ..ObjectMeta::default() };
    sim.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    sim.create(&Ticket::new("one", TicketSpec {})).await;
    sim.until("it is decided", |world| world.get::<Ticket>("one").is_some_and(|it| it.status.is_some())).await;
}

#[test]
fn a_pause_shows_an_operator_that_gives_up_too_early() {
    let scenario = Scenario::new("hasty", |manager| register(manager, false), waits);
    let search = scenario.search(&Budget::default()).unwrap();
    let failure = &search.failures[0];
    let [injection] = failure.schedule.injections.as_slice() else { panic!("{:?}", failure.schedule) };
    assert_eq!(injection.fault, Fault::Process(ProcessFault::Paused));
    let found: Vec<_> = failure.outcome.findings.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["finally: the ticket is done"]);
    let story = story::text("hasty", failure);
    assert!(story.contains("the operator is paused for five minutes before it"), "{story}");
}

#[test]
fn an_operator_that_looks_first_is_not_blamed() {
    let scenario = Scenario::new("patient", |manager| register(manager, true), waits);
    let Some(search) = search(&scenario, &Budget::default()) else { return };
    assert!(search.is_complete && search.requests > search.writes, "{} requests", search.requests);
}

/// Applies its config map whenever it runs.
struct Applying;

impl Reconciler<Ticket> for Applying {
    type Error = ClientError;

    async fn reconcile(&self, ticket: &Ticket, ctx: &Context<Ticket>) -> Result<Action, ClientError> {
        let metadata = ObjectMeta { name: ticket.metadata.name.clone(), ..ObjectMeta::default() };
        ctx.apply_child(ConfigMap { metadata, ..ConfigMap::default() }).await?;
        Ok(Action::await_change())
    }
}

async fn is_applied(sim: &Sim) {
    sim.create(&Ticket::new("one", TicketSpec {})).await;
    sim.until("it is applied", |world| world.get::<ConfigMap>("one").is_some()).await;
}

/// A process that is started again applies what it has applied before, so none is killed in the hour without writes.
/// Watches that begin again are requests of that hour.
#[test]
fn no_fault_happens_at_rest() {
    let register =
        |manager: Manager| manager.kind::<Ticket>().controller(Controller::<Ticket>::new(Applying).owns::<ConfigMap>());
    let scenario = Scenario::new("applies", register, is_applied);
    let calm = scenario.run(&Schedule::calm(0)).unwrap();
    let mut requests = calm.history.records().iter().filter_map(|record| match &record.entry {
        Entry::Request(request) if request.resource != "leases" => Some((record.at, request.number)),
        _ => None,
    });
    let (at, number) = requests.next_back().unwrap();
    assert!(at > 1_800_000, "the last request is at {at} ms");
    let fault = Fault::Process(ProcessFault::Killed);
    let killed = scenario.run(&Schedule::calm(0).with(Point::Request(number), fault)).unwrap();
    assert_eq!(killed.findings, []);
    assert_eq!(killed.unreached.len(), 1);
    search(&scenario, &Budget::default());
}
