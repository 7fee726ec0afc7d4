//! Conversions and functions that `kube-cel` lacks, or that differ from those of cel-go.

use std::sync::Arc;

use jiff::Timestamp;
use kube_cel::cel::Value;

use super::{
    calendar,
    evaluate::{Evaluated, Failure},
    library,
};

/// Calls one of these functions. `None` if it is another one, or has no overload for these values here.
pub(super) fn call(name: &str, method: bool, values: &[Value]) -> Option<Evaluated> {
    let text = |text: String| Some(Ok(text.into()));
    match (name, values) {
        ("dyn", [value]) if !method => Some(Ok(value.clone())),
        ("bool", [Value::Bool(value)]) if !method => Some(Ok((*value).into())),
        ("bool", [Value::String(text)]) if !method => Some(boolean(text)),
        ("int", [Value::Timestamp(time)]) if !method => Some(Ok(time.timestamp().into())),
        ("int", [Value::Duration(duration)]) if !method => duration.num_nanoseconds().map(|number| Ok(number.into())),
        ("timestamp", [time @ Value::Timestamp(_)]) if !method => Some(Ok(time.clone())),
        ("timestamp", [Value::Int(seconds)]) if !method => {
            let text = Timestamp::from_second(*seconds).ok()?.to_string();
            library::convert("timestamp", &text).map(Ok)
        }
        ("string", [Value::Float(number)]) if !method => text(double(*number)),
        ("string", [Value::Duration(duration)]) if !method => {
            // As a decimal number of seconds, whose digits are exact.
            let nanoseconds = duration.num_nanoseconds()?;
            let (whole, rest) =
                (nanoseconds.unsigned_abs() / 1_000_000_000, nanoseconds.unsigned_abs() % 1_000_000_000);
            let sign = if nanoseconds < 0 { "-" } else { "" };
            let shown = format!("{sign}{whole}.{rest:09}");
            text(format!("{}s", shown.trim_end_matches('0').trim_end_matches('.')))
        }
        ("string", [Value::Timestamp(time)]) if !method => {
            let nanoseconds = i32::try_from(time.timestamp_subsec_nanos()).ok()?;
            text(Timestamp::new(time.timestamp(), nanoseconds).ok()?.to_string())
        }
        ("split", [Value::String(text), Value::String(separator), rest @ ..]) if method && separator.is_empty() => {
            split_into_characters(text, rest)
        }
        ("sum", [Value::List(items)]) if method && matches!(items.first(), Some(Value::Duration(_))) => {
            let mut sum = None;
            for item in items.iter() {
                let Value::Duration(duration) = item else { return Some(Err(Failure::no_such_overload())) };
                sum = Some(sum.map_or(*duration, |sum| sum + *duration));
            }
            sum.map(|sum| Ok(Value::Duration(sum)))
        }
        _ if method => calendar::part(name, values),
        _ => None,
    }
}

/// Returns the boolean of a text, as Go's `strconv.ParseBool` does.
fn boolean(text: &str) -> Evaluated {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true.into()),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false.into()),
        _ => Err(Failure::error("type conversion error from 'string' to 'bool'")),
    }
}

/// Returns a number as Go's `strconv.FormatFloat` writes it in the format `g` with the fewest digits.
fn double(number: f64) -> String {
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

/// Splits a text into its characters. A limit is the number of parts, the last of which has the rest.
fn split_into_characters(text: &str, rest: &[Value]) -> Option<Evaluated> {
    let limit = match rest {
        [] => -1,
        [Value::Int(limit)] => *limit,
        _ => return None,
    };
    let all = text.chars().count();
    let number = usize::try_from(limit).map_or(all, |limit| limit.min(all));
    let mut parts: Vec<Value> = Vec::with_capacity(number);
    let mut places = text.char_indices().map(|(at, _)| at);
    let mut start = places.next().unwrap_or(0);
    while parts.len() < number {
        let end =
            if parts.len() + 1 == number && number < all { text.len() } else { places.next().unwrap_or(text.len()) };
        parts.push(text[start..end].into());
        start = end;
    }
    Some(Ok(Value::List(Arc::new(parts))))
}
