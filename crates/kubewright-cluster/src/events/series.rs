//! Events as the scheduler records them, through `events.k8s.io`: the repetitions of an event are a series, whose
//! number is written with the second one and when the series ends (`k8s.io/client-go/tools/events`). Pure, but for the
//! task that writes.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kubewright_apimachinery::clock::SharedClock;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{ObjectEvent, correlation::REMEMBERED, micro};
use crate::{
    node::NODE_NAME,
    object_client::{ObjectClient, ObjectPath, is_gone},
};

/// How long after its last event a series has ended.
const FINISHED: SignedDuration = SignedDuration::from_mins(6);
/// After which time the number of a series that goes on is written again.
const REFRESHED: SignedDuration = SignedDuration::from_mins(30);
/// The greatest length of a note in bytes.
const MAX_NOTE: usize = 1024;

/// The events that are repeated if they occur again, by what a repetition has in common with the first one: everything
/// but the note.
#[derive(Debug, Default)]
struct Series {
    known: BTreeMap<ObjectEvent, Known>,
    /// Those of them that had occurred once when they were written, in order; at most [`REMEMBERED`].
    single: VecDeque<(Timestamp, ObjectEvent)>,
    /// A time before which no series has to be written; `None` if there are none.
    next_due: Option<Timestamp>,
}

/// An event that has been written.
#[derive(Clone, Debug)]
struct Known {
    body: Value,
    count: u32,
    last: Timestamp,
    written: u32,
    written_at: Timestamp,
}

impl Known {
    /// Returns the time at which the number of the series has to be written.
    fn due(&self) -> Option<Timestamp> {
        let ends = self.last.checked_add(FINISHED).ok();
        let refreshed = self.written_at.checked_add(REFRESHED).ok();
        (self.count > 1).then(|| ends.min(refreshed))?
    }

    /// Returns the event with the series so far.
    fn with_series(&mut self, now: Timestamp) -> Value {
        (self.written, self.written_at) = (self.count, now);
        let mut body = self.body.clone();
        body["series"] = json!({"count": self.count, "lastObservedTime": micro(self.last)});
        body
    }
}

/// Something to write.
#[derive(Debug, PartialEq)]
enum Write {
    Create(Value),
    /// An event with another series.
    Count(Value),
}

impl Series {
    /// Returns what has to be written about an occurrence, if anything.
    fn observe(&mut self, event: &ObjectEvent, body: impl FnOnce() -> Value, now: Timestamp) -> Option<Write> {
        self.forget_single(now);
        let key = ObjectEvent { message: String::new(), ..event.clone() };
        let Some(known) = self.known.get_mut(&key) else {
            let known = Known { body: body(), count: 1, last: now, written: 1, written_at: now };
            let created = Write::Create(known.body.clone());
            self.known.insert(key.clone(), known);
            self.single.push_back((now, key));
            return Some(created);
        };
        (known.count, known.last) = (known.count.saturating_add(1), now);
        if known.count > 2 {
            return None;
        }
        let counted = Write::Count(known.with_series(now));
        self.next_due = self.next_due.into_iter().chain(known.due()).min();
        Some(counted)
    }

    /// Forgets the events that haven't been repeated in time, and the oldest ones of too many.
    fn forget_single(&mut self, now: Timestamp) {
        while let Some((at, _)) = self.single.front()
            && (now.duration_since(*at) > FINISHED || self.single.len() >= REMEMBERED)
        {
            let Some((_, key)) = self.single.pop_front() else { return };
            if self.known.get(&key).is_some_and(|known| known.count == 1) {
                self.known.remove(&key);
            }
        }
    }

    /// Returns the series that have to be written, and forgets those that have ended.
    fn take_due(&mut self, now: Timestamp) -> Vec<Write> {
        let mut writes = Vec::new();
        self.known.retain(|_, known| {
            if known.due().is_none_or(|due| due > now) {
                return true;
            }
            if known.count > known.written {
                writes.push(Write::Count(known.with_series(now)));
            }
            known.written_at = now;
            now.duration_since(known.last) < FINISHED
        });
        self.next_due = self.known.values().filter_map(Known::due).min();
        writes
    }
}

/// Writes events as they are recorded.
pub(super) struct Writer {
    component: &'static str,
    client: ObjectClient,
    clock: SharedClock,
    /// The nanosecond timestamp in the name of the most recent event.
    last: i128,
    series: Series,
}

impl Writer {
    pub(super) fn new(component: &'static str, client: ObjectClient, clock: SharedClock) -> Self {
        Self { component, client, clock, last: 0, series: Series::default() }
    }

    pub(super) async fn run(mut self, mut events: mpsc::Receiver<ObjectEvent>) {
        loop {
            let now = self.clock.now();
            let pause = self.series.next_due.map(|due| Duration::try_from(due.duration_since(now)).unwrap_or_default());
            let timer = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = timer => {
                    let writes = self.series.take_due(self.clock.now());
                    self.write(writes).await;
                }
                event = events.recv() => {
                    let Some(event) = event else { return };
                    let now = self.clock.now();
                    self.last = now.as_nanosecond().max(self.last + 1);
                    let (component, last) = (self.component, self.last);
                    let write = self.series.observe(&event, || body(component, &event, last, now), now);
                    self.write(write).await;
                }
            }
        }
    }

    async fn write(&self, writes: impl IntoIterator<Item = Write>) {
        for write in writes {
            let result = match &write {
                Write::Create(body) => self.client.create(&path(body, ""), "", body).await,
                Write::Count(body) => {
                    let patch = json!({"series": body["series"]});
                    let name = body["metadata"]["name"].as_str().unwrap_or_default();
                    match self.client.merge(&path(body, name), "", &patch).await {
                        // The event is too old to be there still.
                        Err(error) if is_gone(&error) => self.client.create(&path(body, ""), "", body).await,
                        result => result,
                    }
                }
            };
            if let Err(error) = result {
                tracing::debug!(%error, "failed to write an event");
            }
        }
    }
}

fn path(body: &Value, name: &str) -> ObjectPath {
    let namespace = body["metadata"]["namespace"].as_str();
    ObjectPath { group: "events.k8s.io".into(), ..ObjectPath::core("events", namespace, name) }
}

/// Returns an event of `events.k8s.io/v1`.
fn body(component: &str, event: &ObjectEvent, name: i128, now: Timestamp) -> Value {
    let [.., namespace, of, _] = &event.regarding;
    let mut regarding = reference(&event.regarding);
    if !event.version.is_empty() {
        regarding["resourceVersion"] = event.version.as_str().into();
    }
    let mut body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": format!("{of}.{name:x}"), "namespace": if namespace.is_empty() { "default" } else { namespace }},
        "eventTime": micro(now),
        "reportingController": component,
        "reportingInstance": format!("{component}-{NODE_NAME}"),
        "action": event.action,
        "reason": event.reason,
        "regarding": regarding,
        "note": truncated(&event.message),
        "type": if event.warning { "Warning" } else { "Normal" },
    });
    if let Some(related) = &event.related {
        body["related"] = reference(related);
    }
    body
}

fn reference([version, kind, namespace, name, uid]: &[String; 5]) -> Value {
    json!({"apiVersion": version, "kind": kind, "namespace": namespace, "name": name, "uid": uid})
}

/// Shortens a note to its greatest length.
fn truncated(note: &str) -> String {
    const END: &str = " ...";
    if note.len() <= MAX_NOTE {
        return note.to_owned();
    }
    let end = note.floor_char_boundary(MAX_NOTE - END.len());
    format!("{}{END}", &note[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(message: &str) -> ObjectEvent {
        let regarding = ["v1".into(), "Pod".into(), "default".into(), "web".into(), "u".into()];
        ObjectEvent::new(regarding, true, "FailedScheduling", message.into()).with("Scheduling", "7")
    }

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    #[test]
    fn events_have_the_form_of_the_newer_api() {
        let related = ["v1".into(), "Pod".into(), "default".into(), "other".into(), "o".into()];
        let event = ObjectEvent { related: Some(related), ..event("why") };
        let expected = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": "web.ff", "namespace": "default"},
            "eventTime": "1970-01-01T00:01:00.000000Z",
            "reportingController": "default-scheduler", "reportingInstance": "default-scheduler-kubewright",
            "action": "Scheduling", "reason": "FailedScheduling", "note": "why", "type": "Warning",
            "regarding": {
                "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web", "uid": "u",
                "resourceVersion": "7",
            },
            "related": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "other", "uid": "o"},
        });
        assert_eq!(body("default-scheduler", &event, 255, at(1)), expected);
        let long = truncated(&"é".repeat(600));
        assert!(long.len() <= MAX_NOTE && long.ends_with("é ..."), "{}", long.len());
    }

    #[test]
    fn repetitions_are_a_series() {
        let mut series = Series::default();
        let observe = |series: &mut Series, message: &str, minute| {
            series.observe(&event(message), || json!({"note": message}), at(minute))
        };
        assert_eq!(observe(&mut series, "a", 0), Some(Write::Create(json!({"note": "a"}))));
        assert_eq!(series.next_due, None);
        let counted = |count: u32, last: i64| {
            Write::Count(json!({"note": "a", "series": {"count": count, "lastObservedTime": micro(at(last))}}))
        };
        // The note isn't what distinguishes events.
        assert_eq!(observe(&mut series, "b", 1), Some(counted(2, 1)));
        assert_eq!((observe(&mut series, "a", 2), observe(&mut series, "a", 5)), (None, None));
        assert_eq!((series.next_due, series.take_due(at(10))), (Some(at(7)), vec![]));
        assert_eq!((series.next_due, series.take_due(at(11))), (Some(at(11)), vec![counted(4, 5)]));
        assert_eq!((series.next_due, series.known.len()), (None, 0));
        // One that goes on is written now and then.
        let of_second = |minute: i64| observe(&mut series, "a", minute);
        assert_eq!((20..51).filter_map(of_second).count(), 2);
        assert_eq!((series.next_due, series.take_due(at(50))), (Some(at(27)), vec![]));
        assert_eq!((series.next_due, series.take_due(at(51))), (Some(at(51)), vec![counted(31, 50)]));
        assert_eq!(series.next_due, Some(at(56)));
    }

    #[test]
    fn an_event_that_is_not_repeated_is_forgotten() {
        let mut series = Series::default();
        for minute in [0, 7] {
            let write = series.observe(&event("a"), || json!({}), at(minute));
            assert_eq!(write, Some(Write::Create(json!({}))), "{minute}");
        }
        assert_eq!((series.known.len(), series.single.len()), (1, 1));
        for number in 0..=REMEMBERED {
            let mut event = event("a");
            event.regarding[3] = number.to_string();
            series.observe(&event, || json!({}), at(8));
        }
        assert_eq!((series.known.len(), series.single.len()), (REMEMBERED, REMEMBERED));
    }
}
