//! The five fields of a schedule as sets of numbers.

use super::{ScheduleError, clip};

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// The maximum number of days of each month.
const LONGEST: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// The allowed values of a field.
struct Range {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const RANGES: [Range; 5] = [
    Range { name: "minute", min: 0, max: 59, names: &[] },
    Range { name: "hour", min: 0, max: 23, names: &[] },
    Range { name: "day of month", min: 1, max: 31, names: &[] },
    Range { name: "month", min: 1, max: 12, names: &MONTHS },
    Range { name: "day of week", min: 0, max: 6, names: &WEEKDAYS },
];

/// The numbers that a field allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) bits: u64,
    /// Whether the field is unrestricted, by `*` or `?`.
    pub(super) open: bool,
}

impl Set {
    pub(super) fn contains(self, number: u32) -> bool {
        self.bits >> number & 1 == 1
    }

    /// Returns the smallest number at or above `from`.
    pub(super) fn first(self, from: u32) -> Option<u32> {
        let bits = if from < 64 { self.bits >> from << from } else { 0 };
        (bits != 0).then(|| bits.trailing_zeros())
    }

    /// Returns the largest number at or below `to`.
    pub(super) fn last(self, to: u32) -> Option<u32> {
        let bits = self.bits & (u64::MAX >> (63 - to.min(63)));
        (bits != 0).then(|| 63 - bits.leading_zeros())
    }
}

/// The fields minute, hour, day of month, month and day of week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) minute: Set,
    pub(super) hour: Set,
    pub(super) day: Set,
    pub(super) month: Set,
    pub(super) weekday: Set,
}

impl Fields {
    pub(super) fn parse(text: &str) -> Result<Self, ScheduleError> {
        let fields: Vec<_> = text.split_whitespace().collect();
        let count = fields.len();
        let [minute, hour, day, month, weekday] =
            <[&str; 5]>::try_from(fields).map_err(|_| ScheduleError::Count(count))?;
        let read = |position: usize, text| RANGES[position].set(text);
        Ok(Self {
            minute: read(0, minute)?,
            hour: read(1, hour)?,
            day: read(2, day)?,
            month: read(3, month)?,
            weekday: read(4, weekday)?,
        })
    }

    /// Returns whether both the date and the weekday have to match. By cron's special rule, one of them suffices if
    /// both are restricted.
    pub(super) fn both_days(&self) -> bool {
        self.day.open || self.weekday.open
    }

    /// Returns whether any date and time can match.
    pub(super) fn can_match(&self) -> bool {
        let day = (1..=12).any(|month| {
            self.month.contains(month) && self.day.first(1).is_some_and(|day| day <= LONGEST[month as usize - 1])
        });
        let weekday = self.month.bits != 0 && self.weekday.bits != 0;
        let date = if self.both_days() { day && weekday } else { day || weekday };
        date && self.hour.bits != 0 && self.minute.bits != 0
    }
}

impl Range {
    fn set(&self, text: &str) -> Result<Set, ScheduleError> {
        let mut set = Set::default();
        // Empty parts are skipped, as in robfig/cron.
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let part = self.part(part).map_err(|problem| ScheduleError::Field {
                field: self.name,
                text: clip(part),
                problem,
            })?;
            set = Set { bits: set.bits | part.bits, open: set.open || part.open };
        }
        Ok(set)
    }

    /// Parses one part of a list: `*`, a number or a range, each with an optional step.
    fn part(&self, text: &str) -> Result<Set, String> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(number(step)?)),
            None => (text, None),
        };
        let (low, high) = match range.split_once('-') {
            Some((low, high)) => (low, Some(high)),
            None => (range, None),
        };
        let (min, max, open) = if matches!(low, "*" | "?") {
            // robfig/cron ignores the text after a star and a hyphen, so it isn't an error here either.
            (self.min, self.max, step.is_none_or(|step| step == 1))
        } else {
            let min = self.value(low)?;
            let max = match high {
                Some(high) => self.value(high)?,
                // A number with a step is the start of a range.
                None if step.is_some() => self.max,
                None => min,
            };
            (min, max, false)
        };
        if min < self.min || max > self.max {
            return Err(format!("out of range {} to {}", self.min, self.max));
        }
        if min > max {
            return Err("the range ends before it begins".into());
        }
        let step = step.unwrap_or(1);
        if step == 0 {
            return Err("the step must be at least 1".into());
        }
        let numbers = (min..=max).step_by(step as usize);
        Ok(Set { bits: numbers.fold(0, |bits, number| bits | 1 << number), open })
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        // Names are numbered from the smallest number of their field.
        named.map_or_else(|| number(text), |position| Ok(position as u32 + self.min))
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{:?} is not a number", clip(text)))
}
