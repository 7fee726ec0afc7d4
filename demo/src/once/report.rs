//! The report of the checks, one line each.

use std::{
    fmt::Write,
    io::{IsTerminal, Write as _},
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use kubewright_apimachinery::clock::{Clock, VirtualClock};

/// The timeout of a check.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The interval between two attempts.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The duration after which a check shows its progress.
const LONG: Duration = Duration::from_secs(1);

/// The report.
pub(crate) struct Report {
    clock: Arc<VirtualClock>,
    checked: usize,
    failed: Vec<String>,
    title: String,
}

impl Report {
    pub(crate) fn new(clock: Arc<VirtualClock>) -> Self {
        Self { clock, checked: 0, failed: Vec::new(), title: String::new() }
    }

    /// Starts a script.
    pub(crate) fn title(&mut self, title: &str) {
        println!("{title}");
        title.clone_into(&mut self.title);
    }

    /// Checks a condition immediately.
    pub(crate) fn check(&mut self, what: &str, holds: bool, found: impl FnOnce() -> String) {
        self.line(what, holds.then_some(Duration::ZERO), found);
    }

    /// Waits until a condition holds.
    pub(crate) async fn until<F: Future<Output = Result<bool>>>(
        &mut self,
        what: &str,
        holds: impl Fn() -> F,
    ) -> Result<()> {
        let start = self.clock.monotonic();
        let mut progress = Progress::of(what);
        let came = tokio::time::timeout(TIMEOUT, async {
            while !holds().await? {
                tokio::time::sleep(LOOK_EVERY).await;
                progress.show(self.clock.monotonic().saturating_sub(start));
            }
            Ok::<_, anyhow::Error>(())
        })
        .await;
        progress.clear();
        let took = self.clock.monotonic().saturating_sub(start);
        match came {
            Ok(result) => {
                result?;
                self.line(what, Some(took), String::new);
            }
            Err(_) => self.line(what, None, || format!("not so after {} s", TIMEOUT.as_secs())),
        }
        Ok(())
    }

    /// Prints the summary, and returns whether all checks passed.
    pub(crate) fn end(self) -> bool {
        if self.failed.is_empty() {
            println!("all {} checks passed", self.checked);
            return true;
        }
        println!("{} of {} checks failed:", self.failed.len(), self.checked);
        for line in &self.failed {
            println!("  {line}");
        }
        false
    }

    fn line(&mut self, what: &str, took: Option<Duration>, found: impl FnOnce() -> String) {
        self.checked += 1;
        let mut line = match took {
            Some(_) => format!("  {}    {what}", painted("ok", "32")),
            None => format!("  {}  {what}", painted("FAIL", "31")),
        };
        match took {
            Some(took) if took > LOOK_EVERY => _ = write!(line, " ({:.2} s)", took.as_secs_f64()),
            Some(_) => {}
            None => {
                let found = found();
                _ = write!(line, ": {found}");
                self.failed.push(format!("{}: {what}: {found}", self.title));
            }
        }
        println!("{line}");
    }
}

/// Adds colour to a word on a terminal.
fn painted(word: &str, colour: &str) -> String {
    if std::io::stdout().is_terminal() { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() }
}

/// Shows the progress of a long check. On a terminal it is updated each second, in a line that is removed at the end.
struct Progress<'a> {
    what: &'a str,
    said: u64,
    on_terminal: bool,
}

impl<'a> Progress<'a> {
    fn of(what: &'a str) -> Self {
        Self { what, said: 0, on_terminal: std::io::stdout().is_terminal() }
    }

    fn show(&mut self, waited: Duration) {
        let seconds = waited.as_secs();
        if waited < LONG || seconds == self.said {
            return;
        }
        if self.on_terminal {
            print!("\r\x1b[2K  ...   {} ({seconds} s)", self.what);
            // A failure to show progress is ignored.
            let _ = std::io::stdout().flush();
        } else if self.said == 0 {
            println!("  ...   {}", self.what);
        }
        self.said = seconds;
    }

    fn clear(&self) {
        if self.on_terminal && self.said > 0 {
            print!("\r\x1b[2K");
        }
    }
}
