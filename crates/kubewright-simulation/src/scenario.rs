//! A scenario: an operator, and a function that plays its user.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::future::LocalBoxFuture;
use kubewright_cluster::Pods;
use kubewright_runtime::manager::Manager;

use crate::sim::Sim;

/// A function that adds an operator to a manager.
pub type Register = fn(Manager) -> Manager;

type User = Arc<dyn for<'a> Fn(&'a Sim) -> LocalBoxFuture<'a, ()> + Send + Sync>;

/// An operator, and a function that plays its user.
#[derive(Clone)]
pub struct Scenario {
    pub(crate) name: String,
    pub(crate) register: Register,
    pub(crate) user: User,
    pub(crate) options: Options,
}

/// The options of a scenario.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How the node runs pods. Defaults to [`Pods::Simulate`].
    pub pods: Pods,
    /// The oracles that are left out, with the reason.
    pub omitted: BTreeMap<String, String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { pods: Pods::Simulate, omitted: BTreeMap::new() }
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Scenario {
    /// Creates a scenario. `operator` is the function that `main` passes its manager to. The cluster has the custom kinds that it
    /// declares ([`Manager::kind`]).
    pub fn new(name: &str, operator: Register, user: impl AsyncFn(&Sim) + Send + Sync + 'static) -> Self {
        let user = Arc::new(user);
        let user: User = Arc::new(move |sim| {
            let user = user.clone();
            Box::pin(async move { user(sim).await })
        });
        Self { name: name.into(), register: operator, user, options: Options::default() }
    }

    /// Sets how the node runs pods: [`Pods::Simulate`] or [`Pods::None`].
    pub fn pods(mut self, pods: Pods) -> Self {
        self.options.pods = pods;
        self
    }

    /// Leaves out the node: pods stay pending until the user writes their status.
    pub fn without_pods(self) -> Self {
        self.pods(Pods::None)
    }

    /// Leaves an [oracle](crate::oracle) out, for a reason.
    pub fn omit(mut self, oracle: &str, reason: &str) -> Self {
        self.options.omitted.insert(oracle.into(), reason.into());
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
}
