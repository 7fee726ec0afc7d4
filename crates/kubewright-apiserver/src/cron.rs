//! Schedules in the format of cron, as `batch/v1` CronJobs have them
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#schedule-syntax>).

use jiff::{Timestamp, ToSpan, Zoned, civil, tz::TimeZone};
use kubewright_apimachinery::duration;

/// The number of years that are searched for the next time.
const YEARS: i16 = 5;
const NANOSECONDS: i128 = 1_000_000_000;

/// The error of a schedule that consists of a time zone alone.
const BOUNDS: &str = "invalid schedule format: runtime error: slice bounds out of range [:-1]";

/// A parsed schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    rule: Rule,
    zone: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// Minute, hour, day of month, month and day of week.
    Fields([Set; 5]),
    /// An interval in seconds.
    Every(i64),
}

/// The numbers that a field allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set {
    bits: u64,
    /// Whether the field is unrestricted.
    open: bool,
}

impl Set {
    fn contains(self, number: i8) -> bool {
        self.bits >> number & 1 == 1
    }
}

/// One field of a schedule: its bounds, and the names of its numbers.
struct Bounds {
    least: u64,
    most: u64,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds { least: 0, most: 59, names: &[] },
    Bounds { least: 0, most: 23, names: &[] },
    Bounds { least: 1, most: 31, names: &[] },
    Bounds {
        least: 1,
        most: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Bounds { least: 0, most: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

impl Schedule {
    /// Parses five fields, a word such as `@daily`, or `@every` with a duration. A time zone may precede them: `TZ=` or
    /// `CRON_TZ=` with its name.
    ///
    /// # Errors
    /// Why the schedule is malformed, as Kubernetes says it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut rest, mut zone) = (text, None);
        if let Some(named) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            // Kubernetes' parser panics, which its validation reports.
            let (name, after) = named.split_once(' ').ok_or(BOUNDS)?;
            check_zone(name).map_err(|why| format!("provided bad location {name}: {why}"))?;
            (rest, zone) = (after.trim(), Some(name.to_owned()).filter(|name| !name.is_empty()));
        }
        let rule = if rest.starts_with('@') { descriptor(rest)? } else { Rule::Fields(fields(rest)?) };
        Ok(Self { rule, zone })
    }

    /// Returns the name of the time zone that the schedule contains.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// Returns the first time after `after` whose local time in `zone` matches; `None` if no time within five years
    /// does. Local times that are skipped when daylight saving begins don't occur, and those that are repeated when it
    /// ends occur twice. The next time of `@every` is one interval after `after`.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let fields = match &self.rule {
            Rule::Every(seconds) => return Timestamp::from_second(after.as_second().checked_add(*seconds)?).ok(),
            Rule::Fields(fields) => fields,
        };
        let minute = after.as_second().div_euclid(60).checked_add(1)?.checked_mul(60)?;
        let mut time = Timestamp::from_second(minute).ok()?.to_zoned(zone.clone());
        let last = time.year().checked_add(YEARS)?;
        while time.year() <= last {
            if matches(fields, &time) {
                return Some(time.timestamp());
            }
            let next = skip(fields, &time)?;
            // The clock may have been put back.
            time = if next.timestamp() > time.timestamp() { next } else { time.checked_add(1.minute()).ok()? };
        }
        None
    }
}

/// Returns whether the database of time zones has one of this name, in this case. Jiff ignores case, but the time zone
/// that it finds has the name of the database.
pub(crate) fn is_known_zone(name: &str) -> bool {
    matches!(name, "UTC" | "Local") || TimeZone::get(name).is_ok_and(|found| found.iana_name() == Some(name))
}

/// Checks the name of a time zone as Go's `time.LoadLocation` does. The empty name is that of UTC.
fn check_zone(name: &str) -> Result<(), String> {
    if name.contains("..") || name.starts_with(['/', '\\']) {
        return Err("time: invalid location name".into());
    }
    if name.is_empty() || is_known_zone(name) { Ok(()) } else { Err(format!("unknown time zone {name}")) }
}

fn matches(fields: &[Set; 5], time: &Zoned) -> bool {
    fields[0].contains(time.minute()) && fields[1].contains(time.hour()) && is_day(fields, time.date())
}

fn is_day([_, _, day, month, weekday]: &[Set; 5], date: civil::Date) -> bool {
    let day_matches = day.contains(date.day());
    let weekday_matches = weekday.contains(date.weekday().to_sunday_zero_offset());
    // If both are restricted, one of them suffices.
    let both = day.open || weekday.open;
    month.contains(date.month()) && if both { day_matches && weekday_matches } else { day_matches || weekday_matches }
}

/// Returns the next time that may match: the next month, day, hour or minute, whichever is the first to differ.
fn skip(fields: &[Set; 5], time: &Zoned) -> Option<Zoned> {
    let date = time.date();
    let midnight = |date: civil::Date| date.to_zoned(time.time_zone().clone()).ok();
    if !fields[3].contains(date.month()) {
        midnight(date.last_of_month().tomorrow().ok()?)
    } else if !is_day(fields, date) {
        midnight(date.tomorrow().ok()?)
    } else if !fields[1].contains(time.hour()) {
        time.checked_add((60 - i64::from(time.minute())).minutes()).ok()
    } else {
        time.checked_add(1.minute()).ok()
    }
}

fn fields(text: &str) -> Result<[Set; 5], String> {
    let texts: Vec<_> = text.split_whitespace().collect();
    let Ok(texts) = <[&str; 5]>::try_from(texts.as_slice()) else {
        let (number, list) = (texts.len(), texts.join(" "));
        return Err(format!("expected exactly {} fields, found {number}: [{list}]", FIELDS.len()));
    };
    let mut fields = [Set::default(); 5];
    for ((text, bounds), field) in texts.iter().zip(&FIELDS).zip(&mut fields) {
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let part = range(part, bounds)?;
            *field = Set { bits: field.bits | part.bits, open: field.open || part.open };
        }
    }
    Ok(fields)
}

fn descriptor(text: &str) -> Result<Rule, String> {
    let words = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(duration) = text.strip_prefix("@every ") else {
                return Err(format!("unrecognized descriptor: {text}"));
            };
            let nanoseconds =
                duration::parse(duration).map_err(|why| format!("failed to parse duration {text}: {why}"))?;
            // Shorter intervals are rounded up to a second, the others down.
            let seconds = nanoseconds.div_euclid(NANOSECONDS).max(1);
            return Ok(Rule::Every(i64::try_from(seconds).unwrap_or(i64::MAX)));
        }
    };
    fields(words).map(Rule::Fields)
}

fn range(text: &str, bounds: &Bounds) -> Result<Set, String> {
    let parts: Vec<_> = text.split('/').collect();
    let limits: Vec<_> = parts[0].split('-').collect();
    let mut open = false;
    let (start, mut end) = match limits[..] {
        ["*" | "?", ..] => {
            open = true;
            (bounds.least, bounds.most)
        }
        [one] => {
            let number = number_or_name(one, bounds)?;
            (number, number)
        }
        [first, last] => (number_or_name(first, bounds)?, number_or_name(last, bounds)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            if limits.len() == 1 {
                end = bounds.most;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    let Bounds { least, most, .. } = bounds;
    if start < *least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {text}"));
    }
    if end > *most {
        return Err(format!("end of range ({end}) above maximum ({most}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let numbers = (start..=end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    Ok(Set { bits: numbers.fold(0, |bits, number| bits | 1 << number), open: open && step == 1 })
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(index) => Ok(bounds.least + u64::try_from(index).unwrap_or_default()),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let failed = |why: &str| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}");
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed("invalid syntax"));
    }
    let number: i64 = text.parse().map_err(|_| failed("value out of range"))?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn next(schedule: &str, zone: &str, after: &str) -> Option<String> {
        let zone = TimeZone::get(zone).expect("a zone");
        let schedule = Schedule::parse(schedule).expect("a schedule");
        schedule.next(time(after), &zone).map(|time| time.to_string())
    }

    #[test]
    fn malformed_schedules_are_explained() {
        for (schedule, why) in [
            ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("CRON_TZ=X * * * * *", "provided bad location X: unknown time zone X"),
            ("TZ=../x * * * * *", "provided bad location ../x: time: invalid location name"),
            ("TZ=X", BOUNDS),
            ("TZ= * * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ] {
            assert_eq!(Schedule::parse(schedule), Err(why.into()), "{schedule}");
        }
    }

    #[test]
    fn the_next_time_matches() {
        let check = |schedule: &str, expect: &str| {
            // A Wednesday.
            assert_eq!(next(schedule, "UTC", "2023-07-12T10:02:30Z").as_deref(), Some(expect), "{schedule}");
        };
        check("* * * * *", "2023-07-12T10:03:00Z");
        check("*/5 * * * *", "2023-07-12T10:05:00Z");
        check("2 10 * * *", "2023-07-13T10:02:00Z");
        check("0 0 1 * *", "2023-08-01T00:00:00Z");
        check("30 6-16/4 * * 1-5", "2023-07-12T10:30:00Z");
        check("0 0 * * SUN", "2023-07-16T00:00:00Z");
        check("0 0 20 * FRI", "2023-07-14T00:00:00Z");
        check("0 0 */3 * FRI", "2023-07-13T00:00:00Z");
        check("0 0 29 feb *", "2024-02-29T00:00:00Z");
        check("0 0 ? jan,mar ?", "2024-01-01T00:00:00Z");
        check("50/3 * * * *", "2023-07-12T10:50:00Z");
        check("@hourly", "2023-07-12T11:00:00Z");
        check("@weekly", "2023-07-16T00:00:00Z");
        check("@yearly", "2024-01-01T00:00:00Z");
        check("@every 1h30m", "2023-07-12T11:32:30Z");
        check("@every 1.5s", "2023-07-12T10:02:31Z");
        check("@every 1ms", "2023-07-12T10:02:31Z");
        assert_eq!(next("0 0 31 2 *", "UTC", "2023-07-12T10:02:30Z"), None);
    }

    #[test]
    fn skipped_times_do_not_occur_and_repeated_ones_occur_twice() {
        let check = |schedule: &str, after: &str, expect: &str| {
            assert_eq!(next(schedule, "Europe/Berlin", after).as_deref(), Some(expect), "{schedule} {after}");
        };
        check("30 2 * * *", "2023-03-25T12:00:00Z", "2023-03-27T00:30:00Z");
        check("30 2 * * *", "2023-10-28T12:00:00Z", "2023-10-29T00:30:00Z");
        check("30 2 * * *", "2023-10-29T00:30:00Z", "2023-10-29T01:30:00Z");
        check("0 0 * * *", "2023-10-29T00:30:00Z", "2023-10-29T23:00:00Z");
        assert_eq!(Schedule::parse("TZ=Europe/Berlin 0 0 * * *").expect("a schedule").zone(), Some("Europe/Berlin"));
    }
}
