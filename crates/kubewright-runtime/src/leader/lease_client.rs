//! Reading and writing one lease, and logging what changes.

use std::{fmt::Display, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Error;
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use tokio::time::timeout;

use super::{
    AnyLock, LeaderOptions, LockError,
    candidate::{Action, Candidate},
};
use crate::client::{explain, hint};

/// The most random jitter added to a pause, as a fraction of it.
const JITTER: f64 = 0.2;

/// A failed attempt to acquire or renew the lease.
pub(crate) struct RenewError {
    why: String,
    /// Whether something is wrong; otherwise another candidate was just faster.
    is_fault: bool,
}

impl RenewError {
    pub(crate) fn new(what: &str, error: &Error) -> Self {
        let hint = hint(error, "get, create and update on leases, and with sharding list and delete");
        let hint = hint.filter(|_| !is_missing(error)).map(|hint| format!(": {hint}")).unwrap_or_default();
        Self { why: format!("{what}: {}{hint}", explain(error)), is_fault: true }
    }

    fn of_lock(what: &str, error: &LockError) -> Self {
        match error {
            LockError::Conflict => Self { why: "another candidate was faster".into(), is_fault: false },
            LockError::Failed(error) => match error.downcast_ref::<Error>() {
                Some(error) => Self::new(what, error),
                None => Self { why: format!("{what}: {}", explain(error.as_ref())), is_fault: true },
            },
        }
    }

    pub(crate) fn fault(why: &str) -> Self {
        Self { why: why.into(), is_fault: true }
    }

    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    pub(crate) fn no_answer(limit: Duration) -> Self {
        Self { why: format!("no answer within {limit:?}"), is_fault: true }
    }
}

/// Returns whether the namespace doesn't exist. The general hint, about definitions, is wrong then.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404)
}

/// The client of one lease.
pub(crate) struct LeaseClient {
    /// The prefix of log messages.
    what: &'static str,
    lock: AnyLock,
    namespace: String,
    name: String,
    clock: SharedClock,
    random: Random,
    /// The last message that was logged, so that it isn't repeated every two seconds.
    logged: String,
}

impl LeaseClient {
    pub(crate) fn new(
        what: &'static str,
        lock: AnyLock,
        options: &LeaderOptions,
        clock: SharedClock,
        random: Random,
    ) -> Self {
        let LeaderOptions { namespace, name, .. } = options;
        Self { what, lock, namespace: namespace.clone(), name: name.clone(), clock, random, logged: String::new() }
    }

    pub(crate) fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    pub(crate) fn wall(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns for how long the candidate may still assume that it holds the lease.
    pub(crate) fn remaining(&self, candidate: &Candidate) -> Option<Duration> {
        let remaining = candidate.fence()?.saturating_sub(self.monotonic());
        (!remaining.is_zero()).then_some(remaining)
    }

    pub(crate) async fn read(&self) -> Result<Option<Lease>, RenewError> {
        self.lock.read().await.map_err(|error| RenewError::of_lock("can't read the lease", &error))
    }

    /// Performs an action, and returns the lease that was written.
    pub(crate) async fn write(&self, action: Action) -> Result<Option<Lease>, RenewError> {
        let written = match action {
            Action::Wait => return Ok(None),
            Action::Create(lease) => self.lock.create(&lease).await,
            Action::Update(lease) => self.lock.update(&lease).await,
        };
        written.map(Some).map_err(|error| RenewError::of_lock("can't write the lease", &error))
    }

    /// Returns the pause before the next attempt.
    pub(crate) fn pause(&self, period: Duration) -> Duration {
        period.mul_f64(1.0 + JITTER * self.random.fraction())
    }

    /// Releases the lease if the candidate holds it.
    pub(crate) async fn release(&self, candidate: &mut Candidate) {
        let Some(limit) = self.remaining(candidate) else { return };
        let done = timeout(limit, async {
            // A renewal that was cut off may have taken effect, so that the lease has a newer version.
            while let Some(lease) = candidate.release(self.wall()) {
                match self.lock.update(&lease).await {
                    Err(LockError::Conflict) => {
                        let Some(lease) = self.lock.read().await? else { return Ok(()) };
                        candidate.observe(Some(lease), self.monotonic());
                    }
                    result => return result.map(drop),
                }
            }
            Ok(())
        });
        let (what, lease) = (self.what, self.lease());
        match done.await {
            Ok(Ok(())) => tracing::info!(lease, "{what}: released the lease"),
            Ok(Err(error)) => {
                tracing::warn!(
                    lease,
                    error = explain(&error),
                    "{what}: can't release the lease, which is left to expire"
                )
            }
            Err(_) => tracing::warn!(lease, "{what}: can't release the lease, which is left to expire"),
        }
    }

    pub(crate) fn lease(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Logs a message, unless it is the last one that was logged.
    pub(crate) fn report(&mut self, news: impl Display) {
        if self.is_news(&news) {
            tracing::info!(lease = self.lease(), "{}: {news}", self.what);
        }
    }

    /// Logs an error, unless it is the last message that was logged.
    pub(crate) fn report_error(&mut self, RenewError { why, is_fault }: RenewError) {
        match is_fault {
            true if self.is_news(&why) => {
                tracing::warn!(lease = self.lease(), "{}: {why}; retrying", self.what);
            }
            true => {}
            false => self.report(why),
        }
    }

    fn is_news(&mut self, news: &impl Display) -> bool {
        let news = news.to_string();
        let is_news = news != self.logged;
        self.logged = news;
        is_news
    }
}
