//! The quantities of Kubernetes' library (`k8s.io/apiserver/pkg/cel/library/quantity.go`).

use std::{cmp::Ordering, sync::Arc};

use kube_cel::cel::{Value, objects::Opaque};

use super::failure::{Evaluated, Failure};
use crate::quantity::Quantity as Amount;

/// The error about a malformed quantity.
const MALFORMED: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// The number of digits up to which Go represents a decimal quantity by an integer.
const DIGITS: usize = 18;

/// A quantity.
#[derive(Clone, Debug)]
struct Quantity {
    amount: Amount,
    /// The value if Go represents it by an integer. Only such a quantity can be converted to one.
    integer: Option<Scaled>,
    float: f64,
    /// Whether it is a sum or a difference. In Kubernetes, nothing is equal to one that stands on the right of `==`.
    computed: bool,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.amount == other.amount
    }
}

impl Eq for Quantity {}

impl Opaque for Quantity {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
}

/// `value * 10^exponent`
#[derive(Clone, Copy, Debug)]
struct Scaled {
    value: i64,
    exponent: i32,
}

impl Scaled {
    /// Returns the value for a lower exponent.
    fn at(self, exponent: i32) -> Option<i64> {
        let difference = u32::try_from(self.exponent.checked_sub(exponent)?).ok()?;
        if self.value == 0 { Some(0) } else { self.value.checked_mul(10_i64.checked_pow(difference)?) }
    }

    fn add(self, other: Self) -> Option<Self> {
        if self.value == 0 || other.value == 0 {
            return Some(if other.value == 0 { self } else { other });
        }
        let exponent = self.exponent.min(other.exponent);
        Some(Self { value: self.at(exponent)?.checked_add(other.at(exponent)?)?, exponent })
    }

    fn float(self) -> f64 {
        self.value as f64 * power_of_10(self.exponent)
    }

    /// Returns the number. As in Kubernetes, one with a negative exponent isn't whole.
    fn whole(self) -> Option<i64> {
        if self.exponent < 0 { None } else { self.at(0) }
    }
}

fn power_of_10(exponent: i32) -> f64 {
    format!("1e{exponent}").parse().unwrap_or_default()
}

impl Quantity {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (negative, unsigned) = match text.as_bytes().first().ok_or(MALFORMED)? {
            b'-' => (true, text.get(1..)),
            b'+' => (false, text.get(1..)),
            _ => (false, Some(text)),
        };
        let (whole, rest) = digits(unsigned.unwrap_or_default());
        let whole = whole.trim_start_matches('0');
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
        check_suffix(suffix)?;
        let (binary, exponent) = power(suffix).ok_or(SUFFIX)?;
        let integer =
            if binary { binary_integer(whole, fraction, exponent) } else { decimal_integer(whole, fraction, exponent) };
        let integer = integer.map(|it| if negative { Scaled { value: -it.value, ..it } } else { it });
        let (factor, decimal) = if binary { (1_i128 << exponent.clamp(0, 60), 0) } else { (1, exponent) };
        let amount = Amount::of_parts(negative, [whole, fraction], factor, decimal);
        let float = match integer {
            Some(integer) => integer.float(),
            None if amount.is_reduced() && !binary => {
                let float: f64 = format!("{whole}.{fraction}e{exponent}").parse().unwrap_or_default();
                if negative { -float } else { float }
            }
            None => float_of(amount),
        };
        Ok(Self { amount, integer, float, computed: false })
    }

    fn whole(value: i64) -> Self {
        let amount = Amount::from_billionths(i128::from(value).saturating_mul(1_000_000_000));
        Self { amount, integer: Some(Scaled { value, exponent: 0 }), float: value as f64, computed: false }
    }

    fn negated(&self) -> Self {
        let integer = self.integer.map(|it| Scaled { value: it.value.wrapping_neg(), ..it });
        let amount = Amount::from_billionths(self.amount.billionths().saturating_neg());
        Self { amount, integer, float: -self.float, computed: true }
    }

    fn plus(&self, other: &Self) -> Self {
        let amount = self.amount.plus(other.amount);
        let integer = self.integer.zip(other.integer).and_then(|(one, other)| one.add(other));
        Self { amount, integer, float: integer.map_or_else(|| float_of(amount), Scaled::float), computed: true }
    }
}

fn float_of(amount: Amount) -> f64 {
    amount.billionths() as f64 * 1e-9
}

/// Splits a text after its leading digits.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Checks the form of a suffix: letters, and perhaps a number with a sign.
fn check_suffix(suffix: &str) -> Result<(), &'static str> {
    let number = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let number = number.strip_prefix(['-', '+']).unwrap_or(number);
    if number.bytes().all(|byte| byte.is_ascii_digit()) { Ok(()) } else { Err(MALFORMED) }
}

/// Returns whether the base of a suffix is 2, and the exponent. Exponents have 32 bits in Go.
fn power(suffix: &str) -> Option<(bool, i32)> {
    const DECIMAL: [(&str, i32); 10] =
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    const BINARY: [(&str, i32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
    let of = |list: &[(&str, i32)]| list.iter().find(|(name, _)| *name == suffix).map(|(_, exponent)| *exponent);
    if let Some(exponent) = of(&BINARY) {
        return Some((true, exponent));
    }
    let exponent = || suffix.strip_prefix(['e', 'E'])?.parse::<i64>().ok().map(|exponent| exponent as i32);
    of(&DECIMAL).or_else(exponent).map(|exponent| (false, exponent))
}

/// Returns the number of digits of a number, which has at least one.
fn length(whole: &str) -> usize {
    whole.len().max(1)
}

/// Returns the integer by which Go represents a decimal quantity without a sign.
fn decimal_integer(whole: &str, fraction: &str, exponent: i32) -> Option<Scaled> {
    if length(whole) + fraction.len() > DIGITS {
        return None;
    }
    let exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?).filter(|exponent| *exponent >= -9)?;
    Some(Scaled { value: format!("0{whole}{fraction}").parse().ok()?, exponent })
}

/// Returns the integer by which Go represents a quantity with a binary suffix and without a sign. The others are too
/// large, by a rough rule.
fn binary_integer(whole: &str, fraction: &str, exponent: i32) -> Option<Scaled> {
    let places = usize::try_from(exponent * 3 / 10).ok()? + 1;
    if !fraction.is_empty() || length(whole) + places > 15 {
        return None;
    }
    let value =
        format!("0{whole}").parse::<i64>().ok()?.checked_mul(1_i64.checked_shl(u32::try_from(exponent).ok()?)?)?;
    Some(Scaled { value, exponent: 0 })
}

fn quantity(value: &Value) -> Option<&Quantity> {
    match value {
        Value::Opaque(value) => value.downcast_ref(),
        _ => None,
    }
}

/// Returns a quantity as a value; `None` if it is malformed.
pub(super) fn parse(text: &str) -> Option<Value> {
    Quantity::parse(text).ok().map(|quantity| Value::Opaque(Arc::new(quantity)))
}

/// Returns whether a value is a sum or a difference of quantities, to which no value is equal in Kubernetes.
pub(super) fn is_computed(value: &Value) -> bool {
    quantity(value).is_some_and(|quantity| quantity.computed)
}

/// Calls one of these functions. `None` if it is another one, or has no overload for these values.
pub(super) fn call(function: &str, values: &[Value]) -> Option<Evaluated> {
    let value = |quantity: Quantity| Some(Ok(Value::Opaque(Arc::new(quantity))));
    match (function, values) {
        ("quantity", [Value::String(text)]) => match Quantity::parse(text) {
            Ok(quantity) => value(quantity),
            Err(why) => Some(Err(Failure::error(why))),
        },
        ("isQuantity", [Value::String(text)]) => Some(Ok(Quantity::parse(text).is_ok().into())),
        (_, [one]) => of_one(function, quantity(one)?),
        ("add" | "sub", [one, other]) => {
            let one = quantity(one)?;
            let other = match other {
                Value::Int(other) => Quantity::whole(*other),
                other => quantity(other)?.clone(),
            };
            value(one.plus(&if function == "add" { other } else { other.negated() }))
        }
        (_, [one, other]) => {
            let order = quantity(one)?.amount.cmp(&quantity(other)?.amount);
            Some(Ok(match function {
                "compareTo" => Value::Int(order as i64),
                "isLessThan" => (order == Ordering::Less).into(),
                "isGreaterThan" => (order == Ordering::Greater).into(),
                _ => return None,
            }))
        }
        _ => None,
    }
}

/// Calls a function of one quantity.
fn of_one(function: &str, one: &Quantity) -> Option<Evaluated> {
    let whole = one.integer.and_then(Scaled::whole);
    Some(Ok(match function {
        "isInteger" => whole.is_some().into(),
        "asInteger" => match whole {
            Some(whole) => Value::Int(whole),
            None => return Some(Err(Failure::error("cannot convert value to integer"))),
        },
        "asApproximateFloat" => Value::Float(one.float),
        "sign" => Value::Int(one.amount.cmp(&Amount::default()) as i64),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, whole: Option<i64>, float: f64) {
        let quantity = Quantity::parse(text).unwrap();
        assert_eq!((quantity.integer.and_then(Scaled::whole), quantity.float), (whole, float), "{text}");
    }

    #[test]
    fn numbers_are_whole_if_go_represents_them_by_integers() {
        for (text, whole) in
            [("0", 0), (".", 0), ("-", 0), ("+", 0), ("1k", 1000), ("-3", -3), ("1e+3", 1000), ("2Ki", 2048)]
        {
            check(text, Some(whole), whole as f64);
        }
        check("10Ti", Some(10 << 40), (10_i64 << 40) as f64);
        check("123456789012345678", Some(123_456_789_012_345_678), 123_456_789_012_345_678.0);
        check("1e4294967299", Some(1000), 1000.0);
        for (text, float) in [
            ("1000m", 1.0),
            ("1.0", 1.0),
            ("100e-2", 1.0),
            ("1.5Gi", 1_610_612_736.0),
            ("100Ti", (100_i64 << 40) as f64),
            ("1Pi", (1_i64 << 50) as f64),
            ("10E", 1e19),
            ("1e100", 1e100),
            ("0.1n", 1e-9),
        ] {
            check(text, None, float);
        }
        check("9Ei", None, 9_223_372_036_854_775_807.0);
    }

    #[test]
    fn malformed_ones_are_refused() {
        for text in ["", " 1", "1 ", "1.2.3", "1e1.5", "1e5x", "x"] {
            assert_eq!(Quantity::parse(text), Err(MALFORMED), "{text:?}");
        }
        for text in ["1e", "1e+", "1mm", "1i", "1KKi", "1Ki5", "1e99999999999999999999"] {
            assert_eq!(Quantity::parse(text), Err(SUFFIX), "{text:?}");
        }
    }

    #[test]
    fn extreme_numbers_are_bounded() {
        for text in [
            format!("1e{}", i32::MAX),
            format!("-1.5e{}", i32::MIN),
            "9".repeat(100_000),
            format!("0.{}1Ki", "0".repeat(9999)),
        ] {
            let quantity = Quantity::parse(&text).unwrap();
            let sum = quantity.plus(&quantity).plus(&quantity.negated());
            assert!(sum.computed && !quantity.computed);
            assert!(sum.amount.cmp(&quantity.amount).is_eq() || sum.amount.is_reduced());
        }
    }
}
