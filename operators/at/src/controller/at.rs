//! Runs the command of each At once, in a pod.
//!
//! [`plan`] decides, [`report`] describes the result, and this module executes the plan. The command must run exactly
//! **once**, even after a crash between any two writes, with a wiped status, or without the pod. The order of the
//! writes ensures that:
//!
//! 1. The pod is created with a name that only this At's pod has, and with the finalizer [`UNRECORDED`], so that it
//!    can't be removed yet.
//! 2. The run is recorded in an annotation of the At ([`Run`]).
//! 3. The finalizer is removed.
//!
//! An At without a record and without a pod has therefore never run, and one with a record never runs again, whatever
//! happens to the pod. Before a pod is created, both are read live, first the pod and then the At: if another leader
//! has run the command meanwhile, either the pod or the record exists. One case remains: a leader is delayed between
//! these reads and the create for so long that another leader takes over, runs the command, and sees the pod deleted.
//! Losing its lease cancels such a leader.
//!
//! The status is only used to prevent another run: a status that names a pod counts as a record, since `kubectl
//! replace` removes the annotation.
//!
//! "Once" refers to the pod. Its restart policy is `OnFailure`, so the kubelet restarts a command that fails.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::Patch};
use kubewright::prelude::*;
use serde_json::json;

use super::{
    plan::{self, PodOwner, Situation},
    report,
    run::{Run, UNRECORDED},
};
use crate::api::v1alpha1::{At, Phase};

/// The delay before a pod that the API server refused is created again.
const REFUSED_DELAY: Duration = Duration::from_secs(30);
/// The delay before a taken name is checked again. The deletion of the pod triggers a reconcile earlier, unless its
/// name was shortened.
const TAKEN: Duration = Duration::from_secs(60);
/// The delay before an At with a stale cache is reconciled again. An event usually triggers a reconcile earlier.
const STALE_DELAY: Duration = Duration::from_secs(1);

/// Returns the controller of Ats.
pub(crate) fn controller() -> Controller<At> {
    Controller::<At>::new(AtReconciler)
        .name("at-controller")
        .field_manager("at-controller")
        .owns::<Pod>()
        .watches::<Pod>(|pod, ats| {
            // A pod of another owner may have the name that an At waits for.
            let at = plan::at_name(pod.metadata.name.as_deref().unwrap_or_default());
            let key = at.map(|at| ObjectKey::of(pod).sibling(at));
            key.filter(|key| ats.get(key).is_some()).into_iter().collect()
        })
        // The run is recorded on the At itself, which needs a patch permission. Pods are garbage collected with the At.
        .rbac(|role| role.allow(PolicyRule::of::<At>([Verb::Patch])).omit(PolicyRule::of::<Pod>([Verb::Delete])))
        .concurrency(4)
}

struct AtReconciler;

impl Reconciler<At> for AtReconciler {
    type Error = ClientError;

    // ANCHOR: action
    async fn reconcile(&self, at: &At, ctx: &Context<At>) -> Result<Action, ClientError> {
        let mut at = at.clone();
        let Some(situation) = advance(&mut at, ctx).await? else { return Ok(Action::requeue_after(STALE_DELAY)) };
        write_status(&mut at, &situation, ctx).await?;
        Ok(match situation {
            Situation::Waiting { due } => Action::requeue_at(due),
            Situation::Taken { .. } => Action::requeue_after(TAKEN),
            Situation::Refused { .. } => Action::requeue_after(REFUSED_DELAY),
            _ => Action::await_change(),
        })
    }
    // ANCHOR_END: action

    async fn cleanup(&self, _: &At, ctx: &Context<At>) -> Result<Action, ClientError> {
        // With foreground deletion the At waits for its pod, and the pod would wait until its run is recorded.
        self.deleted(ctx.key(), ctx).await?;
        Ok(Action::await_change())
    }

    async fn deleted(&self, _: &ObjectKey, ctx: &Context<At>) -> Result<(), ClientError> {
        match ctx.get::<Pod>(&pod_key(ctx))? {
            Some(pod) => release_orphan(&pod, ctx).await,
            None => Ok(()),
        }
    }
}

fn pod_key(ctx: &Context<At>) -> ObjectKey {
    ctx.key().sibling(&plan::pod_name(ctx.key().name()))
}

/// Advances the At as far as currently possible. Returns `None` if the cache is stale.
async fn advance(at: &mut At, ctx: &Context<At>) -> Result<Option<Situation>, ClientError> {
    let mut pod = ctx.get::<Pod>(&pod_key(ctx))?.map(|pod| pod.as_ref().clone());
    if let Some(other) = pod.take_if(|pod| plan::owner_of(at, pod) != PodOwner::Ours) {
        release_orphan(&other, ctx).await?;
    }
    let begun = Run::recorded(at).or_else(|| pod.as_ref().map(|pod| Run::of(at, pod))).or_else(|| Run::witnessed(at));
    let run = match begun {
        Some(run) => run,
        None => match plan::situation(at, ctx.now()) {
            Situation::Due { command } => match launch(at, command, ctx).await? {
                LaunchResult::Launched(launched) => {
                    let run = Run::of(at, &launched);
                    pod = Some(*launched);
                    run
                }
                LaunchResult::Prevented(situation) => return Ok(Some(situation)),
                LaunchResult::Behind => return Ok(None),
            },
            situation => return Ok(Some(situation)),
        },
    };
    if Run::recorded(at).is_none() {
        ctx.patch::<At, _>(ctx.key(), &Patch::Merge(run.patch())).await?;
    }
    if let Some(pod) = pod.as_ref().filter(|pod| plan::is_unrecorded(pod)) {
        release(pod, ctx).await?;
    }
    if pod.is_none() && !report::is_over(at, &run) {
        // Before a pod is considered gone it is looked up live, since the cache may be stale after a restart.
        pod = ctx.live().get::<Pod>(&pod_key(ctx)).await?.filter(|pod| plan::owner_of(at, pod) == PodOwner::Ours);
    }
    Ok(Some(Situation::Ran(run, plan::progress(pod.as_ref()))))
}

/// The result of [`launch`].
enum LaunchResult {
    /// The pod exists.
    Launched(Box<Pod>),
    /// The pod can't be created in this situation.
    Prevented(Situation),
    /// The At has changed since it was cached.
    Behind,
}

// ANCHOR: once
/// Creates the pod of an At that is due and, according to the cache, has never run.
async fn launch(at: &mut At, command: Vec<String>, ctx: &Context<At>) -> Result<LaunchResult, ClientError> {
    if at.status.as_ref().is_none_or(|status| status.phase != Some(Phase::Pending)) {
        write_status(at, &Situation::Due { command: command.clone() }, ctx).await?;
    }
    if let Some(pod) = ctx.live().get::<Pod>(&pod_key(ctx)).await? {
        let whose = plan::owner_of(at, &pod);
        if whose == PodOwner::Ours {
            return Ok(LaunchResult::Launched(Box::new(pod)));
        }
        release_orphan(&pod, ctx).await?;
        return Ok(LaunchResult::Prevented(Situation::Taken {
            pod: pod.name_any(),
            former: whose == PodOwner::Former,
        }));
    }
    let now = ctx.live().get::<At>(ctx.key()).await?;
    let same = |now: &At| (&now.metadata.uid, now.metadata.generation) == (&at.metadata.uid, at.metadata.generation);
    let ran = |now: &At| Run::recorded(now).or_else(|| Run::witnessed(now)).is_some();
    match &now {
        Some(now) if same(now) && now.metadata.deletion_timestamp.is_none() && !ran(now) => {}
        _ => return Ok(LaunchResult::Behind),
    }
    match ctx.get_or_create_child(plan::pod(at, command)).await {
        Ok(pod) => Ok(LaunchResult::Launched(Box::new(pod))),
        Err(ClientError::NameTaken { .. }) => {
            let pod = plan::pod_name(&at.name_any());
            Ok(LaunchResult::Prevented(Situation::Taken { pod, former: false }))
        }
        Err(error) => match error.refusal() {
            Some(message) => Ok(LaunchResult::Prevented(Situation::Refused { message: message.into() })),
            None => Err(error),
        },
    }
}
// ANCHOR_END: once

/// Removes the finalizer from a pod whose At is gone, since its run will never be recorded.
async fn release_orphan(pod: &Pod, ctx: &Context<At>) -> Result<(), ClientError> {
    let Some((name, uid)) = plan::at_of(pod).filter(|_| plan::is_unrecorded(pod)) else { return Ok(()) };
    let at = ctx.live().get::<At>(&ObjectKey::of(pod).sibling(name)).await?;
    let alive =
        at.is_some_and(|at| at.metadata.uid.as_deref() == Some(uid) && at.metadata.deletion_timestamp.is_none());
    if alive { Ok(()) } else { release(pod, ctx).await }
}

/// Removes the finalizer from a pod.
async fn release(pod: &Pod, ctx: &Context<At>) -> Result<(), ClientError> {
    let patch = json!({"metadata": {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [UNRECORDED]}});
    match ctx.patch::<Pod, _>(&ObjectKey::of(pod), &Patch::Strategic(patch)).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Writes the status, and an event for each change.
async fn write_status(at: &mut At, situation: &Situation, ctx: &Context<At>) -> Result<(), ClientError> {
    let status = report::status(at, situation, ctx.now());
    let events = report::events(at.status.as_ref(), &status);
    ctx.set_status(status.clone()).await?;
    at.status = Some(status);
    for event in events {
        ctx.record(event);
    }
    Ok(())
}
