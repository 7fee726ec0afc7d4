//! Leader election: of several replicas, the one that holds a `Lease` works.
//!
//! Two replicas never *believe* to lead at once, as long as their monotonic clocks run at about the same speed; wall
//! clocks may differ at will. What this can't do: stop a write that is under way when leadership is lost (the leader's
//! work is cancelled; what reached the API server before counts), see through a machine that was suspended, or
//! make up for a lease that someone deletes by hand.

pub(crate) mod candidate;
pub(crate) mod desk;
mod election;
pub(crate) mod fence;
#[cfg(test)]
mod tests;

use std::time::Duration;

use kubewright_apimachinery::random::Random;
use thiserror::Error;

pub use self::election::LeaderElection;

/// Which lease to hold, as whom, and at what pace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderOptions {
    /// The namespace of the lease.
    pub namespace: String,
    /// The name of the lease: one per operator.
    pub name: String,
    /// Who we are: unique among the replicas, also across restarts; see [`identity`].
    pub identity: String,
    /// How long after they last saw a renewal others wait before they take over (15 s).
    pub lease_duration: Duration,
    /// How long after its last renewal the leader gives up (10 s). Less than `lease_duration`: the difference is the
    /// time that its work has to stop.
    pub renew_deadline: Duration,
    /// How often to try (2 s, and at random up to a fifth more).
    pub retry_period: Duration,
}

/// A name for this process among the replicas: the host's, and something drawn, since a restarted container keeps its host's.
pub fn identity(random: &Random) -> String {
    format!("{}_{}", crate::args::hostname(), random.uuid())
}

/// Durations that don't fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the lease duration ({lease_duration:?}) must be whole seconds and longer than the renew deadline \
     ({renew_deadline:?}), and that longer than 1.2 times the retry period ({retry_period:?})"
)]
pub struct LeaderOptionsError {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
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

    pub(crate) fn validate(&self) -> Result<(), LeaderOptionsError> {
        let Self { lease_duration, renew_deadline, retry_period, .. } = *self;
        let sound = lease_duration.subsec_nanos() == 0
            && lease_duration > renew_deadline
            && renew_deadline > retry_period.mul_f64(1.2)
            && !retry_period.is_zero();
        sound.then_some(()).ok_or(LeaderOptionsError { lease_duration, renew_deadline, retry_period })
    }
}
