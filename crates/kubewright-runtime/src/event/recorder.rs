//! Recording events: a bounded channel, and one task that writes to the API server.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::{core::v1::ObjectReference, events::v1};
use kube::{
    Api, Client, Error,
    api::{Patch, PatchParams, PostParams},
};
use kubewright_apimachinery::clock::SharedClock;
use serde_json::json;
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Event,
    correlator::{Correlator, Decision, Write},
};
use crate::{client::explain, metrics::Metrics};

/// The maximum number of events that wait to be written. Further ones are discarded.
const CAPACITY: usize = 1000;
/// The interval between checks of collected repetitions.
const REFRESH: Duration = Duration::from_secs(30);
/// The maximum number of attempts to write an event before it is discarded.
const TRIES: u32 = 12;
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// An event with its object, its controller and its time.
#[derive(Clone, Debug)]
pub(super) struct PendingEvent {
    pub(super) regarding: ObjectReference,
    pub(super) event: Event,
    pub(super) controller: Arc<str>,
    pub(super) time: Timestamp,
}

/// Records the events of one controller, or of another part of a manager
/// ([`Manager::recorder`](crate::manager::Manager::recorder)). Clones are cheap.
///
/// ```
/// # use k8s_openapi::api::core::v1::Node;
/// # use kube::Resource;
/// # use kubewright_runtime::event::{Event, Recorder};
/// # fn example(recorder: &Recorder, node: &Node) {
/// recorder.record(&node.object_ref(&()), Event::warning("DiskFull", "the disk has no space left"));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: LateQueue,
    controller: Arc<str>,
}

/// The queue of a manager's events, which exists once the manager runs.
pub(crate) type LateQueue = Arc<OnceLock<EventQueue>>;

/// The sending side of a [`Broadcaster`].
#[derive(Debug)]
pub(crate) struct EventQueue {
    sender: mpsc::Sender<PendingEvent>,
    clock: SharedClock,
    metrics: Metrics,
}

impl Recorder {
    pub(crate) fn new(queue: LateQueue, controller: &str) -> Self {
        Self { queue, controller: controller.into() }
    }

    /// Queues an event to be written. It never waits: while a thousand events are queued, further ones are discarded
    /// and counted (`kubewright_events_discarded_total`). Events that are recorded before the manager runs are
    /// discarded.
    pub fn record(&self, regarding: &ObjectReference, event: Event) {
        let Some(EventQueue { sender, clock, metrics }) = self.queue.get() else {
            return tracing::warn!(event.reason, "discarding an event that was recorded before the manager runs");
        };
        let (controller, time) = (self.controller.clone(), clock.now());
        let event = PendingEvent { regarding: regarding.clone(), event, controller, time };
        match sender.try_send(event) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => metrics.event_discarded("queue_full"),
            Err(TrySendError::Closed(_)) => metrics.event_discarded("shut_down"),
        }
    }
}

/// Owns the task that writes the events of all controllers of a manager. Dropping it ends the task at once.
#[derive(Debug)]
pub struct Broadcaster {
    queue: LateQueue,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Broadcaster {
    /// Starts the task. `instance` names this process among its replicas (usually the pod's name).
    pub fn start(client: Client, instance: &str, clock: SharedClock, metrics: Metrics) -> Self {
        Self::start_for(LateQueue::default(), client, instance, clock, metrics)
    }

    /// [`Broadcaster::start`] for recorders that were made before.
    pub(crate) fn start_for(
        queue: LateQueue,
        client: Client,
        instance: &str,
        clock: SharedClock,
        metrics: Metrics,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let stop = CancellationToken::new();
        let correlator = Correlator::new(if instance.is_empty() { "unknown" } else { instance });
        let writer = Writer { client, correlator, clock: clock.clone(), metrics: metrics.clone() };
        let task = tokio::spawn(writer.run(receiver, stop.clone()));
        queue.get_or_init(|| EventQueue { sender, clock, metrics });
        Self { queue, stop, task }
    }

    /// Returns the recorder of a controller. `kubectl describe` shows its name under `From`, such as `at-controller`.
    pub fn recorder(&self, controller: &str) -> Recorder {
        Recorder::new(self.queue.clone(), controller)
    }

    /// Writes the queued events, for at most `deadline`, and ends the task. Events recorded from now on are discarded.
    pub async fn shutdown(mut self, deadline: Duration) {
        self.stop.cancel();
        if timeout(deadline, &mut self.task).await.is_err() {
            tracing::warn!("discarding events that could not be written in time");
        }
    }
}

impl Drop for Broadcaster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Writer {
    client: Client,
    correlator: Correlator,
    clock: SharedClock,
    metrics: Metrics,
}

impl Writer {
    async fn run(mut self, mut receiver: mpsc::Receiver<PendingEvent>, stop: CancellationToken) {
        let mut ticks = interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                // Events that were recorded before the shutdown are written before the task ends.
                () = stop.cancelled(), if !receiver.is_closed() => receiver.close(),
                _ = ticks.tick(), if !self.correlator.is_idle() => {
                    for write in self.correlator.refresh(self.clock.monotonic()) {
                        self.write(write).await;
                    }
                }
                event = receiver.recv() => match event {
                    Some(event) => self.observe(event).await,
                    None => break,
                },
            }
        }
        for write in self.correlator.flush(self.clock.monotonic()) {
            self.write(write).await;
        }
    }

    async fn observe(&mut self, event: PendingEvent) {
        match self.correlator.observe(event, self.clock.monotonic()) {
            Decision::Write(write) => self.write(write).await,
            Decision::Gathered => {}
            Decision::Limited => self.metrics.event_discarded("rate_limited"),
        }
    }

    /// Tries to write until it succeeds, is refused, or has failed too often.
    async fn write(&mut self, mut write: Write) {
        let mut pause = FIRST_RETRY;
        // Whether an earlier attempt may have taken effect although its response was lost.
        let mut uncertain = false;
        for _ in 0..TRIES {
            let Err(error) = self.send(&write).await else { return };
            match after(error, write, uncertain) {
                Next::Done => return,
                Next::Refused(error) => {
                    // Usually the namespace is being deleted, or the role lacks the permission.
                    tracing::info!(error = explain(&error), "the API server refused an event");
                    return self.metrics.event_discarded("refused");
                }
                Next::Create(event) => write = Write::Create(event),
                Next::Rename(mut event) => {
                    self.correlator.rename(&mut event);
                    write = Write::Create(event);
                    uncertain = false;
                }
                Next::Retry(error, same) => {
                    tracing::debug!(error = explain(&error), "can't write an event; retrying");
                    write = same;
                    uncertain = true;
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_RETRY);
                }
            }
        }
        tracing::warn!(tries = TRIES, "discarding an event that could not be written");
        self.metrics.event_discarded("unavailable");
    }

    async fn send(&self, write: &Write) -> Result<(), Error> {
        let (Write::Create(event) | Write::Repeat(event)) = write;
        let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
        let name = event.metadata.name.as_deref().unwrap_or_default();
        let events = Api::<v1::Event>::namespaced(self.client.clone(), namespace);
        match write {
            Write::Create(event) => events.create(&PostParams::default(), event).await.map(drop),
            Write::Repeat(event) => {
                let patch = Patch::Merge(json!({ "series": event.series }));
                events.patch(name, &PatchParams::default(), &patch).await.map(drop)
            }
        }
    }
}

/// The reaction to an error.
enum Next {
    Done,
    Refused(Error),
    Create(Box<v1::Event>),
    Rename(Box<v1::Event>),
    Retry(Error, Write),
}

fn after(error: Error, write: Write, uncertain: bool) -> Next {
    let (code, taken) = match &error {
        Error::Api(status) => (status.code, status.reason == "AlreadyExists"),
        _ => return Next::Retry(error, write),
    };
    match write {
        Write::Repeat(event) if code == 404 => Next::Create(event),
        Write::Create(_) if taken && uncertain => Next::Done,
        Write::Create(event) if taken => Next::Rename(event),
        write if code >= 500 || code == 429 => Next::Retry(error, write),
        _ => Next::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http::{Method, Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use kubewright_apimachinery::clock::SystemClock;
    use parking_lot::Mutex;
    use serde_json::Value;
    use tower::service_fn;

    use super::*;

    /// The reaction of the API server to a request.
    #[derive(Clone, Copy)]
    enum Script {
        Accept,
        Answer(u16, &'static str),
        Lose,
        Hang,
    }

    /// The methods and bodies of requests.
    type Requests = Arc<Mutex<Vec<(Method, Value)>>>;

    /// Returns a client of a scripted API server, which accepts everything after the script, and the requests.
    fn api(script: &[Script]) -> (Client, Requests) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(Mutex::new(VecDeque::from(script.to_vec())));
        let record = seen.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (record, step) = (record.clone(), script.lock().pop_front().unwrap_or(Script::Accept));
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let body: Value = serde_json::from_slice(&body).unwrap();
                record.lock().push((method, body.clone()));
                let (code, answer) = match step {
                    Script::Accept => (200, json!({ "metadata": {} })),
                    Script::Answer(code, reason) => (
                        code,
                        json!({ "kind": "Status", "code": code, "reason": reason, "message": "no", "status": "Failure" }),
                    ),
                    Script::Lose => return Err(std::io::Error::other("connection reset")),
                    Script::Hang => std::future::pending().await,
                };
                let answer = Body::from(serde_json::to_vec(&answer).unwrap());
                Ok(Response::builder().status(code).body(answer).unwrap())
            }
        });
        (Client::new(service, "default"), seen)
    }

    fn object() -> ObjectReference {
        ObjectReference { namespace: Some("jobs".into()), name: Some("run".into()), ..ObjectReference::default() }
    }

    /// Records events with this script. Returns the requests, as method and note or series count, and the metrics.
    async fn play(script: &[Script], notes: &[&str]) -> (Vec<String>, String) {
        let (client, seen) = api(script);
        let metrics = Metrics::new(SystemClock::shared());
        let broadcaster = Broadcaster::start(client, "pod-1", SystemClock::shared(), metrics.clone());
        let recorder = broadcaster.recorder("at-controller");
        for note in notes {
            recorder.record(&object(), Event::normal("PhaseChange", *note));
        }
        broadcaster.shutdown(Duration::from_secs(60)).await;
        let shown = |(method, body): &(Method, Value)| match &body["series"]["count"] {
            Value::Null => format!("{method} {}", body["note"].as_str().unwrap()),
            count => format!("{method} x{count}"),
        };
        let sent = seen.lock().iter().map(shown).collect();
        (sent, metrics.encode().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_written_in_order_and_the_last_count_at_the_end() {
        let (sent, _) = play(&[], &["PENDING", "RUNNING", "DONE", "DONE", "DONE", "DONE"]).await;
        assert_eq!(sent, ["POST PENDING", "POST RUNNING", "POST DONE", "PATCH x2", "PATCH x4"]);
    }

    #[tokio::test(start_paused = true)]
    async fn transient_errors_are_retried() {
        let script = [Script::Answer(503, "ServiceUnavailable"), Script::Answer(429, "TooManyRequests")];
        let (sent, metrics) = play(&script, &["A", "B"]).await;
        assert_eq!(sent, ["POST A", "POST A", "POST A", "POST B"]);
        assert!(!metrics.contains("events_discarded_total{"), "{metrics}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_event_is_counted_and_the_next_is_written() {
        let (sent, metrics) = play(&[Script::Answer(403, "Forbidden")], &["A", "B"]).await;
        assert_eq!(sent, ["POST A", "POST B"]);
        assert!(metrics.contains("kubewright_events_discarded_total{reason=\"refused\"} 1"), "{metrics}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_with_a_lost_response_is_not_written_twice() {
        let (sent, _) = play(&[Script::Lose, Script::Answer(409, "AlreadyExists")], &["A"]).await;
        assert_eq!(sent, ["POST A", "POST A"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_exists_is_replaced() {
        let (sent, _) = play(&[Script::Answer(409, "AlreadyExists")], &["A"]).await;
        assert_eq!(sent, ["POST A", "POST A"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_series_of_a_deleted_event_is_created_again() {
        let script = [Script::Accept, Script::Answer(404, "NotFound")];
        let (sent, _) = play(&script, &["A", "A"]).await;
        assert_eq!(sent, ["POST A", "PATCH x2", "POST x2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn recording_never_waits_and_shutdown_keeps_its_deadline() {
        let (client, _) = api(&[Script::Hang]);
        let clock = SystemClock::shared();
        let metrics = Metrics::new(clock.clone());
        let broadcaster = Broadcaster::start(client, "pod-1", clock.clone(), metrics.clone());
        let recorder = broadcaster.recorder("at-controller");
        for number in 0..CAPACITY + 10 {
            recorder.record(&object(), Event::normal("Step", number.to_string()));
        }
        let before = clock.monotonic();
        broadcaster.shutdown(Duration::from_secs(3)).await;
        assert_eq!(clock.monotonic().abs_diff(before).as_secs(), 3);
        let text = metrics.encode().unwrap();
        assert!(text.contains("kubewright_events_discarded_total{reason=\"queue_full\"} 10"), "{text}");
    }
}
