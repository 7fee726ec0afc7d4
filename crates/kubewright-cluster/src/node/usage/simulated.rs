//! What simulated pods use: what a test says.

use std::{fmt, sync::Arc, time::Duration};

use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{Measurement, ResourceMetrics, ResourceUsage};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    controllers::{
        objects::Objects,
        value::{list, text},
    },
    node::{has_ended, is_here},
};

/// The window of the measurements.
const WINDOW: Duration = Duration::from_secs(15);

/// Returns what a container of a pod uses, by the pod and the container's name.
type UsageOf = Arc<dyn Fn(&Value, &str) -> ResourceUsage + Send + Sync>;

/// What simulated pods use. Clones share it.
#[derive(Clone)]
pub(crate) struct SimulatedUsage {
    clock: SharedClock,
    /// The pods of the node.
    pods: Objects,
    usage: Arc<Mutex<UsageOf>>,
}

impl fmt::Debug for SimulatedUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedUsage").finish_non_exhaustive()
    }
}

impl SimulatedUsage {
    /// Creates a source for these pods, which use nothing.
    pub(crate) fn new(clock: SharedClock, pods: Objects) -> Self {
        let nothing: UsageOf = Arc::new(|_: &Value, _: &str| ResourceUsage::default());
        Self { clock, pods, usage: Arc::new(Mutex::new(nothing)) }
    }

    /// Sets what containers use.
    pub(crate) fn set(&self, usage: impl Fn(&Value, &str) -> ResourceUsage + Send + Sync + 'static) {
        *self.usage.lock() = Arc::new(usage);
    }

    fn measured<T>(&self, usage: T) -> Measurement<T> {
        Measurement { timestamp: self.clock.now(), window: WINDOW, usage }
    }

    fn containers(&self, pod: &Value) -> Vec<(String, ResourceUsage)> {
        let usage = self.usage.lock().clone();
        let statuses = list(pod, "/status/initContainerStatuses").iter().chain(list(pod, "/status/containerStatuses"));
        let running = statuses.filter(|status| !status["state"]["running"].is_null());
        running.map(|status| text(status, "/name")).map(|name| (name.to_owned(), usage(pod, name))).collect()
    }
}

impl ResourceMetrics for SimulatedUsage {
    fn pod(&self, pod: &Value) -> Option<Measurement<Vec<(String, ResourceUsage)>>> {
        let containers = self.containers(pod);
        (is_here(pod) && !containers.is_empty()).then(|| self.measured(containers))
    }

    fn node(&self, node: &Value) -> Option<Measurement<ResourceUsage>> {
        if text(node, "/metadata/name") != crate::node::NODE_NAME {
            return None;
        }
        let mut sum = ResourceUsage::default();
        for pod in self.pods.all().iter().filter(|pod| is_here(pod) && !has_ended(pod)) {
            for (_, used) in self.containers(pod) {
                sum.cpu_nanocores = sum.cpu_nanocores.saturating_add(used.cpu_nanocores);
                sum.memory_bytes = sum.memory_bytes.saturating_add(used.memory_bytes);
            }
        }
        Some(self.measured(sum))
    }
}
