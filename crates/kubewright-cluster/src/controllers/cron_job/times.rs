//! The scheduled times of a cron job.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use kubewright_apiserver::cron::Schedule;
use serde_json::Value;

use crate::controllers::value::{number, time};

/// The number of missed times from which the user is warned.
const MANY: i64 = 100;

/// The latest scheduled time that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) at: Timestamp,
    /// Whether many times before it were missed.
    pub(super) many: bool,
}

/// The times since the last run.
struct Missed {
    /// The time from which times count.
    since: Timestamp,
    latest: Option<Timestamp>,
    number: i64,
}

/// Returns the latest scheduled time that is due, not before the starting deadline.
pub(super) fn due(
    cron: &Value,
    schedule: &Schedule,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<Option<Due>, &'static str> {
    let missed = missed(cron, schedule, zone, now, true)?;
    Ok(missed.latest.map(|at| Due { at, many: missed.number > MANY }))
}

/// Returns the time until the next scheduled time.
pub(super) fn until_next(cron: &Value, schedule: &Schedule, zone: &TimeZone, now: Timestamp) -> Option<Duration> {
    let missed = missed(cron, schedule, zone, now, false).ok()?;
    let from = match missed.latest {
        Some(latest) => latest,
        None if missed.number > 0 => now,
        None => missed.since,
    };
    let next = schedule.next(from, zone)?;
    Some(Duration::try_from(next.duration_since(now)).unwrap_or_default().max(Duration::from_millis(1)))
}

fn missed(
    cron: &Value,
    schedule: &Schedule,
    zone: &TimeZone,
    now: Timestamp,
    with_deadline: bool,
) -> Result<Missed, &'static str> {
    let last = time(cron, "/status/lastScheduleTime");
    let mut since = last.or_else(|| time(cron, "/metadata/creationTimestamp")).unwrap_or(now);
    let deadline = number(cron, "/spec/startingDeadlineSeconds").filter(|_| with_deadline);
    if let Some(earliest) = deadline.and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok()) {
        since = since.max(earliest);
    }
    // As in Kubernetes, whose two times are both zero then.
    let never = "time difference between two schedules is less than 1 second";
    let first = schedule.next(since, zone).ok_or(never)?;
    if now < first {
        return Ok(Missed { since, latest: None, number: 0 });
    }
    let second = schedule.next(first, zone).ok_or(never)?;
    if now < second {
        return Ok(Missed { since, latest: Some(first), number: 0 });
    }
    // The number of missed times is estimated from the first interval, so that not all of them have to be computed.
    let interval = second.duration_since(first).as_secs().max(1);
    let number = now.duration_since(first).as_secs() / interval + 1;
    let near = first.checked_add(SignedDuration::from_secs((number - 2) * interval)).unwrap_or(first);
    let mut latest = None;
    let mut next = schedule.next(near, zone);
    while let Some(at) = next.filter(|at| *at <= now) {
        latest = Some(at);
        next = schedule.next(at, zone);
    }
    Ok(Missed { since, latest, number })
}
