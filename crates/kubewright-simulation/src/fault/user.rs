//! Faults of the user: what a user may do at an inconvenient moment.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// How long the operator is down after the user's step.
pub(crate) const DOWN: Duration = Duration::from_secs(60);

/// How long a finalizer holds an object that is being deleted.
pub(crate) const HELD: Duration = Duration::from_secs(600);
/// The finalizer.
pub(crate) const FINALIZER: &str = "simulation.kubewright.dev/hold";

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
    /// The user removes the status of the object that the latest step was about.
    StatusWiped,
    /// The user writes a wrong status of the object that the latest step was about: all numbers but
    /// `observedGeneration` are larger by one, and conditions that were true are false, and the other way round.
    StatusWrong,
    /// Another client adds a finalizer to the object that the latest step was about. It removes it ten minutes after
    /// the object is deleted.
    Held,
    /// The same with the objects that the operator has created for it: those whose controller it is.
    ChildrenHeld,
    /// The deletion, if the step is one, is one in the foreground: the children go first.
    DeletedInForeground,
    /// The deletion, if the step is one, leaves the children without an owner, as `kubectl delete --cascade=orphan`
    /// does. No condition of the scenario has to hold then, and nothing can be compared with a run without faults.
    ChildrenOrphaned,
}

impl UserFault {
    /// All faults of the user.
    pub const ALL: [Self; 9] = [
        Self::OperatorDown,
        Self::Recreated,
        Self::Edited,
        Self::StatusWiped,
        Self::StatusWrong,
        Self::Held,
        Self::ChildrenHeld,
        Self::DeletedInForeground,
        Self::ChildrenOrphaned,
    ];

    /// Returns whether the fault is the policy of a deletion.
    pub(crate) fn is_of_deletion(self) -> bool {
        matches!(self, Self::DeletedInForeground | Self::ChildrenOrphaned)
    }

    /// Returns whether an object is held for a time.
    pub(crate) fn holds(self) -> bool {
        matches!(self, Self::Held | Self::ChildrenHeld)
    }
}

impl fmt::Display for UserFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OperatorDown => "the operator is down, until a minute later",
            Self::Edited => "the user changes an annotation of the object of the latest step",
            Self::Recreated => "the user deletes the object of the latest step, and creates it again",
            Self::StatusWiped => "the user removes the status of the object of the latest step",
            Self::StatusWrong => "the user writes a wrong status of the object of the latest step",
            Self::Held => "another client's finalizer holds the object of the latest step for ten minutes, when it is deleted",
            Self::ChildrenHeld => "another client's finalizer holds the children of the object of the latest step for ten minutes, when they are deleted",
            Self::DeletedInForeground => "the children are deleted before the object",
            Self::ChildrenOrphaned => "the children of the object are left without an owner",
        })
    }
}
