//! Timestamps and durations: their notations, their ranges, and the parts of timestamps (cel-spec, *Timestamps*).

use chrono::{DateTime, FixedOffset, NaiveDate, TimeDelta};
use jiff::{
    Timestamp, Zoned,
    tz::{Offset, TimeZone},
};
use kube_cel::cel::Value;

use super::failure::{Evaluated, Failure};
use crate::duration;

/// The seconds of the first and of the last timestamp: the years 1 to 9999.
const RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// Returns the timestamp of a number of seconds since the epoch.
pub(super) fn from_seconds(seconds: i64) -> Option<Value> {
    let time = DateTime::from_timestamp(seconds, 0).filter(|_| RANGE.contains(&seconds))?;
    Some(Value::Timestamp(time.fixed_offset()))
}

/// Reads a timestamp as Go's `time.Parse` does in the format `RFC3339`: hours may have one digit, and fractions a
/// comma.
pub(crate) fn timestamp(text: &str) -> Option<Value> {
    fn number(text: &mut &str, digits: usize) -> Option<u32> {
        let (number, rest) = text.split_at_checked(digits)?;
        *text = rest;
        if number.bytes().all(|byte| byte.is_ascii_digit()) { number.parse().ok() } else { None }
    }
    fn after(text: &str, separator: char) -> Option<&str> {
        text.strip_prefix(separator)
    }
    let mut rest = text;
    let year = number(&mut rest, 4)?;
    rest = after(rest, '-')?;
    let month = number(&mut rest, 2)?;
    rest = after(rest, '-')?;
    let day = number(&mut rest, 2)?;
    rest = after(rest, 'T')?;
    let hour_digits = rest.find(':').filter(|digits| (1..=2).contains(digits))?;
    let hour = number(&mut rest, hour_digits)?;
    rest = after(rest, ':')?;
    let minute = number(&mut rest, 2)?;
    rest = after(rest, ':')?;
    let second = number(&mut rest, 2)?;
    let mut nanoseconds = 0;
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
        let digits = &fraction[..end];
        if digits.is_empty() {
            return None;
        }
        nanoseconds = format!("{:0<9}", &digits[..digits.len().min(9)]).parse().ok()?;
        rest = &fraction[end..];
    }
    let offset = if rest == "Z" {
        0
    } else {
        let sign = if rest.starts_with('-') { -1 } else { 1 };
        rest = rest.strip_prefix(['+', '-'])?;
        let hours = number(&mut rest, 2).filter(|hours| *hours <= 24)?;
        rest = after(rest, ':')?;
        let minutes = number(&mut rest, 2).filter(|minutes| *minutes < 60 && rest.is_empty())?;
        sign * i32::try_from(hours * 3600 + minutes * 60).ok()?
    };
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
    let local = date.and_hms_nano_opt(hour, minute, second, nanoseconds)?;
    in_range(local.and_local_timezone(FixedOffset::east_opt(offset)?).single()?)
}

fn in_range(time: DateTime<FixedOffset>) -> Option<Value> {
    RANGE.contains(&time.timestamp()).then_some(Value::Timestamp(time))
}

/// Returns a timestamp in Go's format `RFC3339Nano`, in its own time zone.
pub(super) fn show_timestamp(time: &DateTime<FixedOffset>) -> String {
    let shown = time.format("%Y-%m-%dT%H:%M:%S").to_string();
    let fraction = format!(".{:09}", time.timestamp_subsec_nanos());
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    let offset = time.offset().local_minus_utc();
    if offset == 0 {
        return format!("{shown}{fraction}Z");
    }
    let sign = if offset < 0 { '-' } else { '+' };
    let minutes = offset.abs() / 60;
    format!("{shown}{fraction}{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// Reads a duration in Go's notation.
pub(crate) fn duration(text: &str) -> Option<Value> {
    let nanoseconds = i64::try_from(duration::parse(text).ok()?).ok()?;
    Some(Value::Duration(TimeDelta::nanoseconds(nanoseconds)))
}

/// Returns a duration as a number of seconds, which cel-go converts to a double first.
pub(super) fn show_duration(duration: &TimeDelta) -> String {
    #[allow(clippy::cast_precision_loss, reason = "as cel-go has it")]
    let seconds = duration.num_seconds() as f64 + f64::from(duration.subsec_nanos()) / 1e9;
    format!("{seconds}s")
}

/// Returns a timestamp plus or minus a duration.
pub(super) fn shift(time: &DateTime<FixedOffset>, by: &TimeDelta, backwards: bool) -> Evaluated {
    let shifted = if backwards { time.checked_sub_signed(*by) } else { time.checked_add_signed(*by) };
    shifted.and_then(in_range).ok_or_else(|| Failure::error("timestamp overflow"))
}

/// Returns a duration, which has at most as many nanoseconds as an integer has.
pub(super) fn checked_duration(duration: Option<TimeDelta>) -> Evaluated {
    let duration = duration.filter(|duration| duration.num_nanoseconds().is_some());
    duration.map(Value::Duration).ok_or_else(|| Failure::error("integer overflow"))
}

/// Returns a part of a timestamp, in UTC unless another time zone is given. `None` if the method has another meaning.
pub(super) fn part(method: &str, values: &[Value]) -> Option<Evaluated> {
    let (time, zone) = match values {
        [Value::Timestamp(time)] => (time, "UTC"),
        [Value::Timestamp(time), Value::String(zone)] => (time, zone.as_str()),
        _ => return None,
    };
    let part: fn(&Zoned) -> i64 = match method {
        "getFullYear" => |time| time.year().into(),
        "getMonth" => |time| i64::from(time.month()) - 1,
        "getDate" => |time| time.day().into(),
        "getDayOfMonth" => |time| i64::from(time.day()) - 1,
        "getDayOfWeek" => |time| time.weekday().to_sunday_zero_offset().into(),
        "getDayOfYear" => |time| i64::from(time.day_of_year()) - 1,
        "getHours" => |time| time.hour().into(),
        "getMinutes" => |time| time.minute().into(),
        "getSeconds" => |time| time.second().into(),
        "getMilliseconds" => |time| time.millisecond().into(),
        _ => return None,
    };
    let nanoseconds = i32::try_from(time.timestamp_subsec_nanos()).ok()?;
    let time = Timestamp::new(time.timestamp(), nanoseconds).ok()?;
    Some(match time_zone(zone) {
        Some(zone) => Ok(part(&time.to_zoned(zone)).into()),
        None => Err(Failure::error(format!("unknown time zone {zone}"))),
    })
}

/// Returns the time zone of a name, or of an offset such as `+02:00`.
fn time_zone(text: &str) -> Option<TimeZone> {
    let Some((hours, minutes)) = text.split_once(':') else {
        // As Go has them.
        return if matches!(text, "" | "UTC") { Some(TimeZone::UTC) } else { TimeZone::get(text).ok() };
    };
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    let whole = hours.checked_mul(60)?;
    let minutes = if hours < 0 { whole.checked_sub(minutes)? } else { whole.checked_add(minutes)? };
    Some(TimeZone::fixed(Offset::from_seconds(minutes.checked_mul(60)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_read_as_by_go() {
        for (text, expect) in [
            ("2020-01-01T00:00:00Z", Some("2020-01-01T00:00:00Z")),
            ("2020-01-01T1:00:00,50+05:30", Some("2020-01-01T01:00:00.5+05:30")),
            ("2020-02-29T23:59:59.123456789123-01:00", Some("2020-02-29T23:59:59.123456789-01:00")),
            ("2020-01-01 00:00:00Z", None),
            ("2020-01-01t00:00:00Z", None),
            ("2020-01-01T00:00:00", None),
            ("2020-01-01T00:00:60Z", None),
            ("2020-01-01T00:00:00.Z", None),
            ("2021-02-29T00:00:00Z", None),
            ("0000-01-01T00:00:00Z", None),
            ("2020-01-01T00:00:00+0530", None),
            ("é", None),
        ] {
            let shown = match timestamp(text) {
                Some(Value::Timestamp(time)) => Some(show_timestamp(&time)),
                _ => None,
            };
            assert_eq!(shown.as_deref(), expect, "{text}");
        }
    }
}
