//! What no operator should do, found without a word from the author. There is one file for each oracle.
//!
//! | name | finds |
//! |---|---|
//! | `always`, `finally`, `until` | a condition of the scenario that doesn't hold |
//! | `step` | a step of the user that the API server refuses |
//! | `panic` | a panic of the operator or the scenario |
//! | `quiet` | a write after faults have stopped and half an hour has passed; and without faults, a change after a restart an hour later |
//! | `hot-loop` | the same request again and again within a minute, more than 100 times in an outage of the API server, or children that are created again and again within ten minutes; not after a restart with an older state |
//! | `rights` | a request that the generated roles don't allow |
//! | `deleted-others` | a deletion of an object that the operator hasn't created, and that none of its objects owns |
//! | `status` | an `observedGeneration`, of a status or a condition, that is newer than the object, or older at rest |
//! | `stale-write` | a write that was decided from a state of the object before the operator's own last write: it takes back what that one has changed, or that one was of an earlier run for the same object |
//! | `doubled-events` | the same normal event within ten seconds; only without faults |
//! | `deadline` | a reconcile that exceeds the timeout of its controller; only if nothing holds up its requests |
//! | `created-twice` | more children at one time than in the run without faults, if it had any |
//! | `orphaned` | more objects at the end than in the run without faults |
//! | `missing` | fewer objects at the end than in the run without faults |
//! | `untrusted` | a process that serves its webhooks with a certificate that a configuration doesn't trust, though the API server could call them before; only with [`Scenario::certificates`](crate::Scenario::certificates) |
//! | `bounds` | a run that doesn't end: 30,000 requests of the operator, or 20,000 changes of the cluster within a second |
//! | `determinism` | two runs with the same seed that differ, and where; only in a search |
//!
//! What was created is compared with the run without faults only if all faults are those of the operator and its
//! connection; only at the end if a finalizer holds the object, or its children are deleted first, when there may also
//! be fewer of them. With faults of the world, if the user creates objects again or changes a status, if finalizers
//! hold children, and if two processes work at the same time, the conditions of the scenario and these comparisons are
//! left out, unless it says that they hold then too ([`Scenario::unconditional`](crate::Scenario::unconditional)). A
//! write at rest isn't one if the user couldn't go on, or if the API server refuses it because of children that were
//! left without an owner.
//!
//! A name is left out by [`Scenario::omit`](crate::Scenario::omit).

mod created_twice;
mod deadline;
mod deleted_others;
mod doubled_events;
mod hot_loop;
mod objects;
mod orphaned;
mod quiet;
mod rights;
mod stale_write;
mod status;
mod untrusted;

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use kubewright_apimachinery::{clock::SharedClock, description::Rule};
use kubewright_apiserver::Change;
use kubewright_cluster::faults::ApiRequest;
use kubewright_runtime::trace::Trace;
use serde::Serialize;

pub(crate) use self::objects::{Calm, Created};
use crate::{certificates::Served, history::Request, world::World};

/// The name of the comparison of two runs.
pub(crate) const DETERMINISM: &str = "determinism";

/// Something that shouldn't have happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The name of the oracle.
    pub oracle: String,
    /// What it has found.
    pub message: String,
}

impl Finding {
    pub(crate) fn new(oracle: &str, message: impl Into<String>) -> Self {
        Self { oracle: oracle.into(), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.message)
    }
}

/// What an oracle sees.
pub(crate) struct Seen<'a> {
    /// The virtual time since the start.
    pub(crate) at: Duration,
    pub(crate) created: &'a Created,
    pub(crate) world: &'a World,
    /// Whether the API server answers no request.
    pub(crate) is_unavailable: bool,
}

/// What the API server has made of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// The status code.
    pub(crate) code: u16,
    /// The version of the object, if the write has changed it.
    pub(crate) version: Option<u64>,
}

/// An oracle for one run. Each method returns what is wrong.
pub(crate) trait Oracle: Send {
    /// Returns the name by which it is left out.
    fn name(&self) -> &'static str;

    /// Returns whether a finding ends the run, because it would take too long.
    fn ends_run(&self) -> bool {
        false
    }

    /// Looks at a request of the operator, before it is executed.
    fn request(&mut self, _request: &Request, _seen: &Seen<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Looks at a request that the API server has executed or refused.
    fn executed(&mut self, _request: &ApiRequest, _answer: Answer, _seen: &Seen<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Looks at a change.
    fn change(&mut self, _change: &Change, _seen: &Seen<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Looks at a reconcile of a process that has ended.
    fn reconciled(&mut self, _process: u64, _trace: &Trace, _seen: &Seen<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Looks at the world when faults have stopped and everything should have been done.
    fn at_rest(&mut self, _seen: &Seen<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Learns that the operator is restarted at rest.
    fn restarted(&mut self) {}

    /// Looks at the world after an hour of rest.
    fn at_end(&mut self, _seen: &Seen<'_>) -> Vec<String> {
        Vec::new()
    }
}

/// The groups and plurals of the kinds that an operator declares.
pub(crate) type Own = BTreeSet<(String, String)>;

/// What the oracles of a run compare it with.
pub(crate) struct Expected<'a> {
    /// What a run without faults has created, if the end of the run can be compared with one.
    pub(crate) calm: Option<&'a Arc<Calm>>,
    /// Whether the whole run can be compared.
    pub(crate) is_comparable: bool,
    pub(crate) own: Arc<Own>,
    /// The rules of the generated roles.
    pub(crate) rules: Arc<Vec<Rule>>,
    /// Whether the run has no fault.
    pub(crate) has_no_fault: bool,
    /// Whether no fault holds up requests.
    pub(crate) is_prompt: bool,
    /// Whether the user leaves children without an owner.
    pub(crate) has_orphans: bool,
    /// Whether the children of an object are deleted before it, also if it stays.
    pub(crate) deletes_children: bool,
    /// Whether changes reach the operator while the API server answers no request, as they do the built-in controllers.
    pub(crate) reads_feed: bool,
    /// The certificates of webhooks, if there are any, and the clock by which these are valid.
    pub(crate) certificates: Option<(Served, SharedClock)>,
}

/// Returns the oracles of a run.
pub(crate) fn all(expected: Expected<'_>) -> Vec<Box<dyn Oracle>> {
    let Expected { calm, is_comparable, own, rules, has_no_fault, is_prompt, .. } = expected;
    let Expected { has_orphans, deletes_children, reads_feed, certificates, .. } = expected;
    let mut oracles: Vec<Box<dyn Oracle>> = vec![
        Box::new(quiet::Quiet::new(!has_orphans)),
        Box::new(hot_loop::HotLoop::new(!reads_feed)),
        Box::new(rights::Rights::new(rules)),
        Box::new(deleted_others::DeletedOthers::new(own.clone())),
        Box::new(stale_write::StaleWrite::default()),
        Box::new(status::Status::new(own)),
    ];
    if has_no_fault {
        oracles.push(Box::new(doubled_events::DoubledEvents::default()));
    }
    if is_prompt {
        oracles.push(Box::new(deadline::Deadline));
    }
    if let Some((served, clock)) = certificates {
        oracles.push(Box::new(untrusted::Untrusted::new(served, clock)));
    }
    if let Some(calm) = calm {
        if is_comparable {
            oracles.push(Box::new(created_twice::CreatedTwice::new(calm.clone())));
        }
        oracles.push(Box::new(orphaned::Orphaned::new(calm.clone())));
        if !deletes_children {
            oracles.push(Box::new(orphaned::Missing::new(calm.clone())));
        }
    }
    oracles
}
