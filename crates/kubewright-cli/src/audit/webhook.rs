//! The audit log's backend by webhook: events are sent to an HTTP server, in batches or one by one.

use std::{path::Path, sync::mpsc::sync_channel, time::Duration};

use anyhow::{Context, Result, bail};
use http::{Request, header};
use kube::{Client, client::Body, config::Kubeconfig};
use kubewright_cluster::AuditSink;
use serde_json::{Map, Value, json};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often events are sent until they are lost.
const ATTEMPTS: u32 = 5;
/// By how much each pause between attempts is longer than the one before.
const BACKOFF: f64 = 1.5;
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

/// The server that events are sent to.
#[derive(Clone)]
pub(super) struct Receiver {
    client: Client,
    path: String,
    backoff: Duration,
}

/// A sink of events that are sent to a server.
pub(super) enum Webhook {
    Batch(mpsc::Sender<Value>),
    Blocking(Receiver),
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

/// Returns the sink of a webhook, whose address and credentials are those of a kubeconfig, and its tasks.
///
/// # Errors
/// If the kubeconfig can't be used.
pub(super) async fn open(path: &Path, mode: Mode, backoff: Duration) -> Result<(Webhook, Option<Sending>)> {
    let failed = || format!("use the audit webhook of {}", path.display());
    let kubeconfig = Kubeconfig::read_from(path).with_context(failed)?;
    let mut config = kubewright_connect::config(kubeconfig, None).await.with_context(failed)?;
    // Clients of API servers add the paths of requests to that of the server, which is the whole path here.
    let mut parts = config.cluster_url.clone().into_parts();
    let path = parts.path_and_query.take().map_or_else(|| "/".to_owned(), |path| path.path().to_owned());
    parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
    config.cluster_url = http::Uri::from_parts(parts).with_context(failed)?;
    config.read_timeout = Some(TIMEOUT);
    let receiver = Receiver { client: kubewright_connect::client(config).with_context(failed)?, path, backoff };
    Ok(match mode {
        Mode::Blocking => (Webhook::Blocking(receiver), None),
        Mode::Batch(batch) => {
            let (sender, events) = mpsc::channel(batch.buffer);
            let stop = CancellationToken::new();
            let task = tokio::spawn(send_batches(receiver, events, batch, stop.clone()));
            (Webhook::Batch(sender), Some(Sending { stop, task }))
        }
    })
}

impl AuditSink for Webhook {
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
            Self::Blocking(receiver) => {
                let (receiver, (sent, wait)) = (receiver.clone(), sync_channel(1));
                tokio::spawn(async move {
                    receiver.send(vec![event.into()]).await;
                    // The request may have ended.
                    let _ = sent.send(());
                });
                // Other requests and the task go on in other threads meanwhile.
                tokio::task::block_in_place(|| wait.recv().unwrap_or_default());
            }
        }
    }
}

/// Sends events in batches until it is stopped, and then those that wait.
async fn send_batches(receiver: Receiver, mut events: mpsc::Receiver<Value>, batch: Batch, stop: CancellationToken) {
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
            let receiver = receiver.clone();
            tracker.spawn(async move { receiver.send(items).await });
        }
    }
    tracker.close();
    tracker.wait().await;
}

impl Receiver {
    /// Sends events, repeatedly if need be.
    async fn send(&self, items: Vec<Value>) {
        let list = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": items});
        let list = list.to_string();
        let mut pause = self.backoff;
        for attempt in 1..=ATTEMPTS {
            match self.post(&list).await {
                Ok(()) => return,
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(error, attempt, of = ATTEMPTS, "events couldn't be sent to the audit webhook");
                }
            }
            if attempt < ATTEMPTS {
                tokio::time::sleep(pause).await;
                pause = pause.mul_f64(BACKOFF);
            }
        }
    }

    async fn post(&self, list: &str) -> Result<()> {
        let request = Request::post(format!("{}?timeout={}s", self.path, TIMEOUT.as_secs()))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .body(Body::from(list.as_bytes().to_vec()))?;
        let response =
            tokio::time::timeout(TIMEOUT, self.client.send(request)).await.context("wait for an answer")??;
        if !response.status().is_success() {
            bail!("the server answers {}", response.status());
        }
        Ok(())
    }
}
