//! Serves a web page with a cow at a node port, by a Deployment and a Service with the name of the Lolcow.
//!
//! [`children`] builds the wanted objects, [`plan`] decides, [`report`] describes the result, and this module executes
//! the plan.
//!
//! * Both are **applied** as a whole by one field manager. Other fields are left to others: replicas to an autoscaler,
//!   addresses to the API server. A steady Lolcow costs no requests.
//! * The children are independent: each has its own condition, with the API server's message if it refuses the child.
//! * **Nothing is taken over.** An object of that name with another controller, or without one, is not changed. This is
//!   checked live before a child is created; an object that is created meanwhile is safe as well, since its selector
//!   conflicts.
//! * **Field conflicts**: manual edits (updates) are reverted, with an event that names them. A field that another
//!   manager has *applied* is a permanent claim: it is left in place, reported in a condition, and tried again slowly.
//!   The same applies to an update that is repeated ([`TakeBackLimit`]).
//! * Immutable fields, such as a Deployment's selector, are reported in the same way: nothing that runs is deleted. If
//!   a user deletes the child, it is created again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::ResourceExt;
use kubewright::{cache::Reader, client::FieldConflict, prelude::*};
use parking_lot::Mutex;

use super::{
    children,
    field_conflict::TakeBackLimit,
    plan::{self, Step},
    report::{self, Child, ChildError, State},
};
use crate::api::v1alpha1::Lolcow;

/// The delay before a child that the API server refused is applied again.
const REFUSED_DELAY: Duration = Duration::from_secs(30);
/// The delay before a Lolcow with a stale cache is reconciled again. An event usually triggers a reconcile earlier.
const STALE_DELAY: Duration = Duration::from_secs(1);

/// Returns the controller of Lolcows, whose pages are served at this address.
pub(crate) fn controller(node_address: &str) -> Controller<Lolcow> {
    let reconciler = LolcowReconciler { node_address: node_address.into(), memory: Mutex::default() };
    Controller::<Lolcow>::new(reconciler)
        .name("lolcow-controller")
        .field_manager("lolcow-controller")
        .owns::<Deployment>()
        .owns::<Service>()
        .watches::<Deployment>(of_that_name)
        .watches::<Service>(of_that_name)
        // Both children are garbage collected with their owner.
        .rbac(|role| {
            role.omit(PolicyRule::of::<Deployment>([Verb::Delete])).omit(PolicyRule::of::<Service>([Verb::Delete]))
        })
        .concurrency(4)
}

/// Returns the Lolcow that may be waiting for this name.
fn of_that_name<T: Object>(object: &T, cows: &Reader<Lolcow>) -> Vec<ObjectKey> {
    Some(ObjectKey::of(object)).filter(|key| cows.get(key).is_some()).into_iter().collect()
}

struct LolcowReconciler {
    node_address: String,
    memory: Mutex<BTreeMap<ObjectKey, Memory>>,
}

/// The in-memory state of a Lolcow. Losing it costs a few requests and log lines.
#[derive(Default)]
struct Memory {
    /// The UID and generation of the Lolcow at the last log entry.
    logged: Option<(Option<String>, Option<i64>)>,
    take_backs: TakeBackLimit,
    /// The most recent refusals, by the kind of the child.
    refusals: BTreeMap<String, RejectedWrite>,
}

/// A refusal by the API server, which would be repeated unless something changes.
#[derive(Clone)]
struct RejectedWrite {
    /// The Lolcow's generation and the child's version.
    states: (Option<i64>, Option<String>),
    until: Duration,
    error_state: ChildError,
}

impl Reconciler<Lolcow> for LolcowReconciler {
    type Error = ClientError;

    async fn reconcile(&self, cow: &Lolcow, ctx: &Context<Lolcow>) -> Result<Action, ClientError> {
        self.log(cow, ctx)?;
        let (deployment, service) = (children::deployment(cow), children::service(cow));
        let steps = [
            plan::step(cow, &deployment, ctx.get(ctx.key())?.as_deref()),
            plan::step(cow, &service, ctx.get(ctx.key())?.as_deref()),
        ];
        if steps.contains(&Step::Apply) && !is_current(cow, ctx).await? {
            return Ok(Action::requeue_after(STALE_DELAY));
        }
        let [first, second] = steps;
        let (deployment, failed) = settled(self.reconcile_child(cow, deployment, first, ctx).await, cow, ctx);
        let (service, failed_too) = settled(self.reconcile_child(cow, service, second, ctx).await, cow, ctx);
        write_status(cow, &deployment, &service, &self.node_address, ctx).await?;
        match failed.or(failed_too) {
            Some(error) => Err(error),
            None => Ok(action(&[deployment.state, service.state])),
        }
    }

    async fn deleted(&self, key: &ObjectKey, _: &Context<Lolcow>) -> Result<(), ClientError> {
        self.memory.lock().remove(key);
        Ok(())
    }
}

/// Returns the cached child, if the Lolcow controls it.
fn own<T: Object>(cow: &Lolcow, ctx: &Context<Lolcow>) -> Result<Option<Arc<T>>, ClientError> {
    Ok(ctx.get::<T>(ctx.key())?.filter(|found| plan::is_own(cow, found.as_ref())))
}

/// Returns whether the Lolcow is the cached one, with the same spec.
async fn is_current(cow: &Lolcow, ctx: &Context<Lolcow>) -> Result<bool, ClientError> {
    let live = ctx.live().get::<Lolcow>(ctx.key()).await?;
    let state = |cow: &Lolcow| (cow.uid(), cow.metadata.generation, cow.metadata.deletion_timestamp.is_some());
    Ok(live.as_ref().map(state) == Some(state(cow)))
}

/// Converts a failed request to a state to report and an error to retry.
fn settled<T: Object>(
    kept: Result<Child<T>, ClientError>,
    cow: &Lolcow,
    ctx: &Context<Lolcow>,
) -> (Child<T>, Option<ClientError>) {
    match kept {
        Ok(child) => (child, None),
        Err(error) => (Child { object: own(cow, ctx).ok().flatten(), state: State::Unknown }, Some(error)),
    }
}

fn action(states: &[State]) -> Action {
    let waits = |state: &State| matches!(state, State::Failed(ChildError::Refused(_) | ChildError::Contested(_)));
    if states.iter().any(waits) { Action::requeue_after(REFUSED_DELAY) } else { Action::await_change() }
}

impl LolcowReconciler {
    /// Brings a child into the desired state.
    async fn reconcile_child<T: Object>(
        &self,
        cow: &Lolcow,
        wanted: T,
        step: Step,
        ctx: &Context<Lolcow>,
    ) -> Result<Child<T>, ClientError> {
        let object = own::<T>(cow, ctx)?;
        match step {
            Step::Keep => Ok(Child { object, state: State::Applied }),
            Step::Apply => match self.last_refusal(cow, object.as_deref(), ctx) {
                Some(refusal) => Ok(Child { object, state: State::Failed(refusal) }),
                None => self.apply(cow, wanted, object, ctx).await,
            },
            Step::Taken(message) => Ok(Child { object, state: State::Failed(ChildError::Taken(message)) }),
            Step::Deleting(message) => Ok(Child { object, state: State::Failed(ChildError::Deleting(message)) }),
        }
    }

    /// Applies a child, unless its name turns out to be taken.
    async fn apply<T: Object>(
        &self,
        cow: &Lolcow,
        mut wanted: T,
        cached: Option<Arc<T>>,
        ctx: &Context<Lolcow>,
    ) -> Result<Child<T>, ClientError> {
        let found = match cached {
            Some(found) => Some(found),
            None => ctx.live().get::<T>(ctx.key()).await?.map(Arc::new),
        };
        // The cache will show this object as well, and trigger a reconcile.
        let blocker = match found.as_deref().and_then(|found| plan::blocker(cow, found)) {
            Some(Step::Taken(message)) => Some(ChildError::Taken(message)),
            Some(Step::Deleting(message)) => Some(ChildError::Deleting(message)),
            _ => None,
        };
        if let Some(error_state) = blocker {
            return Ok(Child { object: None, state: State::Failed(error_state) });
        }
        // With its UID, the apply can't affect another object of the same name.
        wanted.meta_mut().uid = found.as_ref().and_then(|found| found.meta().uid.clone());
        let mut answer = ctx.apply_child(wanted.clone()).await;
        if let Err(error) = &answer {
            let conflicts = error.field_conflicts();
            if !conflicts.is_empty() && conflicts.iter().all(FieldConflict::is_by_hand) && self.is_allowed(ctx) {
                answer = ctx.apply_child(wanted).force().await;
                if answer.is_ok() {
                    self.with_memory(ctx, |memory| memory.take_backs.record(ctx.monotonic()));
                    ctx.record(Event::warning("Restored", restored::<T>(&conflicts)));
                }
            }
        }
        match answer {
            Ok(object) => Ok(Child { object: Some(Arc::new(object)), state: State::Applied }),
            Err(error) => {
                let Some(error_state) = lasting_refusal(&error) else { return Err(error) };
                let now = ctx.monotonic();
                let states = states(cow, found.as_deref());
                let refusal = RejectedWrite { states, until: now + REFUSED_DELAY, error_state: error_state.clone() };
                self.with_memory(ctx, |memory| memory.refusals.insert(T::kind(&()).into(), refusal));
                Ok(Child { object: found, state: State::Failed(error_state) })
            }
        }
    }

    /// Returns the last refusal of an apply, unless the apply is due for another attempt.
    fn last_refusal<T: Object>(&self, cow: &Lolcow, found: Option<&T>, ctx: &Context<Lolcow>) -> Option<ChildError> {
        self.with_memory(ctx, |memory| {
            let refusal = memory.refusals.get(T::kind(&()).as_ref())?;
            let same = refusal.states == states(cow, found) && ctx.monotonic() < refusal.until;
            same.then(|| refusal.error_state.clone())
        })
    }

    fn is_allowed(&self, ctx: &Context<Lolcow>) -> bool {
        self.with_memory(ctx, |memory| memory.take_backs.is_allowed(ctx.monotonic()))
    }

    /// Logs the values in the spec and the previous ones, once for each change of the spec and for each start of the
    /// operator.
    fn log(&self, cow: &Lolcow, ctx: &Context<Lolcow>) -> Result<(), ClientError> {
        let state = Some((cow.uid(), cow.metadata.generation));
        let logged = self.with_memory(ctx, |memory| std::mem::replace(&mut memory.logged, state.clone()));
        if logged == state {
            return Ok(());
        }
        let greeting = plan::greeting(cow, own::<Deployment>(cow, ctx)?.as_deref());
        let (wanted, found) = (greeting.wanted.as_deref(), greeting.found.as_deref());
        if greeting.is_new() {
            tracing::info!(lolcow = %ctx.key(), greeting = wanted, was = found, "New Greeting");
        } else {
            tracing::info!(lolcow = %ctx.key(), greeting = wanted, was = found, "No Change to Greeting");
        }
        let port = plan::port(cow, own::<Service>(cow, ctx)?.as_deref());
        if port.is_new() {
            tracing::info!(lolcow = %ctx.key(), port = port.wanted, was = port.found, "New Port");
        } else {
            tracing::info!(lolcow = %ctx.key(), port = port.wanted, was = port.found, "No Change to Port");
        }
        Ok(())
    }

    fn with_memory<T>(&self, ctx: &Context<Lolcow>, use_it: impl FnOnce(&mut Memory) -> T) -> T {
        use_it(self.memory.lock().entry(ctx.key().clone()).or_default())
    }
}

/// Returns the versions of the Lolcow and the child that a response of the API server refers to.
fn states<T: Object>(cow: &Lolcow, found: Option<&T>) -> (Option<i64>, Option<String>) {
    (cow.metadata.generation, found.and_then(|found| found.meta().resource_version.clone()))
}

/// Returns the refusal if another attempt would fail in the same way; `None` if it is worth another attempt.
fn lasting_refusal(error: &ClientError) -> Option<ChildError> {
    if !error.field_conflicts().is_empty() {
        return error.status().map(|status| ChildError::Contested(status.message.clone()));
    }
    error.refusal().map(|message| ChildError::Refused(message.into()))
}

/// Returns the message about restored fields.
fn restored<T: Object>(conflicts: &[FieldConflict]) -> String {
    let mut managers: Vec<_> = conflicts.iter().map(|conflict| format!("{:?}", conflict.manager)).collect();
    managers.sort();
    managers.dedup();
    let fields: Vec<_> = conflicts.iter().map(|conflict| conflict.field.as_str()).collect();
    let kind = T::kind(&()).to_lowercase();
    format!("{kind}: took back {} from {}", fields.join(", "), managers.join(", "))
}

/// Writes the status, and events for its changes.
async fn write_status(
    cow: &Lolcow,
    deployment: &Child<Deployment>,
    service: &Child<Service>,
    node_address: &str,
    ctx: &Context<Lolcow>,
) -> Result<(), ClientError> {
    let status = report::status(cow, deployment, service, node_address, ctx.now());
    let before = cow.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let events = report::events(before, &status.conditions);
    ctx.set_status(status).await?;
    events.into_iter().for_each(|event| ctx.record(event));
    Ok(())
}
