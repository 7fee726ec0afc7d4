//! From the start of the work to its end: what runs on every replica, what waits for the lease, and how both stop.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::{
    task::{JoinError, JoinSet},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{ManagerError, Replicas};
use crate::{controller::Environment, leader::LeaderElection, shard::Membership};

/// Something that works until the first token is cancelled, and has ended soon after the second is.
pub(super) type Task =
    Box<dyn FnOnce(CancellationToken, CancellationToken) -> BoxFuture<'static, Result<(), ManagerError>> + Send>;

/// A lease that has to be held while work is done.
pub(super) struct Tenure {
    lease: String,
    begun: CancellationToken,
    lost: CancellationToken,
    holding: Holding,
}

enum Holding {
    Leadership(LeaderElection),
    Membership(Membership),
}

impl Tenure {
    /// Starts to try for the lease; none if none is needed.
    pub(super) fn start(replicas: Replicas, environment: &Environment<'_>) -> Result<Option<Self>, ManagerError> {
        let Environment { client, clock, random, metrics, share, fence, .. } = environment;
        let (client, clock, random, fence) = (client.clone(), clock.clone(), random.clone(), fence.clone());
        Ok(match replicas {
            Replicas::Alone | Replicas::Args { .. } => None,
            Replicas::Lead(options) => {
                let lease = format!("{}/{}", options.namespace, options.name);
                let election = LeaderElection::fenced(client, options, clock, random, metrics.clone(), fence)?;
                let (begun, lost) = (election.elected(), election.lost());
                Some(Self { lease, begun, lost, holding: Holding::Leadership(election) })
            }
            Replicas::Shard(options) => {
                let lease = format!("{}/{}", options.namespace, options.own_lease().name);
                let membership = Membership::start(client, options, share.clone(), fence, clock, random, metrics)?;
                let (begun, lost) = (membership.joined(), membership.lost());
                Some(Self { lease, begun, lost, holding: Holding::Membership(membership) })
            }
        })
    }

    fn loss(&self) -> ManagerError {
        match &self.holding {
            Holding::Leadership(election) => {
                let why = election.setback().unwrap_or_else(|| "the process stood still".into());
                ManagerError::LeadershipLost { lease: self.lease.clone(), why }
            }
            Holding::Membership(_) => ManagerError::ShardLost(self.lease.clone()),
        }
    }

    async fn release(self) {
        match self.holding {
            Holding::Leadership(election) => election.release().await,
            Holding::Membership(membership) => membership.release().await,
        }
    }
}

/// What runs, and when.
pub(super) struct Lifecycle {
    /// On every replica, at once.
    pub(super) everywhere: Vec<Task>,
    /// While the lease is held.
    pub(super) elected: Vec<Task>,
    pub(super) tenure: Option<Tenure>,
    /// Cancelled when those begin.
    pub(super) begun: CancellationToken,
    /// How long all may take to end.
    pub(super) grace: Duration,
}

impl Lifecycle {
    /// Runs everything until `shutdown`, until something fails, or until the lease is lost; and until all has ended.
    pub(super) async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
        let Self { everywhere, elected, tenure, begun, grace } = self;
        let (stop, abort) = (CancellationToken::new(), CancellationToken::new());
        let mut running = JoinSet::new();
        let start = |running: &mut JoinSet<_>, tasks: Vec<Task>| {
            tasks.into_iter().for_each(|task| drop(running.spawn(task(stop.clone(), abort.clone()))));
        };
        start(&mut running, everywhere);
        let (may_begin, lost) = match &tenure {
            Some(tenure) => (tenure.begun.clone(), tenure.lost.clone()),
            None => {
                let now = CancellationToken::new();
                now.cancel();
                (now, CancellationToken::new())
            }
        };
        let mut elected = Some(elected);
        let mut shutdown = std::pin::pin!(shutdown);
        let mut result = loop {
            tokio::select! {
                biased;
                () = lost.cancelled() => break Ok(()),
                // By one of the tasks, which can't go on: it says why when it has ended.
                () = stop.cancelled() => break Ok(()),
                () = &mut shutdown => {
                    info!("stopping");
                    break Ok(());
                }
                () = may_begin.cancelled(), if elected.is_some() => {
                    begun.cancel();
                    start(&mut running, elected.take().unwrap_or_default());
                }
                Some(ended) = running.join_next() => if let Err(error) = outcome(ended) {
                    error!(%error, "stopping");
                    break Err(error);
                }
            }
        };
        stop.cancel();
        let mut was_aborted = false;
        let grace = sleep(grace);
        let mut patience = std::pin::pin!(async {
            tokio::select! {
                () = lost.cancelled() => {}
                () = grace => {}
            }
        });
        loop {
            tokio::select! {
                biased;
                // Others may begin: there is no time for good manners.
                () = &mut patience, if !abort.is_cancelled() => {
                    if !running.is_empty() {
                        was_aborted = true;
                        warn!(running = running.len(), "aborting what has not ended");
                    }
                    abort.cancel();
                }
                ended = running.join_next() => match ended.map(outcome) {
                    None => break,
                    Some(Ok(())) => {}
                    Some(Err(error)) if result.is_ok() => result = Err(error),
                    Some(Err(error)) => error!(%error, "it failed while stopping"),
                }
            }
        }
        let Some(tenure) = tenure else { return result };
        if lost.is_cancelled() {
            result = Err(tenure.loss());
        }
        if was_aborted {
            // What was cut off may still take effect: the next must wait as if this replica had died.
            info!(lease = tenure.lease, "the lease is left to expire");
        } else {
            tenure.release().await;
        }
        result
    }
}

fn outcome(ended: Result<Result<(), ManagerError>, JoinError>) -> Result<(), ManagerError> {
    ended.unwrap_or_else(|error| Err(ManagerError::Task(error)))
}
