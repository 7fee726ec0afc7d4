//! The pods of the node, and what the kubelet counts of their containers.

use std::{collections::BTreeMap, sync::Arc};

use kubewright_apiserver::{Change, ChangeKind};
use parking_lot::Mutex;
use serde_json::Value;

use crate::controllers::{
    objects::Objects,
    reconcile::Key,
    value::{list, text},
};

/// The lists of a pod's status that have the states of containers, with the type of these containers as the kubelet's
/// metrics name it.
pub(crate) const STATUSES: [(&str, &str); 3] = [
    ("/status/initContainerStatuses", "init_container"),
    ("/status/containerStatuses", "container"),
    ("/status/ephemeralContainerStatuses", "ephemeral_container"),
];

/// The pods of a node. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodePods {
    objects: Objects,
    counts: Arc<Mutex<ContainerCounts>>,
}

/// The numbers of containers that have been started and have ended, since the node was started.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerCounts {
    /// By type.
    pub(crate) started: BTreeMap<&'static str, u32>,
    /// By type, exit code and reason.
    pub(crate) terminated: BTreeMap<(&'static str, i64, String), u32>,
}

impl NodePods {
    /// Returns the pods' objects.
    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the numbers of containers.
    pub(crate) fn counts(&self) -> ContainerCounts {
        self.counts.lock().clone()
    }

    /// Processes a change of a pod of the node.
    pub(crate) fn take(&self, change: &Change) {
        let after = change.object();
        if change.kind != ChangeKind::Deleted
            && STATUSES.iter().any(|(at, _)| list(after, at).iter().any(|status| !id(status).is_empty()))
            && let Some(before) = Key::of(after).and_then(|key| self.objects.get(&key))
        {
            self.counts.lock().take(&before, after);
        }
        self.objects.take(change);
    }

    /// Removes all pods, whose changes have been missed.
    pub(crate) fn clear(&self) {
        self.objects.clear();
    }
}

impl ContainerCounts {
    /// Counts the containers that have been started, or have ended, between two states of a pod.
    fn take(&mut self, before: &Value, after: &Value) {
        for (at, kind) in STATUSES {
            for status in list(after, at) {
                let past = list(before, at).iter().find(|past| past["name"] == status["name"]).unwrap_or(&Value::Null);
                if !id(status).is_empty() && id(status) != id(past) {
                    *self.started.entry(kind).or_default() += 1;
                }
                let ended = &status["state"]["terminated"];
                if ended.is_object() && !past["state"]["terminated"].is_object() {
                    let code = ended["exitCode"].as_i64().unwrap_or_default();
                    *self.terminated.entry((kind, code, text(ended, "/reason").to_owned())).or_default() += 1;
                }
            }
        }
    }
}

fn id(status: &Value) -> &str {
    text(status, "/containerID")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn starts_and_ends_are_counted_once() {
        let pod = |id: &str, state: Value| json!({"status": {"containerStatuses": [{"name": "main", "containerID": id, "state": state}]}});
        let ended = json!({"terminated": {"exitCode": 3, "reason": "Error"}});
        let running = json!({"running": {}});
        let states = [
            json!({}),
            pod("a", running.clone()),
            pod("a", ended.clone()),
            pod("a", ended.clone()),
            pod("b", running),
            pod("c", ended),
        ];
        let mut counts = ContainerCounts::default();
        for pair in states.windows(2) {
            counts.take(&pair[0], &pair[1]);
        }
        assert_eq!(counts.started, BTreeMap::from([("container", 3)]));
        assert_eq!(counts.terminated, BTreeMap::from([(("container", 3, "Error".to_owned()), 2)]));
    }
}
