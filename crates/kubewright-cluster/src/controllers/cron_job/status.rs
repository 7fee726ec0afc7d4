//! The status of a cron job.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{JOB, is_finished, job_name};
use crate::controllers::{
    reconcile::Plan,
    value::{holds, list, stamp, text, time},
};

/// Returns the status, and adds events about jobs to the plan. `started` is the scheduled time of a job that is
/// created, and the jobs in `deleted` are being deleted.
pub(super) fn status(
    cron: &Value,
    jobs: &[&Value],
    deleted: &[&Value],
    started: Option<Timestamp>,
    plan: &mut Plan,
) -> Value {
    let before = list(cron, "/status/active");
    let known = |job: &Value| before.iter().find(|known| known["uid"] == job["metadata"]["uid"]);
    let last = started.or_else(|| time(cron, "/status/lastScheduleTime"));
    let newest = last.map(|scheduled| job_name(cron, scheduled));
    let mut successful = time(cron, "/status/lastSuccessfulTime");
    let mut active = Vec::new();
    for job in jobs.iter().copied() {
        let name = text(job, "/metadata/name");
        if !is_finished(job) {
            if known(job).is_none() && newest.as_deref() != Some(name) {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                plan.event(true, "UnexpectedJob", message);
            } else if !deleted.iter().any(|deleted| std::ptr::eq(*deleted, job)) {
                active.push(known(job).cloned().unwrap_or_else(|| reference(job)));
            }
            continue;
        }
        if known(job).is_some() {
            let condition = if holds(job, "Complete") { "Complete" } else { "Failed" };
            let message = format!("Saw completed job: {name}, condition: {condition}");
            plan.event(false, "SawCompletedJob", message);
        }
        if holds(job, "Complete") {
            successful = successful.max(time(job, "/status/completionTime"));
        }
    }
    let is_gone = |known: &&Value| !jobs.iter().any(|job| job["metadata"]["uid"] == known["uid"]);
    for missing in before.iter().filter(is_gone) {
        plan.event(false, "MissingJob", format!("Active job went missing: {}", text(missing, "/name")));
    }
    let mut status = Map::new();
    if !active.is_empty() {
        status.insert("active".into(), active.into());
    }
    for (field, time) in [("lastScheduleTime", last), ("lastSuccessfulTime", successful)] {
        status.extend(time.map(|time| (field.into(), stamp(time))));
    }
    status.into()
}

fn reference(job: &Value) -> Value {
    let metadata = &job["metadata"];
    json!({
        "apiVersion": JOB.api_version(), "kind": JOB.kind, "namespace": metadata["namespace"], "name": metadata["name"],
        "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
    })
}
