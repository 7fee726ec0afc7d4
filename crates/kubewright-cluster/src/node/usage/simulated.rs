//! What simulated pods use: what a test says.

use std::{fmt, sync::Arc, time::Duration};

use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{Measurement, ResourceMetrics, ResourceUsage};
use parking_lot::Mutex;
use serde_json::Value;

use super::{Usage, UsageTotals};
use crate::{
    controllers::{
        objects::Objects,
        value::{list, text, time},
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

    fn running(&self, pod: &Value) -> Vec<(String, ResourceUsage)> {
        let usage = self.usage.lock().clone();
        let statuses = list(pod, "/status/initContainerStatuses").iter().chain(list(pod, "/status/containerStatuses"));
        let running = statuses.filter(|status| !status["state"]["running"].is_null());
        running.map(|status| text(status, "/name")).map(|name| (name.to_owned(), usage(pod, name))).collect()
    }
}

/// As if the containers had always used what they use now.
impl UsageTotals for SimulatedUsage {
    fn containers(&self, pod: &Value) -> Vec<(String, Usage)> {
        if !is_here(pod) || has_ended(pod) {
            return Vec::new();
        }
        let at = self.clock.now();
        let age = time(pod, "/status/startTime").map_or(0, |started| at.duration_since(started).as_nanos());
        let usage = |used: ResourceUsage| {
            let nanos = u128::from(used.cpu_nanocores) * u128::try_from(age).unwrap_or_default() / 1_000_000_000;
            let cpu_nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
            Usage { at, cpu_nanos, nanocores: Some(used.cpu_nanocores), memory: used.memory_bytes }
        };
        self.running(pod).into_iter().map(|(name, used)| (name, usage(used))).collect()
    }

    fn node_usage(&self) -> Option<Usage> {
        let mut sum = Usage { at: self.clock.now(), cpu_nanos: 0, nanocores: Some(0), memory: 0 };
        for pod in self.pods.all() {
            for (_, used) in self.containers(&pod) {
                sum.cpu_nanos = sum.cpu_nanos.saturating_add(used.cpu_nanos);
                sum.nanocores = sum.nanocores.zip(used.nanocores).map(|(sum, one)| sum.saturating_add(one));
                sum.memory = sum.memory.saturating_add(used.memory);
            }
        }
        Some(sum)
    }
}

impl ResourceMetrics for SimulatedUsage {
    fn pod(&self, pod: &Value) -> Option<Measurement<Vec<(String, ResourceUsage)>>> {
        let containers = self.running(pod);
        (is_here(pod) && !containers.is_empty()).then(|| self.measured(containers))
    }

    fn node(&self, node: &Value) -> Option<Measurement<ResourceUsage>> {
        if text(node, "/metadata/name") != crate::node::NODE_NAME {
            return None;
        }
        let mut sum = ResourceUsage::default();
        for pod in self.pods.all().iter().filter(|pod| is_here(pod) && !has_ended(pod)) {
            for (_, used) in self.running(pod) {
                sum.cpu_nanocores = sum.cpu_nanocores.saturating_add(used.cpu_nanocores);
                sum.memory_bytes = sum.memory_bytes.saturating_add(used.memory_bytes);
            }
        }
        Some(self.measured(sum))
    }
}
