//! The lock and notification of the shared queue. The tests of interleavings replace them.

use std::time::Duration;

use futures::FutureExt;
pub(super) use parking_lot::Mutex;
pub(super) use tokio::sync::Notify;

/// Waits for a notification, or until the timeout. All notifications up to its return count as one: the caller looks at
/// the queue afterwards.
pub(super) async fn wait(notify: &Notify, timeout: Option<Duration>) {
    match timeout {
        // The timeout isn't an error here.
        Some(timeout) => drop(tokio::time::timeout(timeout, notify.notified()).await),
        None => notify.notified().await,
    }
    // An event notifies twice: for the key that it enqueues, and for keys that wait for its state.
    let _ = notify.notified().now_or_never();
}
