//! Groups and versions of the API.

use std::cmp::Reverse;

/// Returns the `apiVersion` of a group and version: `v1` or `apps/v1`.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.into() } else { format!("{group}/{version}") }
}

/// Returns a key that sorts versions by Kubernetes' preference: stable before beta before alpha, newest first within
/// each, followed by all others by name.
pub(crate) fn version_priority(version: &str) -> impl Ord + use<> {
    let parsed = parse_version(version);
    (parsed.is_none(), Reverse(parsed), version.to_owned())
}

/// Parses `v2beta1` as (stability, major, minor).
fn parse_version(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    let (major, suffix) = rest.split_at(end);
    let major = number(major)?;
    if suffix.is_empty() {
        return Some((2, major, 0));
    }
    match suffix.strip_prefix("beta") {
        Some(minor) => Some((1, major, number(minor)?)),
        None => Some((0, major, number(suffix.strip_prefix("alpha")?)?)),
    }
}

fn number(digits: &str) -> Option<u64> {
    (!digits.starts_with('0')).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_kubernetes_prefers_them() {
        let mut versions =
            vec!["foo1", "v3alpha1", "v12alpha1", "v1", "v10", "v2", "v11alpha2", "v11beta2", "v10beta3", "foo10"];
        versions.sort_by_cached_key(|version| version_priority(version));
        let expect = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v12alpha1", "v11alpha2", "v3alpha1", "foo1", "foo10"];
        assert_eq!(versions, expect);
    }
}
