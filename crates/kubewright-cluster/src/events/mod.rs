//! Event recording for the controllers, the scheduler and the kubelet: each distinct occurrence has one Event object,
//! whose count grows with each repetition, and many similar ones share one ([`correlation`]).
//!
//! Recording never blocks: a background task writes the events, and events are dropped while too many are pending.

mod correlation;
mod series;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kubewright_apimachinery::clock::SharedClock;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use self::correlation::{Correlated, Correlator};
use crate::object_client::{ObjectClient, ObjectPath};

/// The maximum number of pending events.
const PENDING: usize = 1000;
/// The component whose events Kubernetes records through the newer API, in the form of [`series`].
const SCHEDULER: &str = "default-scheduler";

/// An occurrence to record as an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectEvent {
    /// The object: `apiVersion`, `kind`, `namespace`, `name` and `uid`.
    pub(crate) regarding: [String; 5],
    /// The part of the object, such as `spec.containers{main}`; empty for the whole.
    pub(crate) field_path: String,
    /// Whether the type is `Warning` instead of `Normal`.
    pub(crate) warning: bool,
    /// The reason, such as `Started`.
    pub(crate) reason: String,
    /// The human-readable message.
    pub(crate) message: String,
    /// What was done, in an event of the newer API; else empty.
    pub(crate) action: &'static str,
    /// The resource version of the object, in an event of the newer API.
    pub(crate) version: String,
    /// Another object that the event is about, in an event of the newer API.
    pub(crate) related: Option<[String; 5]>,
}

impl ObjectEvent {
    /// Creates an event about an object as a whole.
    pub(crate) fn new(regarding: [String; 5], warning: bool, reason: &str, message: String) -> Self {
        let (field_path, version) = (String::new(), String::new());
        Self { regarding, field_path, warning, reason: reason.into(), message, action: "", version, related: None }
    }

    /// Returns the event with what an event of the newer API has.
    pub(crate) fn with(mut self, action: &'static str, version: &str) -> Self {
        (self.action, self.version) = (action, version.to_owned());
        self
    }

    /// Creates an event about a pod.
    pub(crate) fn of_pod(pod: &Pod, warning: bool, reason: &str, message: String) -> Self {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let metadata = &pod.metadata;
        let regarding =
            ["v1".into(), "Pod".into(), text(&metadata.namespace), text(&metadata.name), text(&metadata.uid)];
        Self::new(regarding, warning, reason, message)
    }
}

/// Records events for one component.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(mpsc::Sender<ObjectEvent>);

impl Recorder {
    /// Creates a recorder, and the task that writes its events. The task ends when all recorders are dropped.
    pub(crate) fn new(
        component: &'static str,
        host: &'static str,
        client: ObjectClient,
        clock: SharedClock,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = mpsc::channel(PENDING);
        let write = async move {
            if component == SCHEDULER {
                series::Writer::new(component, client, clock).run(receiver).await;
            } else {
                let correlator = Correlator::default();
                Writer { component, host, client, clock, last: 0, correlator }.run(receiver).await;
            }
        };
        (Self(sender), write)
    }

    /// Records an occurrence.
    pub(crate) fn record(&self, event: ObjectEvent) {
        if self.0.try_send(event).is_err() {
            tracing::debug!("dropped an event: too many are pending");
        }
    }
}

struct Writer {
    component: &'static str,
    host: &'static str,
    client: ObjectClient,
    clock: SharedClock,
    /// The nanosecond timestamp in the name of the most recent event.
    last: i128,
    correlator: Correlator,
}

impl Writer {
    async fn run(mut self, mut events: mpsc::Receiver<ObjectEvent>) {
        while let Some(event) = events.recv().await {
            self.write(event).await;
        }
    }

    async fn write(&mut self, event: ObjectEvent) {
        let [.., namespace, _, _] = &event.regarding;
        let place = if namespace.is_empty() { "default" } else { namespace.as_str() };
        let events = ObjectPath::core("events", Some(place), "");
        let now = self.clock.now();
        let Some(event) = self.correlator.observe(&event, now) else { return };
        if let Some(name) = &event.name {
            let patch = json!({"count": event.count, "message": event.message, "lastTimestamp": written(now)});
            let address = ObjectPath { name: name.clone(), ..events.clone() };
            match self.client.merge(&address, "", &patch).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "failed to count an event; creating another one"),
            }
        }
        self.last = now.as_nanosecond().max(self.last + 1);
        let body = self.body(&event, place, now);
        match self.client.create(&events, "", &body).await {
            Ok(created) => {
                self.correlator.created(&event.counted, created["metadata"]["name"].as_str().unwrap_or_default());
            }
            Err(error) => tracing::debug!(%error, "failed to write an event"),
        }
    }

    fn body(&self, event: &Correlated, place: &str, now: Timestamp) -> Value {
        let [version, kind, namespace, name, uid] = &event.counted.regarding;
        // A combined event has no reporter in Kubernetes.
        let (component, host) = if event.combined { ("", "") } else { (self.component, self.host) };
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": format!("{name}.{:x}", self.last), "namespace": place},
            "involvedObject": {"apiVersion": version, "kind": kind, "namespace": namespace, "name": name, "uid": uid},
            "type": if event.counted.warning { "Warning" } else { "Normal" },
            "reason": event.counted.reason,
            "message": event.message,
            "count": event.count,
            "firstTimestamp": written(now),
            "lastTimestamp": written(now),
            "source": {"component": self.component, "host": self.host},
            "reportingComponent": component,
            "reportingInstance": host,
        });
        if !event.counted.field_path.is_empty() {
            body["involvedObject"]["fieldPath"] = event.counted.field_path.as_str().into();
        }
        body
    }
}

/// Formats a time in microseconds, as Kubernetes' `MicroTime`.
pub(crate) fn micro(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Formats a time in whole seconds, as in Kubernetes objects.
pub(crate) fn written(time: Timestamp) -> String {
    whole_seconds(time).to_string()
}

/// Truncates a time to whole seconds.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
