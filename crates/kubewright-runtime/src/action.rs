//! The result of a reconcile: when the key runs next, and how an error is retried.

use std::time::Duration;

use jiff::Timestamp;

/// The result of a successful reconcile: await the next change, or requeue the key at some time (kube: `Action`,
/// controller-runtime: `Result`).
///
/// An event about the object, its children or what it watches wakes the key earlier. The action of that run then
/// replaces this one: a key has at most one pending requeue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Action {
    pub(crate) requeue: Option<Requeue>,
}

/// A requeue that a reconcile asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requeue {
    pub(crate) when: RequeueTime,
    /// The longest random delay in addition.
    pub(crate) jitter: Duration,
    pub(crate) priority: Option<i32>,
}

/// The time of a requeue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequeueTime {
    After(Duration),
    At(Timestamp),
}

impl Action {
    /// Awaits the next event.
    pub const fn await_change() -> Self {
        Self { requeue: None }
    }

    /// Requeues the key after this long, measured on the monotonic clock. Zero requeues it at once, behind the keys
    /// that wait already.
    pub const fn requeue_after(delay: Duration) -> Self {
        Self::requeue(RequeueTime::After(delay), None)
    }

    /// [`Action::requeue_after`] with the priority that the key then waits with, instead of the one of this run. Keys
    /// of higher priority run first; see [`NORMAL_PRIORITY`](crate::queue::NORMAL_PRIORITY) and
    /// [`LOW_PRIORITY`](crate::queue::LOW_PRIORITY). An event that wakes the key earlier has its own priority.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use kubewright_runtime::{action::Action, queue::LOW_PRIORITY};
    /// let refresh = Action::requeue_after_with_priority(Duration::from_secs(600), LOW_PRIORITY);
    /// ```
    pub const fn requeue_after_with_priority(delay: Duration, priority: i32) -> Self {
        Self::requeue(RequeueTime::After(delay), Some(priority))
    }

    /// Requeues the key when the wall clock shows this time, or at once if the time is past.
    ///
    /// The time is compared with the wall clock itself: if that is set forward or back, the requeue follows within ten
    /// seconds. Any timestamp is accepted, however far away.
    pub const fn requeue_at(time: Timestamp) -> Self {
        Self::requeue(RequeueTime::At(time), None)
    }

    /// [`Action::requeue_at`] with a priority, as in [`Action::requeue_after_with_priority`].
    pub const fn requeue_at_with_priority(time: Timestamp, priority: i32) -> Self {
        Self::requeue(RequeueTime::At(time), Some(priority))
    }

    /// Delays the requeue by up to this long in addition, at random. Objects that are reconciled at the same time, as
    /// all are when the program starts, then don't call an external service together again at each period (client-go:
    /// `wait.Jitter`). Without a requeue, it has no effect.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use kubewright_runtime::action::Action;
    /// let refresh = Action::requeue_after(Duration::from_secs(600)).jitter(Duration::from_secs(60));
    /// ```
    pub const fn jitter(self, longest: Duration) -> Self {
        match self.requeue {
            Some(requeue) => Self { requeue: Some(Requeue { jitter: longest, ..requeue }) },
            None => self,
        }
    }

    const fn requeue(when: RequeueTime, priority: Option<i32>) -> Self {
        Self { requeue: Some(Requeue { when, jitter: Duration::ZERO, priority }) }
    }
}

/// The retry after a failed reconcile ([`Reconciler::error_policy`](crate::controller::Reconciler::error_policy)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retry {
    /// Retries with the key's exponential backoff: from 5 ms, doubling to 1000 s, with jitter. A longer `Retry-After`
    /// of the API server is honoured.
    #[default]
    Backoff,
    /// Retries after this long. The key's backoff stays as it is.
    After(Duration),
    /// Doesn't retry: the key runs again when an event wakes it (controller-runtime: `TerminalError`).
    Terminal,
}
