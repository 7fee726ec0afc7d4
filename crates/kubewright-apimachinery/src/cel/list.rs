//! Functions on lists, as cel-go (`ext/lists.go`) and Kubernetes have them.

use std::{cmp::Ordering, sync::Arc};

use kube_cel::cel::Value;

use super::{
    associative::items,
    evaluate::ordering,
    failure::{Evaluated, Failure},
    kind, time,
};

/// Calls one of these functions. `None` if it is another one, or has no overload for these values here.
pub(super) fn call(name: &str, method: bool, values: &[Value]) -> Option<Evaluated> {
    let list = |items: Vec<Value>| Ok(Value::List(Arc::new(items)));
    match (name, values) {
        ("lists.range", [Value::Int(length)]) => Some(list((0..*length).map(Value::Int).collect())),
        ("min", [Value::List(items)]) if method => Some(extreme(items, "min", Ordering::Less)),
        ("max", [Value::List(items)]) if method => Some(extreme(items, "max", Ordering::Greater)),
        ("sum", [Value::List(items)]) if method && matches!(items.first(), Some(Value::Duration(_))) => {
            let mut sum = chrono::TimeDelta::zero();
            for item in items.iter() {
                let Value::Duration(duration) = item else { return Some(Err(Failure::no_such_overload())) };
                match time::checked_duration(sum.checked_add(duration)) {
                    Ok(Value::Duration(next)) => sum = next,
                    other => return Some(other),
                }
            }
            Some(Ok(Value::Duration(sum)))
        }
        ("slice", [Value::List(items), Value::Int(start), Value::Int(end)]) if method => {
            Some(slice(items, *start, *end).map(<[Value]>::to_vec).map_err(Failure::Error).and_then(list))
        }
        ("sort", [Value::List(items)]) if method => Some(sorted(items, items)),
        ("flatten", [Value::List(items)]) if method => Some(list(flat(items, 1))),
        ("flatten", [Value::List(items), Value::Int(depth)]) if method => Some(match u64::try_from(*depth) {
            Ok(depth) => list(flat(items, depth)),
            Err(_) => Err(Failure::error("level must be non-negative")),
        }),
        _ => None,
    }
}

/// Returns the first of the least or greatest items.
fn extreme(items: &[Value], name: &str, wanted: Ordering) -> Evaluated {
    let mut items = items.iter();
    let first = items.next().ok_or_else(|| Failure::error(format!("{name} called on empty list")))?;
    let found =
        items.try_fold(first, |best, item| Ok::<_, Failure>(if ordering(item, best)? == wanted { item } else { best }));
    found.cloned()
}

fn slice(items: &[Value], start: i64, end: i64) -> Result<&[Value], String> {
    let bounds = (usize::try_from(start), usize::try_from(end));
    let (Ok(from), Ok(to)) = bounds else {
        return Err(format!("cannot slice({start}, {end}), negative indexes not supported"));
    };
    if from > to {
        return Err(format!("cannot slice({start}, {end}), start index must be less than or equal to end index"));
    }
    let length = items.len();
    items.get(from..to).ok_or_else(|| format!("cannot slice({start}, {end}), list is length {length}"))
}

/// Returns the items of lists in a list instead of these lists, down to a depth.
fn flat(list: &[Value], depth: u64) -> Vec<Value> {
    let mut flattened = Vec::with_capacity(list.len());
    for item in list {
        match items(item).filter(|_| depth > 0) {
            Some(inner) => flattened.extend(flat(inner, depth - 1)),
            None => flattened.push(item.clone()),
        }
    }
    flattened
}

/// Sorts items by their keys, which must be comparable.
pub(super) fn sorted(items: &[Value], keys: &[Value]) -> Evaluated {
    let of_first = keys.first().map(kind::name);
    let is_comparable = |key: &Value| of_first.as_ref() == Some(&kind::name(key)) && ordering(key, key).is_ok();
    if !keys.iter().all(is_comparable) {
        return Err(Failure::error("list elements must have the same type"));
    }
    let mut pairs: Vec<_> = keys.iter().zip(items).collect();
    pairs.sort_by(|(left, _), (right, _)| ordering(left, right).unwrap_or(Ordering::Equal));
    Ok(Value::List(Arc::new(pairs.into_iter().map(|(_, item)| item.clone()).collect())))
}
