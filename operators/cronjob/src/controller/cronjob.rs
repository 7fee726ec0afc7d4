//! Creates a Job at each time of a schedule.
//!
//! [`plan`] decides, [`report`] describes the result, and this module executes the plan. Each scheduled time must have
//! exactly **one** Job, even after a crash between any two writes, with a wiped status, or without earlier Jobs. The
//! order of the writes ensures that:
//!
//! 1. The Job is created with a name that only the Job of this time has, and with the finalizer [`job::UNRECORDED`], so
//!    that it can't be removed yet.
//! 2. Its time is recorded in an annotation of the CronJob ([`record`]). It isn't a field of the status, since the
//!    status may be wiped. It is written by a merge patch instead of an apply, since only a patch can have the version
//!    that was read as a precondition.
//! 3. The finalizer is removed in the next reconcile, before any other Job is launched.
//!
//! Every reconcile then writes the status and trims the history, even if it launched a Job or failed to: if launching
//! takes longer than the period of the schedule, another time is due in every reconcile.
//!
//! A time after the recorded one that has no Job has therefore never run, and a time up to the recorded one never runs
//! again. The record is read live before a Job is created, and the Job's unique name makes a second creation fail. The
//! status is only used if the annotation was removed.
//!
//! A missed time is caught up until the next time comes: with at most one Job, however many times were missed, and only
//! within the deadline. The same applies to times that `Forbid` delayed.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::{ResourceExt, api::Patch, core::Selector};
use kubewright::prelude::*;
use serde_json::json;

use super::{
    children::Children,
    job,
    plan::{self, Plan, Situation},
    record, report,
};
use crate::api::v1::{ConcurrencyPolicy, CronJob};

/// The delay before a Job that the API server refused is created again.
const REFUSED_DELAY: Duration = Duration::from_secs(30);
/// The delay before a taken name or a failed deletion is checked again.
const RECHECK_DELAY: Duration = Duration::from_secs(60);
/// The delay before a CronJob with a stale cache is reconciled again. An event usually triggers a reconcile earlier.
const STALE_DELAY: Duration = Duration::from_secs(1);

/// The index of unrecorded Jobs by the key of their CronJob, including former CronJobs of that name.
const UNRECORDED_OF: &str = "unrecorded jobs of a cronjob";

// ANCHOR: controller
/// Returns the controller of CronJobs.
pub(crate) fn controller() -> Controller<CronJob> {
    Controller::<CronJob>::new(CronJobReconciler)
        .name("cronjob-controller")
        .field_manager("cronjob-controller")
        .owns::<Job>()
        .index::<Job>(UNRECORDED_OF, |job| {
            let cronjob = job::cronjob_of(job).filter(|_| job::is_unrecorded(job));
            cronjob.map(|(name, _)| ObjectKey::of(job).sibling(name).to_string()).into_iter().collect()
        })
        .watches::<Job>(|job, cronjobs| {
            // A Job of another owner may have the name that a CronJob waits for.
            let cronjob = job::cronjob_name(job.metadata.name.as_deref().unwrap_or_default());
            let key = cronjob.map(|cronjob| ObjectKey::of(job).sibling(cronjob));
            key.filter(|key| cronjobs.get(key).is_some()).into_iter().collect()
        })
        // The last scheduled time is recorded on the CronJob itself, which needs a patch permission.
        .rbac(|role| role.allow(PolicyRule::of::<CronJob>([Verb::Patch])))
        .concurrency(16)
}
// ANCHOR_END: controller

struct CronJobReconciler;

impl Reconciler<CronJob> for CronJobReconciler {
    type Error = ClientError;

    // ANCHOR: reconcile
    async fn reconcile(&self, cronjob: &CronJob, ctx: &Context<CronJob>) -> Result<Action, ClientError> {
        // If the CronJob was recreated before its deletion was observed, `deleted` is never called for it.
        release_orphans(ctx.key(), cronjob.metadata.uid.as_deref(), ctx).await?;
        let mut children: Children = ctx.children::<Job>()?.into_iter().collect();
        let mut last = record::last(cronjob, &children);
        if !record_last(cronjob, &children, last, ctx).await? {
            return Ok(Action::requeue_after(STALE_DELAY));
        }
        let now = ctx.now();
        let mut plan = plan::plan(cronjob, &children, last, now);
        let mut failure = None;
        match act(cronjob, &plan, &children, ctx).await {
            Ok(LaunchResult::Nothing) => {}
            Ok(LaunchResult::Launched(job)) => {
                children.add(job);
                last = record::last(cronjob, &children);
                plan = plan::plan(cronjob, &children, last, now);
            }
            Ok(LaunchResult::Prevented(situation)) => plan.situation = situation,
            Ok(LaunchResult::Behind) => return Ok(Action::requeue_after(STALE_DELAY)),
            Err(error) if error.is_conflict() => return Err(error),
            Err(error) => failure = Some(error),
        }
        write_status(cronjob, &children, last, &plan, ctx).await?;
        let trimmed = trim(cronjob, &children, ctx).await;
        failure.map_or_else(|| Ok(action(&plan, trimmed, ctx.now())), Err)
    }
    // ANCHOR_END: reconcile

    async fn cleanup(&self, _: &CronJob, ctx: &Context<CronJob>) -> Result<Action, ClientError> {
        // With foreground deletion the CronJob waits for its Jobs, and they would wait until their times are recorded.
        self.deleted(ctx.key(), ctx).await?;
        Ok(Action::await_change())
    }

    async fn deleted(&self, key: &ObjectKey, ctx: &Context<CronJob>) -> Result<(), ClientError> {
        release_orphans(key, None, ctx).await
    }
}

/// Returns the time of the next reconcile.
fn action(plan: &Plan, trimmed: bool, now: Timestamp) -> Action {
    let wait = match plan.situation {
        Situation::Refused { .. } => Some(REFUSED_DELAY),
        Situation::Taken { .. } => Some(RECHECK_DELAY),
        _ if !trimmed => Some(RECHECK_DELAY),
        _ => None,
    };
    let wait = wait.and_then(|wait| now.checked_add(wait).ok());
    wait.into_iter().chain(plan.next).min().map_or_else(Action::await_change, Action::requeue_at)
}

/// Records the last scheduled time, and removes the finalizers of recorded Jobs. Returns false if the cache is stale.
async fn record_last(
    cronjob: &CronJob,
    children: &Children,
    last: Option<Timestamp>,
    ctx: &Context<CronJob>,
) -> Result<bool, ClientError> {
    if last > record::recorded(cronjob) {
        let Some(live) = ctx.live().get::<CronJob>(ctx.key()).await?.filter(|live| is_same(cronjob, live)) else {
            return Ok(false);
        };
        if let Some(last) = last.filter(|_| last > record::recorded(&live)) {
            ctx.patch::<CronJob, _>(ctx.key(), &Patch::Merge(record::patch(&live, last))).await?;
        }
    }
    for job in children.all().filter(|job| job::is_unrecorded(job)) {
        release(job, ctx).await?;
    }
    Ok(true)
}

/// Returns whether the CronJob is the cached one, with the same spec.
fn is_same(cached: &CronJob, live: &CronJob) -> bool {
    let (cached, live) = (&cached.metadata, &live.metadata);
    (&cached.uid, cached.generation) == (&live.uid, live.generation) && live.deletion_timestamp.is_none()
}

/// The result of [`act`].
enum LaunchResult {
    /// The plan required no Job.
    Nothing,
    /// The Job exists, and its time is recorded.
    Launched(Arc<Job>),
    /// The Job can't be created in this situation.
    Prevented(Situation),
    /// The CronJob has changed since it was cached.
    Behind,
}

/// Launches the Job that is due, or deletes those that have to end first.
async fn act(
    cronjob: &CronJob,
    plan: &Plan,
    children: &Children,
    ctx: &Context<CronJob>,
) -> Result<LaunchResult, ClientError> {
    match &plan.situation {
        Situation::Due { time, job } => launch(cronjob, *time, Job::clone(job), ctx).await,
        Situation::Replacing { time, .. } => {
            replace(&children.active, *time, ctx).await?;
            Ok(LaunchResult::Nothing)
        }
        _ => Ok(LaunchResult::Nothing),
    }
}

/// Creates the Job of a time that has none according to the cache, and records the time.
async fn launch(
    cronjob: &CronJob,
    time: Timestamp,
    job: Job,
    ctx: &Context<CronJob>,
) -> Result<LaunchResult, ClientError> {
    let name = job.name_any();
    if cronjob.spec.concurrency_policy.unwrap_or_default() != ConcurrencyPolicy::Allow {
        let jobs = ctx.live().list::<Job>(&Selector::default()).await?;
        let own = jobs.iter().filter(|job| job::is_own(cronjob, job) && job.name_any() != name);
        let own: Children = own.cloned().map(Arc::new).collect();
        if let Some(situation) = plan::blocked(cronjob, &own.active, time) {
            if let Situation::Replacing { .. } = situation {
                replace(&own.active, time, ctx).await?;
            }
            return Ok(LaunchResult::Prevented(situation));
        }
    }
    let named = ctx.key().sibling(&name);
    // If the cache already shows the conflict, no request is needed.
    if ctx.get::<Job>(&named)?.is_some_and(|job| !job::is_own(cronjob, &job))
        && let Some(job) = ctx.live().get::<Job>(&named).await?.filter(|job| !job::is_own(cronjob, job))
    {
        release_orphan(&job, ctx).await?;
        return Ok(LaunchResult::Prevented(Situation::Taken { job: name }));
    }
    let Some(live) = ctx.live().get::<CronJob>(ctx.key()).await? else { return Ok(LaunchResult::Behind) };
    if !is_same(cronjob, &live) || record::recorded(&live).is_some_and(|recorded| recorded >= time) {
        return Ok(LaunchResult::Behind);
    }
    let job = match ctx.get_or_create_child(job).await {
        Ok(job) => job,
        Err(ClientError::NameTaken { .. }) => return Ok(LaunchResult::Prevented(Situation::Taken { job: name })),
        Err(error) => {
            let message = error.refusal().map(str::to_owned);
            return message.map_or(Err(error), |message| Ok(LaunchResult::Prevented(Situation::Refused { message })));
        }
    };
    ctx.patch::<CronJob, _>(ctx.key(), &Patch::Merge(record::patch(&live, time))).await?;
    ctx.record(Event::normal("Started", format!("created job {name:?} for {time}")));
    Ok(LaunchResult::Launched(Arc::new(job)))
}

/// Deletes active Jobs in the foreground, so that they exist until their pods have ended.
async fn replace(active: &[Arc<Job>], time: Timestamp, ctx: &Context<CronJob>) -> Result<(), ClientError> {
    for job in active.iter().filter(|job| job.metadata.deletion_timestamp.is_none()) {
        ctx.delete(job.as_ref()).foreground().await?;
        let note = format!("deleted active job {:?} to run the one for {time}", job.name_any());
        ctx.record(Event::normal("Replaced", note));
    }
    Ok(())
}

/// Deletes the Jobs beyond the history limits, as far as possible. Returns whether all of them were deleted.
async fn trim(cronjob: &CronJob, children: &Children, ctx: &Context<CronJob>) -> bool {
    let mut all = true;
    for job in children.excess(cronjob) {
        if let Err(error) = ctx.delete(job.as_ref()).background().await {
            tracing::warn!(job = job.name_any(), %error, "failed to delete a job beyond the history limit");
            all = false;
        }
    }
    all
}

/// Removes the finalizer from the Jobs of all former CronJobs of this name, that is, those with another UID than `but`.
async fn release_orphans(key: &ObjectKey, but: Option<&str>, ctx: &Context<CronJob>) -> Result<(), ClientError> {
    for job in ctx.cached::<Job>()?.indexed(UNRECORDED_OF, &key.to_string()) {
        if job::cronjob_of(&job).is_some_and(|(_, uid)| Some(uid) != but) {
            release_orphan(&job, ctx).await?;
        }
    }
    Ok(())
}

/// Removes the finalizer from a Job whose CronJob is gone, since it will never be recorded.
async fn release_orphan(job: &Job, ctx: &Context<CronJob>) -> Result<(), ClientError> {
    let Some((name, uid)) = job::cronjob_of(job).filter(|_| job::is_unrecorded(job)) else { return Ok(()) };
    let cronjob = ctx.live().get::<CronJob>(&ObjectKey::of(job).sibling(name)).await?;
    let alive = cronjob.is_some_and(|cronjob| {
        cronjob.metadata.uid.as_deref() == Some(uid) && cronjob.metadata.deletion_timestamp.is_none()
    });
    if alive { Ok(()) } else { release(job, ctx).await }
}

/// Removes the finalizer from a Job.
async fn release(job: &Job, ctx: &Context<CronJob>) -> Result<(), ClientError> {
    let finalizers = "$deleteFromPrimitiveList/finalizers";
    let patch = json!({"metadata": {"uid": job.metadata.uid, finalizers: [job::UNRECORDED]}});
    match ctx.patch::<Job, _>(&ObjectKey::of(job), &Patch::Strategic(patch)).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Writes the status, and a Warning event for each condition that has become bad.
async fn write_status(
    cronjob: &CronJob,
    children: &Children,
    last: Option<Timestamp>,
    plan: &Plan,
    ctx: &Context<CronJob>,
) -> Result<(), ClientError> {
    let status = report::status(cronjob, children, last, plan, ctx.now());
    let warnings = report::warnings(cronjob.status.as_ref(), &status);
    ctx.set_status(status).await?;
    for warning in warnings {
        ctx.record(warning);
    }
    Ok(())
}
