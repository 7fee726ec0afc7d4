//! Objects that are created twice, because a process doesn't know what another, or its own earlier run, has created.

use std::sync::Arc;

use kubewright_cluster::faults::ApiRequest;

use super::{Answer, Calm, Oracle, Seen};

/// Finds more objects at one time than in the run without faults.
pub(super) struct CreatedTwice(Arc<Calm>);

impl CreatedTwice {
    pub(super) fn new(calm: Arc<Calm>) -> Self {
        Self(calm)
    }
}

impl Oracle for CreatedTwice {
    fn name(&self) -> &'static str {
        "created-twice"
    }

    fn executed(&mut self, _: &ApiRequest, answer: Answer, seen: &Seen<'_>) -> Vec<String> {
        if answer.code != 201 {
            return Vec::new();
        }
        let expected = |role| self.0.most.get(role).copied().unwrap_or_default();
        let more = seen.created.alive().iter().filter(|(role, alive)| **alive > expected(role));
        more.map(|(role, alive)| format!("there are {alive} {role}; without faults at most {}", expected(role)))
            .collect()
    }
}
