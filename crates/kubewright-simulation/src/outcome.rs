//! The result of a run.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    history::History,
    oracle::{Calm, Finding},
    schedule::Injection,
};

/// The result of a run.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// What shouldn't have happened, in the order in which it was found.
    pub findings: Vec<Finding>,
    /// What happened.
    pub history: History,
    /// The number of the operator's writes, without those of leases.
    pub writes: usize,
    /// The number of events that the operator has received, without bookmarks.
    pub events: usize,
    /// The number of the user's steps.
    pub steps: usize,
    /// The number of reconciles that have ended.
    pub reconciles: usize,
    /// The faults of the schedule that didn't happen, because the run didn't reach their points before faults ended.
    pub unreached: Vec<Injection>,
    pub(crate) calm: Calm,
    /// The states that were reached.
    pub(crate) states: BTreeSet<u64>,
    /// When faults ended, in virtual time since the start; `None` if the run was over before.
    pub(crate) faults_ended: Option<Duration>,
}
