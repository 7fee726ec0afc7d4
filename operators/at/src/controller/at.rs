//! Runs each At once, in a pod of its own.
//!
//! [`plan`] decides, [`report`] words it, this module acts. What has to survive a crash between any two writes, a wiped status and a deleted
//! pod is that the command runs **once**: not twice, and not never. It rests on this order of writes:
//!
//! 1. The pod is created, under the one name that the At's pod has, with the finalizer [`UNRECORDED`]:
//!    whoever deletes it, it can't vanish yet.
//! 2. The run is recorded in an annotation of the At ([`Run`]).
//! 3. The finalizer is taken off.
//!
//! So an At without a record whose pod doesn't exist was never run, and one with a record never is again, whatever
//! becomes of the pod. Both are read past the cache before a pod is created, the pod before the At: had another leader
//! run it meanwhile, either the pod is there or the record is. What remains is a leader that is held up between these
//! reads and the create for so long that another takes over, runs it, and sees the pod deleted: a lost lease cancels it.
//!
//! Status plays no part in it, but for one thing: a status that names the pod of a run is heard as a second witness
//! against running again, since `kubectl replace` takes the annotation away.
//!
//! "Once" is about the pod. Its restart policy is `OnFailure`, so the kubelet starts a command that fails again.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::Patch};
use kubewright::prelude::*;
use serde_json::json;

use super::{
    plan::{self, Situation, Whose},
    report,
    run::{Run, UNRECORDED},
};
use crate::api::v1alpha1::{At, Phase};

/// How long until a pod that the API server refused is tried again.
const REFUSED: Duration = Duration::from_secs(30);
/// How long until the name of the pod is looked at again. The pod's deletion wakes the At earlier, but for long names.
const TAKEN: Duration = Duration::from_secs(60);
/// How long until an At is looked at again of which the cache was behind. Its event wakes it earlier.
const BEHIND: Duration = Duration::from_secs(1);

/// The controller of Ats.
pub(crate) fn controller() -> Controller<At> {
    Controller::<At>::new(AtReconciler)
        .name("at-controller")
        .field_manager("at-controller")
        .owns::<Pod>()
        .watches::<Pod>(|pod, ats| {
            // A pod that isn't an At's, but has the name that one waits for.
            let at = plan::at_name(pod.metadata.name.as_deref().unwrap_or_default());
            let key = at.map(|at| ObjectKey::of(pod).sibling(at));
            key.filter(|key| ats.get(key).is_some()).into_iter().collect()
        })
        // The run is remembered on the At itself, and its pods go with it.
        .rbac(|role| role.allow(PolicyRule::of::<At>([Verb::Patch])).omit(PolicyRule::of::<Pod>([Verb::Delete])))
        .concurrency(4)
}

struct AtReconciler;

impl Reconciler<At> for AtReconciler {
    type Error = ClientError;

    // ANCHOR: action
    async fn reconcile(&self, at: &At, ctx: &Context<At>) -> Result<Action, ClientError> {
        let mut at = at.clone();
        let Some(situation) = advance(&mut at, ctx).await? else { return Ok(Action::requeue_after(BEHIND)) };
        tell(&mut at, &situation, ctx).await?;
        Ok(match situation {
            Situation::Waiting { due } => Action::requeue_at(due),
            Situation::Taken { .. } => Action::requeue_after(TAKEN),
            Situation::Refused { .. } => Action::requeue_after(REFUSED),
            _ => Action::await_change(),
        })
    }
    // ANCHOR_END: action

    async fn cleanup(&self, _: &At, ctx: &Context<At>) -> Result<Action, ClientError> {
        // With foreground deletion the At waits for its pod, and the pod would wait for the record of an At that is
        // about to go.
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

/// Takes the At as far as it goes now; nothing if the cache turns out to be behind.
async fn advance(at: &mut At, ctx: &Context<At>) -> Result<Option<Situation>, ClientError> {
    let mut pod = ctx.get::<Pod>(&pod_key(ctx))?.map(|pod| pod.as_ref().clone());
    if let Some(other) = pod.take_if(|pod| plan::whose(at, pod) != Whose::Ours) {
        release_orphan(&other, ctx).await?;
    }
    let begun = Run::recorded(at).or_else(|| pod.as_ref().map(|pod| Run::of(at, pod))).or_else(|| Run::witnessed(at));
    let run = match begun {
        Some(run) => run,
        None => match plan::situation(at, ctx.now()) {
            Situation::Due { command } => match launch(at, command, ctx).await? {
                Launch::Launched(launched) => {
                    let run = Run::of(at, &launched);
                    pod = Some(*launched);
                    run
                }
                Launch::Prevented(situation) => return Ok(Some(situation)),
                Launch::Behind => return Ok(None),
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
        // Before a pod is given up for lost, the API server is asked: the cache may be behind after a restart.
        pod = ctx.live().get::<Pod>(&pod_key(ctx)).await?.filter(|pod| plan::whose(at, pod) == Whose::Ours);
    }
    Ok(Some(Situation::Ran(run, plan::progress(pod.as_ref()))))
}

/// What came of creating the pod.
enum Launch {
    /// The pod is there.
    Launched(Box<Pod>),
    /// Something was in the way.
    Prevented(Situation),
    /// The At has changed since the cache saw it.
    Behind,
}

// ANCHOR: once
/// Creates the pod of an At that is due and, as far as the cache knows, never ran.
async fn launch(at: &mut At, command: Vec<String>, ctx: &Context<At>) -> Result<Launch, ClientError> {
    if at.status.as_ref().is_none_or(|status| status.phase != Some(Phase::Pending)) {
        tell(at, &Situation::Due { command: command.clone() }, ctx).await?;
    }
    if let Some(pod) = ctx.live().get::<Pod>(&pod_key(ctx)).await? {
        let whose = plan::whose(at, &pod);
        if whose == Whose::Ours {
            return Ok(Launch::Launched(Box::new(pod)));
        }
        release_orphan(&pod, ctx).await?;
        return Ok(Launch::Prevented(Situation::Taken { pod: pod.name_any(), earlier: whose == Whose::Earlier }));
    }
    let now = ctx.live().get::<At>(ctx.key()).await?;
    let same = |now: &At| (&now.metadata.uid, now.metadata.generation) == (&at.metadata.uid, at.metadata.generation);
    let ran = |now: &At| Run::recorded(now).or_else(|| Run::witnessed(now)).is_some();
    match &now {
        Some(now) if same(now) && now.metadata.deletion_timestamp.is_none() && !ran(now) => {}
        _ => return Ok(Launch::Behind),
    }
    match ctx.get_or_create_child(plan::pod(at, command)).await {
        Ok(pod) => Ok(Launch::Launched(Box::new(pod))),
        Err(ClientError::NameTaken { .. }) => {
            let pod = plan::pod_name(&at.name_any());
            Ok(Launch::Prevented(Situation::Taken { pod, earlier: false }))
        }
        Err(error) => match error.refusal() {
            Some(message) => Ok(Launch::Prevented(Situation::Refused { message: message.into() })),
            None => Err(error),
        },
    }
}
// ANCHOR_END: once

/// Takes the finalizer off a pod whose At is gone, so that it needn't be recorded any more.
async fn release_orphan(pod: &Pod, ctx: &Context<At>) -> Result<(), ClientError> {
    let Some((name, uid)) = plan::at_of(pod).filter(|_| plan::is_unrecorded(pod)) else { return Ok(()) };
    let at = ctx.live().get::<At>(&ObjectKey::of(pod).sibling(name)).await?;
    let alive =
        at.is_some_and(|at| at.metadata.uid.as_deref() == Some(uid) && at.metadata.deletion_timestamp.is_none());
    if alive { Ok(()) } else { release(pod, ctx).await }
}

/// Takes the finalizer off a pod.
async fn release(pod: &Pod, ctx: &Context<At>) -> Result<(), ClientError> {
    let patch = json!({"metadata": {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [UNRECORDED]}});
    match ctx.patch::<Pod, _>(&ObjectKey::of(pod), &Patch::Strategic(patch)).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Writes the status that tells the situation, and an event for each thing that has changed.
async fn tell(at: &mut At, situation: &Situation, ctx: &Context<At>) -> Result<(), ClientError> {
    let status = report::status(at, situation, ctx.now());
    let events = report::events(at.status.as_ref(), &status);
    ctx.set_status(status.clone()).await?;
    at.status = Some(status);
    for event in events {
        ctx.record(event);
    }
    Ok(())
}
