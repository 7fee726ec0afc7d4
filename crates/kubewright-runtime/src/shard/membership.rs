//! The loop that keeps a member's lease and looks at the others': it reads, writes, waits, and makes known what is ours.

use std::time::Duration;

use kube::{
    Client,
    api::{DeleteParams, ListParams},
};
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{GROUP_LABEL, ShardError, ShardOptions, Share, member::Member};
use crate::{
    leader::{
        fence::Fence,
        lease_client::{LeaseClient, RenewError},
    },
    metrics::{Metrics, ShardMetrics},
};

/// Work that ends this long after its key was to be given away is told of: others wait for it.
const SLOW_DRAIN: Duration = Duration::from_secs(30);

/// Takes part in a group until it is released, lost or dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    joined: CancellationToken,
    lost: CancellationToken,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Membership {
    /// Starts to take part.
    ///
    /// # Errors
    /// When the durations don't fit together, or the name is no label's value.
    pub(crate) fn start(
        client: Client,
        options: ShardOptions,
        share: Share,
        fence: Fence,
        clock: SharedClock,
        random: Random,
        metrics: &Metrics,
    ) -> Result<Self, ShardError> {
        options.validate()?;
        let (joined, lost, stop) = <(CancellationToken, CancellationToken, CancellationToken)>::default();
        let keeper = Keeper {
            lease: LeaseClient::new("sharding", client, &options.own_lease(), clock, random),
            member: Member::new(&options),
            metrics: metrics.shards(&options.name),
            share,
            fence,
            options,
            joined: joined.clone(),
            lost: lost.clone().drop_guard(),
            draining: None,
            has_told_of_litter: false,
        };
        let task = tokio::spawn(keeper.run(stop.clone()));
        Ok(Self { joined, lost, stop, task })
    }

    /// Cancelled when the others can see us: work may begin, on what is [ours](Share).
    pub(crate) fn joined(&self) -> CancellationToken {
        self.joined.clone()
    }

    /// Cancelled when the lease is lost, or the loop has ended otherwise: all work must stop at once.
    pub(crate) fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Gives the lease back, so that the others needn't wait for it to expire. Call it when the work has stopped. It takes
    /// at most as long as the renew deadline.
    pub(crate) async fn release(mut self) {
        self.stop.cancel();
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "sharding ended badly");
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Keeper {
    lease: LeaseClient,
    member: Member,
    options: ShardOptions,
    metrics: ShardMetrics,
    share: Share,
    fence: Fence,
    joined: CancellationToken,
    /// Tells also when this task ends in a way that nobody thought of.
    lost: DropGuard,
    /// Work is waited for that isn't ours any more.
    draining: Option<Drain>,
    /// It was told that leases can't be taken away.
    has_told_of_litter: bool,
}

struct Drain {
    since: Duration,
    is_told: bool,
}

impl Keeper {
    async fn run(mut self, stop: CancellationToken) {
        while !self.is_over() {
            let turn = async {
                let has_news = self.attempt().await;
                self.pause(has_news).await;
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.release().await,
                () = turn => {}
            }
        }
        tracing::error!(lease = self.lease.lease(), "the place among the shards is lost");
        self.publish();
        drop(self.lost);
    }

    /// Whether we had joined and are out.
    fn is_over(&mut self) -> bool {
        self.joined.is_cancelled() && self.remaining().is_none()
    }

    fn remaining(&mut self) -> Option<Duration> {
        self.lease.remaining(self.member.candidate())
    }

    /// Looks at all leases and renews ours, cut off when success would come too late. Returns whether something new was
    /// announced, so that it is well to look again at once.
    async fn attempt(&mut self) -> bool {
        let limit = self.remaining().unwrap_or(self.options.renew_deadline);
        let outcome = timeout(limit, self.look_and_renew(limit)).await;
        let outcome = outcome.unwrap_or_else(|_| Err(RenewError::no_answer(limit)));
        let has_news = match outcome {
            Ok(has_news) => {
                self.joined.cancel();
                has_news
            }
            Err(setback) => {
                self.member.unsure();
                self.lease.report_error(setback);
                false
            }
        };
        self.publish();
        has_news
    }

    async fn look_and_renew(&mut self, limit: Duration) -> Result<bool, RenewError> {
        // A look that takes too long leaves time to renew: the lease is worth more than the news.
        let looked = timeout(limit / 2, self.look()).await.unwrap_or_else(|_| Err(RenewError::no_answer(limit / 2)));
        let has_looked = looked.is_ok();
        if let Err(setback) = looked {
            if !self.member.can_write() {
                return Err(setback);
            }
            self.lease.report_error(setback);
        }
        // Nobody begins work that isn't ours by the new view from here on; then it counts what is under way.
        self.publish();
        self.share.called(self.member.take_heard());
        let lost = self.member.call(self.share.take_calls(), self.lease.monotonic());
        if lost > 0 {
            tracing::warn!("sharding: too many wakes for keys that other replicas own: some are lost");
        }
        let busy = self.share.beyond(self.member.target(), &self.options.own_lease().name);
        self.watch_drain(busy.is_empty());
        let sent = self.lease.monotonic();
        let action = self.member.decide(busy, sent, self.lease.wall());
        let has_news = match self.lease.write(action).await? {
            Some(lease) => self.member.written(lease, sent, self.lease.monotonic()),
            None => return Err(RenewError::fault("another process has our identity, or its lease")),
        };
        if has_looked {
            self.share.inform(self.lease.monotonic().saturating_add(self.options.lease_duration));
            self.report();
        }
        Ok(has_news)
    }

    async fn look(&mut self) -> Result<(), RenewError> {
        let group = ListParams::default().labels(&format!("{GROUP_LABEL}={}", self.options.name));
        let asked = self.lease.monotonic();
        let leases = self.lease.leases().list(&group).await;
        let leases = leases.map_err(|error| RenewError::new("can't list the leases", &error))?;
        let was_joined = self.member.candidate().fence().is_some();
        self.member.listed(leases.items, asked, self.lease.monotonic());
        if was_joined && self.member.candidate().fence().is_none() {
            return Err(RenewError::fault("someone took our lease away"));
        }
        self.clear_litter().await;
        Ok(())
    }

    /// Takes away the lease of a replica that is long gone. Should it fail, there is a next time.
    async fn clear_litter(&mut self) {
        let Some((name, preconditions)) = self.member.litter(self.lease.monotonic()) else { return };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.lease.leases().delete(&name, &parameters).await {
            Ok(_) => tracing::debug!(name, "sharding: the lease of a replica that is gone is removed"),
            Err(kube::Error::Api(status)) if status.code == 403 && !self.has_told_of_litter => {
                self.has_told_of_litter = true;
                tracing::warn!(
                    name,
                    error = status.message,
                    "sharding: the lease of a replica that is gone stays: the role needs the right to delete leases"
                );
            }
            Err(error) => tracing::debug!(name, %error, "sharding: the lease of a replica that is gone stays"),
        }
    }

    /// Notices work that keeps others waiting.
    fn watch_drain(&mut self, is_drained: bool) {
        let now = self.lease.monotonic();
        let draining = self.draining.get_or_insert(Drain { since: now, is_told: false });
        if is_drained {
            self.draining = None;
        } else if !draining.is_told && now.saturating_sub(draining.since) >= SLOW_DRAIN {
            draining.is_told = true;
            tracing::warn!(
                lease = self.lease.lease(),
                "sharding: other replicas wait for reconciles here to end; a time limit (Controller::timeout) bounds that"
            );
        }
    }

    /// Waits until the next try, until work has ended for which others wait, or until there is nothing left to keep.
    async fn pause(&mut self, has_news: bool) {
        if has_news {
            return;
        }
        let pause = self.lease.pause(self.options.retry_period);
        let remaining = self.remaining();
        let pause = match remaining {
            Some(remaining) => pause.min(remaining),
            None if self.joined.is_cancelled() => return,
            None => pause,
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = self.share.drained(), if self.draining.is_some() => {}
        }
    }

    /// Makes known what is ours.
    fn publish(&mut self) {
        self.fence.set(self.member.candidate().fence());
        self.share.set(self.member.grant());
        self.metrics.set(self.member.target().len(), self.share.fraction(), self.member.rebalances());
    }

    fn report(&mut self) {
        let members = self.member.target().len();
        match self.member.is_settled() {
            true if members == 1 => self.lease.report("alone: all keys are worked on here"),
            true => self.lease.report(format!("{members} replicas divide the keys")),
            false => self.lease.report(format!("the keys are being divided among {members} replicas")),
        }
    }

    async fn release(mut self) {
        self.fence.set(None);
        self.lease.release(self.member.candidate()).await;
        self.metrics.set(0, 0.0, self.member.rebalances());
        // In good order: nobody is to take it for a loss.
        drop(self.lost.disarm());
    }
}
