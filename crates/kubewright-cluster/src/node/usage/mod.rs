//! What the node and its containers use, for `metrics.k8s.io` and the kubelet's own statistics.
//!
//! * [`host`]: processes of this host, from `/proc`
//! * [`account`]: the CPU time of a container
//! * [`simulated`]: pods without processes, which use what a test says

mod account;
mod host;
mod proc;
mod simulated;

use std::fmt::Debug;

use jiff::Timestamp;
use serde_json::Value;

pub(crate) use self::{
    host::{HostUsage, sample},
    simulated::SimulatedUsage,
};

/// What a container or the node has used up to some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) at: Timestamp,
    /// The CPU time since the start, in nanoseconds.
    pub(crate) cpu_nanos: u64,
    /// The CPU in billionths of a core, once it has been measured twice.
    pub(crate) nanocores: Option<u64>,
    /// The memory in bytes.
    pub(crate) memory: u64,
}

/// Tells what was used since the start.
pub(crate) trait UsageTotals: Debug + Send + Sync + 'static {
    /// Returns what the running containers of a pod have used, by name.
    fn containers(&self, pod: &Value) -> Vec<(String, Usage)>;
    /// Returns what the node has used, or `None` as long as that isn't known.
    fn node_usage(&self) -> Option<Usage>;
}
