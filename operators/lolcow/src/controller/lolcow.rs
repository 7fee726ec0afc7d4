//! Keeps a page with a cow at a node port: a Deployment and a Service, both named as the Lolcow.
//!
//! [`children`] says what they are to be, [`plan`] decides, [`report`] words it, this module acts.
//!
//! * Both are **applied**, whole, by one manager. What isn't applied is others': replicas belong to an autoscaler,
//!   addresses to the API server. A steady Lolcow costs no request.
//! * The one doesn't wait for the other: each has its condition, with the API server's own words where it refuses.
//! * **Nothing is taken over.** An object of that name with another controller, or none, is left alone. That is looked up
//!   live before a child is made; an object that appears just then is safe, too, as its selector would be a conflict.
//! * **A conflict over fields**: what somebody edited by hand (an update) is restored, with an event that names them. What
//!   another manager *applied* is a standing claim: it is left, told in a condition, and tried again slowly. So is an
//!   update that comes back each time ([`Tussle`]).
//! * Fields that can't be changed, such as a Deployment's selector, are told in the same way: nothing that runs is
//!   deleted. Whoever deletes the child gets a new one.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::ResourceExt;
use kubewright::{cache::Reader, client::FieldConflict, prelude::*};
use parking_lot::Mutex;

use super::{
    children,
    plan::{self, Step},
    report::{self, Child, State, Trouble},
    tussle::Tussle,
};
use crate::api::v1alpha1::Lolcow;

/// How long until a child that the API server didn't take is tried again.
const REFUSED: Duration = Duration::from_secs(30);
/// How long until a Lolcow is looked at again of which the cache was behind. Its event wakes it earlier.
const BEHIND: Duration = Duration::from_secs(1);

/// The controller of Lolcows, whose pages are at this address.
pub(crate) fn controller(node_address: &str) -> Controller<Lolcow> {
    let reconciler = LolcowReconciler { node_address: node_address.into(), memory: Mutex::default() };
    Controller::<Lolcow>::new(reconciler)
        .name("lolcow-controller")
        .field_manager("lolcow-controller")
        .owns::<Deployment>()
        .owns::<Service>()
        .watches::<Deployment>(of_that_name)
        .watches::<Service>(of_that_name)
        // Both are garbage collected with their owner.
        .rbac(|role| {
            role.omit(PolicyRule::of::<Deployment>([Verb::Delete])).omit(PolicyRule::of::<Service>([Verb::Delete]))
        })
        .concurrency(4)
}

/// The Lolcow that may wait for this name.
fn of_that_name<T: Object>(object: &T, cows: &Reader<Lolcow>) -> Vec<ObjectKey> {
    Some(ObjectKey::of(object)).filter(|key| cows.get(key).is_some()).into_iter().collect()
}

struct LolcowReconciler {
    node_address: String,
    memory: Mutex<BTreeMap<ObjectKey, Memory>>,
}

/// What is remembered of a Lolcow between reconciles. Lost with the process, it costs a few requests and log lines.
#[derive(Default)]
struct Memory {
    /// The Lolcow's UID and generation of which the log tells.
    logged: Option<(Option<String>, Option<i64>)>,
    tussle: Tussle,
    /// By the kind of the child.
    hindrances: BTreeMap<String, Hindrance>,
}

/// What the API server said to an apply that, unless something changes, it would say again.
#[derive(Clone)]
struct Hindrance {
    /// The Lolcow's generation and the child's version.
    states: (Option<i64>, Option<String>),
    until: Duration,
    trouble: Trouble,
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
            return Ok(Action::requeue_after(BEHIND));
        }
        let [first, second] = steps;
        let (deployment, failed) = settled(self.keep(cow, deployment, first, ctx).await, cow, ctx);
        let (service, failed_too) = settled(self.keep(cow, service, second, ctx).await, cow, ctx);
        tell(cow, &deployment, &service, &self.node_address, ctx).await?;
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

/// The child as the cache has it, if it is there and ours.
fn own<T: Object>(cow: &Lolcow, ctx: &Context<Lolcow>) -> Result<Option<Arc<T>>, ClientError> {
    Ok(ctx.get::<T>(ctx.key())?.filter(|found| plan::is_own(cow, found.as_ref())))
}

/// Whether this is still the Lolcow, also in its spec.
async fn is_current(cow: &Lolcow, ctx: &Context<Lolcow>) -> Result<bool, ClientError> {
    let live = ctx.live().get::<Lolcow>(ctx.key()).await?;
    let state = |cow: &Lolcow| (cow.uid(), cow.metadata.generation, cow.metadata.deletion_timestamp.is_some());
    Ok(live.as_ref().map(state) == Some(state(cow)))
}

/// A failure to reach the API server as something to report and an error to be retried.
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
    let waits = |state: &State| matches!(state, State::Trouble(Trouble::Refused(_) | Trouble::Contested(_)));
    if states.iter().any(waits) { Action::requeue_after(REFUSED) } else { Action::await_change() }
}

impl LolcowReconciler {
    /// Makes a child be as it is to be.
    async fn keep<T: Object>(
        &self,
        cow: &Lolcow,
        wanted: T,
        step: Step,
        ctx: &Context<Lolcow>,
    ) -> Result<Child<T>, ClientError> {
        let object = own::<T>(cow, ctx)?;
        match step {
            Step::Keep => Ok(Child { object, state: State::Applied }),
            Step::Apply => match self.hindrance(cow, object.as_deref(), ctx) {
                Some(hindrance) => Ok(Child { object, state: State::Trouble(hindrance) }),
                None => self.apply(cow, wanted, object, ctx).await,
            },
            Step::Taken(message) => Ok(Child { object, state: State::Trouble(Trouble::Taken(message)) }),
            Step::Leaving(message) => Ok(Child { object, state: State::Trouble(Trouble::Leaving(message)) }),
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
        // The cache will show it, too, and wake this Lolcow.
        let obstacle = match found.as_deref().and_then(|found| plan::obstacle(cow, found)) {
            Some(Step::Taken(message)) => Some(Trouble::Taken(message)),
            Some(Step::Leaving(message)) => Some(Trouble::Leaving(message)),
            _ => None,
        };
        if let Some(trouble) = obstacle {
            return Ok(Child { object: None, state: State::Trouble(trouble) });
        }
        // With its UID it is no other object that has come to have the name.
        wanted.meta_mut().uid = found.as_ref().and_then(|found| found.meta().uid.clone());
        let mut answer = ctx.apply_child(wanted.clone()).await;
        if let Err(error) = &answer {
            let conflicts = error.field_conflicts();
            if !conflicts.is_empty() && conflicts.iter().all(FieldConflict::is_by_hand) && self.may_take_back(ctx) {
                answer = ctx.apply_child(wanted).force().await;
                if answer.is_ok() {
                    self.with_memory(ctx, |memory| memory.tussle.took_back(ctx.monotonic()));
                    ctx.record(Event::warning("Restored", restored::<T>(&conflicts)));
                }
            }
        }
        match answer {
            Ok(object) => Ok(Child { object: Some(Arc::new(object)), state: State::Applied }),
            Err(error) => {
                let Some(trouble) = trouble(&error) else { return Err(error) };
                let now = ctx.monotonic();
                let states = states(cow, found.as_deref());
                let hindrance = Hindrance { states, until: now + REFUSED, trouble: trouble.clone() };
                self.with_memory(ctx, |memory| memory.hindrances.insert(T::kind(&()).into(), hindrance));
                Ok(Child { object: found, state: State::Trouble(trouble) })
            }
        }
    }

    /// Why an apply needn't be tried again yet.
    fn hindrance<T: Object>(&self, cow: &Lolcow, found: Option<&T>, ctx: &Context<Lolcow>) -> Option<Trouble> {
        self.with_memory(ctx, |memory| {
            let hindrance = memory.hindrances.get(T::kind(&()).as_ref())?;
            let same = hindrance.states == states(cow, found) && ctx.monotonic() < hindrance.until;
            same.then(|| hindrance.trouble.clone())
        })
    }

    fn may_take_back(&self, ctx: &Context<Lolcow>) -> bool {
        self.with_memory(ctx, |memory| memory.tussle.may_take_back(ctx.monotonic()))
    }

    /// Logs what the spec says and what it was, once for each state of the spec and each start of the operator.
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

/// The state of the Lolcow and of a child that an answer of the API server was for.
fn states<T: Object>(cow: &Lolcow, found: Option<&T>) -> (Option<i64>, Option<String>) {
    (cow.metadata.generation, found.and_then(|found| found.meta().resource_version.clone()))
}

/// What an answer means that another try would get again; nothing if it is worth a try.
fn trouble(error: &ClientError) -> Option<Trouble> {
    if !error.field_conflicts().is_empty() {
        return error.status().map(|status| Trouble::Contested(status.message.clone()));
    }
    error.refusal().map(|message| Trouble::Refused(message.into()))
}

/// What is said of fields that were taken back.
fn restored<T: Object>(conflicts: &[FieldConflict]) -> String {
    let mut managers: Vec<_> = conflicts.iter().map(|conflict| format!("{:?}", conflict.manager)).collect();
    managers.sort();
    managers.dedup();
    let fields: Vec<_> = conflicts.iter().map(|conflict| conflict.field.as_str()).collect();
    let kind = T::kind(&()).to_lowercase();
    format!("{kind}: took back {} from {}", fields.join(", "), managers.join(", "))
}

/// Writes the status, and events for what is new in it.
async fn tell(
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
