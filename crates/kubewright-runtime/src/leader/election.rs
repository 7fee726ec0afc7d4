//! The loop that keeps one candidate's lease: reads, writes, waits, and says when leadership begins and ends.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, Error, api::PostParams};
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    LeaderOptions, LeaderOptionsError,
    candidate::{Action, Candidate},
};
use crate::{
    client::{advice, explain},
    metrics::Metrics,
};

/// The most that is added to a wait, as a part of it.
const JITTER: f64 = 0.2;

/// Why a try to get or keep the lease came to nothing.
struct Setback {
    why: String,
    /// Whether something is wrong, and not just another candidate faster.
    is_trouble: bool,
}

impl Setback {
    fn new(what: &str, error: &Error) -> Self {
        match error {
            Error::Api(status) if status.code == 409 => {
                Self { why: "another candidate was faster".into(), is_trouble: false }
            }
            error => {
                let advice = advice(error, "get, create and update on leases").filter(|_| !is_missing(error));
                let advice = advice.map(|advice| format!(": {advice}")).unwrap_or_default();
                Self { why: format!("{what}: {}{advice}", explain(error)), is_trouble: true }
            }
        }
    }
}

/// Whether the namespace isn't there: no definition is missing then.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404)
}

/// Takes part in the election until it is released, lost or dropped. Leadership is won at most once.
#[derive(Debug)]
pub struct LeaderElection {
    elected: CancellationToken,
    lost: CancellationToken,
    stop: CancellationToken,
    task: JoinHandle<()>,
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
        options.validate()?;
        metrics.set_leader(&options.name, false);
        let (elected, lost, stop) = <(CancellationToken, CancellationToken, CancellationToken)>::default();
        let elector = Elector {
            leases: Api::namespaced(client, &options.namespace),
            candidate: Candidate::new(options),
            clock,
            random,
            metrics,
            elected: elected.clone(),
            lost: lost.clone().drop_guard(),
            told: String::new(),
        };
        let task = tokio::spawn(elector.run(stop.clone()));
        Ok(Self { elected, lost, stop, task })
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

    /// Whether we lead.
    pub fn is_leader(&self) -> bool {
        self.elected.is_cancelled() && !self.lost.is_cancelled()
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
    leases: Api<Lease>,
    candidate: Candidate,
    clock: SharedClock,
    random: Random,
    metrics: Metrics,
    elected: CancellationToken,
    /// Tells also when this task ends in a way that nobody thought of.
    lost: DropGuard,
    /// What was told last, so that it isn't told every two seconds.
    told: String,
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
        tracing::error!(lease = %self.lease(), "leadership lost");
        self.metrics.set_leader(&self.candidate.options().name, false);
        drop(self.lost);
    }

    /// Whether leadership was won and is lost.
    fn is_over(&self) -> bool {
        self.elected.is_cancelled() && self.remaining().is_none()
    }

    /// How long we may yet believe to lead.
    fn remaining(&self) -> Option<Duration> {
        let remaining = self.candidate.fence()?.saturating_sub(self.clock.monotonic());
        (!remaining.is_zero()).then_some(remaining)
    }

    /// One try to get or keep the lease, cut off when its success would come too late.
    async fn attempt(&mut self) {
        let limit = self.remaining().unwrap_or(self.candidate.options().renew_deadline);
        let outcome = timeout(limit, self.read_and_write()).await;
        let outcome =
            outcome.unwrap_or_else(|_| Err(Setback { why: format!("no answer within {limit:?}"), is_trouble: true }));
        match outcome {
            Ok(()) if self.remaining().is_some() => {
                self.metrics.set_leader(&self.candidate.options().name, true);
                self.elected.cancel();
                self.tell(format!("leading as {}", self.candidate.options().identity), false);
            }
            Ok(()) => self.tell(format!("standing by, {} leads", self.candidate.holder().unwrap_or("nobody")), false),
            Err(Setback { why, is_trouble }) => {
                self.candidate.unsure();
                self.tell(why, is_trouble);
            }
        }
    }

    async fn read_and_write(&mut self) -> Result<(), Setback> {
        if self.candidate.must_read() {
            let lease = self.leases.get_opt(&self.candidate.options().name).await;
            let lease = lease.map_err(|error| Setback::new("can't read the lease", &error))?;
            self.candidate.observe(lease, self.clock.monotonic());
        }
        let sent = self.clock.monotonic();
        let parameters = PostParams::default();
        let written = match self.candidate.decide(sent, self.clock.now()) {
            Action::Wait => return Ok(()),
            Action::Create(lease) => self.leases.create(&parameters, &lease).await,
            Action::Update(lease) => self.leases.replace(&self.candidate.options().name, &parameters, &lease).await,
        };
        let lease = written.map_err(|error| Setback::new("can't write the lease", &error))?;
        self.candidate.written(lease, sent);
        Ok(())
    }

    /// Waits until the next try, or until there is nothing left to keep.
    async fn pause(&self) {
        let pause = self.candidate.options().retry_period.mul_f64(1.0 + JITTER * self.random.fraction());
        match self.remaining() {
            Some(remaining) => sleep(pause.min(remaining)).await,
            None if self.elected.is_cancelled() => {}
            None => sleep(pause).await,
        }
    }

    async fn release(&mut self) {
        let Some(limit) = self.remaining() else { return };
        let done = timeout(limit, async {
            let (parameters, name) = (PostParams::default(), self.candidate.options().name.clone());
            // A renewal that was cut off may have taken effect: then the lease is another than we know.
            while let Some(lease) = self.candidate.release(self.clock.now()) {
                match self.leases.replace(&name, &parameters, &lease).await {
                    Err(Error::Api(status)) if status.reason == "Conflict" => {
                        let lease = self.leases.get_opt(&name).await?;
                        self.candidate.observe(lease, self.clock.monotonic());
                    }
                    result => return result.map(drop),
                }
            }
            Ok(())
        });
        match done.await {
            Ok(Ok(())) => tracing::info!(lease = %self.lease(), "leadership released"),
            Ok(Err(error)) => {
                tracing::warn!(lease = %self.lease(), error = explain(&error), "the lease is not released but left to expire")
            }
            Err(_) => tracing::warn!(lease = %self.lease(), "the lease is not released but left to expire"),
        }
        self.metrics.set_leader(&self.candidate.options().name, false);
    }

    fn lease(&self) -> String {
        let LeaderOptions { namespace, name, .. } = self.candidate.options();
        format!("{namespace}/{name}")
    }

    fn tell(&mut self, news: String, is_trouble: bool) {
        if news == self.told {
            return;
        }
        match is_trouble {
            true => tracing::warn!(lease = %self.lease(), "leader election: {news}; trying again"),
            false => tracing::info!(lease = %self.lease(), "leader election: {news}"),
        }
        self.told = news;
    }
}
