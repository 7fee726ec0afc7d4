//! A workspace: whatever happens, an external service sees one token for each object.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use kube::CustomResource;
use kubewright::prelude::*;
use kubewright_simulation::{Budget, Scenario, Sim};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::search;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "simulation.kubewright.dev", version = "v1", kind = "Letter", namespaced, status = "LetterStatus")]
struct LetterSpec {}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct LetterStatus {
    token: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Memory {
    token: Option<String>,
}

thread_local! {
    /// The tokens that the service has received, by the UID of the object. A run has one thread.
    static RECEIVED: RefCell<BTreeMap<String, BTreeSet<String>>> = RefCell::default();
}

/// Sends a token to the service. If it is stored before, no token is sent twice.
struct Writer {
    stores_first: bool,
}

impl Reconciler<Letter> for Writer {
    type Error = ClientError;

    async fn reconcile(&self, letter: &Letter, ctx: &Context<Letter>) -> Result<Action, ClientError> {
        let mut memory = ctx.workspace::<Memory>().await?;
        let token = memory.token.clone().unwrap_or_else(|| format!("{:08x}", ctx.random().u64() as u32));
        let uid = letter.metadata.uid.clone().unwrap_or_default();
        let send = || RECEIVED.with_borrow_mut(|received| received.entry(uid).or_default().insert(token.clone()));
        if self.stores_first {
            memory.update(|memory| memory.token = Some(token.clone())).await?;
            send();
        } else {
            send();
            memory.update(|memory| memory.token = Some(token.clone())).await?;
        }
        ctx.set_status(LetterStatus { token: Some(token) }).await?;
        Ok(Action::await_change())
    }
}

fn register(manager: Manager, stores_first: bool) -> Manager {
    let controller = Controller::<Letter>::new(Writer { stores_first }).rbac(|role| role.workspace());
    manager.kind::<Letter>().controller(controller)
}

async fn sends(sim: &Sim) {
    RECEIVED.with_borrow_mut(BTreeMap::clear);
    sim.always("one token for each object", |_| {
        RECEIVED.with_borrow(|received| received.values().all(|tokens| tokens.len() <= 1))
    });
    sim.create(&Letter::new("ada", LetterSpec {})).await;
    sim.until("it is sent", |world| {
        world.get::<Letter>("ada").is_some_and(|letter| letter.status.is_some_and(|status| status.token.is_some()))
    })
    .await;
    sim.edit::<Letter>("ada", json!({"metadata": {"labels": {"a": "b"}}})).await;
    sim.advance(std::time::Duration::from_secs(60)).await;
    sim.delete::<Letter>("ada").await;
}

#[test]
fn a_token_that_is_stored_first_is_the_only_one() {
    let scenario = Scenario::new("sends", |manager| register(manager, true), sends).unconditional();
    let Some(search) = search(&scenario, &Budget::default()) else { return };
    assert!(search.is_complete && search.runs > 100, "{} runs", search.runs);
}

#[test]
fn a_token_that_is_sent_first_is_replaced_by_another() {
    let scenario = Scenario::new("sends", |manager| register(manager, false), sends).unconditional();
    let failure = scenario.search(&Budget::default()).unwrap().failures.remove(0);
    assert_eq!(failure.outcome.findings[0].to_string(), "always: one token for each object");
    assert_eq!(failure.schedule.injections.len(), 1, "{}", failure.schedule);
}
