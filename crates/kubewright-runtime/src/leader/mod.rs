//! Leader election: of several replicas, the one that holds a `Lease` works.
//!
//! It guarantees that two replicas don't *believe* to lead at once as long as their monotonic clocks run at about the
//! same speed; wall clocks may differ at will. It can't stop a write that is under way when leadership is lost: the
//! leader's work is cancelled, and what reached the API server before counts.

use std::time::Duration;

/// Which lease to hold, as whom, and at what pace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderOptions {
    /// The namespace of the lease.
    pub namespace: String,
    /// The name of the lease: one per operator.
    pub name: String,
    /// Who we are: unique among the replicas, also across restarts.
    pub identity: String,
    /// How long after the last renewal others wait before they take over (15 s).
    pub lease_duration: Duration,
    /// How long after the last renewal the leader gives up (10 s). Less than `lease_duration`: the difference is the
    /// time it has to stop.
    pub renew_deadline: Duration,
    /// How often to try (2 s), with a jitter of a fifth.
    pub retry_period: Duration,
}

impl LeaderOptions {
    /// With the durations of controller-runtime.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}
