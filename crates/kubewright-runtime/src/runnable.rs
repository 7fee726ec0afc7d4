//! Tasks that a manager runs besides its controllers, such as a poller or a listener.

use std::{error::Error, fmt};

use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use tokio_util::sync::CancellationToken;

use crate::{metrics::Metrics, rbac::PolicyRule};

/// The result of a runnable.
pub type RunnableResult = Result<(), Box<dyn Error + Send + Sync>>;

pub(crate) type Run = Box<dyn FnOnce(RunnableContext) -> BoxFuture<'static, RunnableResult> + Send>;

/// The resources of the manager that a runnable may use.
#[derive(Clone)]
#[non_exhaustive]
pub struct RunnableContext {
    /// The manager's client. It doesn't read from the cache.
    pub client: Client,
    /// The manager's clock.
    pub clock: SharedClock,
    /// The manager's source of randomness.
    pub random: Random,
    /// The manager's metrics.
    pub metrics: Metrics,
    /// Cancelled when the manager stops; the runnable should then end soon. After the grace period, or when leadership
    /// is lost, it is dropped at its next `await`.
    pub cancelled: CancellationToken,
}

impl fmt::Debug for RunnableContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnableContext").finish_non_exhaustive()
    }
}

/// A task that runs alongside the controllers, for [`Manager::runnable`](crate::manager::Manager::runnable).
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
    pub(crate) name: String,
    pub(crate) needs_leader: bool,
    pub(crate) policy_rules: Vec<PolicyRule>,
    pub(crate) run: Run,
}

impl fmt::Debug for Runnable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runnable").field("name", &self.name).field("needs_leader", &self.needs_leader).finish()
    }
}

impl Runnable {
    /// Creates a task that starts after the caches' watches have started and, with leader election, this replica leads.
    /// It may return at any time. If it fails or panics, the manager stops and [`run`](crate::manager::Manager::run)
    /// returns the error.
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

    /// Sets whether the task runs only on the leader (the default) or on every replica. With sharding there is no
    /// leader, and a runnable that needs one is refused.
    pub fn needs_leader(self, needs_leader: bool) -> Self {
        Self { needs_leader, ..self }
    }

    /// Adds a rule to the operator's role for the requests of the runnable; see
    /// [`Manager::policy_rule`](crate::manager::Manager::policy_rule).
    pub fn policy_rule(mut self, rule: PolicyRule) -> Self {
        self.policy_rules.push(rule);
        self
    }
}
