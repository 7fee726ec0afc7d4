//! The counters that the devices of a pool share. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_apimachinery::quantity::Quantity;
use serde_json::Value;

use crate::controllers::value::{list, text};

/// What is left of counters, by the names of their set and of the counter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counters<'a> {
    left: BTreeMap<(&'a str, &'a str), Quantity>,
    /// Whether devices consume more of a counter than there is. Then no further device can be allocated.
    is_exceeded: bool,
}

impl<'a> Counters<'a> {
    /// Returns the counters of slices; `None` if several sets have the same name.
    pub(super) fn of(slices: &[&'a Value]) -> Option<Self> {
        let mut names = BTreeSet::new();
        let mut left = BTreeMap::new();
        for set in slices.iter().flat_map(|slice| list(slice, "/spec/sharedCounters")) {
            let name = text(set, "/name");
            if !names.insert(name) {
                return None;
            }
            left.extend(amounts(set).map(|(counter, amount)| ((name, counter), amount)));
        }
        Some(Self { left, is_exceeded: false })
    }

    /// Returns whether the counters that a device consumes are among these.
    pub(super) fn include(&self, device: &Value) -> bool {
        consumed(device).all(|(counter, _)| self.left.contains_key(&counter))
    }

    /// Returns whether enough is left for a device.
    pub(super) fn suffice_for(&self, device: &Value) -> bool {
        let mut consumed = consumed(device);
        !self.is_exceeded
            && consumed.all(|(counter, amount)| self.left.get(&counter).is_some_and(|left| *left >= amount))
    }

    /// Subtracts what a device consumes.
    pub(super) fn consume(&mut self, device: &'a Value) {
        for (counter, amount) in consumed(device) {
            if let Some(left) = self.left.get_mut(&counter) {
                *left = left.minus(amount);
                self.is_exceeded |= left.is_negative();
            }
        }
    }

    /// Adds what a device has consumed, for which enough was left.
    pub(super) fn release(&mut self, device: &'a Value) {
        for (counter, amount) in consumed(device) {
            if let Some(left) = self.left.get_mut(&counter) {
                *left = left.plus(amount);
            }
        }
    }
}

/// Returns whether a device consumes counters.
pub(super) fn has_counters(device: &Value) -> bool {
    !list(device, "/consumesCounters").is_empty()
}

/// Returns what a device consumes of counters, by the names of their set and of the counter.
fn consumed(device: &Value) -> impl Iterator<Item = ((&str, &str), Quantity)> {
    list(device, "/consumesCounters").iter().flat_map(|consumption| {
        let set = text(consumption, "/counterSet");
        amounts(consumption).map(move |(counter, amount)| ((set, counter), amount))
    })
}

fn amounts(of: &Value) -> impl Iterator<Item = (&str, Quantity)> {
    let counters = of["counters"].as_object().into_iter().flatten();
    counters.map(|(name, counter)| (&**name, Quantity::read(&counter["value"])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn devices_consume_what_is_left() {
        let counters = |set: &str, memory: &str| json!({"name": set, "counters": {"memory": {"value": memory}}});
        let slice = json!({"spec": {"sharedCounters": [counters("a", "4Gi"), counters("b", "1Gi")]}});
        let device = |set: &str, memory: &str| json!({"consumesCounters": [{"counterSet": set, "counters": {"memory": {"value": memory}}}]});
        let (most, too_much) = (device("a", "3Gi"), device("b", "2Gi"));
        let mut left = Counters::of(&[&slice]).expect("two sets");
        assert!(left.include(&device("a", "9Gi")) && !left.include(&device("c", "1Gi")));
        assert!(left.suffice_for(&device("a", "4096Mi")) && !left.suffice_for(&device("a", "5Gi")));
        left.consume(&most);
        assert!(left.suffice_for(&device("a", "1Gi")) && !left.suffice_for(&device("a", "2Gi")));
        left.release(&most);
        assert!(left.suffice_for(&device("a", "4Gi")));
        // More is consumed of one counter than there is now, which others can't change.
        left.consume(&too_much);
        assert!(!left.suffice_for(&device("a", "1Gi")));
        assert_eq!(Counters::of(&[&slice, &slice]), None);
    }
}
