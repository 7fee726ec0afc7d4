//! The pods of a job that have ended, by which the replacement of failed ones is delayed. They are remembered when they
//! are gone, as by Kubernetes' controller: a job whose pods are removed as soon as they fail isn't restarted without a
//! delay.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::{has_failed, is_tracked, manage::end};
use crate::controllers::value::text;

/// The maximum number of pods that are remembered. More failures don't change the delay.
const REMEMBERED: usize = 16;

/// The most recent pods that have ended, by UID, with the time and whether they have failed.
#[derive(Clone, Debug, Default)]
pub(super) struct EndedPods(BTreeMap<String, (Timestamp, bool)>);

impl EndedPods {
    /// Remembers the pods that have ended and wait to be counted. Others have been removed by the controller.
    pub(super) fn note(&mut self, job: &Value, pods: &[&Value], now: Timestamp) {
        for pod in pods.iter().filter(|pod| is_tracked(pod)) {
            let failed = has_failed(job, pod);
            if failed || text(pod, "/status/phase") == "Succeeded" {
                let at = end(pod).unwrap_or(now);
                self.0.entry(text(pod, "/metadata/uid").into()).or_insert((at, failed));
            }
        }
        while self.0.len() > REMEMBERED {
            let oldest = self.0.iter().min_by_key(|(_, (at, _))| *at).map(|(uid, _)| uid.clone());
            oldest.map(|uid| self.0.remove(&uid));
        }
    }

    /// Returns the time at which each pod ended, and whether it had failed.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, (Timestamp, bool))> {
        self.0.iter().map(|(uid, ended)| (uid.as_str(), *ended))
    }
}
