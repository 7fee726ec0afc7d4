//! Reconciles that take longer than they may.

use kubewright_runtime::trace::{End, Trace};

use super::{Oracle, Seen};

/// Finds reconciles that exceed the [timeout](kubewright_runtime::controller::Controller::timeout) of their controller,
/// in a run in which nothing holds up their requests.
pub(super) struct Deadline;

impl Oracle for Deadline {
    fn name(&self) -> &'static str {
        "deadline"
    }

    fn reconciled(&mut self, _: u64, trace: &Trace, _: &Seen<'_>) -> Vec<String> {
        match &trace.end {
            End::TimedOut { limit } => {
                vec![format!("a reconcile of {} {} takes longer than {limit:?}", trace.kind, trace.object)]
            }
            _ => Vec::new(),
        }
    }
}
