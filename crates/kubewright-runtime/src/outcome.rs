//! What a reconcile answers: when to look again, and what an error means for the next try.

use std::time::Duration;

use jiff::Timestamp;

/// The answer of a successful reconcile: nothing more to do, or when to look again.
///
/// Any event about the object, its children or what it watches wakes it earlier, and the outcome of that run then
/// replaces this one: there is at most one pending wake per key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    pub(crate) wake: Option<Wake>,
    pub(crate) priority: Option<i32>,
}

/// When to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    After(Duration),
    At(Timestamp),
}

impl Outcome {
    /// Nothing to do until the next event.
    pub const fn done() -> Self {
        Self { wake: None, priority: None }
    }

    /// Look again after this long, measured on the monotonic clock. Zero means at once, behind the keys that wait.
    pub const fn after(delay: Duration) -> Self {
        Self { wake: Some(Wake::After(delay)), priority: None }
    }

    /// Look again when the wall clock shows this time, or at once if it is past; `None` is [`Outcome::done`].
    ///
    /// The time is compared with the wall clock itself: if that is set forward or back, the wake follows within ten
    /// seconds. Any timestamp is fine, however far away.
    pub fn at(time: impl Into<Option<Timestamp>>) -> Self {
        Self { wake: time.into().map(Wake::At), priority: None }
    }

    /// The priority with which the key waits then, instead of the one it had for this run: higher ones go first; see
    /// [`NORMAL_PRIORITY`](crate::queue::NORMAL_PRIORITY) and [`LOW_PRIORITY`](crate::queue::LOW_PRIORITY). An event that wakes
    /// it earlier has a priority of its own. Without a time to look again it says nothing.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use kubewright_runtime::{outcome::Outcome, queue::LOW_PRIORITY};
    /// let refresh = Outcome::after(Duration::from_secs(600)).priority(LOW_PRIORITY);
    /// ```
    pub const fn priority(self, priority: i32) -> Self {
        Self { priority: Some(priority), ..self }
    }
}

/// What the runtime does after a failed reconcile ([`crate::controller::Reconciler::retry`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retry {
    /// Try again with the key's exponential backoff: from 5 ms, doubling to 1000 s, with jitter. A longer `Retry-After`
    /// of the API server is honoured.
    #[default]
    Backoff,
    /// Try again after this long. The key's backoff is left as it is.
    After(Duration),
    /// Don't try again until an event wakes the key: only an edit can help.
    Terminal,
}

impl Retry {
    /// [`Retry::After`].
    pub const fn after(delay: Duration) -> Self {
        Self::After(delay)
    }

    /// [`Retry::Terminal`].
    pub const fn terminal() -> Self {
        Self::Terminal
    }
}
