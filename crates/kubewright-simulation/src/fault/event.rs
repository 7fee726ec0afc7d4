//! Faults at an event that the operator receives.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// How long a delayed event takes: longer than the reconcile that follows a write, and longer than the five seconds
/// after which a cache has to list again.
pub(crate) const DELAY: Duration = Duration::from_secs(10);

/// How long an event is held for one of another watch to overtake it.
pub(crate) const OVERTAKING: Duration = Duration::from_secs(10);

/// A fault at one event of a watch. As with a real API server, no event is left out silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventFault {
    /// The event, and those after it on the same watch, arrive ten seconds later.
    Delayed,
    /// The watch ends before the event. A watch that continues from the last version delivers it.
    Cut,
    /// The watch ends with 410 `Expired` before the event, so that the operator has to list again.
    Expired,
    /// The process dies before it receives the event, and is started again.
    Died,
    /// The event arrives twice.
    Doubled,
    /// The event, and those after it on the same watch, arrive after the next event of another watch, at most ten
    /// seconds later.
    Overtaken,
}

impl EventFault {
    /// All faults at events.
    pub const ALL: [Self; 6] = [Self::Delayed, Self::Died, Self::Expired, Self::Cut, Self::Overtaken, Self::Doubled];
}

impl fmt::Display for EventFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delayed => "it is ten seconds late, as are those after it",
            Self::Cut => "the watch ends before it",
            Self::Expired => "the watch ends with 410 Expired before it",
            Self::Died => "the operator dies before it",
            Self::Doubled => "it arrives twice",
            Self::Overtaken => "the next event of another watch arrives first",
        })
    }
}
