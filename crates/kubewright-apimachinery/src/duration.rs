//! Durations as Go writes them, such as `1h30m`.

/// The nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;
/// The units of durations.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
];

/// Returns the nanoseconds of a duration such as `1h30m`.
///
/// ```
/// use kubewright_apimachinery::duration;
///
/// assert_eq!(duration::parse("1m"), Ok(60_000_000_000));
/// ```
///
/// # Errors
/// Returns the message of Go.
pub fn parse(text: &str) -> Result<i128, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut total = 0_i128;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c| !is_number(c)).unwrap_or(rest.len()));
        if number.matches('.').count() > 1 || !number.bytes().any(|byte| byte.is_ascii_digit()) {
            return Err(invalid());
        }
        let (name, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        if name.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let unit = UNITS.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit);
        let unit = unit.ok_or_else(|| format!("time: unknown unit {name:?} in duration {text:?}"))?;
        let part = scaled(number, unit).and_then(|part| total.checked_add(part));
        total = part.filter(|total| *total <= i64::MAX.into()).ok_or_else(invalid)?;
        rest = after;
    }
    Ok(if text.starts_with('-') { -total } else { total })
}

/// Returns a decimal number times a unit.
fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Later digits are less than a nanosecond of an hour.
    let fraction: String = fraction.chars().take(13).collect();
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    whole.checked_mul(unit)?.checked_add(fraction.parse().unwrap_or(0_i128) * unit / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_by_go() {
        let check = |text: &str, expect: Result<i128, &str>| {
            assert_eq!(parse(text), expect.map_err(str::to_owned), "{text}");
        };
        check("0", Ok(0));
        check("1h30m", Ok(5400 * SECOND));
        check("-1.5ms", Ok(-1_500_000));
        check("1ns.5us", Ok(501));
        check("", Err(r#"time: invalid duration """#));
        check("xx", Err(r#"time: invalid duration "xx""#));
        check("1..5s", Err(r#"time: invalid duration "1..5s""#));
        check("9999999h", Err(r#"time: invalid duration "9999999h""#));
        check("5", Err(r#"time: missing unit in duration "5""#));
        check("5d", Err(r#"time: unknown unit "d" in duration "5d""#));
    }
}
