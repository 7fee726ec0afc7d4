//! Faults of the world around the operator: pods and the clock.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// How long pods fail, from the fault on.
pub(crate) const FAILING: Duration = Duration::from_secs(600);
/// How long pods aren't ready.
pub(crate) const UNREADY: Duration = Duration::from_secs(300);

/// Something that happens to pods or to the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WorldFault {
    /// For ten minutes, all pods fail as soon as they run.
    PodsFail,
    /// The first pod with a controller that runs is evicted, which deletes it.
    PodEvicted,
    /// For five minutes, the pods that run aren't ready.
    PodsUnready,
    /// The clock goes forward by an hour, five minutes after the user's step.
    ClockAhead,
    /// The clock goes back by an hour, five minutes after the user's step.
    ClockBack,
}

impl WorldFault {
    /// All faults of the world.
    pub const ALL: [Self; 5] = [Self::ClockBack, Self::ClockAhead, Self::PodsFail, Self::PodEvicted, Self::PodsUnready];

    /// Returns whether the fault is one of the clock.
    pub(crate) fn is_of_clock(self) -> bool {
        matches!(self, Self::ClockAhead | Self::ClockBack)
    }
}

impl fmt::Display for WorldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PodsFail => "for ten minutes, all pods fail as soon as they run",
            Self::PodEvicted => "a pod is evicted",
            Self::PodsUnready => "for five minutes, the pods that run aren't ready",
            Self::ClockAhead => "the clock goes forward by an hour, five minutes later",
            Self::ClockBack => "the clock goes back by an hour, five minutes later",
        })
    }
}
