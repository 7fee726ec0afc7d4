//! How fast keys that failed come back, all together: a token bucket. A state machine: the time is passed in.

use std::time::Duration;

/// A bound on how many failed keys of a controller are tried again, beside each key's own backoff: `burst` at once, then so
/// many a second. Go's `DefaultControllerRateLimiter` has 10 a second and a burst of 100; without one there is no such bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// How many a second, in the long run. Not above zero: no bound.
    pub per_second: f64,
    /// How many may come at once.
    pub burst: u32,
}

/// The bucket of a [`RateLimit`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    limit: RateLimit,
    /// How many tokens are left; below zero, how many are promised.
    tokens: f64,
    seen: Duration,
}

impl Bucket {
    pub(super) fn new(limit: RateLimit) -> Self {
        Self { limit, tokens: limit.burst.into(), seen: Duration::ZERO }
    }

    /// Takes a token, and says how long until it is there.
    pub(super) fn reserve(&mut self, now: Duration) -> Duration {
        let RateLimit { per_second, burst } = self.limit;
        if per_second.is_nan() || per_second <= 0.0 {
            return Duration::ZERO;
        }
        let passed = now.saturating_sub(self.seen).as_secs_f64();
        self.seen = self.seen.max(now);
        self.tokens = (self.tokens + passed * per_second).min(burst.into()) - 1.0;
        Duration::try_from_secs_f64(-self.tokens / per_second).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let mut bucket = Bucket::new(RateLimit { per_second: 10.0, burst: 3 });
        let at = Duration::from_secs(5);
        let waits: Vec<_> = (0..5).map(|_| bucket.reserve(at).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        assert_eq!(bucket.reserve(at + Duration::from_secs(60)).as_millis(), 0, "it fills again");
        let waits: Vec<_> = (0..3).map(|_| bucket.reserve(at + Duration::from_secs(60)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 100], "and holds no more than the burst");
    }

    #[test]
    fn a_rate_that_is_none_bounds_nothing() {
        for per_second in [0.0, -1.0, f64::NAN] {
            let mut bucket = Bucket::new(RateLimit { per_second, burst: 0 });
            assert_eq!([0, 0].map(|_| bucket.reserve(Duration::ZERO)), [Duration::ZERO; 2]);
        }
    }
}
