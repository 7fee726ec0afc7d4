//! The back-off of container restarts and image pulls.
//!
//! The kubelet's rule: the first retry is immediate, the next one comes after 10 s, and the delay then doubles up to 5
//! min. After 10 min without a failure the back-off is reset
//! (<https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy>).

use std::time::Duration;

const BASE: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
const RESET_AFTER: Duration = Duration::from_secs(600);

/// The state of a back-off. All times are monotonic and passed in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    /// The delay after the next failure, and the time of the last failure.
    last: Option<(Duration, Duration)>,
}

impl Backoff {
    /// Records a failure at `now`, and returns the delay. The delay after the first failure is `first`.
    fn failed(&mut self, now: Duration, first: Duration) -> Duration {
        let delay = match self.last {
            Some((next, at)) if now.saturating_sub(at) <= RESET_AFTER => next,
            _ => first,
        };
        let next = if delay.is_zero() { BASE } else { (delay * 2).min(LONGEST) };
        self.last = Some((next, now));
        delay
    }

    /// Returns the delay after a container has ended at `now`.
    pub(crate) fn crashed(&mut self, now: Duration) -> Duration {
        self.failed(now, Duration::ZERO)
    }

    /// Returns the delay after a start has failed at `now` for a reason that may disappear, which only another attempt
    /// can show.
    pub(crate) fn refused(&mut self, now: Duration) -> Duration {
        self.failed(now, BASE)
    }
}

/// Formats a duration as in Kubernetes' messages: `10s`, `2m40s`, `5m0s`.
pub(crate) fn written(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_double_up_to_five_minutes() {
        let mut backoff = Backoff::default();
        let mut now = Duration::ZERO;
        let mut delays = Vec::new();
        for _ in 0..8 {
            let delay = backoff.crashed(now);
            delays.push(written(delay));
            now += delay + Duration::from_secs(1);
        }
        assert_eq!(delays, ["0s", "10s", "20s", "40s", "1m20s", "2m40s", "5m0s", "5m0s"]);
    }

    #[test]
    fn ten_good_minutes_reset_the_back_off() {
        let mut backoff = Backoff::default();
        backoff.crashed(Duration::ZERO);
        assert_eq!(backoff.crashed(Duration::from_secs(600)), Duration::from_secs(10));
        assert_eq!(backoff.crashed(Duration::from_secs(1201)), Duration::ZERO);
    }

    #[test]
    fn a_refused_start_waits_at_once() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.refused(Duration::ZERO), Duration::from_secs(10));
        assert_eq!(backoff.refused(Duration::from_secs(10)), Duration::from_secs(20));
    }
}
