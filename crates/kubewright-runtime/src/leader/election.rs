//! The loop of a candidate: it acquires and renews the lease, and reports when leadership begins and ends.

use std::{sync::Arc, time::Duration};

use kube::Client;
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use parking_lot::Mutex;
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    AnyLock, LeaderOptions, LeaderOptionsError, Lock,
    candidate::Candidate,
    fence::Fence,
    lease_client::{LeaseClient, RenewError},
};
use crate::metrics::Metrics;

/// A candidate in an election, until it is released, loses or is dropped. It becomes leader at most once.
#[derive(Debug)]
pub struct LeaderElection {
    elected: CancellationToken,
    lost: CancellationToken,
    stop: CancellationToken,
    task: JoinHandle<()>,
    fence: Fence,
    clock: SharedClock,
    /// The error of the last attempt to renew the lease.
    last_error: Arc<Mutex<Option<String>>>,
}

impl LeaderElection {
    /// Starts a candidate.
    ///
    /// # Errors
    /// If the durations can't work together.
    pub fn start(
        client: Client,
        options: LeaderOptions,
        clock: SharedClock,
        random: Random,
        metrics: Metrics,
    ) -> Result<Self, LeaderOptionsError> {
        let lock = AnyLock::lease(client, &options.namespace, &options.name);
        Self::fenced(lock, options, clock, random, metrics, Fence::default())
    }

    /// [`LeaderElection::start`] with a record in another place than a lease. The namespace of the options then only
    /// appears in logs.
    ///
    /// # Errors
    /// If the durations can't work together.
    pub fn start_with_lock(
        lock: impl Lock,
        options: LeaderOptions,
        clock: SharedClock,
        random: Random,
        metrics: Metrics,
    ) -> Result<Self, LeaderOptionsError> {
        Self::fenced(AnyLock::new(lock), options, clock, random, metrics, Fence::default())
    }

    /// [`LeaderElection::start`] with a fence that is up while this replica may assume that it leads.
    pub(crate) fn fenced(
        lock: AnyLock,
        options: LeaderOptions,
        clock: SharedClock,
        random: Random,
        metrics: Metrics,
        fence: Fence,
    ) -> Result<Self, LeaderOptionsError> {
        options.validate()?;
        metrics.set_leader(&options.name, false);
        let (elected, lost, stop) = <(CancellationToken, CancellationToken, CancellationToken)>::default();
        let last_error = Arc::<Mutex<Option<String>>>::default();
        let elector = Elector {
            lease: LeaseClient::new("leader election", lock, &options, clock.clone(), random),
            candidate: Candidate::new(options),
            metrics,
            fence: fence.clone(),
            last_error: last_error.clone(),
            elected: elected.clone(),
            lost: lost.clone().drop_guard(),
        };
        let task = tokio::spawn(elector.run(stop.clone()));
        Ok(Self { elected, lost, stop, task, fence, clock, last_error })
    }

    /// Returns a token that is cancelled when this replica becomes the leader, so that work may start.
    pub fn elected(&self) -> CancellationToken {
        self.elected.clone()
    }

    /// Returns a token that is cancelled when leadership is lost or the election has ended otherwise. All work must
    /// then stop at once, and the process exit with an error: a new process starts from a clean state.
    pub fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Returns whether this replica leads. This is correct even after the process was stopped for so long that the
    /// lease has expired, which [`lost`](Self::lost) reports only once its task has run again.
    pub fn is_leader(&self) -> bool {
        let stands = self.fence.stands(self.clock.monotonic());
        self.elected.is_cancelled() && !self.lost.is_cancelled() && stands
    }

    /// Returns why the lease could not be renewed, if known: the last error, or the identity of the new leader.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    /// Releases the lease if this replica holds it, so that others needn't wait until it expires. Call it once all work
    /// has stopped. It takes at most the renew deadline.
    pub async fn release(mut self) {
        self.stop.cancel();
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the task of the leader election failed");
        }
    }
}

impl Drop for LeaderElection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Elector {
    lease: LeaseClient,
    candidate: Candidate,
    metrics: Metrics,
    fence: Fence,
    last_error: Arc<Mutex<Option<String>>>,
    elected: CancellationToken,
    /// Cancels the token even if the task panics.
    lost: DropGuard,
}

impl Elector {
    async fn run(mut self, stop: CancellationToken) {
        while !self.is_over() {
            let turn = async {
                self.attempt().await;
                self.pause().await;
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.release().await,
                () = turn => {}
            }
        }
        tracing::error!(lease = self.lease.lease(), "leadership lost");
        self.metrics.set_leader(&self.candidate.options().name, false);
        drop(self.lost);
    }

    /// Returns whether leadership was acquired and lost.
    fn is_over(&self) -> bool {
        self.elected.is_cancelled() && self.remaining().is_none()
    }

    /// Returns for how long this replica may still assume that it leads.
    fn remaining(&self) -> Option<Duration> {
        self.lease.remaining(&self.candidate)
    }

    /// Tries to acquire or renew the lease, until success would come too late.
    async fn attempt(&mut self) {
        // A request without an answer, such as on a dead connection, leaves time for another one.
        let half = (self.candidate.options().renew_deadline / 2).max(Duration::from_secs(1));
        let limit = self.remaining().map_or(half, |remaining| remaining.min(half));
        let outcome = timeout(limit, self.read_and_write()).await.unwrap_or_else(|_| Err(RenewError::no_answer(limit)));
        self.fence.set(self.candidate.fence());
        match outcome {
            Ok(()) if self.remaining().is_some() => {
                self.metrics.set_leader(&self.candidate.options().name, true);
                self.elected.cancel();
                *self.last_error.lock() = None;
                self.lease.report(format!("leading as {}", self.candidate.options().identity));
            }
            Ok(()) => {
                let leader = self.candidate.holder().unwrap_or("none").to_owned();
                *self.last_error.lock() = Some(format!("{leader} leads"));
                self.lease.report(format!("standing by, {leader} leads"));
            }
            Err(error) => {
                *self.last_error.lock() = Some(error.why().into());
                self.candidate.unsure();
                self.lease.report_error(error);
            }
        }
    }

    async fn read_and_write(&mut self) -> Result<(), RenewError> {
        if self.candidate.must_read() {
            let lease = self.lease.read().await?;
            self.candidate.observe(lease, self.lease.monotonic());
        }
        let sent = self.lease.monotonic();
        let action = self.candidate.decide(sent, self.lease.wall());
        if let Some(lease) = self.lease.write(action).await? {
            self.candidate.written(lease, sent);
        }
        Ok(())
    }

    /// Waits until the next attempt, or until the lease has expired.
    async fn pause(&self) {
        let pause = self.lease.pause(self.candidate.options().retry_period);
        match self.remaining() {
            Some(remaining) => sleep(pause.min(remaining)).await,
            None if self.elected.is_cancelled() => {}
            None => sleep(pause).await,
        }
    }

    async fn release(&mut self) {
        self.fence.set(None);
        self.lease.release(&mut self.candidate).await;
        self.metrics.set_leader(&self.candidate.options().name, false);
    }
}
