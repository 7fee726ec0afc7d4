//! The audit log's backend by webhook: events are sent to an HTTP server, in batches or one by one.

use std::time::Duration;

use kubewright_cluster::AuditSink;
use serde_json::{Map, Value, json};
use tokio::{runtime::Handle, sync::mpsc, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::webhook::Webhook;

/// The longest wait for events that are still to be sent at the end.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// How events are sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    /// Many at a time, after the requests that they are about have been answered.
    Batch(Batch),
    /// Each before its request goes on.
    Blocking,
}

/// The batches of events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    /// The number of events that can wait. More are lost.
    pub(super) buffer: usize,
    /// The number of events that are sent at once.
    pub(super) max_size: usize,
    /// The longest time for which an event waits for others.
    pub(super) max_wait: Duration,
}

/// A sink of events that are sent to a server.
pub(super) enum Sink {
    Batch(mpsc::Sender<Value>),
    Blocking(Webhook),
}

/// The tasks of a webhook.
pub(crate) struct Sending {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Sending {
    /// Sends the events that still wait. To be called when there are no more requests.
    pub(crate) async fn finish(self) {
        self.stop.cancel();
        if tokio::time::timeout(LAST_WAIT, self.task).await.is_err() {
            tracing::error!("the last events of the audit log couldn't be sent to its webhook in time");
        }
    }
}

/// Returns the sink of a webhook, and its tasks.
pub(super) fn open(webhook: Webhook, mode: Mode) -> (Sink, Option<Sending>) {
    match mode {
        Mode::Blocking => (Sink::Blocking(webhook), None),
        Mode::Batch(batch) => {
            let (sender, events) = mpsc::channel(batch.buffer);
            let stop = CancellationToken::new();
            let task = tokio::spawn(send_batches(webhook, events, batch, stop.clone()));
            (Sink::Batch(sender), Some(Sending { stop, task }))
        }
    }
}

impl AuditSink for Sink {
    fn write(&self, event: &[u8]) {
        let Ok(mut event) = serde_json::from_slice::<Map<String, Value>>(event) else { return };
        // The items of a list have the kind of the list.
        for field in ["kind", "apiVersion"] {
            event.remove(field);
        }
        match self {
            Self::Batch(events) => {
                if events.try_send(event.into()).is_err() {
                    tracing::error!("an event is missing in the audit webhook, since too many wait for it");
                }
            }
            // Other requests go on in other threads meanwhile.
            Self::Blocking(webhook) => tokio::task::block_in_place(|| {
                Handle::current().block_on(send(webhook, vec![event.into()]));
            }),
        }
    }
}

/// Sends events in batches until it is stopped, and then those that wait.
async fn send_batches(webhook: Webhook, mut events: mpsc::Receiver<Value>, batch: Batch, stop: CancellationToken) {
    let tracker = TaskTracker::new();
    let mut is_last = false;
    while !is_last {
        let mut items = Vec::new();
        let more = async {
            while items.len() < batch.max_size {
                let Some(event) = events.recv().await else { return true };
                items.push(event);
            }
            false
        };
        tokio::select! {
            waited = tokio::time::timeout(batch.max_wait, more) => is_last = waited.unwrap_or(false),
            () = stop.cancelled() => {
                events.close();
                while let Ok(event) = events.try_recv() {
                    items.push(event);
                }
                is_last = true;
            }
        }
        for items in items.chunks(batch.max_size).map(<[_]>::to_vec) {
            let webhook = webhook.clone();
            tracker.spawn(async move { send(&webhook, items).await });
        }
    }
    tracker.close();
    tracker.wait().await;
}

/// Sends events, repeatedly if need be.
async fn send(webhook: &Webhook, items: Vec<Value>) {
    let list = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": items});
    if let Err(error) = webhook.post(&list.to_string(), |_| true).await {
        tracing::error!(%error, "events couldn't be sent to the audit webhook");
    }
}
