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
    /// Whether fields may be taken back once more; if so, it counts.
    pub(crate) fn may_take_back(&mut self, now: Duration) -> bool {
        if self.times == 0 || now.saturating_sub(self.since) >= WINDOW {
            *self = Self { times: 0, since: now };
        }
        let may = self.times < LIMIT;
        self.times += u32::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_is_undone_and_a_rival_left_alone() {
        let mut tussle = Tussle::default();
        let at = Duration::from_secs;
        for second in 5..10 {
            assert!(tussle.may_take_back(at(second)));
        }
        assert!(!tussle.may_take_back(at(10)));
        assert!(!tussle.may_take_back(at(604)));
        assert!(tussle.may_take_back(at(605)));
        let taken = (606..7206).filter(|second| tussle.may_take_back(at(*second))).count();
        assert!(taken < 60, "{taken} in two hours");
    }
}
