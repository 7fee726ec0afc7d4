//! The task that renews a member's lease, reads those of the others, and publishes which keys this replica owns.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams},
};
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{GROUP_LABEL, ShardError, ShardOptions, Share, protocol::Protocol};
use crate::{
    leader::{
        AnyLock,
        fence::Fence,
        lease_client::{LeaseClient, RenewError},
    },
    metrics::{Metrics, ShardMetrics},
};

/// The time after which runs of keys that belong to other members are logged: the others wait for them.
const SLOW_DRAIN: Duration = Duration::from_secs(30);

/// The membership in a group, until it is released, lost or dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    joined: CancellationToken,
    lost: CancellationToken,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Membership {
    /// Joins the group.
    ///
    /// # Errors
    /// When the durations are inconsistent, or the name is not a valid label value.
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
        let own = options.own_lease();
        let lock = AnyLock::lease(client.clone(), &own.namespace, &own.name);
        let task_state = MembershipTask {
            lease: LeaseClient::new("sharding", lock, &own, clock, random),
            leases: Api::namespaced(client, &options.namespace),
            member: Protocol::new(&options),
            metrics: metrics.shards(&options.name),
            share,
            fence,
            options,
            joined: joined.clone(),
            lost: lost.clone().drop_guard(),
            draining: None,
            has_logged_litter: false,
        };
        let task = tokio::spawn(task_state.run(stop.clone()));
        Ok(Self { joined, lost, stop, task })
    }

    /// Returns a token that is cancelled when this replica has joined and may reconcile its [share](Share).
    pub(crate) fn joined(&self) -> CancellationToken {
        self.joined.clone()
    }

    /// Returns a token that is cancelled when the lease is lost or the task has ended: all runs must stop at once.
    pub(crate) fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Releases the lease, so that the others needn't wait for its end. To be called when all runs have ended. It takes
    /// at most the renew deadline.
    pub(crate) async fn release(mut self) {
        self.stop.cancel();
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the sharding task panicked");
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct MembershipTask {
    lease: LeaseClient,
    /// The leases of all members.
    leases: Api<Lease>,
    member: Protocol,
    options: ShardOptions,
    metrics: ShardMetrics,
    share: Share,
    fence: Fence,
    joined: CancellationToken,
    /// Cancelled also when the task panics.
    lost: DropGuard,
    /// Present while runs of other members' keys continue.
    draining: Option<Drain>,
    /// Whether it was logged that leases can't be deleted.
    has_logged_litter: bool,
}

struct Drain {
    since: Duration,
    is_logged: bool,
}

impl MembershipTask {
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
        tracing::error!(lease = self.lease.lease(), "the lease of this shard is lost");
        self.publish();
        drop(self.lost);
    }

    /// Returns whether this replica had joined and has lost its lease.
    fn is_over(&mut self) -> bool {
        self.joined.is_cancelled() && self.remaining().is_none()
    }

    fn remaining(&mut self) -> Option<Duration> {
        self.lease.remaining(self.member.candidate())
    }

    /// Lists the leases and renews the own one, within the time in which that is useful. Returns whether a new view was
    /// announced, after which the leases are listed again at once.
    async fn attempt(&mut self) -> bool {
        // A request without an answer, such as on a dead connection, leaves time for another attempt.
        let half = (self.options.renew_deadline / 2).max(Duration::from_secs(1));
        let limit = self.remaining().map_or(half, |remaining| remaining.min(half));
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
        // A slow list leaves time for the renewal, which is more important.
        let looked = timeout(limit / 2, self.look()).await.unwrap_or_else(|_| Err(RenewError::no_answer(limit / 2)));
        let has_looked = looked.is_ok();
        if let Err(setback) = looked {
            if !self.member.can_write() {
                return Err(setback);
            }
            self.lease.report_error(setback);
        }
        // From here on no run of another member's key in the new view begins; then the current ones are counted.
        self.publish();
        self.share.enqueue_received(self.member.take_received());
        let lost = self.member.forward(self.share.take_wakeups(), self.lease.monotonic());
        if lost > 0 {
            tracing::warn!("sharding: too many wake-ups for keys of other replicas: some are lost");
        }
        let busy = self.share.beyond(self.member.target(), &self.options.own_lease().name);
        self.watch_drain(busy.is_empty());
        let sent = self.lease.monotonic();
        let action = self.member.decide(busy, sent, self.lease.wall());
        let has_news = match self.lease.write(action).await? {
            Some(lease) => self.member.written(lease, sent, self.lease.monotonic()),
            None => return Err(RenewError::fault("another process uses the identity of this replica or its lease")),
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
        let leases = self.leases.list(&group).await;
        let leases = leases.map_err(|error| RenewError::new("failed to list the leases", &error))?;
        let was_joined = self.member.candidate().fence().is_some();
        self.member.listed(leases.items, asked, self.lease.monotonic());
        if was_joined && self.member.candidate().fence().is_none() {
            return Err(RenewError::fault("the lease of this replica was deleted"));
        }
        self.clear_litter().await;
        Ok(())
    }

    /// Deletes the lease of a replica that is gone. A failure is retried with the next list.
    async fn clear_litter(&mut self) {
        let Some((name, preconditions)) = self.member.litter(self.lease.monotonic()) else { return };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.leases.delete(&name, &parameters).await {
            Ok(_) => tracing::debug!(name, "sharding: deleted the lease of a replica that is gone"),
            Err(kube::Error::Api(status)) if status.code == 403 && !self.has_logged_litter => {
                self.has_logged_litter = true;
                tracing::warn!(
                    name,
                    error = status.message,
                    "sharding: failed to delete the lease of a replica that is gone: grant delete on leases to the role"
                );
            }
            Err(error) => {
                tracing::debug!(name, %error, "sharding: failed to delete the lease of a replica that is gone")
            }
        }
    }

    /// Logs runs for which other members wait.
    fn watch_drain(&mut self, is_drained: bool) {
        let now = self.lease.monotonic();
        let draining = self.draining.get_or_insert(Drain { since: now, is_logged: false });
        if is_drained {
            self.draining = None;
        } else if !draining.is_logged && now.saturating_sub(draining.since) >= SLOW_DRAIN {
            draining.is_logged = true;
            tracing::warn!(
                lease = self.lease.lease(),
                "sharding: other replicas wait for reconciles in this one; Controller::timeout limits their time"
            );
        }
    }

    /// Waits until the next attempt, until runs have ended for which others wait, or until the lease has expired.
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
            biased;
            () = sleep(pause) => {}
            () = self.share.drained(), if self.draining.is_some() => {}
        }
    }

    /// Publishes which keys this replica owns.
    fn publish(&mut self) {
        self.fence.set(self.member.candidate().fence());
        self.share.set(self.member.grant());
        self.metrics.set(self.member.target().len(), self.share.fraction(), self.member.rebalances());
    }

    fn report(&mut self) {
        let members = self.member.target().len();
        match self.member.is_settled() {
            true if members == 1 => self.lease.report("this replica is the only member: it reconciles all keys"),
            true => self.lease.report(format!("{members} replicas divide the keys")),
            false => self.lease.report(format!("the keys are being divided among {members} replicas")),
        }
    }

    async fn release(mut self) {
        self.fence.set(None);
        self.lease.release(self.member.candidate()).await;
        self.metrics.set(0, 0.0, self.member.rebalances());
        // A release is not a loss.
        drop(self.lost.disarm());
    }
}
