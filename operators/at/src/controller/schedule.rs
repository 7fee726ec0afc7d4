//! The time in `spec.schedule`, in RFC 3339 format (<https://www.rfc-editor.org/rfc/rfc3339#section-5.6>).
//!
//! The parser is as strict as the API server's: it is better to refuse a text that only some tools accept than to run a
//! command at an unintended time.

use jiff::{
    SignedDuration, Timestamp,
    civil::{Date, DateTime, Time},
    tz::Offset,
};
use thiserror::Error;

/// An error in a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ScheduleError {
    /// The schedule is empty.
    #[error("the schedule is empty; write a time such as 2020-01-30T10:02:00Z")]
    Empty,
    /// The schedule doesn't have the format of RFC 3339.
    #[error("{0:?} is not a time of the form 2020-01-30T10:02:00Z or 2020-01-30T11:02:00+01:00")]
    Form(String),
    /// The schedule contains a day, hour or offset that doesn't exist.
    #[error("{0:?} is not a time: {1}")]
    Value(String, String),
}

/// The maximum length of an invalid schedule in an error message.
const QUOTED: usize = 64;

/// Parses a schedule.
///
/// A leap second (`:60`) becomes the following second, since the system clock has no leap seconds and the command must
/// not run early. A time after the last supported one, at the end of the year 9999, becomes that one.
///
/// # Errors
/// [`ScheduleError`], with a message for the author of the schedule.
pub(crate) fn parse(text: &str) -> Result<Timestamp, ScheduleError> {
    if text.trim().is_empty() {
        return Err(ScheduleError::Empty);
    }
    let quoted = || text.chars().take(QUOTED).collect::<String>();
    let fields = fields(text).ok_or_else(|| ScheduleError::Form(quoted()))?;
    instant(&fields).map_err(|reason| ScheduleError::Value(quoted(), reason))
}

/// The fields of the text, not yet checked against the calendar.
struct Fields {
    date: [u16; 3],
    time: [u8; 3],
    nanosecond: i32,
    offset_negative: bool,
    offset: [u8; 2],
}

/// Splits the text into fields; `None` if it doesn't have the format.
fn fields(text: &str) -> Option<Fields> {
    let bytes = text.as_bytes();
    let year = number(bytes.get(..4)?)?;
    let month = number(after(bytes, 4, b"-")?)?;
    let day = number(after(bytes, 7, b"-")?)?;
    let hour = number(after(bytes, 10, b"Tt")?)?;
    let minute = number(after(bytes, 13, b":")?)?;
    let second = number(after(bytes, 16, b":")?)?;
    let (nanosecond, zone) = fraction(bytes.get(19..)?)?;
    let (offset_negative, offset) = match zone {
        b"Z" | b"z" => (false, [0, 0]),
        [sign @ (b'+' | b'-'), rest @ ..] if rest.len() == 5 => {
            let hours = number(&rest[..2])?;
            (*sign == b'-', [u8::try_from(hours).ok()?, u8::try_from(number(after(rest, 2, b":")?)?).ok()?])
        }
        _ => return None,
    };
    let time = [u8::try_from(hour).ok()?, u8::try_from(minute).ok()?, u8::try_from(second).ok()?];
    Some(Fields { date: [year, month, day], time, nanosecond, offset_negative, offset })
}

/// Returns the two bytes after a separator, which must be at `at`.
fn after<'a>(bytes: &'a [u8], at: usize, separators: &[u8]) -> Option<&'a [u8]> {
    bytes.get(at).filter(|byte| separators.contains(byte))?;
    bytes.get(at + 1..at + 3)
}

fn number(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u16::from(digit - b'0')))
}

/// Returns the nanoseconds after an optional decimal point, and the rest. Further digits are dropped.
fn fraction(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let Some(rest) = bytes.strip_prefix(b".") else { return Some((0, bytes)) };
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, zone) = rest.split_at(length);
    let digit = |at: usize| digits.get(at).map_or(0, |digit| i32::from(digit - b'0'));
    (length > 0).then(|| ((0..9).fold(0, |nanosecond, at| nanosecond * 10 + digit(at)), zone))
}

/// Returns the instant of the fields.
fn instant(fields: &Fields) -> Result<Timestamp, String> {
    let [year, month, day] = fields.date.map(|field| i16::try_from(field).unwrap_or(i16::MAX));
    let [hour, minute, second] = fields.time.map(i16::from);
    let [offset_hours, offset_minutes] = fields.offset.map(i32::from);
    if offset_hours > 23 || offset_minutes > 59 {
        return Err("an offset has up to 23 hours and 59 minutes".into());
    }
    // The calendar's error messages name the field and its range.
    let small = |field: i16| i8::try_from(field).unwrap_or(i8::MAX);
    let date = Date::new(year, small(month), small(day)).map_err(|error| error.to_string())?;
    let leap = second == 60;
    let second = if leap { 59 } else { second };
    let time = Time::new(small(hour), small(minute), small(second), fields.nanosecond).map_err(|it| it.to_string())?;
    let sign = if fields.offset_negative { -1 } else { 1 };
    let offset =
        Offset::from_seconds(sign * (offset_hours * 3600 + offset_minutes * 60)).map_err(|it| it.to_string())?;
    // A year has four digits and no sign, so only the upper end can be out of range.
    let instant = offset.to_timestamp(DateTime::from_parts(date, time)).unwrap_or(Timestamp::MAX);
    Ok(if leap { next_second(instant) } else { instant })
}

/// Returns the next second. The fraction of a leap second is dropped.
fn next_second(instant: Timestamp) -> Timestamp {
    let whole = Timestamp::from_second(instant.as_second()).unwrap_or(instant);
    whole.checked_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let expect: Timestamp = expect.parse().unwrap();
        assert_eq!(parse(text), Ok(expect), "{text}");
    }

    #[test]
    fn times() {
        check("2020-01-30T10:02:00Z", "2020-01-30T10:02:00Z");
        check("2020-01-30t10:02:00z", "2020-01-30T10:02:00Z");
        check("2020-01-30T10:02:00.25Z", "2020-01-30T10:02:00.25Z");
        check("2020-01-30T10:02:00.1234567891234Z", "2020-01-30T10:02:00.123456789Z");
        check("2020-02-29T00:00:00Z", "2020-02-29T00:00:00Z");
        check("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z");
        check("9999-12-01T00:00:00Z", "9999-12-01T00:00:00Z");
    }

    #[test]
    fn offsets() {
        check("2020-01-30T11:02:00+01:00", "2020-01-30T10:02:00Z");
        check("2020-01-30T04:32:00-05:30", "2020-01-30T10:02:00Z");
        check("2020-01-30T10:02:00-00:00", "2020-01-30T10:02:00Z");
        check("2020-01-31T09:01:00+23:59", "2020-01-30T09:02:00Z");
    }

    #[test]
    fn a_leap_second_is_the_second_after_it() {
        check("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z");
        check("2017-01-01T00:59:60+01:00", "2017-01-01T00:00:00Z");
        check("2016-12-31T23:59:60.5Z", "2017-01-01T00:00:00Z");
    }

    #[test]
    fn the_end_of_time_is_the_last_time_there_is() {
        assert_eq!(parse("9999-12-31T23:59:59Z"), Ok(Timestamp::MAX));
        assert_eq!(parse("9999-12-31T23:59:60Z"), Ok(Timestamp::MAX));
        assert_eq!(parse("9999-12-31T23:59:59-23:59"), Ok(Timestamp::MAX));
    }

    #[test]
    fn no_times() {
        assert_eq!(parse(""), Err(ScheduleError::Empty));
        assert_eq!(parse("  "), Err(ScheduleError::Empty));
        let forms = [
            "soon",
            "2020-01-30",
            "2020-01-30T10:02Z",
            "2020-01-30 10:02:00Z",
            "2020-01-30T10:02:00",
            "2020-01-30T10:02:00.Z",
            "2020-01-30T10:02:00Z ",
            "2020-01-30T10:02:00+0100",
            "2020-01-30T10:02:00+01:00[Europe/Berlin]",
            "+2020-01-30T10:02:00Z",
            "12020-01-30T10:02:00Z",
            "2020-01-30T10:02:00Zé",
            "２020-01-30T10:02:00Z",
            "1580378520",
        ];
        for text in forms {
            assert!(matches!(parse(text), Err(ScheduleError::Form(_))), "{text}: {:?}", parse(text));
        }
        let values = [
            "2020-13-01T00:00:00Z",
            "2019-02-29T00:00:00Z",
            "2020-01-30T24:00:00Z",
            "2020-01-30T10:61:00Z",
            "2020-01-30T10:02:61Z",
            "2020-01-30T10:02:00+24:00",
            "2020-01-30T10:02:00+01:60",
        ];
        for text in values {
            assert!(matches!(parse(text), Err(ScheduleError::Value(..))), "{text}: {:?}", parse(text));
        }
    }

    #[test]
    fn an_error_repeats_only_the_beginning_of_a_long_text() {
        let error = parse(&"é".repeat(100_000)).unwrap_err().to_string();
        assert!(error.len() < 300, "{}", error.len());
    }
}
