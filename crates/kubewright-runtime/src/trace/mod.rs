//! Why did this reconcile? Why is nothing happening? The last runs of each key, with all that they did.
//!
//! Of each reconcile is kept what triggered it (with the changed fields), what it read and wrote, how it ended, and when
//! the key is wanted again: [`Trace`]. [`Traces`] holds those of a manager's controllers, in bounded memory ([`Limits`]), and
//! is on unless it is switched off ([`Traces::off`], `--traces=false`). A run costs a few microseconds for it.
//!
//! The manager serves them at the address of its probes, by plain HTTP:
//!
//! | path | what |
//! |---|---|
//! | `/debug/traces` | the controllers: whether they work and what they wait for, how many keys wait, how many runs are kept ([`Overview`]) |
//! | `/debug/traces/{controller}` | its last hundred runs, or `?limit=` ([`ControllerPage`]) |
//! | `/debug/traces/{controller}/{namespace}/{name}` | the runs of a key, and what it waits for now ([`KeyPage`]); for a cluster-scoped kind `/{name}` |
//!
//! They are JSON, whose form is that of the types named here and stays: its `version` changes when one of its fields changes
//! its meaning. With `?format=text`, or `Accept: text/plain`, they are sentences, a line for each run:
//!
//! ```text
//! 12:00:03Z podset demo/web ran 3.1 ms because Pod demo/web-abc was deleted; read 3 Pods; created Pod demo/web-xyz (201); next: when something changes
//! ```
//!
//! **What is shown to whoever can reach that port:** the names of objects, of kinds and of changed fields, labels that were
//! selected, reasons of events, and the texts of errors, which may quote what an API server or a reconciler put there.
//! No fields' values are looked up for it, but an error may quote one (`Invalid value: …`); of Secrets not even errors are shown. A reconciler that puts secrets into its
//! errors has them in its log as well; if that is a worry, switch traces off, or serve the probes where only the kubelet can
//! reach them.

mod form;
mod record;
mod ring;
#[cfg(test)]
mod samples;
mod tape;
mod text;
mod tracer;
mod triggers;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use self::{
    record::{End, Next, Query, Read, Reason, Told, Trace, Trigger, VERSION, Write},
    ring::Limits,
};
pub(crate) use self::{
    tape::{Notes, Sent, Tape},
    tracer::{Begun, Surroundings, Tracer},
    triggers::{Difference, ObservedChange, Triggers},
};
use crate::object::ObjectKey;

/// The traces of a manager's controllers. Clones share them; give one to [`Manager::traces`] to read them in the same
/// process.
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
    /// Traces of which so much is kept.
    pub fn new(limits: Limits) -> Self {
        Self(Some(Arc::new(Inner { limits, controllers: Mutex::default() })))
    }

    /// No traces: nothing is kept, nothing is served.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Whether anything is kept.
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The controllers, by name. Before the manager runs there are none.
    pub fn controllers(&self) -> Vec<Summary> {
        self.tracers().iter().map(|tracer| tracer.summary()).collect()
    }

    /// The last runs of a controller, at most so many, oldest first.
    pub fn last(&self, controller: &str, most: usize) -> Vec<Arc<Trace>> {
        self.tracer(controller).map(|tracer| tracer.last(most)).unwrap_or_default()
    }

    /// The last runs of a key, oldest first.
    pub fn of(&self, controller: &str, key: &ObjectKey) -> Vec<Arc<Trace>> {
        self.tracer(controller).map(|tracer| tracer.of(key)).unwrap_or_default()
    }

    /// All that can be said of a key: what it did, and what it does or waits for now. `None` if there is no such controller.
    pub fn explain(&self, controller: &str, key: &ObjectKey) -> Option<KeyPage> {
        Some(self.tracer(controller)?.key(key))
    }

    pub(crate) fn page(&self, controller: &str, most: usize) -> Option<ControllerPage> {
        Some(self.tracer(controller)?.page(most))
    }

    /// The tracer of a controller that begins; none if traces are off.
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
    /// [`VERSION`].
    pub version: u32,
    /// The controllers, by name.
    pub controllers: Vec<Summary>,
}

/// The page of a controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerPage {
    /// [`VERSION`].
    pub version: u32,
    /// When the page was made.
    pub time: Timestamp,
    /// The controller.
    pub controller: Summary,
    /// Its last runs, oldest first.
    pub runs: Vec<Trace>,
}

/// The page of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KeyPage {
    /// [`VERSION`].
    pub version: u32,
    /// When the page was made.
    pub time: Timestamp,
    /// The controller.
    pub controller: Summary,
    /// The object: `namespace/name`, or just the name.
    #[serde(with = "form::key")]
    pub object: ObjectKey,
    /// Whether the cache has it.
    pub exists: bool,
    /// What the controller does with it now.
    pub present: Present,
    /// The triggers that its next run will have.
    pub waiting: Vec<Trigger>,
    /// Its last runs, oldest first.
    pub runs: Vec<Trace>,
}

/// What can be said of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// The kind it reconciles.
    pub kind: Cow<'static, str>,
    /// The API group of that kind, empty for the core group.
    #[serde(default)]
    pub group: Cow<'static, str>,
    /// Whether it works.
    pub phase: Phase,
    /// While it is [`Phase::Syncing`]: the kinds that have not been listed yet, each with what fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// How many keys it works on at once, at most.
    pub workers: usize,
    /// How many keys wait for a worker.
    pub ready: usize,
    /// How many keys wait for the cache to show what was written last.
    pub held: usize,
    /// How many keys are worked on.
    pub running: usize,
    /// How many runs have ended since the start.
    pub runs: u64,
    /// How many of them not well.
    pub failures: u64,
    /// How many runs are kept.
    pub kept: usize,
    /// Of how many keys.
    pub keys: usize,
    /// About how many bytes they take.
    pub bytes: usize,
    /// How many runs were given up for want of room.
    pub displaced: u64,
}

/// Whether a controller works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Phase {
    /// The manager hasn't let it begin: it starts, or another replica leads.
    Standby,
    /// It waits for the first list of each of its kinds.
    Syncing,
    /// It works.
    Working,
    /// It takes no more keys: the manager stops.
    Stopping,
}

/// What a controller does with a key now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Present {
    /// A run is under way.
    Running {
        /// Since when.
        since: Timestamp,
        /// Its id.
        id: String,
    },
    /// It waits until the cache shows what was written last.
    Held {
        /// Since when.
        since: Timestamp,
    },
    /// It waits for a worker.
    Ready,
    /// It waits for a time.
    Delayed {
        /// How long still.
        #[serde(rename = "leftSeconds", with = "form::seconds")]
        left: Duration,
    },
    /// It waits for a change.
    Idle,
    /// Another replica works on it.
    Elsewhere,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The JSON is read by other versions and other programs: its words are pinned here.
    #[test]
    fn the_form_is_stable() {
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
