//! `resource.Quantity`: parsing and the canonical form, as Go's `ParseQuantity` and `Quantity.String` define them
//! (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>).
//!
//! The digits are never expanded by their exponent, so the work is proportional to the length of the text.

use std::borrow::Cow;

/// The error about a text that isn't a number with a suffix.
pub(super) const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// The smallest exponent: nano.
const NANO: i64 = -9;
/// The smallest exponent of an amount of a resource.
const MILLI: i64 = -3;
/// The greatest exponent that has a decimal suffix: exa.
const EXA: i64 = 18;
/// The number of decimal digits that always fit 64 bits.
const DIGITS: i64 = 18;
/// The number of nanos in one.
const NANOS: u128 = 1_000_000_000;
/// The greatest number with a binary suffix.
const MAX: u128 = i64::MAX as u128;

const DECIMAL: [(&str, i64); 10] =
    [("", 0), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("u", -6), ("n", -9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The notation of the exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    /// `k`, `M`, `m`, …
    Decimal,
    /// `e3`
    Exponent,
    /// `Ki`, `Mi`, …
    Binary,
}

/// A quantity as it is written.
struct Parts<'a> {
    negative: bool,
    /// The digits before the point, without leading zeros.
    whole: &'a str,
    /// The digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

/// Returns the canonical form of a quantity.
///
/// # Errors
/// Returns Go's error.
pub(super) fn canonical(text: &str) -> Result<Cow<'_, str>, &'static str> {
    let text = text.trim();
    if text == "0" {
        return Ok(Cow::Borrowed(text));
    }
    let Parts { negative, whole, fraction, suffix } = split(text)?;
    let (notation, exponent) = interpret(suffix)?;
    if whole.bytes().chain(fraction.bytes()).all(|digit| digit == b'0') {
        return Ok(Cow::Borrowed("0"));
    }
    // Go prefers the text to the canonical form where it takes it for canonical.
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let magnitude = match notation {
        Notation::Binary => {
            let fits = 15 - length(whole) - exponent * 3 / 10 > 0;
            if fits && fraction.is_empty() && is_odd_in_binary(whole, exponent) {
                return Ok(Cow::Borrowed(text));
            }
            binary(whole, fraction, exponent)
        }
        Notation::Decimal | Notation::Exponent => {
            let scale = exponent - length(fraction);
            // Go counts the zero before the point of a fraction.
            let digits = length(whole).max(1) + length(fraction);
            let is_reused = digits <= DIGITS && scale >= NANO && scale % 3 == 0 && {
                let shifted = || whole.bytes().chain(fraction.bytes());
                !whole.is_empty() && !shifted().rev().take(3).eq(*b"000")
            };
            if is_reused {
                return Ok(Cow::Borrowed(text));
            }
            let digits = [whole, fraction].concat();
            decimal(digits.trim_start_matches('0').to_owned(), (scale, NANO), notation)
        }
    };
    Ok(Cow::Owned(if negative { format!("-{magnitude}") } else { magnitude }))
}

/// Returns whether Go takes a binary quantity without a fraction for canonical: its digits aren't a multiple of 8.
fn is_odd_in_binary(whole: &str, exponent: i64) -> bool {
    exponent % 10 == 0 && whole.parse().is_ok_and(|number: i64| number & 7 != 0 && number >= 1)
}

/// Splits a quantity.
fn split(text: &str) -> Result<Parts<'_>, &'static str> {
    if text.is_empty() {
        return Err(FORMAT);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |text: &str| text.len() - text.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
    let (whole, rest) = unsigned.split_at(digits(unsigned));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = suffix.trim_start_matches(|letter: char| "eEinumkKMGTP".contains(letter));
    let exponent = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if digits(exponent) < exponent.len() {
        return Err(FORMAT);
    }
    Ok(Parts { negative: text.starts_with('-'), whole: whole.trim_start_matches('0'), fraction, suffix })
}

/// Returns the notation and the exponent of a suffix: of 2 for a binary one, otherwise of 10.
fn interpret(suffix: &str) -> Result<(Notation, i64), &'static str> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok((Notation::Decimal, *exponent));
    }
    if let Some(at) = BINARY.iter().position(|name| *name == suffix) {
        return Ok((Notation::Binary, 10 * (i64::try_from(at).unwrap_or_default() + 1)));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).and_then(|digits| digits.parse::<i32>().ok());
    exponent.map(|exponent| (Notation::Exponent, i64::from(exponent))).ok_or(SUFFIX)
}

/// Returns a quantity in canonical form rounded to thousandths, away from zero, unless it has no smaller part.
pub(super) fn rounded_to_milli(canonical: &str) -> Option<String> {
    let Parts { negative, whole, fraction, suffix } = split(canonical).ok()?;
    let (notation, exponent) = interpret(suffix).ok()?;
    let scale = exponent - i64::try_from(fraction.len()).ok()?;
    if notation == Notation::Binary || scale >= MILLI {
        return None;
    }
    let digits = [whole, fraction].concat();
    let rounded = decimal(digits.trim_start_matches('0').to_owned(), (scale, MILLI), notation);
    Some(if negative { format!("-{rounded}") } else { rounded })
}

/// Returns the canonical form of `digits` times ten to the power of `scale`, of which those below `least` are rounded
/// up. The digits have no leading zeros.
fn decimal(mut digits: String, (mut scale, least): (i64, i64), notation: Notation) -> String {
    if scale < least {
        let dropped = usize::try_from(least - scale).unwrap_or(usize::MAX);
        let rest = digits.split_off(digits.len().saturating_sub(dropped));
        if rest.bytes().any(|digit| digit != b'0') {
            increment(&mut digits);
        }
        scale = least;
    }
    let kept = digits.trim_end_matches('0').len();
    scale += i64::try_from(digits.len() - kept).unwrap_or_default();
    digits.truncate(kept);
    // A quantity beyond exa has no greater suffix.
    let wanted = if notation == Notation::Decimal { scale.min(EXA) } else { scale };
    let wanted = wanted - wanted.rem_euclid(3);
    digits.extend(std::iter::repeat_n('0', usize::try_from(scale - wanted).unwrap_or_default()));
    match notation {
        Notation::Decimal => {
            let suffix = DECIMAL.iter().find(|(_, exponent)| *exponent == wanted);
            digits + suffix.map_or("", |(name, _)| name)
        }
        _ if wanted == 0 => digits,
        _ => format!("{digits}e{wanted}"),
    }
}

/// Adds one to a decimal number.
fn increment(digits: &mut String) {
    let nines = digits.len() - digits.trim_end_matches('9').len();
    digits.truncate(digits.len() - nines);
    let last = digits.pop().and_then(|digit| digit.to_digit(10)).unwrap_or_default();
    digits.push(char::from_digit(last + 1, 10).unwrap_or('9'));
    digits.extend(std::iter::repeat_n('0', nines));
}

/// Returns the canonical form of a number times two to the power of `exponent`.
fn binary(whole: &str, fraction: &str, exponent: i64) -> String {
    let factor = 1_u128 << exponent;
    let capped = || MAX.to_string();
    // A number of 20 digits or more is above the maximum.
    let Ok(whole) = (if whole.is_empty() { Ok(0) } else { whole.parse::<u64>() }) else { return capped() };
    let whole = u128::from(whole) * factor;
    if whole > MAX {
        return capped();
    }
    let nanos = whole * NANOS + nanos_of(fraction, factor);
    if nanos > MAX * NANOS {
        return capped();
    }
    if nanos < 1024 * NANOS || !nanos.is_multiple_of(NANOS) {
        return decimal(nanos.to_string(), (NANO, NANO), Notation::Decimal);
    }
    let (mut number, mut suffix) = (nanos / NANOS, "");
    for name in BINARY {
        if !number.is_multiple_of(1024) {
            break;
        }
        (number, suffix) = (number / 1024, name);
    }
    format!("{number}{suffix}")
}

/// Returns a fraction times `factor` in nanos, rounded up.
fn nanos_of(fraction: &str, factor: u128) -> u128 {
    let factor = factor * NANOS;
    let (mut product, mut exact) = (0, true);
    for digit in fraction.bytes().rev() {
        let sum = u128::from(digit - b'0') * factor + product;
        product = sum / 10;
        exact &= sum.is_multiple_of(10);
    }
    product + u128::from(!exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(canonical(text).as_deref(), Ok(expect), "{text}");
    }

    #[test]
    fn decimal_quantities() {
        for (text, expect) in [
            ("0", "0"),
            ("0m", "0"),
            ("0.000", "0"),
            ("-0", "0"),
            (".", "0"),
            ("+", "0"),
            ("1", "1"),
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1.5", "1500m"),
            ("1.50", "1500m"),
            ("100", "100"),
            ("1000", "1k"),
            ("1000k", "1M"),
            ("1500k", "1500k"),
            ("2147483648", "2147483648"),
            ("-100m", "-100m"),
            ("-1000m", "-1"),
            (" 2 ", "2"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("1e4", "10e3"),
            ("10e3", "10e3"),
            ("1000e3", "1e6"),
            ("1e-3", "1e-3"),
            ("2E-3", "2E-3"),
            ("1E", "1E"),
            ("0.1n", "1n"),
            ("1.0000000001", "1000000001n"),
            ("0.9999999999", "1"),
            ("9.9999999999", "10"),
            ("-0.0000000001", "-1n"),
            ("12345678901234567890", "12345678901234567890"),
            ("123456789012345678900", "123456789012345678900"),
            ("1000000000000000000000", "1000E"),
            ("1e1000000000", "10e999999999"),
            // Where Go takes the text for canonical, it stays.
            ("+5", "+5"),
            ("05", "05"),
            ("1.500", "1.500"),
        ] {
            check(text, expect);
        }
    }

    #[test]
    fn amounts_of_resources_are_rounded_to_thousandths() {
        for (amount, expect) in [
            ("5n", Some("1m")),
            ("1000001u", Some("1001m")),
            ("-1500u", Some("-2m")),
            ("999999999n", Some("1")),
            ("1e-6", Some("1e-3")),
            ("100m", None),
            ("1e-3", None),
            ("3Gi", None),
        ] {
            assert_eq!(rounded_to_milli(amount).as_deref(), expect, "{amount}");
        }
    }

    #[test]
    fn binary_quantities() {
        for (text, expect) in [
            ("1Ki", "1Ki"),
            ("1024Ki", "1Mi"),
            ("1024Mi", "1Gi"),
            ("8Gi", "8Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1.5Ki", "1536"),
            ("0.1Mi", "104857600m"),
            ("1.1Mi", "1153433600m"),
            ("0.00000000001Ki", "11n"),
            ("-1.5Gi", "-1536Mi"),
            ("7Ei", "7Ei"),
            ("8Ei", "9223372036854775807"),
            ("100000000000000000000Ki", "9223372036854775807"),
        ] {
            check(text, expect);
        }
    }

    #[test]
    fn malformed_quantities() {
        for text in ["", " ", "lots", "true", "1.2.3", "1x", "1 2", "1e3.5", "ä"] {
            assert_eq!(canonical(text), Err(FORMAT), "{text}");
        }
        for text in ["1e", "1Kii", "1ki", "1i", "e", "1e99999999999", "1mm", "1-", "--1"] {
            assert_eq!(canonical(text), Err(SUFFIX), "{text}");
        }
    }

    #[test]
    fn long_quantities_take_linear_work() {
        let ones = "1".repeat(1_000_000);
        check(&ones, &ones);
        check(&format!("0.{ones}"), "111111112n");
        check(&format!("0.{ones}Gi"), "119304647111111112n");
        check(&format!("{ones}Ki"), "9223372036854775807");
        check(&format!("1{}", "0".repeat(30)), "1000000000000E");
        check(&format!("{ones}e2147483000"), &format!("{ones}00e2147482998"));
    }

    proptest::proptest! {
        #[test]
        fn the_canonical_form_is_stable(text in "[+-]?[0-9]{0,25}\\.?[0-9]{0,25}(|m|k|M|E|Ki|Mi|Gi|Ei|e[0-9]{1,3}|E-[0-9]{1,2}|\\PC{0,3})") {
            if let Ok(first) = canonical(&text) {
                proptest::prop_assert_eq!(canonical(&first), Ok(first.clone()), "{}", text);
            }
        }
    }
}
