//! Validation of cron jobs: schedules, time zones, templates.

use serde_json::Value;

use super::validate::validate_job_spec;
use crate::{
    cron::{Schedule, is_known_zone},
    registry::builtin::validation::{
        Errors, Path, Shown, boolean, field, int, optional_string, string, validate_nonnegative,
    },
};

const SPEC: Path<'static> = Path::new("spec");

/// The maximum length of a name in characters. The names of the jobs are eleven characters longer.
const NAME_LIMIT: usize = 52;

/// Checks a cron job.
pub(super) fn validate_cron_job(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    const POLICIES: &[&str] = &["Allow", "Forbid", "Replace"];
    let spec = &new["spec"];
    let zone = optional_string(spec, "timeZone");
    let path = SPEC.child("schedule");
    match string(spec, "schedule") {
        "" => errors.required(&path, ""),
        schedule => {
            let zone_before = old.is_some_and(|old| string(&old["spec"], "schedule").contains("TZ"));
            validate_schedule(schedule, zone_before, zone, &path, errors);
        }
    }
    let at = SPEC.child("startingDeadlineSeconds");
    validate_nonnegative(int(spec, "startingDeadlineSeconds"), &at, errors);
    if let Some(zone) = zone
        && old.is_none_or(|old| optional_string(&old["spec"], "timeZone") != Some(zone))
    {
        validate_time_zone(zone, &SPEC.child("timeZone"), errors);
    }
    match string(spec, "concurrencyPolicy") {
        "" => errors.required(&SPEC.child("concurrencyPolicy"), ""),
        policy if POLICIES.contains(&policy) => {}
        other => errors.not_supported(&SPEC.child("concurrencyPolicy"), other, POLICIES),
    }
    validate_job_template(&spec["jobTemplate"], &SPEC.child("jobTemplate"), errors);
    for name in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        validate_nonnegative(int(spec, name), &SPEC.child(name), errors);
    }
    let name = string(&new["metadata"], "name");
    if old.is_none() && name.len() > NAME_LIMIT {
        let why = format!("must be no more than {NAME_LIMIT} characters");
        errors.invalid(&Path::new("metadata.name"), name, &why);
    }
}

fn validate_job_template(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (spec, path) = (&template["spec"], path.child("spec"));
    validate_job_spec(spec, &path, errors);
    if let Some(selector) = field(spec, "selector") {
        errors.invalid(&path.child("selector"), Shown::selector(selector), "`selector` will be auto-generated");
    }
    if boolean(spec, "manualSelector") {
        errors.not_supported(&path.child("manualSelector"), true, &["nil", "false"]);
    }
}

fn validate_schedule(schedule: &str, zone_before: bool, zone: Option<&str>, path: &Path<'_>, errors: &mut Errors) {
    if let Err(why) = Schedule::parse(schedule) {
        errors.invalid(path, schedule, &why);
    }
    let has_zone = schedule.contains("TZ");
    if zone_before && has_zone && zone.is_some() {
        errors.invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
    } else if !zone_before && has_zone {
        errors.invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    }
}

fn validate_time_zone(zone: &str, path: &Path<'_>, errors: &mut Errors) {
    if zone.is_empty() {
        errors.invalid(path, zone, "timeZone must be nil or non-empty string");
        return;
    }
    let unknown = format!("unknown time zone {zone}");
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+');
    let fits = |part: &str| {
        !matches!(part, "" | "." | "..") && part.len() <= 14 && !part.starts_with('-') && part.bytes().all(allowed)
    };
    if !zone.split('/').all(fits) {
        errors.invalid(path, zone, &unknown);
        return;
    }
    if zone.eq_ignore_ascii_case("Local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path, zone, why);
    }
    if !is_known_zone(zone) {
        errors.invalid(path, zone, &unknown);
    }
}
