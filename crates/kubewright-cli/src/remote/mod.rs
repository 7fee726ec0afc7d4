//! The cluster that a command acts on: found by the kubeconfig, read and changed through its API.
//!
//! Objects are applied server-side, by a field manager of our own. What the API server would refuse is asked for first (`dryRun`), so that a
//! command that can't do all of its work does none of it. Then it is waited for what was asked: definitions that are established, Deployments
//! that are ready, objects that are gone.

mod apply;
mod connect;
mod delete;
mod failure;
mod kinds;
mod report;
mod rollout;

use std::time::Duration;

use kubewright_apimachinery::clock::SharedClock;

pub(crate) use self::{
    apply::{Options, Plan, missing_definitions},
    connect::{Connection, Remote},
    delete::delete,
    kinds::is_webhook,
    rollout::ready,
};
use crate::shell::Shell;

/// How often it is looked whether something has come about: at first soon, then after a quarter of the time that it takes, up to the longest.
const BETWEEN: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];

/// How long a single answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many requests are on their way at once.
const AT_ONCE: usize = 8;

/// How long to wait.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Patience {
    /// How long to wait at most, such as 90s or 5m
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration)]
    timeout: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    parsed.filter(|time| !time.is_zero()).ok_or_else(|| "say a time such as 90s, 5m or 1h30m".into())
}

impl Patience {
    /// So long at most.
    pub(crate) fn of(timeout: Duration) -> Self {
        Self { timeout }
    }

    /// Begins to wait.
    pub(crate) fn begin<'a>(&self, clock: &'a SharedClock, shell: &'a Shell) -> Wait<'a> {
        Wait { clock, begin: clock.monotonic(), timeout: self.timeout, shell }
    }
}

/// A wait for several things one after the other, with one end for all of them.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    clock: &'a SharedClock,
    begin: Duration,
    timeout: Duration,
    shell: &'a Shell,
}

impl Wait<'_> {
    /// Tells what is waited for, and lets some time pass. False if there is none left.
    async fn goes_on(&self, what: &str) -> bool {
        let passed = self.clock.monotonic().saturating_sub(self.begin);
        let left = self.timeout.saturating_sub(passed);
        if left.is_zero() {
            return false;
        }
        self.shell.progress("Waiting", what, passed);
        let [first, longest] = BETWEEN;
        tokio::time::sleep(left.min((passed / 4).clamp(first, longest))).await;
        true
    }

    /// The time that there was, for people.
    fn spent(&self) -> String {
        let seconds = self.timeout.as_secs();
        match (seconds / 60, seconds % 60) {
            (0, 0) => format!("{} ms", self.timeout.as_millis()),
            (0, seconds) => format!("{seconds} s"),
            (minutes, 0) => format!("{minutes} min"),
            (minutes, seconds) => format!("{minutes} min {seconds} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, seconds) in [("90s", 90), ("5m", 300), ("1h30m", 5400), ("1m 1s", 61)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "soon", "5", "0s", "-1m"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
