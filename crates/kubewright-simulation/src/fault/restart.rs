//! Restarts with an API server that is behind: the operator sees an older state than before.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// How long watches begin late.
pub(crate) const LAG: Duration = Duration::from_secs(60);

/// A restart of the operator five minutes after a step of the user, at an API server whose cache is behind for some
/// kinds: the first list of each of their resources shows the state before the step, and watches begin a minute late.
/// Other requests aren't affected, nor are lists of one object by its name.
///
/// The runtime lists without a version, which a real API server answers from its newest state; the fault stands for
/// servers that don't. If all kinds are behind alike, the operator sees a state that once existed; therefore only some
/// are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RestartFault {
    /// The kinds that the operator declares are behind.
    OwnKindsBehind,
    /// All other kinds are behind.
    OtherKindsBehind,
}

impl RestartFault {
    /// All restarts.
    pub const ALL: [Self; 2] = [Self::OwnKindsBehind, Self::OtherKindsBehind];
}

impl fmt::Display for RestartFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnKindsBehind => {
                "the operator is restarted five minutes later, and sees its own kinds as before the step"
            }
            Self::OtherKindsBehind => {
                "the operator is restarted five minutes later, and sees the kinds of others as before the step"
            }
        })
    }
}
