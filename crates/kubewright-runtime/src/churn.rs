//! How fast the children of one object may be created again.
//!
//! Where children vanish as fast as they appear, because something deletes them or they end at once, replacing them at
//! once loads the API server for ever. An object may replace all its children twice over without waiting, as when a node
//! is drained; after that it waits between rounds, longer each time. A quiet time, or an edit of the spec, forgets it.
//!
//! A state machine: monotonic time is passed in. A reconciler keeps one for each key, in memory: lost with the process, it
//! only makes the next creations faster.

use std::time::Duration;

/// How many replacements are free, beside two for each desired child.
const FREE: usize = 8;
/// The first wait between two rounds; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait between two rounds.
const LONGEST: Duration = Duration::from_secs(300);
/// After this long without a creation all is forgotten. It must be longer than the longest wait.
const QUIET: Duration = Duration::from_secs(600);
/// The wait after the API server has refused a child: for a quota or a role, not for this object, to change.
const REFUSED: Duration = Duration::from_secs(30);

/// What is remembered of the creations for one object.
///
/// ```
/// # use std::time::Duration;
/// # use kubewright_runtime::churn::{Churn, Verdict};
/// let (mut churn, now) = (Churn::default(), Duration::from_secs(1));
/// assert_eq!(churn.verdict(Some(1), 3, now), Verdict::Create);
/// churn.created(3, 3, now);
/// churn.refused("exceeded quota".into(), now);
/// assert!(matches!(churn.verdict(Some(1), 3, now), Verdict::Refused(wait, _) if wait.as_secs() == 30));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Churn {
    edition: Option<i64>,
    created: usize,
    rounds: u32,
    last: Duration,
    refused: Option<(Duration, String)>,
}

/// What to do about missing children.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Create them.
    Create,
    /// They vanish too fast: wait this long.
    Slow(Duration),
    /// The API server refused the last one in these words: wait this long.
    Refused(Duration, String),
}

impl Churn {
    /// Whether children may be created for this edition of what is desired, which is so many of them.
    ///
    /// The edition is the spec's generation, or another number that changes with what the children are made from.
    pub fn verdict(&mut self, edition: Option<i64>, desired: usize, now: Duration) -> Verdict {
        if self.edition != edition || now.saturating_sub(self.last) > QUIET {
            *self = Self { edition, ..Self::default() };
        }
        if let Some((until, message)) = &self.refused
            && *until > now
        {
            return Verdict::Refused(*until - now, message.clone());
        }
        let wait = self.wait(desired);
        match (self.last + wait).saturating_sub(now) {
            Duration::ZERO => Verdict::Create,
            left => Verdict::Slow(left),
        }
    }

    /// How long to wait after the last round.
    fn wait(&self, desired: usize) -> Duration {
        // The first `desired` children replace nothing.
        if self.created < desired.saturating_mul(3).saturating_add(FREE) {
            return Duration::ZERO;
        }
        FIRST.saturating_mul(1 << self.rounds.min(16)).min(LONGEST)
    }

    /// So many children were created, of so many that are desired.
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

    /// The API server refused a child in these words. It is tried again after half a minute.
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

    /// How many children are created in an hour for an object that desires `desired`, and whose children vanish every
    /// `period`.
    fn created_in_an_hour(desired: usize, period: Duration) -> usize {
        let (mut churn, mut now, mut created) = (Churn::default(), seconds(5), 0);
        while now < seconds(3600) {
            if churn.verdict(Some(1), desired, now) == Verdict::Create {
                churn.created(desired, desired, now);
                created += desired;
            }
            now += period;
        }
        created
    }

    #[test]
    fn what_happens_now_and_then_is_not_slowed() {
        assert_eq!(created_in_an_hour(3, seconds(601)), 3 * 6);
        let mut churn = Churn::default();
        for _ in 0..3 {
            assert_eq!(churn.verdict(Some(1), 1000, seconds(1)), Verdict::Create);
            churn.created(1000, 1000, seconds(1));
        }
    }

    /// Row 30 of the faults.
    #[test]
    fn row_30_children_that_vanish_at_once_are_replaced_ever_slower() {
        // 17 in 6 rounds are free, then rounds after 1, 2, 4 … 256 s, then every 300 s.
        let created = created_in_an_hour(3, Duration::from_millis(10));
        assert!((3 * 20..=3 * 28).contains(&created), "{created}");
        assert!(created_in_an_hour(1, Duration::from_millis(10)) < 40);
    }

    #[test]
    fn an_edit_forgets() {
        let mut churn = Churn::default();
        for _ in 0..50 {
            churn.created(1, 1, seconds(1));
        }
        assert!(matches!(churn.verdict(Some(2), 1, seconds(1)), Verdict::Create));
    }

    #[test]
    fn a_refusal_is_tried_again_slowly() {
        let mut churn = Churn::default();
        assert_eq!(churn.verdict(Some(1), 1, seconds(10)), Verdict::Create);
        churn.refused("exceeded quota".into(), seconds(10));
        assert_eq!(churn.verdict(Some(1), 1, seconds(15)), Verdict::Refused(seconds(25), "exceeded quota".into()));
        assert_eq!(churn.verdict(Some(1), 1, seconds(40)), Verdict::Create);
        churn.created(1, 1, seconds(40));
        assert_eq!(churn.verdict(Some(1), 1, seconds(41)), Verdict::Create);
        churn.refused("exceeded quota".into(), seconds(50));
        assert_eq!(churn.verdict(Some(2), 1, seconds(51)), Verdict::Create);
    }
}
