//! Keeps as many pods as a PodSet desires. One reconciler serves both flavours ([`flavour::Flavour`]).
//!
//! [`plan`] decides, [`report`] words it, this module acts. What is missing is created on the word of the cache: it shows
//! all that was created before, by this process or by one that worked on the PodSet earlier. Others may have deleted what
//! it still shows, so before a pod is deleted or replaced the API server is asked how things are; see [`Plan::is_grave`].
//! To bring a PodSet up costs its pods and its status, and a steady one no request at all.
//!
//! * The UID of the controller decides whose a pod is. A pod with the labels but without an owner is **ignored**, not
//!   adopted. One that loses a label is released: it stays, without its owner reference, and is replaced.
//! * Pods that have ended are replaced, and the newest three kept for a look at their logs.
//! * What the API server refuses is told in its words and tried again slowly, and pods that vanish as fast as they
//!   appear are replaced ever more slowly ([`kubewright::create_backoff`]).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, TryFutureExt, stream};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::{api::Patch, core::Selector};
use kubewright::{
    create_backoff::{CreateBackoff, Decision},
    owner::is_controlled_by,
    prelude::*,
};
use parking_lot::Mutex;
use serde_json::json;

use super::{
    flavour::{self, Flavour, Observed},
    plan::{self, Plan},
    pod,
    report::{self, Problem},
    view::PodView,
};

/// How many requests for one PodSet are under way at a time.
const PARALLEL: usize = 16;
/// How long until a PodSet is looked at again of which the cache was behind. Its event wakes it earlier.
const BEHIND: Duration = Duration::from_secs(1);

// ANCHOR: controller
/// The controller of a flavour of PodSets.
pub(crate) fn controller<K: Flavour>(name: &str) -> Controller<K> {
    Controller::<K>::new(PodSetReconciler { backoff: Mutex::default() }).name(name).owns::<PodView>().concurrency(4)
}
// ANCHOR_END: controller

struct PodSetReconciler {
    /// What is remembered of creations. Lost with the process, it only makes the next ones faster.
    backoff: Mutex<BTreeMap<ObjectKey, CreateBackoff>>,
}

/// The pods after a reconcile's own writes.
#[derive(Default)]
struct After {
    active: Vec<Arc<PodView>>,
    problem: Option<Problem>,
    /// Something had changed since it was read, so that not all was done.
    behind: bool,
}

impl<K: Flavour> Reconciler<K> for PodSetReconciler {
    type Error = ClientError;

    // ANCHOR: reconcile
    async fn reconcile(&self, set: &K, ctx: &Context<K>) -> Result<Action, ClientError> {
        let plan = plan::plan(set.desired(), &set.pod_labels(), ctx.children::<PodView>()?);
        let hindrance = if plan.create > 0 { self.hindrance(set, ctx) } else { None };
        let mends = Plan { create: 0, ..plan.clone() }.acts();
        let after = if mends || (plan.create > 0 && hindrance.is_none()) {
            match self.act(set, plan, ctx).await? {
                Some(after) => after,
                None => return Ok(Action::requeue_after(BEHIND)),
            }
        } else {
            After { active: plan.active, problem: hindrance, behind: false }
        };
        tell(set, &after, ctx).await?;
        let wait = after.problem.as_ref().and_then(Problem::wait).or(after.behind.then_some(BEHIND));
        Ok(wait.map_or(Action::await_change(), Action::requeue_after))
    }
    // ANCHOR_END: reconcile

    async fn deleted(&self, key: &ObjectKey, _: &Context<K>) -> Result<(), ClientError> {
        self.backoff.lock().remove(key);
        Ok(())
    }
}

impl PodSetReconciler {
    /// What forbids to create pods at present.
    fn hindrance<K: Flavour>(&self, set: &K, ctx: &Context<K>) -> Option<Problem> {
        let mut backoff = self.backoff.lock();
        let backoff = backoff.entry(ctx.key().clone()).or_default();
        match backoff.decide(set.meta().generation, set.desired(), ctx.monotonic()) {
            Decision::Create => None,
            Decision::Slow(wait) => Some(Problem::Slow(wait)),
            Decision::Refused(wait, message) => Some(Problem::Refused(wait, message)),
        }
    }

    // ANCHOR: act
    /// Does what is to be done, given what the cache shows; nothing if the PodSet turns out not to be what the cache shows.
    async fn act<K: Flavour>(&self, set: &K, cached: Plan, ctx: &Context<K>) -> Result<Option<After>, ClientError> {
        for pod in &cached.release {
            release(set, pod, ctx).await?;
        }
        let plan = if cached.is_grave(set.told()) {
            let Some(pods) = pods(set, ctx).await? else { return Ok(None) };
            plan::plan(set.desired(), &set.pod_labels(), pods)
        } else {
            cached
        };
        let unneeded = [plan.discard, plan.delete].concat();
        let deletions: Vec<_> = unneeded.iter().map(|pod| delete(pod, ctx).boxed()).collect();
        let deletions: Vec<_> = stream::iter(deletions).buffered(PARALLEL).collect().await;
        let mut after = After { active: plan.active, ..After::default() };
        for (pod, deleted) in unneeded.iter().zip(deletions) {
            if deleted? {
                after.active.retain(|active| active.metadata.uid != pod.metadata.uid);
            } else {
                after.behind = true;
            }
        }
        if plan.create > 0 {
            self.create(set, plan.create, &mut after, ctx).await?;
        }
        Ok(Some(after))
    }
    // ANCHOR_END: act

    /// Creates so many pods, in batches that double while none is refused.
    async fn create<K: Flavour>(
        &self,
        set: &K,
        missing: usize,
        after: &mut After,
        ctx: &Context<K>,
    ) -> Result<(), ClientError> {
        after.problem = self.hindrance(set, ctx);
        if after.problem.is_some() {
            return Ok(());
        }
        let template = match pod::template(set) {
            Ok(template) => template,
            Err(error) => {
                after.problem = Some(Problem::Template(error.to_string()));
                return Ok(());
            }
        };
        let before = after.active.len();
        let mut failure = None;
        for batch in plan::batches(missing) {
            let (created, failed) = create_batch(set, &template, batch, ctx).await;
            after.active.extend(created);
            failure = failed;
            if failure.is_some() {
                break;
            }
        }
        self.with_backoff(ctx, |backoff| backoff.created(after.active.len() - before, set.desired(), ctx.monotonic()));
        match failure {
            None => Ok(()),
            Some((_, error)) if error.is_already_exists() => {
                after.behind = true;
                Ok(())
            }
            Some((pod, error)) => {
                let Some(message) = error.refusal() else { return Err(error) };
                // Every try draws another name, and a message that changed each time would be written each time.
                let message = message.replace(&pod, &format!("{}-*", set.name_any()));
                self.with_backoff(ctx, |backoff| backoff.refused(message, ctx.monotonic()));
                after.problem = self.hindrance(set, ctx);
                Ok(())
            }
        }
    }

    fn with_backoff<K: Flavour>(&self, ctx: &Context<K>, change: impl FnOnce(&mut CreateBackoff)) {
        change(self.backoff.lock().entry(ctx.key().clone()).or_default());
    }
}

// ANCHOR: live
/// All pods that the PodSet controls, as the API server has them now; none if it has another PodSet than the cache.
async fn pods<K: Flavour>(set: &K, ctx: &Context<K>) -> Result<Option<Vec<Arc<PodView>>>, ClientError> {
    let now = ctx.live().get::<K>(ctx.key()).await?;
    let state = |set: &K| (set.meta().uid.clone(), set.meta().generation, set.meta().deletion_timestamp.is_some());
    if now.as_ref().map(state) != Some(state(set)) {
        return Ok(None);
    }
    let pods = ctx.live().list::<PodView>(&Selector::from_iter(set.pod_labels())).await?;
    let uid = set.meta().uid.as_deref().unwrap_or_default();
    Ok(Some(pods.into_iter().filter(|pod| is_controlled_by(pod, uid)).map(Arc::new).collect()))
}
// ANCHOR_END: live

/// Creates so many pods at a time. The first error counts, with the name of its pod; the others of the batch go on.
async fn create_batch<K: Flavour>(
    set: &K,
    template: &PodTemplateSpec,
    size: usize,
    ctx: &Context<K>,
) -> (Vec<Arc<PodView>>, Option<(String, ClientError)>) {
    let pods = (0..size).map(|_| {
        let pod = pod::pod(set, template, ctx.random());
        let name = pod.name_any();
        ctx.create_child(pod).map_err(|error| (name, error)).boxed()
    });
    let answers: Vec<_> = stream::iter(pods).buffered(PARALLEL).collect().await;
    let (created, failed): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    (created.into_iter().flatten().map(|pod| Arc::new(pod.into())).collect(), failed.into_iter().find_map(Result::err))
}

/// Deletes a pod, unless it has changed since it was read; tells whether it did.
async fn delete<K: Flavour>(pod: &PodView, ctx: &Context<K>) -> Result<bool, ClientError> {
    match ctx.delete(pod).await {
        Ok(()) => Ok(true),
        Err(error) if error.is_conflict() => Ok(false),
        Err(error) => Err(error),
    }
}

// ANCHOR: release
/// Takes the PodSet's reference off a pod that lost a label.
async fn release<K: Flavour>(set: &K, pod: &PodView, ctx: &Context<K>) -> Result<(), ClientError> {
    let reference = json!({"$patch": "delete", "uid": set.meta().uid});
    let patch = json!({"metadata": {"uid": pod.metadata.uid, "ownerReferences": [reference]}});
    match ctx.patch::<PodView, _>(&ObjectKey::of(pod), &Patch::Strategic(patch)).await {
        Err(error) if !(error.is_not_found() || error.is_conflict()) => Err(error),
        _ => Ok(()),
    }
}
// ANCHOR_END: release

// ANCHOR: tell
/// Writes the status, and an event if there is a new problem.
async fn tell<K: Flavour>(set: &K, after: &After, ctx: &Context<K>) -> Result<(), ClientError> {
    let mut names: Vec<String> = after.active.iter().map(|pod| pod.name_any()).collect();
    names.sort();
    let ready = after.active.iter().filter(|pod| plan::is_ready(pod)).count();
    let generation = set.meta().generation;
    let problem = after.problem.as_ref();
    let conditions = report::conditions(set.conditions(), (ready, set.desired()), problem, generation, ctx.now());
    let event = report::event(set.conditions(), &conditions);
    let selector = flavour::selector(&set.pod_labels());
    ctx.set_status(K::status_of(Observed { names, selector, generation, conditions })).await?;
    if let Some(event) = event {
        ctx.record(event);
    }
    Ok(())
}
// ANCHOR_END: tell
