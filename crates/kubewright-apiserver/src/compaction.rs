//! The age of the revisions that lists can read.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

/// The interval at which kube-apiserver compacts etcd (`--etcd-compaction-interval`).
const INTERVAL: Duration = Duration::from_secs(5 * 60);

/// The oldest revision that a list can read, by `resourceVersion` or by a continue token.
///
/// Every five minutes, the revisions before those of the previous time are given up, so that a state which has been
/// replaced can be read for five to ten minutes, as with kube-apiserver. Watches don't depend on it: they begin
/// wherever the history reaches, as with its watch cache.
///
/// No task is needed: the revision changes by requests only, so the first request after the time finds the revision of
/// that time.
#[derive(Debug)]
pub(crate) struct Compaction {
    /// The time of the next compaction in milliseconds of the monotonic clock.
    next: AtomicU64,
    revisions: Mutex<Revisions>,
}

#[derive(Debug, Default)]
struct Revisions {
    /// The oldest revision that can be read.
    oldest: u64,
    /// The revision at the last compaction.
    last: u64,
}

impl Compaction {
    /// Creates the state at a time of the monotonic clock.
    pub(crate) fn new(now: Duration) -> Self {
        Self { next: AtomicU64::new(milliseconds(now + INTERVAL)), revisions: Mutex::default() }
    }

    /// Compacts if it is time to, and returns the oldest revision that can be read then. Each request calls this with
    /// its time before it writes anything.
    pub(crate) fn advance(&self, now: Duration, revision: impl FnOnce() -> u64) -> Option<u64> {
        let now = milliseconds(now);
        if now < self.next.load(Ordering::Relaxed) {
            return None;
        }
        let mut revisions = self.revisions.lock();
        let next = self.next.load(Ordering::Relaxed);
        if now < next {
            return None;
        }
        let interval = milliseconds(INTERVAL);
        let passed = (now - next) / interval + 1;
        let revision = revision();
        revisions.oldest = if passed == 1 { revisions.last } else { revision };
        revisions.last = revision;
        self.next.store(next + passed * interval, Ordering::Relaxed);
        Some(revisions.oldest)
    }

    /// Returns the oldest revision that can be read.
    pub(crate) fn oldest(&self) -> u64 {
        self.revisions.lock().oldest
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_can_be_read_for_five_to_ten_minutes() {
        let at = |seconds: u64| Duration::from_secs(1000 + seconds);
        let compaction = Compaction::new(at(0));
        let check = |seconds, revision, expect| {
            compaction.advance(at(seconds), || revision);
            assert_eq!(compaction.oldest(), expect, "after {seconds} s");
        };
        check(299, 10, 0);
        check(300, 11, 0);
        check(599, 20, 0);
        check(600, 21, 11);
        check(1000, 30, 21);
        // No request came for several intervals, so nothing was written in them.
        check(10_000, 30, 30);
        check(10_199, 40, 30);
        check(10_200, 50, 30);
        check(10_500, 60, 50);
    }
}
