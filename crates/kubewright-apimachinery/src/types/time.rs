//! `metav1.Time` and `metav1.MicroTime`: RFC 3339 as Go's `time.Parse` reads it, and their canonical form in UTC.

/// The layout of `metav1.Time` in errors.
const TIME: &str = "2006-01-02T15:04:05Z07:00";
/// The layout of `metav1.MicroTime`.
const MICRO_TIME: &str = "2006-01-02T15:04:05.000000Z07:00";

/// The precision of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    /// Whole seconds. A fraction is dropped.
    Seconds,
    /// Microseconds, of which exactly six digits are required.
    Micros,
}

/// The zero time of Go, which is encoded as null.
const ZERO: Civil = Civil { year: 1, month: 1, day: 1, hour: 0, minute: 0, second: 0, micros: 0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Civil {
    year: i64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    micros: u32,
}

/// Returns a time in canonical form, or `None` for the zero time.
///
/// # Errors
/// Returns the error of Go's `time.Parse`, or an error about a year that can't be written with four digits.
pub(super) fn canonical(text: &str, precision: Precision) -> Result<Option<String>, String> {
    // Nearly all times are canonical already.
    if let Some(time) = plain(text, precision) {
        return Ok((time != ZERO).then(|| text.to_owned()));
    }
    let layout = if precision == Precision::Seconds { TIME } else { MICRO_TIME };
    let mut parser = Parser { text, rest: text, layout };
    let (time, offset) = parser.parse(precision)?;
    let time = utc(time, offset);
    if time == ZERO {
        return Ok(None);
    }
    if !(0..=9999).contains(&time.year) {
        return Err(format!("parsing time {text:?}: year outside of range [0,9999] in UTC"));
    }
    let Civil { year, month, day, hour, minute, second, micros } = time;
    let seconds = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    Ok(Some(match precision {
        Precision::Seconds => seconds + "Z",
        Precision::Micros => format!("{seconds}.{micros:06}Z"),
    }))
}

/// Returns whether a text is a time in canonical form.
pub(super) fn is_canonical(text: &str, precision: Precision) -> bool {
    plain(text, precision).is_some_and(|time| time != ZERO)
}

/// Reads a time in canonical form.
fn plain(text: &str, precision: Precision) -> Option<Civil> {
    let bytes = text.as_bytes();
    let (length, micros) = match precision {
        Precision::Seconds => ("2006-01-02T15:04:05Z".len(), 0),
        Precision::Micros => {
            let micros = bytes.get(20..26)?;
            (MICRO_TIME.len() - "07:00".len(), digits(micros)?)
        }
    };
    let is_separated = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (length - 1, b'Z')];
    if bytes.len() != length || !is_separated.iter().all(|(at, byte)| bytes[*at] == *byte) {
        return None;
    }
    if precision == Precision::Micros && bytes[19] != b'.' {
        return None;
    }
    let two = |at: usize| digits(&bytes[at..at + 2]).and_then(|number| u8::try_from(number).ok());
    let time = Civil {
        year: i64::from(digits(&bytes[..4])?),
        month: two(5)?,
        day: two(8)?,
        hour: two(11)?,
        minute: two(14)?,
        second: two(17)?,
        micros,
    };
    let fits = (1..=12).contains(&time.month)
        && (1..=days_in(time.year, time.month)).contains(&time.day)
        && time.hour < 24
        && time.minute < 60
        && time.second < 60;
    fits.then_some(time)
}

fn digits(bytes: &[u8]) -> Option<u32> {
    bytes.iter().try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0')))
}

fn days_in(year: i64, month: u8) -> u8 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Subtracts an offset of less than two days, in seconds.
fn utc(mut time: Civil, offset: i64) -> Civil {
    const DAY: i64 = 86_400;
    let seconds = i64::from(time.hour) * 3600 + i64::from(time.minute) * 60 + i64::from(time.second) - offset;
    for _ in 0..seconds.div_euclid(DAY).abs() {
        step(&mut time, seconds > 0);
    }
    let seconds = seconds.rem_euclid(DAY);
    let part = |seconds: i64| u8::try_from(seconds).unwrap_or_default();
    (time.hour, time.minute, time.second) = (part(seconds / 3600), part(seconds / 60 % 60), part(seconds % 60));
    time
}

/// Moves a date by a day.
fn step(time: &mut Civil, forward: bool) {
    if forward {
        time.day += 1;
        if time.day > days_in(time.year, time.month) {
            time.day = 1;
            time.month += 1;
        }
        if time.month > 12 {
            (time.month, time.year) = (1, time.year + 1);
        }
        return;
    }
    time.day -= 1;
    if time.day == 0 {
        time.month -= 1;
        if time.month == 0 {
            (time.month, time.year) = (12, time.year - 1);
        }
        time.day = days_in(time.year, time.month);
    }
}

/// Go's parser, step by step, since its errors name the step that failed.
struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

/// The error of one element.
enum Wrong {
    /// The element can't be read.
    Bad,
    /// A number is out of range.
    Range(&'static str),
}

impl<'a> Parser<'a> {
    fn parse(&mut self, precision: Precision) -> Result<(Civil, i64), String> {
        let year = self.element("2006", |rest| {
            let (year, rest) = rest.split_at_checked(4).ok_or(Wrong::Bad)?;
            Ok((i64::from(digits(year.as_bytes()).ok_or(Wrong::Bad)?), rest))
        })?;
        self.prefix("-")?;
        let month = self.element("01", |rest| within(number(rest, 2)?, 1..=12, "month"))?;
        self.prefix("-")?;
        let day = self.element("02", |rest| number(rest, 2))?;
        self.prefix("T")?;
        let hour = self.element("15", |rest| within(number(rest, 1)?, 0..=23, "hour"))?;
        self.prefix(":")?;
        let minute = self.element("04", |rest| within(number(rest, 2)?, 0..=59, "minute"))?;
        self.prefix(":")?;
        let second = self.element("05", |rest| within(number(rest, 2)?, 0..=59, "second"))?;
        let micros = match precision {
            Precision::Seconds => {
                self.skip_fraction();
                0
            }
            Precision::Micros => self.element(".000000", |rest| {
                let (fraction, rest) = rest.split_at_checked(7).ok_or(Wrong::Bad)?;
                let fraction = fraction.strip_prefix(['.', ',']).ok_or(Wrong::Bad)?;
                Ok((digits(fraction.as_bytes()).ok_or(Wrong::Bad)?, rest))
            })?,
        };
        let offset = self.element("Z07:00", offset)?;
        if !self.rest.is_empty() {
            return Err(self.message(&format!(": extra text: {:?}", self.rest)));
        }
        if !(1..=days_in(year, month)).contains(&day) {
            return Err(self.message(": day out of range"));
        }
        Ok((Civil { year, month, day, hour, minute, second, micros }, offset))
    }

    fn element<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'a str) -> Result<(T, &'a str), Wrong>,
    ) -> Result<T, String> {
        match read(self.rest) {
            Ok((value, rest)) => {
                self.rest = rest;
                Ok(value)
            }
            Err(Wrong::Bad) => Err(self.cannot_parse(name)),
            Err(Wrong::Range(what)) => Err(self.message(&format!(": {what} out of range"))),
        }
    }

    fn prefix(&mut self, prefix: &str) -> Result<(), String> {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => Err(self.cannot_parse(prefix)),
        }
    }

    /// Skips a fraction of a second, which the layout doesn't have but Go accepts.
    fn skip_fraction(&mut self) {
        if let Some(rest) = self.rest.strip_prefix(['.', ','])
            && rest.starts_with(|first: char| first.is_ascii_digit())
        {
            self.rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        }
    }

    fn cannot_parse(&self, element: &str) -> String {
        let Self { text, rest, layout } = self;
        format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}")
    }

    fn message(&self, what: &str) -> String {
        format!("parsing time {:?}{what}", self.text)
    }
}

/// Reads a number of two digits or, if `least` is 1, of one.
fn number(rest: &str, least: usize) -> Result<(u8, &str), Wrong> {
    let length = rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
    if length < least {
        return Err(Wrong::Bad);
    }
    let (number, rest) = rest.split_at(length);
    let number = digits(number.as_bytes()).and_then(|number| u8::try_from(number).ok()).ok_or(Wrong::Bad)?;
    Ok((number, rest))
}

fn within<'a>(
    (number, rest): (u8, &'a str),
    range: std::ops::RangeInclusive<u8>,
    what: &'static str,
) -> Result<(u8, &'a str), Wrong> {
    if range.contains(&number) { Ok((number, rest)) } else { Err(Wrong::Range(what)) }
}

/// Reads a zone: `Z`, or an offset such as `+02:00`, and returns its seconds. Go accepts up to 24 hours and 60 minutes.
fn offset(rest: &str) -> Result<(i64, &str), Wrong> {
    if let Some(rest) = rest.strip_prefix('Z') {
        return Ok((0, rest));
    }
    let (zone, rest) = rest.split_at_checked(6).ok_or(Wrong::Bad)?;
    let [sign, hours, minutes] = [zone.get(..1), zone.get(1..3), zone.get(4..6)];
    let part = |text: Option<&str>| text.and_then(|text| digits(text.as_bytes())).ok_or(Wrong::Bad);
    if zone.get(3..4) != Some(":") {
        return Err(Wrong::Bad);
    }
    let (hours, minutes) = (part(hours)?, part(minutes)?);
    if hours > 24 {
        return Err(Wrong::Range("time zone offset hour"));
    }
    if minutes > 60 {
        return Err(Wrong::Range("time zone offset minute"));
    }
    let seconds = i64::from(hours * 3600 + minutes * 60);
    match sign {
        Some("+") => Ok((seconds, rest)),
        Some("-") => Ok((-seconds, rest)),
        _ => Err(Wrong::Bad),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(canonical(text, Precision::Seconds), Ok(Some(expect.to_owned())), "{text}");
    }

    #[track_caller]
    fn refuse(text: &str, precision: Precision, expect: &str) {
        assert_eq!(canonical(text, precision), Err(expect.to_owned()));
    }

    #[test]
    fn times_lose_their_fraction_and_zone() {
        check("2026-01-31T23:59:59Z", "2026-01-31T23:59:59Z");
        check("2026-01-31T23:59:59.999999999Z", "2026-01-31T23:59:59Z");
        check("2026-01-31T23:59:59,5Z", "2026-01-31T23:59:59Z");
        check("2026-01-31T23:59:59+00:00", "2026-01-31T23:59:59Z");
        check("2026-12-31T23:30:00-01:00", "2027-01-01T00:30:00Z");
        check("2024-03-01T00:30:00+01:00", "2024-02-29T23:30:00Z");
        check("2026-01-01T00:00:00+24:60", "2025-12-30T23:00:00Z");
        check("2026-01-31T1:00:00Z", "2026-01-31T01:00:00Z");
        assert_eq!(canonical("0001-01-01T00:00:00Z", Precision::Seconds), Ok(None));
        assert_eq!(canonical("0001-01-01T01:00:00+01:00", Precision::Seconds), Ok(None));
    }

    #[test]
    fn micro_times_have_six_digits() {
        let check = |text: &str, expect: &str| {
            assert_eq!(canonical(text, Precision::Micros), Ok(Some(expect.to_owned())), "{text}");
        };
        check("2026-01-31T23:59:59.123456Z", "2026-01-31T23:59:59.123456Z");
        check("2026-01-31T23:59:59.000000+02:00", "2026-01-31T21:59:59.000000Z");
        let layout = r#""2006-01-02T15:04:05.000000Z07:00""#;
        for (text, rest, element) in [
            ("2026-01-31T23:59:59Z", "Z", ".000000"),
            ("2026-01-31T23:59:59.5+02:00", ".5+02:00", ".000000"),
            ("2026-01-31T23:59:59.123456789Z", "789Z", "Z07:00"),
        ] {
            let expect = format!("parsing time {text:?} as {layout}: cannot parse {rest:?} as {element:?}");
            refuse(text, Precision::Micros, &expect);
        }
    }

    #[test]
    fn bad_times_have_gos_errors() {
        let layout = r#""2006-01-02T15:04:05Z07:00""#;
        for (text, rest, element) in [
            ("bad", "bad", "2006"),
            ("", "", "2006"),
            ("20x6-01-31T23:59:59Z", "20x6-01-31T23:59:59Z", "2006"),
            ("2026/01/31", "/01/31", "-"),
            ("2026-1-31T23:59:59Z", "1-31T23:59:59Z", "01"),
            ("2026-01-31", "", "T"),
            ("2026-01-31 23:59:59Z", " 23:59:59Z", "T"),
            ("2026-01-31T23:59", "", ":"),
            ("2026-01-31T23:59:59", "", "Z07:00"),
            ("2026-01-31T23:59:59.Z", ".Z", "Z07:00"),
            ("2026-01-31T23:59:59+0100", "+0100", "Z07:00"),
            ("2026-01-31T23:59:59ä01:0", "ä01:0", "Z07:00"),
            ("99999-01-31T23:59:59Z", "9-01-31T23:59:59Z", "-"),
        ] {
            let expect = format!("parsing time {text:?} as {layout}: cannot parse {rest:?} as {element:?}");
            refuse(text, Precision::Seconds, &expect);
        }
        for (text, why) in [
            ("2026-13-31T23:59:59Z", "month out of range"),
            ("2026-02-30T23:59:59Z", "day out of range"),
            ("2026-01-31T24:59:59Z", "hour out of range"),
            ("2026-01-31T23:60:59Z", "minute out of range"),
            ("2026-01-31T23:59:60Z", "second out of range"),
            ("2026-01-31T23:59:59Zx", "extra text: \"x\""),
            ("2026-01-31T23:59:59+25:00", "time zone offset hour out of range"),
            ("9999-12-31T23:59:59-01:00", "year outside of range [0,9999] in UTC"),
            ("0000-01-01T00:00:00+01:00", "year outside of range [0,9999] in UTC"),
        ] {
            refuse(text, Precision::Seconds, &format!("parsing time {text:?}: {why}"));
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_text_causes_no_panic(text in "\\PC{0,30}|[0-9TZ:.+-]{0,30}|2026-0[0-9]-[0-3][0-9]T[0-9:.+-]{0,16}Z?") {
            for precision in [Precision::Seconds, Precision::Micros] {
                if let Ok(Some(time)) = canonical(&text, precision) {
                    proptest::prop_assert_eq!(canonical(&time, precision), Ok(Some(time.clone())));
                }
            }
        }
    }
}
