//! What was checked, line by line, and how it came out.

use std::{fmt::Write, time::Duration};

use anyhow::Result;
use kubewright_apimachinery::clock::SharedClock;

/// How long a condition may take to come true.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The running report.
pub(crate) struct Report {
    clock: SharedClock,
    checked: usize,
    differed: Vec<String>,
    title: String,
}

impl Report {
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self { clock, checked: 0, differed: Vec::new(), title: String::new() }
    }

    /// Begins a script.
    pub(crate) fn title(&mut self, title: &str) {
        println!("{title}");
        title.clone_into(&mut self.title);
    }

    /// Something that must hold now.
    pub(crate) fn check(&mut self, what: &str, holds: bool, found: impl FnOnce() -> String) {
        self.line(what, holds.then_some(Duration::ZERO), found);
    }

    /// Something that must come to hold.
    pub(crate) async fn until<F: Future<Output = Result<bool>>>(
        &mut self,
        what: &str,
        holds: impl Fn() -> F,
    ) -> Result<()> {
        let start = self.clock.monotonic();
        let came = tokio::time::timeout(PATIENCE, async {
            while !holds().await? {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Ok::<_, anyhow::Error>(())
        })
        .await;
        let took = self.clock.monotonic().saturating_sub(start);
        match came {
            Ok(result) => {
                result?;
                self.line(what, Some(took), String::new);
            }
            Err(_) => self.line(what, None, || format!("not so after {} s", PATIENCE.as_secs())),
        }
        Ok(())
    }

    /// Prints the sum; whether everything held.
    pub(crate) fn end(self) -> bool {
        if self.differed.is_empty() {
            println!("all {} checks held", self.checked);
            return true;
        }
        println!("{} of {} checks did not hold:", self.differed.len(), self.checked);
        for line in &self.differed {
            println!("  {line}");
        }
        false
    }

    fn line(&mut self, what: &str, took: Option<Duration>, found: impl FnOnce() -> String) {
        self.checked += 1;
        let mut line = match took {
            Some(_) => format!("  ok    {what}"),
            None => format!("  FAIL  {what}"),
        };
        match took {
            Some(took) if took > LOOK_EVERY => _ = write!(line, " ({:.2} s)", took.as_secs_f64()),
            Some(_) => {}
            None => {
                let found = found();
                _ = write!(line, ": {found}");
                self.differed.push(format!("{}: {what}: {found}", self.title));
            }
        }
        println!("{line}");
    }
}
