//! Versions of Kubernetes' library (`k8s.io/apiserver/pkg/cel/library/semverlib.go`) that are written in a lax form,
//! and normalized first.

use kube_cel::cel::Value;

use super::{
    failure::{Evaluated, Failure},
    library,
};

/// Calls a function that normalizes its argument. `None` if it is another one.
pub(super) fn call(function: &str, values: &[Value]) -> Option<Evaluated> {
    let ("isSemver" | "semver", [Value::String(text), Value::Bool(true)]) = (function, values) else { return None };
    Some(match normalized(text) {
        Some(text) => library::call(function, false, vec![text.into()]).map_err(Failure::from),
        None if function == "isSemver" => Ok(false.into()),
        None => Err(Failure::error("short version cannot contain PreRelease/Build meta data")),
    })
}

/// Returns a version with three numbers, without `v` and leading zeros. `None` if it has fewer numbers and more than
/// numbers.
fn normalized(text: &str) -> Option<String> {
    let parts: Vec<_> = text.strip_prefix('v').unwrap_or(text).splitn(3, '.').collect();
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return None;
    }
    let mut numbers: Vec<_> = parts.into_iter().map(without_zeros).collect();
    numbers.resize(3, "0".to_owned());
    Some(numbers.join("."))
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|first: char| first.is_ascii_digit()) { rest.to_owned() } else { format!("0{rest}") }
}
