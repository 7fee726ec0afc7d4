//! Defaulting and validation of CronJobs at admission.
//!
//! Without these webhooks ([`ENABLE_WEBHOOKS=false`](kubewright::args::ManagerArgs::enable_webhooks)), errors are only
//! reported later: the controller writes the same messages into conditions.

use kubewright::{
    prelude::*,
    webhook::{Denied, Request, ValidationErrors},
};

use crate::{
    api::v1::{ConcurrencyPolicy, CronJob, CronJobSpec},
    controller::plan,
    schedule::{Schedule, ScheduleError},
};

/// The webhooks of CronJobs.
pub(crate) fn webhook() -> Webhook<CronJob> {
    Webhook::new().defaulting(Defaults).validating(Validation)
}

/// Sets defaults: concurrency policy `Allow`, not suspended, and limits of three succeeded Jobs and one failed Job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults;

// ANCHOR: defaults
impl Defaulter<CronJob> for Defaults {
    async fn set_defaults(&self, cronjob: &mut CronJob, _: &Request) -> Result<(), Denied> {
        complete(&mut cronjob.spec);
        Ok(())
    }
}

fn complete(spec: &mut CronJobSpec) {
    spec.concurrency_policy.get_or_insert(ConcurrencyPolicy::Allow);
    spec.suspend.get_or_insert(false);
    spec.successful_jobs_history_limit.get_or_insert(3);
    spec.failed_jobs_history_limit.get_or_insert(1);
}
// ANCHOR_END: defaults

/// Refuses invalid CronJobs with all causes at once, and warns about unusual ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validation;

// ANCHOR: validation
impl Validator<CronJob> for Validation {
    async fn validate_create(&self, cronjob: &CronJob, _: &Request) -> Result<ValidationErrors, Denied> {
        Ok(look(cronjob))
    }

    /// Errors that were stored earlier must not prevent deletion, or changes of labels or finalizers.
    async fn validate_update(&self, old: &CronJob, new: &CronJob, _: &Request) -> Result<ValidationErrors, Denied> {
        // The new object has its defaults; the old one may have been stored without them.
        let [old_spec, new_spec] = [&old.spec, &new.spec].map(|spec| {
            let mut spec = spec.clone();
            complete(&mut spec);
            spec
        });
        let is_let_be = new.metadata.deletion_timestamp.is_some() || old_spec == new_spec;
        Ok(if is_let_be { ValidationErrors::default() } else { look(new) })
    }
}

pub(super) fn look(cronjob: &CronJob) -> ValidationErrors {
    let mut errors = ValidationErrors::default();
    look_at_schedule(cronjob, &mut errors);
    if let Err(error) = cronjob.spec.job_template.read() {
        errors.invalid("spec.jobTemplate", &cronjob.spec.job_template, error);
    }
    let name = cronjob.name_any();
    if name.len() > plan::MAX_NAME {
        errors.invalid("metadata.name", name, format!("must be no more than {} characters", plan::MAX_NAME));
    }
    if plan::has_short_deadline(cronjob) {
        errors.warn(
            "spec.startingDeadlineSeconds: with less than 10 seconds, runs may be missed while the operator is busy",
        );
    }
    errors
}
// ANCHOR_END: validation

fn look_at_schedule(cronjob: &CronJob, errors: &mut ValidationErrors) {
    let spec = &cronjob.spec;
    let schedule = Schedule::parse(&spec.schedule, None);
    match &schedule {
        Ok(schedule) if schedule.never_matches() => {
            errors
                .warn(format!("spec.schedule: no date satisfies {:?}, so no Job will ever be created", spec.schedule));
        }
        Ok(_) => {}
        Err(error) => drop(errors.invalid("spec.schedule", &spec.schedule, error)),
    }
    let Some(zone) = &spec.time_zone else { return };
    // An invalid schedule is replaced by a valid one here, so that the time zone is still checked.
    let readable = if schedule.is_ok() { &spec.schedule } else { "@daily" };
    if let Err(error @ (ScheduleError::Zone(_) | ScheduleError::TwoZones)) = Schedule::parse(readable, Some(zone)) {
        errors.invalid("spec.timeZone", zone, error);
    }
}
