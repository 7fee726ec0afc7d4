//! The progress of a search, for the command that has started it.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    time::Duration,
};

use kubewright_apimachinery::clock::{SharedClock, SystemClock};

use crate::search::{Phase, Search};

/// The shortest real time between two lines of the same phase.
const INTERVAL: Duration = Duration::from_millis(200);

/// A file to which the progress is appended.
pub(crate) struct Progress {
    file: File,
    clock: SharedClock,
    /// The phase of the last line, and when the next is due.
    last: Option<(Phase, Duration)>,
}

impl Progress {
    /// Opens a file, which is created if it doesn't exist.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, clock: SystemClock::shared(), last: None })
    }

    /// Appends a line of JSON, unless there has just been one.
    pub(crate) fn show(&mut self, search: &Search) {
        let now = self.clock.monotonic();
        if self.last.is_some_and(|(phase, due)| phase == search.phase && now < due) {
            return;
        }
        self.last = Some((search.phase, now + INTERVAL));
        // Numbers have a form in JSON. The search goes on without its progress if the disk is full.
        let line = serde_json::to_string(search).unwrap_or_default() + "\n";
        let _ = self.file.write_all(line.as_bytes());
    }
}
