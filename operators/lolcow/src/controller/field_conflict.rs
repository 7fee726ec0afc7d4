//! A limit on how often a field is taken back from another writer.
//!
//! A manual edit of a child is reverted. Another controller that keeps writing its value would be reverted too, and the
//! two would overwrite each other forever. After a few rounds the other value is therefore left in place, and reported
//! in a condition.
//!
//! A state machine: the monotonic time is passed in.

use std::time::Duration;

/// The number of times that fields are taken back in one window.
const LIMIT: u32 = 5;
/// The length of the window.
const WINDOW: Duration = Duration::from_secs(600);

/// The edits that were reverted recently.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TakeBackLimit {
    times: u32,
    since: Duration,
}

impl TakeBackLimit {
    /// Returns whether fields may be taken back again.
    pub(crate) fn is_allowed(&self, now: Duration) -> bool {
        self.times < LIMIT || now.saturating_sub(self.since) >= WINDOW
    }

    /// Records that fields were taken back.
    pub(crate) fn record(&mut self, now: Duration) {
        if self.times == 0 || now.saturating_sub(self.since) >= WINDOW {
            *self = Self { times: 0, since: now };
        }
        self.times += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_is_undone_and_a_rival_left_alone() {
        let mut take_backs = TakeBackLimit::default();
        let mut takes = |second: u64| {
            let (now, may) = (Duration::from_secs(second), take_backs.is_allowed(Duration::from_secs(second)));
            if may {
                take_backs.record(now);
            }
            may
        };
        assert!((5..10).all(&mut takes));
        assert!(!takes(10) && !takes(604) && takes(605));
        let taken = (606..7206).filter(|second| takes(*second)).count();
        assert_eq!(taken, 4 + 5 * 10 + 1, "five in ten minutes");
    }
}
