//! When what has failed is tried again: after 100 ms, then twice as long each time, up to 30 s. Pure.

use std::{collections::BTreeMap, time::Duration};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// What has failed, by key.
#[derive(Debug)]
pub(crate) struct Retries<K> {
    failed: BTreeMap<K, Failed>,
}

#[derive(Debug)]
struct Failed {
    delay: Duration,
    /// When it is to be tried; none while it is.
    due: Option<Duration>,
}

impl<K> Default for Retries<K> {
    fn default() -> Self {
        Self { failed: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Retries<K> {
    /// It has failed at `now`, a monotonic time.
    pub(crate) fn failed(&mut self, key: K, now: Duration) {
        let entry = self.failed.entry(key).or_insert(Failed { delay: FIRST / 2, due: None });
        entry.delay = (entry.delay * 2).min(LONGEST);
        entry.due = Some(now + entry.delay);
    }

    /// It is to be tried at `at`, though it hasn't failed.
    pub(crate) fn later(&mut self, key: K, at: Duration) {
        let entry = self.failed.entry(key).or_insert(Failed { delay: FIRST / 2, due: None });
        entry.due = Some(entry.due.map_or(at, |due| due.min(at)));
    }

    /// It has succeeded, or doesn't matter any more.
    pub(crate) fn forget(&mut self, key: &K) {
        self.failed.remove(key);
    }

    /// It is to wait.
    pub(crate) fn is_waiting(&self, key: &K) -> bool {
        self.failed.get(key).is_some_and(|failed| failed.due.is_some())
    }

    /// Those whose time has come.
    pub(crate) fn due(&mut self, now: Duration) -> Vec<K> {
        let mut due = Vec::new();
        for (key, failed) in &mut self.failed {
            if failed.due.take_if(|at| *at <= now).is_some() {
                due.push(key.clone());
            }
        }
        due
    }

    /// When the next one's time comes.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.failed.values().filter_map(|failed| failed.due).min()
    }
}

/// Waits until a monotonic time; for ever without one.
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
        for _ in 0..11 {
            retries.failed("a", now);
            assert!(retries.is_waiting(&"a"));
            let next = retries.next().expect("it waits");
            delays.push((next - now).as_millis());
            assert!(retries.due(now).is_empty());
            now = next;
            assert_eq!(retries.due(now), ["a"]);
            assert!(retries.due(now).is_empty(), "once");
        }
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        retries.forget(&"a");
        assert_eq!(retries.next(), None);
    }
}
