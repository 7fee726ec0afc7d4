//! Keeps the desired number of pods of a PodSet. One reconciler serves both flavours ([`flavour::Flavour`]).
//!
//! [`plan`] decides, [`report`] describes the result, and this module executes the plan. Missing pods are created
//! according to the cache, which contains every pod that this process, or an earlier one that worked on the PodSet, has
//! created. Others may have deleted pods that it still contains, so the live state is read before a pod is deleted or
//! replaced; see [`Plan::needs_live_state`]. A new PodSet costs one request per pod and one for the status; a steady
//! PodSet costs none.
//!
//! * Pods belong to the PodSet by the UID of their controller. A pod that has the labels but no owner is **ignored**,
//!   not adopted. A pod that loses a label is released: it is kept without its owner reference, and is replaced.
//! * Ended pods are replaced, and the newest three are kept for their logs.
//! * If the API server refuses a pod, its message is reported, and the creation is retried slowly. Pods that disappear
//!   as fast as they are created are replaced with back-off ([`kubewright::create_backoff`]).

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

/// The number of concurrent requests for one PodSet.
const PARALLEL: usize = 16;
/// The delay before a PodSet with a stale cache is reconciled again. An event usually triggers a reconcile earlier.
const STALE_DELAY: Duration = Duration::from_secs(1);

// ANCHOR: controller
/// Returns the controller of a flavour.
pub(crate) fn controller<K: Flavour>(name: &str) -> Controller<K> {
    Controller::<K>::new(PodSetReconciler { backoff: Mutex::default() }).name(name).owns::<PodView>().concurrency(4)
}
// ANCHOR_END: controller

struct PodSetReconciler {
    /// The back-off of creations. Losing it only makes the next creations earlier.
    backoff: Mutex<BTreeMap<ObjectKey, CreateBackoff>>,
}

/// The state after the writes of a reconcile.
#[derive(Default)]
struct ReconciledPods {
    active: Vec<Arc<PodView>>,
    problem: Option<Problem>,
    /// Whether an object had changed since it was read, so that some writes were skipped.
    is_stale: bool,
}

impl<K: Flavour> Reconciler<K> for PodSetReconciler {
    type Error = ClientError;

    // ANCHOR: reconcile
    async fn reconcile(&self, set: &K, ctx: &Context<K>) -> Result<Action, ClientError> {
        let plan = plan::plan(set.desired(), &set.pod_labels(), ctx.children::<PodView>()?);
        let problem = if plan.create > 0 { self.problem(set, ctx) } else { None };
        let acts = Plan { create: 0, ..plan.clone() }.acts();
        let after = if acts || (plan.create > 0 && problem.is_none()) {
            match self.act(set, plan, ctx).await? {
                Some(after) => after,
                None => return Ok(Action::requeue_after(STALE_DELAY)),
            }
        } else {
            ReconciledPods { active: plan.active, problem, is_stale: false }
        };
        write_status(set, &after, ctx).await?;
        let wait = after.problem.as_ref().and_then(Problem::wait).or(after.is_stale.then_some(STALE_DELAY));
        Ok(wait.map_or(Action::await_change(), Action::requeue_after))
    }
    // ANCHOR_END: reconcile

    async fn deleted(&self, key: &ObjectKey, _: &Context<K>) -> Result<(), ClientError> {
        self.backoff.lock().remove(key);
        Ok(())
    }
}

impl PodSetReconciler {
    /// Returns the problem that currently prevents the creation of pods.
    fn problem<K: Flavour>(&self, set: &K, ctx: &Context<K>) -> Option<Problem> {
        let mut backoff = self.backoff.lock();
        let backoff = backoff.entry(ctx.key().clone()).or_default();
        match backoff.decide(set.meta().generation, set.desired(), ctx.monotonic()) {
            Decision::Create => None,
            Decision::Slow(wait) => Some(Problem::Slow(wait)),
            Decision::Refused(wait, message) => Some(Problem::Refused(wait, message)),
        }
    }

    // ANCHOR: act
    /// Executes the plan based on the cache. Returns `None` if the PodSet differs from the cached one.
    async fn act<K: Flavour>(
        &self,
        set: &K,
        cached: Plan,
        ctx: &Context<K>,
    ) -> Result<Option<ReconciledPods>, ClientError> {
        for pod in &cached.release {
            release(set, pod, ctx).await?;
        }
        let plan = if cached.needs_live_state(set.reported()) {
            let Some(pods) = pods(set, ctx).await? else { return Ok(None) };
            plan::plan(set.desired(), &set.pod_labels(), pods)
        } else {
            cached
        };
        let unneeded = [plan.discard, plan.delete].concat();
        let deletions: Vec<_> = unneeded.iter().map(|pod| delete(pod, ctx).boxed()).collect();
        let deletions: Vec<_> = stream::iter(deletions).buffered(PARALLEL).collect().await;
        let mut after = ReconciledPods { active: plan.active, ..ReconciledPods::default() };
        for (pod, deleted) in unneeded.iter().zip(deletions) {
            if deleted? {
                after.active.retain(|active| active.metadata.uid != pod.metadata.uid);
            } else {
                after.is_stale = true;
            }
        }
        if plan.create > 0 {
            self.create(set, plan.create, &mut after, ctx).await?;
        }
        Ok(Some(after))
    }
    // ANCHOR_END: act

    /// Creates pods in batches, which double in size until one is refused.
    async fn create<K: Flavour>(
        &self,
        set: &K,
        missing: usize,
        after: &mut ReconciledPods,
        ctx: &Context<K>,
    ) -> Result<(), ClientError> {
        after.problem = self.problem(set, ctx);
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
                after.is_stale = true;
                Ok(())
            }
            Some((pod, error)) => {
                let Some(message) = error.refusal() else { return Err(error) };
                // The message must not contain the generated name, since it would change with every attempt.
                let message = message.replace(&pod, &format!("{}-*", set.name_any()));
                self.with_backoff(ctx, |backoff| backoff.refused(message, ctx.monotonic()));
                after.problem = self.problem(set, ctx);
                Ok(())
            }
        }
    }

    fn with_backoff<K: Flavour>(&self, ctx: &Context<K>, change: impl FnOnce(&mut CreateBackoff)) {
        change(self.backoff.lock().entry(ctx.key().clone()).or_default());
    }
}

// ANCHOR: live
/// Reads all pods that the PodSet controls live. Returns `None` if the PodSet differs from the cached one.
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

/// Creates a batch of pods. The first error is returned with the name of its pod; the rest of the batch still
/// completes.
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

/// Deletes a pod, unless it has changed since it was read. Returns whether it was deleted.
async fn delete<K: Flavour>(pod: &PodView, ctx: &Context<K>) -> Result<bool, ClientError> {
    match ctx.delete(pod).await {
        Ok(()) => Ok(true),
        Err(error) if error.is_conflict() => Ok(false),
        Err(error) => Err(error),
    }
}

// ANCHOR: release
/// Removes the PodSet's owner reference from a pod that lost a label.
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
/// Writes the status, and an event for a new problem.
async fn write_status<K: Flavour>(set: &K, after: &ReconciledPods, ctx: &Context<K>) -> Result<(), ClientError> {
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
