//! Durations in Go's format: `1h30m`, `1.5h`, `300ms`.

/// The units, in nanoseconds.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration into whole seconds, rounded down as in robfig/cron. Returns `None` if it is malformed or exceeds
/// Go's range.
pub(super) fn whole_seconds(text: &str) -> Option<i64> {
    i64::try_from(nanoseconds(text)?.div_euclid(1_000_000_000)).ok()
}

fn nanoseconds(text: &str) -> Option<i128> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let unit = UNITS.iter().find(|(name, _)| *name == &after[..end])?.1;
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total += i128::from(whole) * unit + part(fraction, unit);
        if total > i128::from(i64::MAX) {
            return None;
        }
        rest = &after[end..];
    }
    Some(if negative { -total } else { total })
}

/// Returns the value of the digits after a decimal point. Digits after the fifteenth are ignored.
fn part(fraction: &str, unit: i128) -> i128 {
    let digits = fraction.bytes().take(15);
    let (value, scale) =
        digits.fold((0, 1), |(value, scale), digit| (value * 10 + i128::from(digit - b'0'), scale * 10));
    value * unit / scale
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let check = |text: &str, expect: Option<i64>| assert_eq!(whole_seconds(text), expect, "{text:?}");
        check("1h30m", Some(5400));
        check("1.5h", Some(5400));
        check(".5m", Some(30));
        check("1.m", Some(60));
        check("90s", Some(90));
        check("1500ms", Some(1));
        check("1h1h", Some(7200));
        check("+5m", Some(300));
        check("1000000µs", Some(1));
        check("0", Some(0));
        check("0s", Some(0));
        check("-5m", Some(-300));
        check("2562047h", Some(9_223_369_200));
        check("2562048h", None);
        for wrong in
            ["", "-", "5", "5d", "m", ".", ".s", " 5m", "5m ", "5 m", "1e3s", "5M", "99999999999999999999h", "½h"]
        {
            check(wrong, None);
        }
        check(&format!("0.{}s", "9".repeat(900)), Some(0));
    }
}
