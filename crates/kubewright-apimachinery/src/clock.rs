//! The only module that reads the time (architecture, invariant 3).
//!
//! All other code takes a [`Clock`]. Sleeping is left to tokio (`tokio::time::sleep`), so that a test with a paused
//! runtime advances both together.

#![allow(clippy::disallowed_methods, reason = "this is the one module that may")]

use std::{fmt::Debug, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

/// A source of wall-clock and monotonic time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Returns the wall-clock time, which may jump in either direction.
    fn now(&self) -> Timestamp;

    /// Returns the time since an arbitrary fixed point. It never goes back, and stops while tokio's time is paused.
    fn monotonic(&self) -> Duration;
}

/// A shared clock.
pub type SharedClock = Arc<dyn Clock>;

/// The system clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Returns a shared system clock.
    pub fn shared() -> SharedClock {
        Arc::new(Self { start: Instant::now() })
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that starts at a given time, advances with tokio's time (even if paused), and can jump.
#[derive(Debug)]
pub struct VirtualClock {
    start: Instant,
    wall: Mutex<Timestamp>,
}

impl VirtualClock {
    /// Creates a clock whose current wall-clock time is `start`. Must be called inside the tokio runtime whose time it
    /// follows.
    pub fn starting_at(start: Timestamp) -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), wall: Mutex::new(start) })
    }

    /// Moves the wall-clock time forward or back, as an administrator may. The monotonic time is unaffected.
    pub fn jump(&self, by: SignedDuration) {
        let mut wall = self.wall.lock();
        *wall = wall.saturating_add(by).unwrap_or(*wall);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.monotonic()).unwrap_or(SignedDuration::MAX);
        let wall = *self.wall.lock();
        wall.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}
