//! Validation of cron jobs: schedules, time zones, templates.

use serde_json::Value;

use super::validate::validate_job_spec;
use crate::registry::builtin::validation::{
    Errors, Path, Shown, boolean, field, int, optional_string, string, validate_nonnegative,
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
    if let Err(why) = parse(schedule) {
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
    // The database is asked without regard to case; its own name tells.
    let known = zone == "UTC"
        || zone == "Local"
        || jiff::tz::TimeZone::get(zone).is_ok_and(|found| found.iana_name() == Some(zone));
    if !known {
        errors.invalid(path, zone, &unknown);
    }
}

/// One field of a schedule: its bounds, and the names of its numbers.
struct Bounds {
    least: u64,
    most: u64,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds { least: 0, most: 59, names: &[] },
    Bounds { least: 0, most: 23, names: &[] },
    Bounds { least: 1, most: 31, names: &[] },
    Bounds {
        least: 1,
        most: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Bounds { least: 0, most: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

/// Checks a schedule, and returns why it is malformed.
fn parse(schedule: &str) -> Result<(), String> {
    let mut schedule = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        schedule = schedule.split_once(' ').map_or("", |(_, rest)| rest).trim();
    }
    if schedule.starts_with('@') {
        return descriptor(schedule);
    }
    let fields: Vec<_> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let (number, list) = (fields.len(), fields.join(" "));
        return Err(format!("expected exactly {} fields, found {number}: [{list}]", FIELDS.len()));
    }
    for (text, bounds) in fields.iter().zip(&FIELDS) {
        for range in text.split(',').filter(|range| !range.is_empty()) {
            check_range(range, bounds)?;
        }
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), String> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match text.strip_prefix("@every ") {
            None => Err(format!("unrecognized descriptor: {text}")),
            Some(duration) if is_duration(duration) => Ok(()),
            Some(duration) => Err(format!("failed to parse duration {text}: time: invalid duration {duration:?}")),
        },
    }
}

/// Returns whether a text is a duration such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number = &rest[..digits];
        if number.matches('.').count() > 1 || !number.bytes().any(|byte| byte.is_ascii_digit()) {
            return false;
        }
        let unit = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        rest = &rest[digits..];
        let Some(length) = unit.iter().filter(|unit| rest.starts_with(*unit)).map(|unit| unit.len()).max() else {
            return false;
        };
        rest = &rest[length..];
    }
    true
}

fn check_range(text: &str, bounds: &Bounds) -> Result<(), String> {
    let parts: Vec<_> = text.split('/').collect();
    let limits: Vec<_> = parts[0].split('-').collect();
    let (start, mut end) = match limits[..] {
        ["*" | "?", ..] => (bounds.least, bounds.most),
        [one] => {
            let number = number_or_name(one, bounds)?;
            (number, number)
        }
        [first, last] => (number_or_name(first, bounds)?, number_or_name(last, bounds)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            if limits.len() == 1 {
                end = bounds.most;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    let Bounds { least, most, .. } = bounds;
    if start < *least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {text}"));
    }
    if end > *most {
        return Err(format!("end of range ({end}) above maximum ({most}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(index) => Ok(bounds.least + u64::try_from(index).unwrap_or_default()),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let failed = |why: &str| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}");
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed("invalid syntax"));
    }
    let number: i64 = text.parse().map_err(|_| failed("value out of range"))?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_schedules_are_explained() {
        for schedule in ["* * * * *", "*/5 0-3,5 1 jan-mar SUN", "@daily", "@every 1h30m", "0 0 ? * ?", "1/2 * * * *"] {
            assert_eq!(parse(schedule), Ok(()), "{schedule}");
        }
        for (schedule, why) in [
            ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ] {
            assert_eq!(parse(schedule), Err(why.into()), "{schedule}");
        }
    }
}
