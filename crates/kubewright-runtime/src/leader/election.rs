//! The loop that keeps one candidate's lease: reads, writes, waits, and says when leadership begins and ends.

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
    LeaderOptions, LeaderOptionsError,
    candidate::Candidate,
    desk::{Desk, Setback},
    fence::Fence,
};
use crate::metrics::Metrics;

/// Takes part in the election until it is released, lost or dropped. Leadership is won at most once.
#[derive(Debug)]
pub struct LeaderElection {
    elected: CancellationToken,
    lost: CancellationToken,
    stop: CancellationToken,
    task: JoinHandle<()>,
    fence: Fence,
    clock: SharedClock,
    /// Why the last try to keep the lease came to nothing.
    setback: Arc<Mutex<Option<String>>>,
}

impl LeaderElection {
    /// Starts to take part.
    ///
    /// # Errors
    /// When the durations don't fit together.
    pub fn start(
        client: Client,
        options: LeaderOptions,
        clock: SharedClock,
        random: Random,
        metrics: Metrics,
    ) -> Result<Self, LeaderOptionsError> {
        Self::fenced(client, options, clock, random, metrics, Fence::default())
    }

    /// [`LeaderElection::start`], with a fence that stands as long as we may believe to lead.
    pub(crate) fn fenced(
        client: Client,
        options: LeaderOptions,
        clock: SharedClock,
        random: Random,
        metrics: Metrics,
        fence: Fence,
    ) -> Result<Self, LeaderOptionsError> {
        options.validate()?;
        metrics.set_leader(&options.name, false);
        let (elected, lost, stop) = <(CancellationToken, CancellationToken, CancellationToken)>::default();
        let setback = Arc::<Mutex<Option<String>>>::default();
        let elector = Elector {
            desk: Desk::new("leader election", client, &options, clock.clone(), random),
            candidate: Candidate::new(options),
            metrics,
            fence: fence.clone(),
            setback: setback.clone(),
            elected: elected.clone(),
            lost: lost.clone().drop_guard(),
        };
        let task = tokio::spawn(elector.run(stop.clone()));
        Ok(Self { elected, lost, stop, task, fence, clock, setback })
    }

    /// Cancelled when we become the leader: work may begin.
    pub fn elected(&self) -> CancellationToken {
        self.elected.clone()
    }

    /// Cancelled when the leadership is lost, or the election has ended otherwise: all work must stop at once, and the
    /// process end with an error, as a new one begins with a clean view of the world.
    pub fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Whether we lead: also right after the process stood still for so long that the lease has run out, which [`lost`](Self::lost)
    /// tells only when its task has run again.
    pub fn is_leader(&self) -> bool {
        let stands = self.fence.stands(self.clock.monotonic());
        self.elected.is_cancelled() && !self.lost.is_cancelled() && stands
    }

    /// Why the leadership could not be kept, as far as that is known: what failed last, or who leads now.
    pub fn setback(&self) -> Option<String> {
        self.setback.lock().clone()
    }

    /// Gives the lease up, if we hold it, so that another replica needn't wait for it to expire. Call it when the work
    /// has stopped. It takes at most as long as the renew deadline.
    pub async fn release(mut self) {
        self.stop.cancel();
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the leader election ended badly");
        }
    }
}

impl Drop for LeaderElection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Elector {
    desk: Desk,
    candidate: Candidate,
    metrics: Metrics,
    fence: Fence,
    setback: Arc<Mutex<Option<String>>>,
    elected: CancellationToken,
    /// Tells also when this task ends in a way that nobody thought of.
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
        tracing::error!(lease = self.desk.lease(), "leadership lost");
        self.metrics.set_leader(&self.candidate.options().name, false);
        drop(self.lost);
    }

    /// Whether leadership was won and is lost.
    fn is_over(&self) -> bool {
        self.elected.is_cancelled() && self.remaining().is_none()
    }

    /// How long we may yet believe to lead.
    fn remaining(&self) -> Option<Duration> {
        self.desk.remaining(&self.candidate)
    }

    /// One try to get or keep the lease, cut off when its success would come too late.
    async fn attempt(&mut self) {
        let limit = self.remaining().unwrap_or(self.candidate.options().renew_deadline);
        let outcome = timeout(limit, self.read_and_write()).await.unwrap_or_else(|_| Err(Setback::no_answer(limit)));
        self.fence.set(self.candidate.fence());
        match outcome {
            Ok(()) if self.remaining().is_some() => {
                self.metrics.set_leader(&self.candidate.options().name, true);
                self.elected.cancel();
                *self.setback.lock() = None;
                self.desk.tell(format!("leading as {}", self.candidate.options().identity));
            }
            Ok(()) => {
                let leader = self.candidate.holder().unwrap_or("nobody").to_owned();
                *self.setback.lock() = Some(format!("{leader} leads"));
                self.desk.tell(format!("standing by, {leader} leads"));
            }
            Err(setback) => {
                *self.setback.lock() = Some(setback.why().into());
                self.candidate.unsure();
                self.desk.complain(setback);
            }
        }
    }

    async fn read_and_write(&mut self) -> Result<(), Setback> {
        if self.candidate.must_read() {
            let lease = self.desk.read().await?;
            self.candidate.observe(lease, self.desk.monotonic());
        }
        let sent = self.desk.monotonic();
        let action = self.candidate.decide(sent, self.desk.wall());
        if let Some(lease) = self.desk.write(action).await? {
            self.candidate.written(lease, sent);
        }
        Ok(())
    }

    /// Waits until the next try, or until there is nothing left to keep.
    async fn pause(&self) {
        let pause = self.desk.pause(self.candidate.options().retry_period);
        match self.remaining() {
            Some(remaining) => sleep(pause.min(remaining)).await,
            None if self.elected.is_cancelled() => {}
            None => sleep(pause).await,
        }
    }

    async fn release(&mut self) {
        self.fence.set(None);
        self.desk.release(&mut self.candidate).await;
        self.metrics.set_leader(&self.candidate.options().name, false);
    }
}
