//! Cron jobs: jobs on a schedule (<https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/>).
//!
//! * [`times`]: the scheduled times that are due and the next one
//! * [`status`]: the active jobs, and what became of the others

mod status;
#[cfg(test)]
mod tests;
mod times;

use std::sync::Arc;

use jiff::{Timestamp, tz::TimeZone};
use kubewright_apiserver::{Change, cron::Schedule};
use serde_json::{Value, json};

use self::times::Due;
use super::{
    controller_refs::ControllerRefs,
    job::JOB,
    kind::Kind,
    reconcile::{Controller, Key, Plan, Report, Step},
    value::{controller_of, controller_reference, flag, holds, is_deleting, number, text, time},
};

/// The kind `CronJob`.
pub(crate) const CRON_JOB: Kind = Kind { group: "batch", kind: "CronJob", plural: "cronjobs" };

/// The annotation of a job with its scheduled time.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// The cron job controller.
#[derive(Debug)]
pub(crate) struct CronJobs(ControllerRefs);

impl Default for CronJobs {
    fn default() -> Self {
        Self(ControllerRefs::new(CRON_JOB, JOB))
    }
}

impl Controller for CronJobs {
    fn reset(&mut self) {
        self.0.reset();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        self.0.take(change)
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(cron) = self.0.parent(key) else { return Plan::default() };
        let mut plan = Plan::of(&CRON_JOB, cron);
        let uid = &cron["metadata"]["uid"];
        let owned = |job: &Arc<Value>| controller_of(job).is_some_and(|owner| owner["uid"] == *uid);
        let jobs: Vec<_> = self.0.named(key).filter(owned).collect();
        let jobs: Vec<&Value> = jobs.iter().map(|job| &**job).collect();
        let taken = |name: &str| self.0.has_child(&Key { name: name.into(), ..key.clone() });
        decide(cron, &jobs, &taken, now, &mut plan);
        plan
    }
}

fn is_finished(job: &Value) -> bool {
    holds(job, "Complete") || holds(job, "Failed")
}

/// Decides the next steps for a cron job. `taken` tells whether a job of a name exists, whoever controls it.
fn decide(cron: &Value, jobs: &[&Value], taken: &dyn Fn(&str) -> bool, now: Timestamp, plan: &mut Plan) {
    let start = if is_deleting(cron) { None } else { start(cron, jobs, taken, now, plan) };
    let mut deleted = Vec::new();
    if let Some((scheduled, zone)) = &start {
        let name = job_name(cron, *scheduled);
        if text(cron, "/spec/concurrencyPolicy") == "Replace" {
            deleted.extend(jobs.iter().copied().filter(|job| !is_finished(job) && text(job, "/metadata/name") != name));
            deleted.iter().for_each(|job| delete(job, plan));
        }
        if !taken(&name) {
            let report = Report {
                success: Some(("SuccessfulCreate", format!("Created job {name}"))),
                failures: vec![("FailedCreate", "Error creating job: ".into())],
            };
            let path = JOB.address(text(cron, "/metadata/namespace"), "");
            plan.steps.push(Step::Create(path, new_job(cron, &name, *scheduled, zone)).reported(report));
        }
    }
    let status = status::status(cron, jobs, &deleted, start.map(|(scheduled, _)| scheduled), plan);
    plan.steps.extend(Step::status(&CRON_JOB, cron, status));
    if !is_deleting(cron) {
        forget_finished(cron, jobs, plan);
    }
}

/// Returns the scheduled time whose job has to start now, and the time zone. Plans the decision about the next one.
fn start(
    cron: &Value,
    jobs: &[&Value],
    taken: &dyn Fn(&str) -> bool,
    now: Timestamp,
    plan: &mut Plan,
) -> Option<(Timestamp, TimeZone)> {
    if flag(cron, "/spec/suspend") {
        return None;
    }
    let written = text(cron, "/spec/schedule");
    let schedule = match Schedule::parse(written) {
        Ok(schedule) => schedule,
        Err(why) => {
            plan.event(true, "UnparseableSchedule", format!("unparseable schedule: {written:?} : {why}"));
            return None;
        }
    };
    let zone = cron["spec"]["timeZone"].as_str().or(schedule.zone()).unwrap_or("UTC");
    let Ok(zone) = TimeZone::get(zone) else {
        plan.event(true, "UnknownTimeZone", format!("invalid timeZone: {zone:?}: unknown time zone {zone}"));
        return None;
    };
    let due = match times::due(cron, &schedule, &zone, now) {
        Ok(due) => due,
        Err(why) => {
            plan.event(true, "InvalidSchedule", format!("invalid schedule: {written} : {why}"));
            return None;
        }
    };
    if let Some(delay) = times::until_next(cron, &schedule, &zone, now) {
        plan.requeue_after(delay);
    }
    let Due { at, many } = due?;
    if many {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.event(true, "TooManyMissedTimes", message.into());
    }
    let name = job_name(cron, at);
    let is_ours = jobs.iter().any(|job| text(job, "/metadata/name") == name);
    if time(cron, "/status/lastScheduleTime") == Some(at) || taken(&name) && !is_ours {
        return None;
    }
    if !is_ours && text(cron, "/spec/concurrencyPolicy") == "Forbid" && jobs.iter().any(|job| !is_finished(job)) {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        plan.event(false, "JobAlreadyActive", message.into());
        return None;
    }
    Some((at, zone))
}

/// Returns the name of the job of a scheduled time, which can thus be created only once.
fn job_name(cron: &Value, scheduled: Timestamp) -> String {
    format!("{}-{}", text(cron, "/metadata/name"), scheduled.as_second().div_euclid(60))
}

fn new_job(cron: &Value, name: &str, scheduled: Timestamp, zone: &TimeZone) -> Value {
    let template = &cron["spec"]["jobTemplate"];
    let scheduled = scheduled.to_zoned(zone.clone());
    let shown = if scheduled.offset().is_zero() {
        scheduled.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        scheduled.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    };
    let mut metadata = json!({
        "name": name, "ownerReferences": [controller_reference(cron, &CRON_JOB.api_version(), CRON_JOB.kind)],
    });
    for field in ["labels", "annotations"] {
        if let Some(value) = template["metadata"].get(field).filter(|value| !value.is_null()) {
            metadata[field] = value.clone();
        }
    }
    metadata["annotations"][SCHEDULED] = shown.into();
    json!({"apiVersion": JOB.api_version(), "kind": JOB.kind, "metadata": metadata, "spec": template["spec"]})
}

fn delete(job: &Value, plan: &mut Plan) {
    let report = Report {
        success: Some(("SuccessfulDelete", format!("Deleted job {}", text(job, "/metadata/name")))),
        failures: vec![("FailedDelete", "Error deleting job: ".into())],
    };
    plan.steps.push(Step::delete(&JOB, job).reported(report));
}

/// Deletes the oldest finished jobs beyond the history limits.
fn forget_finished(cron: &Value, jobs: &[&Value], plan: &mut Plan) {
    for (limit, condition) in [("successfulJobsHistoryLimit", "Complete"), ("failedJobsHistoryLimit", "Failed")] {
        let limit = number(&cron["spec"], &format!("/{limit}")).and_then(|limit| usize::try_from(limit).ok());
        let Some(limit) = limit else { continue };
        let finished = |job: &&&Value| holds(job, condition) && !is_deleting(job);
        let mut finished: Vec<_> = jobs.iter().filter(finished).collect();
        finished.sort_by_key(|job| {
            let started = time(job, "/status/startTime");
            (started.is_none(), started, text(job, "/metadata/name"))
        });
        let surplus = finished.len().saturating_sub(limit);
        finished[..surplus].iter().for_each(|job| delete(job, plan));
    }
}
