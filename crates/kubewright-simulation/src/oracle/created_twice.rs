//! Objects that are created twice, because a process doesn't know what another, or its own earlier run, has created.

use std::sync::Arc;

use kubewright_cluster::faults::ApiRequest;

use super::{Answer, Calm, Oracle, Seen};

/// Finds more objects at one time than in the run without faults, of those that were created in it. Others are no second ones: an operator that
/// acts at certain times may create them because the faults took so long that a time has come.
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
        let alive = seen.created.alive().iter();
        let more =
            alive.filter_map(|(role, alive)| Some((role, alive, self.0.most.get(role).filter(|most| alive > most)?)));
        more.map(|(role, alive, most)| format!("there are {alive} {role}; without faults at most {most}")).collect()
    }
}
