//! The lifecycle of controllers and runnables: start on every replica or with the lease, and shutdown.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio::{
    task::{JoinError, JoinSet},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{ManagerError, Replicas};
use crate::{
    controller::Environment,
    leader::{AnyLock, LeaderElection},
    panic,
    runnable::{Runnable, RunnableContext},
    shard::Membership,
};

/// A task that stops gracefully when the first token is cancelled, and ends at once when the second is cancelled.
pub(super) type Task =
    Box<dyn FnOnce(CancellationToken, CancellationToken) -> BoxFuture<'static, Result<(), ManagerError>> + Send>;

/// A lease that must be held while the tasks run.
pub(super) struct LeaseHold {
    lease: String,
    begun: CancellationToken,
    lost: CancellationToken,
    holding: Holding,
}

enum Holding {
    Leadership(LeaderElection),
    Membership(Membership),
}

impl LeaseHold {
    /// Starts acquiring the lease; `None` if no lease is needed.
    pub(super) fn start(
        replicas: Replicas,
        lock: Option<AnyLock>,
        environment: &Environment,
    ) -> Result<Option<Self>, ManagerError> {
        let Environment { client, clock, random, metrics, share, fence, .. } = environment;
        let (client, clock, random, fence) = (client.clone(), clock.clone(), random.clone(), fence.clone());
        Ok(match replicas {
            Replicas::Alone | Replicas::Args { .. } => None,
            Replicas::Lead(options) => {
                let lease = format!("{}/{}", options.namespace, options.name);
                let lock = lock.unwrap_or_else(|| AnyLock::lease(client, &options.namespace, &options.name));
                let election = LeaderElection::fenced(lock, options, clock, random, metrics.clone(), fence)?;
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
                let why = election.last_error().unwrap_or_else(|| "the process was stopped for too long".into());
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

/// The tasks of a manager, by the time at which they run.
#[derive(Default)]
pub(super) struct Tasks {
    /// Tasks that run on every replica from the start.
    everywhere: Vec<Task>,
    /// Tasks that run while the lease is held.
    elected: Vec<Task>,
}

impl Tasks {
    /// Adds a task.
    pub(super) fn add(&mut self, needs_leader: bool, task: Task) {
        let group = if needs_leader { &mut self.elected } else { &mut self.everywhere };
        group.push(task);
    }
}

/// The run of a manager's tasks.
pub(super) struct Lifecycle {
    pub(super) tasks: Tasks,
    pub(super) hold: Option<LeaseHold>,
    /// Cancelled when the `elected` tasks start.
    pub(super) begun: CancellationToken,
    /// The grace period for all tasks to end.
    pub(super) grace: Duration,
}

impl Lifecycle {
    /// Runs the tasks until `shutdown` completes, a task fails, or the lease is lost. Returns after all tasks have
    /// ended.
    ///
    /// # Errors
    /// That of the first task that failed, the loss of the lease, or [`ManagerError::GraceExceeded`]. Without a grace
    /// period, tasks are aborted without an error, as in controller-runtime.
    pub(super) async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
        let Self { tasks: Tasks { everywhere, elected }, hold, begun, grace } = self;
        let (stop, abort) = (CancellationToken::new(), CancellationToken::new());
        let mut running = JoinSet::new();
        let start = |running: &mut JoinSet<_>, tasks: Vec<Task>| {
            tasks.into_iter().for_each(|task| drop(running.spawn(task(stop.clone(), abort.clone()))));
        };
        start(&mut running, everywhere);
        let (may_begin, lost) = match &hold {
            Some(hold) => (hold.begun.clone(), hold.lost.clone()),
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
                // Cancelled by a task that can't continue; its error is returned below.
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
        // It begins before that of the controllers which were added, whose end must not hide that they were aborted.
        let elapsed = sleep(grace);
        stop.cancel();
        let mut was_aborted = false;
        let mut patience = std::pin::pin!(async {
            tokio::select! {
                biased;
                () = lost.cancelled() => {}
                () = elapsed => {}
            }
        });
        loop {
            tokio::select! {
                biased;
                // Other replicas may take over now, so all tasks must end at once.
                () = &mut patience, if !abort.is_cancelled() => {
                    if !running.is_empty() {
                        was_aborted = true;
                        warn!(running = running.len(), "aborting tasks that have not ended");
                        if result.is_ok() && !grace.is_zero() {
                            result = Err(ManagerError::GraceExceeded(grace));
                        }
                    }
                    abort.cancel();
                }
                ended = running.join_next() => match ended.map(outcome) {
                    None => break,
                    Some(Ok(())) => {}
                    Some(Err(error)) if result.is_ok() => result = Err(error),
                    Some(Err(error)) => error!(%error, "a task failed while stopping"),
                }
            }
        }
        let Some(hold) = hold else { return result };
        if lost.is_cancelled() {
            result = Err(hold.loss());
        }
        if was_aborted {
            // Aborted writes may still take effect, so the next leader must wait until the lease expires.
            info!(lease = hold.lease, "not releasing the lease, as tasks were aborted");
        } else {
            hold.release().await;
        }
        result
    }
}

/// Returns the task of a runnable. A panic is returned as an error.
pub(super) fn runnable_task(runnable: Runnable, environment: &Environment) -> Task {
    let Runnable { name, needs_leader, run, .. } = runnable;
    let Environment { client, fenced, clock, random, metrics, .. } = environment;
    let client = if needs_leader { fenced } else { client }.clone();
    let (clock, random, metrics) = (clock.clone(), random.clone(), metrics.clone());
    Box::new(move |stop, abort| {
        let context = RunnableContext { client, clock, random, metrics, cancelled: stop };
        let run = AssertUnwindSafe(async move { run(context).await }).catch_unwind();
        let run = async move {
            let ended = abort.run_until_cancelled(run).await.unwrap_or(Ok(Ok(())));
            let result = ended.unwrap_or_else(|panic| Err(format!("panic: {}", panic::message(panic.as_ref())).into()));
            result.map_err(|source| ManagerError::Runnable { name, source })
        };
        run.boxed()
    })
}

fn outcome(ended: Result<Result<(), ManagerError>, JoinError>) -> Result<(), ManagerError> {
    ended.unwrap_or_else(|error| Err(ManagerError::Task(error)))
}
