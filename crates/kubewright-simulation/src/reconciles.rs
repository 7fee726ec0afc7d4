//! The reconciles of the operator's processes, from their traces.

use std::{collections::BTreeMap, sync::Arc};

use kubewright_runtime::trace::{Trace, Traces};

/// The number of traces of a controller that are looked at. More reconciles than these don't end between two requests.
const LAST: usize = 32;

/// The processes whose reconciles are followed.
#[derive(Debug, Default)]
pub(crate) struct Reconciles(Vec<Followed>);

#[derive(Debug)]
struct Followed {
    process: u64,
    traces: Traces,
    /// The number of runs that had ended when the traces were read last.
    read: u64,
    /// The latest trace of each controller.
    latest: BTreeMap<String, Arc<Trace>>,
}

impl Reconciles {
    /// Follows a process.
    pub(crate) fn add(&mut self, process: u64, traces: Traces) {
        self.0.push(Followed { process, traces, read: 0, latest: BTreeMap::new() });
    }

    /// Adds the processes of others.
    pub(crate) fn join(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Returns whether a reconcile has ended since the traces were read last. It takes no lock, since it is asked at
    /// each request, response and event, and mostly none has.
    pub(crate) fn have_ended(&self) -> bool {
        self.0.iter().any(Followed::has_ended)
    }

    /// Returns the reconciles that have ended since the last call, with the number of their process.
    pub(crate) fn ended(&mut self) -> Vec<(u64, Arc<Trace>)> {
        let mut ended = Vec::new();
        for followed in self.0.iter_mut().filter(|it| it.has_ended()) {
            // Before the traces: one that is added meanwhile is read again, and known then.
            followed.read = followed.traces.ended_runs();
            for controller in followed.traces.controllers() {
                let last = followed.traces.last(&controller.name, LAST);
                let latest = followed.latest.get(&*controller.name);
                let known = latest.and_then(|latest| last.iter().rposition(|trace| Arc::ptr_eq(trace, latest)));
                let new = &last[known.map_or(0, |at| at + 1)..];
                ended.extend(new.iter().map(|trace| (followed.process, trace.clone())));
                if let Some(latest) = new.last() {
                    followed.latest.insert(controller.name.to_string(), latest.clone());
                }
            }
        }
        ended
    }
}

impl Followed {
    fn has_ended(&self) -> bool {
        self.traces.ended_runs() != self.read
    }
}
