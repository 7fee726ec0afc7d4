//! The queue as tasks share it: a lock, a clock, and a bell that rings when something was added.

use std::time::Duration;

use kubewright_apimachinery::clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Backoff, Now, Queue, When};
use crate::{metrics::QueueMetrics, object::ObjectKey};

/// The queue of one controller.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    queue: Mutex<Queue<ObjectKey>>,
    bell: Notify,
    clock: SharedClock,
    metrics: QueueMetrics,
}

impl SharedQueue {
    pub(crate) fn new(clock: SharedClock, metrics: QueueMetrics) -> Self {
        Self { queue: Mutex::new(Queue::new(Backoff::default())), bell: Notify::new(), clock, metrics }
    }

    pub(crate) fn now(&self) -> Now {
        Now { monotonic: self.clock.monotonic(), wall: self.clock.now() }
    }

    pub(crate) fn add(&self, key: ObjectKey, priority: i32, when: When) {
        let now = self.now();
        if self.queue.lock().add(key, priority, when, now) {
            self.metrics.added();
            self.ring();
        }
    }

    /// Works on the queue at one moment, and brings its metrics up to date.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Queue<ObjectKey>, Now) -> T) -> T {
        let now = self.now();
        let mut queue = self.queue.lock();
        let result = work(&mut queue, now);
        for (priority, depth) in queue.depths() {
            self.metrics.set_depth(*priority, *depth);
        }
        result
    }

    /// Wakes who waits in [`SharedQueue::changed`], now or the next time.
    pub(crate) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Returns when the bell has rung, or after this long.
    pub(crate) async fn changed(&self, longest: Option<Duration>) {
        match longest {
            // A timeout is one of the two things waited for.
            Some(longest) => drop(tokio::time::timeout(longest, self.bell.notified()).await),
            None => self.bell.notified().await,
        }
    }
}
