//! Measurements of the host and of the processes of containers.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{Measurement, ResourceMetrics, ResourceUsage};
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    Usage, UsageTotals,
    proc::{self, Groups, Totals},
};
use crate::{
    controllers::value::text,
    node::exec::{ContainerProcesses, RunningContainers},
};

/// The time between two measurements.
const INTERVAL: Duration = Duration::from_secs(5);
/// The number of measurements that are kept: CPU is averaged over up to 15 seconds, as with metrics-server's default.
const SAMPLES: usize = 4;

/// What the node and its containers have used. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostUsage(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    node: History,
    /// By the UID of the pod and the name of the container.
    containers: BTreeMap<(String, String), (u32, History)>,
}

/// The totals at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Timestamp,
    monotonic: Duration,
    totals: Totals,
}

/// The latest samples, oldest first.
#[derive(Debug, Default)]
struct History(VecDeque<Sample>);

impl History {
    fn add(&mut self, sample: Sample) {
        self.0.push_back(sample);
        if self.0.len() > SAMPLES {
            self.0.pop_front();
        }
    }

    /// Returns the totals of the last sample.
    fn usage(&self) -> Option<Usage> {
        let last = self.0.back()?;
        let nanocores = self.measurement().map(|measured| measured.usage.cpu_nanocores);
        Some(Usage { at: last.at, cpu_nanos: last.totals.cpu_nanos, nanocores, memory: last.totals.memory })
    }

    /// Returns the use between the first and the last sample, if there are two.
    fn measurement(&self) -> Option<Measurement<ResourceUsage>> {
        let (first, last) = (self.0.front()?, self.0.back()?);
        let window = last.monotonic.checked_sub(first.monotonic).filter(|window| !window.is_zero())?;
        let used = last.totals.cpu_nanos.saturating_sub(first.totals.cpu_nanos);
        let nanocores = u128::from(used) * 1_000_000_000 / window.as_nanos();
        let usage = ResourceUsage {
            cpu_nanocores: u64::try_from(nanocores).unwrap_or(u64::MAX),
            memory_bytes: last.totals.memory,
        };
        Some(Measurement { timestamp: last.at, window, usage })
    }
}

impl HostUsage {
    /// Adds a measurement of running containers and of the node.
    fn add(
        &self,
        running: Vec<ContainerProcesses>,
        node: Option<Totals>,
        groups: &BTreeMap<u32, Totals>,
        (at, monotonic): (Timestamp, Duration),
    ) {
        let mut state = self.0.lock();
        let sample = |totals| Sample { at, monotonic, totals };
        if let Some(totals) = node {
            state.node.add(sample(totals));
        }
        let mut before = std::mem::take(&mut state.containers);
        for ContainerProcesses { uid, name, process: leader, .. } in running {
            let name = (uid, name);
            let Some(totals) = groups.get(&leader) else { continue };
            // Another process is another run of the container.
            let known = before.remove(&name).filter(|(process, _)| *process == leader);
            let (_, mut history) = known.unwrap_or((leader, History::default()));
            history.add(sample(*totals));
            state.containers.insert(name, (leader, history));
        }
    }
}

impl ResourceMetrics for HostUsage {
    fn pod(&self, pod: &Value) -> Option<Measurement<Vec<(String, ResourceUsage)>>> {
        let uid = text(pod, "/metadata/uid");
        let state = self.0.lock();
        let first = (uid.to_owned(), String::new());
        let containers = state.containers.range(first..).take_while(|((of, _), _)| of == uid);
        let mut measured: Option<Measurement<Vec<_>>> = None;
        for ((_, name), (_, history)) in containers {
            let Measurement { timestamp, window, usage } = history.measurement()?;
            let all = measured.get_or_insert(Measurement { timestamp, window, usage: Vec::new() });
            all.window = all.window.min(window);
            all.usage.push((name.clone(), usage));
        }
        measured
    }

    fn node(&self, node: &Value) -> Option<Measurement<ResourceUsage>> {
        if text(node, "/metadata/name") != crate::node::NODE_NAME {
            return None;
        }
        self.0.lock().node.measurement()
    }
}

impl UsageTotals for HostUsage {
    fn containers(&self, pod: &Value) -> Vec<(String, Usage)> {
        let uid = text(pod, "/metadata/uid");
        let state = self.0.lock();
        let containers = state.containers.range((uid.to_owned(), String::new())..).take_while(|((of, _), _)| of == uid);
        containers.filter_map(|((_, name), (_, history))| Some((name.clone(), history.usage()?))).collect()
    }

    fn node_usage(&self) -> Option<Usage> {
        self.0.lock().node.usage()
    }
}

/// Measures for as long as it is polled. On systems other than Linux, nothing can be measured.
pub(crate) async fn sample(usage: HostUsage, containers: RunningContainers, clock: SharedClock) {
    let mut groups = Groups::default();
    loop {
        let running = containers.processes();
        let leaders = running.iter().flat_map(ContainerProcesses::leaders).collect();
        let read = tokio::task::spawn_blocking(move || {
            let totals = groups.measure(&leaders);
            (proc::host(), totals, groups)
        });
        let Ok((node, totals, kept)) = read.await else { return };
        groups = kept;
        usage.add(running, node, &totals, (clock.now(), clock.monotonic()));
        tokio::time::sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn add(usage: &HostUsage, second: u64, leader: u32, cpu_millis: u64) {
        let totals = Totals { cpu_nanos: cpu_millis * 1_000_000, memory: 100 + second };
        let at = Timestamp::from_second(i64::try_from(second).unwrap()).unwrap();
        let running = vec![ContainerProcesses {
            uid: "uid".to_owned(),
            name: "main".to_owned(),
            process: leader,
            commands: Vec::new(),
        }];
        usage.add(running, Some(totals), &[(leader, totals)].into(), (at, Duration::from_secs(second)));
    }

    fn pod(usage: &HostUsage) -> Option<(u64, u64, u64)> {
        let measured = usage.pod(&json!({"metadata": {"uid": "uid"}}))?;
        let (_, used) = measured.usage.first()?;
        Some((measured.window.as_secs(), used.cpu_nanocores / 1_000_000, used.memory_bytes))
    }

    #[test]
    fn cpu_is_averaged_over_the_latest_samples() {
        let usage = HostUsage::default();
        add(&usage, 0, 7, 0);
        assert_eq!(pod(&usage), None, "one sample is no measurement");
        add(&usage, 5, 7, 5000);
        assert_eq!(pod(&usage), Some((5, 1000, 105)));
        add(&usage, 10, 7, 5000);
        assert_eq!(pod(&usage), Some((10, 500, 110)));
        add(&usage, 15, 7, 5000);
        add(&usage, 20, 7, 5000);
        assert_eq!(pod(&usage), Some((15, 0, 120)));
        assert!(usage.node(&json!({"metadata": {"name": "kubewright"}})).is_some());
        assert!(usage.node(&json!({"metadata": {"name": "other"}})).is_none());
    }

    #[test]
    fn another_process_begins_at_zero() {
        let usage = HostUsage::default();
        add(&usage, 0, 7, 9000);
        add(&usage, 5, 8, 10);
        assert_eq!(pod(&usage), None);
        add(&usage, 10, 8, 20);
        assert_eq!(pod(&usage), Some((5, 2, 110)));
    }
}
