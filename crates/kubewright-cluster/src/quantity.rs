//! Quantities as numbers. Pure.

/// The unit in which quantities are counted: billionths, the smallest unit of quantities.
pub(crate) const PARTS: i128 = 1_000_000_000;

/// Parses a quantity into billionths.
pub(crate) fn quantity(text: &str) -> Option<i128> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-' || c == '+')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (mantissa, exponent) = match suffix {
        "" => (PARTS, 0),
        "n" => (1, 0),
        "u" => (1000, 0),
        "m" => (1_000_000, 0),
        "k" => (PARTS, 3),
        "M" => (PARTS, 6),
        "G" => (PARTS, 9),
        "T" => (PARTS, 12),
        "P" => (PARTS, 15),
        "E" => (PARTS, 18),
        _ => match suffix.strip_suffix('i').and_then(|letter| "KMGTPE".find(letter)) {
            Some(place) if suffix.len() == 2 => (PARTS << (10 * (place + 1)), 0),
            _ => (PARTS, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
        },
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let places = i32::try_from(fraction.len()).ok()?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let power: i32 = exponent - places;
    let scale = 10i128.checked_pow(power.unsigned_abs())?;
    let amount = digits.checked_mul(mantissa)?;
    if power < 0 { Some(amount / scale) } else { amount.checked_mul(scale) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        let check = |text, expect: i128| assert_eq!(quantity(text), Some(expect), "{text}");
        check("1", PARTS);
        check("100m", PARTS / 10);
        check("1.5", PARTS * 3 / 2);
        check("2Ki", PARTS * 2048);
        check("0.5Gi", PARTS << 29);
        check("3k", PARTS * 3000);
        check("1e3", PARTS * 1000);
        check("12E2", PARTS * 1200);
        check("1E", PARTS * 1_000_000_000_000_000_000);
        for text in ["", "x", "1x", "1.2.3", "1ei", "999999999999999999999999E"] {
            assert_eq!(quantity(text), None, "{text}");
        }
    }
}
