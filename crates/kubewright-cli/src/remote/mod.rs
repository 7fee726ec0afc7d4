//! The cluster that a command acts on, as selected by the kubeconfig.
//!
//! Objects are applied server-side with the field manager `kubewright`. Every command performs a dry run (`dryRun`)
//! first, so that a command that cannot complete changes nothing. It then waits for the result: established
//! definitions, ready Deployments, or deleted objects.

mod apply;
mod connect;
mod delete;
mod failure;
mod kinds;
mod problem;
mod report;
mod rollout;

use std::time::Duration;

use kubewright_apimachinery::clock::SharedClock;

pub(crate) use self::{
    apply::{ApplyOptions, Plan, missing_definitions},
    connect::{Connection, Remote},
    delete::{delete, delete_in_order},
    failure::{explain, is_transient, status},
    kinds::{Kinds, defined_resource, is_webhook_configuration, text},
    rollout::{ready, state_of},
};
use crate::shell::Shell;

/// The minimum and the maximum delay between two polls. A delay is a quarter of the time waited so far.
const POLL_INTERVAL: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];

/// The timeout of a single request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The number of concurrent requests.
const CONCURRENCY: usize = 8;

// Not a doc comment: clap would show it as the help of the command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WaitOptions {
    /// Longest time to wait for the cluster, such as 90s or 5m
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration)]
    timeout: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    parsed.filter(|time| !time.is_zero()).ok_or_else(|| "use a duration such as 90s, 5m or 1h30m".into())
}

impl WaitOptions {
    /// Returns options with a timeout.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout }
    }

    /// Starts the timeout.
    pub(crate) fn start<'a>(&self, clock: &'a SharedClock, shell: &'a Shell) -> Wait<'a> {
        Wait { clock, started: clock.monotonic(), timeout: self.timeout, shell }
    }
}

/// The common deadline of all conditions that a command waits for.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    clock: &'a SharedClock,
    started: Duration,
    timeout: Duration,
    shell: &'a Shell,
}

impl Wait<'_> {
    /// Shows the pending condition, and pauses until the next poll. Returns false if the deadline has passed.
    pub(crate) async fn poll_again(&self, what: &str) -> bool {
        let passed = self.clock.monotonic().saturating_sub(self.started);
        let left = self.timeout.saturating_sub(passed);
        if left.is_zero() {
            return false;
        }
        self.shell.progress("Waiting", what, "", passed);
        let [shortest, longest] = POLL_INTERVAL;
        tokio::time::sleep(left.min((passed / 4).clamp(shortest, longest))).await;
        true
    }

    /// Formats the timeout, as in kubectl.
    pub(crate) fn timeout(&self) -> String {
        let seconds = self.timeout.as_secs();
        match (seconds / 60, seconds % 60) {
            (0, 0) => format!("{}ms", self.timeout.as_millis()),
            (0, seconds) => format!("{seconds}s"),
            (minutes, 0) => format!("{minutes}m"),
            (minutes, seconds) => format!("{minutes}m{seconds}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, seconds) in [("90s", 90), ("5m", 300), ("1h30m", 5400), ("1m 1s", 61)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "soon", "5", "0s", "-1m"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
