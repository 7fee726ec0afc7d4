//! When changes are acted on: not at the first of a burst, as an editor that saves all its files makes one. Pure.

use std::time::Duration;

/// A burst is over when nothing has changed for so long.
const QUIET: Duration = Duration::from_millis(50);

/// What never is quiet is acted on after so long.
const LONGEST: Duration = Duration::from_secs(1);

/// The changes that nothing has been done about yet. Times are those of a clock's monotonic time.
#[derive(Debug, Default)]
pub(super) struct Debounce {
    /// The first and the last of them.
    burst: Option<(Duration, Duration)>,
}

impl Debounce {
    /// Something has changed.
    pub(super) fn note(&mut self, now: Duration) {
        let first = self.burst.map_or(now, |(first, _)| first);
        self.burst = Some((first, now));
    }

    /// When something is to be done.
    pub(super) fn due(&self) -> Option<Duration> {
        self.burst.map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }

    /// What there is is acted on; when the first of it came.
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
    fn a_burst_is_waited_for() {
        let due = |changes: &[u64]| after(changes).due().map(|due| due.as_millis());
        assert_eq!(due(&[]), None);
        assert_eq!(due(&[100]), Some(150));
        assert_eq!(due(&[100, 130, 160]), Some(210));
        let restless: Vec<_> = (100..3000).step_by(30).collect();
        assert_eq!(due(&restless), Some(1100), "it does not wait forever");
    }

    #[test]
    fn what_was_acted_on_is_forgotten() {
        let mut changes = after(&[100, 130]);
        assert_eq!(changes.take(), Some(Duration::from_millis(100)));
        assert_eq!((changes.due(), changes.take()), (None, None));
        changes.note(Duration::from_millis(900));
        assert_eq!(changes.take(), Some(Duration::from_millis(900)));
    }
}
