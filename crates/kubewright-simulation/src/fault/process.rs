//! Faults of the operator's process at any of its requests, also one that only reads.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// How long a paused process stands still: longer than the deadlines and leases that are common.
pub(crate) const PAUSE: Duration = Duration::from_secs(300);

/// How long two processes work at the same time.
pub(crate) const OVERLAP: Duration = Duration::from_secs(300);

/// How long a member of a group is away, or there.
pub(crate) const MEMBERSHIP: Duration = Duration::from_secs(300);

/// How long the API server answers no request.
pub(crate) const OUTAGE: Duration = Duration::from_secs(300);

/// How long the cache of a replica that takes over is behind: longer than a lease, which lasts 75 seconds in a
/// simulation.
pub(crate) const BEHIND: Duration = Duration::from_secs(150);

/// A fault of the process when it sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProcessFault {
    /// The process is killed before the request reaches the API server, and is started again.
    Killed,
    /// For five minutes, nothing that the process sends reaches the API server, and it receives nothing; then it
    /// continues, as after a suspension of its machine. Its own timers go on meanwhile.
    Paused,
    /// Two processes work at the same time, as in a rolling update of an operator without leader election: another one
    /// is started, and this one is killed five minutes later. Only with one replica.
    Overlapped,
    /// Before a read, the process stands still for five minutes, as with [`Paused`](Self::Paused), while another one is
    /// started. Then both work for five minutes, this one with what it had seen before, and it is killed. Only with one
    /// replica of an operator that works without leader election
    /// ([`Scenario::unconditional`](crate::Scenario::unconditional)).
    Displaced,
    /// For five minutes, the API server answers 503 to all requests of the operator, and its watches end at their next
    /// event.
    ServerUnavailable,
    /// The process is killed before the request reaches the API server, and is started again. Another replica takes
    /// over, whose events arrive two and a half minutes late. Only with several replicas that elect a leader.
    TakenOver,
    /// The process is killed before the request reaches the API server, and is started again five minutes later: the
    /// other members of its group take over its share of the objects, and give it back then. Only with sharding.
    MemberLeft,
    /// Another member of the group is started, takes over a share of the objects, and is killed five minutes later.
    /// Only with sharding.
    MemberJoined,
    /// The process is killed before the request reaches the API server, and the new version of the operator is started.
    /// Only in a scenario with an upgrade.
    Upgraded,
}

impl ProcessFault {
    /// All faults of processes.
    pub const ALL: [Self; 9] = [
        Self::Upgraded,
        Self::TakenOver,
        Self::MemberLeft,
        Self::MemberJoined,
        Self::Overlapped,
        Self::Displaced,
        Self::ServerUnavailable,
        Self::Paused,
        Self::Killed,
    ];

    /// Returns whether two processes work at the same time, of which one may act on an older state.
    pub(crate) fn has_two(self) -> bool {
        matches!(self, Self::Overlapped | Self::Displaced)
    }
}

impl fmt::Display for ProcessFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Killed => "the operator is killed before it",
            Self::Paused => "the operator is paused for five minutes before it",
            Self::Overlapped => "another process is started before it, and both work at the same time",
            Self::Displaced => {
                "the operator stands still for five minutes before it, and goes on beside a process that was started meanwhile"
            }
            Self::ServerUnavailable => "the API server answers 503 to it, and to all requests for five minutes",
            Self::TakenOver => "the operator is killed before it, and a replica whose cache is behind takes over",
            Self::MemberLeft => {
                "the operator is killed before it, and the other members take over its objects for five minutes"
            }
            Self::MemberJoined => "for five minutes, another member takes over a share of the objects",
            Self::Upgraded => "the operator is killed before it, and its new version is started",
        })
    }
}
