//! A backoff for the creation of an object's children.
//!
//! Children may disappear as fast as they are created, because something deletes them or because they fail at once.
//! Replacing them without a pause would load the API server for as long as that lasts. With this backoff an object
//! replaces all its children twice without waiting, as when a node is drained; then it waits between rounds of
//! creations, twice as long each time. Ten minutes without a creation, or a change of the spec, reset it.
//!
//! It is a state machine: monotonic time is passed in. A reconciler keeps one per key in memory. Losing it with the
//! process only makes the next creations faster.

use std::time::Duration;

/// The replacements without a wait, in addition to two for each desired child.
const FREE: usize = 8;
/// The first wait between two rounds. Each further wait is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait between two rounds.
const LONGEST: Duration = Duration::from_secs(300);
/// The time without a creation that resets the backoff. It must be longer than the longest wait.
const QUIET: Duration = Duration::from_secs(600);
/// The wait after the API server has refused a child: the quota or role that must change is not this object's.
const REFUSED: Duration = Duration::from_secs(30);

/// The backoff of the creations for one object.
///
/// ```
/// # use std::time::Duration;
/// # use kubewright_runtime::create_backoff::{CreateBackoff, Decision};
/// let (mut backoff, now) = (CreateBackoff::default(), Duration::from_secs(1));
/// assert_eq!(backoff.decide(Some(1), 3, now), Decision::Create);
/// backoff.created(3, 3, now);
/// backoff.refused("exceeded quota".into(), now);
/// assert!(matches!(backoff.decide(Some(1), 3, now), Decision::Refused(wait, _) if wait.as_secs() == 30));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CreateBackoff {
    edition: Option<i64>,
    created: usize,
    rounds: u32,
    last: Duration,
    refused: Option<(Duration, String)>,
}

/// The decision whether missing children are created now.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Create them.
    Create,
    /// Wait this long: children disappear too fast.
    Slow(Duration),
    /// Wait this long: the API server refused the last child with this message.
    Refused(Duration, String),
}

impl CreateBackoff {
    /// Decides whether missing children may be created now.
    ///
    /// `edition` is the generation of the spec, or another number that changes with the template of the children.
    /// `desired` is the number of children that the spec asks for.
    pub fn decide(&mut self, edition: Option<i64>, desired: usize, now: Duration) -> Decision {
        if self.edition != edition || now.saturating_sub(self.last) > QUIET {
            *self = Self { edition, ..Self::default() };
        }
        if let Some((until, message)) = &self.refused
            && *until > now
        {
            return Decision::Refused(*until - now, message.clone());
        }
        let wait = self.wait(desired);
        match (self.last + wait).saturating_sub(now) {
            Duration::ZERO => Decision::Create,
            left => Decision::Slow(left),
        }
    }

    /// The wait after the last round.
    fn wait(&self, desired: usize) -> Duration {
        // The first `desired` children replace nothing.
        if self.created < desired.saturating_mul(3).saturating_add(FREE) {
            return Duration::ZERO;
        }
        FIRST.saturating_mul(1 << self.rounds.min(16)).min(LONGEST)
    }

    /// Records that `count` children were created.
    pub fn created(&mut self, count: usize, desired: usize, now: Duration) {
        if count == 0 {
            return;
        }
        if !self.wait(desired).is_zero() {
            self.rounds += 1;
        }
        self.created = self.created.saturating_add(count);
        self.last = now;
        self.refused = None;
    }

    /// Records that the API server refused a child with this message. The next creation may follow after 30 s.
    pub fn refused(&mut self, message: String, now: Duration) {
        self.last = now;
        self.refused = Some((now + REFUSED, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The number of children created in an hour for an object of `desired` children that disappear every `period`.
    fn created_in_an_hour(desired: usize, period: Duration) -> usize {
        let (mut backoff, mut now, mut created) = (CreateBackoff::default(), seconds(5), 0);
        while now < seconds(3600) {
            if backoff.decide(Some(1), desired, now) == Decision::Create {
                backoff.created(desired, desired, now);
                created += desired;
            }
            now += period;
        }
        created
    }

    #[test]
    fn occasional_replacements_are_not_slowed() {
        assert_eq!(created_in_an_hour(3, seconds(601)), 3 * 6);
        let mut backoff = CreateBackoff::default();
        for _ in 0..3 {
            assert_eq!(backoff.decide(Some(1), 1000, seconds(1)), Decision::Create);
            backoff.created(1000, 1000, seconds(1));
        }
    }

    #[test]
    fn children_that_disappear_at_once_are_replaced_with_growing_delays() {
        // 17 in 6 rounds are free, then rounds after 1, 2, 4 … 256 s, then every 300 s.
        let created = created_in_an_hour(3, Duration::from_millis(10));
        assert!((3 * 20..=3 * 28).contains(&created), "{created}");
        assert!(created_in_an_hour(1, Duration::from_millis(10)) < 40);
    }

    #[test]
    fn a_change_of_the_spec_resets_the_backoff() {
        let mut backoff = CreateBackoff::default();
        for _ in 0..50 {
            backoff.created(1, 1, seconds(1));
        }
        assert!(matches!(backoff.decide(Some(2), 1, seconds(1)), Decision::Create));
    }

    #[test]
    fn a_refused_creation_is_retried_after_half_a_minute() {
        let mut backoff = CreateBackoff::default();
        assert_eq!(backoff.decide(Some(1), 1, seconds(10)), Decision::Create);
        backoff.refused("exceeded quota".into(), seconds(10));
        assert_eq!(backoff.decide(Some(1), 1, seconds(15)), Decision::Refused(seconds(25), "exceeded quota".into()));
        assert_eq!(backoff.decide(Some(1), 1, seconds(40)), Decision::Create);
        backoff.created(1, 1, seconds(40));
        assert_eq!(backoff.decide(Some(1), 1, seconds(41)), Decision::Create);
        backoff.refused("exceeded quota".into(), seconds(50));
        assert_eq!(backoff.decide(Some(2), 1, seconds(51)), Decision::Create);
    }
}
