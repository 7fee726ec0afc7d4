//! How often a field may be taken back from the same hand.
//!
//! Somebody who edits a child by hand finds it restored. Another controller that insists on its value would be met the
//! same way, and the two would write for ever: after a few rounds the other's value is left, and told in a condition.
//!
//! A state machine: monotonic time is passed in.

use std::time::Duration;

/// How many times fields are taken back in one window.
const LIMIT: u32 = 5;
/// How long that is remembered.
const WINDOW: Duration = Duration::from_secs(600);

/// What is remembered of the edits that were undone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tussle {
    times: u32,
    since: Duration,
}

impl Tussle {
    /// Whether fields may be taken back once more.
    pub(crate) fn may_take_back(&self, now: Duration) -> bool {
        self.times < LIMIT || now.saturating_sub(self.since) >= WINDOW
    }

    /// Fields were taken back.
    pub(crate) fn took_back(&mut self, now: Duration) {
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
        let mut tussle = Tussle::default();
        let mut takes = |second: u64| {
            let (now, may) = (Duration::from_secs(second), tussle.may_take_back(Duration::from_secs(second)));
            if may {
                tussle.took_back(now);
            }
            may
        };
        assert!((5..10).all(&mut takes));
        assert!(!takes(10) && !takes(604) && takes(605));
        let taken = (606..7206).filter(|second| takes(*second)).count();
        assert_eq!(taken, 4 + 5 * 10 + 1, "five in ten minutes");
    }
}
