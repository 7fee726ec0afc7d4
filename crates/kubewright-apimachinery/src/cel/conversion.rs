//! Conversions between types, as cel-go does them.

use std::sync::Arc;

use kube_cel::cel::Value;

use super::{
    failure::{Evaluated, Failure},
    kind, time,
};
use crate::go_format;

/// The functions that convert a value, by the names of the types to which they do.
const CONVERSIONS: [(&str, &str); 9] = [
    ("bool", "bool"),
    ("bytes", "bytes"),
    ("double", "double"),
    ("duration", "google.protobuf.Duration"),
    ("dyn", "dyn"),
    ("int", "int"),
    ("string", "string"),
    ("timestamp", "google.protobuf.Timestamp"),
    ("uint", "uint"),
];

/// Converts a literal, which Kubernetes does before it evaluates an expression. `None` if the function is another one.
pub(super) fn of_literal(function: &str, value: &Value) -> Option<Result<Value, String>> {
    convert(function, value).map(|converted| converted.map_err(|failure| failure.to_string()))
}

/// Converts a value. `None` if the function is another one, or the value is one of the library.
pub(super) fn convert(function: &str, value: &Value) -> Option<Evaluated> {
    let (_, wanted) = CONVERSIONS.iter().find(|(name, _)| *name == function)?;
    let error = || format!("type conversion error from '{}' to '{wanted}'", kind::name(value));
    let unsupported = || Err(format!("no such overload: {function}({})", kind::name(value)));
    let converted = match (function, value) {
        // Some types of the library have a text.
        (_, Value::Opaque(_)) if function != "dyn" => return None,
        ("dyn", value)
        | ("bool", value @ Value::Bool(_))
        | ("bytes", value @ Value::Bytes(_))
        | ("double", value @ Value::Float(_))
        | ("duration", value @ Value::Duration(_))
        | ("int", value @ Value::Int(_))
        | ("string", value @ Value::String(_))
        | ("timestamp", value @ Value::Timestamp(_))
        | ("uint", value @ Value::UInt(_)) => Ok(value.clone()),
        ("bool", Value::String(text)) => go_format::parse_bool(text).map(Value::Bool).ok_or_else(error),
        ("bytes", Value::String(text)) => Ok(Value::Bytes(Arc::new(text.as_bytes().to_vec()))),
        ("double" | "duration" | "int" | "timestamp" | "uint", value) => match number(function, value) {
            None => unsupported(),
            Some(number) => number.ok_or_else(|| {
                let overflow = match (function, value) {
                    ("timestamp", Value::Int(_)) => "timestamp overflow",
                    ("int", Value::UInt(_) | Value::Float(_)) => "integer overflow",
                    ("uint", Value::Int(_) | Value::Float(_)) => "unsigned integer overflow",
                    _ => return error(),
                };
                overflow.to_owned()
            }),
        },
        ("string", value) => string(value).unwrap_or_else(unsupported),
        _ => unsupported(),
    };
    Some(converted.map_err(Failure::Error))
}

/// Converts a value to a number or time. `None` if this type of value isn't accepted, and `Some(None)` if the value
/// isn't.
fn number(function: &str, value: &Value) -> Option<Option<Value>> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "checked")]
    Some(match (function, value) {
        ("double", Value::Int(number)) => Some(Value::Float(*number as f64)),
        ("double", Value::UInt(number)) => Some(Value::Float(*number as f64)),
        ("double", Value::String(text)) => double(text).map(Value::Float),
        ("int", Value::UInt(number)) => i64::try_from(*number).ok().map(Value::Int),
        ("int", Value::Float(number)) => {
            let fits = *number > i64::MIN as f64 && *number < i64::MAX as f64;
            fits.then_some(Value::Int(*number as i64))
        }
        ("int", Value::String(text)) => text.parse().ok().map(Value::Int),
        ("int", Value::Timestamp(time)) => Some(Value::Int(time.timestamp())),
        ("int", Value::Duration(duration)) => duration.num_nanoseconds().map(Value::Int),
        ("uint", Value::Int(number)) => u64::try_from(*number).ok().map(Value::UInt),
        ("uint", Value::Float(number)) => {
            let fits = *number >= 0.0 && *number < u64::MAX as f64;
            fits.then_some(Value::UInt(*number as u64))
        }
        ("uint", Value::String(text)) => text.parse().ok().filter(|_| !text.starts_with('+')).map(Value::UInt),
        ("timestamp", Value::Int(seconds)) => time::from_seconds(*seconds),
        ("timestamp", Value::String(text)) => time::timestamp(text),
        ("duration", Value::String(text)) => time::duration(text),
        ("duration", Value::Int(_)) => None,
        _ => return None,
    })
}

/// Returns the text of a value. `None` if values of this type have none.
pub(super) fn string(value: &Value) -> Option<Result<Value, String>> {
    let text = match value {
        Value::String(_) => return Some(Ok(value.clone())),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        Value::Float(number) => show_double(*number),
        Value::Duration(duration) => time::show_duration(duration),
        Value::Timestamp(time) => time::show_timestamp(time),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Some(Err("invalid UTF-8 in bytes, cannot convert to string".to_owned())),
        },
        _ => return None,
    };
    Some(Ok(text.into()))
}

/// Returns the boolean of a text, as Go's `strconv.ParseBool` does. Returns the number of a text, as Go's
/// `strconv.ParseFloat` does. Hexadecimal numbers aren't supported.
fn double(text: &str) -> Option<f64> {
    let digits = text.bytes().any(|byte| byte.is_ascii_digit());
    let number: f64 = text.parse().ok()?;
    // Out of range.
    if digits && number.is_infinite() {
        return None;
    }
    // Only infinity may have a sign.
    if number.is_nan() && text.len() > 3 { None } else { Some(number) }
}

/// Returns a number as Go's `strconv.FormatFloat` writes it in the format `g` with the fewest digits.
pub(super) fn show_double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_converted_as_by_cel_go() {
        let text = |text: &str| Value::from(text);
        for (function, value, expect) in [
            ("int", text("+5"), Ok("5")),
            ("int", text(" 5"), Err("type conversion error from 'string' to 'int'")),
            ("int", Value::Float(i64::MIN as f64), Err("integer overflow")),
            ("int", Value::Float(-1.9), Ok("-1")),
            ("uint", text("+5"), Err("type conversion error from 'string' to 'uint'")),
            ("uint", Value::Int(-1), Err("unsigned integer overflow")),
            ("double", text("1e400"), Err("type conversion error from 'string' to 'double'")),
            ("double", text("-inf"), Ok("-Inf")),
            ("double", text("+nan"), Err("type conversion error from 'string' to 'double'")),
            ("bool", text("T"), Ok("true")),
            ("bool", text("yes"), Err("type conversion error from 'string' to 'bool'")),
            ("timestamp", text("x"), Err("type conversion error from 'string' to 'google.protobuf.Timestamp'")),
            ("timestamp", Value::Int(1_577_836_800), Ok("2020-01-01T00:00:00Z")),
            ("timestamp", Value::Int(i64::MAX), Err("timestamp overflow")),
            ("duration", text("2562047h47m16.854775807s"), Ok("9223372036.854776s")),
            ("duration", text("1ms"), Ok("0.001s")),
            ("duration", text("1h 1m"), Err("type conversion error from 'string' to 'google.protobuf.Duration'")),
            ("string", Value::Bytes(Arc::new(vec![255])), Err("invalid UTF-8 in bytes, cannot convert to string")),
            ("string", Value::Float(1e6), Ok("1e+06")),
            ("string", Value::Float(123_456.0), Ok("123456")),
            ("string", Value::Float(1_234_567.0), Ok("1.234567e+06")),
            ("string", Value::Float(-0.0), Ok("-0")),
            ("string", Value::Float(0.000_01), Ok("1e-05")),
        ] {
            let shown = convert(function, &value).expect("a conversion");
            let shown = shown.map(|value| string(&value).expect("a text").expect("a text"));
            let expect = expect.map(text).map_err(Failure::error);
            assert_eq!(shown, expect, "{function}({value:?})");
        }
        assert_eq!(convert("int", &Value::Null), Some(Err(Failure::error("no such overload: int(null_type)"))));
        assert_eq!(convert("size", &Value::Null), None);
    }
}
