//! Calls for keys of other members: a replica that gets such a key from a source writes it on its own lease, which all members read.
//!
//! Each call has a number. It stays on the lease until all members have listed the leases, and each member handles it once. A state
//! machine without I/O; the time is an argument.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::object::ObjectKey;

/// The maximum number of calls on a lease. More calls are lost, which is logged.
pub(super) const MOST_CALLS: usize = 256;

/// A key for a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) controller: String,
    pub(super) key: ObjectKey,
}

/// The format of a call.
#[derive(Debug, Serialize, Deserialize)]
struct Written<'a> {
    number: u64,
    controller: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<Cow<'a, str>>,
    name: Cow<'a, str>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Calls {
    number: u64,
    /// The own calls, in the order of their numbers, with the time until which they stay.
    ours: VecDeque<(u64, Duration, Call)>,
    /// The number of the last call that was handled, by member.
    heard: BTreeMap<String, u64>,
}

impl Calls {
    /// Adds calls, which stay until `until`. Returns the number of calls that don't fit.
    pub(super) fn add(&mut self, calls: Vec<Call>, until: Duration) -> usize {
        let mut lost = 0;
        for call in calls {
            if self.ours.len() >= MOST_CALLS {
                lost += 1;
            } else {
                self.number += 1;
                self.ours.push_back((self.number, until, call));
            }
        }
        lost
    }

    /// Returns the text for the lease, if there are calls.
    pub(super) fn announcement(&mut self, now: Duration) -> Option<String> {
        self.ours.retain(|(_, until, _)| *until > now);
        let write = |(number, _, call): &'_ (u64, Duration, Call)| {
            let Call { controller, key } = call;
            let (namespace, name) = (key.namespace().map(Into::into), key.name().into());
            serde_json::to_value(Written { number: *number, controller: controller.into(), namespace, name })
        };
        let written = self.ours.iter().map(write).collect::<Result<Vec<_>, _>>().ok()?;
        (!written.is_empty()).then(|| serde_json::Value::from(written).to_string())
    }

    /// Reads the text on a member's lease. Returns the new calls.
    pub(super) fn listen(&mut self, member: &str, text: &str) -> Vec<Call> {
        // A text that can't be parsed was written by another release.
        let written = serde_json::from_str::<Vec<Written<'_>>>(text).unwrap_or_default();
        let heard = self.heard.entry(member.into()).or_default();
        let new = written.into_iter().filter(|call| call.number > *heard).collect::<Vec<_>>();
        *heard = new.iter().map(|call| call.number).fold(*heard, u64::max);
        let call = |Written { controller, namespace, name, .. }: Written<'_>| Call {
            controller: controller.into_owned(),
            key: namespace.map_or_else(|| ObjectKey::cluster(&name), |space| ObjectKey::namespaced(&space, &name)),
        };
        new.into_iter().map(call).collect()
    }

    /// Forgets members that have left.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.heard.retain(|member, _| is_there(member));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str) -> Call {
        Call { controller: "fleet".into(), key: ObjectKey::namespaced("default", name) }
    }

    fn second(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn each_member_handles_a_call_once_until_it_expires() {
        let (mut caller, mut first, mut second_) = (Calls::default(), Calls::default(), Calls::default());
        assert_eq!(caller.announcement(second(0)), None);
        let of_cluster = Call { controller: "node".into(), key: ObjectKey::cluster("n\"1") };
        assert_eq!(caller.add(vec![call("a"), of_cluster.clone()], second(10)), 0);
        let text = caller.announcement(second(1)).unwrap();
        assert_eq!(first.listen("caller", &text), [call("a"), of_cluster]);
        assert_eq!(first.listen("caller", &text), []);
        caller.add(vec![call("a")], second(12));
        let text = caller.announcement(second(2)).unwrap();
        assert_eq!((first.listen("caller", &text), second_.listen("caller", &text).len()), (vec![call("a")], 3));
        let text = caller.announcement(second(11)).unwrap();
        assert_eq!(Calls::default().listen("caller", &text), [call("a")]);
        assert_eq!(caller.announcement(second(12)), None);
        assert_eq!(first.listen("other", "nonsense"), []);
    }

    #[test]
    fn a_lease_carries_a_limited_number_of_calls() {
        let mut calls = Calls::default();
        let many = (0..MOST_CALLS + 7).map(|number| call(&number.to_string())).collect();
        assert_eq!(calls.add(many, second(10)), 7);
        assert!(calls.announcement(second(0)).unwrap().len() < 64 * 1024);
    }
}
