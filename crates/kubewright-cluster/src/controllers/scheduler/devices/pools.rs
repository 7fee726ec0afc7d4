//! The pools of devices that a node can use, from ResourceSlices. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::counters::Counters;
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
    /// Devices that can be allocated.
    Usable(Usable<'a>),
    /// Slices are missing: the driver is replacing them.
    Incomplete,
    /// The slices contradict each other.
    Invalid,
}

/// The devices of a pool, and the counters that they share.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Usable<'a> {
    /// The slices with devices for the node, by name.
    pub(super) for_node: Vec<&'a Value>,
    /// The slices for other nodes, if those for the node are not the whole pool. Their devices consume counters, too.
    pub(super) for_others: Vec<&'a Value>,
    /// The counters, as if no device were allocated.
    pub(super) counters: Counters<'a>,
}

/// Returns the pools with devices for a node, in order: those whose devices have conditions are the last. Of each pool,
/// the newest generation counts.
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
    let pools = found.into_iter().filter_map(|(id, known)| pool(id, known, slices.clone()));
    let (last, mut first): (Vec<_>, Vec<_>) = pools.partition(has_conditions);
    first.extend(last);
    first
}

fn has_conditions(pool: &Pool<'_>) -> bool {
    let Content::Usable(Usable { for_node, .. }) = &pool.content else { return false };
    for_node.iter().flat_map(|slice| devices(slice)).any(|device| !list(device, "/bindingConditions").is_empty())
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
    let is_complete = |count: usize| i64::try_from(count) == Ok(int(first, "/spec/pool/resourceSliceCount"));
    known.sort_by_key(|slice| name(slice));
    let content = if is_complete(known.len()) {
        usable(&known, Vec::new())
    } else if is_obsolete {
        return None;
    } else {
        let names: BTreeSet<_> = known.iter().map(|slice| name(slice)).collect();
        let current = of_pool.filter(|slice| generation(slice) == generation(first));
        let others: Vec<_> = current.filter(|slice| !names.contains(name(slice))).collect();
        if is_complete(known.len() + others.len()) { usable(&known, others) } else { Some(Content::Incomplete) }
    };
    Some(Pool { id, content: content.unwrap_or(Content::Invalid) })
}

/// Returns the content of a pool with these slices; `None` if they contradict each other.
fn usable<'a>(known: &[&'a Value], for_others: Vec<&'a Value>) -> Option<Content<'a>> {
    let (sets, for_node): (Vec<_>, Vec<_>) = known.iter().copied().partition(|slice| has_shared_counters(slice));
    let counters = Counters::of(&sets)?;
    let mut names = BTreeSet::new();
    let is_unique = for_node.iter().flat_map(|slice| devices(slice)).all(|device| names.insert(text(device, "/name")));
    let mut consumers = known.iter().chain(&for_others).flat_map(|slice| devices(slice));
    (is_unique && consumers.all(|device| counters.include(device))).then_some(Content::Usable(Usable {
        for_node,
        for_others,
        counters,
    }))
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
    let has_device = || is_per_device(slice) && devices(slice).iter().any(|device| is_for(device, node));
    has_shared_counters(slice) || is_for(&slice["spec"], node) || has_device()
}

fn has_shared_counters(slice: &Value) -> bool {
    !list(slice, "/spec/sharedCounters").is_empty()
}

fn name(slice: &Value) -> &str {
    text(slice, "/metadata/name")
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
            Content::Usable(Usable { for_node, for_others, .. }) => {
                let names = |slices: Vec<&Value>| slices.iter().map(|slice| name(slice)).collect();
                let (near, far): (String, String) = (names(for_node), names(for_others));
                if far.is_empty() { near } else { format!("{near}({far})") }
            }
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
        check(&[slice("a", (2, 2), near(), &["x"]), slice("b", (2, 2), json!({"nodeName": "b"}), &["x"])], "a(b)");
        // A complete pool is used while the next generation begins elsewhere, but not an incomplete one.
        let next = slice("b", (2, 2), json!({"nodeName": "b"}), &["x"]);
        check(&[old, next.clone()], "old");
        check(&[slice("old", (1, 2), near(), &["x"]), next], "");
        check(&[slice("a", (1, 2), near(), &["x"]), slice("b", (1, 2), near(), &["x"])], "invalid");
    }

    #[test]
    fn devices_consume_counters_that_there_are() {
        let near = || json!({"nodeName": "a"});
        let sets = |name: &str, count: i64| {
            let set = json!({"name": "s", "counters": {"memory": {"value": "1Gi"}}});
            slice(name, (1, count), json!({"nodeName": "b", "sharedCounters": [set]}), &[])
        };
        let consuming = |name: &str, of: Value, count: i64, counter: &str| {
            let mut slice = slice(name, (1, count), of, &[name]);
            let consumption = json!({"counterSet": "s", "counters": {counter: {"value": "1"}}});
            slice["spec"]["devices"][0]["consumesCounters"] = json!([consumption]);
            slice
        };
        check(&[sets("s", 2), consuming("x", near(), 2, "memory")], "x");
        check(&[sets("s", 2), consuming("x", near(), 2, "cores")], "invalid");
        check(&[sets("s", 2), sets("t", 2)], "invalid");
        let far = |counter: &str| consuming("y", json!({"nodeName": "b"}), 3, counter);
        check(&[sets("s", 3), consuming("x", near(), 3, "memory"), far("memory")], "x(y)");
        check(&[sets("s", 3), consuming("x", near(), 3, "memory"), far("cores")], "invalid");
        check(&[consuming("x", near(), 2, "memory")], "incomplete");
    }
}
