//! The content of the live view: objects are input, lines are output. Pure.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde_json::Value;

use super::state::{self, Health, number, text};

/// The number of events that are kept.
const EVENTS: usize = 200;

/// The operators' kinds and groups, in display order.
const ROOTS: [(&str, &str); 6] = [
    ("At", "cnat.d2iq.com"),
    ("PodSet", "k8stest.justin0u0.com"),
    ("PodSet", "app.example.com"),
    ("CronJob", "batch.tutorial.kubebuilder.io"),
    ("Guestbook", "webapp.my.domain"),
    ("Lolcow", "my.domain"),
];
/// The kinds of their descendants, in display order.
const CHILDREN: [&str; 5] = ["Service", "Deployment", "ReplicaSet", "Job", "Pod"];

/// The known state of the cluster.
#[derive(Default)]
pub(crate) struct Model {
    /// The operators' resources and their descendants, by UID.
    objects: BTreeMap<String, Value>,
    /// The events, oldest first.
    events: VecDeque<EventLine>,
}

/// One line of the tree of resources and their descendants.
#[derive(Debug, PartialEq)]
pub(crate) struct Line {
    /// The depth: 0 for a resource, 1 for its children, and so on.
    pub(crate) depth: usize,
    /// The name, such as `podset/podset-sample`.
    pub(crate) name: String,
    /// The summary of spec and status.
    pub(crate) state: String,
    /// The health, for the colour.
    pub(crate) health: Health,
    /// The conditions of a resource.
    pub(crate) conditions: String,
    /// The age in seconds.
    pub(crate) age: i64,
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
    /// Processes a change. `gone` is true if the object was removed.
    pub(crate) fn take(&mut self, object: &Value, gone: bool) {
        let kind = text(object, "/kind");
        if kind == "Event" && !gone {
            self.take_event(object);
        } else if root_index(object).is_some() || CHILDREN.contains(&kind.as_str()) {
            let uid = text(object, "/metadata/uid");
            if gone {
                self.objects.remove(&uid);
            } else {
                self.objects.insert(uid, object.clone());
            }
        }
    }

    /// Returns the resources, each followed by its descendants.
    pub(crate) fn tree(&self, now: Timestamp) -> Vec<Line> {
        let mut lines = Vec::new();
        for root in self.roots() {
            self.add_lines(root, 0, now, &mut lines);
        }
        lines
    }

    /// Returns whether each operator's resource exists and is ready, and has run if it runs only once.
    pub(crate) fn is_ready(&self) -> bool {
        let roots = self.roots();
        let is_over = |root: &Value| text(root, "/kind") != "At" || text(root, "/status/phase") == "DONE";
        roots.len() >= ROOTS.len() && roots.iter().all(|root| state::is_ready(root) == Some(true) && is_over(root))
    }

    /// Returns whether a Job of a CronJob has succeeded.
    pub(crate) fn has_cronjob_run(&self) -> bool {
        self.roots().iter().any(|root| root.pointer("/status/lastSuccessfulTime").is_some())
    }

    /// Returns the events, newest first.
    pub(crate) fn events(&self) -> impl Iterator<Item = &EventLine> {
        self.events.iter().rev()
    }

    fn roots(&self) -> Vec<&Value> {
        let mut roots: Vec<_> = self.objects.values().filter(|object| root_index(object).is_some()).collect();
        roots.sort_by_key(|root| (root_index(root), text(root, "/metadata/namespace"), text(root, "/metadata/name")));
        roots
    }

    fn add_lines(&self, object: &Value, depth: usize, now: Timestamp, lines: &mut Vec<Line>) {
        let uid = text(object, "/metadata/uid");
        let mut owned: Vec<_> = self.objects.values().filter(|child| is_owned_by(child, &uid)).collect();
        owned.retain(|child| !is_retired(child));
        owned.sort_by_key(|child| {
            let rank = CHILDREN.iter().position(|kind| child["kind"] == **kind);
            (rank, text(child, "/metadata/creationTimestamp"), text(child, "/metadata/name"))
        });
        let ports: Vec<_> =
            owned.iter().map(|child| number(child, "/spec/ports/0/nodePort")).filter(|port| *port != 0).collect();
        let (state, health) = state::of(object, &ports);
        let name = text(object, "/metadata/name");
        let (name, conditions) = match depth {
            0 => (format!("{}/{name}", text(object, "/kind").to_lowercase()), state::conditions(object)),
            _ => (name, String::new()),
        };
        lines.push(Line { depth, name, state, health, conditions, age: age(object, now) });
        for child in owned {
            self.add_lines(child, depth + 1, now, lines);
        }
    }

    fn take_event(&mut self, event: &Value) {
        let kind = text(event, "/involvedObject/kind").to_lowercase();
        let line = EventLine {
            warning: text(event, "/type") == "Warning",
            about: format!("{kind}/{}", text(event, "/involvedObject/name")),
            reason: text(event, "/reason"),
            message: text(event, "/message"),
            uid: text(event, "/metadata/uid"),
        };
        // A repeated event is the same object with a higher count, and moves to the front.
        self.events.retain(|present| present.uid != line.uid);
        self.events.push_back(line);
        if self.events.len() > EVENTS {
            self.events.pop_front();
        }
    }
}

/// Returns the position of an operator's resource; `None` for other objects.
fn root_index(object: &Value) -> Option<usize> {
    let (kind, version) = (text(object, "/kind"), text(object, "/apiVersion"));
    let group = version.split('/').next().unwrap_or_default();
    ROOTS.iter().position(|root| *root == (kind.as_str(), group))
}

/// Returns whether an object is the ReplicaSet of an old revision.
fn is_retired(object: &Value) -> bool {
    object["kind"] == "ReplicaSet" && number(object, "/spec/replicas") == 0 && number(object, "/status/replicas") == 0
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, group: &str, name: &str, owner: &str) -> Value {
        json!({ "kind": kind, "apiVersion": format!("{group}/v1"), "metadata": {
            "name": name, "uid": format!("uid-{name}"), "namespace": "default",
            "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [{ "uid": format!("uid-{owner}") }],
        } })
    }

    #[test]
    fn objects_are_shown_below_their_owners_and_removed_with_them() {
        let now = "2026-01-01T00:00:05Z".parse().unwrap();
        let mut model = Model::default();
        let cow = object("Lolcow", "my.domain", "cow", "");
        let mut set = object("ReplicaSet", "apps", "set", "deployment");
        set["spec"] = json!({ "replicas": 1 });
        for object in [
            object("Pod", "v1", "stranger", "other"),
            object("CronJob", "batch", "kubernetes-own", ""),
            object("Pod", "v1", "pod", "set"),
            set,
            object("ReplicaSet", "apps", "old-set", "deployment"),
            object("Deployment", "apps", "deployment", "cow"),
            object("Service", "v1", "service", "cow"),
            object("CronJob", "batch.tutorial.kubebuilder.io", "job", ""),
            cow.clone(),
        ] {
            model.take(&object, false);
        }
        let shape = |model: &Model| -> Vec<_> { model.tree(now).into_iter().map(|it| (it.depth, it.name)).collect() };
        let tree = ["cronjob/job", "lolcow/cow", "service", "deployment", "set", "pod"].map(str::to_owned);
        assert_eq!(shape(&model), [0, 0, 1, 1, 2, 3].into_iter().zip(tree).collect::<Vec<_>>());
        assert_eq!(model.tree(now)[0].age, 5);
        model.take(&cow, true);
        assert_eq!(shape(&model).len(), 1);
    }

    #[test]
    fn a_repeated_event_is_shown_once() {
        let event = json!({ "kind": "Event", "type": "Normal", "reason": "PhaseChange", "message": "DONE",
            "metadata": { "uid": "e" }, "involvedObject": { "kind": "At", "name": "a" } });
        let mut model = Model::default();
        model.take(&event, false);
        model.take(&event, false);
        let reported: Vec<_> = model.events().map(|event| event.about.as_str()).collect();
        assert_eq!(reported, ["at/a"]);
    }
}
