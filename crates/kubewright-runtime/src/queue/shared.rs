//! The queue as tasks share it: a lock, a clock, and a bell that rings when something was added.

use std::{hash::Hash, sync::Arc, time::Duration};

use kubewright_apimachinery::clock::SharedClock;

use super::sync::{Mutex, Notify, wait};
use crate::{
    metrics::{QueueMetrics, QueueState},
    object::ObjectKey,
    queue::{Backoff, Now, Queue, When},
};

/// A [`Queue`] between many tasks that add keys and one that hands them out: a controller's own.
///
/// Whoever hands out looks first and then waits: what is added between the two is not missed.
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
    bell: Notify,
    clock: SharedClock,
}

impl<K: Clone + Eq + Hash + Send + 'static> SharedQueue<K> {
    /// An empty queue with the default [`Backoff`].
    pub fn new(clock: SharedClock, metrics: QueueMetrics) -> Self {
        Self::of(Queue::new(Backoff::default()), clock, metrics)
    }

    /// Shares a queue, such as one with another [`Backoff`] or a seed. From now on it is the one that the metrics tell of.
    pub fn of(queue: Queue<K>, clock: SharedClock, metrics: QueueMetrics) -> Self {
        let queue = Arc::new(Mutex::new(queue));
        let told = Arc::downgrade(&queue);
        let mut known = 0;
        metrics.follow(move || {
            let Some(queue) = told.upgrade() else { return QueueState::default() };
            let queue = queue.lock();
            let added = queue.added() - known;
            known = queue.added();
            QueueState { depths: queue.depths().collect(), added }
        });
        Self { queue, bell: Notify::new(), clock }
    }

    /// The time that the queue goes by.
    pub fn now(&self) -> Now {
        Now { monotonic: self.clock.monotonic(), wall: self.clock.now() }
    }

    /// [`Queue::add`], and wakes who waits for keys.
    pub fn add(&self, key: K, priority: i32, when: When) {
        self.add_noting(key, priority, when, |_, _| {});
    }

    /// [`SharedQueue::add`], with a note that is taken at the same moment.
    pub(crate) fn add_noting(&self, key: K, priority: i32, when: When, note: impl FnOnce(&K, Now)) {
        let now = self.now();
        let mut queue = self.queue.lock();
        note(&key, now);
        let is_new = queue.add(key, priority, when, now);
        drop(queue);
        if !is_new && when == When::Now {
            // It waits already, so whoever waits for keys has heard of it.
            return;
        }
        self.ring();
    }

    /// Works on the queue at one moment. Keep it short: all others wait.
    pub fn with<T>(&self, work: impl FnOnce(&mut Queue<K>, Now) -> T) -> T {
        let now = self.now();
        work(&mut self.queue.lock(), now)
    }

    /// Wakes who waits in [`SharedQueue::changed`], now or the next time.
    pub fn ring(&self) {
        self.bell.notify_one();
    }

    /// Returns when the bell has rung, or after this long.
    pub async fn changed(&self, longest: Option<Duration>) {
        wait(&self.bell, longest).await;
    }
}
