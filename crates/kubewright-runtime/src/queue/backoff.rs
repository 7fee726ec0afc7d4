//! The backoff of failed keys.

use std::time::Duration;

/// Exponential delays with an upper bound and jitter, so that keys that failed together are not retried together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub first: Duration,
    /// The longest delay.
    pub longest: Duration,
}

/// From 5 ms, doubling, to 1000 s, as in Kubernetes' own controllers.
impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(5), longest: Duration::from_secs(1000) }
    }
}

impl Backoff {
    /// Returns the delay after `failures` earlier failures, of which `fraction`, from 0 to 1, takes off up to a
    /// quarter.
    pub fn delay(&self, failures: u32, fraction: f64) -> Duration {
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        let full = self.first.saturating_mul(factor).min(self.longest);
        full.mul_f64(1.0 - 0.25 * fraction.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_bound_and_have_jitter() {
        let backoff = Backoff::default();
        let millis = |failures, fraction| backoff.delay(failures, fraction).as_millis();
        assert_eq!([0, 1, 2, 10].map(|failures| millis(failures, 0.0)), [5, 10, 20, 5120]);
        assert_eq!(
            [17, 18, 31, 32, u32::MAX].map(|failures| millis(failures, 0.0)),
            [655_360, 1_000_000, 1_000_000, 1_000_000, 1_000_000]
        );
        assert_eq!(millis(18, 1.0), 750_000);
    }
}
