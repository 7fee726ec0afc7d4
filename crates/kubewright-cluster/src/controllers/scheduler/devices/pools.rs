//! The pools of devices that a node can use, from ResourceSlices. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::controllers::{
    scheduler::filter,
    value::{flag, int, list, text},
};

/// The identity of a pool: its driver and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PoolId<'a> {
    pub(super) driver: &'a str,
    pub(super) name: &'a str,
}

impl std::fmt::Display for PoolId<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.driver, self.name)
    }
}

/// A pool, as far as a node can use it.
#[derive(Debug, PartialEq)]
pub(super) struct Pool<'a> {
    pub(super) id: PoolId<'a>,
    pub(super) content: Content<'a>,
}

/// What is known about the devices of a pool.
#[derive(Debug, PartialEq)]
pub(super) enum Content<'a> {
    /// Slices with devices for the node, by name.
    Slices(Vec<&'a Value>),
    /// Slices are missing: the driver is replacing them.
    Incomplete,
    /// The slices contradict each other.
    Invalid,
}

/// Returns the pools with devices for a node, in order. Of each pool, the newest generation counts.
pub(super) fn pools<'a>(slices: impl Iterator<Item = &'a Value> + Clone, node: &Value) -> Vec<Pool<'a>> {
    let mut found: BTreeMap<PoolId<'_>, Vec<&Value>> = BTreeMap::new();
    for slice in slices.clone().filter(|slice| is_relevant(slice, node)) {
        let known = found.entry(id(slice)).or_default();
        let newest = known.first().map_or(i64::MIN, |slice| generation(slice));
        if generation(slice) > newest {
            known.clear();
        }
        if generation(slice) >= newest {
            known.push(slice);
        }
    }
    found.into_iter().filter_map(|(id, known)| pool(id, known, slices.clone())).collect()
}

/// Returns a pool with these slices; `None` if a newer generation has no devices for the node.
fn pool<'a>(
    id: PoolId<'a>,
    mut known: Vec<&'a Value>,
    slices: impl Iterator<Item = &'a Value> + Clone,
) -> Option<Pool<'a>> {
    let first = *known.first()?;
    let of_pool = slices.filter(|slice| self::id(slice) == id);
    let is_obsolete = of_pool.clone().any(|slice| generation(slice) > generation(first));
    let total = of_pool.filter(|slice| generation(slice) == generation(first)).count();
    let is_complete = |count: usize| i64::try_from(count) == Ok(int(first, "/spec/pool/resourceSliceCount"));
    if !is_complete(known.len()) && is_obsolete {
        return None;
    }
    known.sort_by_key(|slice| text(slice, "/metadata/name"));
    let mut names = BTreeSet::new();
    let is_unique = known.iter().flat_map(|slice| devices(slice)).all(|device| names.insert(text(device, "/name")));
    let content = match is_complete(known.len()) || is_complete(total) {
        false => Content::Incomplete,
        true if !is_unique => Content::Invalid,
        true => Content::Slices(known),
    };
    Some(Pool { id, content })
}

/// Returns the devices of a slice.
pub(super) fn devices(slice: &Value) -> &[Value] {
    list(slice, "/spec/devices")
}

/// Returns whether each device of a slice names its nodes.
pub(super) fn is_per_device(slice: &Value) -> bool {
    flag(slice, "/spec/perDeviceNodeSelection")
}

/// Returns whether a device or the spec of a slice is for a node.
pub(super) fn is_for(of: &Value, node: &Value) -> bool {
    match text(of, "/nodeName") {
        "" => flag(of, "/allNodes") || of["nodeSelector"].is_object() && filter::satisfies(node, &of["nodeSelector"]),
        name => text(node, "/metadata/name") == name,
    }
}

/// Returns whether a slice has devices for a node, or counters that its pool needs.
fn is_relevant(slice: &Value, node: &Value) -> bool {
    let has_counters = !list(slice, "/spec/sharedCounters").is_empty();
    let has_device = || is_per_device(slice) && devices(slice).iter().any(|device| is_for(device, node));
    has_counters || is_for(&slice["spec"], node) || has_device()
}

fn id(slice: &Value) -> PoolId<'_> {
    PoolId { driver: text(slice, "/spec/driver"), name: text(slice, "/spec/pool/name") }
}

fn generation(slice: &Value) -> i64 {
    int(slice, "/spec/pool/generation")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(name: &str, pool: (i64, i64), of: Value, devices: &[&str]) -> Value {
        let (generation, count) = pool;
        let devices: Vec<_> = devices.iter().map(|name| json!({"name": name})).collect();
        let mut spec = of;
        spec["driver"] = "d.io".into();
        spec["pool"] = json!({"name": "p", "generation": generation, "resourceSliceCount": count});
        spec["devices"] = devices.into();
        json!({"metadata": {"name": name}, "spec": spec})
    }

    /// Checks what a node `a` with the label `disk: ssd` finds.
    #[track_caller]
    fn check(slices: &[Value], expect: &str) {
        let node = json!({"metadata": {"name": "a", "labels": {"disk": "ssd"}}});
        let shown = pools(slices.iter(), &node).into_iter().map(|pool| match pool.content {
            Content::Slices(slices) => slices.iter().map(|slice| text(slice, "/metadata/name")).collect(),
            Content::Incomplete => "incomplete".to_owned(),
            Content::Invalid => "invalid".to_owned(),
        });
        assert_eq!(shown.collect::<Vec<_>>().join(" "), expect);
    }

    #[test]
    fn slices_are_for_nodes() {
        let of = |of: Value| slice("s", (1, 1), of, &["x"]);
        check(&[of(json!({"nodeName": "a"}))], "s");
        check(&[of(json!({"nodeName": "b"}))], "");
        check(&[of(json!({"allNodes": true}))], "s");
        check(&[of(json!({}))], "");
        let selector = |value: &str| {
            let expression = json!({"key": "disk", "operator": "In", "values": [value]});
            json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}})
        };
        check(&[of(selector("ssd"))], "s");
        check(&[of(selector("hdd"))], "");
        let mut each = of(json!({"perDeviceNodeSelection": true}));
        check(&[each.clone()], "");
        each["spec"]["devices"][0]["nodeName"] = "a".into();
        check(&[each], "s");
    }

    #[test]
    fn the_newest_generation_counts_when_it_is_complete() {
        let near = || json!({"nodeName": "a"});
        let old = slice("old", (1, 1), near(), &["x"]);
        check(&[slice("b", (2, 2), near(), &["y"]), old.clone(), slice("a", (2, 2), near(), &["x"])], "ab");
        check(&[old.clone(), slice("a", (2, 2), near(), &["x"])], "incomplete");
        // The other slice of the generation is for another node.
        check(&[slice("a", (2, 2), near(), &["x"]), slice("b", (2, 2), json!({"nodeName": "b"}), &["x"])], "a");
        // A complete pool is used while the next generation begins elsewhere, but not an incomplete one.
        let next = slice("b", (2, 2), json!({"nodeName": "b"}), &["x"]);
        check(&[old, next.clone()], "old");
        check(&[slice("old", (1, 2), near(), &["x"]), next], "");
        check(&[slice("a", (1, 2), near(), &["x"]), slice("b", (1, 2), near(), &["x"])], "invalid");
    }
}
