//! Debouncing of changes: a burst, such as an editor saving all of its files, results in one build. Pure.

use std::time::Duration;

/// The duration without changes that ends a burst.
const QUIET: Duration = Duration::from_millis(50);

/// The maximum time that a burst delays a build.
const LONGEST: Duration = Duration::from_secs(1);

/// The changes since the last build. Times are monotonic.
#[derive(Debug, Default)]
pub(super) struct Debounce {
    /// The times of the first and the last change.
    burst: Option<(Duration, Duration)>,
}

impl Debounce {
    /// Records a change.
    pub(super) fn note(&mut self, now: Duration) {
        let first = self.burst.map_or(now, |(first, _)| first);
        self.burst = Some((first, now));
    }

    /// Returns the time of the next build, if there was a change.
    pub(super) fn due(&self) -> Option<Duration> {
        self.burst.map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }

    /// Clears the changes, and returns the time of the first one.
    pub(super) fn take(&mut self) -> Option<Duration> {
        self.burst.take().map(|(first, _)| first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(milliseconds: &[u64]) -> Debounce {
        let mut changes = Debounce::default();
        milliseconds.iter().for_each(|at| changes.note(Duration::from_millis(*at)));
        changes
    }

    #[test]
    fn a_build_waits_for_the_end_of_a_burst() {
        let due = |changes: &[u64]| after(changes).due().map(|due| due.as_millis());
        assert_eq!(due(&[]), None);
        assert_eq!(due(&[100]), Some(150));
        assert_eq!(due(&[100, 130, 160]), Some(210));
        let restless: Vec<_> = (100..3000).step_by(30).collect();
        assert_eq!(due(&restless), Some(1100), "a burst that does not end is cut off");
    }

    #[test]
    fn taken_changes_are_cleared() {
        let mut changes = after(&[100, 130]);
        assert_eq!(changes.take(), Some(Duration::from_millis(100)));
        assert_eq!((changes.due(), changes.take()), (None, None));
        changes.note(Duration::from_millis(900));
        assert_eq!(changes.take(), Some(Duration::from_millis(900)));
    }
}
