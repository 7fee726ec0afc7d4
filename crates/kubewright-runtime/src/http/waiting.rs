//! The connections of a server that wait for their clients' next request. When there are too many connections, the one
//! that has waited longest makes room for another.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The connections of a server that wait, by the order in which they began to.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: Mutex<Queue>,
    /// Notified when a connection begins to wait.
    grown: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    /// The last number that was given.
    last: u64,
    /// What closes each connection.
    closes: BTreeMap<u64, CancellationToken>,
}

impl Waiting {
    /// Closes the connection that has waited longest, once there is one.
    pub(super) async fn close_longest(&self) {
        loop {
            if let Some((_, close)) = self.queue.lock().closes.pop_first() {
                close.cancel();
                return;
            }
            self.grown.notified().await;
        }
    }
}

/// The number of a connection that answers a request.
const BUSY: u64 = 0;

/// One of the connections. It waits at first.
#[derive(Debug)]
pub(super) struct Place {
    waiting: Arc<Waiting>,
    /// Its number while it waits; a new one each time.
    number: AtomicU64,
    close: CancellationToken,
}

impl Place {
    pub(super) fn new(waiting: Arc<Waiting>) -> Self {
        let place = Self { waiting, number: AtomicU64::new(BUSY), close: CancellationToken::new() };
        place.wait();
        place
    }

    /// Begins to wait.
    pub(super) fn wait(&self) {
        let mut queue = self.waiting.queue.lock();
        queue.last += 1;
        let number = queue.last;
        self.number.store(number, Ordering::Relaxed);
        queue.closes.insert(number, self.close.clone());
        self.waiting.grown.notify_one();
    }

    /// Ends the wait: there is a request.
    pub(super) fn answer(&self) {
        self.waiting.queue.lock().closes.remove(&self.number.swap(BUSY, Ordering::Relaxed));
    }

    /// Returns the number of the present wait, if it waits.
    pub(super) fn number(&self) -> Option<u64> {
        Some(self.number.load(Ordering::Relaxed)).filter(|number| *number != BUSY)
    }

    /// Completes when the connection has to make room for another.
    pub(super) async fn closed(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.answer();
    }
}
