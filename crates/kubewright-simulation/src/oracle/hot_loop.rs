//! The same request again and again.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use kubewright_cluster::faults::ApiRequest;

use super::{Answer, Oracle, Seen};
use crate::history::Request;

/// The time in which requests are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// The number of equal requests in this time that is too many. A back-off that begins with 5 ms and doubles allows 14.
const MOST: usize = 200;
/// The number of equal requests in an outage of the API server, of five minutes, that is too many. Four children at a
/// time with this back-off are 64.
const MOST_IN_OUTAGE: usize = 100;

/// The process, verb, resource and object of a request. Requests with the same key are counted together.
type Key = (u64, String, String, String);

/// Finds more than 200 requests of one process with the same verb for the same object within a minute. Creations with
/// generated names are not counted, since a set of pods needs many of them; but if more than a hundred, and ten times
/// as many as there are at a time, are created within ten minutes, they are replaced as fast as they go. In an outage
/// of the API server, of five minutes, more than 100 equal requests of any kind are found.
///
/// Requests in an outage aren't counted if the operator receives changes meanwhile, as the built-in controllers do:
/// each change is a reason for another try.
pub(super) struct HotLoop {
    counts_outage: bool,
    recent: BTreeMap<Key, VecDeque<Duration>>,
    in_outage: BTreeMap<Key, usize>,
    has_found: bool,
}

impl HotLoop {
    /// Creates the oracle. `counts_outage` tells whether requests in an outage are counted.
    pub(super) fn new(counts_outage: bool) -> Self {
        Self { counts_outage, recent: BTreeMap::new(), in_outage: BTreeMap::new(), has_found: false }
    }
}

impl Oracle for HotLoop {
    fn name(&self) -> &'static str {
        "hot-loop"
    }

    fn ends_run(&self) -> bool {
        true
    }

    fn request(&mut self, request: &Request, seen: &Seen<'_>) -> Vec<String> {
        let key = (request.process, request.verb.clone(), request.resource.clone(), request.object.clone());
        if self.counts_outage && seen.is_unavailable && request.resource != "leases" && !self.has_found {
            let count = self.in_outage.entry(key.clone()).or_default();
            *count += 1;
            if *count > MOST_IN_OUTAGE {
                self.has_found = true;
                let Request { verb, resource, object, .. } = request;
                let requests = format!("{verb} {resource} {object} more than {MOST_IN_OUTAGE} times");
                return vec![format!("{requests} in five minutes in which the API server answers 503")];
            }
        }
        let is_counted = !self.has_found && request.object.contains(|c| c != '/') && request.verb != "watch";
        if !is_counted || (request.verb == "create" && request.object.ends_with('-')) || request.resource == "leases" {
            return Vec::new();
        }
        let recent = self.recent.entry(key).or_default();
        recent.push_back(seen.at);
        while recent.front().is_some_and(|first| seen.at.saturating_sub(*first) > WINDOW) {
            recent.pop_front();
        }
        if recent.len() <= MOST {
            return Vec::new();
        }
        self.has_found = true;
        vec![format!("{} {} {} more than {MOST} times in a minute", request.verb, request.resource, request.object)]
    }

    fn executed(&mut self, _: &ApiRequest, answer: Answer, seen: &Seen<'_>) -> Vec<String> {
        match seen.created.churned() {
            Some(role) if answer.code == 201 && !self.has_found => {
                self.has_found = true;
                vec![format!("{role} are created again and again within ten minutes")]
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{oracle::Created, world::World};

    /// Sends equal requests, one a millisecond, and returns the number of the first with a finding, counted from 0.
    /// `process` returns the process that sends the request with a number.
    fn found(mut oracle: HotLoop, verb: &str, requests: u64, outage: bool, process: fn(u64) -> u64) -> Option<u64> {
        let (created, world) = (Created::default(), World::default());
        (0..requests).find(|&number| {
            let at = Duration::from_millis(number);
            let seen = Seen { at, created: &created, world: &world, is_unavailable: outage };
            let request = Request {
                number,
                process: process(number),
                write: Some(0),
                verb: verb.into(),
                resource: "configmaps".into(),
                object: "default/a".into(),
                body: None,
            };
            !oracle.request(&request, &seen).is_empty()
        })
    }

    #[test]
    fn two_hundred_equal_requests_of_one_process_in_a_minute_are_allowed() {
        assert_eq!(found(HotLoop::new(true), "patch", 1_000, false, |_| 0), Some(200));
        assert_eq!(found(HotLoop::new(true), "watch", 1_000, false, |_| 0), None);
    }

    #[test]
    fn requests_are_counted_by_process() {
        let alternating = |number| number % 2;
        assert_eq!(found(HotLoop::new(true), "patch", 400, false, alternating), None);
        assert_eq!(found(HotLoop::new(true), "patch", 1_000, false, alternating), Some(400));
    }

    #[test]
    fn a_hundred_equal_requests_of_one_process_in_an_outage_are_allowed() {
        assert_eq!(found(HotLoop::new(true), "watch", 1_000, true, |_| 0), Some(100));
        assert_eq!(found(HotLoop::new(true), "watch", 200, true, |number| number % 2), None);
    }

    /// The built-in controllers get changes in an outage. The limit of a minute holds.
    #[test]
    fn requests_in_an_outage_are_not_counted_for_operators_that_receive_changes() {
        assert_eq!(found(HotLoop::new(false), "watch", 1_000, true, |_| 0), None);
        assert_eq!(found(HotLoop::new(false), "patch", 1_000, true, |_| 0), Some(200));
    }
}
