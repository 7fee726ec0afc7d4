//! Creates a Job each time a schedule says so.
//!
//! [`plan`] decides, [`report`] words it, this module acts. What has to survive a crash between any two writes, a wiped
//! status, and Jobs that are gone, is that each time of the schedule has **one** Job: not two, and not none. It rests
//! on this order of writes:
//!
//! 1. The Job is created, under the one name that the Job of this time has, with the finalizer [`record::UNRECORDED`]:
//!    whoever deletes it, it can't vanish yet.
//! 2. Its time is recorded in an annotation of the CronJob ([`record`]). An annotation and no field of the status,
//!    since status may be wiped; a merge patch and no apply, since only a patch can ask that the CronJob be the one
//!    that was read.
//! 3. The finalizer is removed in the next run, before anything else is launched.
//!
//! Status and history come after these, in every run, also in one that launched a Job or failed to launch it: where a
//! launch takes longer than the period of the schedule, every run finds another time due.
//!
//! So a time that is after the recorded one and has no Job was never run, and one that isn't after it never is again.
//! The record is read past the cache before a Job is created; that there is none is told by its creation, under a name
//! that only one can have. Status plays no part in it, but where the annotation was taken away.
//!
//! A time that has passed without its Job is made up for until the next one passes: at most one Job, however many were
//! missed, and only within the deadline. That holds for a time that `Forbid` held back too.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::{ResourceExt, api::Patch, core::Selector};
use kubewright::prelude::*;
use serde_json::json;

use super::{
    children::Children,
    plan::{self, Plan, Situation},
    record, report,
};
use crate::api::v1::{ConcurrencyPolicy, CronJob};

/// How long until a Job that the API server refused is tried again.
const REFUSED: Duration = Duration::from_secs(30);
/// How long until the name of a Job, or a Job that couldn't be deleted, is looked at again.
const AGAIN: Duration = Duration::from_secs(60);
/// How long until a CronJob is looked at again of which the cache was behind. Its event wakes it earlier.
const BEHIND: Duration = Duration::from_secs(1);

/// The index of unrecorded Jobs by the key of their CronJob, or of one that had its name.
const UNRECORDED_OF: &str = "unrecorded jobs of a cronjob";

// ANCHOR: controller
/// The controller of CronJobs.
pub(crate) fn controller() -> Controller<CronJob> {
    Controller::<CronJob>::new(CronJobReconciler)
        .name("cronjob-controller")
        .field_manager("cronjob-controller")
        .owns::<Job>()
        .index::<Job>(UNRECORDED_OF, |job| {
            let cronjob = plan::cronjob_of(job).filter(|_| record::is_unrecorded(job));
            cronjob.map(|(name, _)| ObjectKey::of(job).sibling(name).to_string()).into_iter().collect()
        })
        .watches::<Job>(|job, cronjobs| {
            // A Job that isn't a CronJob's, but has a name that one waits for.
            let cronjob = plan::cronjob_name(job.metadata.name.as_deref().unwrap_or_default());
            let key = cronjob.map(|cronjob| ObjectKey::of(job).sibling(cronjob));
            key.filter(|key| cronjobs.get(key).is_some()).into_iter().collect()
        })
        // The time of the latest run is recorded on the CronJob itself.
        .rbac(|role| role.allow(PolicyRule::of::<CronJob>([Verb::Patch])))
        .concurrency(16)
}
// ANCHOR_END: controller

struct CronJobReconciler;

impl Reconciler<CronJob> for CronJobReconciler {
    type Error = ClientError;

    // ANCHOR: reconcile
    async fn reconcile(&self, cronjob: &CronJob, ctx: &Context<CronJob>) -> Result<Action, ClientError> {
        // One that was made again before its end was seen: its deletion is never told.
        release_orphans(ctx.key(), cronjob.metadata.uid.as_deref(), ctx).await?;
        let mut children: Children = ctx.children::<Job>()?.into_iter().collect();
        let mut last = record::last(cronjob, &children);
        if !remember(cronjob, &children, last, ctx).await? {
            return Ok(Action::requeue_after(BEHIND));
        }
        let now = ctx.now();
        let mut plan = plan::plan(cronjob, &children, last, now);
        let mut failure = None;
        match act(cronjob, &plan, &children, ctx).await {
            Ok(Acted::Nothing) => {}
            Ok(Acted::Launched(job)) => {
                children.add(job);
                last = record::last(cronjob, &children);
                plan = plan::plan(cronjob, &children, last, now);
            }
            Ok(Acted::Prevented(situation)) => plan.situation = situation,
            Ok(Acted::Behind) => return Ok(Action::requeue_after(BEHIND)),
            Err(error) if error.is_conflict() => return Err(error),
            Err(error) => failure = Some(error),
        }
        write_status(cronjob, &children, last, &plan, ctx).await?;
        let trimmed = trim(cronjob, &children, ctx).await;
        failure.map_or_else(|| Ok(action(&plan, trimmed, ctx.now())), Err)
    }
    // ANCHOR_END: reconcile

    async fn cleanup(&self, _: &CronJob, ctx: &Context<CronJob>) -> Result<Action, ClientError> {
        // With foreground deletion the CronJob waits for its Jobs, and a Job would wait for the record of a CronJob
        // that is about to go.
        self.deleted(ctx.key(), ctx).await?;
        Ok(Action::await_change())
    }

    async fn deleted(&self, key: &ObjectKey, ctx: &Context<CronJob>) -> Result<(), ClientError> {
        release_orphans(key, None, ctx).await
    }
}

/// When to look again.
fn action(plan: &Plan, trimmed: bool, now: Timestamp) -> Action {
    let wait = match plan.situation {
        Situation::Refused { .. } => Some(REFUSED),
        Situation::Taken { .. } => Some(AGAIN),
        _ if !trimmed => Some(AGAIN),
        _ => None,
    };
    let wait = wait.and_then(|wait| now.checked_add(wait).ok());
    wait.into_iter().chain(plan.next).min().map_or_else(Action::await_change, Action::requeue_at)
}

/// Makes the record say what is known, and frees the Jobs that waited for it; false if the cache turns out to be
/// behind.
async fn remember(
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
    for job in children.all().filter(|job| record::is_unrecorded(job)) {
        release(job, ctx).await?;
    }
    Ok(true)
}

/// Whether this is the CronJob that the cache has, also in its spec.
fn is_same(cached: &CronJob, live: &CronJob) -> bool {
    let (cached, live) = (&cached.metadata, &live.metadata);
    (&cached.uid, cached.generation) == (&live.uid, live.generation) && live.deletion_timestamp.is_none()
}

/// The result of [`act`].
enum Acted {
    /// The plan asked for no Job.
    Nothing,
    /// The Job exists, and its time is recorded.
    Launched(Arc<Job>),
    /// The Job can't be created in this situation.
    Prevented(Situation),
    /// The CronJob has changed since the cache saw it.
    Behind,
}

/// Launches the Job that is due, or deletes those that have to end first.
async fn act(
    cronjob: &CronJob,
    plan: &Plan,
    children: &Children,
    ctx: &Context<CronJob>,
) -> Result<Acted, ClientError> {
    match &plan.situation {
        Situation::Due { time, job } => launch(cronjob, *time, Job::clone(job), ctx).await,
        Situation::Replacing { time, .. } => {
            replace(&children.active, *time, ctx).await?;
            Ok(Acted::Nothing)
        }
        _ => Ok(Acted::Nothing),
    }
}

/// Creates the Job for a time that has none as far as the cache knows, and records the time.
async fn launch(cronjob: &CronJob, time: Timestamp, job: Job, ctx: &Context<CronJob>) -> Result<Acted, ClientError> {
    let name = job.name_any();
    if cronjob.spec.concurrency_policy.unwrap_or_default() != ConcurrencyPolicy::Allow {
        let jobs = ctx.live().list::<Job>(&Selector::default()).await?;
        let own = jobs.iter().filter(|job| plan::is_own(cronjob, job) && job.name_any() != name);
        let own: Children = own.cloned().map(Arc::new).collect();
        if let Some(situation) = plan::blocked(cronjob, &own.active, time) {
            if let Situation::Replacing { .. } = situation {
                replace(&own.active, time, ctx).await?;
            }
            return Ok(Acted::Prevented(situation));
        }
    }
    let named = ctx.key().sibling(&name);
    // What the cache has needn't be tried in vain again and again.
    if ctx.get::<Job>(&named)?.is_some_and(|job| !plan::is_own(cronjob, &job))
        && let Some(job) = ctx.live().get::<Job>(&named).await?.filter(|job| !plan::is_own(cronjob, job))
    {
        release_orphan(&job, ctx).await?;
        return Ok(Acted::Prevented(Situation::Taken { job: name }));
    }
    let Some(live) = ctx.live().get::<CronJob>(ctx.key()).await? else { return Ok(Acted::Behind) };
    if !is_same(cronjob, &live) || record::recorded(&live).is_some_and(|recorded| recorded >= time) {
        return Ok(Acted::Behind);
    }
    let job = match ctx.get_or_create_child(job).await {
        Ok(job) => job,
        Err(ClientError::NameTaken { .. }) => return Ok(Acted::Prevented(Situation::Taken { job: name })),
        Err(error) => {
            let message = error.refusal().map(str::to_owned);
            return message.map_or(Err(error), |message| Ok(Acted::Prevented(Situation::Refused { message })));
        }
    };
    ctx.patch::<CronJob, _>(ctx.key(), &Patch::Merge(record::patch(&live, time))).await?;
    ctx.record(Event::normal("Started", format!("created job {name:?} for {time}")));
    Ok(Acted::Launched(Arc::new(job)))
}

/// Deletes Jobs that haven't ended. In the foreground: they are there until their pods have ended.
async fn replace(active: &[Arc<Job>], time: Timestamp, ctx: &Context<CronJob>) -> Result<(), ClientError> {
    for job in active.iter().filter(|job| job.metadata.deletion_timestamp.is_none()) {
        ctx.delete(job.as_ref()).foreground().await?;
        let note = format!("deleted job {:?}, which had not ended, to run the one for {time}", job.name_any());
        ctx.record(Event::normal("Replaced", note));
    }
    Ok(())
}

/// Deletes the Jobs beyond the history limits, as far as that goes; tells whether all could be.
async fn trim(cronjob: &CronJob, children: &Children, ctx: &Context<CronJob>) -> bool {
    let mut all = true;
    for job in children.excess(cronjob) {
        if let Err(error) = ctx.delete(job.as_ref()).background().await {
            tracing::warn!(job = job.name_any(), %error, "a job beyond the history limit could not be deleted");
            all = false;
        }
    }
    all
}

/// Takes the finalizer off the Jobs of all CronJobs of this name but the one with this UID, as far as those are gone.
async fn release_orphans(key: &ObjectKey, but: Option<&str>, ctx: &Context<CronJob>) -> Result<(), ClientError> {
    for job in ctx.cached::<Job>()?.indexed(UNRECORDED_OF, &key.to_string()) {
        if plan::cronjob_of(&job).is_some_and(|(_, uid)| Some(uid) != but) {
            release_orphan(&job, ctx).await?;
        }
    }
    Ok(())
}

/// Takes the finalizer off a Job whose CronJob is gone, so that it needn't be recorded any more.
async fn release_orphan(job: &Job, ctx: &Context<CronJob>) -> Result<(), ClientError> {
    let Some((name, uid)) = plan::cronjob_of(job).filter(|_| record::is_unrecorded(job)) else { return Ok(()) };
    let cronjob = ctx.live().get::<CronJob>(&ObjectKey::of(job).sibling(name)).await?;
    let alive = cronjob.is_some_and(|cronjob| {
        cronjob.metadata.uid.as_deref() == Some(uid) && cronjob.metadata.deletion_timestamp.is_none()
    });
    if alive { Ok(()) } else { release(job, ctx).await }
}

/// Takes the finalizer off a Job.
async fn release(job: &Job, ctx: &Context<CronJob>) -> Result<(), ClientError> {
    let finalizers = "$deleteFromPrimitiveList/finalizers";
    let patch = json!({"metadata": {"uid": job.metadata.uid, finalizers: [record::UNRECORDED]}});
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
