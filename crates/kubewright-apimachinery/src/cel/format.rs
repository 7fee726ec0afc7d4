//! Templates, `"%s".format([value])`, as cel-go fills them in (`ext/formatting.go`).

use kube_cel::cel::{Value, objects::Key};

use super::{associative::items, conversion, kind};
use crate::go_format;

/// The number of digits after the point unless the template gives another one.
const PRECISION: usize = 6;

/// How a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Text,
    Decimal,
    /// With a number of digits after the point.
    Fixed(usize),
    /// With the least number of characters, which cel-go takes the precision for.
    Scientific(usize),
    Binary,
    Hexadecimal {
        upper: bool,
    },
    Octal,
}

/// Fills in a template with these values.
pub(super) fn format(template: &str, values: &[Value]) -> Result<String, String> {
    let filled = fill(template, values.len(), |verb, place| verb.show(&values[place]));
    filled.map(|(text, _)| text)
}

/// Fills in a template with a number of values. Also returns how many it has places for.
pub(super) fn fill(
    template: &str,
    values: usize,
    mut show: impl FnMut(Verb, usize) -> Result<String, String>,
) -> Result<(String, usize), String> {
    let (mut filled, mut rest, mut place) = (String::with_capacity(template.len()), template, 0);
    while let Some((before, after)) = rest.split_once('%') {
        filled += before;
        if let Some(after) = after.strip_prefix('%') {
            filled.push('%');
            rest = after;
            continue;
        }
        if place >= values {
            return Err(format!("index {place} out of range"));
        }
        if after.is_empty() {
            return Err("unexpected end of string".to_owned());
        }
        let verb;
        (verb, rest) = Verb::parse(after).map_err(|why| format!("could not parse formatting clause: {why}"))?;
        filled += &show(verb, place).map_err(|why| format!("error during formatting: {why}"))?;
        place += 1;
    }
    filled += rest;
    Ok((filled, place))
}

impl Verb {
    /// Reads a verb. Returns what follows it.
    fn parse(text: &str) -> Result<(Self, &str), String> {
        let (precision, rest) = match text.strip_prefix('.') {
            None => (None, text),
            Some(rest) => {
                let end = rest.find(|c: char| !c.is_ascii_digit());
                let end = end.ok_or("error while parsing precision: could not find end of precision specifier")?;
                let (digits, rest) = rest.split_at(end);
                let precision = digits.parse().map_err(|_| {
                    let why = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
                    format!(
                        "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing \
                         {digits:?}: {why}"
                    )
                })?;
                (Some(precision), rest)
            }
        };
        let mut characters = rest.chars();
        let verb = match characters.next() {
            Some('s') => Self::Text,
            Some('d') => Self::Decimal,
            Some('f') => Self::Fixed(precision.unwrap_or(PRECISION)),
            Some('e') => Self::Scientific(precision.unwrap_or(PRECISION)),
            Some('b') => Self::Binary,
            Some('x') => Self::Hexadecimal { upper: false },
            Some('X') => Self::Hexadecimal { upper: true },
            Some('o') => Self::Octal,
            other => return Err(format!("unrecognized formatting clause \"{}\"", other.unwrap_or_default())),
        };
        Ok((verb, characters.as_str()))
    }

    /// Returns the error about a value of a type that can't be shown so.
    pub(super) fn mismatch(self, of: &str) -> String {
        let fitting = match self {
            Self::Text => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
                 timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hexadecimal { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("{fitting}, was given {of}")
    }

    fn show(self, value: &Value) -> Result<String, String> {
        let sign = |number: i64| if number < 0 { "-" } else { "" };
        Ok(match (self, value) {
            (Self::Text, value) => text(value)?.ok_or_else(|| self.mismatch(&kind::name(value)))?,
            (Self::Decimal, Value::Int(number)) => number.to_string(),
            (Self::Decimal, Value::UInt(number)) => number.to_string(),
            (Self::Octal, Value::Int(number)) => format!("{}{:o}", sign(*number), number.unsigned_abs()),
            (Self::Octal, Value::UInt(number)) => format!("{number:o}"),
            (Self::Binary, Value::Int(number)) => format!("{}{:b}", sign(*number), number.unsigned_abs()),
            (Self::Binary, Value::UInt(number)) => format!("{number:b}"),
            (Self::Binary, Value::Bool(value)) => u8::from(*value).to_string(),
            (Self::Hexadecimal { upper }, value) => {
                let digits = match value {
                    Value::Int(number) => format!("{}{:x}", sign(*number), number.unsigned_abs()),
                    Value::UInt(number) => format!("{number:x}"),
                    Value::String(text) => hexadecimal(text.as_bytes()),
                    Value::Bytes(bytes) => hexadecimal(bytes),
                    other => return Err(self.mismatch(&kind::name(other))),
                };
                if upper { digits.to_uppercase() } else { digits }
            }
            (Self::Fixed(precision), value) => fixed(self.double(value)?, precision),
            (Self::Scientific(width), value) => {
                let shown = scientific(self.double(value)?);
                // The width of Rust's formats is limited. The meter has charged for this one.
                " ".repeat(width.saturating_sub(shown.chars().count())) + &shown
            }
            (_, other) => return Err(self.mismatch(&kind::name(other))),
        })
    }

    fn double(self, value: &Value) -> Result<f64, String> {
        match value {
            Value::Float(number) => Ok(*number),
            Value::String(text) => match text.as_str() {
                "NaN" => Ok(f64::NAN),
                "Infinity" => Ok(f64::INFINITY),
                "-Infinity" => Ok(f64::NEG_INFINITY),
                _ => Err(self.mismatch("string")),
            },
            other => Err(self.mismatch(&kind::name(other))),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a number that isn't finite as the English locale has it.
fn not_finite(number: f64) -> Option<&'static str> {
    match number {
        _ if number.is_nan() => Some("NaN"),
        f64::INFINITY => Some("∞"),
        f64::NEG_INFINITY => Some("-∞"),
        _ => None,
    }
}

/// Returns a number with groups of three digits, as the English locale has them.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(shown) = not_finite(number) {
        return shown.to_owned();
    }
    // More than a `u16` doesn't fit into a format.
    let shown = format!("{:.*}", precision.min(usize::from(u16::MAX)), number.abs());
    let (whole, fraction) = shown.split_at(shown.find('.').unwrap_or(shown.len()));
    let mut grouped = if number < 0.0 { "-".to_owned() } else { String::new() };
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// Returns a number as the English locale shows it with a power of ten: `1.500000×10⁰³`.
fn scientific(number: f64) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    if let Some(shown) = not_finite(number) {
        return shown.to_owned();
    }
    let shown = format!("{:.PRECISION$e}", number.abs());
    let (digits, exponent) = shown.split_once('e').unwrap_or((&shown, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
    let digit = |digit: char| digit.to_digit(10).and_then(|digit| DIGITS.get(digit as usize)).copied();
    let exponent: String = format!("{exponent:0>2}").chars().filter_map(digit).collect();
    format!("{}{digits}×10{sign}{exponent}", if number < 0.0 { "-" } else { "" })
}

/// Returns a value as `%s` shows it. `None` if its type has no text.
fn text(value: &Value) -> Result<Option<String>, String> {
    Ok(Some(match value {
        Value::Null => "null".to_owned(),
        value if let Some(items) = items(value) => {
            let items = items.iter().map(literal).collect::<Result<Vec<_>, _>>()?;
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let entries = map.map.iter().map(|(key, value)| {
                let key = match key {
                    Key::String(key) => go_format::quoted(key),
                    key => key.to_string(),
                };
                Ok((key, literal(value)?))
            });
            let mut entries = entries.collect::<Result<Vec<_>, String>>()?;
            entries.sort_unstable();
            let entries: Vec<_> = entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", entries.join(", "))
        }
        value => match (conversion::string(value), kind::name_of_type(value)) {
            (Some(Ok(Value::String(text))), _) => text.as_str().to_owned(),
            (Some(Err(why)), _) => return Err(format!("could not convert argument \"{why}\" to string")),
            (_, Some(name)) => name.to_owned(),
            _ => return Ok(None),
        },
    }))
}

/// Returns a value inside of a list or map, as a literal of the language.
fn literal(value: &Value) -> Result<String, String> {
    let text = text(value)?.ok_or_else(|| format!("no formatting function for {}", kind::name(value)))?;
    Ok(match value {
        Value::String(_) => go_format::quoted(&text),
        Value::Bytes(_) => format!("b{}", go_format::quoted(&text)),
        Value::Timestamp(_) => format!("timestamp({})", go_format::quoted(&text)),
        Value::Duration(_) => format!("duration({})", go_format::quoted(&text)),
        Value::Float(number) if number.is_finite() => format!("{number:.PRECISION$}"),
        Value::Float(_) => format!("{text:?}"),
        _ => text,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[track_caller]
    fn check(template: &str, values: &[Value], expect: Result<&str, &str>) {
        assert_eq!(format(template, values).as_deref(), expect.map_err(str::to_owned).as_deref(), "{template}");
    }

    #[test]
    fn verbs_show_values_as_cel_go_does() {
        for (template, value, expect) in [
            ("%f", Value::Float(1_234_567.891), "1,234,567.891000"),
            ("%.0f", Value::Float(0.5), "0"),
            ("%.1f", Value::Float(-999.96), "-1,000.0"),
            ("%f", Value::Float(-0.0), "0.000000"),
            ("%f", "Infinity".into(), "∞"),
            ("%e", Value::Float(1500.0), "1.500000×10⁰³"),
            ("%.2e", Value::Float(-0.000_15), "-1.500000×10⁻⁰⁴"),
            ("%.15e", Value::Float(1e100), " 1.000000×10¹⁰⁰"),
            ("%e", "-Infinity".into(), "    -∞"),
            ("%x", Value::Int(-255), "-ff"),
            ("%X", "hello".into(), "68656C6C6F"),
            ("%b", Value::Bool(true), "1"),
            ("%o", Value::UInt(8), "10"),
            ("100%% %s", Value::Null, "100% null"),
            ("%s", Value::Float(f64::INFINITY), "+Inf"),
            ("%s", kind::named("int"), "int"),
            ("%s", Value::Bytes(Arc::new(b"ab".to_vec())), "ab"),
        ] {
            check(template, &[value], Ok(expect));
        }
        // Wider than Rust's formats can be.
        let wide = format("%.70000e", &[Value::Float(1.0)]).unwrap();
        assert_eq!((wide.chars().count(), wide.trim_start()), (70_000, "1.000000×10⁰⁰"));
    }

    #[test]
    fn values_in_lists_are_literals() {
        let values = [
            Value::from("a\n\u{200b}"),
            Value::Bytes(Arc::new(b"b".to_vec())),
            Value::Float(1.5),
            Value::Float(f64::NAN),
            conversion::convert("duration", &"90s".into()).unwrap().unwrap(),
            conversion::convert("timestamp", &Value::Int(0)).unwrap().unwrap(),
            kind::named("string"),
        ];
        let expect =
            r#"["a\n\u200b", b"b", 1.500000, "NaN", duration("90s"), timestamp("1970-01-01T00:00:00Z"), string]"#;
        check("%s", &[Value::List(Arc::new(values.to_vec()))], Ok(expect));
    }

    #[test]
    fn malformed_templates_have_errors() {
        let value = [Value::Int(1)];
        check("%s %s", &value, Err("index 1 out of range"));
        check("%", &value, Err("unexpected end of string"));
        check("%5d", &value, Err("could not parse formatting clause: unrecognized formatting clause \"5\""));
        check(
            "%.",
            &value,
            Err(
                "could not parse formatting clause: error while parsing precision: could not find end of precision specifier",
            ),
        );
        check(
            "%f",
            &value,
            Err("error during formatting: fixed-point clause can only be used on doubles, was given int"),
        );
        let bytes = [Value::Bytes(Arc::new(vec![255]))];
        let error = "error during formatting: could not convert argument \"invalid UTF-8 in bytes, cannot convert to string\" to string";
        check("%s", &bytes, Err(error));
    }
}
