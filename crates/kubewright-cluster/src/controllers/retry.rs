//! Retries with exponential back-off: from 5 ms, doubling up to 1,000 s, as client-go's queues have it. Pure.

use std::{collections::BTreeMap, time::Duration};

const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(1000);

/// The pauses of a controller after failures. Each is twice the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// The first pause.
    pub(crate) first: Duration,
    /// The longest pause.
    pub(crate) longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: FIRST, longest: LONGEST }
    }
}

/// The keys that have failed.
#[derive(Debug)]
pub(crate) struct Retries<K> {
    failed: BTreeMap<K, RetryState>,
    backoff: Backoff,
}

#[derive(Debug)]
struct RetryState {
    delay: Duration,
    /// The monotonic time of the next attempt; `None` while an attempt is in progress.
    due: Option<Duration>,
}

impl<K> Default for Retries<K> {
    fn default() -> Self {
        Self::with(Backoff::default())
    }
}

impl<K> Retries<K> {
    /// Creates an empty set with other pauses.
    pub(crate) fn with(backoff: Backoff) -> Self {
        Self { failed: BTreeMap::new(), backoff }
    }

    /// Creates an empty set with another longest pause.
    pub(crate) fn up_to(longest: Duration) -> Self {
        Self::with(Backoff { longest, ..Backoff::default() })
    }
}

impl<K: Ord + Clone> Retries<K> {
    /// Records a failure at `now`, a monotonic time.
    pub(crate) fn failed(&mut self, key: K, now: Duration) {
        self.fail(key, now, self.backoff.first);
    }

    /// Records a failure at `now` of a plan that was outdated: an object has changed or is gone. The first pause is
    /// short then.
    pub(crate) fn outdated(&mut self, key: K, now: Duration) {
        self.fail(key, now, FIRST);
    }

    fn fail(&mut self, key: K, now: Duration, first: Duration) {
        let entry = self.failed.entry(key).or_insert(RetryState { delay: FIRST / 2, due: None });
        entry.delay = (entry.delay * 2).max(first).min(self.backoff.longest);
        entry.due = Some(now + entry.delay);
    }

    /// Schedules an attempt at `at` that doesn't follow a failure.
    pub(crate) fn later(&mut self, key: K, at: Duration) {
        let entry = self.failed.entry(key).or_insert(RetryState { delay: FIRST / 2, due: None });
        entry.due = Some(entry.due.map_or(at, |due| due.min(at)));
    }

    /// Removes a key that has succeeded or is obsolete.
    pub(crate) fn forget(&mut self, key: &K) {
        self.failed.remove(key);
    }

    /// Returns whether a key waits for its next attempt.
    pub(crate) fn is_waiting(&self, key: &K) -> bool {
        self.failed.get(key).is_some_and(|failed| failed.due.is_some())
    }

    /// Returns the keys whose next attempt is due.
    pub(crate) fn due(&mut self, now: Duration) -> Vec<K> {
        let mut due = Vec::new();
        for (key, failed) in &mut self.failed {
            if failed.due.take_if(|at| *at <= now).is_some() {
                due.push(key.clone());
            }
        }
        due
    }

    /// Returns the time at which the next key is due.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.failed.values().filter_map(|failed| failed.due).min()
    }
}

/// Waits until a monotonic time, or forever if it is `None`.
pub(crate) async fn until(at: Option<Duration>, now: Duration) {
    match at {
        Some(at) => tokio::time::sleep(at.saturating_sub(now)).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double() {
        let mut retries = Retries::default();
        let mut now = Duration::ZERO;
        let mut delays = Vec::new();
        for _ in 0..20 {
            retries.failed("a", now);
            assert!(retries.is_waiting(&"a"));
            let next = retries.next().expect("it waits");
            delays.push((next - now).as_millis());
            assert!(retries.due(now).is_empty());
            now = next;
            assert_eq!(retries.due(now), ["a"]);
            assert!(retries.due(now).is_empty(), "once");
        }
        let expect = (0..18).map(|power| 5 << power).chain([1_000_000, 1_000_000]);
        assert_eq!(delays, expect.collect::<Vec<_>>());
        retries.forget(&"a");
        assert_eq!(retries.next(), None);
    }

    #[test]
    fn a_controller_has_its_own_first_and_longest_pause() {
        let second = Duration::from_secs(1);
        let mut retries = Retries::with(Backoff { first: second, longest: 60 * second });
        let mut pauses = Vec::new();
        retries.outdated("a", Duration::ZERO);
        pauses.extend(retries.next());
        for _ in 0..8 {
            retries.failed("a", Duration::ZERO);
            pauses.extend(retries.next());
        }
        let expect = [1, 2, 4, 8, 16, 32, 60, 60].map(|seconds| seconds * second);
        assert_eq!((pauses[0], &pauses[1..]), (FIRST, &expect[..]));
    }
}
