//! The next and the previous matching time on a clock without jumps.
//!
//! Local times are in seconds since 1970 on that clock.

use jiff::{
    Timestamp,
    civil::{Date, DateTime},
    tz::Offset,
};

use super::fields::{Fields, Set};

/// The number of months to search. 29 February may be eight years away; its weekday can't postpone it further, since
/// either the date or the weekday has to match.
const MONTHS: usize = 12 * 9;

impl Fields {
    /// Returns the first matching time at or after `from`.
    pub(super) fn next(&self, from: i64) -> Option<i64> {
        let from = civil(from.div_euclid(60).checked_add(i64::from(from.rem_euclid(60) > 0))?.checked_mul(60)?)?;
        let (mut year, mut month) = (from.year(), from.month());
        let mut days = self.days(year, month)?;
        if days.contains(day(from))
            && let Some((hour, minute)) = self.time_from(from)
        {
            return local(year, month, day(from), hour, minute);
        }
        let mut first = days.first(day(from) + 1);
        for _ in 0..MONTHS {
            if let Some(day) = first {
                return local(year, month, day, self.hour.first(0)?, self.minute.first(0)?);
            }
            (year, month) = if month == 12 { (year.checked_add(1)?, 1) } else { (year, month + 1) };
            days = self.days(year, month)?;
            first = days.first(1);
        }
        None
    }

    /// Returns the last matching time at or before `until`.
    pub(super) fn previous(&self, until: i64) -> Option<i64> {
        let until = civil(until)?;
        let (mut year, mut month) = (until.year(), until.month());
        let mut days = self.days(year, month)?;
        if days.contains(day(until))
            && let Some((hour, minute)) = self.time_until(until)
        {
            return local(year, month, day(until), hour, minute);
        }
        let mut last = days.last(day(until) - 1);
        for _ in 0..MONTHS {
            if let Some(day) = last {
                return local(year, month, day, self.hour.last(23)?, self.minute.last(59)?);
            }
            (year, month) = if month == 1 { (year.checked_sub(1)?, 12) } else { (year, month - 1) };
            days = self.days(year, month)?;
            last = days.last(31);
        }
        None
    }

    /// Returns the matching days of a month.
    fn days(&self, year: i16, month: i8) -> Option<Set> {
        if !self.month.contains(month.unsigned_abs().into()) {
            return Some(Set::default());
        }
        let first = Date::new(year, month, 1).ok()?;
        let begin = first.weekday().to_sunday_zero_offset().unsigned_abs();
        let weekdays = (1..=31).filter(|day| self.weekday.contains((u32::from(begin) + day - 1) % 7));
        let weekdays = weekdays.fold(0, |bits, day| bits | 1 << day);
        let bits = if self.both_days() { self.day.bits & weekdays } else { self.day.bits | weekdays };
        let length = u32::from(first.days_in_month().unsigned_abs());
        Some(Set { bits: bits & ((1 << (length + 1)) - 1), open: false })
    }

    /// Returns the first time of a day at or after `time`.
    fn time_from(&self, time: DateTime) -> Option<(u32, u32)> {
        let (hour, minute) = clock(time);
        if self.hour.contains(hour)
            && let Some(minute) = self.minute.first(minute)
        {
            return Some((hour, minute));
        }
        Some((self.hour.first(hour + 1)?, self.minute.first(0)?))
    }

    /// Returns the last time of a day at or before `time`.
    fn time_until(&self, time: DateTime) -> Option<(u32, u32)> {
        let (hour, minute) = clock(time);
        if self.hour.contains(hour)
            && let Some(minute) = self.minute.last(minute)
        {
            return Some((hour, minute));
        }
        Some((self.hour.last(hour.checked_sub(1)?)?, self.minute.last(59)?))
    }
}

fn civil(local: i64) -> Option<DateTime> {
    Some(Offset::UTC.to_datetime(Timestamp::from_second(local).ok()?))
}

fn local(year: i16, month: i8, day: u32, hour: u32, minute: u32) -> Option<i64> {
    let small = |number: u32| i8::try_from(number).ok();
    let time = DateTime::new(year, month, small(day)?, small(hour)?, small(minute)?, 0, 0).ok()?;
    Some(Offset::UTC.to_timestamp(time).ok()?.as_second())
}

fn day(time: DateTime) -> u32 {
    time.day().unsigned_abs().into()
}

fn clock(time: DateTime) -> (u32, u32) {
    (time.hour().unsigned_abs().into(), time.minute().unsigned_abs().into())
}
