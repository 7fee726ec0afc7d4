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
        Self { wake: None }
    }

    /// Look again after this long, measured on the monotonic clock. Zero means at once, behind the keys that wait.
    pub const fn after(delay: Duration) -> Self {
        Self { wake: Some(Wake::After(delay)) }
    }

    /// Look again when the wall clock shows this time, or at once if it is past; `None` is [`Outcome::done`].
    ///
    /// The time is compared with the wall clock itself: if that is set forward or back, the wake follows within ten
    /// seconds. Any timestamp is fine, however far away.
    pub fn at(time: impl Into<Option<Timestamp>>) -> Self {
        Self { wake: time.into().map(Wake::At) }
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
