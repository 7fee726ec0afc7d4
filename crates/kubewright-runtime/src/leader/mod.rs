//! Leader election: of several replicas, only the one that holds a `Lease` works.
//!
//! At most one replica considers itself the leader at a time, as long as monotonic clocks run at about the same speed;
//! wall clocks may differ. There are three limits. A write in flight when leadership is lost may still take effect,
//! although the leader's work is cancelled. A machine that was suspended can't notice it. And a lease that someone
//! deletes by hand protects nothing.

pub(crate) mod candidate;
mod election;
pub(crate) mod fence;
pub(crate) mod lease_client;
mod lock;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use kubewright_apimachinery::random::Random;
use thiserror::Error;

pub(crate) use self::lock::AnyLock;
pub use self::{
    election::LeaderElection,
    lock::{Lock, LockError},
};

/// The lease to hold, the identity of this replica, and the durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderOptions {
    /// The namespace of the lease.
    pub namespace: String,
    /// The name of the lease: one per operator.
    pub name: String,
    /// The identity of this replica: unique among the replicas, also across restarts. See [`identity`].
    pub identity: String,
    /// The time after the last observed renewal before other replicas take over. Default: 15 s.
    pub lease_duration: Duration,
    /// The time after its last renewal when the leader gives up. Default: 10 s. It is less than `lease_duration`; the
    /// difference is the time that the leader's work has to stop.
    pub renew_deadline: Duration,
    /// The pause between attempts, to which up to a fifth is added at random. Default: 2 s.
    pub retry_period: Duration,
    /// Labels of the lease, which are set at each renewal. Default: none.
    pub labels: BTreeMap<String, String>,
}

/// Returns an identity for this process: the host's name and a random part, since a restarted container keeps its
/// host's name.
pub fn identity(random: &Random) -> String {
    format!("{}_{}", crate::process::hostname(), random.uuid())
}

/// Durations of leader election that can't work together.
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
    /// Creates options with the durations of controller-runtime.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            labels: BTreeMap::new(),
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
