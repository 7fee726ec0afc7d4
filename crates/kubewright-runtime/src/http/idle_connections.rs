//! The idle connections of a server: those without a request in progress. When there are too many connections, the one
//! that has been idle for the longest time is closed for another.

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

/// The idle connections of a server, by the order in which they became idle.
#[derive(Debug, Default)]
pub(super) struct IdleConnections {
    queue: Mutex<Queue>,
    /// Notified when a connection becomes idle.
    grown: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    /// The last number that was given.
    last: u64,
    /// What closes each connection.
    closes: BTreeMap<u64, CancellationToken>,
}

impl IdleConnections {
    /// Closes the connection that has been idle for the longest time, once there is one.
    pub(super) async fn close_oldest(&self) {
        loop {
            if let Some((_, close)) = self.queue.lock().closes.pop_first() {
                close.cancel();
                return;
            }
            self.grown.notified().await;
        }
    }
}

/// The number of a connection that isn't idle.
const BUSY: u64 = 0;

/// The state of one connection, which is idle at first.
#[derive(Debug)]
pub(super) struct ConnectionState {
    idle: Arc<IdleConnections>,
    /// Its number while it is idle; a new one each time.
    number: AtomicU64,
    close: CancellationToken,
}

impl ConnectionState {
    pub(super) fn new(idle: Arc<IdleConnections>) -> Self {
        let state = Self { idle, number: AtomicU64::new(BUSY), close: CancellationToken::new() };
        state.end_request();
        state
    }

    /// Makes the connection idle: there is no request any more, or not yet.
    pub(super) fn end_request(&self) {
        let mut queue = self.idle.queue.lock();
        queue.last += 1;
        let number = queue.last;
        self.number.store(number, Ordering::Relaxed);
        queue.closes.insert(number, self.close.clone());
        self.idle.grown.notify_one();
    }

    /// Notes that there is a request.
    pub(super) fn begin_request(&self) {
        self.idle.queue.lock().closes.remove(&self.number.swap(BUSY, Ordering::Relaxed));
    }

    /// Returns the number of the present idle time; `None` while there is a request.
    pub(super) fn idle_number(&self) -> Option<u64> {
        Some(self.number.load(Ordering::Relaxed)).filter(|number| *number != BUSY)
    }

    /// Completes when the connection is to be closed for another.
    pub(super) async fn closed(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        self.begin_request();
    }
}
