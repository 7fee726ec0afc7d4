//! Schedules in the format of `ParseStandard` in Go's robfig/cron, with time zones and defined behaviour at daylight
//! saving changes.
//!
//! No crate parses this format: `croner` accepts 7 as Sunday, `L`, `W` and `#`, and `jiff-cron` numbers Sunday as 1 and
//! requires seconds; neither supports `@every` or `TZ=`. The time zone database is compiled in, so that a schedule
//! means the same on every host.
//!
//! The next and the previous time are computed from the fields instead of by iteration, so the cost is the same after
//! ten years of missed minutes as after one.
//!
//! # Daylight saving
//! A local time that is skipped runs once, delayed by the length of the gap: 02:30 runs at 03:30, and only once if the
//! schedule also contains 03:30. A local time that occurs twice runs the first time. If the hour is `*`, however, the
//! schedule has no fixed local times but minutes of every hour, and runs in both hours.

mod civil;
mod every;
mod fields;
#[cfg(test)]
mod tests;
mod zone;

use jiff::{Timestamp, tz::TimeZone};
use thiserror::Error;

use self::fields::Fields;

/// The maximum length of a schedule in bytes. A schedule that lists every value of each field has about 400.
const MAX_LENGTH: usize = 1024;

/// A parsed schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    rule: Rule,
    zone: TimeZone,
}

#[derive(Clone, Debug)]
enum Rule {
    Fields(Fields),
    /// An interval in seconds.
    Every(i64),
}

/// An error in a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The schedule is empty.
    #[error("the schedule is empty")]
    Empty,
    /// The schedule exceeds the maximum length.
    #[error("the schedule has {0} bytes; at most 1024 are allowed")]
    TooLong(usize),
    /// The number of fields is wrong.
    #[error("expected 5 fields (minute, hour, day of month, month, day of week), found {0}")]
    Count(usize),
    /// A field is invalid.
    #[error("{field} {text:?}: {problem}")]
    Field {
        /// The name of the field.
        field: &'static str,
        /// The invalid part.
        text: String,
        /// The problem.
        problem: String,
    },
    /// A word after `@` is unknown.
    #[error("unknown word {0:?}: use @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or @every")]
    Word(String),
    /// The text after `@every` is not a duration.
    #[error("{0:?} is not a duration such as 1h30m")]
    Duration(String),
    /// The duration after `@every` is less than a second.
    #[error("@every requires a duration of at least one second")]
    TooOften,
    /// The time zone is unknown.
    #[error("unknown time zone {0:?}")]
    Zone(String),
    /// The schedule and `timeZone` both set a time zone.
    #[error("the schedule and spec.timeZone both set a time zone: remove one")]
    TwoZones,
}

impl Schedule {
    /// Parses a schedule. `zone` is the time zone of a schedule that doesn't contain one. The default is UTC.
    ///
    /// # Errors
    /// If the schedule is malformed, or a time zone is unknown.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Self, ScheduleError> {
        if text.is_empty() {
            return Err(ScheduleError::Empty);
        }
        if text.len() > MAX_LENGTH {
            return Err(ScheduleError::TooLong(text.len()));
        }
        let (own, rest) = split_zone(text);
        let zone = match (own, zone) {
            (Some(_), Some(_)) => return Err(ScheduleError::TwoZones),
            (Some(""), None) | (None, None) => TimeZone::UTC,
            (Some(name), None) | (None, Some(name)) => {
                zone::find(name).ok_or_else(|| ScheduleError::Zone(clip(name)))?
            }
        };
        let rule = match rest.strip_prefix('@') {
            Some(word) => Self::read_word(word)?,
            None => Rule::Fields(Fields::parse(rest)?),
        };
        Ok(Self { rule, zone })
    }

    fn read_word(word: &str) -> Result<Rule, ScheduleError> {
        let fields = match word {
            "yearly" | "annually" => "0 0 1 1 *",
            "monthly" => "0 0 1 * *",
            "weekly" => "0 0 * * 0",
            "daily" | "midnight" => "0 0 * * *",
            "hourly" => "0 * * * *",
            _ => {
                let duration = word.strip_prefix("every ").ok_or_else(|| ScheduleError::Word(clip(word)))?;
                let seconds = every::whole_seconds(duration).ok_or_else(|| ScheduleError::Duration(clip(duration)))?;
                return if seconds < 1 { Err(ScheduleError::TooOften) } else { Ok(Rule::Every(seconds)) };
            }
        };
        Ok(Rule::Fields(Fields::parse(fields)?))
    }

    /// Returns whether no date matches, such as 30 February.
    pub fn never_matches(&self) -> bool {
        matches!(&self.rule, Rule::Fields(fields) if !fields.can_match())
    }

    /// Returns the first time of the schedule after `after`; `None` if there is none before the end of the supported
    /// range.
    ///
    /// `@every` counts from `anchor`, the last run or else the creation.
    pub fn next(&self, anchor: Timestamp, after: Timestamp) -> Option<Timestamp> {
        let (anchor, after) = (floor(anchor), floor(after));
        let next = match &self.rule {
            Rule::Every(seconds) => {
                let periods = (after.checked_sub(anchor)?.max(0) / seconds).checked_add(1)?;
                anchor.checked_add(periods.checked_mul(*seconds)?)?
            }
            Rule::Fields(fields) if fields.can_match() => zone::next(fields, &self.zone, after)?,
            Rule::Fields(_) => return None,
        };
        Timestamp::from_second(next).ok()
    }

    /// Returns the last time of the schedule at or before `until`; `None` if that is not after `anchor`.
    pub fn latest(&self, anchor: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let (anchor, until) = (floor(anchor), floor(until));
        let latest = match &self.rule {
            Rule::Every(seconds) => anchor + until.checked_sub(anchor)?.max(0) / seconds * seconds,
            Rule::Fields(fields) if fields.can_match() => zone::latest(fields, &self.zone, anchor, until)?,
            Rule::Fields(_) => return None,
        };
        Timestamp::from_second(latest).ok().filter(|_| latest > anchor)
    }
}

/// Splits the leading time zone off a schedule.
fn split_zone(text: &str) -> (Option<&str>, &str) {
    let named = text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ="));
    match named {
        Some(named) => {
            let (zone, rest) = named.split_once(' ').unwrap_or((named, ""));
            (Some(zone), rest.trim())
        }
        None => (None, text),
    }
}

fn floor(time: Timestamp) -> i64 {
    time.as_second() - i64::from(time.subsec_nanosecond() < 0)
}

/// Shortens an invalid text for a message.
fn clip(text: &str) -> String {
    let mut clipped: String = text.chars().take(40).collect();
    if clipped.len() < text.len() {
        clipped.push('…');
    }
    clipped
}
