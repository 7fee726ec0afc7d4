//! Simulation of an operator: on an embedded cluster, on virtual time, with faults at chosen moments.
//!
//! A [`Scenario`] is an operator with a function that plays its user. [`Scenario::run`] executes it once, with the
//! faults of a [`Schedule`]. [`Scenario::search`] executes it without faults, and then once for each fault at each
//! write, event and request of the operator. [`Scenario::test`] searches in a test, and panics with the story of the
//! first run that failed:
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kubewright_runtime::manager::Manager;
//! use kubewright_simulation::{Scenario, Sim};
//!
//! # fn register(manager: Manager) -> Manager { manager }
//! async fn creates_a_copy(sim: &Sim) {
//!     sim.finally("there is a copy", |world| world.get::<ConfigMap>("copy").is_some());
//!     sim.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: original}}").await;
//!     sim.until("it is copied", |world| world.get::<ConfigMap>("copy").is_some()).await;
//! }
//!
//! // #[test]
//! fn simulation() {
//!     Scenario::new("creates_a_copy", register, creates_a_copy).test();
//! }
//! ```
//!
//! A run has a tokio runtime of its own, with one thread and paused time, a seeded random source and a new cluster. It
//! needs no word from the author to find what no operator should do; see [`oracle`].
//!
//! # Modules
//!
//! * `scenario`, `sim`, `world`: what an author uses.
//! * [`conformance`]: scenarios for any operator.
//! * [`mod@env`]: the same cluster for tests that aren't searched.
//! * `run`, `outcome`: one run from its start to its [`Outcome`].
//! * `described`, `prepared`: the description of the operator, and the cluster with its kinds that each run begins
//!   with.
//! * [`schedule`] and [`fault`]: what goes wrong, and when.
//! * `network`: the client of the operator, which records requests and events and applies faults.
//! * `process`: the operator's processes, which die and are started again, also in another version.
//! * `outside`: what happens to pods, to the clock, and by the user between the steps of the scenario.
//! * `webhooks`: the operator's webhooks, which the API server calls within the process.
//! * `certificates`: how processes make and renew the certificates of these webhooks.
//! * `control`: what these tell each other.
//! * `reconciles`: the reconciles that have ended, from their traces.
//! * `logs`: what the operator logs.
//! * [`history`]: what happened, in order.
//! * [`oracle`]: what must not happen.
//! * `search`: which schedules are run, and how many of them were.
//! * `progress`: how far a search is, for the command line.
//! * `coverage`: the states that runs reach, without names and times.
//! * `shrink`: the smallest schedule that still fails.
//! * [`story`]: the account of a run that failed.

mod certificates;
pub mod conformance;
mod control;
mod coverage;
mod described;
pub mod env;
mod error;
pub mod fault;
pub mod history;
mod logs;
mod network;
pub mod oracle;
mod outcome;
mod outside;
mod panics;
mod prepared;
mod process;
mod progress;
mod reconciles;
mod run;
mod scenario;
pub mod schedule;
mod search;
mod settings;
mod shrink;
mod sim;
mod state;
pub mod story;
mod test;
mod webhooks;
mod world;

pub use self::{
    error::{SimulationError, VARIABLE},
    fault::Fault,
    history::History,
    oracle::Finding,
    outcome::Outcome,
    scenario::{Options, Register, Scenario},
    schedule::{Injection, Point, Schedule},
    search::{Budget, Failure, Phase, Search, Tried},
    settings::Settings,
    sim::{Sim, Span},
    world::World,
};
