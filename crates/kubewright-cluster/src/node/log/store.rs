//! The logs of all containers of the node, by pod and container.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use kubewright_apimachinery::clock::SharedClock;
use parking_lot::Mutex;

use super::Log;

/// The logs of a node. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogStore(Arc<Mutex<BTreeMap<PodName, PodLogs>>>);

/// A namespace and a name.
type PodName = (String, String);

#[derive(Debug, Default)]
struct PodLogs {
    uid: String,
    containers: BTreeMap<String, ContainerLogs>,
}

/// The runs of a container whose logs are kept.
#[derive(Debug, Default)]
struct ContainerLogs {
    current: Option<Log>,
    previous: Option<Log>,
}

impl LogStore {
    /// Creates the log of a container's next run. The log of the previous run is kept, and earlier ones are removed.
    pub(crate) fn begin(&self, pod: &PodName, uid: &str, container: &str, path: PathBuf, clock: SharedClock) -> Log {
        let log = Log::new(path, clock);
        let mut pods = self.0.lock();
        let logs = pods.entry(pod.clone()).or_default();
        if logs.uid != uid {
            *logs = PodLogs { uid: uid.into(), ..PodLogs::default() };
        }
        let runs = logs.containers.entry(container.into()).or_default();
        let oldest = std::mem::replace(&mut runs.previous, runs.current.replace(log.clone()));
        drop(pods);
        if let Some(oldest) = oldest {
            oldest.remove();
        }
        log
    }

    /// Returns the log of a container's current or last run, or that of the previous run.
    pub(crate) fn find(&self, pod: &PodName, container: &str, previous: bool) -> Option<Log> {
        let pods = self.0.lock();
        let runs = pods.get(pod)?.containers.get(container)?;
        if previous { runs.previous.clone() } else { runs.current.clone() }
    }

    /// Removes the logs of a pod that is gone.
    pub(crate) fn forget(&self, pod: &PodName, uid: &str) {
        let mut pods = self.0.lock();
        if pods.get(pod).is_none_or(|logs| logs.uid != uid) {
            return;
        }
        let logs = pods.remove(pod);
        drop(pods);
        for runs in logs.into_iter().flat_map(|logs| logs.containers.into_values()) {
            for log in runs.current.into_iter().chain(runs.previous) {
                log.remove();
            }
        }
    }
}
