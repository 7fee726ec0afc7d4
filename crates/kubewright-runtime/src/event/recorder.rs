//! The way of an event from a reconcile to the API server: a bounded channel, and one task that writes.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kubewright_apimachinery::clock::SharedClock;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::Event;
use crate::metrics::Metrics;

/// As many events may wait to be written; what comes on top is discarded.
const CAPACITY: usize = 1000;

/// An event, whom it is about, who says so, and when.
#[derive(Clone, Debug)]
pub(super) struct Occurrence {
    pub(super) regarding: ObjectReference,
    pub(super) event: Event,
    pub(super) controller: Arc<str>,
    pub(super) time: Timestamp,
}

/// Records the events of one controller. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Recorder {
    sender: mpsc::Sender<Occurrence>,
    controller: Arc<str>,
    clock: SharedClock,
    metrics: Metrics,
}

impl Recorder {
    /// Hands the event over to be written. It never waits: with a thousand events waiting, this one is discarded and counted.
    pub fn record(&self, regarding: &ObjectReference, event: Event) {
        let (controller, time) = (self.controller.clone(), self.clock.now());
        let occurrence = Occurrence { regarding: regarding.clone(), event, controller, time };
        if self.sender.try_send(occurrence).is_err() {
            self.metrics.event_discarded("queue_full");
        }
    }
}

/// Owns the task that writes the events of all controllers of a manager.
#[derive(Debug)]
pub struct Broadcaster {
    sender: mpsc::Sender<Occurrence>,
    clock: SharedClock,
    metrics: Metrics,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Broadcaster {
    /// Starts the task. `instance` names this process among its replicas (usually the pod's name).
    pub fn start(client: kube::Client, instance: &str, clock: SharedClock, metrics: Metrics) -> Self {
        let (sender, mut receiver) = mpsc::channel(CAPACITY);
        let stop = CancellationToken::new();
        let _ = (client, instance);
        let task = tokio::spawn(async move { while let Some(Occurrence { .. }) = receiver.recv().await {} });
        Self { sender, clock, metrics, stop, task }
    }

    /// A recorder for the controller that `kubectl describe` shows under `From`, such as `at-controller`.
    pub fn recorder(&self, controller: &str) -> Recorder {
        let (sender, clock, metrics) = (self.sender.clone(), self.clock.clone(), self.metrics.clone());
        Recorder { sender, controller: controller.into(), clock, metrics }
    }

    /// Writes what waits, for at most `deadline`, and ends the task. Events recorded from now on are discarded.
    pub async fn shutdown(self, deadline: Duration) {
        self.stop.cancel();
        let _ = (deadline, self.task);
    }
}
