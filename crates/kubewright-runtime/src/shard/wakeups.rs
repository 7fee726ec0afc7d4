//! Wake-ups of keys of other members: a replica that gets such a key from a source writes it on its own lease, which
//! all members read.
//!
//! Each wake-up has a number. It stays on the lease until all members have listed the leases, and each member handles
//! it once. A state machine without I/O; the time is an argument.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::object::ObjectKey;

/// The maximum number of wake-ups on a lease. More are lost, which is logged.
pub(super) const MAX_WAKEUPS: usize = 256;

/// A key for a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wakeup {
    pub(super) controller: String,
    pub(super) key: ObjectKey,
}

/// The format of a wake-up on a lease.
#[derive(Debug, Serialize, Deserialize)]
struct WakeupFormat<'a> {
    number: u64,
    controller: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<Cow<'a, str>>,
    name: Cow<'a, str>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Wakeups {
    number: u64,
    /// The own wake-ups, in the order of their numbers, with the time until which they stay.
    ours: VecDeque<(u64, Duration, Wakeup)>,
    /// The number of the last wake-up that was handled, by member.
    received: BTreeMap<String, u64>,
}

impl Wakeups {
    /// Adds wake-ups, which stay until `until`. Returns the number of wake-ups that don't fit.
    pub(super) fn add(&mut self, wakeups: Vec<Wakeup>, until: Duration) -> usize {
        let mut lost = 0;
        for wakeup in wakeups {
            if self.ours.len() >= MAX_WAKEUPS {
                lost += 1;
            } else {
                self.number += 1;
                self.ours.push_back((self.number, until, wakeup));
            }
        }
        lost
    }

    /// Returns the text for the lease, if there are any.
    pub(super) fn announcement(&mut self, now: Duration) -> Option<String> {
        self.ours.retain(|(_, until, _)| *until > now);
        let write = |(number, _, wakeup): &'_ (u64, Duration, Wakeup)| {
            let Wakeup { controller, key } = wakeup;
            let (namespace, name) = (key.namespace().map(Into::into), key.name().into());
            serde_json::to_value(WakeupFormat { number: *number, controller: controller.into(), namespace, name })
        };
        let written = self.ours.iter().map(write).collect::<Result<Vec<_>, _>>().ok()?;
        (!written.is_empty()).then(|| serde_json::Value::from(written).to_string())
    }

    /// Reads the text on a member's lease. Returns the new wake-ups.
    pub(super) fn read(&mut self, member: &str, text: &str) -> Vec<Wakeup> {
        // A text that can't be parsed was written by another release.
        let written = serde_json::from_str::<Vec<WakeupFormat<'_>>>(text).unwrap_or_default();
        let received = self.received.entry(member.into()).or_default();
        let new = written.into_iter().filter(|wakeup| wakeup.number > *received).collect::<Vec<_>>();
        *received = new.iter().map(|wakeup| wakeup.number).fold(*received, u64::max);
        let wakeup = |WakeupFormat { controller, namespace, name, .. }: WakeupFormat<'_>| Wakeup {
            controller: controller.into_owned(),
            key: namespace.map_or_else(|| ObjectKey::cluster(&name), |space| ObjectKey::namespaced(&space, &name)),
        };
        new.into_iter().map(wakeup).collect()
    }

    /// Forgets members that have left.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.received.retain(|member, _| is_there(member));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wakeup(name: &str) -> Wakeup {
        Wakeup { controller: "fleet".into(), key: ObjectKey::namespaced("default", name) }
    }

    fn second(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn each_member_handles_a_wakeup_once_until_it_expires() {
        let (mut sender, mut first, mut second_) = (Wakeups::default(), Wakeups::default(), Wakeups::default());
        assert_eq!(sender.announcement(second(0)), None);
        let of_cluster = Wakeup { controller: "node".into(), key: ObjectKey::cluster("n\"1") };
        assert_eq!(sender.add(vec![wakeup("a"), of_cluster.clone()], second(10)), 0);
        let text = sender.announcement(second(1)).unwrap();
        assert_eq!(first.read("sender", &text), [wakeup("a"), of_cluster]);
        assert_eq!(first.read("sender", &text), []);
        sender.add(vec![wakeup("a")], second(12));
        let text = sender.announcement(second(2)).unwrap();
        assert_eq!((first.read("sender", &text), second_.read("sender", &text).len()), (vec![wakeup("a")], 3));
        let text = sender.announcement(second(11)).unwrap();
        assert_eq!(Wakeups::default().read("sender", &text), [wakeup("a")]);
        assert_eq!(sender.announcement(second(12)), None);
        assert_eq!(first.read("other", "nonsense"), []);
    }

    #[test]
    fn a_lease_carries_a_limited_number_of_wakeups() {
        let mut wakeups = Wakeups::default();
        let many = (0..MAX_WAKEUPS + 7).map(|number| wakeup(&number.to_string())).collect();
        assert_eq!(wakeups.add(many, second(10)), 7);
        assert!(wakeups.announcement(second(0)).unwrap().len() < 64 * 1024);
    }
}
