//! What the kubelet counts of the probes of containers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::pod::probe::{ProbeResult, ProbeType};

/// The upper bounds of the buckets of durations, in seconds: the defaults of Prometheus.
pub(crate) const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The probes of the containers of a node. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeCounts(Arc<Mutex<BTreeMap<Probed, Counts>>>);

/// A probe of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Probed {
    pub(crate) container: String,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    /// The type, as the kubelet's metrics name it.
    pub(crate) kind: &'static str,
}

/// The executions of a probe.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Their numbers, by result.
    pub(crate) results: BTreeMap<&'static str, u64>,
    /// How many of those that didn't fail took at most as long as each bound.
    pub(crate) buckets: [u64; BOUNDS.len()],
    /// How many didn't fail, and how many seconds they took.
    pub(crate) durations: (u64, f64),
}

impl ProbeCounts {
    /// Counts an execution.
    pub(crate) fn add(&self, probed: Probed, result: &ProbeResult, took: Duration) {
        let name = match result {
            ProbeResult::Success | ProbeResult::Warning(_) => "successful",
            ProbeResult::Failure(_) => "failed",
            ProbeResult::Unknown(_) => "unknown",
        };
        let mut all = self.0.lock();
        let counts = all.entry(probed).or_default();
        *counts.results.entry(name).or_default() += 1;
        if name != "failed" {
            let seconds = took.as_secs_f64();
            counts.durations = (counts.durations.0 + 1, counts.durations.1 + seconds);
            let reached = counts.buckets.iter_mut().zip(BOUNDS).filter(|(_, bound)| seconds <= *bound);
            reached.for_each(|(count, _)| *count += 1);
        }
    }

    /// Forgets the probes of a pod that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().retain(|probed, _| probed.uid != uid);
    }

    /// Returns the executions of all probes.
    pub(crate) fn all(&self) -> BTreeMap<Probed, Counts> {
        self.0.lock().clone()
    }
}

/// Returns the name of a probe type in metrics.
pub(crate) fn name_of(kind: ProbeType) -> &'static str {
    match kind {
        ProbeType::Startup => "Startup",
        ProbeType::Liveness => "Liveness",
        ProbeType::Readiness => "Readiness",
    }
}
