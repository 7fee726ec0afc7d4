//! Rate limits as token buckets: of a controller's retries over all keys, and of a client's requests. The time is an
//! argument.

use std::time::Duration;

/// A rate limit of the retries of a controller's failed keys, in addition to each key's own backoff: `burst` retries at
/// once, then `per_second`. Go's `DefaultControllerRateLimiter` has 10 per second and a burst of 100. By default there
/// is no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// The long-term rate in retries per second. Zero or less means no limit.
    pub per_second: f64,
    /// The number of retries that are possible at once.
    pub burst: u32,
}

/// The bucket of a [`RateLimit`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    limit: RateLimit,
    /// The available tokens; if negative, the tokens that are reserved in advance.
    tokens: f64,
    seen: Duration,
}

impl Bucket {
    pub(crate) fn new(limit: RateLimit) -> Self {
        Self { limit, tokens: limit.burst.into(), seen: Duration::ZERO }
    }

    /// Reserves a token, and returns the time until it is available.
    pub(crate) fn reserve(&mut self, now: Duration) -> Duration {
        let RateLimit { per_second, burst } = self.limit;
        if per_second.is_nan() || per_second <= 0.0 {
            return Duration::ZERO;
        }
        let passed = now.saturating_sub(self.seen).as_secs_f64();
        self.seen = self.seen.max(now);
        self.tokens = (self.tokens + passed * per_second).min(burst.into()) - 1.0;
        Duration::try_from_secs_f64(-self.tokens / per_second).unwrap_or_default()
    }

    /// Returns a token that was reserved and isn't used.
    pub(crate) fn give_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(self.limit.burst.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_immediate_and_the_rest_follows_at_the_rate() {
        let mut bucket = Bucket::new(RateLimit { per_second: 10.0, burst: 3 });
        let at = Duration::from_secs(5);
        let waits: Vec<_> = (0..5).map(|_| bucket.reserve(at).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        assert_eq!(bucket.reserve(at + Duration::from_secs(60)).as_millis(), 0, "it fills again");
        let waits: Vec<_> = (0..3).map(|_| bucket.reserve(at + Duration::from_secs(60)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 100], "and holds no more than the burst");
    }

    #[test]
    fn a_rate_of_zero_or_less_means_no_limit() {
        for per_second in [0.0, -1.0, f64::NAN] {
            let mut bucket = Bucket::new(RateLimit { per_second, burst: 0 });
            assert_eq!([0, 0].map(|_| bucket.reserve(Duration::ZERO)), [Duration::ZERO; 2]);
        }
    }
}
