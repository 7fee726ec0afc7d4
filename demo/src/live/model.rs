//! What the live view shows, as values: objects in, lines out. It draws nothing.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde_json::Value;

/// How many events are kept; older ones have scrolled away.
const EVENTS: usize = 200;

/// All that is known of the cluster.
#[derive(Default)]
pub(crate) struct Model {
    /// The operators' resources, by kind, namespace and name.
    resources: BTreeMap<(String, String, String), Value>,
    /// Pods, by namespace and name.
    pods: BTreeMap<(String, String), Value>,
    /// What was told, oldest first.
    events: VecDeque<EventLine>,
}

/// One line of the tree of resources and their pods.
#[derive(Debug, PartialEq)]
pub(crate) struct Line {
    /// 0 for a resource, 1 for a pod of it.
    pub(crate) depth: u16,
    /// `podset/podset-sample`
    pub(crate) name: String,
    /// What its spec asks for and its status says.
    pub(crate) state: String,
    /// How it is doing, for the colour.
    pub(crate) mood: Mood,
    /// Seconds since its creation.
    pub(crate) age: i64,
}

/// How something is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// As it should be.
    Good,
    /// On its way.
    Waiting,
    /// Not as it should be.
    Bad,
}

/// One line of the events.
#[derive(Debug, PartialEq)]
pub(crate) struct EventLine {
    pub(crate) warning: bool,
    pub(crate) about: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    uid: String,
}

impl Model {
    /// Takes in one change; `gone` when the object was removed.
    pub(crate) fn take(&mut self, object: &Value, gone: bool) {
        let kind = text(object, "/kind");
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        match kind.as_str() {
            "At" | "PodSet" => {
                let group = text(object, "/apiVersion");
                set(&mut self.resources, (format!("{kind}.{group}"), namespace, name), object, gone);
            }
            "Pod" => set(&mut self.pods, (namespace, name), object, gone),
            "Event" if !gone => self.tell(object),
            _ => {}
        }
    }

    /// Resources, each followed by its pods in order of age.
    pub(crate) fn tree(&self, now: Timestamp) -> Vec<Line> {
        let mut lines = Vec::new();
        for resource in self.resources.values() {
            lines.push(resource_line(resource, now));
            let uid = text(resource, "/metadata/uid");
            let mut pods: Vec<_> = self.pods.values().filter(|pod| is_owned_by(pod, &uid)).collect();
            pods.sort_by_key(|pod| (text(pod, "/metadata/creationTimestamp"), text(pod, "/metadata/name")));
            lines.extend(pods.into_iter().map(|pod| pod_line(pod, now)));
        }
        lines
    }

    /// Events, newest first.
    pub(crate) fn events(&self) -> impl Iterator<Item = &EventLine> {
        self.events.iter().rev()
    }

    fn tell(&mut self, event: &Value) {
        let kind = text(event, "/involvedObject/kind").to_lowercase();
        let line = EventLine {
            warning: text(event, "/type") == "Warning",
            about: format!("{kind}/{}", text(event, "/involvedObject/name")),
            reason: text(event, "/reason"),
            message: text(event, "/message"),
            uid: text(event, "/metadata/uid"),
        };
        // A repeated event is the same object, counted up: it is shown once, in its newest place.
        self.events.retain(|present| present.uid != line.uid);
        self.events.push_back(line);
        if self.events.len() > EVENTS {
            self.events.pop_front();
        }
    }
}

fn set<K: Ord>(objects: &mut BTreeMap<K, Value>, key: K, object: &Value, gone: bool) {
    if gone {
        objects.remove(&key);
    } else {
        objects.insert(key, object.clone());
    }
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

fn is_owned_by(object: &Value, uid: &str) -> bool {
    object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array)
        .is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid))
}

fn age(object: &Value, now: Timestamp) -> i64 {
    let created: Option<Timestamp> = text(object, "/metadata/creationTimestamp").parse().ok();
    created.map_or(0, |created| now.duration_since(created).as_secs().max(0))
}

fn resource_line(resource: &Value, now: Timestamp) -> Line {
    let name = format!("{}/{}", text(resource, "/kind").to_lowercase(), text(resource, "/metadata/name"));
    let (state, mood) = if text(resource, "/kind") == "At" { at_state(resource) } else { podset_state(resource) };
    Line { depth: 0, name, state, mood, age: age(resource, now) }
}

fn at_state(at: &Value) -> (String, Mood) {
    let phase = text(at, "/status/phase");
    let mood = if phase == "DONE" { Mood::Good } else { Mood::Waiting };
    (format!("{phase:<8} at {}: {}", text(at, "/spec/schedule"), text(at, "/spec/command")), mood)
}

fn podset_state(podset: &Value) -> (String, Mood) {
    let desired = number(podset, "/spec/replicas");
    // The two flavours name the same number differently.
    let running = number(podset, "/status/availableReplicas").max(number(podset, "/status/replicas"));
    let mood = if desired == running { Mood::Good } else { Mood::Waiting };
    (format!("{running} of {desired} pods ({})", text(podset, "/apiVersion")), mood)
}

fn pod_line(pod: &Value, now: Timestamp) -> Line {
    let waiting = pod
        .pointer("/status/containerStatuses")
        .and_then(Value::as_array)
        .and_then(|statuses| statuses.iter().find_map(|status| status.pointer("/state/waiting/reason")?.as_str()));
    let phase = text(pod, "/status/phase");
    let leaving = pod.pointer("/metadata/deletionTimestamp").is_some();
    let (state, mood) = match (leaving, waiting, phase.as_str()) {
        (true, ..) => ("Terminating".to_owned(), Mood::Waiting),
        (_, Some("ContainerCreating" | "PodInitializing"), _) => ("starting".to_owned(), Mood::Waiting),
        (_, Some(reason), _) => (reason.to_owned(), Mood::Bad),
        (_, _, "Running" | "Succeeded") => (phase, Mood::Good),
        (_, _, "Failed") => (phase, Mood::Bad),
        _ => (phase, Mood::Waiting),
    };
    Line { depth: 1, name: text(pod, "/metadata/name"), state, mood, age: age(pod, now) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, owner: &str, status: Value) -> Value {
        json!({ "kind": "Pod", "apiVersion": "v1", "status": status, "metadata": {
            "name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{ "uid": owner }],
        } })
    }

    fn at() -> Value {
        json!({ "kind": "At", "apiVersion": "cnat.d2iq.com/v1alpha1",
            "metadata": { "name": "a", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "schedule": "2020-01-30T10:02:00Z", "command": "echo YAY" }, "status": { "phase": "RUNNING" } })
    }

    #[test]
    fn pods_stand_under_their_owner_and_go_with_it() {
        let now = "2026-01-01T00:00:05Z".parse().unwrap();
        let mut model = Model::default();
        model.take(&pod("stranger", "other", json!({ "phase": "Running" })), false);
        model.take(&pod("a-pod", "u", json!({ "phase": "Running" })), false);
        model.take(&at(), false);
        let tree = model.tree(now);
        let names: Vec<_> = tree.iter().map(|line| (line.depth, line.name.as_str(), line.age)).collect();
        assert_eq!(names, [(0, "at/a", 5), (1, "a-pod", 5)]);
        assert_eq!(tree[0].state, "RUNNING  at 2020-01-30T10:02:00Z: echo YAY");

        model.take(&at(), true);
        assert_eq!(model.tree(now), []);
    }

    #[test]
    fn a_pod_that_cannot_start_is_bad_news() {
        let status = json!({ "phase": "Pending", "containerStatuses": [{ "state": { "waiting": { "reason": "ErrImagePull" } } }] });
        let line = pod_line(&pod("p", "u", status), Timestamp::UNIX_EPOCH);
        assert_eq!((line.state.as_str(), line.mood), ("ErrImagePull", Mood::Bad));
    }

    #[test]
    fn a_repeated_event_is_shown_once() {
        let event = json!({ "kind": "Event", "type": "Normal", "reason": "PhaseChange", "message": "DONE",
            "metadata": { "uid": "e" }, "involvedObject": { "kind": "At", "name": "a" } });
        let mut model = Model::default();
        model.take(&event, false);
        model.take(&event, false);
        let told: Vec<_> = model.events().map(|event| event.about.as_str()).collect();
        assert_eq!(told, ["at/a"]);
    }
}
