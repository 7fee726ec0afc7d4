//! Objects that are created twice, because a process doesn't know what another, or its own earlier run, has created.

use std::{collections::BTreeSet, sync::Arc};

use kubewright_cluster::faults::ApiRequest;

use super::{Answer, Calm, Oracle, Seen, objects::Role};

/// Finds more objects at one time than in the run without faults. A kind of child that this run never created isn't
/// compared, nor what an operator creates by a timer: a fault can delay the user by minutes, until a scheduled time at
/// which the operator creates it. Each kind of child is found once.
pub(super) struct CreatedTwice {
    calm: Arc<Calm>,
    found: BTreeSet<Role>,
}

impl CreatedTwice {
    pub(super) fn new(calm: Arc<Calm>) -> Self {
        Self { calm, found: BTreeSet::new() }
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
        let more = self.calm.more_than_most(seen).filter(|(role, ..)| self.found.insert((*role).clone()));
        more.map(|(role, alive, most)| format!("there are {alive} {role}; without faults at most {most}")).collect()
    }
}
