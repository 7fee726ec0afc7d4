//! The parts of timestamps in a time zone (cel-spec, *Timestamps*). `kube-cel` ignores the zone.

use jiff::{
    Timestamp, Zoned,
    tz::{Offset, TimeZone},
};
use kube_cel::cel::Value;

use super::evaluate::{Evaluated, Failure};

/// Returns a part of a timestamp in a time zone. `None` if the method has another meaning.
pub(super) fn part(method: &str, values: &[Value]) -> Option<Evaluated> {
    let [Value::Timestamp(time), Value::String(zone)] = values else { return None };
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
    let minutes = if hours < 0 { hours * 60 - minutes } else { hours * 60 + minutes };
    Some(TimeZone::fixed(Offset::from_seconds(minutes.checked_mul(60)?).ok()?))
}
