//! Schedules: what `ParseStandard` of Go's robfig/cron takes, in time zones, with daylight saving defined.
//!
//! It is a parser of our own because no crate reads this language: `croner` takes Sunday as 7, `L`, `W` and `#`, and
//! `jiff-cron` counts Sunday as 1 and wants seconds; neither knows `@every` or `TZ=`. The time zones are compiled in,
//! so that a schedule means the same on every host.
//!
//! The time before or after a given one is computed from the fields, never by walking: it costs the same after ten
//! years of missed minutes as after one.
//!
//! # Daylight saving A time of day that the clock skips runs once, as much later as the clock went forward: 02:30 runs
//! at what is then called 03:30, and not twice if the schedule names that too. A time of day that the clock shows twice
//! runs the first time. Where the hour is `*`, though, a schedule names no time of day but minutes of every hour, and
//! each of the two hours is one of them.

mod civil;
mod every;
mod fields;
#[cfg(test)]
mod tests;
mod zone;

use jiff::{Timestamp, tz::TimeZone};
use thiserror::Error;

use self::fields::Fields;

/// The longest schedule that is read, in bytes. One that names every value of each field has some 400.
const MAX_LENGTH: usize = 1024;

/// A schedule that was read.
#[derive(Clone, Debug)]
pub struct Schedule {
    rule: Rule,
    zone: TimeZone,
}

#[derive(Clone, Debug)]
enum Rule {
    Fields(Fields),
    /// Every so many seconds.
    Every(i64),
}

/// Why a text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// There is nothing.
    #[error("the schedule is empty")]
    Empty,
    /// It is longer than any sensible one.
    #[error("the schedule has {0} bytes, and may have 1024")]
    TooLong(usize),
    /// The number of fields is wrong.
    #[error("expected 5 fields (minute, hour, day of month, month, day of week), found {0}")]
    Count(usize),
    /// A field is wrong.
    #[error("{field} {text:?}: {problem}")]
    Field {
        /// Which one.
        field: &'static str,
        /// The part of it that is wrong.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A word that begins with `@`, and isn't known.
    #[error("unknown word {0:?}; known are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, @every")]
    Word(String),
    /// What follows `@every` is no duration.
    #[error("{0:?} is not a duration such as 1h30m")]
    Duration(String),
    /// What follows `@every` is less than a second.
    #[error("@every takes a duration of at least one second")]
    TooOften,
    /// There is no such time zone.
    #[error("unknown time zone {0:?}")]
    Zone(String),
    /// There are two time zones.
    #[error("the schedule begins with a time zone, and spec.timeZone names one too: take one away")]
    TwoZones,
}

impl Schedule {
    /// Reads a schedule. `zone` is the time zone for one that doesn't begin with its own; without either it is UTC.
    ///
    /// # Errors
    /// If the text is no schedule, or a time zone is unknown.
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

    /// Whether no date there is satisfies it, such as the 30th of February.
    pub fn never_matches(&self) -> bool {
        matches!(&self.rule, Rule::Fields(fields) if !fields.can_match())
    }

    /// The first time of the schedule after `after`; none if there is none before the year 9999.
    ///
    /// `@every` counts from `anchor`: the latest run, or where there was none, the beginning.
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

    /// The last time of the schedule that is not after `until`; none unless it is after `anchor`.
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

/// The time zone that a schedule begins with, and the rest.
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

/// As much of a wrong text as a message needs.
fn clip(text: &str) -> String {
    let mut clipped: String = text.chars().take(40).collect();
    if clipped.len() < text.len() {
        clipped.push('…');
    }
    clipped
}
