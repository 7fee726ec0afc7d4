//! Amounts of resources by name, as they are written.

use std::collections::BTreeMap;

use kubewright_apimachinery::quantity::Quantity;
use serde_json::Value;

use crate::fields::{list, text};

/// An amount, and how it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Amount {
    pub(crate) amount: Quantity,
    pub(crate) shown: String,
}

/// Amounts by the name of the resource.
pub(crate) type Amounts = BTreeMap<String, Amount>;

impl Amount {
    /// Reads a value of an object. An absent or malformed one counts as zero.
    pub(crate) fn of(value: &Value) -> Self {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Self { amount: Quantity::read(value), shown }
    }

    /// Returns a whole number.
    pub(crate) fn whole(number: usize) -> Self {
        Self::of(&number.to_string().into())
    }

    /// Adds an amount. The sum is written in the notation of this one, or of the other one if this one is zero.
    pub(crate) fn add(&mut self, other: &Self) {
        self.become_amount(self.amount.plus(other.amount), other);
    }

    /// Subtracts an amount. The difference is at least zero.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.become_amount(self.amount.minus(other.amount).max(Quantity::default()), other);
    }

    /// Rounds up to a whole number.
    pub(crate) fn round_up(&mut self) {
        let rounded = self.amount.rounded_up();
        if rounded != self.amount {
            self.become_amount(rounded, &self.clone());
        }
    }

    fn become_amount(&mut self, amount: Quantity, other: &Self) {
        let shown = if self.amount.is_zero() { &other.shown } else { &self.shown };
        (self.shown, self.amount) = (written(amount, Notation::of(shown)), amount);
    }
}

/// The notation of the exponent.
#[derive(Clone, Copy, PartialEq)]
enum Notation {
    /// `m`, `k`, `M`, …
    Decimal,
    /// `e3`
    Exponent,
    /// `Ki`, `Mi`, …
    Binary,
}

impl Notation {
    fn of(shown: &str) -> Self {
        match shown {
            _ if shown.ends_with('i') => Self::Binary,
            _ if shown.contains('e') => Self::Exponent,
            _ => Self::Decimal,
        }
    }
}

/// Writes an amount with the largest suffix that leaves a whole number. As in Kubernetes, a fraction or a number below
/// 1024 has no binary suffix.
fn written(amount: Quantity, notation: Notation) -> String {
    const ONE: i128 = 1_000_000_000;
    let mut number = amount.billionths();
    let is_binary = notation == Notation::Binary && number % ONE == 0 && number.abs() >= 1024 * ONE;
    let (mut suffixes, step): (&[&str], i128) = match notation {
        Notation::Binary if is_binary => (&["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"], 1024),
        Notation::Exponent => (&["e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18"], 1000),
        _ => (&["n", "u", "m", "", "k", "M", "G", "T", "P", "E"], 1000),
    };
    if is_binary {
        number /= ONE;
    }
    while let [_, rest @ ..] = suffixes
        && !rest.is_empty()
        && number != 0
        && number % step == 0
    {
        (number, suffixes) = (number / step, rest);
    }
    if number == 0 { "0".into() } else { format!("{number}{}", suffixes[0]) }
}

/// Writes an amount with a decimal suffix, such as `250m`.
pub(crate) fn decimal(amount: Quantity) -> String {
    written(amount, Notation::Decimal)
}

/// Writes an amount with a binary suffix, such as `64Mi`, if it is a whole number of at least 1024.
pub(crate) fn binary(amount: Quantity) -> String {
    written(amount, Notation::Binary)
}

/// Writes an amount of thousandths as Kubernetes does: `1500m`, or, with `binary` for a whole number of at least 1024,
/// `64Mi`.
pub fn milli_quantity(thousandths: i64, binary: bool) -> String {
    let amount = Quantity::from_billionths(i128::from(thousandths) * 1_000_000);
    written(amount, if binary { Notation::Binary } else { Notation::Decimal })
}

/// Returns the amounts of a field such as `requests`.
pub(crate) fn amounts(resources: &Value, field: &str) -> Amounts {
    let entries = resources.get(field).and_then(Value::as_object).into_iter().flatten();
    entries.map(|(name, value)| (name.clone(), Amount::of(value))).collect()
}

/// Adds amounts, by name.
pub(crate) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        match sum.get_mut(name) {
            Some(present) => present.add(amount),
            None => drop(sum.insert(name.clone(), amount.clone())),
        }
    }
}

/// Replaces amounts by greater ones, by name.
pub(crate) fn raise(most: &mut Amounts, others: &Amounts) {
    for (name, amount) in others {
        if most.get(name).is_none_or(|present| amount.amount > present.amount) {
            most.insert(name.clone(), amount.clone());
        }
    }
}

/// Returns what the containers of a pod need, given what each needs: the containers and sidecars together, or an init
/// container and the sidecars before it, whichever is greater.
pub(crate) fn of_containers(spec: &Value, own: impl Fn(&Value) -> Amounts) -> Amounts {
    let (mut sum, mut sidecars, mut most) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in list(spec, "/containers") {
        add(&mut sum, &own(container));
    }
    for container in list(spec, "/initContainers") {
        let own = own(container);
        if text(container, "/restartPolicy") == "Always" {
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            raise(&mut most, &sidecars);
        } else {
            let mut together = own;
            add(&mut together, &sidecars);
            raise(&mut most, &together);
        }
    }
    raise(&mut sum, &most);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_written_as_the_first_amount() {
        for (first, second, expect) in [
            ("100m", "900m", "1"),
            ("1", "500m", "1500m"),
            ("512Mi", "512Mi", "1Gi"),
            ("0", "1Ki", "1Ki"),
            ("1k", "1Ki", "2024"),
        ] {
            let mut sum = Amount::of(&first.into());
            sum.add(&Amount::of(&second.into()));
            assert_eq!(sum.shown, expect, "{first} {second}");
        }
    }
}
