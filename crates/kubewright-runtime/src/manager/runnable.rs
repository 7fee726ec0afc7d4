//! What a manager runs besides controllers: a poller, a listener, a start-up chore.

use std::{error::Error, fmt, panic::AssertUnwindSafe};

use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use tokio_util::sync::CancellationToken;

use super::{ManagerError, lifecycle::Task};
use crate::{controller::Environment, metrics::Metrics, panic, rbac::PolicyRule};

/// What a runnable comes to.
pub type RunnableResult = Result<(), Box<dyn Error + Send + Sync>>;

type Run = Box<dyn FnOnce(RunnableContext) -> BoxFuture<'static, RunnableResult> + Send>;

/// What a runnable is given.
#[derive(Clone)]
#[non_exhaustive]
pub struct RunnableContext {
    /// The manager's client. It reads past the cache.
    pub client: Client,
    /// The manager's clock.
    pub clock: SharedClock,
    /// The manager's source of randomness.
    pub random: Random,
    /// Where to count.
    pub metrics: Metrics,
    /// Cancelled when the manager stops: end soon then. After the grace period, and when leadership is lost, the runnable
    /// is dropped at its next `await`.
    pub cancelled: CancellationToken,
}

impl fmt::Debug for RunnableContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnableContext").finish_non_exhaustive()
    }
}

/// Runs beside the controllers, for [`Manager::runnable`](crate::manager::Manager::runnable).
///
/// ```
/// # use std::time::Duration;
/// # use kubewright_runtime::manager::Runnable;
/// let poller = Runnable::new("poller", async |context| {
///     while context.cancelled.run_until_cancelled(tokio::time::sleep(Duration::from_secs(60))).await.is_some() {
///         context.client.apiserver_version().await?;
///     }
///     Ok(())
/// });
/// ```
pub struct Runnable {
    pub(super) name: String,
    pub(super) needs_leader: bool,
    pub(super) policy_rules: Vec<PolicyRule>,
    run: Run,
}

impl fmt::Debug for Runnable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runnable").field("name", &self.name).field("needs_leader", &self.needs_leader).finish()
    }
}

impl Runnable {
    /// Something that runs once the caches' watches have started and, with leader election, this replica leads. It may end
    /// by itself; when it fails or panics, the manager stops and [`run`](crate::manager::Manager::run) returns the error.
    pub fn new<R>(name: &str, run: impl FnOnce(RunnableContext) -> R + Send + 'static) -> Self
    where
        R: Future<Output = RunnableResult> + Send + 'static,
    {
        Self {
            name: name.into(),
            needs_leader: true,
            policy_rules: Vec::new(),
            run: Box::new(move |context| run(context).boxed()),
        }
    }

    /// Whether it runs only on the replica that leads (the default), or on every one. Where replicas divide the keys nobody
    /// leads, and one that needs the leader is refused.
    pub fn needs_leader(self, needs_leader: bool) -> Self {
        Self { needs_leader, ..self }
    }

    /// Adds a rule to the operator's role for what the runnable does, as
    /// [`Manager::policy_rule`](crate::manager::Manager::policy_rule).
    pub fn policy_rule(mut self, rule: PolicyRule) -> Self {
        self.policy_rules.push(rule);
        self
    }

    /// It as a part of the lifecycle. It doesn't panic, whatever it does.
    pub(super) fn task(self, environment: &Environment<'_>) -> Task {
        let Self { name, needs_leader, run, .. } = self;
        let Environment { client, fenced, clock, random, metrics, .. } = environment;
        let client = if needs_leader { fenced } else { client }.clone();
        let (clock, random, metrics) = (clock.clone(), random.clone(), metrics.clone());
        Box::new(move |stop, abort| {
            let context = RunnableContext { client, clock, random, metrics, cancelled: stop };
            let run = AssertUnwindSafe(async move { run(context).await }).catch_unwind();
            let run = async move {
                let ended = abort.run_until_cancelled(run).await.unwrap_or(Ok(Ok(())));
                let result =
                    ended.unwrap_or_else(|panic| Err(format!("panic: {}", panic::message(panic.as_ref())).into()));
                result.map_err(|source| ManagerError::Runnable { name, source })
            };
            run.boxed()
        })
    }
}
