//! Traces: the last reconciles of each key, their triggers and their effects.
//!
//! A [`Trace`] contains the triggers of a reconcile (with the changed fields), its reads and writes, its outcome, and
//! when the key is due again. [`Traces`] keeps the traces of a manager's controllers in bounded memory ([`Limits`]),
//! unless tracing is disabled ([`Traces::off`], `--traces=false`). It costs a few microseconds per reconcile.
//!
//! The manager serves them over plain HTTP at the port of its probes, on loopback:
//!
//! | path | content |
//! |---|---|
//! | `/debug/traces` | the controllers: their phase, the number of waiting keys, the number of traces ([`Overview`]) |
//! | `/debug/traces/{controller}` | a controller with its last hundred traces, or `?limit=` ([`ControllerPage`]) |
//! | `/debug/traces/{controller}/{namespace}/{name}` | the traces of a key, and its present state ([`KeyPage`]); for a cluster-scoped kind `/{name}` |
//!
//! The responses are these types as JSON. The format is stable: its `version` changes when a field changes its meaning
//! or is removed. With `?format=text` or `Accept: text/plain` each trace is a line of text:
//!
//! ```text
//! 12:00:03Z podset demo/web ran 3.1 ms because Pod demo/web-abc was deleted; read 3 Pods; created Pod demo/web-xyz (201); next: when something changes
//! ```
//!
//! **Security.** Traces contain the names of objects, kinds and changed fields, label selectors, reasons of events, and
//! error messages of the API server and the reconciler. They contain no field values, except where an error message
//! quotes one (`Invalid value: …`); errors about Secrets are not kept. Therefore they are shown only to requests on a
//! loopback connection with a loopback `Host`, such as those through `kubectl port-forward`, and on a metrics server
//! that [authenticates](crate::metrics_server::MetricsServer::guarded), to users who may `get` the path.

mod form;
mod record;
mod recorder;
mod ring;
#[cfg(test)]
mod samples;
mod text;
mod tracer;
mod triggers;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use self::{
    record::{End, Next, Query, Read, Reason, RecordedEvent, Trace, Trigger, VERSION, Write},
    ring::Limits,
};
pub(crate) use self::{
    recorder::{RunNotes, RunRecorder, Sent},
    tracer::{Begun, Surroundings, Tracer},
    triggers::{Difference, ObservedChange, Triggers},
};
use crate::object::ObjectKey;

/// The traces of a manager's controllers. Clones share the same traces: pass one to [`Manager::traces`] to read them in
/// the same process.
///
/// ```
/// # use kubewright_runtime::{manager::Manager, object::ObjectKey, trace::Traces};
/// # fn example(manager: Manager) {
/// let traces = Traces::default();
/// let manager = manager.traces(traces.clone());
/// // … later, while it runs:
/// for trace in traces.of("podset", &ObjectKey::namespaced("demo", "web")) {
///     println!("{trace}");
/// }
/// # }
/// ```
///
/// [`Manager::traces`]: crate::manager::Manager::traces
#[derive(Clone)]
pub struct Traces(Option<Arc<Inner>>);

struct Inner {
    limits: Limits,
    controllers: Mutex<tracer::Tracers>,
}

impl Default for Traces {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("limits", &self.0.as_ref().map(|inner| inner.limits)).finish_non_exhaustive()
    }
}

impl Traces {
    /// Creates traces with these limits.
    pub fn new(limits: Limits) -> Self {
        Self(Some(Arc::new(Inner { limits, controllers: Mutex::default() })))
    }

    /// Disables tracing: no traces are kept or served.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Returns whether traces are kept.
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the controllers, by name. The list is empty before the manager runs.
    pub fn controllers(&self) -> Vec<Summary> {
        self.tracers().iter().map(|tracer| tracer.summary()).collect()
    }

    /// Returns the last traces of a controller, at most `most`, oldest first.
    pub fn last(&self, controller: &str, most: usize) -> Vec<Arc<Trace>> {
        self.tracer(controller).map(|tracer| tracer.last(most)).unwrap_or_default()
    }

    /// Returns the last traces of a key, oldest first.
    pub fn of(&self, controller: &str, key: &ObjectKey) -> Vec<Arc<Trace>> {
        self.tracer(controller).map(|tracer| tracer.of(key)).unwrap_or_default()
    }

    /// Returns the last traces and the present state of a key; `None` if there is no such controller.
    pub fn explain(&self, controller: &str, key: &ObjectKey) -> Option<KeyPage> {
        Some(self.tracer(controller)?.key(key))
    }

    pub(crate) fn page(&self, controller: &str, most: usize) -> Option<ControllerPage> {
        Some(self.tracer(controller)?.page(most))
    }

    /// Creates the tracer of a controller; `None` if traces are off.
    pub(crate) fn controller(
        &self,
        name: &str,
        group_kind: [Cow<'static, str>; 2],
        workers: usize,
        surroundings: impl Surroundings + 'static,
    ) -> Option<Arc<Tracer>> {
        let inner = self.0.as_ref()?;
        let tracer = Arc::new(Tracer::new(name, group_kind, workers, inner.limits, Box::new(surroundings)));
        inner.controllers.lock().insert(name.into(), tracer.clone());
        Some(tracer)
    }

    fn tracers(&self) -> Vec<Arc<Tracer>> {
        self.0.as_ref().map(|inner| inner.controllers.lock().values().cloned().collect()).unwrap_or_default()
    }

    fn tracer(&self, controller: &str) -> Option<Arc<Tracer>> {
        self.0.as_ref()?.controllers.lock().get(controller).cloned()
    }
}

/// The page of all controllers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Overview {
    /// The version of the JSON format: [`VERSION`].
    pub version: u32,
    /// The controllers, by name.
    pub controllers: Vec<Summary>,
}

/// The page of a controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerPage {
    /// The version of the JSON format: [`VERSION`].
    pub version: u32,
    /// The time of the response.
    pub time: Timestamp,
    /// The controller.
    pub controller: Summary,
    /// The last traces, oldest first.
    pub runs: Vec<Trace>,
}

/// The page of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KeyPage {
    /// The version of the JSON format: [`VERSION`].
    pub version: u32,
    /// The time of the response.
    pub time: Timestamp,
    /// The controller.
    pub controller: Summary,
    /// The object: `namespace/name`, or just the name.
    #[serde(with = "form::key")]
    pub object: ObjectKey,
    /// True if the cache contains the object.
    pub exists: bool,
    /// The current state of the key.
    pub present: Present,
    /// The triggers of the next run.
    pub waiting: Vec<Trigger>,
    /// The last traces, oldest first.
    pub runs: Vec<Trace>,
}

/// The state of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Summary {
    /// The controller's name.
    pub name: String,
    /// The kind it reconciles.
    pub kind: Cow<'static, str>,
    /// The API group of that kind, empty for the core group.
    #[serde(default)]
    pub group: Cow<'static, str>,
    /// The phase.
    pub phase: Phase,
    /// The kinds that have not been listed yet, each with the error, during [`Phase::Syncing`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The maximum number of keys reconciled at once.
    pub workers: usize,
    /// The number of keys that wait for a worker.
    pub ready: usize,
    /// The number of keys that wait for the cache to show their last writes.
    pub held: usize,
    /// The number of keys being reconciled.
    pub running: usize,
    /// The number of runs since the start.
    pub runs: u64,
    /// The number of those that failed.
    pub failures: u64,
    /// The number of traces kept.
    pub kept: usize,
    /// The number of keys with traces.
    pub keys: usize,
    /// The approximate memory of the traces, in bytes.
    pub bytes: usize,
    /// The number of traces that were dropped because the memory was full.
    pub displaced: u64,
}

/// The phase of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Phase {
    /// Not active: the manager is starting, or another replica leads.
    Standby,
    /// Waiting for the first list of each of its kinds.
    Syncing,
    /// Reconciling keys.
    Working,
    /// Taking no more keys, since the manager is stopping.
    Stopping,
}

/// The state of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Present {
    /// A run is in progress.
    Running {
        /// The time since which the key has been in this state.
        since: Timestamp,
        /// The id of the run.
        id: String,
    },
    /// Waiting for the cache to show its last writes.
    Held {
        /// The time since which the key has been in this state.
        since: Timestamp,
    },
    /// Waiting for a worker.
    Ready,
    /// Waiting for a delay to pass.
    Delayed {
        /// The remaining time.
        #[serde(rename = "leftSeconds", with = "form::seconds")]
        left: Duration,
    },
    /// Waiting for a change.
    Idle,
    /// Assigned to another replica.
    Elsewhere,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The JSON is read by other versions and other programs, so its fields must not change.
    #[test]
    fn the_json_form_is_stable() {
        let run = serde_json::to_value(samples::full()).expect("json");
        assert_eq!(
            run,
            json!({
                "controller": "podset", "kind": "PodSet", "object": "demo/web", "id": "00000000000000ab", "attempt": 3,
                "started": "1970-01-01T12:00:03Z", "durationSeconds": 0.0031, "queuedSeconds": 0.25, "heldSeconds": 0.2,
                "triggers": [
                    {
                        "reason": "updated", "kind": "PodSet", "object": "demo/web", "times": 3,
                        "fields": ["spec.replicas", "metadata.labels[\"app\"]"], "moreFields": 2,
                        "at": "1970-01-01T12:00:02Z",
                    },
                    {"reason": "deleted", "kind": "Pod", "object": "demo/web-abc", "at": "1970-01-01T12:00:03Z"},
                    {"reason": "backoff", "at": "1970-01-01T12:00:03Z"},
                ],
                "moreTriggers": 4,
                "reads": [
                    {"kind": "Pod", "by": "owner", "live": false, "found": 3},
                    {"kind": "Pod", "by": "labels", "namespace": "demo", "selector": "app=web", "live": false, "found": 1},
                    {"kind": "Pod", "by": "name", "object": "demo/web-0", "live": false, "found": 1},
                    {"kind": "Pod", "by": "index", "index": "spec.nodeName", "value": "n1", "live": false, "found": 2},
                    {
                        "kind": "Pod", "by": "name", "object": "demo/web-9", "live": true, "durationSeconds": 0.007,
                        "error": "no answer",
                    },
                ],
                "moreReads": 1,
                "writes": [
                    {"verb": "create", "kind": "Pod", "object": "demo/web-1", "status": 201, "durationSeconds": 0.002},
                    {
                        "verb": "create", "kind": "Pod", "object": "demo/web-2", "status": 403,
                        "error": "pods is forbidden", "durationSeconds": 0.002,
                    },
                    {
                        "verb": "delete", "kind": "Pod", "object": "demo/web-3", "error": "connection reset",
                        "durationSeconds": 0.002,
                    },
                    {
                        "verb": "patch", "kind": "PodSet", "object": "demo/web", "subresource": "status", "status": 200,
                        "changed": false, "durationSeconds": 0.002,
                    },
                ],
                "moreWrites": 1,
                "events": [{"warning": false, "reason": "Created"}, {"warning": true, "reason": "FailedCreate"}],
                "moreEvents": 1,
                "end": {"result": "failed", "error": "create pods demo/web-2: pods is forbidden", "terminal": false},
                "next": {"when": "after", "delaySeconds": 1.5, "time": "1970-01-01T12:00:05Z"},
            })
        );
    }

    #[test]
    fn what_is_written_can_be_read() {
        for trace in [samples::bare(), samples::full()] {
            let text = serde_json::to_string(&trace).expect("json");
            assert_eq!(serde_json::from_str::<Trace>(&text).expect("the same form"), trace);
        }
        let later = r#"{"reason": "eclipse", "at": "1970-01-01T12:00:03Z", "phaseOfTheMoon": 3}"#;
        let later: Trigger = serde_json::from_str(later).expect("what later versions add is no error");
        assert_eq!(later.reason, Reason::Unknown);
    }
}
