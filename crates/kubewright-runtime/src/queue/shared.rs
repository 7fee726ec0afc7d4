//! The queue shared between tasks: with a lock, a clock and a notification.

use std::{hash::Hash, sync::Arc, time::Duration};

use kubewright_apimachinery::clock::SharedClock;

use super::sync::{Mutex, Notify, wait};
use crate::{
    metrics::{QueueMetrics, QueueState},
    object::ObjectKey,
    queue::{Backoff, Now, Queue, When},
};

/// A [`Queue`] shared by many tasks that add keys and one that takes them.
///
/// The taking task looks at the queue first and then waits: a key that is added between the two ends the wait.
///
/// ```
/// # use kubewright_runtime::{clock::SystemClock, metrics::Metrics, object::ObjectKey};
/// # use kubewright_runtime::queue::{NORMAL_PRIORITY, SharedQueue, When};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let clock = SystemClock::shared();
/// let queue = SharedQueue::new(clock.clone(), Metrics::new(clock).queue("example"));
/// queue.add(ObjectKey::namespaced("default", "web"), NORMAL_PRIORITY, When::Now);
/// let taken = loop {
///     match queue.with(|queue, now| queue.take(now).ok_or(queue.next_wake(now))) {
///         Ok(taken) => break taken,
///         Err(pause) => queue.changed(pause).await,
///     }
/// };
/// assert_eq!(taken.key.name(), "web");
/// queue.with(|queue, _| queue.done(&taken.key));
/// # }
/// ```
#[derive(Debug)]
pub struct SharedQueue<K = ObjectKey> {
    queue: Arc<Mutex<Queue<K>>>,
    notify: Notify,
    clock: SharedClock,
}

impl<K: Clone + Eq + Hash + Send + 'static> SharedQueue<K> {
    /// An empty queue with the default [`Backoff`].
    pub fn new(clock: SharedClock, metrics: QueueMetrics) -> Self {
        Self::of(Queue::new(Backoff::default()), clock, metrics)
    }

    /// Shares a queue, such as one with another [`Backoff`] or a seed. The metrics report this queue from now on.
    pub fn of(queue: Queue<K>, clock: SharedClock, metrics: QueueMetrics) -> Self {
        let queue = Arc::new(Mutex::new(queue));
        let observed = Arc::downgrade(&queue);
        let mut known = 0;
        metrics.follow(move || {
            let Some(queue) = observed.upgrade() else { return QueueState::default() };
            let queue = queue.lock();
            let added = queue.added() - known;
            known = queue.added();
            QueueState { depths: queue.depths().collect(), added }
        });
        Self { queue, notify: Notify::new(), clock }
    }

    /// Returns the current time of the queue's clock.
    pub fn now(&self) -> Now {
        Now { monotonic: self.clock.monotonic(), wall: self.clock.now() }
    }

    /// [`Queue::add`], and wakes the task that waits for keys.
    pub fn add(&self, key: K, priority: i32, when: When) {
        self.add_noting(key, priority, when, |_, _| {});
    }

    /// [`SharedQueue::add`], which calls `note` under the same lock.
    pub(crate) fn add_noting(&self, key: K, priority: i32, when: When, note: impl FnOnce(&K, Now)) {
        let now = self.now();
        let mut queue = self.queue.lock();
        note(&key, now);
        let is_new = queue.add(key, priority, when, now);
        drop(queue);
        if !is_new && when == When::Now {
            // The key was ready before, so the waiting task has been notified.
            return;
        }
        self.notify();
    }

    /// Calls `work` with the locked queue. All other tasks wait meanwhile, so it must be short.
    pub fn with<T>(&self, work: impl FnOnce(&mut Queue<K>, Now) -> T) -> T {
        let now = self.now();
        work(&mut self.queue.lock(), now)
    }

    /// Wakes the task that waits in [`SharedQueue::changed`], or ends its next wait.
    pub fn notify(&self) {
        self.notify.notify_one();
    }

    /// Returns after a notification, or after the timeout.
    pub async fn changed(&self, timeout: Option<Duration>) {
        wait(&self.notify, timeout).await;
    }
}
