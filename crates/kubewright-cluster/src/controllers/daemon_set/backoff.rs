//! The back-off of failed pods. Pure.
//!
//! The first failed pod of a set on a node is replaced at once, the next one a second after that, and the delay then
//! doubles up to 15 min. It starts over after 30 min without a replacement, and with a new generation of the set. These
//! are the rules of kube-controller-manager, which doesn't keep the delays when it restarts, either.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);
const RESET_AFTER: Duration = Duration::from_secs(30 * 60);

/// A generation of a set on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The UID of the set.
    pub(super) set: String,
    /// The generation that its status describes.
    pub(super) generation: i64,
    /// The name of the node.
    pub(super) node: String,
}

/// The most recent replacement of a failed pod.
#[derive(Debug)]
struct Replacement {
    at: Timestamp,
    /// The delay until the next one.
    delay: Duration,
}

impl Replacement {
    /// Returns the time since the replacement; zero if the clock was set back.
    fn age(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.at)).unwrap_or_default()
    }
}

/// The replacements of failed pods that delay others.
#[derive(Debug, Default)]
pub(super) struct FailedPods(BTreeMap<Place, Replacement>);

impl FailedPods {
    /// Returns the time until a failed pod may be replaced. If it is `None`, the pod is replaced now, which delays the
    /// next one.
    pub(super) fn delay(&mut self, place: Place, now: Timestamp) -> Option<Duration> {
        let before = self.0.get(&place).filter(|before| before.age(now) <= RESET_AFTER);
        let delay = match before {
            Some(before) if before.age(now) < before.delay => return Some(before.delay - before.age(now)),
            Some(before) => (before.delay * 2).min(LONGEST),
            None => FIRST,
        };
        self.0.retain(|_, replacement| replacement.age(now) <= RESET_AFTER);
        self.0.insert(place, Replacement { at: now, delay });
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(generation: i64, node: &str) -> Place {
        Place { set: "s".into(), generation, node: node.into() }
    }

    fn start() -> Timestamp {
        "2024-01-01T00:00:00Z".parse().expect("a time")
    }

    #[test]
    fn delays_double_up_to_fifteen_minutes() {
        let mut failed = FailedPods::default();
        let (mut now, mut delays) = (start(), Vec::new());
        for _ in 0..12 {
            assert_eq!(failed.delay(place(1, "a"), now), None);
            let delay = failed.delay(place(1, "a"), now).expect("the next one waits");
            delays.push(delay.as_secs());
            assert_eq!(
                failed.delay(place(1, "a"), now + delay / 2),
                Some(delay - delay / 2),
                "no failure makes it longer"
            );
            now += delay;
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
    }

    #[test]
    fn nodes_and_generations_wait_for_themselves() {
        let mut failed = FailedPods::default();
        for place in [place(1, "a"), place(1, "b"), place(2, "a")] {
            assert_eq!(failed.delay(place.clone(), start()), None);
            assert_eq!(failed.delay(place, start()), Some(FIRST));
        }
    }

    #[test]
    fn half_an_hour_resets_the_delay() {
        let mut failed = FailedPods::default();
        failed.delay(place(1, "a"), start());
        failed.delay(place(1, "a"), start() + FIRST);
        assert_eq!(failed.delay(place(1, "a"), start() + FIRST), Some(2 * FIRST));
        let later = start() + FIRST + RESET_AFTER + Duration::from_secs(1);
        assert_eq!(failed.delay(place(1, "b"), later), None);
        assert_eq!(failed.0.len(), 1, "old replacements are forgotten");
        assert_eq!(failed.delay(place(1, "a"), later), None);
        assert_eq!(failed.delay(place(1, "a"), later), Some(FIRST));
    }

    #[test]
    fn a_clock_that_is_set_back_delays_no_longer_than_before() {
        let mut failed = FailedPods::default();
        failed.delay(place(1, "a"), start());
        assert_eq!(failed.delay(place(1, "a"), start() - Duration::from_secs(3600)), Some(FIRST));
    }
}
