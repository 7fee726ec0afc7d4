//! What may go wrong in a trial.

use std::time::Duration;

use kubewright_cluster::faults::{Fault as Injected, Faults, Verb};

/// A fault. Writes are those of the operator, counted from 0; steps those of the user, `apply`, `edit` and `delete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The operator dies before a write takes effect, and is restarted.
    CrashBefore(usize),
    /// The operator dies after a write took effect, and is restarted.
    CrashAfter(usize),
    /// A write doesn't reach the API server.
    LostRequest(usize),
    /// A write takes effect, and its answer is lost.
    LostAnswer(usize),
    /// A write is answered by 500.
    ServerError(usize),
    /// A write is answered by 409.
    Conflict(usize),
    /// All events of its own kinds reach the operator half a minute late.
    ParentsLate,
    /// All events of built-in kinds reach the operator half a minute late.
    ChildrenLate,
    /// The operator is stopped before a step of the user, and started a minute after it.
    DownAt(usize),
    /// The operator is restarted a while after the last step, and sees its own kinds as they were before this step, for a while.
    ParentsBehind(usize),
    /// The operator is restarted a while after the last step, and sees built-in kinds as they were before this step, for a while.
    ChildrenBehind(usize),
    /// The clock goes back by an hour, a while after the last step, if there is this step.
    ClockBack(usize),
    /// For ten minutes from a step on, all pods fail as soon as they run.
    PodsFail(usize),
}

impl Fault {
    /// The faults of a whole run.
    pub const WHOLE: [Self; 2] = [Self::ParentsLate, Self::ChildrenLate];

    /// The faults at one write.
    pub const AT_WRITES: [fn(usize) -> Self; 6] =
        [Self::CrashBefore, Self::CrashAfter, Self::LostRequest, Self::LostAnswer, Self::ServerError, Self::Conflict];

    /// The faults at one step of the user.
    pub const AT_STEPS: [fn(usize) -> Self; 5] =
        [Self::DownAt, Self::ParentsBehind, Self::ChildrenBehind, Self::ClockBack, Self::PodsFail];

    /// Returns whether the operator dies at a write.
    pub(super) fn is_crash(self) -> bool {
        matches!(self, Self::CrashBefore(_) | Self::CrashAfter(_))
    }

    /// Adds the rule for late events of a resource.
    pub(super) fn delay(self, faults: &Faults, resource: &str, is_built_in: bool) {
        const LATE: Duration = Duration::from_secs(30);
        if (self == Self::ParentsLate && !is_built_in) || (self == Self::ChildrenLate && is_built_in) {
            drop(faults.on(&[Verb::Watch], resource).always().delay(LATE));
        }
    }

    /// Adds the rule for a fault at a write.
    pub(super) fn inject(self, faults: &Faults) -> Option<Injected> {
        let at = |nth: usize| faults.on(Verb::WRITES, "*").skip(nth);
        match self {
            Self::CrashBefore(nth) | Self::LostRequest(nth) => Some(at(nth).lose_request()),
            Self::CrashAfter(nth) | Self::LostAnswer(nth) => Some(at(nth).lose_response()),
            Self::ServerError(nth) => Some(at(nth).refuse(500, "InternalError")),
            Self::Conflict(nth) => Some(at(nth).refuse(409, "Conflict")),
            _ => None,
        }
    }
}
