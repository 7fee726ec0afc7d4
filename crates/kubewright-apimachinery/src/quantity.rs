//! Amounts of resources (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>).

use serde_json::Value;

/// The number of decimal places that are kept. Further ones are rounded up, away from zero.
const SCALE: u32 = 9;
const ONE: i128 = 10_i128.pow(SCALE);
/// Larger amounts are reduced to this one.
const MAX: i128 = i64::MAX as i128 * ONE;

/// An amount of a resource, in billionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

impl Quantity {
    /// Reads a value of an object. An absent or malformed one counts as zero.
    pub fn read(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::parse(text).unwrap_or_default(),
            Value::Number(number) => Self::parse(&number.to_string()).unwrap_or_default(),
            _ => Self::default(),
        }
    }

    /// Parses an amount such as `1.5Gi` or `100m`. Returns `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, digits) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
        let (number, suffix) = digits.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let (multiplier, exponent) = scale_of(suffix)?;
        Some(Self::of_parts(negative, [whole, fraction], multiplier, exponent))
    }

    /// Creates an amount from the digits before and after the point, a factor (a power of 2, without an exponent) or 1,
    /// and a decimal exponent.
    pub(crate) fn of_parts(negative: bool, [whole, fraction]: [&str; 2], multiplier: i128, exponent: i32) -> Self {
        let amount = decimal(whole, fraction, multiplier, exponent.clamp(-100, 100));
        Self(if negative { -amount } else { amount })
    }

    /// Creates an amount of billionths.
    pub fn from_billionths(amount: i128) -> Self {
        Self(amount)
    }

    /// Returns the sum of both amounts.
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference of both amounts.
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns whether the amount is one of those that are reduced to a limit.
    pub(crate) fn is_reduced(self) -> bool {
        self.0.saturating_abs() >= MAX
    }

    /// Returns the amount in billionths.
    pub fn billionths(self) -> i128 {
        self.0
    }

    /// Returns the amount rounded up to a whole number, away from zero.
    pub fn rounded_up(self) -> Self {
        Self(round_up(self.0, ONE).saturating_mul(ONE))
    }

    /// Returns whether the amount is less than zero.
    pub fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// Returns whether the amount is zero.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns the whole number that is nearest to the amount and not nearer to zero.
    pub fn value(self) -> i64 {
        let rounded = round_up(self.0, ONE);
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns whether the amount, rounded up to thousandths, is a whole number.
    pub fn is_whole(self) -> bool {
        self.thousandths() % 1000 == 0
    }

    /// Returns the amount in thousandths, rounded up.
    pub fn thousandths(self) -> i128 {
        round_up(self.0, ONE / 1000)
    }

    /// Returns whether the amount is a multiple of another one, both rounded up to whole numbers.
    pub fn is_multiple_of(self, unit: Self) -> bool {
        unit.value() > 0 && self.value() % unit.value() == 0
    }
}

/// Divides and rounds away from zero.
fn round_up(amount: i128, unit: i128) -> i128 {
    let quotient = amount / unit;
    if amount % unit == 0 { quotient } else { quotient + amount.signum() }
}

/// Returns the factor and the decimal exponent of a suffix.
fn scale_of(suffix: &str) -> Option<(i128, i32)> {
    let binary = |power: u32| Some((1_i128 << (10 * power), 0));
    match suffix {
        "" => Some((1, 0)),
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            Some((1, exponent.parse::<i32>().ok()?))
        }
    }
}

/// Returns the amount in billionths, rounded up, and at most the maximum.
fn decimal(whole: &str, fraction: &str, multiplier: i128, exponent: i32) -> i128 {
    // The amount is `digits * multiplier * 10^shift`, in billionths. Digits beyond the 60 that are read can't change a
    // result below the maximum, except for its rounding.
    let digits: String = whole.trim_start_matches('0').chars().chain(fraction.chars()).collect();
    let shift = i64::from(exponent) + i64::from(SCALE) - i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let shift = i32::try_from(shift).unwrap_or(i32::MIN / 2);
    // Splits the digits at the point, which may be left or right of them.
    let length = i32::try_from(digits.len()).unwrap_or(i32::MAX / 2);
    let point = length.saturating_add(shift);
    if multiplier == 1 {
        let kept = usize::try_from(point.clamp(0, length)).unwrap_or(0);
        let mut amount = parse_capped(&digits[..kept]);
        for _ in length..point.min(length.saturating_add(60)) {
            amount = amount.saturating_mul(10).min(MAX);
        }
        let rounded = digits[kept..].bytes().any(|digit| digit != b'0');
        return (amount + i128::from(rounded)).min(MAX);
    }
    // A binary suffix has no exponent: the whole part and up to 18 places of the fraction are multiplied exactly.
    let places = fraction.len().min(18);
    let whole = parse_capped(whole).saturating_mul(multiplier).saturating_mul(ONE);
    let unit = 10_i128.pow(u32::try_from(places).unwrap_or(18));
    let part = parse_capped(&fraction[..places]).saturating_mul(multiplier);
    // `part * ONE / unit`, in an order that doesn't overflow.
    let part = (part / unit).saturating_mul(ONE).saturating_add(round_up((part % unit).saturating_mul(ONE), unit));
    whole.saturating_add(part).min(MAX)
}

fn parse_capped(digits: &str) -> i128 {
    let digit = |byte: u8| i128::from(byte - b'0');
    digits.bytes().fold(0, |sum: i128, byte| (sum.saturating_mul(10).saturating_add(digit(byte))).min(MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_compared_by_value() {
        let check = |one: &str, other: &str| assert_eq!(Quantity::parse(one), Quantity::parse(other), "{one} {other}");
        check("1000m", "1");
        check("1Ki", "1024");
        check("1.5Gi", "1536Mi");
        check("1e3", "1k");
        check("12E-2", "120m");
        check("0.5", "500m");
        check(".5", "500m");
        check("1.0000000001", "1.000000001");
        check("-1", "-1000m");
        check("0.5Ki", "512");
        assert!(Quantity::parse("1").unwrap() < Quantity::parse("1.1").unwrap());
        assert!(Quantity::parse("999999999999E").unwrap() <= Quantity::parse("9223372036854775807").unwrap());
    }

    #[test]
    fn malformed_amounts_have_no_value() {
        for text in ["", "-", "1x", "1.2.3", ".", "1 ", "e3", "1eK", "Gi"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }

    #[test]
    fn whole_numbers_are_recognized() {
        let parse = |text| Quantity::parse(text).unwrap();
        assert!(parse("3").is_whole() && !parse("3500m").is_whole());
        assert_eq!((parse("3500m").value(), parse("-1m").value()), (4, -1));
        assert!(parse("4Mi").is_multiple_of(parse("2Mi")) && !parse("3Mi").is_multiple_of(parse("2Mi")));
        assert!(parse("0").is_zero() && parse("-1m").is_negative());
    }

    #[test]
    fn long_numbers_are_bounded() {
        for text in ["9".repeat(100_000), format!("0.{}1", "0".repeat(100_000)), format!("{}Ei", "9".repeat(1000))] {
            assert!(Quantity::parse(&text).is_some());
        }
        assert_eq!(Quantity::parse("1e2147483647"), Some(Quantity(MAX)));
    }
}
