//! Faults of the user: what a user may do at an inconvenient moment.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// How long the operator is down after the user's step.
pub(crate) const DOWN: Duration = Duration::from_secs(60);

/// Something that the user does, apart from the steps of the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum UserFault {
    /// The user stops the operator before the step, and starts it a minute after.
    OperatorDown,
    /// The user changes an annotation of the object that the latest step was about.
    Edited,
    /// The user deletes the object that the latest step was about, and creates it again as soon as it is gone.
    Recreated,
}

impl UserFault {
    /// All faults of the user.
    pub const ALL: [Self; 3] = [Self::OperatorDown, Self::Recreated, Self::Edited];
}

impl fmt::Display for UserFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OperatorDown => "the operator is down, until a minute later",
            Self::Edited => "the user changes an annotation of the object of the latest step",
            Self::Recreated => "the user deletes the object of the latest step, and creates it again",
        })
    }
}
