//! The traces that an operator serves, and sentences about them.
//!
//! A [`Trace`] contains the triggers of a reconcile (with the changed fields), its reads and writes, its outcome, and
//! when the key is due again. An operator serves traces as JSON at `/debug/traces` on the port of its probes, and
//! `kubewright explain`, which may have been built with another version, reads them: unknown fields are ignored,
//! missing fields have their defaults, and unknown variants of an enum are `Unknown`.
//!
//! [`Display`](std::fmt::Display) formats traces and pages as lines, one for each run; [`KeyPage::explain`] formats the
//! latest run and the current state of a key as sentences. Both consist of the same clauses.

mod clause;
mod explanation;
mod form;
mod line;
mod record;
#[cfg(test)]
mod samples;

use std::{borrow::Cow, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::record::{End, Next, Query, Read, Reason, RecordedEvent, Trace, Trigger, VERSION, Write};

/// The page of all controllers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Overview {
    /// The version of the JSON format: [`VERSION`].
    pub version: u32,
    /// The controllers, by name.
    pub controllers: Vec<Summary>,
}

/// The page of a controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct KeyPage {
    /// The version of the JSON format: [`VERSION`].
    pub version: u32,
    /// The time of the response.
    pub time: Timestamp,
    /// The controller.
    pub controller: Summary,
    /// The object: `namespace/name`, or just the name.
    pub object: String,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Summary {
    /// The controller's name.
    pub name: String,
    /// The kind it reconciles.
    pub kind: Cow<'static, str>,
    /// The API group of that kind, empty for the core group.
    pub group: Cow<'static, str>,
    /// The phase.
    pub phase: Phase,
    /// The kinds that have not been listed yet, each with the error, during [`Phase::Syncing`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// A phase of a newer version of the runtime.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The state of a key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Present {
    /// A run is in progress.
    Running {
        /// The time since which the key has been in this state.
        since: Timestamp,
        /// The id of the run.
        #[serde(default)]
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
    /// A state of a newer version of the runtime.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Summary {
    /// Creates the summary of a controller with its name, its kind and its API group.
    pub fn new(name: &str, kind: impl Into<Cow<'static, str>>, group: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), kind: kind.into(), group: group.into(), ..Self::default() }
    }
}

impl Overview {
    /// Creates the page of these controllers.
    pub fn new(controllers: Vec<Summary>) -> Self {
        Self { version: VERSION, controllers }
    }
}

impl ControllerPage {
    /// Creates the page of a controller with its last traces.
    pub fn new(time: Timestamp, controller: Summary, runs: Vec<Trace>) -> Self {
        Self { version: VERSION, time, controller, runs }
    }
}

impl KeyPage {
    /// Creates the page of a key without traces.
    pub fn new(time: Timestamp, controller: Summary, object: impl Into<String>) -> Self {
        Self { version: VERSION, time, controller, object: object.into(), ..Self::default() }
    }
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
    fn written_traces_can_be_read() {
        for trace in [samples::bare(), samples::full()] {
            let text = serde_json::to_string(&trace).expect("json");
            assert_eq!(serde_json::from_str::<Trace>(&text).expect("the same form"), trace);
        }
        let page = KeyPage { runs: vec![samples::full()], ..KeyPage::new(samples::noon(0), Summary::default(), "a") };
        let text = serde_json::to_string(&page).expect("json");
        assert_eq!(serde_json::from_str::<KeyPage>(&text).expect("the same form"), page);
    }

    #[test]
    fn traces_of_other_versions_can_be_read() {
        let later = r#"{"reason": "eclipse", "at": "1970-01-01T12:00:03Z", "phaseOfTheMoon": 3}"#;
        let later: Trigger = serde_json::from_str(later).expect("unknown values are ignored");
        assert_eq!((later.reason, later.times), (Reason::Unknown, 1));
        let later = json!({
            "version": 1, "object": "demo/web", "controller": {"phase": "dreaming"}, "present": {"state": "asleep"},
            "runs": [{"end": {"result": "eclipsed"}, "next": {"when": "moon"}}],
        });
        let page: KeyPage = serde_json::from_value(later).expect("unknown values are ignored");
        assert_eq!((page.controller.phase, &page.present), (Phase::Unknown, &Present::Unknown));
        assert_eq!((&page.runs[0].end, &page.runs[0].next), (&End::Unknown, &Next::Unknown));
        let read: Read = serde_json::from_value(json!({"kind": "Pod", "by": "smell", "live": false})).expect("a read");
        assert_eq!(read.query, Query::Unknown);
    }
}
