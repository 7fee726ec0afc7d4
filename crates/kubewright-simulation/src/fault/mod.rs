//! What goes wrong, in the form in which Kubernetes shows it. There is one file for each thing that it is done to.

mod event;
mod process;
mod restart;
mod user;
mod world;
mod write;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::{
    event::EventFault, process::ProcessFault, restart::RestartFault, user::UserFault, world::WorldFault,
    write::WriteFault,
};
pub(crate) use self::{
    event::{DELAY, OVERTAKING},
    process::{BEHIND, MEMBERSHIP, OUTAGE, OVERLAP, PAUSE},
    restart::LAG,
    user::{DOWN, FINALIZER, HELD},
    world::{FAILING, FULL, NODELESS, UNAVAILABLE, UNREADY},
    write::{Refusal, TERMINATING, WEBHOOK_UNAVAILABLE},
};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fault {
    /// At a write of the operator.
    Write(WriteFault),
    /// At an event that the operator receives.
    Event(EventFault),
    /// Of the process, at one of its requests.
    Process(ProcessFault),
    /// A restart that sees an older state, after a step of the user.
    Restart(RestartFault),
    /// Of pods and the clock, after a step of the user or before a write of the operator.
    World(WorldFault),
    /// Of the user, at a step or before a write of the operator.
    User(UserFault),
}

impl Fault {
    /// Returns whether the operator has to do the same with the fault as without: it is one of the operator or its
    /// connection, and what was created can be compared with a run without faults. `unconditional` says that it
    /// remembers nothing in a status.
    pub(crate) fn is_comparable(self, unconditional: bool) -> bool {
        match self {
            Self::Write(_) | Self::Event(_) => true,
            Self::Process(fault) => !fault.has_two(),
            Self::User(UserFault::StatusWiped | UserFault::StatusWrong) => unconditional,
            Self::Restart(_) | Self::World(_) | Self::User(_) => false,
        }
    }

    /// Returns whether the same objects have to be there at the end as without the fault, though there may be more for
    /// a time.
    pub(crate) fn ends_alike(self, unconditional: bool) -> bool {
        match self {
            Self::User(UserFault::Held | UserFault::DeletedInForeground) => true,
            Self::User(UserFault::ChildrenHeld) => unconditional,
            Self::Process(fault) if fault.has_two() => unconditional,
            _ => self.is_comparable(unconditional),
        }
    }

    /// Returns whether the conditions of the scenario have to hold with the fault, without a word from the author.
    /// `has_webhooks` says whether the operator has webhooks; then it is one of its own that is unavailable.
    pub(crate) fn keeps_conditions(self, has_webhooks: bool) -> bool {
        match self {
            Self::World(fault) => has_webhooks && fault == WorldFault::WebhookUnavailable,
            Self::User(fault) => {
                matches!(
                    fault,
                    UserFault::OperatorDown | UserFault::Edited | UserFault::Held | UserFault::DeletedInForeground
                )
            }
            Self::Process(fault) => !fault.has_two(),
            Self::Write(_) | Self::Event(_) | Self::Restart(_) => true,
        }
    }

    /// Returns what the fault is done to.
    pub(crate) fn of(self) -> &'static str {
        match self {
            Self::Write(_) => "writes",
            Self::Event(_) => "events",
            Self::Process(_) => "processes",
            Self::Restart(_) => "restarts",
            Self::World(_) => "the world",
            Self::User(_) => "the user",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(fault) => fault.fmt(f),
            Self::Event(fault) => fault.fmt(f),
            Self::Process(fault) => fault.fmt(f),
            Self::Restart(fault) => fault.fmt(f),
            Self::World(fault) => fault.fmt(f),
            Self::User(fault) => fault.fmt(f),
        }
    }
}
