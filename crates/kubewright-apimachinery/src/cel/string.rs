//! Functions on strings, as cel-go has them (`ext/strings.go`).

use std::sync::Arc;

use kube_cel::cel::Value;

use super::{
    failure::{Evaluated, Failure},
    format,
};

/// Calls one of these methods. `None` if it is another one, or has no overload for these values here.
pub(super) fn call(name: &str, values: &[Value]) -> Option<Evaluated> {
    match (name, values) {
        ("format", [Value::String(template), Value::List(values)]) => {
            Some(format::format(template, values).map(Value::from).map_err(Failure::Error))
        }
        ("split", [Value::String(text), Value::String(separator), rest @ ..]) if separator.is_empty() => {
            split_into_characters(text, rest)
        }
        ("replace", [Value::String(text), Value::String(part), Value::String(by), Value::Int(..0)]) => {
            Some(Ok(text.replace(&**part, by).into()))
        }
        ("substring", [Value::String(text), Value::Int(start)]) => {
            Some(substring(text, *start, length(text)).map_err(Failure::Error))
        }
        ("substring", [Value::String(text), Value::Int(start), Value::Int(end)]) => {
            Some(substring(text, *start, *end).map_err(Failure::Error))
        }
        // An empty text is found everywhere, even behind the end.
        ("indexOf" | "lastIndexOf", [Value::String(_), Value::String(part), at @ Value::Int(_)]) if part.is_empty() => {
            Some(Ok(at.clone()))
        }
        ("indexOf" | "lastIndexOf", [Value::String(_), Value::String(_), Value::Int(at @ ..0)]) => {
            Some(Err(Failure::error(format!("index out of range: {at}"))))
        }
        ("lastIndexOf", [Value::String(text), Value::String(_), Value::Int(at)]) if *at >= length(text) => {
            Some(Ok(Value::Int(-1)))
        }
        ("charAt", [Value::String(text), Value::Int(at)]) => Some(match at.checked_add(1) {
            Some(end) if *at != length(text) => substring(text, *at, end).map_err(Failure::Error),
            Some(_) => Ok("".into()),
            None => Err(Failure::error(format!("index out of range: {at}"))),
        }),
        _ => None,
    }
}

fn length(text: &str) -> i64 {
    i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
}

fn substring(text: &str, start: i64, end: i64) -> Result<Value, String> {
    if start > end {
        return Err(format!("invalid substring range. start: {start}, end: {end}"));
    }
    let place = |index: i64| {
        let mut places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        let place = usize::try_from(index).ok().and_then(|index| places.nth(index));
        place.ok_or_else(|| format!("index out of range: {index}"))
    };
    Ok(text[place(start)?..place(end)?].into())
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
